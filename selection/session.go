package selection

func (b *core) pickLong(now Instant, excluded *Exclusion, d *Decision) (ticket, error) {
	t := b.table.Load()
	if d != nil {
		*d = Decision{Pairs: d.Pairs[:0], RunningWinner: float64(b.winner.load()), Range: len(t.entries)}
	}
	p, ok := b.pickSession(t, now, excluded, d)
	if ok {
		return p, nil
	}
	p, err := b.pickAround(t, now, excluded, d)
	if err != nil && d != nil {
		d.Reason = err.Error()
	}
	return p, err
}

// pickSession returns false if no candidate may be picked.
func (b *core) pickSession(t *table, now Instant, excluded *Exclusion, d *Decision) (ticket, bool) {
	c := &t.near
	if len(t.spill) > 0 {
		c = t.choose(b.random(d))
	}
	v := b.view(now)
	if t.halfOpen && excluded.count() == 0 && len(c.drawn) > 0 {
		// The sessions may be all that the endpoint gets, so they also try it after an
		// eviction, as often as it is drawn.
		one := c.one(uint32(b.random(d) >> 32))
		if one.room(v.tick) == hasRoom && one.state.claimProbe(now, d.real()) {
			d.probe()
			p, ok := b.begin(one, now, d)
			if ok {
				p.is = probing
				return p, true
			}
			one.state.endProbe(now)
		}
	}
	d.among(c)
	least := fewest{b: b, v: &v, excluded: excluded, d: d}
	least.among(c.drawn)
	if best := least.best(); c == &t.near && (best == nil || best.state.outstanding() > 0) {
		least.among(t.beyond.drawn) // the effective range is for short requests; see beyond
	}
	best := least.best()
	if best == nil {
		return ticket{}, false
	}
	d.fewest(least.seen)
	return b.begin(best, now, d)
}

// fewest finds the endpoint that has the fewest requests in flight for its weight. Among equal
// endpoints it draws by weight, and so it does among those that have none in flight: the sessions
// of cookies are short requests, of which the endpoint with the most weight would get all.
type fewest struct {
	b        *core
	v        *view
	excluded *Exclusion
	d        *Decision

	idle, busy lowest
	seen       int
}

// lowest is what was drawn of the endpoints with the lowest cost.
type lowest struct {
	drawn  *candidate
	cost   float32
	weight float64 // of all of them
}

// best returns the endpoint with the lowest cost, nil if there is none.
func (f *fewest) best() *candidate {
	if f.idle.drawn != nil && (f.busy.drawn == nil || f.idle.cost <= f.busy.cost) {
		return f.idle.drawn
	}
	return f.busy.drawn
}

func (f *fewest) among(candidates []candidate) {
	for i := range candidates {
		one := &candidates[i]
		if phase(one.state.phase.Load()) != active || f.excluded.contains(one.entry.ID) || one.room(f.v.tick) != hasRoom {
			continue
		}
		f.seen++
		cost, idle := one.state.sessionCost(f.v)
		if idle {
			if f.idle.drawn == nil || cost < f.idle.cost {
				f.idle.cost = cost
			}
			f.draw(&f.idle, one, 1/float64(cost)) // the weight, less in a slow start
			continue
		}
		if f.busy.drawn == nil || cost < f.busy.cost {
			f.busy = lowest{cost: cost}
		}
		if cost == f.busy.cost {
			f.draw(&f.busy, one, one.entry.Weight)
		}
	}
}

// draw is weighted reservoir sampling with one place, as in pickLast.
func (f *fewest) draw(among *lowest, one *candidate, weight float64) {
	if among.drawn == nil {
		among.drawn, among.weight = one, weight
		return
	}
	if among.weight += weight; unit(f.b.random(f.d))*among.weight < weight {
		among.drawn = one
	}
}

const (
	// An endpoint hangs if its latency is above hungFactor times the median and above
	// hungLatency, 500 ms; or above silentLatency, 50 ms, which stands for a silence of 100 ms
	// that still lasts. The limits are far above the differences between endpoints that work,
	// and a pause of a busy host that is over counts only if it was long: neither may decide
	// where sessions stay for days. Both are below the time limit of an attempt.
	hungFactor    = 8
	hungLatency   = 500e6
	silentLatency = 50e6
	// failsBelow is the success average of an endpoint that fails: three failures in a row,
	// or a tenth of all. Such an endpoint has few sessions, which must not attract more.
	failsBelow = 0.9
	// badCost is the factor of the cost of an endpoint that hangs or fails: it gets a session
	// only if all others do so too.
	badCost = 1e6
)

// sessionCost is the number of requests in flight for the weight of the endpoint, in the
// middle of the step that one more would be. This is the method of Sainte-Laguë, which
// favours neither large nor small weights. An endpoint is idle if it has none in flight, and neither
// hangs nor fails.
func (s *state) sessionCost(v *view) (cost float32, idle bool) {
	latency, _, success, ramp := s.parts(v)
	out := s.outstanding()
	cost = (out + 0.5) * s.weighed() / ramp
	if success < failsBelow || latency > hungFactor*v.median && (latency > hungLatency || s.waiting(out) && s.silence(v) > silentLatency) {
		return cost * badCost, false
	}
	return cost, out == 0
}
