package ringwaygrpc_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	ringwaygrpc "github.com/ringway/ringway/adapters/grpc"
	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/fleet"
)

// still is a router whose endpoints do not change.
type still struct {
	ringwaygrpc.Router
	endpoints []*advertise.Endpoint
}

func (still) WaitReady(context.Context) error { return nil }

func (s still) Endpoints(string) ([]*advertise.Endpoint, <-chan struct{}) { return s.endpoints, nil }

// at is an endpoint without mutual TLS.
func at(addr string) *advertise.Endpoint {
	return &advertise.Endpoint{Service: advertise.Service{Name: "echo", Address: addr, Protocol: advertise.H2C}, Worker: &advertise.Worker{NodeID: "a", Epoch: 1}}
}

func TestAnEndpointThatIsBackAfterALongOutageIsDialledWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := make(chan time.Time, 1000)
		conn, err := ringwaygrpc.NewClient(ringwaygrpc.Config{Router: still{endpoints: []*advertise.Endpoint{at("10.0.0.1:80")}}, Service: "echo"},
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { // of the program: it takes precedence
				dials <- time.Now()
				return nil, errors.New("refused")
			}))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Connect()
		last := <-dials
		for began := last; last.Sub(began) < 5*time.Minute; {
			next := <-dials
			if pause := next.Sub(last); pause > 6*time.Second {
				t.Errorf("%v after the first dial it waits %v until the next", last.Sub(began), pause)
			}
			last = next
		}
	})
}

// searching is a router that is never ready.
type searching struct{ ringwaygrpc.Router }

func (searching) WaitReady(ctx context.Context) error {
	<-ctx.Done()
	return errors.Join(errors.New("no seed answers"), ctx.Err())
}

func TestACallThroughARouterThatDoesNotGetReadyFailsWithTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, err := ringwaygrpc.NewClient(ringwaygrpc.Config{Router: searching{}, Service: "echo"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := testpb.NewTestServiceClient(conn)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 {
			if _, err = client.EmptyCall(ctx, &testpb.Empty{}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no seed answers") {
				t.Error(err)
			}
		}
		if _, err := client.EmptyCall(ctx, &testpb.Empty{}, grpc.WaitForReady(true)); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a call that waits: %v", err)
		}
	})
}

// haunted is a router that also has an endpoint whose worker is gone, at the address of each one.
type haunted struct{ ringwaygrpc.Router }

func (h haunted) Endpoints(service string) ([]*advertise.Endpoint, <-chan struct{}) {
	endpoints, changed := h.Router.Endpoints(service)
	for _, e := range slices.Clone(endpoints) {
		gone := *e
		gone.Worker = &advertise.Worker{NodeID: "gone", Epoch: 1}
		endpoints = slices.Insert(endpoints, 0, &gone)
	}
	return endpoints, changed
}

// A worker whose host has vanished stays an endpoint until membership removes it.
func TestAWorkerIsReachedAtTheAddressOfOneThatIsGone(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{})
	c.worker("a", "")
	c.sees("a")
	certified := withCertificate(t, c.Fleet)
	client := c.client(func(cfg *ringwaygrpc.Config) { certified(cfg); cfg.Router = haunted{cfg.Router} })
	for range 10 {
		if id, err := call(t.Context(), client); id != "a" || err != nil {
			t.Fatal(id, err)
		}
	}
}
