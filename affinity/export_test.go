package affinity

// Slots are the relays that hold the slots of a service.
func Slots(service string, k int, relays []string) []string { return slotHolders(service, k, relays) }

// Validate is what a plan checks of a shape.
func (s Shape) Validate() error { return s.validate() }

// End is the position after the range.
func (r Range) End() int { return r.end() }

// Contains is whether a position is in the range.
func (r Range) Contains(pos int) bool { return r.contains(pos) }

// Distance is how far a position is from the range.
func (r Range) Distance(pos int) int { return r.distance(pos) }

// Coverage is the reference for Plan.Coverage: it counts relays per worker and workers per relay over all indexes, in
// O(R + W). The slice is the caller's.
func (s Shape) Coverage() (Coverage, error) {
	if err := s.validate(); err != nil {
		return Coverage{}, err
	}
	steps := make([]int, s.Workers+1)
	c := Coverage{MinPerRelay: s.Workers}
	// Mark where ranges begin and end, then take prefix sums along the ring.
	for i := range s.Relays {
		r := s.project(i)
		c.Connections += r.len
		c.MinPerRelay = min(c.MinPerRelay, r.len)
		c.MaxPerRelay = max(c.MaxPerRelay, r.len)
		steps[r.start]++
		if head := r.start - (r.size - r.len); head > 0 { // wraps
			steps[0]++
			steps[r.size]--
			steps[head]--
		} else {
			steps[r.start+r.len]--
		}
	}
	for w := 1; w < s.Workers; w++ {
		steps[w] += steps[w-1]
	}
	c.PerWorker = steps[:s.Workers:s.Workers]
	c.Min, c.Max = c.PerWorker[0], c.PerWorker[0]
	for _, n := range c.PerWorker {
		c.Min, c.Max = min(c.Min, n), max(c.Max, n)
	}
	return c, nil
}
