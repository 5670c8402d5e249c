package selection

import (
	"math"
	"time"
)

// breadth follows how many requests per second the relay sends and how many
// endpoints they are enough for.
type breadth struct {
	floor int // Range.MinEffective

	rate     float64 // requests per second, an average over rateMemory
	at       Instant // of the last count
	counting bool    // at is valid
	width    int     // 0 before the first decision: all
	most     int     // the widest that the rate has asked for since before
	before   Instant // when the present look at most began
}

const (
	// rateMemory: a burst of so many requests as the range has endpoints widens it
	// at the next Refresh.
	rateMemory = 2 * time.Second
	// narrowAfter is for how long the rate must ask for less.
	narrowAfter = Instant(10 * time.Second)
	// narrowBelow is how much less, of the present width: chance alone makes a rate
	// of ten a second look a fifth higher or lower.
	narrowBelow = 0.75
	// narrowest is for choosing between two when one is out.
	narrowest = 3
)

// flow is what a balancer sends.
type flow struct {
	sent     uint64 // since the last look
	inFlight int    // now
}

// follow takes the requests of the time since the last call. Those in flight count as
// well: where each lasts for longer than a second, they need more endpoints than their
// rate says. Widening is at once, since
// too few endpoints are soon overloaded; narrowing waits, since every change
// brings endpoints whose estimates are old.
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

// shape is that of a table of n endpoints.
func (w *breadth) shape(cfg *Config, n int) shape {
	width := n
	if w.floor > 0 && w.width > 0 && cfg.EndpointRate > 0 {
		width = min(n, max(w.width, w.floor, narrowest))
	}
	return shape{width: width, overprovisioning: cfg.Overprovisioning}
}

// flow counts the requests since the last call, and those in flight. b.mu is held.
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
