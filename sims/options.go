package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/sims/internal/plot"
	"github.com/ringway/ringway/sims/internal/report"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// options are the flags common to several commands.
type options struct {
	seed   uint64
	quick  bool
	set    []string
	output string
	plots  string
	update string
}

func (o *options) addRun(c *cobra.Command) {
	f := c.Flags()
	f.Uint64Var(&o.seed, "seed", 1, "seed of all chance; the same seed prints the same bytes")
	f.BoolVar(&o.quick, "quick", false, "do a fraction of the work")
}

func (o *options) addSet(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.set, "set", nil, "a setting as `key=value`, or scenario.key=value for one of several; repeatable; list NAME shows them")
}

func (o *options) addOutput(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "table", "one of "+strings.Join(report.Formats, ", "))
	f.StringVar(&o.plots, "plots", "", "also write each picture to this `directory`, as SVG and PNG")
	_ = c.MarkFlagDirname("plots")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(report.Formats, cobra.ShellCompDirectiveNoFileComp))
}

func (o *options) check() error {
	if o.output != "" && !slices.Contains(report.Formats, o.output) {
		return fmt.Errorf("--output %q: choose from %s", o.output, strings.Join(report.Formats, ", "))
	}
	return nil
}

// execute runs scenarios one after another; each scenario uses all processors.
func (a *app) execute(ctx context.Context, which []scenario.Scenario, o *options) ([]*scenario.Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	sets := make([][]string, len(which))
	for i, s := range which { // check all settings first: a typo must not show after minutes of work
		var err error
		if sets[i], err = settingsOf(s, which, o.set); err != nil {
			return nil, err
		}
		if _, err := s.Values(o.quick, sets[i]); err != nil {
			return nil, err
		}
	}
	bar := newProgress(a.stderr, which, o.quick)
	defer bar.clear()
	var results []*scenario.Result
	for i, s := range which {
		r, err := scenario.Execute(ctx, s, scenario.Options{
			Seed: o.seed, Quick: o.quick, Set: sets[i], Progress: bar.of(i),
		})
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// settingsOf returns the assignments for one of the scenarios that run: those without a
// scenario name, and those that begin with the name of s and a dot.
func settingsOf(s scenario.Scenario, which []scenario.Scenario, set []string) ([]string, error) {
	var out []string
	for _, assignment := range set {
		key, _, _ := strings.Cut(assignment, "=")
		name, _, named := strings.Cut(key, ".")
		switch {
		case !named:
			out = append(out, assignment)
		case name == s.Name:
			out = append(out, strings.TrimPrefix(assignment, name+"."))
		case !slices.ContainsFunc(which, func(other scenario.Scenario) bool { return other.Name == name }):
			return nil, fmt.Errorf("--set %s: the scenario %s does not run", assignment, name)
		}
	}
	return out, nil
}

// write writes results as selected by the options, and returns an error if a promise does
// not hold.
func (a *app) write(results []*scenario.Result, o *options) error {
	if o.plots != "" {
		if err := writePlots(o.plots, results); err != nil {
			return err
		}
	}
	if o.update != "" {
		page, err := os.ReadFile(o.update)
		if err != nil {
			return err
		}
		changed, err := report.UpdatePage(string(page), results)
		if err != nil {
			return fmt.Errorf("%s: %w", o.update, err)
		}
		if err := os.WriteFile(o.update, []byte(changed), 0o644); err != nil {
			return err
		}
	} else if err := report.Write(a.stdout, o.output, results); err != nil {
		return err
	}
	return judge(results)
}

// writePlots writes each picture as SCENARIO-NAME.svg and .png.
func writePlots(dir string, results []*scenario.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, r := range results {
		for _, p := range r.Plots {
			for _, kind := range []struct {
				suffix string
				draw   func(*scenario.Plot) ([]byte, error)
			}{{".svg", plot.SVG}, {".png", plot.PNG}} {
				picture, err := kind.draw(p)
				if err != nil {
					return fmt.Errorf("scenario %s: %w", r.Scenario, err)
				}
				if err := os.WriteFile(filepath.Join(dir, r.Scenario+"-"+p.Name+kind.suffix), picture, 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
