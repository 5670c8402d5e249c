package ringwaygrpc_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	ringwaygrpc "github.com/ringway/ringway/adapters/grpc"
	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait for gossip far more than they compute.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// waitTime bounds the waits for events; none takes as long on an idle machine.
const waitTime = procs.Patience

// callTime is for a call of a router that is ready: far less than waitTime, so that a wait can report
// a call that is stuck.
const callTime = 10 * time.Second

// moods of a server.
const (
	well = iota
	failing
	hanging
)

// server is a server of gRPC whose answers name it.
type server struct {
	testpb.UnimplementedTestServiceServer
	id      string
	mood    atomic.Int32
	calls   atomic.Int64
	streams atomic.Int64
	linger  time.Duration // between the only message of a server's stream and its end
	// service answers. Default: the server itself.
	service testpb.TestServiceServer
	grpc    *grpc.Server
	addr    string
}

func (s *server) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	s.calls.Add(1)
	switch s.mood.Load() {
	case failing:
		return nil, status.Error(codes.Unavailable, "this server fails")
	case hanging:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &testpb.SimpleResponse{ServerId: s.id}, nil
}

// FullDuplexCall answers each message.
func (s *server) FullDuplexCall(stream grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return nil // the client has ended the stream
		}
		if err := stream.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: []byte(s.id)}}); err != nil {
			return err
		}
	}
}

// StreamingOutputCall answers with one message, and ends later.
func (s *server) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	s.streams.Add(1)
	err := stream.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: []byte(s.id)}})
	select {
	case <-time.After(s.linger):
	case <-stream.Context().Done():
	}
	return err
}

// listen serves until the test or stop ends it.
func listen(t testing.TB, s *server, addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s.grpc, s.addr = grpc.NewServer(), listener.Addr().String()
	if s.service == nil {
		s.service = s
	}
	testpb.RegisterTestServiceServer(s.grpc, s.service)
	served := make(chan struct{})
	go func(g *grpc.Server) {
		defer close(served)
		_ = g.Serve(listener) // ends with Stop
	}(s.grpc)
	t.Cleanup(func(g *grpc.Server) func() { return func() { g.Stop(); <-served } }(s.grpc))
}

// stage is how far an RPC has come.
type stage struct{ atomic.Pointer[string] }

// sent is the stage of an RPC that has a connection: it must be answered.
const sent = "the transport, the sidecar or the server"

type stageKey struct{}

// stages is a stats.Handler that notes the stage of RPCs, so that the error of a stuck one names it.
type stages struct{}

func (stages) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (stages) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (stages) HandleConn(context.Context, stats.ConnStats)                       {}

func (stages) HandleRPC(ctx context.Context, s stats.RPCStats) {
	at := ""
	switch s.(type) {
	case *stats.Begin:
		at = "the picker, or a dial"
	case *stats.OutHeader:
		at = sent
	case *stats.InHeader:
		at = "the rest of the answer"
	}
	if noted, _ := ctx.Value(stageKey{}).(*stage); noted != nil && at != "" {
		noted.Store(&at)
	}
}

// cluster is a relay, workers, and an observer whose router the clients use.
type cluster struct {
	*fleet.Fleet
	t      testing.TB
	seed   string
	router *router.Router
	// metrics has what the router registers.
	metrics *prometheus.Registry
	run     func() // starts the router
	// offering is the life of the programs that offer the service without an agent.
	offering context.Context
	offers   sync.WaitGroup
}

// startCluster starts the router.
func startCluster(t testing.TB, cfg fleet.Config) *cluster {
	t.Helper()
	c := newCluster(t, cfg)
	c.run()
	return c
}

