// Command screenshots creates the pictures in docs/images from running programs:
//
//	status-page-light.png  the status page of a relay in a fleet with load, in which one
//	status-page-dark.png   worker fails its requests and another drains
//	status-page-phone.png  the same on a phone
//	demo.svg               the table of `relay demo`
//
// Usage: screenshots DIRECTORY BINARIES, from the directory of this module. BINARIES
// contains relay.
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
	if err := errors.Join(demoTable(ctx, os.Args[1], os.Args[2]), statusPages(ctx, os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}
