//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

// The promises of this file are made for one relay and one service, because they
// hold whether the relay is affine or forwards.

func (f *fleet) webSocketPasses(r *relay, service string) func(*testing.T) {
	return f.webSocketEchoes(func(ctx context.Context) (*websocket.Conn, *http.Response, error) {
		return f.dialWebSocket(ctx, r, service)
	})
}

func (f *fleet) webSocketEchoes(dial func(context.Context) (*websocket.Conn, *http.Response, error)) func(*testing.T) {
	return func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, resp, err := dial(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.CloseNow() }()
		if resp.Header.Get("Worker") == "" || resp.Header.Get(endpointHeader) != resp.Header.Get("Worker") {
			t.Errorf("the answer to the upgrade: %v", resp.Header)
		}
		conn.SetReadLimit(1 << 20)
		for _, size := range []int{0, 1, 125, 126, 70_000, 500_000} {
			message := bytes.Repeat([]byte("w"), size)
			if err := conn.Write(ctx, websocket.MessageBinary, message); err != nil {
				t.Fatal(err)
			}
			kind, got, err := conn.Read(ctx)
			if err != nil || kind != websocket.MessageBinary || !bytes.Equal(got, message) {
				t.Fatalf("%d bytes sent, %d came back, %v", size, len(got), err)
			}
		}
		if err := conn.Close(websocket.StatusNormalClosure, "done"); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func (f *fleet) dialWebSocket(ctx context.Context, r *relay, service string) (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(ctx, "ws://"+r.Ingress+"/websocket", &websocket.DialOptions{
		HTTPClient: &f.client.http, HTTPHeader: http.Header{serviceHeader: {service}},
	})
}

// webSocketIsRefused is for the ways that cannot carry an upgrade.
func (f *fleet) webSocketIsRefused(r *relay, service string) func(*testing.T) {
	return func(t *testing.T) {
		req, err := request{addr: r.Ingress, path: "/websocket", service: service}.http(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			req.Header.Set(name, value)
		}
		resp, err := f.client.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		a := answer{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
		if got := a.failure(); a.status < 400 || got.Code == "" || !strings.Contains(got.Error, "WebSockets over HTTP/2") {
			t.Errorf("%v, want an error of the relay that says what the service lacks", a)
		}
	}
}

func (f *fleet) grpcPasses(r *relay, service string) func(*testing.T) {
	return func(t *testing.T) {
		// By header and by host name: both ways to name a service.
		for _, c := range []struct {
			name    string
			options []grpc.DialOption
			pairs   []string
		}{
			{"header", nil, []string{strings.ToLower(serviceHeader), service}},
			{"host", []grpc.DialOption{grpc.WithAuthority(service + "." + domain)}, nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), c.pairs...), patience)
				defer cancel()
				conn, err := grpc.NewClient("passthrough:///"+r.Ingress, append(c.options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				health := healthpb.NewHealthClient(conn)
				var header metadata.MD
				got, err := health.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header))
				if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
					t.Fatalf("check: %v %v", got, err)
				}
				if endpoint := header.Get(strings.ToLower(endpointHeader)); len(endpoint) != 1 {
					t.Errorf("the answer names endpoints %v", endpoint)
				}

				subject := "subject-" + strings.ReplaceAll(t.Name(), "/", "-")
				_, err = health.Check(ctx, &healthpb.HealthCheckRequest{Service: subject})
				if err == nil || !strings.Contains(err.Error(), "NotFound") {
					t.Errorf("a status other than OK: %v", err)
				}
				f.watchPasses(ctx, t, health, subject)
			})
		}
	}
}

// watchPasses shows that the first message of a stream arrives while the stream
// is open: the second exists only after that.
func (f *fleet) watchPasses(ctx context.Context, t *testing.T, health healthpb.HealthClient, subject string) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := health.Watch(ctx, &healthpb.HealthCheckRequest{Service: subject})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Fatalf("first message: %v %v", got, err)
	}
	header, err := stream.Header()
	if err != nil || len(header.Get(strings.ToLower(endpointHeader))) != 1 {
		t.Fatalf("the header of the stream: %v %v", header, err)
	}
	w := f.worker(header.Get(strings.ToLower(endpointHeader))[0])
	if a := f.client.get(w.backendAddr, "/health?service="+subject); a.status != 200 {
		t.Fatalf("%v", a)
	}
	if got, err := stream.Recv(); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("second message: %v %v", got, err)
	}
}

func (f *fleet) eventsPass(r *relay, service string) func(*testing.T) {
	return func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		key := "events-" + r.ID + "-" + service
		req, err := request{addr: r.Ingress, path: "/events?key=" + key, service: service}.http(ctx)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.client.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Fatalf("%d, content type %q", resp.StatusCode, got)
		}
		lines := bufio.NewReader(resp.Body)
		if line, err := lines.ReadString('\n'); err != nil || line != "data: first\n" {
			t.Fatalf("the first line is %q, %v", line, err)
		}
		f.release(t, key) // the stream goes on only now
		rest, err := io.ReadAll(lines)
		if err != nil || string(rest) != "\ndata: last\n\n" {
			t.Errorf("the rest is %q, %v", rest, err)
		}
	}
}

func (f *fleet) trailersPass(r *relay, service string) func(*testing.T) {
	return func(t *testing.T) {
		for _, size := range []int{1, 100, 100_000} {
			body := randomBytes(size)
			trailer := http.Header{"X-Checksum": nil} // declared now, known at the end
			a := f.client.send(request{method: http.MethodPost, addr: r.Ingress, path: "/echo", service: service, sentTrailer: trailer,
				payload: &finishing{Reader: bytes.NewReader(body), finish: func() { trailer.Set("X-Checksum", checksum(body)) }}})
			if a.status != 200 || a.err != nil || a.body != string(body) {
				t.Errorf("%d bytes: %d %v, %d bytes came back", size, a.status, a.err, len(a.body))
			}
			if got := a.trailer.Get("X-Checksum"); got != checksum(body) {
				t.Errorf("%d bytes: trailers %v", size, a.trailer)
			}
		}
	}
}

// finishing is a body of unknown length that does something at its end.
type finishing struct {
	io.Reader
	finish func()
}

func (r *finishing) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err == io.EOF {
		r.finish()
	}
	return n, err
}

func (f *fleet) largeBodiesPass(r *relay, service string) func(*testing.T) {
	return func(t *testing.T) {
		body := randomBytes(5 << 20)
		for _, length := range []string{"known", "unknown"} {
			var reader io.Reader = bytes.NewReader(body)
			if length == "unknown" {
				reader = io.MultiReader(reader)
			}
			a := f.client.send(request{method: http.MethodPost, addr: r.Ingress, path: "/echo", service: service, payload: reader})
			if a.status != 200 || a.err != nil || a.body != string(body) {
				t.Errorf("%s length: %d %v, %d of %d bytes came back as they were sent: %v", length, a.status, a.err, len(a.body), len(body), a.body == string(body))
			}
			if got, want := a.header.Get("Seen-Transfer-Encoding"), map[string]string{"known": ""}[length]; length == "known" && got != want {
				t.Errorf("known length: the worker saw transfer encoding %q", got)
			}
		}
	}
}

func randomBytes(n int) []byte {
	var seed [32]byte
	copy(seed[:], fmt.Sprint(n))
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(seed).Read(b) // it never fails
	return b
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
