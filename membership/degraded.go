package membership

import (
	"math"
	"time"
)

// A node that loses sight of much of the cluster at once cannot tell whether the
// others died or it was cut off itself. While that is open its snapshots are
// degraded, and consumers keep their last good peers.
//
//	         share of the burst > 40 %, or
//	         a failure while our own probes go wrong
//	┌──────┐ ───────────────────────────────────────► ┌──────────┐
//	│ calm │                                          │ degraded │
//	└──────┘ ◄─────────────────────────────────────── └──────────┘
//	   all came back; or our own probes succeed and it was quiet,
//	   for 1 window while the share is at most 40 %, else for 2
//	   windows and only if others are alive
//
// A burst is a run of failures with less than one suspicion window between two
// of them: a node that is cut off probes slowly, so it loses the others one
// after the other, over minutes. For the same reason its own health, memberlist's
// count of probes without any answer, not even from helpers, is asked at the
// first failure already: at that moment nothing else tells the two cases apart.
// Members that leave, or are superseded, do not count.
//
// A node that sees nobody else stays degraded: that is never evidence that
// everybody died. Its data path knows better which peers still answer.
type burst struct {
	failed map[string]struct{} // not back yet
	before int                 // members when the burst began, this node included
	last   time.Time           // the latest failure
	on     bool
}

const (
	// degradedShare of the members must have failed for a snapshot to be degraded.
	degradedShare = 0.4
	// unhealthyScore of memberlist (0 is healthy, 7 the worst) means that probes
	// mostly get no answer from anybody. A single failed probe costs up to 3 and
	// every success returns 1, so a healthy node among few failures stays below.
	unhealthyScore = 4
)

// suspicionWindow is the longest that memberlist waits, in a cluster of n, before
// it declares a suspect dead.
func suspicionWindow(n int) time.Duration {
	scale := max(1, math.Log10(max(1, float64(n))))
	return time.Duration(suspicionMult * suspicionMaxMult * scale * float64(probeInterval))
}

// failure notes that a member failed, while members were seen before and the own
// health was score.
func (b *burst) failure(id string, members, score int, now time.Time) {
	if b.failed == nil || (!b.on && now.Sub(b.last) > suspicionWindow(b.before)) {
		b.failed, b.before = make(map[string]struct{}), members
	}
	b.failed[id] = struct{}{}
	// Joiners during a burst make the cluster larger, not the loss smaller.
	b.before = max(b.before, members)
	b.last = now
	if score >= unhealthyScore || b.large() {
		b.on = true
	}
}

// returned notes that a member is seen again, or was replaced by a newer one.
func (b *burst) returned(id string) { delete(b.failed, id) }

func (b *burst) large() bool { return float64(len(b.failed)) > degradedShare*float64(b.before) }

// check decides whether the snapshot is still degraded; members are those seen
// now, this node included.
func (b *burst) check(members, score int, now time.Time) (degraded bool) {
	if !b.on {
		return false
	}
	healthy := score < unhealthyScore
	quiet := now.Sub(b.last)
	window := suspicionWindow(b.before)
	switch {
	case len(b.failed) == 0, healthy && members > 1 && quiet >= 2*window:
		*b = burst{} // back to normal, or the loss is accepted
	case healthy && !b.large() && quiet >= window:
		b.on = false // a few are missing; failures that follow soon still count with them
	}
	return b.on
}
