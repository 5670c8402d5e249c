package sharedkey

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// sample is how many of the relays that are known to hold our key a check asks again: a
// fork becomes known like gossip, at a cost that does not depend on the size of the fleet.
const sample = 3

// refreshLoop checks for other keys until ctx ends.
func (k *Keeper) refreshLoop(ctx context.Context) {
	snapshots := k.cfg.Members.Watch(ctx)
	pause := k.cfg.Interval
	timer := time.NewTimer(jitter(pause))
	defer timer.Stop()
	known := relaysOf(k.cfg.Members.Snapshot())
	for {
		select {
		case <-ctx.Done():
			return
		case s, ok := <-snapshots:
			if !ok {
				snapshots = nil // the node has stopped; continue with its last snapshot
				continue
			}
			now := relaysOf(s)
			if now == known {
				continue
			}
			known = now
			if pause > k.cfg.Interval { // otherwise the next check is soon anyway
				pause = k.cfg.Interval
				timer.Reset(jitter(pause))
			}
		case <-timer.C:
			old := k.ring.Load()
			k.checkFile()
			k.refresh(ctx)
			pause = min(2*pause, k.cfg.LookInterval)
			if ring := k.ring.Load(); !ring.current.Equal(old.current) {
				pause = k.cfg.Interval // so that other relays learn of the change soon
			}
			timer.Reset(jitter(pause))
		}
	}
}

// jitter returns d ± 25 %, so that the relays of a fleet that started simultaneously do not
// keep asking simultaneously.
func jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2+1) }

// relaysOf returns a text that identifies the relays of a snapshot.
func relaysOf(s *membership.Snapshot) string {
	if s == nil {
		return ""
	}
	var b strings.Builder
	for _, m := range s.WithRole(identity.RoleRelay) {
		b.WriteString(m.Instance())
		b.WriteByte(' ')
	}
	return b.String()
}

// refresh asks the relays that may hold another key.
func (k *Keeper) refresh(ctx context.Context) {
	v := k.view()
	replies := k.ask(ctx, k.relaysToAsk(v))
	if ctx.Err() != nil {
		return
	}
	replaced := k.noteConfigured(replies)
	k.learn(replies)
	k.followOperator()
	ours, _ := k.Key()
	for _, r := range replies {
		if r.err == nil {
			k.confirmed[r.member.Instance()] = r.answer.Key.Equal(ours)
		}
	}
	if replaced {
		for instance := range k.configured {
			delete(k.confirmed, instance)
		}
	}
	if k.cfg.Role == identity.RoleGate {
		k.followRelays(v, replies)
	}
}

// noteConfigured notes which relays have a key that an operator has set, and reports whether one of
// these was replaced: then the others are asked as well. What a relay has that does not answer counts
// only while no other answers.
func (k *Keeper) noteConfigured(replies []reply) (replaced bool) {
	answered := slices.ContainsFunc(replies, func(r reply) bool { return r.err == nil && r.answer.Configured })
	for _, r := range replies {
		instance := r.member.Instance()
		before, was := k.configured[instance]
		switch {
		case r.err == nil && r.answer.Configured:
			replaced = replaced || was && !before.Equal(r.answer.Key)
			k.configured[instance] = r.answer.Key
		case r.err == nil, answered:
			delete(k.configured, instance)
		}
	}
	return replaced
}

// followOperator uses the key that an operator has set on other relays, if none is set on this one.
// Of several, all relays use the same. It may replace another key of the operator that was older by
// its SHA-256: that was set before, and is set nowhere any more.
func (k *Keeper) followOperator() {
	ring := k.ring.Load()
	var theirs Key
	for _, key := range k.configured {
		if key.older(theirs) {
			theirs = key
		}
	}
	if theirs.IsZero() || ring.pinned() || ring.current.Equal(theirs) {
		return
	}
	now := k.now()
	k.publish(ring.use(theirs, sourcePeer, now, now.Add(k.cfg.Retire)))
}

// relaysToAsk returns the relays to ask: all that are not known to hold our key, some of those whose
// key this relay follows, because an operator may replace it there, and some of the others. It drops
// instances that are gone.
func (k *Keeper) relaysToAsk(v view) []membership.Member {
	confirmed, configured := make(map[string]bool, len(v.others)), make(map[string]Key, len(k.configured))
	follows := !k.ring.Load().pinned()
	var ask, set, rest []membership.Member
	for _, m := range v.others {
		key, isSet := k.configured[m.Instance()]
		if isSet {
			configured[m.Instance()] = key
		}
		switch {
		case !k.confirmed[m.Instance()]:
			ask = append(ask, m)
			continue
		case isSet && follows:
			set = append(set, m)
		default:
			rest = append(rest, m)
		}
		confirmed[m.Instance()] = true
	}
	k.confirmed, k.configured = confirmed, configured
	for _, some := range [][]membership.Member{set, rest} {
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		ask = append(ask, some[:min(sample, len(some))]...)
	}
	return ask
}

// followRelays replaces a gate's key if every live relay has another one: the relays have
// all restarted without receiving the gate's key, and they are the ones that sign.
func (k *Keeper) followRelays(v view, replies []reply) {
	ring := k.ring.Load()
	if ring.pinned() || len(v.others) == 0 || len(replies) < len(v.others) {
		return
	}
	var theirs Key
	for _, r := range replies {
		if r.err != nil || r.answer.Key.Equal(ring.current) {
			return
		}
		if r.answer.Key.older(theirs) {
			theirs = r.answer.Key
		}
	}
	now := k.now()
	k.publish(ring.use(theirs, sourcePeer, now, now.Add(k.cfg.Retire)))
}
