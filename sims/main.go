package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/sims/internal/bundle"
	"github.com/ringway/ringway/sims/internal/planner"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenarios/affinity"
	"github.com/ringway/ringway/sims/internal/scenarios/balance"
	"github.com/ringway/ringway/sims/internal/scenarios/capacity"
	"github.com/ringway/ringway/sims/internal/scenarios/churn"
	"github.com/ringway/ringway/sims/internal/scenarios/failover"
	"github.com/ringway/ringway/sims/internal/scenarios/gossip"
	"github.com/ringway/ringway/sims/internal/scenarios/latency"
	"github.com/ringway/ringway/sims/internal/scenarios/overload"
	"github.com/ringway/ringway/sims/internal/scenarios/surge"
	"github.com/ringway/ringway/sims/internal/scenarios/zones"
	"github.com/ringway/ringway/sims/internal/validation"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{scenarios: scenarios(), stdout: os.Stdout, stderr: os.Stderr}
	if err := a.run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// app is the command with its scenarios and outputs.
type app struct {
	scenarios      []scenario.Scenario
	stdout, stderr io.Writer
}

// run runs one command. The caller prints the error as the last output.
func (a *app) run(ctx context.Context, args []string) error {
	root := &cobra.Command{
		Use:           "sims",
		Short:         "Prove a setting before it is changed",
		Long:          "sims drives the real packages of Ringway through the situations that matter and\nreports which promises hold. Every scenario is also a command of its own, with its\nsettings as flags: sims capacity --relays 300.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.AddGroup(&cobra.Group{ID: "all", Title: "Commands:"}, &cobra.Group{ID: "scenarios", Title: "Scenarios:"})
	root.SetHelpCommandGroupID("all")
	root.SetCompletionCommandGroupID("all")
	for _, c := range []*cobra.Command{a.listCommand(), a.runCommand(), a.compareCommand(), a.reportCommand(), a.planCommand(), a.bundleCommand(), a.validateCommand()} {
		c.GroupID = "all"
		root.AddCommand(c)
	}
	for _, s := range a.scenarios {
		c := a.scenarioCommand(s)
		c.GroupID = "scenarios"
		root.AddCommand(c)
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return nil
	}
	var broken *brokenError
	if errors.As(err, &broken) {
		return err
	}
	return fmt.Errorf("sims: %w", err)
}

// brokenError lists the promises that do not hold, one per line.
type brokenError struct{ lines []string }

func (e *brokenError) Error() string {
	text := ""
	for i, line := range e.lines {
		if i > 0 {
			text += "\n"
		}
		text += "does not hold: " + line
	}
	return text
}

// judge returns an error with a line for each promise that does not hold.
func judge(results []*scenario.Result) error {
	var lines []string
	for _, r := range results {
		for _, v := range r.Violations() {
			name := r.Scenario
			if v.Side != "" {
				name += " " + v.Side
			}
			lines = append(lines, name+": "+v.String())
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &brokenError{lines}
}

// scenarios returns all scenarios, in the order of lists and reports. Add a new scenario
// next to the related ones.
func scenarios() []scenario.Scenario {
	return []scenario.Scenario{
		affinity.New(),
		zones.New(),
		balance.New(),
		churn.New(),
		surge.New(),
		latency.New(),
		failover.New(),
		overload.New(),
		overload.RetryStorm(),
		gossip.New(),
		capacity.New(),
	}
}

// planCommand sizes one fleet. It is not a scenario of "run all", whose reports are about
// Ringway and not about a fleet.
func (a *app) planCommand() *cobra.Command {
	c := a.scenarioCommand(planner.New())
	c.Short = "How many relays a fleet needs, with which minimums, and what they cost"
	c.Long = "plan searches the fewest relays, and the smallest minimums, with which a fleet answers a\n" +
		"rate of requests within a p99 and keeps its limits. It plans connections with the real\n" +
		"affinity plan, simulates waiting with the real balancer, and lists what else it tried.\n" +
		"The exit code is 1 if no fleet does it; the last line names what limits it."
	c.Example = "  sims plan --workers 20000 --rate 300000 --p99 300ms\n" +
		"  sims plan --workers 400 --rate 20000 --p99 100ms --service-times requests.log --arrivals requests.log -o json"
	return c
}

// bundleCommand turns a debug bundle into commands.
func (a *app) bundleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "from-bundle FILE",
		Short: "Print the fleet of a debug bundle as the flags of capacity and plan",
		Long: "from-bundle reads the members and settings from a bundle of relay debug bundle and prints\n" +
			"the commands for this fleet: what it costs, what it reaches, and what would be enough.",
		Example: "  relay debug bundle -o relay.tar.gz\n  sims from-bundle relay.tar.gz",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			fleet, err := bundle.Read(file)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, err = fmt.Fprintln(a.stdout, strings.Join(fleet.Commands(), "\n"))
			return err
		},
	}
}

// validateCommand compares the model with real processes. The comparison is not a scenario of
// "run all": it needs the whole machine for a minute, and its results depend on the machine.
func (a *app) validateCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "validate",
		Short: "Run a fleet of processes on loopback and the simulation of it, side by side",
		Long: "validate builds the binaries, starts relays, agents and backends on loopback and sends\n" +
			"them the very requests of a simulation, at the same times. It prints what both show,\n" +
			"with the difference. The machine must do nothing else meanwhile.",
		Example: "  sims validate\n  sims validate --set load=0.4 --update docs/concepts/simulation.md",
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
