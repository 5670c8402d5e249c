package affinity

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
)

// Range is a contiguous run of positions on a ring of Size positions. It may wrap past the
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

// end returns the position after the last one, modulo Size. It equals Start when the
// range covers the whole ring and when the range is empty; use [Range.Len] to distinguish
// the two.
func (r Range) end() int {
	// Compared this way round, because start+len may exceed the largest int.
	if r.start >= r.size-r.len {
		return r.start - (r.size - r.len)
	}
	return r.start + r.len
}

// contains reports whether pos lies in the range; for a position off the ring the result
// is false.
func (r Range) contains(pos int) bool {
	if pos < 0 || pos >= r.size {
		return false
	}
	distance := pos - r.start
	if distance < 0 {
		distance += r.size
	}
	return distance < r.len
}

// distance returns how many places outside the range pos lies, by the shorter way around:
// 0 inside the range, 1 next to either end. Callers use the distance to keep an open
// connection that has just dropped out of the range. For a position off the ring and for
// an empty range distance returns -1.
func (r Range) distance(pos int) int {
	switch {
	case pos < 0 || pos >= r.size || r.len == 0:
		return -1
	case r.contains(pos):
		return 0
	}
	after, before := pos-r.end()+1, r.start-pos
	if after <= 0 {
		after += r.size
	}
	if before <= 0 {
		before += r.size
	}
	return min(after, before)
}

// All yields the positions in ring order. A range that wraps yields the positions before
// the end of the ring first, then those from position 0.
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
// "[58..8) of 100" for a range that wraps, or "[0..100) of 100 (all)" for the whole ring,
// regardless of the start. A range that ends with the ring ends at its size.
func (r Range) String() string {
	if r.len == r.size && r.size > 0 {
		return fmt.Sprintf("[0..%d) of %d (all)", r.size, r.size)
	}
	end := r.end()
	if end == 0 && r.len > 0 {
		end = r.size
	}
	return fmt.Sprintf("[%d..%d) of %d", r.start, end, r.size)
}

// Errors wrapped by [Shape] and [NewPlan], for callers that treat an empty side (a service
// whose last worker has just left) as a separate state and not as a fault.
var (
	ErrNoRelays  = errors.New("affinity: there are no relays")
	ErrNoWorkers = errors.New("affinity: there are no workers")
)

// Shape is the complete input of the projection: two counts and the minimums.
//
// Methods return [ErrNoRelays] or [ErrNoWorkers] for an empty side and an error for invalid
// minimums, for an index outside 0 to Relays-1, and where the arithmetic could exceed 63
// bits: 2·(min(m, R)+1)·R·W must stay below 2^63. At m = 3 the limit is a billion relays
// times a billion workers.
type Shape struct {
	Relays   int // relays that serve the service (R)
	Workers  int // workers of the service (W)
	Minimums     // no default is filled in: see [DefaultMinimums]
}

// validate checks counts, minimums and the bound on their product.
func (s Shape) validate() error {
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
	if err := s.validate(); err != nil {
		return err
	}
	if index < 0 || index >= s.Relays {
		return fmt.Errorf("affinity: relay index %d: allowed are 0 to %d for %d relays", index, s.Relays-1, s.Relays)
	}
	return nil
}

// everything reports whether the minimums make every relay connect to every worker:
// max(p·R, m·W) ≥ W·R, in a form that cannot overflow.
func (s Shape) everything() bool {
	return s.PeersPerRelay >= s.Workers || s.PeersPerWorker >= s.Relays
}

// scaledLen returns the length of a range in units of 1/R of a worker, for ranges that do
// not cover the whole ring.
func (s Shape) scaledLen() int64 {
	return max(int64(s.PeersPerRelay)*int64(s.Relays), int64(s.PeersPerWorker)*int64(s.Workers))
}

// Range returns the workers of the relay at index, as positions on the worker ring:
//
//	start = (2·i·W + R) / (2·R)
//	end   = (2·(i·W + max(p·R, m·W)) + R) / (2·R)
//
// This is Hyperbahn's linear projection, with both ends rounded half up. A relay that
// connects to every worker still starts at its own position, so that callers that use only
// a prefix of the range spread over different workers.
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
	if start >= workers { // rounding up can move the last relays past the end
		start -= workers
	}
	return Range{start: int(start), len: int(length), size: s.Workers}
}

