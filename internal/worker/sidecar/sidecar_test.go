package sidecar

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
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
	resp, body := answer(t, client, s.request(t, "GET", "echo", nil, "Ringway-Timeout: 50", "X-Do: hang"))
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

func TestTheLoadIsTheOtherRequestsOfTheServiceWhenTheAnswerBegins(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Do") {
		case "hold":
			arrived <- struct{}{}
			<-release
		case "break":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "shed":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	s := start(t, nil, serve(t, "echo", "", handler), serve(t, "other", "", handler))
	client := s.relay(t)
	load := func(do, service string) string {
		resp, _ := answer(t, client, s.request(t, "GET", service, nil, "X-Do: "+do))
		return strings.Join(resp.Header.Values(wire.LoadHeader), ",")
	}
	held := make(chan string, 2)
	for range 2 {
		req := s.request(t, "GET", "echo", nil, "X-Do: hold")
		go func() {
			resp, err := client.Do(req)
			if err != nil {
				held <- err.Error()
				return
			}
			_ = resp.Body.Close()
			held <- resp.Header.Get(wire.LoadHeader)
		}()
		within(t, arrived, "a held request")
	}
	if got := load("", "echo"); got != "2" {
		t.Errorf("load %q beside 2 requests", got)
	}
	if got := load("", "other"); got != "0" {
		t.Errorf("load %q of a service with no other request", got)
	}
	if got := load("shed", "echo"); got != "2" {
		t.Errorf("load %q of a service that is busy", got)
	}
	// A relay would take a broken service for a busy one.
	if got := load("break", "echo"); got != "" {
		t.Errorf("load %q of a service that is broken", got)
	}
	if n, _ := metric(t, s.registry, "ringway_sidecar_in_flight", "echo"); n != 2 {
		t.Errorf("%v in flight", n)
	}
	close(release)
	for range 2 {
		// The load is that of the end, not of the beginning.
		if got := within(t, held, "a held request's answer"); got != "1" && got != "0" {
			t.Errorf("load %q of a held request", got)
		}
	}
}

func TestNoMoreThanTheSlotsOfAnEndpointAreInFlightThere(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	service := serve(t, "echo", "", func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	service.Slots = 2
	for _, protocol := range []string{"http/1.1", "h2"} {
		s := start(t, nil, service)
		client := s.relay(t, protocol)
		ended := make(chan int)
		hold := func() {
			req := s.request(t, "POST", "echo", strings.NewReader("x"))
			go func() {
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					ended <- 0
					return
				}
				_ = resp.Body.Close()
				ended <- resp.StatusCode
			}()
			within(t, arrived, "a request that has a slot")
		}
		refused := func() {
			t.Helper()
			resp, body := answer(t, client, s.request(t, "POST", "echo", strings.NewReader("small")))
			if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get(wire.FailedHeader) != wire.FailedFull ||
				resp.Header.Get(wire.LoadHeader) != "2" || !strings.Contains(body, `"code":"overloaded"`) {
				t.Errorf("%s: one more than the slots: %s %v %s", protocol, resp.Status, resp.Header, body)
			}
		}
		hold()
		hold()
		refused()
		refused()
		release <- struct{}{}
		if status := within(t, ended, "an answer"); status != http.StatusOK {
			t.Errorf("%s: %d", protocol, status)
		}
		hold() // in the slot that has become free
		refused()
		if n, _ := metric(t, s.registry, "ringway_sidecar_requests_total", "full", "echo"); n != 3 {
			t.Errorf("%s: %v refusals are counted, not 3", protocol, n)
		}

		service.Slots = 3
		s.set(t, service)
		hold() // more slots count at once, and so do fewer
		service.Slots = 2
		s.set(t, service)
		release <- struct{}{}
		within(t, ended, "an answer")
		refused()
		release <- struct{}{}
		release <- struct{}{}
		within(t, ended, "an answer")
		within(t, ended, "an answer")
		if n, _ := metric(t, s.registry, "ringway_sidecar_in_flight", "echo"); n != 0 {
			t.Errorf("%s: %v in flight at the end", protocol, n)
		}
	}
}

