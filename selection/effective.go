package selection

import (
	"math"
	"time"
)

// breadth measures the rate of requests that the relay sends and computes the width of
// the effective range from it.
type breadth struct {
	floor int // Range.MinEffective

	rate     float64 // requests per second, an average over rateMemory
	at       Instant // time of the last call of follow
	counting bool    // whether at is valid
	width    int     // effective range in endpoints; 0 before the first decision: all
	most     int     // largest width wanted in the current window
	before   Instant // start of the current window
}

const (
	// rateMemory is the time constant of the rate. With 2 s, a burst of one request per
	// endpoint of the range widens the effective range at the next Refresh.
	rateMemory = 2 * time.Second
	// narrowAfter is the length of the window: the range becomes narrower only after the
	// rate has required fewer endpoints for this long.
	narrowAfter = Instant(10 * time.Second)
	// narrowBelow is the share of the current width below which the range becomes
	// narrower. Chance alone varies a rate of ten per second by a fifth.
	narrowBelow = 0.75
	// narrowest leaves two endpoints to choose from while one is evicted.
	narrowest = 3
)

// flow counts the requests of a balancer.
type flow struct {
	sent     uint64 // since the last call of Balancer.flow
	inFlight int    // now
}

// follow updates rate and width with the requests since the last call. Requests in
// flight count as well: requests that last longer than a second need more endpoints
// than their rate indicates. Widening is immediate, because too few endpoints are soon
// overloaded; narrowing waits, because every change of the range brings in endpoints
// with outdated estimates.
func (w *breadth) follow(f flow, now Instant, perEndpoint float64) {
	elapsed := now - w.at
	if !w.counting {
		w.at, w.before, w.counting = now, now, true
		return
	}
	if elapsed <= 0 || perEndpoint == 0 {
		return
	}
	seconds := time.Duration(elapsed).Seconds()
	w.rate += (float64(f.sent)/seconds - w.rate) * (1 - math.Exp(-seconds/rateMemory.Seconds()))
	w.at = now
	wanted := max(f.inFlight, int(min(math.Ceil(w.rate/perEndpoint), math.MaxInt32)))
	if wanted >= w.width && w.width > 0 {
		w.width, w.most, w.before = wanted, 0, now
		return
	}
	w.most = max(w.most, wanted)
	if now-w.before < narrowAfter {
		return
	}
	if w.width == 0 || float64(w.most) < narrowBelow*float64(w.width) {
		w.width = max(w.most, 1)
	}
	w.most, w.before = wanted, now
}

// shape returns the shape of a table of n endpoints.
func (w *breadth) shape(cfg *Config, n int) shape {
	width := n
	if w.floor > 0 && w.width > 0 && cfg.EndpointRate > 0 {
		width = min(n, max(w.width, w.floor, narrowest))
	}
	return shape{width: width, overprovisioning: cfg.Overprovisioning}
}

// flow returns the number of requests sent since the last call and of those in flight.
// b.mu is held.
func (b *Balancer) flow(t *table) (f flow) {
	for i := range t.entries {
		m := t.entries[i].member
		f.inFlight += int(m.state.outstanding())
		picks := m.state.picks.Load()
		f.sent += picks - m.counted
		m.counted = picks
	}
	return f
}
