package failover

import (
	"fmt"
	"slices"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// rangesOf returns the positions of each relay's workers. Workers are numbered in the order of
// their addresses.
type rangesOf func(relays, workers int) ([][]int, error)

// hashed returns the ranges that relays use, in the order of hashes.
func hashed(relays, workers int) ([][]int, error) {
	f := fleet.New(relays, workers)
	links, _, err := subject{}.connections(members{affinity.Relays(f.RelayIDs()), affinity.Workers(f.WorkerIDs())})
	if err != nil {
		return nil, err
	}
	out := make([][]int, relays)
	for l := range links {
		out[l.relay] = append(out[l.relay], l.worker)
	}
	return out, nil
}

// byAddress returns the same ranges in the order of addresses.
func byAddress(relays, workers int) ([][]int, error) {
	out := make([][]int, relays)
	for i := range out {
		rng, err := affinity.Shape{Relays: relays, Workers: workers, Minimums: affinity.DefaultMinimums}.Range(i)
		if err != nil {
			return nil, err
		}
		out[i] = slices.Collect(rng.All())
	}
	return out, nil
}

// lossOf returns the share of workers that each relay loses, the largest first. The lost workers
// are consecutive from begin on.
func lossOf(ranges [][]int, workers, begin, lost int) []float64 {
	out := make([]float64, len(ranges))
	for i, has := range ranges {
		for _, w := range has {
			if (w-begin+workers)%workers < lost {
				out[i] += 1 / float64(len(has))
			}
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

// adjacent removes workers with adjacent addresses, such as a rack or a batch of a deployment.
func adjacent(r *scenario.Run, s subject) error {
	relays, workers := r.Int("adjacent-relays"), r.Int("adjacent-workers")
	lost := int(float64(workers) * r.Float("adjacent-share"))
	t := r.Table(scenario.Table{
		Name: "adjacent", Title: fmt.Sprintf("%d address-adjacent workers of %d lost, %d relays; every place on the ring of addresses", lost, workers, relays),
		Columns: []scenario.Column{
			{Name: "order of the ring", Key: true}, {Name: "worst relay's loss, mean", Unit: "%", Digits: 1}, {Name: "at worst", Unit: "%", Digits: 1}, {Name: "relays that lose everything, mean", Digits: 1},
		},
	})
	p := r.Plot(scenario.Plot{
		Name: "adjacent", Title: fmt.Sprintf("Workers that each relay loses when %d adjacent ones of %d are lost", lost, workers),
		X: scenario.Axis{Label: "relays, from the worst on", Unit: "1"}, Y: scenario.Axis{Label: "lost", Unit: "%"},
	})
	var figures []float64
	for _, order := range []struct {
		name   string
		ranges rangesOf
	}{{"hashes", s.ranges}, {"addresses", byAddress}} {
		ranges, err := order.ranges(relays, workers)
		if err != nil {
			return err
		}
		average, worst, all, places := 0.0, 0.0, 0.0, 0.0
		for begin := 0; begin < workers; begin += max(1, workers/200) {
			losses := lossOf(ranges, workers, begin, lost)
			places++
			average += losses[0]
			worst = max(worst, losses[0])
			for _, share := range losses {
				if share > 0.999 {
					all++
				}
			}
		}
		average /= places
		t.Add(order.name, 100*average, 100*worst, all/places)
		figures = append(figures, average)
		line := p.Line("in the order of " + order.name)
		for i, share := range lossOf(ranges, workers, 0, lost) {
			line.At(float64(i+1), 100*share)
		}
		if order.name == "hashes" {
			r.Check(spread, average, fmt.Sprintf("%d relays, %d workers, %d lost", relays, workers, lost))
		}
	}
	p.Conclusion = fmt.Sprintf("In the order of hashes the worst relay loses %.0f %% of its workers on average, in the order of addresses %.0f %%.", 100*figures[0], 100*figures[1])
	return nil
}
