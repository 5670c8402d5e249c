package scenario

import (
	"context"
	"fmt"
)

// Options are how to run a scenario.
type Options struct {
	// Seed of all chance. Any number will do.
	Seed uint64
	// Quick does a fraction of the work: the settings' Quick values.
	Quick bool
	// Set are assignments "key=value".
	Set []string
	// Progress is told the share of the work that is done, 0 to 1, in single file from
	// the goroutines of the run. nil is nobody.
	Progress func(done float64)
}

// Execute runs a scenario. The error says that it could not be run or made a mistake; that
// a promise does not hold is in the result.
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
