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

// Run is one run of a scenario, with its settings and its results.
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

// setting returns the value of a declared setting.
func setting[T any](r *Run, name string) T {
	value, ok := r.values[name].(T)
	if !ok { // a bug of the scenario
		panic(fmt.Sprintf("scenario %s: setting %q is %T", r.scenario.Name, name, r.values[name]))
	}
	return value
}

// Int returns the value of a setting, and panics if the scenario has not declared a setting
// of that name and type. The methods for the other types do the same.
func (r *Run) Int(name string) int                { return setting[int](r, name) }
func (r *Run) Float(name string) float64          { return setting[float64](r, name) }
func (r *Run) Bool(name string) bool              { return setting[bool](r, name) }
func (r *Run) Text(name string) string            { return setting[string](r, name) }
func (r *Run) Duration(name string) time.Duration { return setting[time.Duration](r, name) }
func (r *Run) Ints(name string) []int             { return slices.Clone(setting[[]int](r, name)) }
func (r *Run) Floats(name string) []float64       { return slices.Clone(setting[[]float64](r, name)) }
func (r *Run) Texts(name string) []string         { return slices.Clone(setting[[]string](r, name)) }

// Quick reports whether the run does only a fraction of the work.
func (r *Run) Quick() bool { return r.options.Quick }

// Seed returns the seed of the run, for packages with a random source of their own;
// otherwise use Rand.
func (r *Run) Seed() uint64 { return r.options.Seed }

// Rand returns a new random source for a stream: equal names give equal numbers, different
// names independent numbers. Use a separate stream in each call of Parallel.
func (r *Run) Rand(stream string) *rand.Rand {
	return rand.New(rand.NewPCG(r.options.Seed, ring.Hash(r.scenario.Name+"/"+stream, 0)))
}

// Context returns a context that ends when the run is cancelled.
func (r *Run) Context() context.Context { return r.ctx }

// Table adds a table to the results and returns it for the caller to fill.
func (r *Run) Table(t Table) *Table {
	r.result.Tables = append(r.result.Tables, &t)
	return &t
}

// Plot adds a picture to the results and returns it for the caller to fill.
func (r *Run) Plot(p Plot) *Plot {
	r.result.Plots = append(r.result.Plots, &p)
	return &p
}

// Check compares a value with the bound of a declared promise. The worst of all checks of a
// promise counts. where names the case.
func (r *Run) Check(promise string, value float64, where string) {
	r.Require(Measurement{promise, value, r.verdict(promise).Promise.Bound, where})
}

// Require is Check with a bound that depends on the case.
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

// Skip records why a promise cannot be checked with these settings.
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

// Parallel calls do for 0 to n-1 on all processors and returns the error of the lowest i.
// Results must not depend on the order of the calls: do writes only to index i, uses a
// separate random stream, and adds no table, plot or check. Each call is one of n steps.
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
	_ = group.Wait() // the errors are in errs, so that the error of the lowest i is returned
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

// Step reports that one step is done. Any goroutine may call Step.
func (r *Run) Step() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps++
	if r.options.Progress != nil && r.total > 0 {
		r.options.Progress(min(1, r.steps/r.total))
	}
}

// Options configures a run of a scenario.
type Options struct {
	// Seed of all random numbers. Any value is allowed.
	Seed uint64
	// Quick does a fraction of the work, with the Quick values of the settings.
	Quick bool
	// Set lists assignments "key=value".
	Set []string
	// Progress, if not nil, is called with the share of the work that is done, 0 to 1.
	// The calls come from the goroutines of the run, one call at a time.
	Progress func(done float64)
}

// Execute runs a scenario. An error means that the scenario could not run or has a bug; a
// promise that does not hold is in the result.
func Execute(ctx context.Context, s Scenario, o Options) (*Result, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	values, err := s.Values(o.Quick, o.Set)
	if err != nil {
		return nil, err
	}
	r := &Run{ctx: ctx, scenario: s, options: o, values: values, result: &Result{
		Scenario: s.Name, Asks: s.Asks, Seed: o.Seed, Quick: o.Quick,
	}}
	for _, setting := range s.Settings {
		r.result.Settings = append(r.result.Settings, Value{setting.Name, Format(values[setting.Name]), setting.Unit, setting.Help})
	}
	for _, p := range s.Promises {
		r.result.Verdicts = append(r.result.Verdicts, Verdict{Promise: p})
	}
	if err := s.Run(r); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	if err := r.result.validate(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	return r.result, nil
}
