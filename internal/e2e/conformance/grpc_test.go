//go:build unix

package conformance

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/ringway/ringway/internal/procs"
)

// interopCases are all cases of the official client. Those with a failure cannot pass, with
// or without relays: they are run to check that this is still so.
var interopCases = []struct{ name, failure string }{
	{name: "empty_unary"},
	{name: "large_unary"},
	{name: "client_streaming"},
	{name: "server_streaming"},
	{name: "ping_pong"},
	{name: "empty_stream"},
	{name: "timeout_on_sleeping_server"},
	{name: "cancel_after_begin"},
	{name: "cancel_after_first_response"},
	{name: "status_code_and_message"},
	{name: "special_status_message"},
	{name: "custom_metadata"},
	{name: "unimplemented_method"},
	{name: "unimplemented_service"},
	{name: "orca_per_rpc"},
	{name: "orca_oob"},
	{name: "rpc_soak"},
	{name: "channel_soak"},
	// The official server has no id that the case could compare.
	{"pick_first_unary", "got empty server ID"},
	// These need an account of Google.
	{"compute_engine_creds", "TLS credentials need to be set"},
	{"compute_engine_channel_credentials", "ComputeEngineCreds need to be set"},
	{"service_account_creds", "TLS credentials need to be set"},
	{"jwt_token_creds", "TLS credentials need to be set"},
	{"per_rpc_creds", "TLS credentials need to be set"},
	{"oauth2_auth_token", "TLS credentials need to be set"},
	{"google_default_credentials", "GoogleDefaultCredentials need to be set"},
}

func TestEveryCaseOfGRPCInteroperabilityPasses(t *testing.T) {
	_, port, _ := net.SplitHostPort(procs.FreeAddr(t)) // the server has a flag for the port only
	server := net.JoinHostPort("127.0.0.1", port)
	procs.Start(t, procs.Config{Binary: "server", Dir: official, Args: []string{"-port", port}})
	procs.Await(t, "the official server listens", func() bool {
		conn, err := net.Dial("tcp", server)
		return err == nil && conn.Close() == nil
	})
	ways(t, server, func(t *testing.T, relay string) {
		host, port, _ := net.SplitHostPort(relay)
		for _, c := range interopCases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r := procs.Run(procs.Config{Binary: "client", Dir: official, Args: []string{
					"-server_host", host, "-server_port", port, "-test_case", c.name, "-additional_metadata", "ringway-service:rpc",
					// Data and statuses are what counts: a second for each call is no promise of a busy machine.
					"-soak_per_iteration_max_acceptable_latency_ms", "60000", "-soak_overall_timeout_seconds", "60",
					"-service_config_json", `{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}`, // for orca_…
				}})
				if passes := r.Code == 0; passes != (c.failure == "") || !strings.Contains(r.Stderr, c.failure) {
					t.Errorf("%v\nwant the failure %q", r, c.failure)
				}
			})
		}
	})
}

// ways runs a test against the ingress of a relay that serves the service rpc and of one that
// forwards, without certificates and with them.
func ways(t *testing.T, server string, test func(t *testing.T, relay string)) {
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "clear text", true: "certificates"}[secure], func(t *testing.T) {
			t.Parallel()
			// Metadata names the service, except on streams that the client opens itself.
			f := startFleet(t, fleetConfig{Relays: 2, Secure: secure, Services: []string{"rpc=" + server + ";protocol=h2c"},
				Routes: `[{path_prefix: /xds.service.orca., service: rpc}]`})
			serving, forwarding := f.roles(t, "rpc")
			t.Run("one relay", func(t *testing.T) { test(t, serving.Ingress) })
			t.Run("two relays", func(t *testing.T) { test(t, forwarding[0].Ingress) })
		})
	}
}

// The help of the client lists its cases as "name: what it does".
func TestTheTableHasEveryCaseOfTheOfficialClient(t *testing.T) {
	help := procs.Run(procs.Config{Binary: "client", Dir: official, Args: []string{"-help"}}).Stderr
	_, list, _ := strings.Cut(help, "Valid options are:")
	list, _, found := strings.Cut(list, "(default")
	if !found {
		t.Fatalf("the help lists no cases: %s", help)
	}
	known := map[string]bool{}
	for _, c := range interopCases {
		known[c.name] = true
	}
	for line := range strings.Lines(strings.TrimSpace(list)) {
		if name, _, _ := strings.Cut(line, ":"); !known[strings.TrimSpace(name)] {
			t.Errorf("the case %q is not in the table", strings.TrimSpace(name))
		}
	}
}

// compressions are the encodings that a client sees in the heads of answers.
type compressions struct {
	mu   sync.Mutex
	seen []string
}

func (c *compressions) HandleRPC(_ context.Context, s stats.RPCStats) {
	if head, ok := s.(*stats.InHeader); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen = append(c.seen, head.Compression)
	}
}
func (c *compressions) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *compressions) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *compressions) HandleConn(context.Context, stats.ConnStats)                       {}

// The official client and server do not have the cases of compression.
func TestCompressedMessagesPass(t *testing.T) {
	listener := procs.Listen(t)
	server := grpc.NewServer() // has gzip because it is imported here
	testpb.RegisterTestServiceServer(server, interop.NewTestServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	const size = 200_000
	ways(t, listener.Addr().String(), func(t *testing.T, relay string) {
		seen := &compressions{}
		conn, err := grpc.NewClient("passthrough:///"+relay, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStatsHandler(seen), grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "ringway-service", "rpc"), procs.Patience)
		defer cancel()
		client := testpb.NewTestServiceClient(conn)
		payload := &testpb.Payload{Body: make([]byte, size)}
		answer, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: size, Payload: payload})
		if err != nil || len(answer.GetPayload().GetBody()) != size {
			t.Errorf("a unary call: %d bytes, %v", len(answer.GetPayload().GetBody()), err)
		}
		stream, err := client.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 3; n++ {
			err := stream.Send(&testpb.StreamingOutputCallRequest{Payload: payload, ResponseParameters: []*testpb.ResponseParameters{{Size: int32(n * size)}}})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := stream.Recv(); err != nil || len(got.GetPayload().GetBody()) != n*size {
				t.Fatalf("message %d of a stream: %d bytes, %v", n, len(got.GetPayload().GetBody()), err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := stream.Recv(); err != io.EOF {
			t.Errorf("the end of the stream: %v", err)
		}
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if got := fmt.Sprint(seen.seen); got != "[gzip gzip]" {
			t.Errorf("the answers were encoded as %s, want gzip", got)
		}
	})
}
