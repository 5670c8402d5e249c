package advertise

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// finished is an exchange that this node opened. err is valid once the exchange has been
// received from Catalogue.finished.
type finished struct {
	peer  string
	fetch *instance // nil for a comparison
	err   error
	early bool // it began before the first worker appeared; set by Run's goroutine
	// again is after which pause a busy member is asked again; 0: it is not.
	again time.Duration
}

// exchangingWith reports whether this node has an open exchange with a member. There is at most
// one per member.
func (c *Catalogue) exchangingWith(id string) bool {
	_, busy := c.outbound[id]
	return busy
}

// randomMember returns a member with which an exchange can begin now, "" for none.
func (c *Catalogue) randomMember() string {
	if c.members == nil {
		return ""
	}
	return c.partners.choose(c.members.Self(), c.members.Members(), c.exchangingWith)
}

// startExchanges fills the free places with comparisons first, then with fetches: hints
// are not signed, and a flood of them must not prevent comparisons.
func (c *Catalogue) startExchanges(ctx context.Context) {
	for len(c.outbound) < maxOutbound {
		peer := c.partners.next(c.exchangingWith)
		if peer == "" {
			break
		}
		c.start(ctx, &finished{peer: peer}, c.sync)
	}
	c.startFetches(ctx)
}

// start opens an exchange on a goroutine of its own. The goroutine keeps the place of the exchange
// while it asks a busy owner again, and gives it back through finished, so that only the loop
// changes outbound.
func (c *Catalogue) start(ctx context.Context, end *finished, side func(context.Context, *frames) (string, error)) {
	c.outbound[end.peer] = end
	c.exchanges.Go(func() {
		end.err = c.open(ctx, end.peer, side)
		for n := 1; end.again > 0 && n < ownerAttempts && errors.Is(end.err, errBusy); n++ {
			select {
			case <-time.After(end.again):
				end.err = c.open(ctx, end.peer, side)
			case <-ctx.Done():
				end.err = ctx.Err()
			}
		}
		select {
		case c.finished <- end:
		case <-c.stopped:
		}
	})
}

// finish records the end of an exchange. It reports whether the next comparison must be
// rescheduled, because after a failure it comes sooner, and after the first success later. Only
// comparisons make views settled: a fetch brings single records and shows nothing about the others.
func (c *Catalogue) finish(f *finished) (reschedule bool) {
	delete(c.outbound, f.peer)
	if f.fetch != nil {
		c.endFetch(*f.fetch)
		return false
	}
	c.partners.ended(f.peer, f.err)
	if f.err == nil && !f.early && !c.compared {
		c.compared, c.dirty = true, true // the next view is settled
		return true
	}
	return f.err != nil
}

// nearShare is the share of exchanges with members of this node's own datacenter, if there
// are members in and outside of it: most repairs then stay within the datacenter, and the
// rest keeps the datacenters consistent.
const nearShare = 0.8

// partners selects the members with which this node compares its records, and when. Run's
// goroutine owns it; it uses no clock and no network.
type partners struct {
	interval time.Duration
	random   *rand.Rand
	waiting  []string // members to exchange with as soon as there is a free place
	joining  int      // exchanges that are still to be planned since this node was alone
	failures int      // consecutive failed exchanges
	// busy has the members that had no place for this node since its last success.
	busy map[string]bool
}

// unsettledPause bounds the pauses of a node that has compared nothing yet, give or take 30 %: its view
// is not settled, so it may take no traffic. If all members of a large fleet start together, the cost
// stays bounded: each asks one random member after a pause, so that each is asked less than once a
// second on average. A refusal costs a connection with its handshake, and the first success ends the short
// pauses.
const unsettledPause = 2 * time.Second

func newPartners(interval time.Duration, random *rand.Rand) *partners {
	return &partners{interval: interval, random: random, joining: joinExchanges, busy: map[string]bool{}}
}

