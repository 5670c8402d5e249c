package balance

import (
	"fmt"
	"slices"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// way is one configuration of the strategy slots.
type way struct {
	v, k, jitter, n int
	judged          bool
}

func (w way) String() string {
	return fmt.Sprintf("V = %d, K = %d, jitter %d, N = %d", w.v, w.k, w.jitter, w.n)
}

// result holds the measurements of one way.
type result struct {
	warm  float64 // load of the fullest endpoint ÷ mean after 100 picks per endpoint
	cold  float64 // load of the fullest endpoint − mean after one pick per endpoint, worst of all trials
	usual float64 // the same as cold, mean of all trials
	share float64 // share of the picks that an endpoint with 50 used slots gets
}

// choices fills ranges with a count of each endpoint's load.
func choices(r *scenario.Run) error {
	n := r.Int("endpoints")
	judged := way{r.Int("vnodes"), r.Int("samples"), r.Int("jitter"), n, true}
	ways := []way{judged}
	for _, k := range []int{1, 2, 3} {
		for _, v := range []int{1, 8, 64} {
			for _, jitter := range []int{0, 4} {
				if k == 1 && jitter > 0 {
					continue // K = 1 reads no load
				}
				ways = append(ways, way{v, k, jitter, n, false})
			}
		}
	}
	results := make([]result, len(ways))
	if err := r.Parallel(len(ways), func(i int) (err error) {
		results[i], err = measure(r, ways[i])
		return err
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "choices", Title: fmt.Sprintf("K endpoints compared, %d endpoints, loads counted", n),
		Columns: []scenario.Column{
			{Name: "samples", Key: true}, {Name: "vnodes", Key: true}, {Name: "jitter", Key: true}, {Name: "judged", Key: true},
			{Name: "fullest ÷ mean", Digits: 3}, {Name: "cold: fullest above the mean", Unit: "slots", Digits: 2}, {Name: "at worst", Unit: "slots"},
			{Name: "picks of an endpoint with 50 slots taken", Unit: "%", Digits: 2},
		},
	})
	for i, w := range ways {
		got, mark := results[i], ""
		if w.judged {
			mark = "these settings"
		}
		t.Add(w.k, w.v, w.jitter, mark, got.warm, got.usual, got.cold, 100*got.share)
	}
	r.Check(warm, results[0].warm, judged.String())
	r.Check(cold, results[0].cold, judged.String())
	r.Check(full, results[0].share, judged.String())

	p := r.Plot(scenario.Plot{
		Name: "choices", Title: fmt.Sprintf("Fullest of %d endpoints after 100 picks for each, no jitter", n),
		X: scenario.Axis{Label: "endpoints compared (K)"}, Y: scenario.Axis{Label: "slots of the fullest ÷ mean", Unit: "1"},
		Categories: []string{"K = 1", "K = 2", "K = 3"},
	})
	at := func(v, k int) float64 {
		return results[slices.Index(ways, way{v, k, 0, n, false})].warm
	}
	for _, v := range []int{1, 8, 64} {
		p.Bars(fmt.Sprintf("V = %d", v), []float64{at(v, 1), at(v, 2), at(v, 3)})
	}
	p.Conclusion = fmt.Sprintf("Comparing two endpoints does what virtual nodes cannot: %.2f instead of %.2f at V = 8, where K = 1 would still have %.2f at V = 64.", at(8, 2), at(8, 1), at(64, 1))
	return nil
}

func measure(r *scenario.Run, w way) (result, error) {
	var out result
	// All ways use the same random stream, and thus the same rings.
	random := r.Rand("warm")
	s, loads, err := rangeOf(slotsSpec(w.v, w.k, w.jitter), w.n, "warm", random)
	if err != nil {
		return out, err
	}
	if err := fill(s, 100*w.n); err != nil {
		return out, err
	}
	out.warm = float64(fullest(loads)) / 100

	for trial := range r.Int("trials") {
		name := fmt.Sprintf("cold-%d", trial)
		s, loads, err := rangeOf(slotsSpec(w.v, w.k, w.jitter), w.n, name, r.Rand(name))
		if err != nil {
			return out, err
		}
		if err := fill(s, w.n); err != nil {
			return out, err
		}
		above := float64(fullest(loads) - 1)
		out.cold = max(out.cold, above)
		out.usual += above / float64(r.Int("trials"))
	}

	s, loads, err = rangeOf(slotsSpec(w.v, w.k, w.jitter), w.n, "full", r.Rand("full"))
	if err != nil {
		return out, err
	}
	const taken, picks = 50, 10_000
	loads[w.n/3].taken = taken
	// The other endpoints stay empty: only the choice is measured, not the load.
	out.share, err = shareOf(s, loads[w.n/3], picks)
	return out, err
}
