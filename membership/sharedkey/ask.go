package sharedkey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/membership"
)

// parallel bounds the relays asked at once.
const parallel = 16

// older is the order of relays: by epoch, then id.
func older(a, b membership.Member) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), strings.Compare(a.ID, b.ID))
}

// view is the relays as one snapshot shows them.
type view struct {
	others   []membership.Member // every live relay but this one, oldest first
	joined   bool
	degraded bool
}

func (k *Keeper) view() view {
	v := view{joined: k.cfg.Joined()}
	snapshot := k.cfg.Members.Snapshot()
	if snapshot == nil {
		return v
	}
	v.degraded = snapshot.Degraded()
	v.others = slices.DeleteFunc(snapshot.WithRole(membership.RoleRelay), func(m membership.Member) bool { return m.ID == k.cfg.ID })
	slices.SortFunc(v.others, older)
	return v
}

// staying are the relays that are not about to go: only they are waited for.
func (v view) staying() []membership.Member {
	return slices.DeleteFunc(slices.Clone(v.others), func(m membership.Member) bool { return m.Leaving })
}

// String is equal for equal views.
func (v view) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%t %t", v.joined, v.degraded)
	for _, m := range v.others {
		fmt.Fprintf(&b, " %s %t", m.Instance(), m.Leaving)
	}
	return b.String()
}

// reply is what became of asking one relay.
type reply struct {
	member membership.Member
	answer Answer
	err    error
	asked  time.Time
}

// ask asks all relays given, some at a time, and returns when all have answered
// or run out of time. Replies are in the order of relays.
func (k *Keeper) ask(ctx context.Context, relays []membership.Member) []reply {
	replies := make([]reply, len(relays))
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i, m := range relays {
		slots <- struct{}{}
		wg.Go(func() {
			replies[i] = k.askOne(ctx, m)
			<-slots
		})
	}
	wg.Wait()
	return replies
}

func (k *Keeper) askOne(ctx context.Context, m membership.Member) reply {
	asking, cancel := context.WithTimeout(ctx, k.cfg.Timeout)
	defer cancel()
	r := reply{member: m, asked: k.now()}
	r.answer, r.err = k.cfg.Fetch(asking, m)
	if r.err == nil && r.answer.Key.IsZero() {
		r.err = fmt.Errorf("%w: no key in it", ErrMalformed)
	}
	if ctx.Err() != nil {
		return r // we are going: this is nobody's failure
	}
	k.metrics.fetches.WithLabelValues(fetchResult(r.err)).Inc()
	if r.err != nil {
		k.cfg.Logger.Debug("shared key not got", "relay", m.ID, "addr", m.ForwardAddr, "error", r.err)
	}
	return r
}

// learn takes in every key among the replies, and reports whether there was one.
func (k *Keeper) learn(replies []reply) (found bool) {
	now := k.now()
	ring := k.ring.Load().expire(now)
	for _, r := range replies {
		if r.err != nil {
			continue
		}
		found = true
		var fork bool
		before := ring.current
		ring, fork = ring.learn(lesson{answer: r.answer, asked: r.asked, now: now, retire: k.cfg.Retire})
		if fork {
			k.metrics.forks.Inc()
			k.reportFork(r, before, ring)
		}
	}
	k.publish(ring)
	return found
}

func (k *Keeper) reportFork(r reply, before Key, after keyring) {
	attrs := []any{"relay", r.member.ID, "theirs", r.answer.Key, "ours", before, "in_use", after.current}
	switch {
	case before.given() && r.answer.Key.given():
		k.cfg.Logger.Warn("another relay was given another shared key; each signs with its own and verifies both: set the same "+settings+" on all relays", attrs...)
	default:
		k.cfg.Logger.Warn("another relay has another shared key; the older one is used, the other accepted until it expires", attrs...)
	}
}