// delay returns the interval ± 30 %, and less after failures: if the first partner cannot
// be reached, the next is tried within seconds. The pauses after failures are 1 s, 2 s, 4 s and so
// on up to the interval, or to unsettledPause while this node has compared nothing.
func (p *partners) delay(compared bool) time.Duration {
	d := p.interval
	if !compared {
		d = min(d, unsettledPause)
	}
	if p.failures > 0 && p.failures < 16 {
		d = min(d, time.Second<<(p.failures-1))
	}
	return time.Duration(float64(d) * (0.7 + 0.6*p.random.Float64()))
}

// choose draws one of the members other than this node and the excepted ones, "" if there
// is none. Members that were busy come last: one that rests this node after a slow exchange may refuse
// it for minutes.
func (p *partners) choose(self membership.Member, members []membership.Member, except func(id string) bool) string {
	var near, far string
	nears, fars := 0, 0
	for _, m := range members {
		if m.Attached || self.Attached { // it opens and takes no streams
			continue
		}
		kind, seen := &far, &fars
		if m.Datacenter == self.Datacenter {
			kind, seen = &near, &nears
		}
		if m.ID == self.ID || p.busy[m.ID] || except(m.ID) {
			continue
		}
		if *seen++; p.random.IntN(*seen) == 0 { // reservoir sampling: each has the same chance
			*kind = m.ID
		}
	}
	switch {
	case near == "" && far == "" && len(p.busy) > 0:
		clear(p.busy)
		return p.choose(self, members, except)
	case near != "" && (far == "" || p.random.Float64() < nearShare):
		return near
	}
	return far
}

// add plans an exchange. Only a few may wait, because more would repeat the same
// comparison.
func (p *partners) add(id string) {
	if id != "" && len(p.waiting) < 2*joinExchanges {
		p.waiting = append(p.waiting, id)
	}
}

// greet plans exchanges with members that have appeared: three if this node was alone, and
// otherwise about three in the whole cluster per new member, so that a join or a healed
// partition does not wait for the next interval. Each of n members decides alone, with the
// probability 3/n, so the members need no agreement about who compares with a new one.
func (p *partners) greet(self membership.Member, before, after *membership.Snapshot) {
	others := len(after.Members())
	if _, present := after.Get(self.ID); present {
		others--
	}
	changes := membership.Diff(before, after)
	fresh := changes.Joined
	for _, r := range changes.Superseded {
		fresh = append(fresh, r.New)
	}
	fresh = slices.DeleteFunc(fresh, func(m membership.Member) bool { return m.ID == self.ID || m.Attached || self.Attached })
	if others == 0 {
		p.joining = joinExchanges
		return
	}
	greeted := map[string]bool{}
	for ; p.joining > 0 && len(greeted) < len(fresh); p.joining-- {
		id := p.choose(self, fresh, func(id string) bool { return greeted[id] })
		greeted[id] = true
		p.add(id)
	}
	for _, m := range fresh {
		if !greeted[m.ID] && p.random.IntN(others+1) < joinExchanges {
			p.add(m.ID)
		}
	}
}

// next removes and returns the partner that has waited longest and is not busy, "" if there is none. A
// busy one keeps its place: the exchange with it may have begun before what is to be compared.
func (p *partners) next(busy func(id string) bool) string {
	for i, id := range p.waiting {
		if !busy(id) {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			return id
		}
	}
	return ""
}

// ended records how a comparison with a member ended.
func (p *partners) ended(with string, err error) {
	if err == nil {
		p.failures = 0
		clear(p.busy)
		return
	}
	p.failures++
	if errors.Is(err, errBusy) {
		p.busy[with] = true
	}
}

// pendingFetch is a record to fetch: gossip carried only a hint because it is too large.
type pendingFetch struct {
	stamp    stamp
	had      stamp // of the record that was there when the fetch began
	attempts int
	running  bool
}

