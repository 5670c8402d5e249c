package sidecar

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

// breaking accepts connections and closes each when one request has arrived.
func breaking(t testing.TB) (address string, requests *atomic.Int64) {
	t.Helper()
	ln := procs.Listen(t)
	requests = new(atomic.Int64)
	procs.Accept(t, ln, func(conn net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			requests.Add(1)
		}
	})
	return ln.Addr().String(), requests
}

// A pool of a relay reads what the sidecar reports about a failure.
func TestARelayLearnsWhetherTheServiceWasSentAnything(t *testing.T) {
	broken, requests := breaking(t)
	s := start(t, nil, advertise.Service{Name: "dead", Address: procs.Refusing(t)}, advertise.Service{Name: "broken", Address: broken})
	relay := source(t, s.authority, claims(identity.RoleRelay, "r1"))
	for protocol, alpn := range map[advertise.Protocol]string{advertise.HTTP1: "http/1.1", advertise.H2C: "h2"} {
		pool, err := upstream.NewPool(upstream.Config{Address: s.Addr().String(), Protocol: protocol, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			d := tls.Dialer{Config: relay.ClientConfig(relay.Policy(identity.DataPlane), identity.Expected{Node: "w1"}, alpn)}
			return d.DialContext(ctx, network, address)
		}})
		if err != nil {
			t.Fatal(err)
		}
		var failure *upstream.Fault
		front := serve(t, "front", "", func(w http.ResponseWriter, r *http.Request) {
			_, failure = pool.Carry(w, r, &upstream.Options{Sidecar: true, Header: []wire.Field{{Name: wire.ServiceHeader, Value: r.Header.Get("X-Service")}}})
			w.WriteHeader(http.StatusTeapot)
		})
		for _, c := range []struct {
			service, body string
			sent          bool
		}{{"dead", "", false}, {"dead", "small", false}, {"dead", strings.Repeat("x", 1<<20), false}, {"broken", "", true}, {"gone", "small", false}} {
			requests.Store(0)
			req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+front.Address, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Service", c.service)
			resp, _ := answer(t, http.DefaultClient, req)
			if e := failure; e == nil || e.Stage != upstream.StageService || e.Sent() != c.sent || e.Committed() || e.Stale() {
				t.Errorf("%s to %q with %d bytes: %v", protocol, c.service, len(c.body), failure)
			}
			if resp.StatusCode != http.StatusTeapot || resp.Header.Get(wire.FailedHeader) != "" {
				t.Errorf("%s: the client saw %s %v", protocol, resp.Status, resp.Header)
			}
			if n := requests.Load(); n > 1 {
				t.Errorf("a POST was sent %d times", n)
			}
		}
		if got := pool.Stats(); protocol == advertise.H2C && got.Dials != 1 {
			t.Errorf("%s: %d connections for requests that failed behind the sidecar", protocol, got.Dials)
		}
		if err := pool.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	for service, result := range map[string]string{"dead": "unsent", "broken": "sent"} {
		if n, _ := metricOf(t, s.registry, "ringway_sidecar_requests_total", result, service); n == 0 {
			t.Errorf("no request of %s is counted as %s", service, result)
		}
	}
}

// Until its last byte has passed the relay it cannot send a body elsewhere.
func TestARefusalAwaitsTheRestOfASmallBody(t *testing.T) {
	s := start(t, func(c *Config) { c.bodyPatience = patience })
	for n, client := range []*http.Client{s.relay(t), s.relay(t, "h2")} {
		body, more := io.Pipe()
		req := s.request(t, "POST", "gone", body)
		var ended atomic.Bool
		early := make(chan bool, 1)
		go func() {
			resp, err := client.Do(req)
			early <- !ended.Load()
			if err == nil {
				_ = resp.Body.Close()
			}
		}()
		if _, err := more.Write([]byte("begun")); err != nil {
			t.Error(err)
		}
		procs.Await(t, "the request is refused", func() bool {
			refused, _ := metricOf(t, s.registry, "ringway_sidecar_refused_total", reasonUnknownService)
			return refused == float64(n+1)
		})
		ended.Store(true)
		_ = more.Close()
		if within(t, early, "the answer") {
			t.Error("the answer came while the body was still coming")
		}
	}
}