func TestSlotsAreCountedExactlyUnderConcurrentRequests(t *testing.T) {
	const slots, requests = 3, 200
	var now, most, accepted atomic.Int64
	service := serve(t, "echo", "", func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		accepted.Add(1)
		now.Add(-1)
	})
	service.Slots = slots
	s := start(t, nil, service)
	client := s.relay(t, "h2")
	answer(t, client, s.request(t, "GET", "echo", nil)) // opens the connection that all share
	accepted.Store(0)
	var wg sync.WaitGroup
	var full atomic.Int64
	for range requests {
		req := s.request(t, "GET", "echo", nil)
		wg.Go(func() {
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			if resp.Header.Get(wire.FailedHeader) == wire.FailedFull {
				full.Add(1)
			}
		})
	}
	wg.Wait()
	if most.Load() > slots || accepted.Load()+full.Load() != requests || accepted.Load() < slots {
		t.Errorf("%d at once with %d slots; %d accepted and %d refused of %d", most.Load(), slots, accepted.Load(), full.Load(), requests)
	}
}

func TestAServicesOwn429IsNotTheSidecars(t *testing.T) {
	service := serve(t, "echo", "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(wire.FailedHeader, wire.FailedFull) // only a sidecar's word counts
		w.Header().Set("X-Kept", "yes")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	service.Slots = 1
	s := start(t, nil, service)
	for _, protocol := range []string{"http/1.1", "h2"} {
		resp, _ := answer(t, s.relay(t, protocol), s.request(t, "GET", "echo", nil))
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get(wire.FailedHeader) != "" || resp.Header.Get("X-Kept") != "yes" {
			t.Errorf("%s: %s %v", protocol, resp.Status, resp.Header)
		}
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
	if n, _ := metric(t, s.registry, "ringway_sidecar_refused_total", reasonUnknownService); n != 2 {
		t.Errorf("%v counted", n)
	}
}

// breaking accepts connections and closes each when one request has arrived.
func breaking(t testing.TB) (address string, requests *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				requests.Add(1)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return ln.Addr().String(), requests
}

// A pool of a relay reads what the sidecar says of a failure.
func TestARelayLearnsWhetherTheServiceWasSentAnything(t *testing.T) {
	broken, requests := breaking(t)
	s := start(t, nil, advertise.Service{Name: "dead", Address: noListener(t)}, advertise.Service{Name: "broken", Address: broken})
	relay := source(t, s.authority, claims(identity.RoleRelay, "r1"))
	for protocol, alpn := range map[upstream.Protocol]string{upstream.HTTP1: "http/1.1", upstream.H2C: "h2"} {
		pool, err := upstream.NewPool(upstream.Config{Address: s.Addr().String(), Protocol: protocol, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			d := tls.Dialer{Config: relay.ClientConfig(relay.Policy(identity.DataPlane), identity.Expected{Node: "w1"}, alpn)}
			return d.DialContext(ctx, network, address)
		}})
		if err != nil {
			t.Fatal(err)
		}
		var failure error
		front := serve(t, "front", "", func(w http.ResponseWriter, r *http.Request) {
			_, failure = pool.Carry(w, r, upstream.Exchange{Sidecar: true, Header: []wire.Field{{Name: wire.ServiceHeader, Value: r.Header.Get("X-Service")}}})
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
			var e *upstream.Error
			if !errors.As(failure, &e) || e.Stage != upstream.StageService || e.Sent() != c.sent || e.Committed() || e.Stale() {
				t.Errorf("%s to %q with %d bytes: %v", protocol, c.service, len(c.body), failure)
			}
			if resp.StatusCode != http.StatusTeapot || resp.Header.Get(wire.FailedHeader) != "" {
				t.Errorf("%s: the client saw %s %v", protocol, resp.Status, resp.Header)
			}
			if n := requests.Load(); n > 1 {
				t.Errorf("a POST was sent %d times", n)
			}
		}
		if got := pool.Stats(); protocol == upstream.H2C && got.Dials != 1 {
			t.Errorf("%s: %d connections for requests that failed behind the sidecar", protocol, got.Dials)
		}
		if err := pool.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	for service, result := range map[string]string{"dead": "unsent", "broken": "sent"} {
		if n, _ := metric(t, s.registry, "ringway_sidecar_requests_total", result, service); n == 0 {
			t.Errorf("no request of %s is counted as %s", service, result)
		}
	}
}

// holding is a service whose requests to /hold stay until release is closed.
func holding(t testing.TB, name string) (offer advertise.Service, arrived, release chan struct{}, conns *atomic.Int64) {
	t.Helper()
	arrived, release, conns = make(chan struct{}, 1), make(chan struct{}), new(atomic.Int64)
	ln, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
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
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return advertise.Service{Name: name, Address: ln.Addr().String()}, arrived, release, conns
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
	if _, there := metric(t, s.registry, "ringway_sidecar_in_flight", "a"); there {
		t.Error("a service that is gone still has its series")
	}
	close(release)
	if got := within(t, held, "the answer of a"); got.status != 200 || got.body != "a" || got.err != nil {
		t.Errorf("the request in flight to a service that is gone: %+v", got)
	}
	if _, there := metric(t, s.registry, "ringway_sidecar_requests_total", "2xx", "a"); there {
		t.Error("its last request brought the series back")
	}

	moved := advertise.Service{Name: "b", Address: c.Address}
	s.set(t, moved, c)
	if _, body := answer(t, client, s.request(t, "GET", "b", nil)); body != "c" {
		t.Errorf("a service that moved answers from %q", body)
	}
	if n, _ := metric(t, s.registry, "ringway_sidecar_requests_total", "2xx", "b"); n != 3 {
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

func TestAStopFinishesWhatIsInFlightAndTakesNothingNew(t *testing.T) {
	a, arrived, release, _ := holding(t, "a")
	s := start(t, nil, a)
	held := background(s.relay(t), s.request(t, "POST", "a", strings.NewReader("x"), "X-Do: hold"))
	within(t, arrived, "the request")
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	await(t, "no relay can connect any more", func() bool {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-ended:
		t.Fatalf("stopped with a request in flight: %v", err)
	default:
	}
	close(release)
	if got := within(t, held, "its answer"); got.status != 200 || got.body != "a" {
		t.Errorf("%+v", got)
	}
	if err := within(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	if err := s.SetServices(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("SetServices after the end: %v", err)
	}
}

func TestAStopEndsWithinItsBoundAlsoIfConnectionsHang(t *testing.T) {
	for name, c := range map[string]struct {
		do, got, failed, log string
		sessions             float64 // that are counted as ended
	}{
		"request":         {do: "hold", got: "HTTP/1.1 502 Bad Gateway", failed: wire.FailedSent, log: "requests had no answer"},
		"half a request":  {do: "hold\r\nContent-Length: 5", got: "HTTP/1.1 502 Bad Gateway", failed: wire.FailedUnsent, log: "requests had no answer"},
		"answer":          {do: "stream", got: "HTTP/1.1 200 OK", log: "draining sessions", sessions: 1},
		"tunnel":          {do: "tunnel\r\nConnection: Upgrade\r\nUpgrade: raw", got: "HTTP/1.1 101 Switching Protocols", log: "draining sessions", sessions: 1},
		"tunnel and gone": {do: "tunnel\r\nConnection: Upgrade\r\nUpgrade: raw", got: "HTTP/1.1 101 Switching Protocols", log: "draining sessions", sessions: 1},
	} {
		arrived := make(chan struct{}, 1)
		s := start(t, func(c *Config) { c.DrainTimeout = 10 * time.Millisecond }, serve(t, "a", "", func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-Do") {
			case "tunnel":
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
				arrived <- struct{}{}
				_, _ = io.Copy(io.Discard, conn)
				return
			case "stream":
				_, _ = io.WriteString(w, "begun")
				_ = http.NewResponseController(w).Flush()
			}
			arrived <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}))
		config := tlsAs(source(t, s.authority, claims(identity.RoleRelay, "r1")), "http/1.1")
		conn, err := tls.Dial("tcp", s.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nRingway-Service: a\r\nX-Do: "+c.do+"\r\n\r\n")
		in := bufio.NewReader(conn)
		if c.sessions > 0 {
			line, err := in.ReadString('\n') // the answer has begun
			if in = bufio.NewReader(io.MultiReader(strings.NewReader(line), in)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if c.failed == wire.FailedUnsent {
			await(t, "the sidecar reads the "+name, func() bool {
				n, _ := metric(t, s.registry, "ringway_sidecar_in_flight", "a")
				return n == 1
			})
		} else {
			within(t, arrived, "the "+name)
		}
		if strings.HasSuffix(name, "gone") {
			s.set(t)
		}
		if err := s.stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := io.ReadAll(in)
		if os.IsTimeout(err) { // how else it breaks off is the system's
			t.Errorf("%s: it goes on", name)
		}
		if !strings.HasPrefix(string(got), c.got) || c.failed != "" && !strings.Contains(string(got), "\r\n"+wire.FailedHeader+": "+c.failed+"\r\n") {
			t.Errorf("%s: a relay got %q", name, got)
		}
		if s.log.Lines(c.log) != 1 {
			t.Errorf("%s: the log does not say that something was ended:\n%s", name, s.log)
		}
		if n, _ := metric(t, s.registry, "ringway_sidecar_sessions_ended_total"); n != c.sessions {
			t.Errorf("%s: %v sessions are counted", name, n)
		}
	}
}

// echoing is a service of WebSockets, which also has requests that it never answers.
func echoing(t testing.TB) (offer advertise.Service, arrived chan struct{}) {
	arrived = make(chan struct{}, 1)
	return serve(t, "echo", "", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			arrived <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body) // net/http watches the connection only then
			<-r.Context().Done()
			return
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.CloseNow() }()
		for {
			kind, text, err := c.Read(context.Background())
			if err != nil {
				return // closed
			}
			_ = c.Write(context.Background(), kind, text)
		}
	}), arrived
}

// webSocket is the relay's end of one.
type webSocket struct {
	*websocket.Conn
	echoes chan string
}

// webSockets opens some, and sends each to ended when it has ended.
func (r *running) webSockets(t testing.TB, n int) (open map[*webSocket]bool, ended chan *webSocket) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	open, ended = map[*webSocket]bool{}, make(chan *webSocket, n)
	var reading sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		reading.Wait()
	})
	client := r.relay(t)
	for range n {
		c, _, err := websocket.Dial(ctx, "wss://"+r.Addr().String(), &websocket.DialOptions{HTTPClient: client, HTTPHeader: http.Header{wire.ServiceHeader: {"echo"}}})
		if err != nil {
			t.Fatal(err)
		}
		one := &webSocket{c, make(chan string, 1)}
		open[one] = true
		reading.Go(func() {
			for {
				_, text, err := c.Read(ctx)
				if err == nil {
					one.echoes <- string(text)
					continue
				}
				if websocket.CloseStatus(err) != websocket.StatusGoingAway && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
					t.Errorf("a WebSocket ended with %v", err)
				}
				ended <- one
				return
			}
		})
	}
	return open, ended
}

func TestWebSocketsOutliveTheDrainOfRequestsAndEndOneAfterTheOther(t *testing.T) {
	const all = 16
	echo, arrived := echoing(t)
	// Each has two seconds more than the one before it.
	s := start(t, func(c *Config) {
		c.DrainTimeout, c.SessionDrainTimeout = 100*time.Millisecond, 100*time.Millisecond+all*2*time.Second
	}, echo)
	open, ended := s.webSockets(t, all)
	held := background(s.relay(t), s.request(t, "POST", "echo", strings.NewReader("x")))
	within(t, arrived, "the request")
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	if got := within(t, held, "the end of the request"); got.status != http.StatusBadGateway || !strings.Contains(got.body, "this member stops") {
		t.Errorf("the request that had no answer: %+v", got)
	}
	delete(open, within(t, ended, "the end of the first"))
	echoed := 0
	for c := range open {
		_ = c.Write(t.Context(), websocket.MessageText, []byte("still here"))
		select {
		case <-c.echoes:
			echoed++
		case <-ended: // on a machine that takes its time, its turn has come
		}
	}
	if echoed < all/2 {
		t.Errorf("%d of %d are left after the first has ended", echoed, all)
	}
	for c := range open {
		_ = c.CloseNow()
	}
	if err := within(t, stopped, "the end, which need not wait for sessions that have closed"); err != nil {
		t.Error(err)
	}
}

func TestWebSocketsEndWithinTheirTime(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Second} {
		echo, _ := echoing(t)
		s := start(t, func(c *Config) { c.DrainTimeout, c.SessionDrainTimeout = 10*time.Millisecond, timeout }, echo)
		_, ended := s.webSockets(t, 3)
		began := time.Now()
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		for range 3 {
			within(t, ended, "the end of a WebSocket")
		}
		if after := time.Since(began); after < timeout {
			t.Errorf("with %v all have ended after %v", timeout, after)
		}
		if n, _ := metric(t, s.registry, "ringway_sidecar_sessions_ended_total"); n != 3 {
			t.Errorf("%v sessions are counted", n)
		}
	}
}