// AppendWeights appends the weights of the relay at index to dst, one per worker of its
// [Shape.Range] and in the same order, and returns the extended slice. With enough
// capacity it does not allocate.
//
// Guarantees:
//
//   - no weight is negative and they sum to 1;
//   - every worker's load, the sum of its weights over all relays, is exactly R/W, if
//     relays carry equal traffic and pick in proportion to weight;
//   - a weight may be 0: where the length of a range is not a whole number of cells (p·R >
//     m·W with W ≥ R) or of groups (m·W > p·R with W < R), the last workers of some ranges
//     are warm standbys: connected for redundancy, without traffic.
//
// The one exception is p = 1 with R > (m-1)·W where R is not a multiple of W: most or all
// relays then hold one worker only, and no weights can balance workers that have unequal
// numbers of such relays. Loads then differ from R/W by less than one relay's traffic.
//
// The shares are computed in integers and divided once, so the error of a weight is at most
// a few units in the last place.
//
// The derivation is at eachCell, eachOfGroup and eachOfSpill. For W ≥ R the workers between
// the starts of two neighbouring relays form a cell; a relay splits its traffic over the n
// cells of its range such that the rounding errors of the cell boundaries cancel in every
// cell. For W < R relays and workers swap roles: the relays that start at one worker form a
// group.
func (s Shape) AppendWeights(dst []float64, index int) ([]float64, error) {
	if err := s.check(index); err != nil {
		return dst, err
	}
	return s.appendWeights(dst, index), nil
}

// appendWeights is [Shape.AppendWeights] for arguments that have been checked.
func (s Shape) appendWeights(dst []float64, index int) []float64 {
	s.eachWeight(index, func(workers int, weight float64) {
		for range workers {
			dst = append(dst, weight)
		}
	})
	return dst
}

// eachWeight calls yield for each run of workers that have the same weight, over the whole
// range. Workers after the last share have the weight 0.
func (s Shape) eachWeight(index int, yield func(workers int, weight float64)) {
	rest := s.project(index).len
	denominator := s.denominator()
	s.eachShare(index, func(share share) {
		yield(share.workers, float64(share.numerator)/(denominator*float64(share.divisor)))
		rest -= share.workers
	})
	yield(rest, 0)
}

// share is a run of workers of a range, each with the weight
// numerator / (Shape.denominator · divisor).
type share struct {
	workers            int
	numerator, divisor int64
}

// weighting is the case that decides how weights are computed. n and q are the number of
// whole cells or groups in a range.
//
//	everything            1/W each
//	W ≥ R                 by cells:  n = ⌊len/r⌋, which is at least m
//	W < R, q ≥ 2          by groups: q = ⌊len⌋
//	W < R, q = 1          by spill:  one worker each, some relays two
type weighting int

const (
	evenly weighting = iota
	byCells
	byGroups
	bySpill
)

// weighting returns the case, and its n or q.
func (s Shape) weighting() (weighting, int64) {
	switch {
	case s.everything():
		return evenly, 1
	case s.Workers >= s.Relays:
		return byCells, s.scaledLen() / int64(s.Workers)
	default:
		if q := s.scaledLen() / int64(s.Relays); q >= 2 {
			return byGroups, q
		}
		return bySpill, 1
	}
}

// denominator is the part of the denominator that all weights of a shape have in common.
// It is a float64 because only the numerators need to be exact.
func (s Shape) denominator() float64 {
	kind, n := s.weighting()
	switch kind {
	case byCells:
		return float64(n) * float64(n-1) * float64(s.Workers)
	case byGroups:
		return 2 * float64(n) * float64(n-1) * float64(s.Workers)
	case bySpill:
		return 2 * float64(s.Workers)
	default:
		return float64(s.Workers)
	}
}

func (s Shape) eachShare(index int, yield func(share)) {
	switch kind, n := s.weighting(); kind {
	case byCells:
		s.eachCell(index, n, yield)
	case byGroups:
		s.eachOfGroup(index, n, yield)
	case bySpill:
		s.eachOfSpill(index, yield)
	default:
		yield(share{workers: s.Workers, numerator: 1, divisor: 1})
	}
}

