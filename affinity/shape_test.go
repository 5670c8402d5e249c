package affinity_test

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/ringway/ringway/affinity"
	"pgregory.net/rapid"
)

func TestBadShapesAreRefusedWithTheValueAndWhatIsAllowed(t *testing.T) {
	good := affinity.DefaultMinimums
	for _, c := range []struct {
		name  string
		shape affinity.Shape
		index int
		says  []string
		is    error
	}{
		{"no relays", affinity.Shape{0, 5, good}, 0, []string{"no relays", "5 workers"}, affinity.ErrNoRelays},
		{"no workers", affinity.Shape{5, 0, good}, 0, []string{"no workers", "5 relays"}, affinity.ErrNoWorkers},
		{"negative relays", affinity.Shape{-1, 5, good}, 0, []string{"-1 relays", "negative"}, nil},
		{"negative workers", affinity.Shape{5, -2, good}, 0, []string{"-2 workers", "negative"}, nil},
		{"m too small", affinity.Shape{5, 5, affinity.Minimums{2, 3}}, 0, []string{"per worker 2", "3 or more"}, nil},
		{"p too small", affinity.Shape{5, 5, affinity.Minimums{3, 0}}, 0, []string{"per relay 0", "1 or more"}, nil},
		{"no minimums", affinity.Shape{Relays: 5, Workers: 5}, 0, []string{"per worker 0"}, nil},
		{"index below", affinity.Shape{5, 5, good}, -1, []string{"index -1", "0 to 4"}, nil},
		{"index above", affinity.Shape{5, 5, good}, 5, []string{"index 5", "0 to 4"}, nil},
		{"too large", affinity.Shape{math.MaxInt, math.MaxInt, good}, 0, []string{"63-bit"}, nil},
	} {
		_, rangeErr := c.shape.Range(c.index)
		_, weightsErr := c.shape.AppendWeights(nil, c.index)
		errs := []error{rangeErr, weightsErr}
		if !strings.HasPrefix(c.name, "index") {
			_, coverageErr := c.shape.Coverage()
			errs = append(errs, coverageErr, c.shape.Validate())
		}
		for _, err := range errs {
			if err == nil {
				t.Fatalf("%s: no error", c.name)
			}
			for _, words := range c.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%s: %q does not say %q", c.name, err, words)
				}
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: %q is not %q", c.name, err, c.is)
			}
		}
	}
}

func TestAFailedAppendKeepsWhatWasThere(t *testing.T) {
	got, err := affinity.Shape{}.AppendWeights([]float64{0.5}, 0)
	if err == nil || len(got) != 1 || got[0] != 0.5 {
		t.Errorf("got %v, %v; want the slice back with an error", got, err)
	}
}

func TestTheBoundOfTheArithmeticIsExact(t *testing.T) {
	most := func(m int) affinity.Minimums { return affinity.Minimums{PeersPerWorker: m, PeersPerRelay: 1} }
	for _, c := range []struct {
		shape affinity.Shape
		fits  bool
	}{
		{affinity.Shape{1 << 30, 1<<30 - 1, most(3)}, true}, // 2·(3+1)·2^30·2^30 is 2^63
		{affinity.Shape{1 << 30, 1 << 30, most(3)}, false},
		{affinity.Shape{1 << 30, 1<<29 - 1, most(7)}, true},
		{affinity.Shape{1 << 30, 1 << 29, most(7)}, false},
		{affinity.Shape{1, 1<<61 - 1, most(math.MaxInt)}, true}, // m counts as R
		{affinity.Shape{1, 1 << 61, most(math.MaxInt)}, false},
		{affinity.Shape{math.MaxInt, 1, most(math.MaxInt)}, false},
	} {
		r, err := c.shape.Range(c.shape.Relays - 1)
		if (err == nil) != c.fits {
			t.Errorf("%+v: error %v, want it to fit: %v", c.shape, err, c.fits)
		}
		if c.fits && (r.Start() < 0 || r.Start() >= c.shape.Workers || r.Len() < 1 || r.End() < 0) {
			t.Errorf("%+v: the range of the last relay is %v", c.shape, r)
		}
	}
}

// halfUp returns ⌊a/b + 1/2⌋ without bounds.
func halfUp(a, b *big.Int) *big.Int {
	twice := new(big.Int).Add(new(big.Int).Lsh(a, 1), b)
	return twice.Div(twice, new(big.Int).Lsh(b, 1))
}

