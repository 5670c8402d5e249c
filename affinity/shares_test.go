package affinity

import (
	"testing"
)

// In whole numbers: with D a common multiple of all divisors, a weight is
// numerator·(D/divisor) parts of denominator·D.
func TestLoadsAreExactlyEqual(t *testing.T) {
	seen := map[weighting]int{}
	for relays := 1; relays <= 40; relays++ {
		for workers := 1; workers <= 60; workers++ {
			for m := 3; m <= 5; m++ {
				for p := 1; p <= 5; p++ {
					s := Shape{relays, workers, Minimums{m, p}}
					kind, _ := s.weighting()
					if kind == bySpill && relays > (m-1)*workers && relays%workers != 0 {
						continue // the documented exception
					}
					seen[kind]++
					exactLoads(t, s)
				}
			}
		}
	}
	for _, kind := range []weighting{evenly, byCells, byGroups, bySpill} {
		if seen[kind] < 100 {
			t.Errorf("only %d shapes of case %d were checked", seen[kind], kind)
		}
	}
}

func exactLoads(t *testing.T, s Shape) {
	t.Helper()
	common := int64(1)
	for i := range s.Relays {
		s.eachShare(i, func(sh share) {
			a, b := common, sh.divisor
			for b != 0 {
				a, b = b, a%b
			}
			common *= sh.divisor / a
		})
	}
	whole := int64(s.denominator()) * common
	loads := make([]int64, s.Workers)
	for i := range s.Relays {
		sum, w := int64(0), s.project(i).start
		s.eachShare(i, func(sh share) {
			if sh.numerator < 0 || sh.workers < 1 {
				t.Fatalf("%+v: relay %d: bad share %+v", s, i, sh)
			}
			for range sh.workers {
				part := sh.numerator * (common / sh.divisor)
				sum += part
				loads[w] += part
				w = (w + 1) % s.Workers
			}
		})
		if sum != whole {
			t.Fatalf("%+v: the weights of relay %d sum to %d/%d", s, i, sum, whole)
		}
	}
	for w, load := range loads {
		if load*int64(s.Workers) != whole*int64(s.Relays) {
			t.Fatalf("%+v: worker %d carries %d/%d, want %d/%d", s, w, load, whole, s.Relays, s.Workers)
		}
	}
}
