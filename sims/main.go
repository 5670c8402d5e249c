package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/sims/internal/scenario"
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

// app is the command with its scenarios and where it writes.
type app struct {
	scenarios      []scenario.Scenario
	stdout, stderr io.Writer
}

// run runs one command. The error is what is to be printed last.
func (a *app) run(ctx context.Context, args []string) error {
	root := &cobra.Command{
		Use:           "sims",
		Short:         "Prove a setting before it is changed",
		Long:          "sims drives the real packages of Ringway through the situations that matter and\nsays which promises hold. Every scenario is also a command of its own, with its\nsettings as flags: sims capacity --relays 300.",
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
	for _, c := range []*cobra.Command{a.listCommand(), a.runCommand(), a.compareCommand(), a.reportCommand(), a.validateCommand()} {
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

// brokenError says what does not hold.
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
