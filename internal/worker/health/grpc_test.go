package health

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// serveGRPC runs a real gRPC server.
func serveGRPC(t *testing.T, listen string, health grpc_health_v1.HealthServer) (address string) {
	t.Helper()
	listener := listenOn(t, listen)
	server := grpc.NewServer()
	if health != nil {
		grpc_health_v1.RegisterHealthServer(server, health)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// expect probes once.
func expect(t *testing.T, c Check, result, says string) {
	t.Helper()
	err := normalized(t, c).probe(t.Context())
	if got := resultOf(err); got != result || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%s, want %s and %q: %v", got, result, says, err)
	}
}

func TestAGRPCCheckBelievesOnlySERVING(t *testing.T) {
	health := grpchealth.NewServer()
	health.SetServingStatus("chat.Chat", grpc_health_v1.HealthCheckResponse_SERVING)
	health.SetServingStatus("bad", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	health.SetServingStatus("new", grpc_health_v1.HealthCheckResponse_UNKNOWN)
	health.SetServingStatus("watched", grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN)
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(listen, func(t *testing.T) {
			address := serveGRPC(t, listen, health)
			for _, test := range []struct{ service, result, says string }{
				{"", resultSuccess, ""},
				{"chat.Chat", resultSuccess, ""},
				{"bad", resultNotServing, "NOT_SERVING: the service itself answered this"},
				{"new", resultStatus, "serving status 0: only SERVING"},
				{"watched", resultUnknown, `SERVICE_UNKNOWN: the server does not know the service "watched"`},
				{"missing", resultUnknown, `NOT_FOUND "unknown service": the server does not know the service "missing"`},
			} {
				expect(t, Check{Kind: GRPC, Address: address, Service: test.service}, test.result, test.says)
			}
		})
	}
}

func TestAGRPCServerWithoutAHealthServiceIsAFailureWithARemedy(t *testing.T) {
	expect(t, Check{Kind: GRPC, Address: serveGRPC(t, "127.0.0.1:0", nil)}, resultNoHealth,
		`UNIMPLEMENTED "unknown service grpc.health.v1.Health": the server has no health service; register grpc.health.v1.Health in it, or use a tcp check`)
}

// failing refuses every call with the same status.
type failing struct {
	grpc_health_v1.UnimplementedHealthServer
	err error
}

func (f failing) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return nil, f.err
}

func TestAGRPCCallThatFailsReportsItsCode(t *testing.T) {
	for code, says := range map[codes.Code]string{
		codes.Unauthenticated:  `UNAUTHENTICATED "100 % Ärger": the health service must answer without credentials`,
		codes.PermissionDenied: `PERMISSION_DENIED "100 % Ärger": the health service must answer without credentials`,
		codes.Unavailable:      `UNAVAILABLE "100 % Ärger": see the log of the service`,
		codes.Code(99):         `code 99 "100 % Ärger"`,
	} {
		expect(t, Check{Kind: GRPC, Address: serveGRPC(t, "127.0.0.1:0", failing{err: status.Error(code, "100 % Ärger")})}, resultStatus, says)
	}
}

func TestAServerOfAnotherProtocolIsNamedAsSuch(t *testing.T) {
	web := serveHTTP(t, http.NotFound)
	web.Start()
	defer web.Close()
	secret := serveHTTP(t, http.NotFound)
	secret.Config.ErrorLog = log.New(io.Discard, "", 0) // its complaint is expected
	secret.StartTLS()
	defer secret.Close()
	for _, test := range []struct {
		promise, address string
		kind             Kind
		result, says     string
	}{
		{"an HTTP/2 server without gRPC", web.Listener.Addr().String(), GRPC, resultStatus, `answered HTTP "404" without a gRPC status: this is not a gRPC server`},
		{"an HTTP/1 server", serve(t, sayAndHang("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")), GRPC, resultGarbage, "not gRPC over HTTP/2"},
		{"a gRPC server asked for a page", serveGRPC(t, "127.0.0.1:0", nil), HTTP, resultClosed, "whether the kind of check is right"},
		{"a TLS server asked for a page", secret.Listener.Addr().String(), HTTP, resultStatus, "expects TLS (then use a tcp check)"},
		{"a TLS server asked by gRPC", secret.Listener.Addr().String(), GRPC, resultClosed, "if it takes only TLS, offer it with protocol=h2, or use a tcp check"},
	} {
		t.Run(test.promise, func(t *testing.T) {
			expect(t, Check{Kind: test.kind, Address: test.address}, test.result, test.says)
		})
	}
}

// frames speaks HTTP/2 as a server that a test makes up.
type frames struct {
	*http2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
}

func newFrames(out io.Writer, in io.Reader) *frames {
	f := &frames{Framer: http2.NewFramer(out, in)}
	f.AllowIllegalWrites = true
	f.encoder = hpack.NewEncoder(&f.block)
	return f
}

// accept reads the preface and the request, up to the end of its stream, and
// insists that pushes are forbidden: their headers would be taken for the answer.
func (f *frames) accept(conn io.Reader) error {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if push, ok := frame.Value(http2.SettingEnablePush); !frame.IsAck() && (push != 0 || !ok) {
				return errors.New("pushes are allowed")
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				return nil
			}
		}
	}
}

