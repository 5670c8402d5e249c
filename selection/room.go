package selection

import "math"

// Room says whether an endpoint takes one more request of a balancer.
type Room uint8

// The values of Room, the best first.
const (
	HasRoom Room = iota
	// AtLimit: as many as its Limit are on their way. Only it knows whether others
	// have left it room.
	AtLimit
	// RefusedLately: it has just refused a request because it is full.
	RefusedLately
	// NoRoom: as many as its Limit are on their way, and it does not refuse by itself.
	NoRoom
)

// Room tells of the named endpoint, for a strategy that chooses; NoRoom for one that
// is not in the range. No lock, no allocation.
func (b *Balancer) Room(id string, now Instant) Room {
	e := b.table.Load().byID[id]
	if e == nil {
		return NoRoom
	}
	one := e.drawn()
	return one.room(now.tick())
}

// Limited reports whether any endpoint of the range has a Limit; without one all of
// them have room.
func (b *Balancer) Limited() bool { return b.table.Load().limited }

func (d *drawn) room(now tick) Room {
	if d.limit == 0 {
		return HasRoom
	}
	full := int(d.state.outstanding()) >= d.limit
	switch {
	case full && !d.entry.Refuses:
		return NoRoom
	case d.state.refusedLately(now):
		return RefusedLately
	case full:
		return AtLimit
	}
	return HasRoom
}

// withRoom is the score, or one that never wins where there is no room.
func (d *drawn) withRoom(score float32, v *view) float32 {
	if d.room(v.tick) != HasRoom {
		return float32(math.Inf(1))
	}
	return score
}

// hard is the limit that is never exceeded, 0 for none.
func hard(e *entry) int {
	if e.Refuses {
		return 0
	}
	return e.Limit
}

const (
	// fullFor, 50 ms, is for how long an endpoint that refused is taken for full, and
	// fullMost, 10 s, the most after several refusals: what fills it may be requests of
	// milliseconds or sessions of hours.
	fullFor  = int32(50_000_000 >> tickShift)
	fullMost = int32(10_000_000_000 >> tickShift)
	// refusals are counted in the last bits of the word that has the time.
	refusals = 1<<4 - 1
)

// refused notes that the endpoint is full. Each refusal after that time doubles it;
// the end of a request makes an end of it.
func (s *state) refused(now tick) {
	if s.refusedLately(now) {
		return
	}
	n := s.full.Load() & refusals
	until := uint32(now) + uint32(min(fullFor<<n, fullMost))
	s.full.Store(until&^refusals | min(n+1, refusals))
}

func (s *state) refusedLately(now tick) bool {
	word := s.full.Load()
	return word != 0 && int32(word&^refusals-uint32(now)) > 0
}
