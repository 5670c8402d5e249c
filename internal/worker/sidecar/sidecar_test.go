package sidecar

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

func TestNoFieldOfTheRingwayNameSpacePasses(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		s := start(t, nil, serve(t, "echo", protocol, func(w http.ResponseWriter, r *http.Request) {
			for name := range r.Header {
				if strings.HasPrefix(name, "Ringway-") {
					t.Errorf("%s: the service saw %s", protocol, name)
				}
			}
			if r.Host != "shop.example" || r.URL.String() != "/path?q=1" || r.Header.Get("X-Forwarded-For") != "1.2.3.4" || r.ProtoMajor == 2 != (protocol == advertise.H2C) {
				t.Errorf("%s: the service saw %s %s %v", r.Proto, r.Host, r.URL, r.Header)
			}
			for _, name := range []string{"Ringway-Failed", "Ringway-Load", "Ringway-Endpoint", "X-Kept"} {
				w.Header().Set(name, "forged")
			}
		}))
		for _, client := range []*http.Client{s.relay(t), s.relay(t, "h2")} {
			req := s.request(t, "GET", "echo", nil, "Ringway-Hop: r2", "X-Forwarded-For: 1.2.3.4")
			req.Host = "shop.example"
			resp, _ := answer(t, client, req)
			if resp.StatusCode != 200 || resp.Header.Get("X-Kept") != "forged" || resp.Header.Get(wire.LoadHeader) != "0" {
				t.Errorf("%s: %s %v", protocol, resp.Status, resp.Header)
			}
			for _, name := range []string{"Ringway-Failed", "Ringway-Endpoint"} {
				if resp.Header.Get(name) != "" {
					t.Errorf("%s: the service's %s reached the relay", protocol, name)
				}
			}
		}
	}
}

func TestTheClientsDeadlineReachesTheServiceAndEndsTheExchange(t *testing.T) {
	seen := make(chan http.Header, 1)
	s := start(t, nil, serve(t, "echo", "", func(_ http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		if r.Header.Get("X-Do") == "hang" {
			<-r.Context().Done()
		}
	}))
	client := s.relay(t)
	answer(t, client, s.request(t, "GET", "echo", nil, "Ringway-Timeout: 50000", "Grpc-Timeout: 60S"))
	if h := within(t, seen, "the request"); h.Get("Ringway-Timeout") != "50000" || h.Get("Grpc-Timeout") != "50000000u" {
		t.Errorf("the service saw %v", h)
	}
	resp, body := answer(t, client, s.request(t, "GET", "echo", nil, "Ringway-Timeout: 2000", "X-Do: hang"))
	if resp.StatusCode != http.StatusBadGateway || resp.Header.Get(wire.FailedHeader) != wire.FailedSent || !strings.Contains(body, "deadline") {
		t.Errorf("%s %v %s", resp.Status, resp.Header, body)
	}
}

// A service that sends more than it was asked for must not answer the next client with
// it.
func TestNoClientGetsTheAnswerToAnother(t *testing.T) {
	out := make(chan struct{}, 1)
	s := start(t, nil, serve(t, "echo", "", func(w http.ResponseWriter, r *http.Request) {
		head := map[string]string{
			"a body behind HEAD": "200 OK\r\nContent-Length: 45\r\n\r\n",
			"a body behind 304":  "304 Not Modified\r\nContent-Length: 45\r\n\r\n",
			"a body behind 204":  "204 No Content\r\n\r\n",
			"a second answer":    "200 OK\r\nContent-Length: 2\r\n\r\nok",
		}[r.Header.Get("X-Do")]
		if head == "" {
			_, _ = io.WriteString(w, "own")
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 "+head)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign")
		out <- struct{}{}
		_, _ = io.Copy(io.Discard, conn)
	}))
	client := s.relay(t)
	for _, do := range []string{"a body behind HEAD", "a body behind 304", "a body behind 204", "a second answer"} {
		for range 50 {
			method := http.MethodGet
			if do == "a body behind HEAD" {
				method = http.MethodHead
			}
			answer(t, client, s.request(t, method, "echo", nil, "X-Do: "+do))
			within(t, out, "what follows the answer")
			if _, body := answer(t, client, s.request(t, "GET", "echo", nil)); body != "own" {
				t.Fatalf("%s: the next client got %q", do, body)
			}
		}
	}
}

