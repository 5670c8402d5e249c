package presence

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
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

// choices are the listings that count. They are kept from one snapshot to the next, because a fleet has
// tens of thousands of workers, of which few change at a time.
type choices struct {
	best     map[string]choice
	attached []membership.Member // best, sorted by id
	// stale are the workers of which a listing, the record or the certificate may have changed since
	// they were chosen.
	stale map[string]struct{}
	// waiting has the workers of which a listed life, or a newer record of it, is not proven.
	waiting map[string]struct{}
	missing int // waiting, and not chosen
	buffer  []choice
}

func newChoices() choices {
	return choices{best: map[string]choice{}, stale: map[string]struct{}{}, waiting: map[string]struct{}{}}
}

// changed marks a worker as one to choose again.
func (c *choices) changed(id string) { c.stale[id] = struct{}{} }

// changedAll marks all workers of a list.
func (c *choices) changedAll(l *list) {
	for id := range l.workers {
		c.changed(id)
	}
}

// recheck marks the workers whose certificate has expired, is denied, or is valid now, since the last
// call. mu is held.
func (f *Fleet) recheck() {
	standing := make(map[keyID]bool, len(f.certificates))
	for key, certificate := range f.certificates {
		valid := f.cfg.Identity.Recheck(certificate) == nil
		if was, known := f.standing[key]; !known || valid != was {
			f.changed(certificate.Claims.Node)
		}
		standing[key] = valid
	}
	f.standing = standing
}

// choose brings the choices up to date. It returns, by relay, the workers whose proof is wanted from it.
// mu is held.
func (f *Fleet) choose(now time.Time) (wants map[string][]instance) {
	maps.Copy(f.stale, f.waiting)
	wants = map[string][]instance{}
	var ids []string
	for id := range f.stale {
		settled, ok, proven := f.judge(id, wants, now)
		if old, was := f.best[id]; was != ok || old != settled {
			ids = append(ids, id)
		}
		if ok {
			f.best[id] = settled
		} else {
			delete(f.best, id)
		}
		if proven {
			delete(f.waiting, id)
		} else {
			f.waiting[id] = struct{}{}
		}
	}
	clear(f.stale)
	f.missing = 0
	for id := range f.waiting {
		if _, chosen := f.best[id]; !chosen {
			f.missing++
		}
	}
	slices.Sort(ids)
	f.amend(ids)
	return wants
}

// amend brings the attached members up to date. The ids are sorted.
func (f *Fleet) amend(ids []string) {
	if len(ids) == 0 {
		return
	}
	next, old := make([]membership.Member, 0, len(f.best)), f.attached
	for _, id := range ids {
		n, there := slices.BinarySearchFunc(old, id, func(m membership.Member, id string) int { return strings.Compare(m.ID, id) })
		next = append(next, old[:n]...)
		if c, chosen := f.best[id]; chosen {
			next = append(next, f.member(c.listed))
		}
		if there {
			n++
		}
		old = old[n:]
	}
	f.attached = append(next, old...)
}

// join returns the members of the node and the attached ones, sorted by id. Of two with one id the
// attached one counts if it is the later life of a worker. mu is held.
func (f *Fleet) join(base []membership.Member) []membership.Member {
	members, attached, room := make([]membership.Member, 0, len(base)+len(f.attached)), f.attached, f.cfg.MaxMembers-len(base)
	f.full = false
	take := func() {
		if room > 0 {
			members = append(members, attached[0])
			room--
		} else {
			f.full = true
		}
		attached = attached[1:]
	}
	for _, m := range base {
		for len(attached) > 0 && attached[0].ID < m.ID {
			take()
		}
		if len(attached) > 0 && attached[0].ID == m.ID {
			if m.Role == identity.RoleWorker && m.Epoch < attached[0].Epoch {
				room++
				continue
			}
			attached = attached[1:]
		}
		members = append(members, m)
	}
	for len(attached) > 0 {
		take()
	}
	return members
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

// judge returns of all listings of a worker the best of its latest life that is proven, with the host, the
// origin and the drain that most relays state of it. A tie is not draining. A life that is not proven is
// wanted: from one relay at a time, and from the next one if that does not answer. mu is held.
//
// A worker that renews its certificate is listed with the new one by all its relays at the same time.
// Until that one is here, the former choice stays.
//
// A listing is the statement of its relay. The worker has signed the id and the epoch of its
// record, so a listing counts only for a life whose record is here. Host, origin and drain are not signed.
func (f *Fleet) judge(id string, wants map[string][]instance, now time.Time) (settled choice, ok, proven bool) {
	of := f.buffer[:0]
	proven = true
	old, was := f.best[id]
	lives := false // the life that was chosen is listed, perhaps with another certificate
	consider := func(w listed, relay string) {
		if w.id == "" {
			return
		}
		lives = lives || was && w.instance == old.instance
		believed := f.believes(w)
		if f.records[w.instance] < w.sequence || relay != f.cfg.ID && !believed {
			proven = false
			if now.Sub(f.asked[w.instance]) >= askAgain {
				f.asked[w.instance] = now
				wants[relay] = append(wants[relay], w.instance)
			}
		}
		if !believed {
			return
		}
		w.sequence = min(w.sequence, f.records[w.instance]) // more than that nothing has proven
		w.datacenter = f.provenDatacenter(w)
		switch c := (choice{w, relay}); {
		case !ok || c.epoch > settled.epoch:
			settled, ok, of = c, true, append(of[:0], c)
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
	f.buffer = of
	if !ok && lives && f.believes(old.listed) {
		return old, true, false
	}
	draining := 0
	for _, c := range of {
		if c.draining {
			draining++
		}
	}
	settled.draining = 2*draining > len(of)
	if slices.ContainsFunc(of, func(c choice) bool { return c.host != settled.host }) {
		settled.host = mostStated(of, func(c choice) netip.Addr { return c.host }, netip.Addr.Compare)
	}
	if slices.ContainsFunc(of, func(c choice) bool { return c.origin() != settled.origin() }) {
		most := mostStated(of, choice.origin, origin.compare)
		settled.datacenter, settled.region, settled.version = most.datacenter, most.region, most.version
	}
	return settled, ok, proven
}

// provenDatacenter returns the datacenter in the certificate of a listed worker if it has one: no relay
// that has a session lists such a worker in another, or in none.
func (f *Fleet) provenDatacenter(w listed) string {
	if c := f.certificates[w.key]; c != nil {
		return cmp.Or(c.Claims.Datacenter, w.datacenter)
	}
	return w.datacenter
}

// origin is what a worker states of itself when its session begins, beside its id and epoch. Its parts are
// of one statement, so relays decide on all of them together.
type origin struct{ datacenter, region, version string }

func (w listed) origin() origin { return origin{w.datacenter, w.region, w.version} }

func (o origin) compare(p origin) int {
	return cmp.Or(strings.Compare(o.datacenter, p.datacenter), strings.Compare(o.region, p.region), strings.Compare(o.version, p.version))
}

// mostStated returns the value that most relays state, of equal ones the smallest.
func mostStated[V comparable](of []choice, value func(choice) V, compare func(a, b V) int) (most V) {
	stated := map[V]int{}
	for _, c := range of {
		stated[value(c)]++
	}
	for v, n := range stated {
		if n > stated[most] || n == stated[most] && compare(v, most) < 0 {
			most = v
		}
	}
	return most
}
