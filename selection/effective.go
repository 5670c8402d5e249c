package selection

import (
	"math"
	"time"
)

// effectiveRange measures the rate of requests that the relay sends and computes the size of
// the effective range from it.
type effectiveRange struct {
	floor int // Range.MinEffective

	rate    float64 // requests per second, an average over rateMemory
	at      Instant // time of the last call of follow
	started bool    // whether at is valid
	size    int     // effective range in endpoints; 0 before the first decision: all
	widest  int     // largest size wanted in the current window
	since   Instant // start of the current window
}

const (
	// rateMemory is the time constant of the rate. With 2 s, a burst of one request per
	// endpoint of the range widens the effective range at the next Refresh.
	rateMemory = 2 * time.Second
	// narrowAfter is the length of the window: the range becomes narrower only after the
	// rate has required fewer endpoints for this long.
	narrowAfter = Instant(10 * time.Second)
	// narrowBelow is the share of the current size below which the range becomes
	// narrower. Chance alone varies a rate of ten per second by a fifth.
	narrowBelow = 0.75
	// narrowest leaves two endpoints to choose from while one is evicted.
	narrowest = 3
)

// flow counts the requests of a balancer.
type flow struct {
	sent     uint64 // since the last call of core.flow
	inFlight int    // now
}

// follow updates rate and size with the requests since the last call. Requests in
// flight count as well: requests that last longer than a second need more endpoints
// than their rate indicates. Widening is immediate, because too few endpoints are soon
// overloaded; narrowing waits, because every change of the range brings in endpoints
// with outdated estimates.
func (w *effectiveRange) follow(f flow, now Instant, perEndpoint float64) {
	elapsed := now - w.at
	if !w.started {
		w.at, w.since, w.started = now, now, true
		return
	}
	if elapsed <= 0 {
		return
	}
	seconds := time.Duration(elapsed).Seconds()
	w.rate += (float64(f.sent)/seconds - w.rate) * (1 - math.Exp(-seconds/rateMemory.Seconds()))
	w.at = now
	if perEndpoint == 0 {
		return
	}
	wanted := max(f.inFlight, int(min(math.Ceil(w.rate/perEndpoint), math.MaxInt32)))
	if wanted >= w.size && w.size > 0 {
		w.size, w.widest, w.since = wanted, 0, now
		return
	}
	w.widest = max(w.widest, wanted)
	if now-w.since < narrowAfter {
		return
	}
	if w.size == 0 || float64(w.widest) < narrowBelow*float64(w.size) {
		w.size = max(w.widest, 1)
	}
	w.widest, w.since = wanted, now
}

// overdue returns after how many ticks without an answer one of n endpoints is overdue.
func (w *effectiveRange) overdue(n int) int32 {
	if after := float64(n) / (w.rate * overdueShare) * float64(ticksPerSecond); after < maxAge {
		return int32(after)
	}
	return math.MaxInt32 // never: there is hardly a request
}

// shape returns the shape of a table of n endpoints.
func (w *effectiveRange) shape(cfg *Config, n int) shape {
	size := n
	if w.floor > 0 && w.size > 0 && cfg.EndpointRate > 0 {
		size = min(n, max(w.size, w.floor, narrowest))
	}
	return shape{effective: size, overprovisioning: cfg.Overprovisioning}
}

// flow returns the number of requests sent since the last call and of those in flight.
// b.mu is held.
func (b *core) flow(t *table) (f flow) {
	for i := range t.entries {
		g := t.entries[i].guarded
		f.inFlight += int(g.state.outstanding())
		picks := g.state.picks.Load()
		f.sent += picks - g.counted
		g.counted = picks
	}
	return f
}