// receiveHint schedules the fetch of a record that is too large for gossip. A hint is not signed,
// so it changes nothing by itself. But all members hear it, and each opens a stream to the author that
// it names. So only the life that membership knows is fetched, and fetches that bring nothing have a
// rate for each author. What these drop is brought by a comparison.
func (c *Catalogue) receiveHint(m mail) {
	c.metrics.receive(hinted)
	if c.store.has(m.from, m.stamp) {
		return
	}
	author, live := c.store.writer(m.from.id)
	if author.Role == identity.RoleRelay && c.own.role == identity.RoleWorker {
		// No worker uses what relays state, and all workers together would fetch it from one
		// relay.
		return
	}
	if c.store.fromTheFuture(m.from, c.cfg.Now()) {
		c.metrics.receive("invalid_future_epoch")
		return
	}
	switch waiting, waits := c.early[m.from.id]; {
	case live && m.from.epoch == author.Epoch:
		c.planFetch(m)
	case live && m.from.epoch < author.Epoch, m.from.epoch < waiting.from.epoch:
		c.metrics.receive(old)
	case !waits && len(c.early) >= maxFetches:
		c.metrics.receive(refused)
	default:
		c.early[m.from.id] = m // it has overtaken the news of a start
	}
}

// followEarly plans the fetches of members whose life has begun since the hint came.
func (c *Catalogue) followEarly(changed []string) {
	for _, id := range changed {
		if m, waits := c.early[id]; waits && c.store.isAlive(m.from) {
			delete(c.early, id)
			c.planFetch(m)
		}
	}
}

// planFetch plans to fetch the record of a live member.
func (c *Catalogue) planFetch(m mail) {
	switch f := c.fetches[m.from]; {
	case f != nil:
		if m.stamp.compare(f.stamp) > 0 {
			if f.stamp = m.stamp; !f.running {
				f.attempts = 0
			}
		}
	case c.misses.spent(m.from.id, c.cfg.Now()):
		c.metrics.receive(limited)
	case len(c.fetches) < maxFetches:
		c.fetches[m.from] = &pendingFetch{stamp: m.stamp}
	}
}

// startFetches starts fetches while there are free places: first at the owner of the
// record, then at other members. The owner has the record, while others may have got only the hint.
func (c *Catalogue) startFetches(ctx context.Context) {
	for key, f := range c.fetches {
		if len(c.outbound) >= maxOutbound {
			return
		}
		if f.running {
			continue
		}
		peer := key.id
		if _, alive := c.store.writer(peer); !alive || f.attempts > 0 {
			peer = c.randomMember()
		}
		if peer == "" || peer == c.own.instance.id || c.exchangingWith(peer) {
			continue
		}
		f.running, f.had = true, c.stampOf(key)
		end := &finished{peer: peer, fetch: &key}
		if peer == key.id {
			end.again = ownerPause + time.Duration(c.partners.random.Int64N(int64(ownerPause)))
		}
		c.start(ctx, end, func(ctx context.Context, fr *frames) (string, error) {
			return c.fetch(ctx, fr, []instance{key})
		})
	}
}

// endFetch ends a fetch if it has brought the record. After fetchAttempts, or too many attempts for all
// hints of its author, the hint counts as false; if it was not, a comparison brings the record. Only
// an attempt that brought nothing takes a token: an author that changes its record has signed that.
func (c *Catalogue) endFetch(key instance) {
	pending, now := c.fetches[key], c.cfg.Now()
	pending.running = false
	pending.attempts++
	if c.stampOf(key).compare(pending.had) <= 0 {
		c.misses.take(key.id, now, hintMissesPerMinute, hintMisses)
	}
	if pending.attempts >= fetchAttempts || c.misses.spent(key.id, now) || c.store.has(key, pending.stamp) {
		delete(c.fetches, key)
	}
}

// stampOf returns the stamp of the record of an instance, a zero one if there is none.
func (c *Catalogue) stampOf(key instance) stamp {
	if e := c.store.entries[key]; e != nil {
		return e.stamp
	}
	return stamp{}
}

// expireFetches drops fetches that could not be started because no member was available, and hints
// whose life has not begun.
func (c *Catalogue) expireFetches() {
	c.misses.expire(c.cfg.Now())
	clear(c.early)
	maps.DeleteFunc(c.fetches, func(_ instance, f *pendingFetch) bool { return !f.running })
}
