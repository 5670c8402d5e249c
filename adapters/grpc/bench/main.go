// Command bench sends the same load to 20 servers of gRPC under four balancing policies: round_robin,
// pick_first and weighted_round_robin of grpc-go, and that of Ringway. One server is slow, one
// fails. It prints latencies and failed RPCs, and ends within two minutes.
//
// Promise: all policies have the same servers, the same times of arrival, and no retries. They take
// turns of a few seconds, because other programs on the machine slow down all of them.
//
//	memberlist ─► router ─► ringway ──────────────┐
//	list of addresses ─┬─► round_robin ───────────┤
//	                   ├─► pick_first ────────────┼─► 18 servers, one slow, one failing
//	                   └─► weighted_round_robin ◄─┴── reports of load (ORCA)
//
// Rules: the loop is open, so an RPC is sent when its time has come, whatever happened to those
// before it, and its latency counts from that time. Latencies are those of answers without an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/weightedroundrobin" // registers the policy
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	ringwaygrpc "github.com/ringway/ringway/adapters/grpc"
)

// config is the size of a run. The defaults of the flags take about 80 s.
type config struct {
	servers int
	rate    float64 // RPCs per second
	turn    time.Duration
	turns   int
	warmUp  time.Duration
}

func main() {
	cfg := config{servers: 20}
	flag.Float64Var(&cfg.rate, "rate", 1000, "RPCs per second")
	flag.DurationVar(&cfg.turn, "turn", 4*time.Second, "length of a turn of a policy")
	flag.IntVar(&cfg.turns, "turns", 4, "turns of each policy")
	flag.DurationVar(&cfg.warmUp, "warm-up", 3*time.Second, "load on each policy before the first turn, which is not measured")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout, cfg); err != nil {
		log.Fatal(err)
	}
}

// side is a policy and what was measured.
type side struct {
	name   string
	conn   *grpc.ClientConn
	client testpb.TestServiceClient

	mu        sync.Mutex
	latencies []time.Duration
	failed    int
	sent      int
}

func run(ctx context.Context, out io.Writer, cfg config) (err error) {
	f, err := newFleet(cfg.servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	sides, err := newSides(f)
	for _, s := range sides {
		defer func() { _ = s.conn.Close() }()
	}
	if err == nil {
		err = f.ready(ctx)
	}
	if err != nil {
		return err
	}
	for _, s := range sides {
		s.load(ctx, cfg.rate, cfg.warmUp, 0)
		s.latencies, s.failed, s.sent = nil, 0, 0
	}
	for turn := range cfg.turns {
		for i := range sides {
			sides[(turn+i)%len(sides)].load(ctx, cfg.rate, cfg.turn, uint64(turn+1))
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the run did not end in time: %w: choose fewer or shorter turns", ctx.Err())
	}
	return table(out, sides)
}

// newSides returns a client of each policy. They differ in their policy and in how they learn the
// addresses.
func newSides(f *servers) (sides []*side, err error) {
	add := func(name string, conn *grpc.ClientConn, err error) error {
		if err == nil {
			sides = append(sides, &side{name: name, conn: conn, client: testpb.NewTestServiceClient(conn)})
		}
		return err
	}
	for _, each := range []struct{ name, parameters string }{
		{"round_robin", "{}"},
		{"pick_first", "{}"}, // of the list, whose first is neither the slow nor the failing server
		{"weighted_round_robin", `{"blackoutPeriod": "0.5s", "weightUpdatePeriod": "0.1s", "errorUtilizationPenalty": 1}`},
	} {
		list := manual.NewBuilderWithScheme("list")
		state := resolver.State{}
		for _, s := range f.all {
			state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: s.addr}}})
		}
		list.InitialState(state)
		conn, err := grpc.NewClient("list:///bench", grpc.WithResolvers(list), grpc.WithDisableRetry(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"`+each.name+`": `+each.parameters+`}]}`))
		if err := add(each.name, conn, err); err != nil {
			return sides, err
		}
	}
	conn, err := ringwaygrpc.NewClient(ringwaygrpc.Config{Router: f.router, Service: service}, grpc.WithDisableRetry())
	return sides, add("ringway", conn, err)
}

// load sends RPCs for a time. Equal seeds are equal times of arrival.
func (s *side) load(ctx context.Context, rate float64, span time.Duration, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	var running sync.WaitGroup
	defer running.Wait()
	begin := time.Now()
	for at := time.Duration(0); at < span && ctx.Err() == nil; at += time.Duration(random.ExpFloat64() / rate * float64(time.Second)) {
		due := begin.Add(at)
		time.Sleep(time.Until(due))
		running.Go(func() {
			limited, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := s.client.UnaryCall(limited, &testpb.SimpleRequest{}, grpc.WaitForReady(true))
			took := time.Since(due)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sent++
			if err != nil {
				s.failed++
			} else {
				s.latencies = append(s.latencies, took)
			}
		})
	}
}

func table(out io.Writer, sides []*side) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "policy\tp50 ms\tp99 ms\tp99.9 ms\tfailed\tRPCs\t")
	for _, s := range sides {
		slices.Sort(s.latencies)
		if len(s.latencies) == 0 {
			return fmt.Errorf("%s: no RPC of %d had an answer", s.name, s.sent)
		}
		quantile := func(q float64) float64 {
			return float64(s.latencies[int(q*float64(len(s.latencies)-1))]) / float64(time.Millisecond)
		}
		_, _ = fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.2f %%\t%d\t\n", s.name, quantile(0.5), quantile(0.99), quantile(0.999), 100*float64(s.failed)/float64(s.sent), s.sent)
	}
	return w.Flush()
}
