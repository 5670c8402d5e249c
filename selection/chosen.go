package selection

import "time"

// Usable reports whether somebody else who chooses should send a request to the
// named endpoint now: it is active, or it is half-open and nobody tries it. What is
// evicted comes back by itself; until then it should be chosen only when nothing
// else is left. False for an endpoint that is not in the range. No lock, no
// allocation.
func (b *Balancer) Usable(id string) bool {
	e := b.table.Load().byID[id]
	if e == nil {
		return false
	}
	switch phase(e.state.phase.Load()) {
	case active:
		return true
	case halfOpen:
		return e.state.probing.Load() == 0
	}
	return false
}

// Silence is for how long requests have waited for the named endpoint without a
// sign of life from it, 0 when none waits: one whose answer has begun does not, and
// an idle endpoint has nothing to say. No lock, no allocation.
func (b *Balancer) Silence(id string, now Instant) time.Duration {
	e := b.table.Load().byID[id]
	if e == nil {
		return 0
	}
	s := e.state
	if out := s.outstanding(); out <= 0 || out <= float32(s.streaming.Load()) {
		return 0
	}
	return time.Duration(now.tick().since(tick(s.silenceTick.Load()))) << tickShift
}
