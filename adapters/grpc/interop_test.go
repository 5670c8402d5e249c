package ringwaygrpc_test

import (
	"context"
	"os"
	"runtime/pprof"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"

	ringwaygrpc "github.com/ringway/ringway/adapters/grpc"
	"github.com/ringway/ringway/internal/fleet"
)

// The cases end the process if they fail. The module internal/e2e/conformance lists those that
// need an account; this one has the same rest but for two, of load reports, which need a policy
// of the official client.
func TestTheInteroperabilityCasesOfGRPCPass(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	for _, id := range []string{"a", "b", "c"} {
		s := &server{id: id, service: interop.NewTestServer()}
		listen(t, s, "127.0.0.1:0")
		c.agent(s, "")
	}
	c.sees("a", "b", "c")
	conn, err := ringwaygrpc.NewClient(ringwaygrpc.Config{Router: c.router, Service: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := testpb.NewTestServiceClient(conn)
	// What the router and the first connections take is no time of a case.
	ready, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	if err := c.router.WaitReady(ready); err != nil {
		t.Fatal(err)
	}
	for answered := map[string]bool{}; len(answered) < 3; {
		var from peer.Peer
		if _, err := client.EmptyCall(ready, &testpb.Empty{}, grpc.WaitForReady(true), grpc.Peer(&from)); err != nil {
			t.Fatalf("after answers of %v: %v", answered, err)
		}
		answered[from.Addr.String()] = true
	}
	for name, run := range map[string]func(context.Context, testpb.TestServiceClient, ...grpc.CallOption){
		"empty_unary": interop.DoEmptyUnaryCall, "large_unary": interop.DoLargeUnaryCall,
		"client_streaming": interop.DoClientStreaming, "server_streaming": interop.DoServerStreaming,
		"ping_pong": interop.DoPingPong, "empty_stream": interop.DoEmptyStream,
		"timeout_on_sleeping_server": interop.DoTimeoutOnSleepingServer,
		"cancel_after_begin":         interop.DoCancelAfterBegin, "cancel_after_first_response": interop.DoCancelAfterFirstResponse,
		"status_code_and_message": interop.DoStatusCodeAndMessage, "special_status_message": interop.DoSpecialStatusMessage,
		"custom_metadata": interop.DoCustomMetadata,
	} {
		t.Run(name, func(t *testing.T) { run(limited(t), client) })
	}
	t.Run("unimplemented_method", func(t *testing.T) { interop.DoUnimplementedMethod(limited(t), conn) })
	t.Run("unimplemented_service", func(t *testing.T) {
		interop.DoUnimplementedService(limited(t), testpb.NewUnimplementedServiceClient(conn))
	})
}

// limited returns a context with a time of its own. A case that fails ends the process, so one that
// takes most of the time shows first what its goroutines wait for.
func limited(t *testing.T) context.Context {
	limit := waitTime
	if end, ok := t.Deadline(); ok {
		limit = max(limit, time.Until(end)-30*time.Second) // for the report of a failure
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	late := time.AfterFunc(limit*3/4, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	})
	t.Cleanup(func() { late.Stop(); cancel() })
	return ctx
}
