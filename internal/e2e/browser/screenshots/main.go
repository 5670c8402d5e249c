// Command screenshots makes the pictures of docs/images, each of something that runs:
//
//	status-page-light.png  the status page of a relay in a fleet with load, in which one
//	status-page-dark.png   worker fails its requests and another drains
//	demo.svg               the table of `relay demo`, out of a pseudo-terminal
//	dashboard-panels.png   panels of deploy/grafana/ringway.json: their queries, answered
//	                       by a Prometheus that watches a fleet of processes, and drawn
//	                       here; Grafana would draw them in its own way
//
// Usage: screenshots DIRECTORY BINARIES, from the folder of this module. BINARIES has
// relay and worker.
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
