package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/ring"
)

// Run is one run of a scenario: its settings, and where its results go.
type Run struct {
	ctx      context.Context
	scenario Scenario
	options  Options
	values   map[string]any
	result   *Result

	mu    sync.Mutex // for steps
	steps float64
	total float64
}

// setting returns the value of a setting that the scenario has declared.
func setting[T any](r *Run, name string) T {
	value, ok := r.values[name].(T)
	if !ok { // the scenario's own mistake
		panic(fmt.Sprintf("scenario %s: setting %q is %T", r.scenario.Name, name, r.values[name]))
	}
	return value
}

// Int returns the value of a setting; it panics if the scenario has not declared one of
// that name and type. The other types have methods alike.
func (r *Run) Int(name string) int                { return setting[int](r, name) }
func (r *Run) Float(name string) float64          { return setting[float64](r, name) }
func (r *Run) Bool(name string) bool              { return setting[bool](r, name) }
func (r *Run) Text(name string) string            { return setting[string](r, name) }
func (r *Run) Duration(name string) time.Duration { return setting[time.Duration](r, name) }
func (r *Run) Ints(name string) []int             { return slices.Clone(setting[[]int](r, name)) }
func (r *Run) Floats(name string) []float64       { return slices.Clone(setting[[]float64](r, name)) }
func (r *Run) Texts(name string) []string         { return slices.Clone(setting[[]string](r, name)) }

// Quick reports whether a fraction of the work will do.
func (r *Run) Quick() bool { return r.options.Quick }

// Seed is the seed of the run, for what seeds itself; otherwise use Rand.
func (r *Run) Seed() uint64 { return r.options.Seed }

// Rand returns a new source of chance for a stream: equal names give equal numbers,
// different ones numbers that have nothing to do with each other. Give each of what
// Parallel calls a stream of its own.
func (r *Run) Rand(stream string) *rand.Rand {
	return rand.New(rand.NewPCG(r.options.Seed, ring.Hash(r.scenario.Name+"/"+stream, 0)))
}

// Context ends when the run is cancelled.
func (r *Run) Context() context.Context { return r.ctx }

// Table adds a table to the results and returns it, to be filled.
func (r *Run) Table(t Table) *Table {
	r.result.Tables = append(r.result.Tables, &t)
	return &t
}

// Plot adds a picture to the results and returns it, to be filled.
func (r *Run) Plot(p Plot) *Plot {
	r.result.Plots = append(r.result.Plots, &p)
	return &p
}

// Check holds a value against a declared promise and its bound. The worst of all checks of
// a promise counts. where names the case.
func (r *Run) Check(promise string, value float64, where string) {
	r.Require(Measurement{promise, value, r.verdict(promise).Promise.Bound, where})
}

// Require is Check with a bound of the moment.
func (r *Run) Require(m Measurement) {
	v := r.verdict(m.Promise)
	next := *v
	next.Value, next.Bound, next.Where, next.Checks, next.Skipped = m.Value, m.Bound, m.Where, v.Checks+1, ""
	if v.Checks > 0 && v.excess() >= next.excess() {
		v.Checks++
		return
	}
	*v = next
}

// Skip says why a promise cannot be checked with these settings.
func (r *Run) Skip(promise, why string) {
	if v := r.verdict(promise); v.Checks == 0 {
		v.Skipped = why
	}
}

func (r *Run) verdict(promise string) *Verdict {
	for i := range r.result.Verdicts {
		if v := &r.result.Verdicts[i]; v.Name == promise {
			return v
		}
	}
	panic(fmt.Sprintf("scenario %s: it has not declared the promise %q", r.scenario.Name, promise))
}

// Parallel calls do for 0 to n-1 on all processors and returns the first error by number.
// Results must not depend on the order: do writes to a place of its own, draws from a
// stream of its own, and adds no table, plot or check. Each call is a step of n.
func (r *Run) Parallel(n int, do func(i int) error) error {
	r.Steps(n)
	errs := make([]error, n)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		if r.ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			errs[i] = do(i)
			r.Step()
			return nil
		})
	}
	_ = group.Wait() // errors are in errs, so that the first by number is the one reported
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return r.ctx.Err()
}

// Steps announces n more steps of work, for the progress bar.
func (r *Run) Steps(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += float64(n)
}

// Step says that one of them is done. It may be called from any goroutine.
func (r *Run) Step() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps++
	if r.options.Progress != nil && r.total > 0 {
		r.options.Progress(min(1, r.steps/r.total))
	}
}
