package selection

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// weighted returns endpoints of these weights.
func weighted(weights ...float64) []Endpoint[any] {
	endpoints := rangeOf(len(weights))
	for i, w := range weights {
		endpoints[i].Weight = w
	}
	return endpoints
}

// Endpoints that are equally fast get what their weights set, whether there is
// next to nothing in flight or much, with service times that are all the same and
// with ones that vary: to 12 points of a hundred in the worst case of two or
// three, 99 to 1, and to 20 in that of eight, 20 to seven of 1, of which one always
// happens to be idle. (Drawn by weight and compared by score alone, the lighter of
// two gets a half: 40 points too much at 9 to 1.)
func TestSharesFollowWeightsWhenEndpointsAreEquallyFast(t *testing.T) {
	for _, weights := range [][]float64{
		{2, 1}, {9, 1}, {99, 1},
		{1, 1, 1}, {4, 1, 1}, {90, 5, 5}, {1, 1, 0.3},
		{1, 1, 1, 1, 1, 1, 1, 1}, {1, 2, 3, 4, 5, 6, 7, 8}, {20, 1, 1, 1, 1, 1, 1, 1}, {0.4, 1, 1, 1, 1, 1, 1, 0.6},
	} {
		total := 0.0
		for _, w := range weights {
			total += w
		}
		bound := 0.12
		if len(weights) > 3 {
			bound = 0.2
		}
		for _, varying := range []bool{false, true} {
			for _, inFlight := range []float64{0.2, 3, 30} {
				r := newRig(t, DefaultConfig())
				r.update(weighted(weights...))
				rate := inFlight / 0.025
				got := r.drive(load{rate, max(time.Duration(8_000/rate*1e9), 20*time.Second), func(string, Instant) (time.Duration, ended) {
					if varying {
						return time.Duration(r.rng.ExpFloat64() * 25e6), Success
					}
					return 25 * ms, Success
				}})
				for i, w := range weights {
					if share := got.shares[fmt.Sprintf("w%d", i)]; math.Abs(share-w/total) > bound {
						t.Errorf("weights %v, varying=%v, %v in flight: w%d has a share of %.3f, want %.3f",
							weights, varying, inFlight, i, share, w/total)
					}
				}
			}
		}
	}
}

func TestAnEndpointOfTwiceTheWeightIsAsBusyWithTwiceTheRequests(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(weighted(2, 1, 1, 0))
	r.settle()
	r.pickFrom("w0")
	r.pickFrom("w0")
	r.pickFrom("w1")
	near(t, "score", r.score("w0"), r.score("w1"), 0.001)
	if r.score("w2") >= r.score("w1") {
		t.Error("one in flight costs nothing")
	}
}

// Chance alone must leave every endpoint its share: the promise of Brewer's draw, for
// any weights.
func TestInPairsEndpointsAppearInProportionToTheirWeights(t *testing.T) {
	b, err := NewBalancer[any](DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(0.1, 10), 2, 12).Draw(t, "weights")
		if rapid.Bool().Draw(t, "dominant") {
			weights[0] = 200
		}
		total := 0.0
		for _, w := range weights {
			total += w
		}
		c := newCandidates(tierShare{load: 1}, make([]candidate, len(weights)), weights)
		const draws = 8_000
		got, firsts := make([]float64, len(weights)), make([]float64, len(weights))
		for range draws {
			i, j, favoured := c.pair(&b.core, b.random(nil), nil)
			if i == j {
				t.Fatalf("weights %v: drew %d twice", weights, i)
			}
			firsts[i] += 1.0 / draws
			if favoured { // the weight decides
				got[i] += 1.0 / draws
				continue
			}
			got[i] += 0.5 / draws
			got[j] += 0.5 / draws
		}
		for i, w := range weights {
			if math.Abs(got[i]-w/total) > 0.03 || math.Abs(firsts[i]-w/total) > 0.03 {
				t.Fatalf("weights %v: chance gives %d a share of %.3f, ties %.3f; want %.3f", weights, i, got[i], firsts[i], w/total)
			}
		}
	})
}

// An endpoint that has most of the weight gives way when it is really worse.
func TestWeightSavesNoEndpointThatIsThreeTimesWorse(t *testing.T) {
	for slower, want := range map[time.Duration]float64{1: 0.9, 2: 0.8, 4: 0} {
		r := newRig(t, DefaultConfig())
		r.update(weighted(9, 1))
		r.settle()
		r.request("w0", slower*10*ms, Success)
		r.request("w1", 10*ms, Success)
		r.median(time.Second) // nothing relaxes
		near(t, fmt.Sprintf("share of weight 9, %d times slower", slower), r.idleShares(20_000, nil)["w0"], want, 0.03)
	}
}

// The bound of SECURITY.md on what a worker takes of its own service when it answers without work.
// A pick draws three pairs at most, and the worker is in each with at most twice the share of its
// weight: that is six times its share. A high weight is worth what it states, and no more.
func TestAWorkerTakesAtMostSixTimesTheShareOfItsWeight(t *testing.T) {
	for _, honest := range []int{2, 9, 30, 100} {
		for _, weight := range []float64{1, 10, 100} {
			r := newRig(t, DefaultConfig())
			weights := []float64{weight}
			for range honest {
				weights = append(weights, 10)
			}
			r.update(weighted(weights...))
			got := r.drive(load{200, 100 * time.Second, func(id string, _ Instant) (time.Duration, ended) {
				if id == "w0" {
					return ms / 5, Success.with(0)
				}
				return time.Duration(r.rng.ExpFloat64() * 25e6), Success
			}})
			byWeight := weight / (weight + 10*float64(honest))
			if share := got.shares["w0"]; share > 6*byWeight+0.01 {
				t.Errorf("one of weight %v next to %d of 10 takes %.3f of the requests, by weight %.3f", weight, honest, share, byWeight)
			} else {
				t.Logf("one of weight %v next to %d of 10 takes %.3f of the requests, by weight %.3f", weight, honest, share, byWeight)
			}
		}
	}
}
