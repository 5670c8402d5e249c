package affinity

import (
	"fmt"
	"iter"
)

// Range is a run of positions on a ring of Size positions, which may wrap past the
// last position to the first. The zero value is the empty range of an empty ring.
type Range struct {
	start, len, size int
}

// Start returns the first position, 0 to Size-1.
func (r Range) Start() int { return r.start }

// Len returns the number of positions, 0 to Size.
func (r Range) Len() int { return r.len }

// Size returns the number of positions on the ring.
func (r Range) Size() int { return r.size }

// End returns the position after the last one, modulo Size. It equals Start when the
// range covers the whole ring; [Range.Len] tells that from an empty range.
func (r Range) End() int {
	// Compared this way round, because start+len may exceed the largest int.
	if r.start >= r.size-r.len {
		return r.start - (r.size - r.len)
	}
	return r.start + r.len
}

// Contains reports whether pos lies in the range. A position off the ring does not.
func (r Range) Contains(pos int) bool {
	if pos < 0 || pos >= r.size {
		return false
	}
	distance := pos - r.start
	if distance < 0 {
		distance += r.size
	}
	return distance < r.len
}

// Distance returns how many places outside the range pos lies, by the shorter way around:
// 0 inside it, 1 next to either end. It is meant for keeping an open connection that has
// just dropped out of the range. For a position off the ring and for an empty range it
// returns -1.
func (r Range) Distance(pos int) int {
	switch {
	case pos < 0 || pos >= r.size || r.len == 0:
		return -1
	case r.Contains(pos):
		return 0
	}
	after, before := pos-r.End()+1, r.start-pos
	if after <= 0 {
		after += r.size
	}
	if before <= 0 {
		before += r.size
	}
	return min(after, before)
}

// All yields the positions in ring order: a range that wraps gives its tail, then its
// head.
func (r Range) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		pos := r.start
		for range r.len {
			if !yield(pos) {
				return
			}
			if pos++; pos == r.size {
				pos = 0
			}
		}
	}
}

// String returns the half-open interval and the size of the ring, for example
// "[58..8) of 100" for a range that wraps, or "[0..100) of 100 (all)" for the whole
// ring, wherever on it the range begins.
func (r Range) String() string {
	if r.len == r.size && r.size > 0 {
		return fmt.Sprintf("[0..%d) of %d (all)", r.size, r.size)
	}
	return fmt.Sprintf("[%d..%d) of %d", r.start, r.End(), r.size)
}
