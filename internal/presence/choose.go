package presence

import (
	"net/netip"
	"time"
)

// choice is the listing of a worker that counts, and the relay that has it.
type choice struct {
	listed
	relay string
}

// better orders the listings of one worker: the later life, then the newer record, then the relay
// with the smaller id, so that all relays choose the same.
func (c choice) better(o choice) bool {
	switch {
	case c.epoch != o.epoch:
		return c.epoch > o.epoch
	case c.sequence != o.sequence:
		return c.sequence > o.sequence
	}
	return c.relay < o.relay
}

// choose returns the listing of each worker that counts, and by relay the workers whose proof is
// wanted from it. mu is held.
//
// A listing is what its relay says. The worker has signed the id and the epoch of its record, so a
// listing counts only for a life whose record is here. Host and drain are not signed: where relays
// differ, what most of them state counts.
func (f *Fleet) choose(now time.Time) (best map[string]choice, wants map[string][]instance) {
	best, wants = make(map[string]choice, len(f.own.workers)), map[string][]instance{}
	disputed := map[string]struct{}{}
	consider := func(c choice) {
		old, twice := best[c.id]
		if twice && (c.epoch != old.epoch || c.host != old.host || c.draining != old.draining || c.key != old.key) {
			disputed[c.id] = struct{}{}
		}
		if !twice || c.better(old) {
			best[c.id] = c
		}
	}
	for _, w := range f.own.workers {
		consider(choice{w, f.cfg.ID})
	}
	for relay, l := range f.lists {
		for _, w := range l.workers {
			consider(choice{w, relay})
		}
	}
	f.missing = 0
	for id, c := range best {
		_, differ := disputed[id]
		if !differ && f.believes(c.listed) && f.records[c.instance] >= c.sequence {
			continue
		}
		if settled, ok := f.settleDispute(id, wants, now); ok {
			best[id] = settled
		} else {
			f.missing++
			delete(best, id)
		}
	}
	return best, wants
}

// believes reports whether a record of this life of a worker is here, with a certificate that is not
// refused.
func (f *Fleet) believes(w listed) bool {
	if _, has := f.records[w.instance]; !has || f.cfg.Identity == nil {
		return has
	}
	certificate := f.certificates[w.key]
	return certificate != nil && certificate.Claims.Node == w.id && f.cfg.Identity.Recheck(certificate) == nil
}

// settleDispute returns of all listings of a worker the best of its latest life that is proven, with
// the host and the drain that most relays state of it. A tie is not draining. What is not proven is
// wanted: each life from one relay at a time, which another one replaces if it does not answer. mu is
// held.
func (f *Fleet) settleDispute(id string, wants map[string][]instance, now time.Time) (settled choice, ok bool) {
	var of []choice
	consider := func(w listed, relay string) {
		if w.id == "" {
			return
		}
		believed := f.believes(w)
		if relay != f.cfg.ID && (!believed || f.records[w.instance] < w.sequence) && now.Sub(f.asked[w.instance]) >= askAgain {
			f.asked[w.instance] = now
			wants[relay] = append(wants[relay], w.instance)
		}
		if !believed {
			return
		}
		w.sequence = min(w.sequence, f.records[w.instance]) // more than that nothing has proven
		switch c := (choice{w, relay}); {
		case !ok || c.epoch > settled.epoch:
			settled, ok, of = c, true, []choice{c}
		case c.epoch == settled.epoch:
			if of = append(of, c); c.better(settled) {
				settled = c
			}
		}
	}
	consider(f.own.workers[id], f.cfg.ID)
	for relay, l := range f.lists { // in another order each time
		consider(l.workers[id], relay)
	}
	hosts, draining := map[netip.Addr]int{}, 0
	for _, c := range of {
		if hosts[c.host]++; c.draining {
			draining++
		}
	}
	for _, c := range of {
		if n, most := hosts[c.host], hosts[settled.host]; n > most || n == most && c.host.Less(settled.host) {
			settled.host = c.host
		}
	}
	settled.draining = 2*draining > len(of)
	return settled, ok
}
