package selection

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// ErrNoEndpoint is wrapped by every error of [Balancer.Pick].
var ErrNoEndpoint = errors.New("no endpoint to pick")

var (
	errEmptyRange  = fmt.Errorf("selection: %w: the range is empty; wait for workers to advertise the service", ErrNoEndpoint)
	errAllExcluded = fmt.Errorf("selection: %w: this request has tried every endpoint of the range; return its last error", ErrNoEndpoint)
)

// Pick is the ticket of one request: which endpoint it goes to and when it
// started. It is a small value; give it back with [Balancer.Done] exactly once.
type Pick struct {
	entry *entry
	start Instant
	probe bool // the one request of a half-open endpoint
}

// Endpoint returns the endpoint as the last Update before the pick gave it.
// It panics on the zero Pick, which no successful call returns.
func (p Pick) Endpoint() Endpoint { return p.entry.Endpoint }

// ID returns the endpoint's identity.
func (p Pick) ID() string { return p.entry.ID }

// Value returns what the caller stored with the endpoint.
func (p Pick) Value() any { return p.entry.Value }

// Pick chooses an endpoint for a request that starts now. It avoids the
// endpoints in excluded (nil for none), then prefers active ones, then any
// other rather than failing. The error wraps [ErrNoEndpoint] and says whether
// the range is empty or entirely excluded. No lock, no allocation, no scan; only
// a request whose exclusions leave nearly nothing looks through the range.
func (b *Balancer) Pick(now Instant, excluded *Exclusion) (Pick, error) {
	t := b.table.Load()
	if t.halfOpen || excluded.Len() > 0 || len(t.drawn) == 0 {
		return b.pickAround(t, now, excluded)
	}
	if len(t.drawn) == 1 {
		return t.drawn[0].begin(now), nil
	}
	v := b.view(now)
	winner := b.winner.load()
	var best drawn
	lowest := float32(math.Inf(1))
	for range b.redraws + 1 {
		random := b.random()
		i := t.alias.draw(uint32(random >> 32))
		j := t.alias.draw(uint32(random))
		if i == j {
			j = t.alias.drawOther(i, b.random())
		}
		// Ties go to the first drawn, whose order is random already.
		if score := t.drawn[i].state.score(&v); score < lowest {
			best, lowest = t.drawn[i], score
		}
		if score := t.drawn[j].state.score(&v); score < lowest {
			best, lowest = t.drawn[j], score
		}
		if lowest <= winner || winner == 0 {
			break
		}
	}
	if best.state == nil { // every score overflowed to +Inf or NaN
		best = t.drawn[0]
	} else {
		b.winner.follow(winner, lowest)
	}
	return best.begin(now), nil
}

func (d drawn) begin(now Instant) Pick {
	d.state.begin(now.tick())
	return Pick{entry: d.entry, start: now}
}

// drawTries bounds the draws that may hit excluded or busy half-open endpoints
// before pickAround looks through the range instead.
const drawTries = 8

// pickAround is Pick where some endpoints must be passed over.
func (b *Balancer) pickAround(t *table, now Instant, excluded *Exclusion) (Pick, error) {
	if len(t.entries) == 0 {
		return Pick{}, errEmptyRange
	}
	v := b.view(now)
	winner := b.winner.load()
	var best drawn
	lowest := float32(math.Inf(1))
	for range b.redraws + 1 {
		var first *state
		for range drawTries {
			if len(t.drawn) == 0 {
				break
			}
			d := t.drawn[t.alias.draw(uint32(b.random()>>32))]
			if d.state == first || excluded.contains(d.state) {
				continue
			}
			if t.halfOpen && phase(d.state.phase.Load()) != active {
				// A half-open endpoint must be chosen, not merely admitted:
				// beside healthy ones it would hardly ever win.
				if d.state.claimProbe() {
					p := d.begin(now)
					p.probe = true
					return p, nil
				}
				continue
			}
			if score := d.state.score(&v); score < lowest || best.state == nil {
				best, lowest = d, score
			}
			if first != nil {
				break
			}
			first = d.state
		}
		if best.state == nil || lowest <= winner || winner == 0 {
			break
		}
	}
	if best.state != nil {
		b.winner.follow(winner, lowest)
		return best.begin(now), nil
	}
	return b.pickLast(t, now, excluded)
}

// pickLast is the last resort: any active endpoint that is not excluded, in
// proportion to weight, else any of weight 0, else any evicted one.
func (b *Balancer) pickLast(t *table, now Instant, excluded *Exclusion) (Pick, error) {
	const ranks = 3
	var chosen [ranks]*entry
	var total [ranks]float64
	for i := range t.entries {
		e := &t.entries[i]
		if excluded.contains(e.state) {
			continue
		}
		rank, weight := 0, e.Weight
		switch {
		case phase(e.state.phase.Load()) != active:
			rank, weight = 2, 1
		case e.Weight <= 0:
			rank, weight = 1, 1
		}
		// Weighted reservoir of one: a newcomer replaces the choice with
		// probability weight / total so far.
		total[rank] += weight
		if unit(b.random())*total[rank] < weight {
			chosen[rank] = e
		}
	}
	for _, e := range chosen {
		if e == nil {
			continue
		}
		p := drawn{e.state, e}.begin(now)
		p.probe = phase(e.state.phase.Load()) == halfOpen && e.state.claimProbe()
		return p, nil
	}
	return Pick{}, errAllExcluded
}

// claimProbe takes the one place of a half-open endpoint.
func (s *state) claimProbe() bool {
	return phase(s.phase.Load()) == halfOpen && s.probing.CompareAndSwap(0, 1)
}

func (b *Balancer) random() uint64 {
	if b.rand != nil {
		return b.rand()
	}
	return rand.Uint64()
}

func (b *Balancer) view(now Instant) view {
	median, queue := unpackPair(b.medians.Load())
	return view{now: now, tick: now.tick(), median: median, queue: queue, slowStart: b.slowStart}
}