func (f *frames) headers(end bool, fields ...string) {
	f.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: streamID, BlockFragment: f.block.Bytes(), EndHeaders: true, EndStream: end})
}

// health answers a call as a gRPC server does.
func (f *frames) health(body []byte) {
	f.headers(false, ":status", "200", "content-type", "application/grpc+proto")
	_ = f.WriteData(streamID, false, body)
	f.headers(true, "grpc-status", "0")
}

// healthResponse is a framed HealthCheckResponse.
func healthResponse(state int32) []byte {
	message, _ := proto.Marshal(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_ServingStatus(state)})
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// answerGRPC serves one call with this state.
func answerGRPC(conn *net.TCPConn, state int32) {
	f := newFrames(conn, conn)
	_ = f.WriteSettings()
	if f.accept(conn) == nil {
		f.health(healthResponse(state))
	}
}

func TestAGRPCProbeKeepsTheRulesOfHTTP2(t *testing.T) {
	heard := make(chan string, 10)
	address := serve(t, func(conn *net.TCPConn) {
		defer close(heard)
		f := newFrames(conn, conn)
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		if err := f.accept(conn); err != nil {
			t.Error(err)
			return
		}
		_ = f.WritePing(false, [8]byte{7})
		_ = f.WriteWindowUpdate(0, 1000)
		_ = f.WriteGoAway(streamID, http2.ErrCodeNo, nil) // this call is still served
		f.health(healthResponse(stateServing))
		for {
			frame, err := f.ReadFrame()
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				heard <- fmt.Sprint("settings, acknowledged ", frame.IsAck())
			case *http2.PingFrame:
				heard <- fmt.Sprint("ping, answered ", frame.IsAck(), " ", frame.Data[0])
			case *http2.GoAwayFrame:
				heard <- "goodbye"
			case nil:
				heard <- err.Error()
				return
			}
		}
	})
	expect(t, Check{Kind: GRPC, Address: address}, resultSuccess, "")
	for _, want := range []string{"settings, acknowledged true", "ping, answered true 7", "goodbye", "EOF"} {
		if got := <-heard; got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
}

func TestAGRPCAnswerThatBreaksTheRulesIsRefused(t *testing.T) {
	ok := []string{":status", "200", "content-type", "application/grpc"}
	for promise, test := range map[string]struct {
		answer       func(*frames)
		result, says string
	}{
		"the connection is refused": {func(f *frames) { _ = f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too\nmany")) }, resultClosed, `the service refused the connection with ENHANCE_YOUR_CALM "too\nmany"`},
		"the call is reset":         {func(f *frames) { _ = f.WriteRSTStream(streamID, http2.ErrCodeInternal) }, resultClosed, "the service ended the call with INTERNAL_ERROR"},
		"no grpc-status":            {func(f *frames) { f.headers(true, ok...) }, resultGarbage, `grpc-status ""`},
		"a grpc-status in words":    {func(f *frames) { f.headers(true, append(ok, "grpc-status", "fine")...) }, resultGarbage, `grpc-status "fine"`},
		"another content type":      {func(f *frames) { f.headers(true, ":status", "200", "grpc-status", "0") }, resultGarbage, `content-type ""`},
		"a proxy's 502":             {func(f *frames) { f.headers(true, ":status", "502") }, resultStatus, `answered HTTP "502"`},
		"no message":                {func(f *frames) { f.headers(true, append(ok, "grpc-status", "0")...) }, resultGarbage, "0 bytes are not one uncompressed message"},
		"a compressed message":      {func(f *frames) { f.health([]byte{1, 0, 0, 0, 0}) }, resultGarbage, "not one uncompressed message"},
		"a message cut short":       {func(f *frames) { f.health([]byte{0, 0, 0, 0, 2, 8}) }, resultGarbage, "not one uncompressed message"},
		"a message of other bytes":  {func(f *frames) { f.health([]byte{0, 0, 0, 0, 1, 8}) }, resultGarbage, "not a HealthCheckResponse"},
		"an endless message": {func(f *frames) {
			f.headers(false, ok...)
			for range 5 {
				_ = f.WriteData(streamID, false, make([]byte, 16<<10))
			}
		}, resultGarbage, "longer than 64 KiB"},
		"a header that unpacks to more than 16 KiB": {func(f *frames) {
			bomb := slices.Repeat([]string{"x", strings.Repeat("x", 3000)}, 6) // one byte each after the first
			f.headers(true, slices.Concat(ok, bomb, []string{"grpc-status", "2"})...)
		}, resultGarbage, `grpc-status ""`},
		"a huge frame":            {func(f *frames) { _ = f.WriteData(streamID, false, make([]byte, 17<<10)) }, resultGarbage, "frame too large"},
		"a refusal in words only": {func(f *frames) { f.headers(true, append(ok, "grpc-status", "2", "grpc-message", "50%")...) }, resultStatus, `UNKNOWN "50%"`},
	} {
		t.Run(promise, func(t *testing.T) {
			expect(t, Check{Kind: GRPC, Address: serve(t, func(conn *net.TCPConn) {
				f := newFrames(conn, conn)
				if f.accept(conn) == nil {
					test.answer(f)
				}
				hang(conn)
			})}, test.result, test.says)
		})
	}
}
