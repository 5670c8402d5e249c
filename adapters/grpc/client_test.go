package ringwaygrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	ringwaygrpc "github.com/ringway/ringway/adapters/grpc"
	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/fleet"
)

func TestEachWorkerGetsItsShare(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	// A strategy by key, because latencies have no effect on it.
	c.worker("light", ";weight=10;selection=stable")
	heavy := c.worker("heavy", ";weight=90;selection=stable")
	c.sees("light", "heavy")
	client := c.client(nil)
	c.reachesByKey(client, "light", "heavy")
	before := heavy.calls.Load()
	for i := range 1000 {
		if _, err := call(ringwaygrpc.WithKey(t.Context(), fmt.Sprint(i)), client); err != nil {
			t.Fatal(err)
		}
	}
	if n := heavy.calls.Load() - before; n < 850 || n > 950 {
		t.Errorf("a worker with 90 %% of the weight got %d of 1000 calls", n)
	}
}

// ended is a router that has ended before it was ready.
type ended struct{ ringwaygrpc.Router }

func (ended) WaitReady(context.Context) error { return errors.New("the router has ended") }

func TestACallThroughARouterThatHasEndedFailsAndDoesNotWait(t *testing.T) {
	conn, err := ringwaygrpc.NewClient(ringwaygrpc.Config{Router: ended{}, Service: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = testpb.NewTestServiceClient(conn).EmptyCall(ctx, &testpb.Empty{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the router has ended") {
		t.Error(err)
	}
}

func TestAKeyReachesOneWorkerByContextAndByMetadata(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	for _, id := range []string{"a", "b", "c", "d"} {
		c.worker(id, ";selection=stable")
	}
	c.sees("a", "b", "c", "d")
	client := c.client(nil)
	c.reachesByKey(client, "a", "b", "c", "d")
	used := map[string]bool{}
	for i := range 20 {
		key := fmt.Sprint("customer-", i)
		pick, err := c.router.Pick(t.Context(), "echo", key)
		if err != nil {
			t.Fatal(err)
		}
		want := pick.Endpoint().NodeID
		pick.Done(0)
		used[want] = true
		for name, ctx := range map[string]context.Context{
			"context":  ringwaygrpc.WithKey(t.Context(), key),
			"metadata": metadata.AppendToOutgoingContext(t.Context(), "Ringway-Key", key),
			"both":     metadata.AppendToOutgoingContext(ringwaygrpc.WithKey(t.Context(), key), "ringway-key", "other"),
		} {
			if got, err := call(ctx, client); got != want || err != nil {
				t.Errorf("%s in the %s: %q (%v), want %q", key, name, got, err, want)
			}
		}
		stream, err := client.FullDuplexCall(ringwaygrpc.WithKey(t.Context(), key))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := echoed(stream); got != want || err != nil {
			t.Errorf("%s of a stream: %q (%v), want %q", key, got, err, want)
		}
		_ = stream.CloseSend()
		_, _ = stream.Recv()
	}
	if len(used) < 2 {
		t.Errorf("20 keys went to %v", used)
	}
}

// echoed sends a message on a stream and returns the worker that answers.
func echoed(stream grpc.BidiStreamingClient[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) (string, error) {
	if err := stream.Send(&testpb.StreamingOutputCallRequest{}); err != nil {
		return "", err
	}
	answer, err := stream.Recv()
	return string(answer.GetPayload().GetBody()), err
}

func TestCallsWaitUntilTheRouterIsReady(t *testing.T) {
	t.Parallel()
	c := newCluster(t, fleet.Config{Insecure: true})
	client := c.client(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := call(ctx, client); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a call before the router runs: %v", err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := call(t.Context(), client, grpc.WaitForReady(true))
		answered <- err
	}()
	c.run()
	c.worker("a", "")
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestACallFailsWithoutAnEndpointOrWaitsForOne(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	client := c.client(nil)
	if _, err := call(t.Context(), client); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "echo") {
		t.Errorf("a call of a service without workers: %v", err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := call(t.Context(), client, grpc.WaitForReady(true))
		answered <- err
	}()
	c.worker("a", "")
	if err := <-answered; err != nil {
		t.Errorf("a call that waits for a worker: %v", err)
	}
}

func TestAServiceWithoutGRPCIsExplained(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	s := &server{id: "web"}
	listen(t, s, "127.0.0.1:0")
	c.offer(s, advertise.Service{Protocol: advertise.HTTP1})
	c.sees("web")
	_, err := call(t.Context(), c.client(nil))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "protocol http1: advertise h2c") {
		t.Error(err)
	}
}

func TestACallAboveTheSlotsIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("by the router", func(t *testing.T) { refusesAboveSlots(t, true) })
	t.Run("by sidecars", func(t *testing.T) { refusesAboveSlots(t, false) })
}

func refusesAboveSlots(t *testing.T, insecure bool) {
	c := startCluster(t, fleet.Config{Insecure: insecure})
	c.worker("a", ";slots=1")
	c.worker("b", ";slots=1")
	c.sees("a", "b")
	var certified func(*ringwaygrpc.Config)
	if !insecure {
		certified = withCertificate(t, c.Fleet)
	}
	client := c.client(certified)
	c.reaches(client, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	used := map[string]bool{}
	for range 2 {
		stream, err := client.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		id, err := echoed(stream)
		if err != nil {
			t.Fatal(err)
		}
		used[id] = true
	}
	if len(used) != 2 {
		t.Errorf("two streams went to %v, which have one slot each", used)
	}
	if _, err := call(t.Context(), client, grpc.WaitForReady(true)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a third call: %v", err)
	}
	cancel()
	for end := time.Now().Add(waitTime); ; {
		_, err := call(t.Context(), client)
		if err == nil {
			break
		}
		if status.Code(err) != codes.ResourceExhausted || time.Now().After(end) {
			t.Fatalf("a call after the streams have ended: %v", err)
		}
	}
}

func TestTheLengthOfAStreamIsNotALatency(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	var long []*server
	var all []string
	for i := range 8 {
		s := c.worker(fmt.Sprint(i), "")
		if i%2 == 0 {
			s.linger = 30 * time.Millisecond
			long = append(long, s)
		}
		all = append(all, s.id)
	}
	c.sees(all...)
	client := c.client(nil)
	c.reaches(client, all...)
	const streams = 200
	for range streams {
		stream, err := client.StreamingOutputCall(t.Context(), &testpb.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(stream.Context(), client); err != nil { // must not take the place of the stream
			t.Fatal(err)
		}
		for err == nil {
			_, err = stream.Recv()
		}
	}
	n := int64(0)
	for _, s := range long {
		n += s.streams.Load()
	}
	if n < streams/6 {
		t.Errorf("the half of the workers whose streams are long got %d of %d", n, streams)
	}
}

func TestTwoRoutersInOneProcessHaveClientsOfTheirOwn(t *testing.T) {
	t.Parallel()
	first, second := startCluster(t, fleet.Config{Insecure: true}), startCluster(t, fleet.Config{Insecure: true})
	first.worker("first", "")
	second.worker("second", "")
	first.sees("first")
	second.sees("second")
	for want, c := range map[string]*cluster{"first": first, "second": second} {
		client := c.client(nil)
		for range 20 {
			if got, err := call(t.Context(), client); got != want || err != nil {
				t.Fatalf("a client of the %s cluster: %q, %v", want, got, err)
			}
		}
	}
}

func TestAnotherPolicyGetsNoAddresses(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.worker("a", "")
	c.sees("a")
	client := c.client(nil, grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"pick_first": {}}]}`))
	if _, err := call(t.Context(), client); status.Code(err) != codes.Unavailable {
		t.Errorf("a call under pick_first: %v", err)
	}
	own := c.client(nil, grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"ringway": {}}], "methodConfig": [{"name": [{}], "waitForReady": true}]}`))
	if _, err := call(t.Context(), own); err != nil {
		t.Errorf("a call with a service config of the program: %v", err)
	}
}

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	for want, cfg := range map[string]ringwaygrpc.Config{
		"no Router": {Service: "echo"},
		"a b":       {Router: c.router, Service: "a b"},
	} {
		conn, err := ringwaygrpc.NewClient(cfg)
		if err == nil {
			_ = conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
