package affinity

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Errors wrapped by [Shape] and [NewPlan], for callers that treat an empty side as a
// state of its own (a service whose last worker has just left) and not as a fault.
var (
	ErrNoRelays  = errors.New("affinity: there are no relays")
	ErrNoWorkers = errors.New("affinity: there are no workers")
)

// Shape is everything that the projection depends on: two counts and the minimums.
//
// Methods return [ErrNoRelays] or [ErrNoWorkers] for an empty side and an error for bad
// minimums, for an index outside 0 to Relays-1, and where the arithmetic could leave 63
// bits: 2·(m+1)·R·W must stay below 2^63, m counting as R where it is larger. At m = 3
// that is a billion relays times a billion workers.
type Shape struct {
	Relays   int // relays that serve the service (R)
	Workers  int // workers of the service (W)
	Minimums     // no default here: see [DefaultMinimums]
}

// Validate checks counts, minimums and the bound on their product.
func (s Shape) Validate() error {
	if err := s.Minimums.Validate(); err != nil {
		return err
	}
	if s.Relays < 0 || s.Workers < 0 {
		return fmt.Errorf("affinity: %d relays and %d workers: counts cannot be negative", s.Relays, s.Workers)
	}
	if s.Relays == 0 {
		return fmt.Errorf("%w to connect to %d workers: wait until one has joined", ErrNoRelays, s.Workers)
	}
	if s.Workers == 0 {
		return fmt.Errorf("%w for %d relays to connect to: wait until one advertises the service", ErrNoWorkers, s.Relays)
	}
	m := uint64(min(s.PeersPerWorker, s.Relays))
	high, product := bits.Mul64(uint64(s.Relays), uint64(s.Workers))
	if high == 0 {
		high, product = bits.Mul64(product, m+1)
	}
	if high != 0 || product > math.MaxInt64/2 {
		return fmt.Errorf("affinity: %d relays and %d workers with %d peers per worker: too many for 63-bit arithmetic (2·(m+1)·R·W must stay below 2^63)",
			s.Relays, s.Workers, s.PeersPerWorker)
	}
	return nil
}

func (s Shape) check(index int) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if index < 0 || index >= s.Relays {
		return fmt.Errorf("affinity: relay index %d: allowed are 0 to %d for %d relays", index, s.Relays-1, s.Relays)
	}
	return nil
}

// everything reports whether the minimums make every relay connect to every worker:
// max(p·R, m·W) ≥ W·R, written so that nothing can overflow.
func (s Shape) everything() bool {
	return s.PeersPerRelay >= s.Workers || s.PeersPerWorker >= s.Relays
}

// scaledLen returns the length of a range in units of 1/R of a worker, when it is not
// everything.
func (s Shape) scaledLen() int64 {
	return max(int64(s.PeersPerRelay)*int64(s.Relays), int64(s.PeersPerWorker)*int64(s.Workers))
}

// Range returns the workers of the relay at index, as positions on the worker ring:
//
//	start = (2·i·W + R) / (2·R)
//	end   = (2·(i·W + max(p·R, m·W)) + R) / (2·R)
//
// which is Hyperbahn's linear projection, with both ends rounded half up. A relay that
// connects to everything still starts at its own place, so that a caller that uses only
// a prefix of its range does not meet every other relay on the same workers.
func (s Shape) Range(index int) (Range, error) {
	if err := s.check(index); err != nil {
		return Range{}, err
	}
	return s.project(index), nil
}

// project is [Shape.Range] for arguments that have been checked.
func (s Shape) project(index int) Range {
	i, relays, workers := int64(index), int64(s.Relays), int64(s.Workers)
	start := (2*i*workers + relays) / (2 * relays)
	length := workers
	if !s.everything() {
		length = (2*(i*workers+s.scaledLen())+relays)/(2*relays) - start
	}
	if start >= workers { // half up can push the last relays past the end
		start -= workers
	}
	return Range{start: int(start), len: int(length), size: s.Workers}
}
