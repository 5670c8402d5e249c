// Command echo is the service of the compose fleet, for demos and tests: it answers
// every request with its name, over HTTP/1.1 and clear-text HTTP/2.
//
//	curl -H 'Ringway-Service: echo' http://127.0.0.1:7410/   →   echo-4
//
// After SIGTERM it finishes the requests in flight.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringway/ringway/internal/loadgen"
)

func main() {
	addr := flag.String("addr", ":9000", "address to listen at")
	name := flag.String("name", hostName(), "what is answered")
	delay := flag.Duration("delay", 0, "median of the service times, which are drawn for each request")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := loadgen.Run(ctx, *addr, echo(*name, *delay)); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "echo"
	}
	return name
}

func echo(name string, delay time.Duration) *loadgen.Stub {
	return loadgen.NewStub(loadgen.StubConfig{Name: name, Median: delay, Seed: rand.Uint64()})
}
