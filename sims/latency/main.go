// Command latency compares the selection of a worker by relays, the real one, with what others
// do: round robin, random, least-request, EWMA, Finagle's Peak EWMA with failure accrual and a
// Prequal-like policy, all measured by one that knows everything. See package queueing for the
// model and package policy for the policies.
//
// Promise: the same flags print the same bytes. With --check it ends with exit code 1 and says
// in the last line which property does not hold, its bound and its value.
//
//	go run ./sims/latency --check                     everything, some 12 minutes of processor time
//	go run ./sims/latency --topologies 5x20           a minute and a half
//	go run ./sims/latency --format json > report.json
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/ringway/ringway/sims/internal/latency"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("latency", flag.ContinueOnError)
	flags.SetOutput(stderr)
	check := flags.Bool("check", false, "exit with 1 if something promised does not hold")
	format := flags.String("format", "table", "one of "+strings.Join(latency.Formats, ", "))
	topologies := flags.String("topologies", "all", "comma-separated `list` of 5x20, 20x200, 100x1000, lowrate (clients x workers), or all")
	policies := flags.String("policies", "all", "comma-separated `list` of policies beside omniscient, or all")
	subject := flags.String("subject", latency.Ours, "the `policy` to judge")
	ranges := flags.String("ranges", "balanced", "balanced, as relays have them, or rendezvous: the workers that hash best with each client")
	seeds := flags.Int("seeds", 0, "runs per cell, 0 for what makes the figures steady")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !slices.Contains(latency.Formats, *format) {
		return fmt.Errorf("--format %q: choose one of %s", *format, strings.Join(latency.Formats, ", "))
	}
	grid, err := gridOf(*topologies, *policies, *ranges, *seeds)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(grid.Policies, func(p queueing.Policy) bool { return p.Name == *subject }) {
		return fmt.Errorf("--subject %q is not among the policies to run", *subject)
	}
	rows, err := grid.Run(progress(stderr, grid.Runs()))
	if err != nil {
		return err
	}
	report := latency.Report{Subject: *subject, Properties: latency.Judge(rows, *subject), Rows: rows}
	if err := report.Write(stdout, *format); err != nil {
		return err
	}
	var broken []string
	for _, p := range report.Properties {
		if !p.Holds() {
			broken = append(broken, p.String())
		}
	}
	if *check && len(broken) > 0 {
		return fmt.Errorf("%s does not hold: %s", *subject, strings.Join(broken, "; "))
	}
	return nil
}

func gridOf(topologies, policies, ranges string, seeds int) (latency.Grid, error) {
	if ranges != "balanced" && ranges != "rendezvous" {
		return latency.Grid{}, fmt.Errorf("--ranges %q: choose balanced or rendezvous", ranges)
	}
	if seeds < 0 {
		return latency.Grid{}, fmt.Errorf("--seeds %d: allowed are 1 or more, or 0 for the default", seeds)
	}
	known := map[string][]latency.Cell{"lowrate": latency.LowRate()}
	names := []string{"5x20", "20x200", "100x1000", "lowrate"}
	for i, t := range []queueing.Topology{latency.Small, latency.Medium, latency.Large} {
		t.Rendezvous = ranges == "rendezvous"
		known[names[i]] = latency.Cells(t, latency.Seeds(t))
	}
	var grid latency.Grid
	for _, name := range names {
		if topologies == "all" || slices.Contains(strings.Split(topologies, ","), name) {
			grid.Cells = append(grid.Cells, known[name]...)
		}
	}
	for _, name := range strings.Split(topologies, ",") {
		if known[name] == nil && topologies != "all" {
			return latency.Grid{}, fmt.Errorf("--topologies: there is no %q; choose from %s", name, strings.Join(names, ", "))
		}
	}
	if seeds > 0 {
		for i := range grid.Cells {
			grid.Cells[i].Seeds = seeds
		}
	}
	wanted := strings.Split(policies, ",")
	for _, p := range latency.Policies() {
		i := slices.Index(wanted, p.Name)
		if policies == "all" || i >= 0 || p.Name == policy.Omniscient.Name {
			grid.Policies = append(grid.Policies, p)
		}
		if i >= 0 {
			wanted = slices.Delete(wanted, i, i+1)
		}
	}
	if policies != "all" && len(wanted) > 0 {
		return latency.Grid{}, fmt.Errorf("--policies: there is no %s", strconv.Quote(strings.Join(wanted, ",")))
	}
	return grid, nil
}

// progress returns what to call after each run: on a terminal it keeps a line up to date.
func progress(w io.Writer, runs int) func() {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	var done atomic.Int64
	begin := time.Now()
	return func() {
		n := done.Add(1)
		end := "\r"
		if n == int64(runs) {
			end = "\n"
		}
		fmt.Fprintf(w, "%d of %d runs, %v%s", n, runs, time.Since(begin).Round(time.Second), end)
	}
}
