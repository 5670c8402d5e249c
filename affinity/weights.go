package affinity

// AppendWeights appends the weights of the relay at index to dst, one per worker of its
// [Shape.Range] and in the same order, and returns the extended slice. With enough
// capacity it does not allocate.
//
// What holds:
//
//   - no weight is negative and they sum to 1;
//   - every worker's load, the sum of its weights over all relays, is exactly R/W, if
//     relays carry equal traffic and pick in proportion to weight;
//   - a weight may be 0: where the length of a range is not a whole number of the unit
//     that balances (p·R > m·W with W ≥ R, or m·W > p·R with W < R), the last workers
//     of some ranges are warm standbys, connected for redundancy and given no traffic.
//
// The one exception is p = 1 with R > (m-1)·W where R is not a multiple of W: most or
// all relays then hold one worker only, and no weights can even out workers that have
// unequal numbers of them. Loads there differ from R/W by less than one relay's traffic.
//
// The shares are computed in integers and divided once, so a weight is off by a few
// units in the last place at most.
//
// Source: the derivation is with the unexported functions below. For W ≥ R the workers
// between the starts of two neighbouring relays form a cell; a relay splits its traffic
// over the n cells of its range such that the rounding errors of the cell boundaries
// cancel in every cell. For W < R relays and workers swap roles.
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

// eachWeight yields runs of workers that have the same weight, over the whole range.
func (s Shape) eachWeight(index int, yield func(workers int, weight float64)) {
	rest := s.project(index).len
	denominator := s.denominator()
	s.eachShare(index, func(share share) {
		yield(share.workers, float64(share.numerator)/(denominator*float64(share.divisor)))
		rest -= share.workers
	})
	yield(rest, 0)
}

// share gives each of the next workers of a range the weight
// numerator / (Shape.denominator · divisor).
type share struct {
	workers            int
	numerator, divisor int64
}

// The cases of the weights. n and q count whole units in the length of a range.
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

// eachCell: with r = W/R and b_j = round(j·r), cell j is the workers [b_j, b_(j+1)), and
// e_j = (b_j - j·r)/r is how far, in cells, rounding moved its start. Relay i gives cell
// i+k the share
//
//	y(i,k) = 1/n + (e_(i+k+1)·[k < n-1] - e_(i+k)·[k > 0]) / (n-1)
//
// Over k the e cancel, so the shares sum to 1. Over the n relays of cell j they leave
// 1 + e_(j+1) - e_j, which is the size of the cell divided by r: every worker of it gets
// 1/r. As |e| ≤ 1/(2r) no share is negative. The numerators are those of y over n(n-1)W.
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

// eachOfGroup: with s = R/W, group g is the relays whose range starts at worker g, that
// is [a_g, a_(g+1)) with a_g = ⌈(g-½)·s⌉; d is its size, and
// t_g = (a_g - (g-½)·s - ½)/s is how far, in groups, rounding moved its first relay.
// A relay of group g gives worker g+t the share
//
//	(s/d)·(1/q + (t_(g+1)·[t > 0] - t_g·[t < q-1]) / (q-1))
//
// which is the argument of eachCell with the roles swapped. The numerators are those
// over 2q(q-1)W·d.
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

// eachOfSpill: ranges of one worker, and of two for the last c_g relays of group g. Only
// those can pass traffic on to worker g+1. Let the group pass on o_g in all; worker g then
// gets d_g - o_g + o_(g-1), which is s = R/W for every g if
//
//	o_g = a_(g+1) - (g+½)·s + constant
//
// The first two terms lie in [0, 1). For ⌈s⌉ < m every c_g is at least m - ⌈s⌉, so any
// constant from 0 to m - ⌈s⌉ - 1 fits; the middle one keeps both workers of a pair in use.
// Otherwise the constant is 0, and groups without a pair pass on nothing where they
// should: that is the exception in the documentation of AppendWeights. The numerators are
// over 2W·c_g.
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

// group returns the worker at which the relay's range starts, not yet modulo W: the last
// relays may belong to group W, which is group 0 one turn later.
func (s Shape) group(index int) int64 {
	relays := int64(s.Relays)
	return (2*int64(index)*int64(s.Workers) + relays) / (2 * relays)
}

// firstOfGroup returns a_g; it is negative for group 0, some of whose relays are counted
// one turn earlier.
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
