package selection

// PickSession is Pick for a request that opens a session: a tunnel such as a WebSocket, or
// a TCP session. It chooses the endpoint with the fewest requests in flight for its weight,
// by a scan of the range.
//
// Pick multiplies the queue by the latency. For requests this is right, because a queue
// ends and a fast endpoint ends it sooner. A session lasts for minutes or days, however
// fast its handshake was: by Pick, an endpoint whose handshakes take half as long gets twice
// as many sessions, and they stay. Two draws would also hardly find the one empty endpoint
// of a long range, such as a worker that was restarted. HAProxy and Nginx use the same rule
// for long sessions (leastconn, least_conn).
//
// If d is not nil, it is overwritten with a description of the pick, and PickSession
// allocates.
func (b *Balancer) PickSession(now Instant, excluded *Exclusion, d *Decision) (Pick, error) {
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
func (b *Balancer) pickSession(t *table, now Instant, excluded *Exclusion, d *Decision) (Pick, bool) {
	c := &t.near
	if len(t.spill) > 0 {
		c = t.choose(b.random(d))
	}
	v := b.view(now)
	if t.halfOpen && excluded.count() == 0 && len(c.drawn) > 0 {
		// The sessions may be all that the endpoint gets, so they also try it after an
		// eviction, as often as it is drawn.
		one := c.one(uint32(b.random(d) >> 32))
		if one.room(v.tick) == HasRoom && one.state.claimProbe(d.real()) {
			d.probe()
			p, ok := b.begin(one, now, d)
			if ok {
				p.is = probing
				return p, true
			}
			one.state.probing.Store(0)
		}
	}
	d.among(c)
	least := fewest{b: b, v: &v, excluded: excluded, d: d}
	least.among(c.drawn)
	if c == &t.near && (least.best == nil || least.best.state.outstanding() > 0) {
		least.among(t.beyond.drawn) // the effective range is for short requests; see beyond
	}
	if least.best == nil {
		return Pick{}, false
	}
	d.fewest(least.seen)
	return b.begin(least.best, now, d)
}

// fewest finds the endpoint that has the fewest requests in flight for its weight. Among
// equal endpoints it draws by weight.
type fewest struct {
	b        *Balancer
	v        *view
	excluded *Exclusion
	d        *Decision

	best   *drawn
	cost   float32
	weight float64 // of all with this cost
	seen   int
}

func (f *fewest) among(candidates []drawn) {
	for i := range candidates {
		one := &candidates[i]
		if phase(one.state.phase.Load()) != active || f.excluded.contains(one.state) || one.room(f.v.tick) != HasRoom {
			continue
		}
		f.seen++
		cost, weight := one.state.sessionCost(f.v), one.entry.Weight
		switch {
		case f.best == nil || cost < f.cost:
			f.best, f.cost, f.weight = one, cost, weight
		case cost == f.cost:
			// Weighted reservoir sampling with one place, as in pickLast.
			if f.weight += weight; unit(f.b.random(f.d))*f.weight < weight {
				f.best = one
			}
		}
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
// middle of the step that one more would be: so the shares are those of Sainte-Laguë, which
// favours neither large nor small weights.
func (s *state) sessionCost(v *view) float32 {
	latency, _, success, ramp := s.parts(v)
	out := s.outstanding()
	cost := (out + 0.5) * s.weighed() / ramp
	if success < failsBelow || latency > hungFactor*v.median && (latency > hungLatency || s.waiting(out) && s.silence(v) > silentLatency) {
		cost *= badCost
	}
	return cost
}