func TestAnswersThatHaveBegunOutliveTheDrainOfRequestsOverHTTP2(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		s := start(t, func(c *Config) { c.DrainTimeout, c.SessionDrainTimeout = 10*time.Millisecond, time.Second }, serve(t, "a", protocol, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Do") == "stream" {
				_, _ = io.WriteString(w, "begun")
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}))
		client := s.relay(t, "h2")
		held := background(client, s.request(t, "GET", "a", nil))
		resp, err := client.Do(s.request(t, "GET", "a", nil, "X-Do: stream"))
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the request", func() bool {
			n, _ := metric(t, s.registry, "ringway_sidecar_in_flight", "a")
			return n == 2
		})
		began := time.Now()
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if after := time.Since(began); after < time.Second {
			t.Errorf("%s: the stream ended after %v", protocol, after)
		}
		if body, err := io.ReadAll(resp.Body); err == nil || string(body) != "begun" {
			t.Errorf("%s: the stream ends with %q, %v", protocol, body, err)
		}
		_ = resp.Body.Close()
		if got := within(t, held, "the request"); got.status != http.StatusBadGateway || !strings.Contains(got.body, "this member stops") {
			t.Errorf("%s: the request got %+v", protocol, got)
		}
		if n, _ := metric(t, s.registry, "ringway_sidecar_sessions_ended_total"); n != 1 {
			t.Errorf("%s: %v sessions are counted", protocol, n)
		}
	}
}

