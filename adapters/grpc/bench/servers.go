package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

const (
	service = "bench"
	// usual is the mean time of service, slow that of the slow server, failure that of an error.
	usual, slow, failure = 2 * time.Millisecond, 40 * time.Millisecond, 100 * time.Microsecond
	// places is how many RPCs a server works on at a time; the others queue.
	places = 8
	// reportEvery is how often a server computes its report of load.
	reportEvery = 200 * time.Millisecond
)

// server works on a few RPCs at a time, by sleeping.
type server struct {
	testpb.UnimplementedTestServiceServer
	addr   string
	mean   time.Duration
	fails  bool
	places chan struct{}
	work   struct{ nanoseconds, calls, errors atomic.Int64 } // since the last report
	report orca.ServerMetricsRecorder
	grpc   *grpc.Server
}

// UnaryCall waits for a place and occupies it.
func (s *server) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	s.work.calls.Add(1)
	_ = orca.CallMetricsRecorderFromContext(ctx) // without a recorder no report is sent
	if s.fails {
		s.work.errors.Add(1)
		s.work.nanoseconds.Add(int64(failure)) // weighted_round_robin ignores a report without any use
		return nil, status.Error(codes.Unavailable, "this server fails")
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	took := time.Duration(float64(s.mean) * (0.5 + rand.ExpFloat64()/2))
	time.Sleep(took)
	s.work.nanoseconds.Add(int64(took))
	return &testpb.SimpleResponse{}, nil
}

// reportLoad sets what weighted_round_robin weighs: calls and errors per second, and the used part
// of the places.
func (s *server) reportLoad() {
	seconds := reportEvery.Seconds()
	s.report.SetQPS(float64(s.work.calls.Swap(0)) / seconds)
	s.report.SetEPS(float64(s.work.errors.Swap(0)) / seconds)
	s.report.SetApplicationUtilization(time.Duration(s.work.nanoseconds.Swap(0)).Seconds() / seconds / places)
}

// servers are the servers, the workers that offer them, and the router that finds them.
type servers struct {
	all    []*server
	router *router.Router
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	errs   []error
}

// newFleet starts n servers on loopback: the second is slow, the third fails.
func newFleet(n int) (f *servers, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	f = &servers{cancel: cancel}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	node, err := membership.New(membership.Config{Cluster: "bench", Environment: "dev", ID: "caller", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0"})
	if err != nil {
		return f, err
	}
	if f.router, err = router.New(router.Config{Node: node, PickOnly: true}); err != nil {
		return f, errors.Join(err, node.Close())
	}
	f.run(func() error { return f.router.Run(ctx) })
	for i := range n {
		s := &server{mean: usual, fails: i == 2, places: make(chan struct{}, places), report: orca.NewServerMetricsRecorder()}
		if i == 1 {
			s.mean = slow
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return f, err
		}
		s.addr, s.grpc = listener.Addr().String(), grpc.NewServer(orca.CallMetricsServerOption(s.report))
		testpb.RegisterTestServiceServer(s.grpc, s)
		f.all = append(f.all, s)
		f.run(func() error { return s.grpc.Serve(listener) })
		a, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
			Cluster: "bench", Environment: "dev", ID: fmt.Sprint("worker-", i), BindAddr: "127.0.0.1:0", Seeds: []string{node.Addr()},
			Services: []advertise.Service{{Name: service, Address: s.addr, Protocol: advertise.H2C}},
		})
		if err != nil {
			return f, err
		}
		f.run(func() error { return a.Run(ctx) })
	}
	f.run(func() error {
		ticks := time.NewTicker(reportEvery)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				for _, s := range f.all {
					s.reportLoad()
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	return f, nil
}

func (f *servers) run(part func() error) {
	f.wg.Go(func() {
		err := part()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err)
	})
}

// ready waits until the router knows every server.
func (f *servers) ready(ctx context.Context) error {
	for {
		endpoints, changed := f.router.Endpoints(service)
		if len(endpoints) == len(f.all) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the router knows %d of %d servers: %w", len(endpoints), len(f.all), ctx.Err())
		}
	}
}

// stop ends everything.
func (f *servers) stop() error {
	f.cancel()
	for _, s := range f.all {
		s.grpc.Stop()
	}
	f.wg.Wait()
	return errors.Join(f.errs...)
}