// eachCell computes the shares for W ≥ R. With r = W/R and b_j = round(j·r), cell j is the
// workers [b_j, b_(j+1)), and e_j = (b_j - j·r)/r is how far, in cells, rounding moved the
// start of cell j. Relay i gives cell i+k the share
//
//	y(i,k) = 1/n + (e_(i+k+1)·[k < n-1] - e_(i+k)·[k > 0]) / (n-1)
//
// Summed over k, the terms e cancel, so the shares of a relay sum to 1. The shares that the
// n relays of cell j give to it sum to 1 + e_(j+1) - e_j, the size of the cell divided by
// r: every worker of the cell gets 1/r. Because |e| ≤ 1/(2r), no share is negative. The
// numerators has the values of y times the denominator n(n-1)W.
func (s Shape) eachCell(index int, n int64, yield func(share)) {
	relays, workers := int64(s.Relays), int64(s.Workers)
	start := func(j int64) int64 { return (2*j*workers + relays) / (2 * relays) }
	from := start(int64(index))
	shift := from*relays - int64(index)*workers // e, times W
	for k := range n {
		j := int64(index) + k + 1
		to := start(j)
		nextShift := to*relays - j*workers
		numerator := (n - 1) * workers
		if k < n-1 {
			numerator += n * nextShift
		}
		if k > 0 {
			numerator -= n * shift
		}
		yield(share{workers: int(to - from), numerator: numerator, divisor: to - from})
		from, shift = to, nextShift
	}
}

// eachOfGroup computes the shares for W < R and q ≥ 2. With s = R/W, group g is the relays
// whose range starts at worker g: the relays [a_g, a_(g+1)) with a_g = ⌈(g-½)·s⌉. d is the
// size of the group, and t_g = (a_g - (g-½)·s - ½)/s is how far, in groups, rounding moved
// its first relay. A relay of group g gives worker g+t the share
//
//	(s/d)·(1/q + (t_(g+1)·[t > 0] - t_g·[t < q-1]) / (q-1))
//
// The argument is the same as at eachCell, with the roles swapped. The shares that are yielded are
// numerators over the denominator 2q(q-1)W·d.
func (s Shape) eachOfGroup(index int, q int64, yield func(share)) {
	relays, workers := int64(s.Relays), int64(s.Workers)
	g := s.group(index)
	first, next := s.firstOfGroup(g), s.firstOfGroup(g+1)
	shift := 2*workers*first - (2*g-1)*relays - workers // t_g, times 2R
	nextShift := 2*workers*next - (2*g+1)*relays - workers
	for t := range q {
		numerator := 2 * (q - 1) * relays
		if t > 0 {
			numerator += q * nextShift
		}
		if t < q-1 {
			numerator -= q * shift
		}
		yield(share{workers: 1, numerator: numerator, divisor: next - first})
	}
}

// eachOfSpill computes the shares for W < R and q = 1: ranges have one worker, and two for
// the last c_g relays of group g. Only those relays can pass traffic on to worker g+1. If
// the group passes on o_g in total, worker g gets d_g - o_g + o_(g-1). That is s = R/W for
// every g if
//
//	o_g = a_(g+1) - (g+½)·s + constant
//
// The difference of the first two terms lies in [0, 1). For ⌈s⌉ < m every c_g is at least
// m - ⌈s⌉, so any constant from 0 to m - ⌈s⌉ - 1 is valid; the middle one keeps both
// workers of a pair in use. Otherwise the constant is 0, and groups without a pair pass on
// nothing although they should: this is the exception in the documentation of
// AppendWeights. The numerators are over the denominator 2W·c_g.
func (s Shape) eachOfSpill(index int, yield func(share)) {
	relays, workers := int64(s.Relays), int64(s.Workers)
	g := s.group(index)
	next := s.firstOfGroup(g + 1)
	pairs := next - ceilDiv((2*g+3)*relays-2*s.scaledLen(), 2*workers) // c_g
	if int64(index) < next-pairs {
		yield(share{workers: 1, numerator: 2 * workers, divisor: 1})
		return
	}
	spare := max(0, int64(s.PeersPerWorker)-ceilDiv(relays, workers)-1) // twice the constant
	passed := 2*workers*next - (2*g+1)*relays + spare*workers
	yield(share{workers: 1, numerator: 2*workers*pairs - passed, divisor: pairs})
	yield(share{workers: 1, numerator: passed, divisor: pairs})
}

// group returns the worker at which the relay's range starts, not reduced modulo W: the
// last relays may belong to group W, which is group 0 one turn later.
func (s Shape) group(index int) int64 {
	relays := int64(s.Relays)
	return (2*int64(index)*int64(s.Workers) + relays) / (2 * relays)
}

// firstOfGroup returns a_g. It is negative for group 0, because some relays of group 0
// are counted one turn earlier.
func (s Shape) firstOfGroup(g int64) int64 {
	return ceilDiv((2*g-1)*int64(s.Relays), 2*int64(s.Workers))
}

// ceilDiv returns ⌈a/b⌉ for b > 0.
func ceilDiv(a, b int64) int64 {
	quotient := a / b
	if a%b > 0 {
		quotient++
	}
	return quotient
}
