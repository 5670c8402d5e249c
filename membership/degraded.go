package membership

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
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
// after the other, over minutes. For the same reason it asks at the first failure
// already whether its own probes are answered (see pulse): at that moment nothing
// else tells the two cases apart. Members that leave, or are superseded, do not count.
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
	// mostly get no answer, not even from the helpers. A failed probe costs up to 3,
	// a success returns 1.
	unhealthyScore = 4
)

// pulse notes when a probe of this node was last answered.
//
// The score alone does not tell a node that is cut off from one that is well beside
// several dead members: when the helpers of a probe are dead, too, two probes cost 4.
// Of 400 fleets in which 3 of 12 members died at once, 19 had a member with that
// score. A node that is cut off has had no answer for nearly a whole suspicion window
// when it loses the first member, since no other member confirms its suspicion; one
// that is well probes a living member within half of a window.
type pulse struct {
	answeredAt atomic.Int64 // in nanoseconds, as of time.Time.UnixNano
}

// NotifyPingComplete and AckPayload make a memberlist.PingDelegate.
func (p *pulse) NotifyPingComplete(*memberlist.Node, time.Duration, []byte) {
	p.answeredAt.Store(time.Now().UnixNano())
}

func (p *pulse) AckPayload() []byte { return nil }

// answered reports whether probes of this node are answered, in a cluster of n and
// with memberlist's score.
func (p *pulse) answered(n, score int, now time.Time) bool {
	silence := now.Sub(time.Unix(0, p.answeredAt.Load()))
	return score < unhealthyScore || silence < suspicionWindow(n)/2
}

// suspicionWindow is the longest that memberlist waits, in a cluster of n, before
// it declares a suspect dead.
func suspicionWindow(n int) time.Duration {
	scale := max(1, math.Log10(max(1, float64(n))))
	return time.Duration(suspicionMult * suspicionMaxMult * scale * float64(probeInterval))
}

// failure notes that a member failed, while members were seen before; answered says
// whether probes of this node are.
func (b *burst) failure(id string, members int, answered bool, now time.Time) {
	if b.failed == nil || (!b.on && now.Sub(b.last) > suspicionWindow(b.before)) {
		b.failed, b.before = make(map[string]struct{}), members
	}
	b.failed[id] = struct{}{}
	// Joiners during a burst make the cluster larger, not the loss smaller.
	b.before = max(b.before, members)
	b.last = now
	if !answered || b.large() {
		b.on = true
	}
}

// returned notes that a member is seen again, or was replaced by a newer one.
func (b *burst) returned(id string) { delete(b.failed, id) }

func (b *burst) large() bool { return float64(len(b.failed)) > degradedShare*float64(b.before) }

// check decides whether the snapshot is still degraded; members are those seen
// now, this node included.
func (b *burst) check(members int, answered bool, now time.Time) (degraded bool) {
	if !b.on {
		return false
	}
	quiet := now.Sub(b.last)
	window := suspicionWindow(b.before)
	switch {
	case len(b.failed) == 0, answered && members > 1 && quiet >= 2*window:
		*b = burst{} // back to normal, or the loss is accepted
	case answered && !b.large() && quiet >= window:
		b.on = false // a few are missing; failures that follow soon still count with them
	}
	return b.on
}