// Whatever is not refused is right, up to the edge of 63 bits.
func TestHugeShapesAreRightOrRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anySize := rapid.Custom(func(t *rapid.T) int {
			return rapid.IntRange(1, 1<<rapid.IntRange(1, 62).Draw(t, "bits")).Draw(t, "size")
		})
		s := affinity.Shape{
			Relays:  anySize.Draw(t, "relays"),
			Workers: anySize.Draw(t, "workers"),
			Minimums: affinity.Minimums{
				PeersPerWorker: max(3, anySize.Draw(t, "m")),
				PeersPerRelay:  anySize.Draw(t, "p"),
			},
		}
		relays, workers := big.NewInt(int64(s.Relays)), big.NewInt(int64(s.Workers))
		product := new(big.Int).Mul(relays, workers)
		bound := big.NewInt(int64(min(s.PeersPerWorker, s.Relays)))
		bound.Add(bound, big.NewInt(1)).Lsh(bound, 1).Mul(bound, product)
		i := rapid.IntRange(0, s.Relays-1).Draw(t, "index")
		got, err := s.Range(i)
		if fits := bound.IsInt64(); fits != (err == nil) {
			t.Fatalf("%+v: 2(m+1)RW = %v, error %v", s, bound, err)
		}
		if err != nil {
			return
		}
		scaled := new(big.Int).Mul(big.NewInt(int64(s.PeersPerWorker)), workers)
		if other := new(big.Int).Mul(big.NewInt(int64(s.PeersPerRelay)), relays); other.Cmp(scaled) > 0 {
			scaled = other
		}
		if scaled.Cmp(product) > 0 {
			scaled = product
		}
		from := new(big.Int).Mul(big.NewInt(int64(i)), workers)
		start := halfUp(from, relays)
		length := new(big.Int).Sub(halfUp(new(big.Int).Add(from, scaled), relays), start)
		start.Mod(start, workers)
		if int64(got.Start()) != start.Int64() || int64(got.Len()) != length.Int64() || got.Size() != s.Workers {
			t.Fatalf("%+v: relay %d: %v, want start %v and length %v", s, i, got, start, length)
		}
		if got.Len() <= 10_000 {
			weights, err := s.AppendWeights(nil, i)
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, weight := range weights {
				if weight < 0 {
					t.Fatalf("%+v: relay %d: weight %v", s, i, weight)
				}
				sum += weight
			}
			if math.Abs(sum-1) > 1e-9 {
				t.Fatalf("%+v: relay %d: weights sum to %v", s, i, sum)
			}
		}
	})
}

// The formulas as they are published, in rational numbers.
func TestWeightsFollowTheClosedForm(t *testing.T) {
	for relays := 4; relays <= 20; relays++ {
		for workers := 4; workers <= 40; workers++ {
			for _, minimums := range []affinity.Minimums{{3, 1}, {3, 3}, {4, 2}, {3, 5}} {
				s := affinity.Shape{relays, workers, minimums}
				if minimums.PeersPerRelay >= workers || minimums.PeersPerWorker >= relays {
					continue
				}
				for i := range relays {
					want := closedForm(s, int64(i))
					got, err := s.AppendWeights(nil, i)
					if err != nil {
						t.Fatal(err)
					}
					if want == nil {
						continue // q < 2: not covered by the closed form
					}
					for j, weight := range got {
						exact := 0.0
						if j < len(want) {
							exact, _ = want[j].Float64()
						}
						if math.Abs(weight-exact) > 1e-15 {
							t.Fatalf("%+v: relay %d: weight %d is %v, want %v", s, i, j, weight, exact)
						}
					}
				}
			}
		}
	}
}

func closedForm(s affinity.Shape, i int64) []*big.Rat {
	rat := func(a, b int64) *big.Rat { return big.NewRat(a, b) }
	add := func(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }
	sub := func(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
	mul := func(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }
	floor := func(x *big.Rat) int64 { return new(big.Int).Div(x.Num(), x.Denom()).Int64() }
	half := rat(1, 2)
	R, W := int64(s.Relays), int64(s.Workers)
	m, p := int64(s.PeersPerWorker), int64(s.PeersPerRelay)
	r := rat(W, R)
	length := mul(rat(m, 1), r)
	if length.Cmp(rat(p, 1)) < 0 {
		length = rat(p, 1)
	}
	var out []*big.Rat
	if W >= R {
		n := floor(mul(length, rat(R, W)))
		b := func(j int64) int64 { return floor(add(mul(rat(j, 1), r), half)) }
		e := func(j int64) *big.Rat { return mul(sub(rat(b(j), 1), mul(rat(j, 1), r)), rat(R, W)) }
		for k := range n {
			y := new(big.Rat)
			if k < n-1 {
				y = add(y, e(i+k+1))
			}
			if k > 0 {
				y = sub(y, e(i+k))
			}
			y = add(rat(1, n), mul(y, rat(1, n-1)))
			size := b(i+k+1) - b(i+k)
			for range size {
				out = append(out, mul(y, rat(1, size)))
			}
		}
		return out
	}
	q := floor(length)
	if q < 2 {
		return nil
	}
	ratio := rat(R, W)
	a := func(g int64) int64 { return -floor(mul(sub(half, rat(g, 1)), ratio)) } // ⌈(g-½)s⌉
	tt := func(g int64) *big.Rat {
		return mul(sub(sub(rat(a(g), 1), mul(sub(rat(g, 1), half), ratio)), half), rat(W, R))
	}
	g := floor(add(mul(rat(i, 1), r), half))
	d := a(g+1) - a(g)
	for t := range q {
		y := new(big.Rat)
		if t > 0 {
			y = add(y, tt(g+1))
		}
		if t < q-1 {
			y = sub(y, tt(g))
		}
		y = add(rat(1, q), mul(y, rat(1, q-1)))
		out = append(out, mul(y, mul(ratio, rat(1, d))))
	}
	return out
}

func TestErrorsOfMinimumsNameTheAllowedValues(t *testing.T) {
	if err := affinity.DefaultMinimums.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	if err := (affinity.Minimums{PeersPerWorker: 3, PeersPerRelay: 1}).Validate(); err != nil {
		t.Errorf("the least minimums are refused: %v", err)
	}
}
