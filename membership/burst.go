package membership

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// A node that loses many members at the same time cannot know whether they died or whether
// the node itself is cut off. Until that is clear, its snapshots are degraded, and consumers
// keep their last known peers.
//
//	         share of the burst > 40 %, or
//	         a failure while probes of this node get no answer
//	┌──────┐ ───────────────────────────────────────► ┌──────────┐
//	│ calm │                                          │ degraded │
//	└──────┘ ◄─────────────────────────────────────── └──────────┘
//	   all came back; or probes of this node succeed and no member failed
//	   for 1 window while the share is at most 40 %, else for 2
//	   windows and only if others are alive
//
// A burst is a run of failures with less than one suspicion window between two of them: a
// node that is cut off probes slowly, so it loses the others one after the other, over
// minutes. Members that crash one after the other and are replaced under other ids are no
// burst. For the same reason the node checks already at the first failure whether its own
// probes are answered (see probeMonitor): at that time nothing else distinguishes the two cases.
// Members that leave or are superseded do not count. Neither do observers, unless probes of
// this node get no answer: many programs may end together, and they hold no part of a plan.
//
// A node that sees no other member stays degraded: this is never evidence that all others
// died. Its data path knows which peers still answer.
type burst struct {
	failed map[string]time.Time // when members failed in the burst that have not returned
	before census               // at the start of the burst
	last   time.Time            // time of the latest failure
	on     bool
}

// census counts the members, including this node: all of them, on which the time depends
// until a failure is certain, and those that count, which are all but the other observers.
type census struct{ total, counted int }

const (
	// degradedShare is the share of failed members above which a snapshot is degraded.
	degradedShare = 0.4
	// replacedWindows is after how many suspicion windows a failure counts no more if the member was
	// replaced. The members of the other half of a partition fail within one or two.
	replacedWindows = 2
	// unhealthyScore is a score of memberlist (0 is healthy, 7 the worst) at which most
	// probes get no answer, not even through helpers. A failed probe adds up to 3, a
	// success subtracts 1.
	unhealthyScore = 4
)

// probeMonitor records when a probe of this node was last answered.
//
// The score alone does not distinguish a node that is cut off from a healthy node next to
// several dead members: if the helpers of a probe are dead as well, two probes cost 4. In 19
// of 400 fleets in which 3 of 12 members died simultaneously, a healthy member had that
// score. A node that is cut off has had no answer for nearly a whole suspicion window when it
// loses the first member, because no other member confirms its suspicion; a healthy node
// probes a living member within half of a window.
type probeMonitor struct {
	answeredAt atomic.Pointer[time.Time] // with its monotonic clock: a step of the wall clock is no silence
}

// NotifyPingComplete and AckPayload implement memberlist.PingDelegate.
func (p *probeMonitor) NotifyPingComplete(*memberlist.Node, time.Duration, []byte) {
	now := time.Now()
	p.answeredAt.Store(&now)
}

func (p *probeMonitor) AckPayload() []byte { return nil }

// answered reports whether probes of this node are answered, given the number of members and
// memberlist's score.
func (p *probeMonitor) answered(n, score int, now time.Time) bool {
	at := p.answeredAt.Load()
	return score < unhealthyScore || at != nil && now.Sub(*at) < suspicionWindow(n)/2
}

// suspicionWindow is the longest time that memberlist waits, in a cluster of n members,
// before it declares a suspect dead. It is 24 s up to 10 members, 72 s at 1,000 and 96 s at 10,000.
func suspicionWindow(n int) time.Duration {
	scale := max(1, math.Log10(max(1, float64(n))))
	return time.Duration(suspicionMult * suspicionMaxMult * scale * float64(probeInterval))
}

// failure records that a member failed. members are those seen before;
// answered reports whether probes of this node are answered. While the snapshot is not degraded, a
// failure later than one window after the last one begins a new burst, and the members of that time
// are the whole that its share is of.
func (b *burst) failure(id string, members census, answered bool, now time.Time) {
	window := suspicionWindow(b.before.total)
	if b.failed == nil || (!b.on && now.Sub(b.last) > window) {
		b.failed, b.before = make(map[string]time.Time), members
	}
	if !b.on {
		b.forgetReplaced(members, now.Add(-replacedWindows*window))
	}
	b.failed[id] = now
	// Members that join during a burst make the cluster larger, not the loss smaller.
	b.before = census{max(b.before.total, members.total), max(b.before.counted, members.counted)}
	b.last = now
	if !answered || b.large() {
		b.on = true
	}
}

// forgetReplaced forgets the oldest failures before a time, one for each member that was replaced.
// Replaced are those by which members and failures together exceed the members of before.
func (b *burst) forgetReplaced(members census, before time.Time) {
	for replaced := members.counted + len(b.failed) - b.before.counted; replaced > 0; replaced-- {
		oldest := ""
		for id, at := range b.failed {
			if at.Before(before) && (oldest == "" || at.Before(b.failed[oldest])) {
				oldest = id
			}
		}
		if oldest == "" {
			return
		}
		delete(b.failed, oldest)
	}
}

// left records that a member left in order: it is no part of the whole that a loss is a share of.
func (b *burst) left(counts bool) {
	if b.on || b.failed == nil {
		return
	}
	b.before.total--
	if counts {
		b.before.counted--
	}
}

// returned records that a member is seen again or was superseded.
func (b *burst) returned(id string) { delete(b.failed, id) }

func (b *burst) large() bool { return float64(len(b.failed)) > degradedShare*float64(b.before.counted) }

// check decides whether the snapshot is still degraded; members is the number that count
// seen now, including this node.
func (b *burst) check(members int, answered bool, now time.Time) (degraded bool) {
	if !b.on {
		return false
	}
	quiet := now.Sub(b.last)
	window := suspicionWindow(b.before.total)
	switch {
	case len(b.failed) == 0, answered && members > 1 && quiet >= 2*window:
		*b = burst{} // back to normal, or the loss is accepted
	case answered && !b.large() && quiet >= window:
		b.on = false // only a few are missing; later failures of the burst still count with them
	}
	return b.on
}