func TestCloseEndsRunAtOnce(t *testing.T) {
	a, arrived, release, _ := holding(t, "a")
	defer close(release)
	s := start(t, nil, a)
	held := background(s.relay(t), s.request(t, "POST", "a", strings.NewReader("x"), "X-Do: hold"))
	within(t, arrived, "the request")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := within(t, held, "the end of the request"); got.err == nil {
		t.Errorf("%+v", got)
	}
	if err := s.stop(); err != nil { // it has DrainTimeout left
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("again: %v", err)
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
		await(t, "the request is refused", func() bool {
			refused, _ := metric(t, s.registry, "ringway_sidecar_refused_total", reasonUnknownService)
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
	s := start(t, nil, advertise.Service{Name: "dead", Address: noListener(t)})
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
	await(t, "both are counted", func() bool {
		n, _ := metric(t, s.registry, "ringway_sidecar_requests_total", "aborted", "echo")
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
	await(t, "both are counted", func() bool {
		n, _ := metric(t, s.registry, "ringway_sidecar_requests_total", "cancelled", "echo")
		return n == 2
	})
}

func TestARequestWithoutAByteEndsAndSaysWhoWasSilent(t *testing.T) {
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
			await(t, protocol+": "+side, func() bool {
				n, _ := metric(t, s.registry, "ringway_sidecar_silent_requests_total", side)
				return n == want
			})
		}
	}
}