// Relays pass this answer on to clients.
func TestTheAnswerToARequestThatCannotBeCarriedNamesNoAddress(t *testing.T) {
	s := start(t, nil, serve(t, "echo", "", func(_ http.ResponseWriter, r *http.Request) { t.Errorf("carried %s %q", r.Method, r.RequestURI) }))
	conn, err := tls.Dial("tcp", s.Addr().String(), tlsAs(source(t, s.authority, claims(identity.RoleRelay, "r1")), "http/1.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, "GET x:@evil.test/p HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRingway-Service: echo\r\n\r\n")
	text, err := io.ReadAll(conn)
	if body := string(text); err != nil || !strings.Contains(body, " 400 ") || !strings.Contains(body, `"code":"bad_request"`) || !strings.Contains(body, "target") || strings.Contains(body, "127.0.0.1") {
		t.Errorf("%s, %v", body, err)
	}
}

func TestWhatTheWorkerDoesNotOfferIsNotFound(t *testing.T) {
	s := start(t, nil)
	for _, client := range []*http.Client{s.relay(t), s.relay(t, "h2")} {
		resp, body := answer(t, client, s.request(t, "POST", `a"b`, strings.NewReader("x")))
		var got struct{ Error, Code, Service string }
		if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != 404 || got.Code != "unknown_service" || got.Service != `a"b` || got.Error == "" {
			t.Errorf("%s %s %v", resp.Status, body, err)
		}
		if resp.Header.Get(wire.FailedHeader) != wire.FailedUnsent || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v", resp.Header)
		}
	}
	if n, _ := metricOf(t, s.registry, "ringway_sidecar_refused_total", reasonUnknownService); n != 2 {
		t.Errorf("%v counted", n)
	}
}

// holding is a service whose requests to /hold stay until release is closed.
func holding(t testing.TB, name string) (offer advertise.Service, arrived, release chan struct{}, conns *atomic.Int64) {
	t.Helper()
	arrived, release, conns = make(chan struct{}, 1), make(chan struct{}), new(atomic.Int64)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Do") == "hold" {
				arrived <- struct{}{}
				<-release
			}
			_, _ = io.WriteString(w, name)
		}),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				conns.Add(1)
			}
		},
	}
	return advertise.Service{Name: name, Address: procs.Serve(t, srv)}, arrived, release, conns
}

// reply is what a request that was sent in the background got.
type reply struct {
	status int
	body   string
	err    error
}

func background(client *http.Client, req *http.Request) <-chan reply {
	got := make(chan reply, 1)
	go func() {
		resp, err := client.Do(req)
		if err != nil {
			got <- reply{err: err}
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		got <- reply{resp.StatusCode, string(body), err}
	}()
	return got
}

func TestServicesComeAndGoWithoutTouchingTheOthers(t *testing.T) {
	a, arrived, release, _ := holding(t, "a")
	b, _, _, connsOfB := holding(t, "b")
	c, _, _, _ := holding(t, "c")
	s := start(t, nil, a, b)
	client := s.relay(t)
	held := background(client, s.request(t, "GET", "a", nil, "X-Do: hold"))
	within(t, arrived, "the request to a")
	answer(t, client, s.request(t, "GET", "b", nil))

	s.set(t, b, c)
	if resp, _ := answer(t, client, s.request(t, "GET", "a", nil)); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a service that is gone: %s", resp.Status)
	}
	for _, name := range []string{"b", "c"} {
		if resp, body := answer(t, client, s.request(t, "GET", name, nil)); resp.StatusCode != 200 || body != name {
			t.Errorf("%s: %s %q", name, resp.Status, body)
		}
	}
	if n := connsOfB.Load(); n != 1 {
		t.Errorf("%d connections to a service that was not touched", n)
	}
	if _, there := metricOf(t, s.registry, "ringway_sidecar_in_flight", "a"); there {
		t.Error("a service that is gone still has its series")
	}
	close(release)
	if got := within(t, held, "the answer of a"); got.status != 200 || got.body != "a" || got.err != nil {
		t.Errorf("the request in flight to a service that is gone: %+v", got)
	}
	if _, there := metricOf(t, s.registry, "ringway_sidecar_requests_total", "2xx", "a"); there {
		t.Error("its last request brought the series back")
	}

	moved := advertise.Service{Name: "b", Address: c.Address}
	s.set(t, moved, c)
	if _, body := answer(t, client, s.request(t, "GET", "b", nil)); body != "c" {
		t.Errorf("a service that moved answers from %q", body)
	}
	if n, _ := metricOf(t, s.registry, "ringway_sidecar_requests_total", "2xx", "b"); n != 3 {
		t.Errorf("%v requests are counted of a service that moved, want 3", n)
	}
}

func TestASetThatCannotBeServedChangesNothing(t *testing.T) {
	echo := serve(t, "echo", "", func(http.ResponseWriter, *http.Request) {})
	s := start(t, nil, echo)
	for _, bad := range []advertise.Service{{Name: "x", Address: "h:1", Protocol: "spdy"}, {Name: "x", Address: "nowhere"}} {
		if err := s.SetServices([]Service{{Service: advertise.Service{Name: "y", Address: "h:1"}}, {Service: bad}}); err == nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if resp, _ := answer(t, s.relay(t), s.request(t, "GET", "echo", nil)); resp.StatusCode != 200 {
		t.Errorf("what was there before: %s", resp.Status)
	}
}

func TestAnAddressThatIsTakenIsNamedAndOneThatIsNotUsedIsGivenBack(t *testing.T) {
	taken := start(t, nil)
	cfg := taken.cfg
	cfg.Addr, cfg.Registerer = taken.Addr().String(), prometheus.NewRegistry()
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), cfg.Addr) {
		t.Errorf("an address that is taken: %v", err)
	}
	if err := taken.stop(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cfg.Registerer = prometheus.NewRegistry()
		unused, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := unused.Close(); err != nil {
			t.Error(err)
		}
		if err := unused.Run(t.Context()); err != nil {
			t.Errorf("Run after Close: %v", err)
		}
	}
}
