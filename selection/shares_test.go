package selection

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// quick answers like a worker that is never busy, in a millisecond on average.
func (r *rig) quick(string, Instant) (time.Duration, ended) {
	return time.Duration(0.7 * math.Exp(0.8*r.rng.NormFloat64()) * float64(ms)), Success.with(0)
}

// Queues do not differ at these rates, so that only the estimates decide, which are wrong
// by chance.
func TestEveryGoodEndpointGetsAFifthOfItsShareInEachMinuteHoweverFewRequestsThereAre(t *testing.T) {
	for _, c := range []struct {
		n    int
		rate float64
	}{{2, 5}, {2, 50}, {3, 5}, {6, 5}, {6, 50}, {6, 500}, {12, 50}, {30, 50}, {30, 500}} {
		r := newRig(t, DefaultConfig())
		r.update(rangeOf(c.n))
		for minute := range 4 {
			got := r.drive(load{c.rate, time.Minute, r.quick})
			for _, e := range rangeOf(c.n) {
				if of := got.shares[e.ID] * float64(c.n); of < 0.2 {
					t.Errorf("%+v, minute %d: %s gets %.2f of its share", c, minute, e.ID, of)
				}
			}
		}
	}
}

// Without reports an endpoint that was slow once is not known to be idle. One answer in fifty takes
// thirty times as long, as on a machine that does something else for a moment. Chance then gives an
// endpoint less in some minute: an estimate that is bad twice needs ten seconds.
func TestOneSlowAnswerKeepsNoEndpointThatReportsNothingFromItsShare(t *testing.T) {
	minutes, less := map[bool]int{}, map[bool]int{} // by whether one endpoint is slow
	for _, c := range []struct {
		n    int
		rate float64
		slow bool // one endpoint is three times slower and does not count
	}{{3, 5, false}, {6, 5, false}, {6, 50, false}, {12, 50, false}, {30, 50, false}, {5, 5, true}, {5, 50, true}} {
		for seed := range uint64(20) {
			r := newRig(t, DefaultConfig())
			r.rng = rand.New(rand.NewPCG(1, seed))
			r.rand = r.rng.Uint64
			r.update(rangeOf(c.n))
			for range 10 {
				got := r.drive(load{c.rate, time.Minute, func(id string, now Instant) (time.Duration, ended) {
					took, _ := r.quick(id, now)
					if r.rng.IntN(50) == 0 {
						took *= 30
					}
					if c.slow && id == "w0" {
						took *= 3
					}
					return took, Success
				}})
				for _, e := range rangeOf(c.n) {
					if c.slow && e.ID == "w0" {
						continue
					}
					if minutes[c.slow]++; got.shares[e.ID]*float64(c.n) < 0.2 {
						less[c.slow]++
					}
				}
			}
		}
	}
	for slow, n := range minutes {
		if t.Logf("%d of %d minutes of an endpoint", less[slow], n); less[slow]*100 > n {
			t.Errorf("slow %t: in %d of %d minutes an endpoint gets less than a fifth of its share, want at most one in 100", slow, less[slow], n)
		}
	}
}

// A third of the range is three times slower: single requests try these.
func TestSlowEndpointsGetSingleRequestsHoweverFewRequestsThereAre(t *testing.T) {
	for _, rate := range []float64{50, 500} {
		r := newRig(t, DefaultConfig())
		r.update(rangeOf(6))
		got := r.drive(load{rate, 4 * time.Minute, func(id string, now Instant) (time.Duration, ended) {
			took, o := r.quick(id, now)
			if id < "w2" {
				took *= 3
			}
			return took, o
		}})
		for _, id := range []string{"w0", "w1"} {
			if n := got.shares[id] * float64(got.total); n < 10 || n > 240*0.5 && got.shares[id] > 0.02 {
				t.Errorf("at %v requests/s %s gets %.0f requests of %d in 4 minutes", rate, id, n, got.total)
			}
		}
	}
}

func TestAnEndpointThatReturnsHasItsShareAfterTenSeconds(t *testing.T) {
	for _, evicted := range []bool{false, true} { // it kept its place in the range
		for _, rate := range []float64{5, 50, 500} {
			const trials = 12
			r := newRig(t, DefaultConfig())
			r.update(rangeOf(6))
			share := 0.0
			for range trials {
				r.drive(load{rate, 20 * time.Second, r.quick})
				if evicted {
					r.drive(load{rate, 2 * time.Second, func(id string, now Instant) (time.Duration, ended) {
						if id == "w5" {
							return ms, Failure
						}
						return r.quick(id, now)
					}})
				} else {
					r.update(rangeOf(5))
					r.drive(load{rate, 10 * time.Second, r.quick})
					r.update(rangeOf(6))
				}
				first := true
				back := func(id string, now Instant) (time.Duration, ended) {
					took, o := r.quick(id, now)
					if id == "w5" && first { // it needs a new connection
						took, first = took+20*ms, false
					}
					return took, o
				}
				r.drive(load{rate, 10 * time.Second, back})
				share += r.drive(load{rate, 10 * time.Second, back}).shares["w5"] * 6 / trials
			}

			if share < 0.5 {
				t.Errorf("evicted %t, at %v requests/s: %s", evicted, rate, fmt.Sprintf("%.2f of its share from the tenth to the twentieth second", share))
			}
		}
	}
}
