package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/sims/internal/report"
	"github.com/ringway/ringway/sims/internal/scenario"
)

func (a *app) names(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	out := []string{"all"}
	for _, s := range a.scenarios {
		out = append(out, s.Name+"\t"+s.Asks)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "list [NAME…]",
		Short:             "What there is; with names, also their settings and promises",
		ValidArgsFunction: a.names,
		RunE: func(_ *cobra.Command, names []string) error {
			if len(names) > 0 {
				return a.describe(names)
			}
			tabs := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			for _, s := range a.scenarios {
				fmt.Fprintf(tabs, "%s\t%s\n", s.Name, s.Asks)
			}
			return tabs.Flush()
		},
	}
}

// describe prints the settings and promises of scenarios.
func (a *app) describe(names []string) error {
	which, err := scenario.Find(a.scenarios, names)
	if err != nil {
		return err
	}
	for i, s := range which {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprintf(a.stdout, "%s: %s\n\nsettings\n", s.Name, s.Asks)
		tabs := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
		values, err := s.Values(false, nil)
		if err != nil {
			return err
		}
		for _, setting := range s.Settings {
			help := setting.Help
			if setting.Unit != "" {
				help += " (" + setting.Unit + ")"
			}
			fmt.Fprintf(tabs, "  %s\t%s\t%s; %s\n", setting.Name, scenario.Format(values[setting.Name]), help, setting.Allowed())
		}
		fmt.Fprintln(tabs, "\npromises")
		for _, p := range s.Promises {
			fmt.Fprintf(tabs, "  %s\t%s\n", p.Name, p.Why)
		}
		if err := tabs.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) runCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:               "run NAME…",
		Short:             "Run scenarios, or all of them; exit code 1 when a promise does not hold",
		Example:           "  sims run all --quick\n  sims run churn --set index=slot -o json\n  sims run affinity --plots /tmp/plots",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.names,
		RunE: func(c *cobra.Command, names []string) error {
			which, err := scenario.Find(a.scenarios, names)
			if err != nil {
				return err
			}
			results, err := a.execute(c.Context(), which, &o)
			if err != nil {
				return err
			}
			return a.write(results, &o)
		},
	}
	o.addRun(c)
	o.addSet(c)
	o.addOutput(c)
	c.Flags().StringVar(&o.update, "update", "", "write tables between their markers in this Markdown `file` instead of printing them")
	return c
}

// scenarioCommand returns the command of one scenario, with its settings as flags.
func (a *app) scenarioCommand(s scenario.Scenario) *cobra.Command {
	var o options
	texts := make([]string, len(s.Settings))
	c := &cobra.Command{
		Use:   s.Name,
		Short: s.Asks,
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for i, setting := range s.Settings {
				if c.Flags().Changed(setting.Name) {
					o.set = append(o.set, setting.Name+"="+texts[i])
				}
			}
			results, err := a.execute(c.Context(), []scenario.Scenario{s}, &o)
			if err != nil {
				return err
			}
			return a.write(results, &o)
		},
	}
	o.addRun(c)
	o.addOutput(c)
	for i, setting := range s.Settings {
		c.Flags().StringVar(&texts[i], setting.Name, scenario.Format(setting.Default), setting.Help+"; "+strings.ReplaceAll(setting.Allowed(), "`", ""))
	}
	return c
}

func (a *app) compareCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "compare NAME A B",
		Short: "Run a scenario with two settings and show both, side by side",
		Long: "compare runs a scenario twice, with the settings A and with the settings B, each\n" +
			"\"key=value,key=value\" (a list goes on after its commas), or \"\" for the defaults.\n" +
			"--set is for both. Exit code 1 when a promise does not hold on either side.",
		Example:           "  sims compare churn index=rank index=slot\n  sims compare balance \"\" vnodes=32,samples=1 --set endpoints=500",
		Args:              cobra.ExactArgs(3),
		ValidArgsFunction: a.names,
		RunE: func(c *cobra.Command, args []string) error {
			which, err := scenario.Find(a.scenarios, args[:1])
			if err != nil {
				return err
			}
			if len(which) != 1 {
				return fmt.Errorf("compare takes one scenario, not %q", args[0])
			}
			twice := []scenario.Scenario{which[0], which[0]}
			sides := []*options{}
			for _, text := range args[1:] {
				side := o
				side.set = append([]string{}, o.set...)
				if text != "" {
					side.set = append(side.set, scenario.SplitSettings(text)...)
				}
				if _, err := which[0].Values(o.quick, side.set); err != nil {
					return err
				}
				sides = append(sides, &side)
			}
			if err := o.check(); err != nil {
				return err
			}
			bar := newProgress(a.stderr, twice, o.quick)
			defer bar.clear()
			var results []*scenario.Result
			for i, side := range sides {
				r, err := scenario.Execute(c.Context(), which[0], scenario.Options{Seed: side.seed, Quick: side.quick, Set: side.set, Progress: bar.of(i)})
				if err != nil {
					return err
				}
				results = append(results, r)
			}
			bar.clear()
			err = a.write([]*scenario.Result{scenario.Compare(results[0], results[1])}, &o)
			return err
		},
	}
	o.addRun(c)
	o.addSet(c)
	o.addOutput(c)
	return c
}

func (a *app) reportCommand() *cobra.Command {
	var o options
	var out string
	c := &cobra.Command{
		Use:               "report [NAME…]",
		Short:             "One HTML page with every table and picture, for reading offline",
		Example:           "  sims report --quick --out sims.html",
		ValidArgsFunction: a.names,
		RunE: func(c *cobra.Command, names []string) error {
			if len(names) == 0 {
				names = []string{"all"}
			}
			which, err := scenario.Find(a.scenarios, names)
			if err != nil {
				return err
			}
			results, err := a.execute(c.Context(), which, &o)
			if err != nil {
				return err
			}
			var page strings.Builder
			if err := report.HTML(&page, results); err != nil {
				return err
			}
			if out == "-" {
				if _, err := fmt.Fprint(a.stdout, page.String()); err != nil {
					return err
				}
			} else if err := os.WriteFile(out, []byte(page.String()), 0o644); err != nil {
				return err
			}
			return judge(results)
		},
	}
	o.addRun(c)
	o.addSet(c)
	c.Flags().StringVar(&out, "out", "sims-report.html", "the `file` to write, - for standard output")
	return c
}
