package ringwaygrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"

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
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	for name, run := range map[string]func(context.Context, testpb.TestServiceClient, ...grpc.CallOption){
		"empty_unary": interop.DoEmptyUnaryCall, "large_unary": interop.DoLargeUnaryCall,
		"client_streaming": interop.DoClientStreaming, "server_streaming": interop.DoServerStreaming,
		"ping_pong": interop.DoPingPong, "empty_stream": interop.DoEmptyStream,
		"timeout_on_sleeping_server": interop.DoTimeoutOnSleepingServer,
		"cancel_after_begin":         interop.DoCancelAfterBegin, "cancel_after_first_response": interop.DoCancelAfterFirstResponse,
		"status_code_and_message": interop.DoStatusCodeAndMessage, "special_status_message": interop.DoSpecialStatusMessage,
		"custom_metadata": interop.DoCustomMetadata,
	} {
		t.Run(name, func(*testing.T) { run(ctx, client) })
	}
	t.Run("unimplemented_method", func(*testing.T) { interop.DoUnimplementedMethod(ctx, conn) })
	t.Run("unimplemented_service", func(*testing.T) {
		interop.DoUnimplementedService(ctx, testpb.NewUnimplementedServiceClient(conn))
	})
}
