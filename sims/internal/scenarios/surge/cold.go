package surge

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// full is how many slots of the overloaded worker are taken.
const full = 50

// cold fills empty pools by one relay that counts what it sends, and asks who picks a worker
// that is full.
func cold(r *scenario.Run) error {
	n, trials := r.Int("workers"), r.Int("trials")
	jitters := []int{0, r.Int("jitter")}
	above := make([][]float64, len(jitters))
	for i := range above {
		above[i] = make([]float64, trials)
	}
	var overloaded outcome
	busy := setupOf(r)
	busy.full = full
	busy.workers = max(8, n/4) // so that a fair share would be far too much
	// The others get a few slots each, and never as many as the full one has.
	busy.allocators, busy.stay = max(busy.relays, 5*busy.workers), 2
	if err := r.Parallel(trials+1, func(i int) (err error) {
		if i == trials {
			overloaded, err = busy.run(r, r.Int("reports"))
			return err
		}
		for k, jitter := range jitters {
			s := setup{workers: n, relays: 1, allocators: n, blind: r.Bool("blind"), spec: specOf(r, r.Int("samples"), jitter)}
			f, err := newFleet(s, func(stream string) *rand.Rand { return r.Rand(fmt.Sprintf("cold-%d-%s", i, stream)) })
			if err != nil {
				return err
			}
			if err := f.interval(); err != nil {
				return err
			}
			above[k][i] = float64(slices.Max(f.taken)) - mean(f.taken)
		}
		return nil
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "cold", Title: fmt.Sprintf("a cold pool of %d workers: one relay takes a slot for each, and counts", n),
		Columns: []scenario.Column{
			{Name: "jitter", Key: true}, {Name: "pools"}, {Name: "fullest above the mean", Unit: "slots", Digits: 2}, {Name: "at worst", Unit: "slots"}, {Name: "pools above 2", Unit: "%", Digits: 1},
		},
	})
	for k, jitter := range jitters {
		average, more := 0.0, 0
		for _, a := range above[k] {
			average += a / float64(trials)
			if a > 2 {
				more++
			}
		}
		t.Add(jitter, trials, average, slices.Max(above[k]), 100*float64(more)/float64(trials))
		if k == 0 {
			r.Check(coldPool, average, fmt.Sprintf("%d pools of %d workers", trials, n))
		} else if jitter > 0 {
			t.Note = fmt.Sprintf("The jitter costs a cold pool up to %.0f slots: it hides the only difference that there is.", slices.Max(above[k])-slices.Max(above[0]))
		}
		if jitters[1] == 0 {
			break
		}
	}
	r.Check(avoids, overloaded.full, fmt.Sprintf("fair is %.3f; %d allocators", 1/float64(busy.workers), busy.allocators))
	return nil
}