// newCluster makes a cluster whose router does not run yet.
func newCluster(t testing.TB, cfg fleet.Config) *cluster {
	t.Helper()
	cfg.Cluster, cfg.Environment = "shop", "dev"
	c := &cluster{t: t, seed: procs.FreeAddr(t), metrics: prometheus.NewRegistry()}
	cfg.Seeds = []string{c.seed}
	c.Fleet = fleet.New(cfg)
	if err := c.StartRelay("relay-1", func(s *relay.Settings) { s.GossipAddr, s.Join = c.seed, nil }); err != nil {
		t.Fatal(err)
	}
	member := membership.Config{
		Cluster: "shop", Environment: "dev", ID: "caller", Role: identity.RoleObserver, BindAddr: "127.0.0.1:0", Seeds: []string{c.seed},
	}
	if err := c.Equip(&member); err != nil {
		t.Fatal(err)
	}
	node, err := membership.New(member)
	if err != nil {
		t.Fatal(err)
	}
	if c.router, err = router.New(router.Config{Node: node, PickOnly: true, Registerer: c.metrics}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	started := false
	c.run = func() {
		started = true
		go func() { done <- c.router.Run(ctx) }()
	}
	var withdraw context.CancelFunc
	c.offering, withdraw = context.WithCancel(context.Background())
	t.Cleanup(func() {
		withdraw()
		c.offers.Wait()
		stop()
		if !started {
			done <- c.router.Close()
		}
		if err := errors.Join(<-done, c.Stop()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// worker starts a server and the agent that offers it, by default as echo over h2c.
func (c *cluster) worker(id, options string) *server {
	c.t.Helper()
	s := &server{id: id}
	listen(c.t, s, procs.FreeAddr(c.t)) // where its next life listens, too
	c.agent(s, options)
	return s
}

func (c *cluster) agent(s *server, options string) {
	c.t.Helper()
	if err := c.StartWorker(fleet.WorkerConfig{ID: s.id, Change: func(settings *worker.Settings) {
		settings.Services = []string{"echo=" + s.addr + ";protocol=h2c" + options}
	}}); err != nil {
		c.t.Fatal(err)
	}
}

// client returns a client of the service echo.
func (c *cluster) client(change func(*ringwaygrpc.Config), options ...grpc.DialOption) testpb.TestServiceClient {
	c.t.Helper()
	cfg := ringwaygrpc.Config{Router: c.router, Service: "echo"}
	if change != nil {
		change(&cfg)
	}
	conn, err := ringwaygrpc.NewClient(cfg, append(options, grpc.WithStatsHandler(stages{}))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return testpb.NewTestServiceClient(conn)
}

// call makes a unary RPC and returns the worker that answered. The error of one whose deadline came
// names where it waited.
func call(ctx context.Context, client testpb.TestServiceClient, options ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	at, resolver := &stage{}, "the resolver"
	at.Store(&resolver)
	answer, err := client.UnaryCall(context.WithValue(ctx, stageKey{}, at), &testpb.SimpleRequest{}, options...)
	if status.Code(err) == codes.DeadlineExceeded {
		err = fmt.Errorf("the call waited for %s: %w", *at.Load(), err)
	}
	return answer.GetServerId(), err
}

// reaches waits until each of the workers has answered.
func (c *cluster) reaches(client testpb.TestServiceClient, workers ...string) {
	c.t.Helper()
	c.await(workers, func(ctx context.Context, _ int) (string, error) { return call(ctx, client) })
}

// reachesByKey is reaches with a new key for each call, for strategies by key.
func (c *cluster) reachesByKey(client testpb.TestServiceClient, workers ...string) {
	c.t.Helper()
	c.await(workers, func(ctx context.Context, n int) (string, error) {
		return call(ringwaygrpc.WithKey(ctx, fmt.Sprint("key-", n)), client)
	})
}

// await fails if a call that was sent is lost, also if later ones reach the workers.
func (c *cluster) await(workers []string, answer func(ctx context.Context, n int) (string, error)) {
	c.t.Helper()
	ready, cancel := context.WithTimeout(c.t.Context(), waitTime)
	defer cancel()
	if err := c.router.WaitReady(ready); err != nil {
		c.explain()
		c.t.Fatalf("the router of the client is not ready after %v: %v", waitTime, err)
	}
	missing := map[string]bool{}
	for _, w := range workers {
		missing[w] = true
	}
	n, last := 0, error(nil)
	defer func() {
		if len(missing) > 0 {
			c.t.Logf("no answer from %v: %v", missing, last)
			c.explain()
		}
	}()
	procs.Await(c.t, fmt.Sprint("answers of ", workers), func() bool {
		for range 100 { // or until a call fails: the members that this waits for need the processor, too
			var id string
			ctx, cancel := context.WithTimeout(c.t.Context(), callTime)
			id, last = answer(ctx, n)
			cancel()
			if n++; status.Code(last) == codes.DeadlineExceeded && strings.Contains(last.Error(), sent) {
				if !c.t.Failed() {
					c.explain() // while it is stuck
				}
				c.t.Errorf("a call is lost: %v", last)
			}
			if delete(missing, id); len(missing) == 0 {
				return true
			}
			if last != nil {
				return false
			}
		}
		return false
	})
}

// explain logs what a stuck cluster does.
func (c *cluster) explain() {
	c.t.Helper()
	var goroutines strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&goroutines, 1) // a Builder returns no error
	c.t.Logf("exchanges of the router: %v\n%s", logtest.Series(c.t, c.metrics, "ringway_advertise_exchanges_total"), goroutines.String())
}

// sees waits until the endpoints of the router are those of the workers.
func (c *cluster) sees(workers ...string) {
	c.t.Helper()
	late := time.After(waitTime)
	for {
		endpoints, changed := c.router.Endpoints("echo")
		seen := map[string]bool{}
		for _, e := range endpoints {
			seen[e.NodeID] = true
		}
		same := len(seen) == len(workers)
		for _, w := range workers {
			same = same && seen[w]
		}
		if same {
			return
		}
		select {
		case <-changed:
		case <-late:
			c.t.Fatalf("the router sees %v, want %v", seen, workers)
		}
	}
}

// offer makes a program offer the service itself, without an agent.
func (c *cluster) offer(s *server, service advertise.Service) {
	c.t.Helper()
	service.Name, service.Address = "echo", s.addr
	a, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: s.id, BindAddr: "127.0.0.1:0", Seeds: []string{c.seed}, Services: []advertise.Service{service}, DrainDelay: time.Millisecond,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.offers.Go(func() {
		if err := a.Run(c.offering); err != nil {
			c.t.Error(err)
		}
	})
}