// A large request whose service is dead must not keep the relay waiting for the
// rest of the body.
func TestARefusalDoesNotWaitForALargeBody(t *testing.T) {
	s := start(t, nil, advertise.Service{Name: "dead", Address: procs.Refusing(t)})
	for _, client := range []*http.Client{s.relay(t), s.relay(t, "h2")} {
		body, more := io.Pipe() // never ends by itself
		got := background(client, s.request(t, "POST", "dead", body))
		if _, err := more.Write([]byte("begun")); err != nil {
			t.Error(err)
		}
		if got := within(t, got, "the refusal"); got.status != http.StatusBadGateway {
			t.Errorf("%+v", got)
		}
		_ = more.Close()
	}
}

func TestABrokenAnswerBreaksOff(t *testing.T) {
	s := start(t, nil, serve(t, "echo", "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	for _, client := range []*http.Client{s.relay(t), s.relay(t, "h2")} {
		if got := within(t, background(client, s.request(t, "GET", "echo", nil)), "the answer"); got.err == nil {
			t.Errorf("half an answer ended as if it were whole: %+v", got)
		}
	}
	procs.Await(t, "both are counted", func() bool {
		n, _ := metricOf(t, s.registry, "ringway_sidecar_requests_total", "aborted", "echo")
		return n == 2
	})
}

func TestARelayThatBreaksOffEndsTheRequest(t *testing.T) {
	arrived, over := make(chan struct{}), make(chan struct{})
	s := start(t, nil, serve(t, "echo", "", func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
		over <- struct{}{}
	}))
	for _, client := range []*http.Client{s.relay(t), s.relay(t, "h2")} {
		ctx, cancel := context.WithCancel(t.Context())
		got := background(client, s.request(t, "GET", "echo", nil).WithContext(ctx))
		within(t, arrived, "the request")
		cancel()
		within(t, got, "the client")
		within(t, over, "the service to hear of it")
	}
	procs.Await(t, "both are counted", func() bool {
		n, _ := metricOf(t, s.registry, "ringway_sidecar_requests_total", "cancelled", "echo")
		return n == 2
	})
}

func TestARequestWithoutAByteEndsAndReportsWhichSideWasSilent(t *testing.T) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		released := make(chan struct{})
		s := start(t, func(c *Config) { c.ProgressTimeout = 100 * time.Millisecond }, serve(t, "echo", advertise.HTTP1, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			close(released)
		}))
		resp, err := s.relay(t, protocol).Do(s.request(t, "GET", "echo", nil))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err == nil || string(body) != "half" {
			t.Errorf("%s: %q %v, want a half answer that breaks off", protocol, body, err)
		}
		_ = resp.Body.Close()
		within(t, released, "the service to hear of it")
		for side, want := range map[string]float64{"endpoint": 1, "client": 0, "both": 0} {
			procs.Await(t, protocol+": "+side, func() bool {
				n, _ := metricOf(t, s.registry, "ringway_sidecar_silent_requests_total", side)
				return n == want
			})
		}
	}
}

// A service over HTTP/2 that does not know HTTP/1.1 ends a connection of it, as one that breaks does.
func TestAWebSocketThatBreaksOverHTTP1IsAFailureOnceTheServiceHasAnsweredThere(t *testing.T) {
	var breaks atomic.Bool
	s := start(t, nil, serve(t, "chat", advertise.H2C, func(w http.ResponseWriter, r *http.Request) {
		if breaks.Load() {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	for _, step := range []struct {
		breaks bool
		status int
		failed string
	}{{true, http.StatusBadRequest, ""}, {false, http.StatusForbidden, ""}, {true, http.StatusBadGateway, wire.FailedSent}} {
		breaks.Store(step.breaks)
		resp, body := answer(t, s.relay(t), s.request(t, "GET", "chat", nil, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="))
		if resp.StatusCode != step.status || resp.Header.Get(wire.FailedHeader) != step.failed || strings.Contains(body, "SETTINGS_ENABLE_CONNECT_PROTOCOL") != (step.status == http.StatusBadRequest) {
			t.Errorf("%+v: %s %v %q", step, resp.Status, resp.Header, body)
		}
	}
}
