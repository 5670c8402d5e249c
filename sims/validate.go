package main

import (
	"github.com/spf13/cobra"

	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/validation"
)

// validateCommand holds the model against processes. It is no scenario of "run all": it takes
// the machine for a minute, and its figures are the machine's.
func (a *app) validateCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "validate",
		Short: "Run a fleet of processes on loopback and the simulation of it, side by side",
		Long: "validate builds the binaries, starts relays, agents and backends on loopback and sends\n" +
			"them the very requests of a simulation, at the same times. It prints what both show,\n" +
			"with the difference. Let the machine do nothing else meanwhile.",
		Example: "  sims validate\n  sims validate --set load=0.4 --update docs/concepts/simulation-and-reality.md",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			results, err := a.execute(c.Context(), []scenario.Scenario{validation.New()}, &o)
			if err != nil {
				return err
			}
			return a.write(results, &o)
		},
	}
	o.addRun(c)
	o.addSet(c)
	o.addOutput(c)
	c.Flags().StringVar(&o.update, "update", "", "write the tables between their markers in this Markdown `file` instead of printing them")
	return c
}
