package relay

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

func TestARequestReachesAWorkerByHeaderByHostAndByRoute(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) {
		s.Requests.Domain = "svc.test"
		s.Requests.Routes = []ingress.Route{{Host: "shop.test", PathPrefix: "/pay", Service: "echo"}}
	})
	f.echo("w1")
	r.settled(t, "echo", 1)
	for _, headers := range [][]string{
		{"Ringway-Service: echo"},
		{"Host: echo.svc.test:7410"},
		{"Host: ECHO.svc.test"},
		{"Host: shop.test"},
	} {
		if resp, body := r.call(t, "GET", "/pay/1", nil, headers...); resp.StatusCode != 200 || body != "w1" {
			t.Errorf("%v: %d %s", headers, resp.StatusCode, body)
		}
	}
	if resp, _ := r.call(t, "GET", "/other", nil, "Host: shop.test"); resp.StatusCode != 400 {
		t.Errorf("a path without a route: %d, want 400", resp.StatusCode)
	}
}

func TestRequestsSpreadOverTheWorkers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	// On a busy machine 40 connections take time: no worker is to lose requests for that.
	// And the worker that is known last is to be in no slow start.
	r := f.relay(func(s *Settings) {
		s.Upstream.DialTimeout, s.AttemptTimeout, s.Selection.SlowStart = patience, attemptTime{}, 0
	})
	const requests = 40
	var counts [4]atomic.Int64
	var arrived sync.WaitGroup // all are answered together: only queues distinguish the workers
	arrived.Add(requests)
	for i := range counts {
		backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			counts[i].Add(1)
			arrived.Done()
			arrived.Wait()
		}))
		t.Cleanup(backend.Close)
		f.worker(fmt.Sprintf("w%d", i), service("echo", backend))
	}
	r.settled(t, "echo", len(counts))
	var clients sync.WaitGroup
	for range requests {
		clients.Go(func() { r.call(t, "GET", "/", nil, "Ringway-Service: echo") })
	}
	clients.Wait()
	for i := range counts {
		if n := counts[i].Load(); n < 4 {
			t.Errorf("w%d got %d of %d requests, a fair share is %d", i, n, requests, requests/len(counts))
		}
	}
}

// answer is the JSON of the relay's own answers.
type answer struct {
	Error    string            `json:"error"`
	Code     string            `json:"code"`
	Service  string            `json:"service"`
	Attempts []ingress.Attempt `json:"attempts"`
}

func decode(t *testing.T, body string) (a answer) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	return a
}

