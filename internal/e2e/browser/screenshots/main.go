// Command screenshots creates the pictures in docs/images from running programs:
//
//	status-page-light.png  the status page of a relay in a fleet with load, in which one
//	status-page-dark.png   worker fails its requests and another drains
//	demo.svg               the table of `relay demo`, from a pseudo-terminal
//	dashboard-panels.png   panels of deploy/grafana/ringway.json: their queries, answered
//	                       by a Prometheus that scrapes a fleet of processes, and drawn
//	                       here; Grafana would draw them differently
//
// Usage: screenshots DIRECTORY BINARIES, from the directory of this module. BINARIES
// contains relay and worker.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: screenshots DIRECTORY BINARIES")
		os.Exit(1)
	}
	dir, binaries := os.Args[1], os.Args[2]
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = errors.Join(demoTable(ctx, dir, binaries), statusPages(ctx, dir), dashboard(ctx, dir, binaries))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}
