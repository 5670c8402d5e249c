package advertise

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringway/ringway/membership"
)

// nearShare is the share of exchanges with members of this node's own
// datacenter, where there are members of both kinds: most repairs then cross no
// expensive line, and the rest still ties the datacenters together.
const nearShare = 0.8

// partners decides whom this node compares its records with, and when. Run's
// goroutine owns it; it knows no clock and no network.
type partners struct {
	interval time.Duration
	random   *rand.Rand
	waiting  []string // members to exchange with as soon as there is a place
	joining  int      // exchanges left to do since this node was alone
	failures int      // exchanges failed in a row
}

func newPartners(interval time.Duration, random *rand.Rand) *partners {
	return &partners{interval: interval, random: random, joining: joinExchanges}
}

// delay is the interval ± 30 %, and shorter after failures: a member that could
// not reach the first partner tries the next within seconds.
func (p *partners) delay() time.Duration {
	d := p.interval
	if p.failures > 0 && p.failures < 16 {
		d = min(d, time.Second<<(p.failures-1))
	}
	return time.Duration(float64(d) * (0.7 + 0.6*p.random.Float64()))
}

// choose draws one of the members, "" where there is none that is neither this
// node nor excepted.
func (p *partners) choose(self membership.Member, members []membership.Member, except func(id string) bool) string {
	var near, far string
	nears, fars := 0, 0
	for _, m := range members {
		kind, seen := &far, &fars
		if m.Datacenter == self.Datacenter {
			kind, seen = &near, &nears
		}
		if m.ID == self.ID || except(m.ID) {
			continue
		}
		if *seen++; p.random.IntN(*seen) == 0 { // every one so far with the same chance
			*kind = m.ID
		}
	}
	if near != "" && (far == "" || p.random.Float64() < nearShare) {
		return near
	}
	return far
}

// add plans an exchange. A few may wait; more would only repeat one another.
func (p *partners) add(id string) {
	if id != "" && len(p.waiting) < 2*joinExchanges {
		p.waiting = append(p.waiting, id)
	}
}

// greet plans exchanges with members that have appeared: three when this node
// was alone, and later about three in the whole cluster per newcomer, so that a
// join, or a partition that heals, does not wait for the next interval.
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
	fresh = slices.DeleteFunc(fresh, func(m membership.Member) bool { return m.ID == self.ID })
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

// next takes the partner that waits longest, "" when none does.
func (p *partners) next() (id string) {
	if len(p.waiting) > 0 {
		id, p.waiting = p.waiting[0], p.waiting[1:]
	}
	return id
}

// ended notes how a comparison went.
func (p *partners) ended(ok bool) {
	p.failures++
	if ok {
		p.failures = 0
	}
}