func TestTheRelaysOwnAnswersNameWhoHasToAct(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	// Long enough for a refused connection to be refused on a busy machine.
	r := f.relay(func(s *Settings) { s.Requests.Timeout = 3 * time.Second })
	open := f.relay(func(s *Settings) { s.Requests.Timeout, s.Requests.ExposeRouteHeaders = 3*time.Second, true })
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	}))
	defer slow.Close()
	defer close(release)
	f.worker("w1", service("slow", slow), advertise.Service{Name: "dead", Address: refusing(t)})
	stop, _ := f.echo("w2")
	for _, r := range f.relays {
		r.settled(t, "slow", 1)
		r.settled(t, "echo", 1)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, r := range f.relays {
		r.settled(t, "echo", 0)
	}

	for _, c := range []struct {
		service string
		status  int
		code    string
	}{
		{"", 400, "bad_request"},
		{"absent", 404, "unknown_service"},
		{"echo", 503, "no_endpoint"},
		{"dead", 502, "upstream_failed"},
		{"slow", 504, "timeout"},
	} {
		for _, at := range []*runningRelay{r, open} {
			resp, body := at.call(t, "POST", "/", strings.NewReader("x"), "Ringway-Service: "+c.service)
			a := decode(t, body)
			if resp.StatusCode != c.status || a.Code != c.code || a.Service != c.service || a.Error == "" {
				t.Errorf("%q: %d %s", c.service, resp.StatusCode, body)
			}
			if resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%q: content type %q", c.service, resp.Header.Get("Content-Type"))
			}
			if wantAttempts := at == open && (c.service == "dead" || c.service == "slow"); wantAttempts != (len(a.Attempts) > 0) {
				t.Errorf("%q: attempts %v", c.service, a.Attempts)
			}
			if at == r && (strings.Contains(body, "w1") || strings.Contains(body, "127.0.0.1")) {
				t.Errorf("%q: the answer names a worker or an address: %s", c.service, body)
			}
		}
	}
	_, metrics := r.api(t, "/metrics", nil)
	for _, want := range []string{
		`ringway_relay_rejections_total{code="unknown_service",service=""} 1`,
		`ringway_relay_rejections_total{code="timeout",service="slow"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

func TestARequestThatWasNotSentGoesToAnotherWorkerWithAnyMethod(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Requests.ExposeRouteHeaders = true })
	f.worker("dead", advertise.Service{Name: "echo", Address: refusing(t)})
	f.echo("w1")
	r.settled(t, "echo", 2)
	r.await(t, "a retry", func() bool {
		resp, body := r.call(t, "POST", "/", strings.NewReader("x"), "Ringway-Service: echo")
		if resp.StatusCode != 200 || body != "w1" {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		return resp.Header.Get(wire.AttemptsHeader) == "2"
	})
}

func TestARequestThatWasSentIsRepeatedOnlyWhenThatIsSafe(t *testing.T) {
	t.Parallel()
	for method, attempts := range map[string]int64{"GET": 2, "DELETE": 2, "POST": 1} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			r := f.relay(func(s *Settings) { s.Requests.ExposeRouteHeaders = true })
			var got atomic.Int64
			rude := func() *httptest.Server {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					got.Add(1)
					conn, _, err := http.NewResponseController(w).Hijack()
					if err == nil {
						_ = conn.Close()
					}
				}))
				t.Cleanup(s.Close)
				return s
			}
			f.worker("w1", service("rude", rude()))
			f.worker("w2", service("rude", rude()))
			r.settled(t, "rude", 2)
			resp, body := r.call(t, method, "/", nil, "Ringway-Service: rude")
			if a := decode(t, body); resp.StatusCode != 502 || a.Code != "upstream_failed" || int64(len(a.Attempts)) != attempts {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			// A warm connection may have been closed by an idle worker, so what may be
			// repeated is sent to the same worker once more, on a fresh one.
			if n := got.Load(); n < attempts || n > 2*attempts || attempts == 1 && n > 1 {
				t.Errorf("the workers saw it %d times in %d attempts", n, attempts)
			}
		})
	}
}

func TestWhatPassesBetweenClientAndWorker(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Requests.ExposeRouteHeaders = true })
	seen := make(chan http.Header, 1)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := req.Header.Clone()
		h.Set("Host", req.Host)
		h.Set("Target", req.RequestURI)
		seen <- h
		w.Header().Set("Ringway-Load", "3")
		w.Header().Set("Ringway-Secret", "x")
		w.Header().Set("Kept", "yes")
		w.WriteHeader(http.StatusTeapot)
	}))
	defer backend.Close()
	f.worker("w1", service("echo", backend))
	r.settled(t, "echo", 1)
	resp, _ := r.call(t, "GET", "/a%2Fb?q=1", nil, "Ringway-Service: echo", "Ringway-Hop: forged", "Ringway-Load: 9",
		"X-Forwarded-For: 10.9.8.7", "Connection: X-Private", "X-Private: 1", "Accept-Encoding: br", "Host: shop.test")
	h := <-seen
	for name, want := range map[string]string{
		"Host": "shop.test", "Target": "/a%2Fb?q=1", "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "shop.test",
		"X-Forwarded-Proto": "http", "Accept-Encoding": "br", "Ringway-Hop": "", "Ringway-Load": "", "Ringway-Service": "", "X-Private": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("the worker saw %s: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"Kept": "yes", "Ringway-Load": "", "Ringway-Secret": "", wire.RelayHeader: "r1", wire.EndpointHeader: "w1", wire.AttemptsHeader: "1",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("the client saw %s: %q, want %q", name, got, want)
		}
	}
	if resp.StatusCode != http.StatusTeapot {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestOverloadIsRefusedImmediately(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Requests.MaxInFlight = 1 })
	entered, release := make(chan struct{}, 1), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	defer backend.Close()
	f.worker("w1", service("busy", backend))
	r.settled(t, "busy", 1)
	first := make(chan int, 1)
	go func() {
		req, _ := http.NewRequest("GET", "http://"+r.IngressAddr(), nil)
		req.Header.Set(wire.ServiceHeader, "busy")
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			first <- 0
			return
		}
		_ = resp.Body.Close()
		first <- resp.StatusCode
	}()
	<-entered
	resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: busy")
	if a := decode(t, body); resp.StatusCode != 503 || a.Code != "overloaded" || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	close(release)
	if status := <-first; status != 200 {
		t.Errorf("the request that was there first got %d", status)
	}

}

func TestARelayThatIsNotAffineForwardsOnceAndOnlyOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var relays []*runningRelay
	for range 3 {
		relays = append(relays, f.relay(func(s *Settings) {
			s.SkipRelays.Set("echo=r1", "echo=r3")
			s.Requests.ExposeRouteHeaders = true
		}))
	}
	f.echo("w1")
	var affine, forwarding []*runningRelay
	for _, r := range relays {
		r.settled(t, "echo", 1)
		r.await(t, "all relays", func() bool { return len(r.members.Snapshot().Members()) == 4 })
	}
	relays[0].await(t, "one affine relay", func() bool {
		affine, forwarding = nil, nil
		for _, r := range relays {
			s, _ := r.Routes.Service("echo")
			if s.Route().Affine() {
				affine = append(affine, r)
			} else if len(s.Route().Forward) == 1 {
				forwarding = append(forwarding, r)
			}
		}
		return len(affine) == 1 && len(forwarding) == 2
	})
	for _, r := range forwarding {
		resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo")
		if resp.StatusCode != 200 || body != "w1" {
			t.Fatalf("%s: %d %s", r.id, resp.StatusCode, body)
		}
		if got := resp.Header.Get(wire.EndpointHeader); got != "w1" {
			t.Errorf("%s: the answer names endpoint %q", r.id, got)
		}
		// What was forwarded to a relay that forwards itself is refused.
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.PeerAddr()+"/", nil)
		req.Header.Set(wire.ServiceHeader, "echo")
		req.Header.Set(wire.HopHeader, "r9")
		if resp, _ := do(t, req); resp.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s forwarded a second time: %d", r.id, resp.StatusCode)
		}
	}
}

// A relay that has just restarted does not know the service yet: nothing happened to the
// request, whatever its method.
func TestARequestThatEveryRelayTurnsAwayWaitsAndIsSentAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	gate := f.relay(func(s *Settings) { s.Role = identity.RoleGate })
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	for _, r := range f.relays {
		r.settled(t, "echo", 1)
	}
	gate.await(t, "its way to the relay", func() bool { d := gate.forwarding(t); return d.Forwarding != nil && len(d.Forwarding.Primaries) == 1 })
	serving := *r.peerFront.handler.Load()
	var turnedAway atomic.Int64
	ask := func(headers ...string) (*http.Response, string) {
		return gate.call(t, "POST", "/", strings.NewReader("x"), append(headers, "Ringway-Service: echo")...)
	}
	var learns atomic.Bool
	r.peerFront.serve(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if turnedAway.Add(1) == 4 && learns.Load() {
			r.peerFront.serve(serving)
		}
		req.Header.Set(wire.ServiceHeader, "not-known-here")
		serving.ServeHTTP(w, req)
	}))
	const within = ": 1500" // much longer than an attempt takes, or one that is under way would end it
	resp, body := ask(wire.TimeoutHeader + within)
	for range 5 {
		if resp.StatusCode != http.StatusGatewayTimeout { // the machine carried an attempt that slowly
			break
		}
		turnedAway.Store(0)
		resp, body = ask(wire.TimeoutHeader + within)
	}
	if a := decode(t, body); resp.StatusCode != 503 || a.Code != "not_ready" || resp.Header.Get("Retry-After") == "" || turnedAway.Load() < 2 {
		t.Errorf("turned away %d times: %d %v %s", turnedAway.Load(), resp.StatusCode, resp.Header, body)
	}
	learns.Store(true)
	turnedAway.Store(0)
	if resp, body := ask(); resp.StatusCode != 200 || body != "w1" {
		t.Errorf("after %d times: %d %s", turnedAway.Load(), resp.StatusCode, body)
	}
}

func TestARelayIsUnreadyUntilItHasJoinedAndReportsTheReason(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Join = []string{refusing(t)} })
	var ready struct {
		Status  string
		Reasons []string
	}
	r.await(t, "a reason", func() bool {
		status, _ := r.api(t, "/readyz", &ready)
		return status == 503 && len(ready.Reasons) > 0 && strings.Contains(ready.Reasons[0], "not joined yet: join ") && strings.HasSuffix(ready.Reasons[0], "or correct --join")
	})
}

func TestGarbageIsCountedAndTheRelayStillServes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	r.settled(t, "echo", 1)
	for _, addr := range []string{r.IngressAddr(), r.AdminAddr(), r.PeerAddr()} {
		for _, garbage := range []string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc a TLS hello\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, garbage)
			if line, _ := bufio.NewReader(conn).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 400") {
				t.Errorf("%s answered %q to %q", addr, line, garbage)
			}
			_ = conn.Close()
		}
	}
	_, metrics := r.api(t, "/metrics", nil)
	for _, listener := range []string{"ingress", "admin", "peer"} {
		if want := fmt.Sprintf(`ringway_relay_connections_dropped_total{listener=%q,reason="malformed"} 2`, listener); !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if resp, _ := r.call(t, "GET", "/", nil, "Ringway-Service: echo"); resp.StatusCode != 200 {
		t.Errorf("after the garbage: %d", resp.StatusCode)
	}
}

func TestARelayThatLosesAListenerEndsWithTheReasonEvenBeforeItIsReady(t *testing.T) {
	t.Parallel()
	s := DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = "test", "ci", "r1", []string{refusing(t)} // never ready
	s.GossipAddr, s.IngressAddrs, s.PeerAddr, s.AdminAddr = anyPort, []string{anyPort}, anyPort, anyPort
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context()) }()
	if err := r.sockets[0].accepts.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "serve ingress") {
			t.Errorf("%v, want the listener's name", err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

func TestClientsAreRefusedUntilTheRelayIsReadyForTheFirstTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	lonely := refusing(t)
	r := f.relay(func(s *Settings) { s.Join = []string{lonely} })
	r.await(t, "the reason", func() bool { return strings.Contains(fmt.Sprint(r.Reasons()), lonely) })
	if conn, err := net.Dial("tcp", r.IngressAddr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v %v, want that the connection is refused", conn, err)
	}
	if status, body := r.api(t, "/readyz", nil); status != 503 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	f.relay(func(*Settings) {}) // finds it
	f.echo("w1")
	r.settled(t, "echo", 1)
	if resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo"); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: absent"); resp.StatusCode != 404 || decode(t, body).Code != "unknown_service" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A relay without seeds is settled while it is alone. Then its workers find it.
func TestARelayIsReadyWhenItKnowsItsServicesAndStaysReady(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.emptyAfter = 0 // the default
	r := f.relay(func(*Settings) {})
	r.await(t, "its own view", r.Routes.Settled)
	ready := 0
	ask := func() {
		if status, body := r.api(t, "/readyz", nil); status != 200 {
			if !strings.Contains(body, "no worker has offered a service yet") && !strings.Contains(body, "not settled") && !strings.Contains(body, "not open yet") {
				t.Errorf("not ready: %s", body)
			}
			if ready > 0 {
				t.Errorf("unready after it was ready %d times: %s", ready, body)
			}
			return
		}
		ready++
		if resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo"); resp.StatusCode != 200 {
			t.Errorf("ready, and a request is answered %d %s", resp.StatusCode, body)
		}
	}
	ask()
	f.echo("w1")
	r.await(t, "that it is ready", func() bool { ask(); return ready > 20 || t.Failed() })
}

// Each start looks for the moment in which a relay is ready and answers not_ready.
func TestARelayThatStartsIsNotReadyBeforeItAnswers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.emptyAfter = 0 // the default
	first := f.relay(func(*Settings) {})
	f.echo("w1")
	first.settled(t, "echo", 1)
	var stopping sync.WaitGroup
	defer stopping.Wait()
	starts := 10
	if os.Getenv("LONG_TESTS") != "" {
		starts = 50
	}
	for range starts {
		r := f.relay(func(s *Settings) { s.Join = []string{first.GossipAddr()} })
		ready := 0
		r.await(t, "that it is ready", func() bool {
			if status, body := r.api(t, "/readyz", nil); status != 200 {
				if ready > 0 {
					t.Errorf("%s is unready after it was ready: %s", r.id, body)
				}
				return t.Failed()
			}
			ready++
			if resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo"); resp.StatusCode != 200 {
				t.Errorf("%s is ready, and a request is answered %d %s", r.id, resp.StatusCode, body)
			}
			return ready == 10 || t.Failed()
		})
		if t.Failed() {
			return
		}
		stopping.Go(func() { _ = r.stop() }) // run reports its error
	}
}

func TestAnEmptyClusterBecomesReady(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.emptyAfter = time.Hour
	r := f.relay(func(*Settings) {})
	r.await(t, "its own view", r.Routes.Settled)
	if reasons := fmt.Sprint(r.Reasons()); !strings.Contains(reasons, "counts as empty 1h0m0s after the start") {
		t.Error(reasons)
	}
	f = newFleet(t)
	other := f.relay(func(*Settings) {})
	other.await(t, "that it is ready", func() bool { return len(other.Reasons()) == 0 })
	// Its workers may still find it, so the client may repeat the request.
	if resp, body := other.call(t, "GET", "/", nil, "Ringway-Service: absent"); resp.StatusCode != 503 || decode(t, body).Code != "no_endpoint" || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	f.echo("w1")
	other.settled(t, "echo", 1)
	if resp, body := other.call(t, "GET", "/", nil, "Ringway-Service: absent"); resp.StatusCode != 404 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A relay that restarts under an address that another process takes meanwhile.
func TestAnIngressPortThatIsTakenIsAnError(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	taken := f.relay(func(*Settings) {})
	taken.await(t, "that it is ready", func() bool { return len(taken.Reasons()) == 0 })
	s := DefaultSettings()
	s.Cluster, s.Environment, s.ID = "test", "ci", "r2"
	s.GossipAddr, s.IngressAddrs, s.PeerAddr, s.AdminAddr = anyPort, []string{taken.IngressAddr()}, anyPort, anyPort
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "listen for ingress on "+taken.IngressAddr()+" (--ingress-addr)") || !strings.Contains(err.Error(), "another process") {
		t.Fatalf("got %v, want the listener, the address and the cause", err)
	}
}

func TestAnAddressCanBeEveryInterfaceOrOne(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "127.0.0.1:0", "localhost:0", "[::1]:0"} {
		plain, err := net.Listen("tcp", addr)
		if err != nil {
			t.Logf("not on this machine: %v", err)
			continue
		}
		want := plain.Addr().(*net.TCPAddr)
		_ = plain.Close()
		l, err := listenLate(addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		got := l.Addr().(*net.TCPAddr)
		if !got.IP.Equal(want.IP) || got.Port == 0 {
			t.Errorf("%s: bound %v, package net binds %v", addr, got, want)
		}
		if err := l.open(); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
		host := "127.0.0.1"
		if strings.Contains(addr, "[::1]") {
			host = "::1"
		}
		served := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				_ = conn.Close()
			}
			served <- err
		}()
		conn, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(got.Port)))
		if err != nil {
			t.Fatalf("%s: %v", addr, err)
		}
		_ = conn.Close()
		if err := <-served; err != nil {
			t.Errorf("%s: %v", addr, err)
		}
		_ = l.Close()
	}
}

func TestAPortThatIsTakenIsAnErrorAndLeavesNothingBound(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	taken := f.relay(func(*Settings) {})
	free := procs.FreeAddr(t)
	s := DefaultSettings()
	s.Cluster, s.Environment, s.ID = "test", "ci", "r2"
	s.GossipAddr, s.IngressAddrs, s.PeerAddr, s.AdminAddr = anyPort, []string{free}, anyPort, taken.AdminAddr()
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "listen for admin on "+taken.AdminAddr()+" (--admin-addr)") {
		t.Fatalf("got %v, want the listener and the address", err)
	}
	ln, err := net.Listen("tcp", free)
	if err != nil {
		t.Fatalf("the ingress address stays bound: %v", err)
	}
	_ = ln.Close()
}
