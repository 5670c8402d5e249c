package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/wire"
)

func TestRequestsGoToThreeOfTheRelaysInTurn(t *testing.T) {
	relays := newRelays(t, 8, nil)
	c, web := running(t, Config{Seeds: addrs(relays)})
	for range 5 { // a busy machine may cost a relay its place
		before := settled(t, c, 5).Primaries
		for _, r := range relays {
			r.requests.Store(0)
		}
		for range 30 {
			body, _, err := get(web, "http://billing/invoices/7")
			if err != nil || body != "GET billing /invoices/7 " {
				t.Fatalf("%q, %v", body, err)
			}
		}
		if slices.Equal(c.status().Primaries, before) {
			break
		}
	}
	for _, r := range relays {
		if n := r.requests.Load(); n != 0 && n != 10 {
			t.Errorf("%s got %d of 30 requests", r.addr, n)
		}
	}
}

func TestTheServiceIsTheHostUnlessARelayMustKnowBetter(t *testing.T) {
	relays := newRelays(t, 1, nil)
	_, web := running(t, Config{Seeds: addrs(relays)})
	for address, want := range map[string]string{
		"http://billing/a": "GET billing /a ", "http://billing:80/a": "GET billing /a ", "http://billing.example.com/a": "GET  /a ",
	} {
		if body, _, err := get(web, address); err != nil || body != want {
			t.Errorf("%s: %q, %v", address, body, err)
		}
	}
	req, _ := http.NewRequest("GET", "http://billing/a", nil)
	req.Header.Set(wire.ServiceHeader, "search")
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "GET search /a " {
		t.Errorf("with the header: %q", body)
	}
	bare, err := web.Transport.RoundTrip(&http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: "billing", Path: "/a"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = bare.Body.Close()
	if req.Header.Get(wire.ServiceHeader) != "search" || req.URL.Scheme != "http" || resp.Request != req {
		t.Error("the request was changed")
	}
}

func TestARelayThatIsKilledCostsNoRequestThatMayBeRepeated(t *testing.T) {
	// Without a body: an answer that has begun cannot be asked for again.
	relays := newRelays(t, 6, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	c, web := running(t, Config{Seeds: addrs(relays)})
	settled(t, c, 5)
	traffic := load(t, func() error {
		_, _, err := get(web, "http://billing/a")
		return err
	})
	for range 2 {
		traffic.more(50)
		find(relays, c.status().Primaries[1]).kill()
	}
	traffic.more(50)
	traffic.stop()
}

// A relay that leaves in good order costs not even a request that may not be
// repeated: it reports which ones it has not seen.
func TestARelayThatLeavesCostsNoRequestAtAll(t *testing.T) {
	relays := newRelays(t, 6, nil)
	c, web := running(t, Config{Seeds: addrs(relays)})
	settled(t, c, 5)
	traffic := load(t, func() error {
		resp, err := web.Post("http://billing/a", "text/plain", strings.NewReader("seven"))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && string(body) != "POST billing /a seven" {
			err = fmt.Errorf("got %q", body)
		}
		return err
	})
	for range 3 {
		traffic.more(50)
		find(relays, c.status().Primaries[0]).leave()
	}
	traffic.more(50)
	traffic.stop()
	for _, p := range c.status().Peers {
		if p.Consecutive > 0 && p.Reason == "" {
			t.Errorf("%s is blamed for leaving: %+v", p.ID, p)
		}
	}
}

func TestTheOnlyRelayMayRestart(t *testing.T) {
	r := newRelayAt(t, procs.FreeAddr(t), nil)
	c, web := running(t, Config{Seeds: []string{r.addr}})
	settled(t, c, 1)
	if _, _, err := get(web, "http://billing/a"); err != nil {
		t.Fatal(err)
	}
	r.kill()
	eventually(t, c, "the relay is gone", func(s relaypool.Status) bool { return len(s.Primaries) == 0 && s.Peers[0].Health == relaypool.Out })
	_, _, err := get(web, "http://billing/a")
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, relaypool.ErrUnavailable) || !strings.Contains(err.Error(), r.addr) || !strings.Contains(err.Error(), "is tried again in") {
		t.Errorf("while it is gone: %v", err)
	}
	newRelayAt(t, r.addr, nil)
	settled(t, c, 1)
	if _, _, err := get(web, "http://billing/a"); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

func TestWhatIsSafeIsRepeatedAndWhatIsNotIsNot(t *testing.T) {
	// Two of three relays break every connection in the middle of a request.
	broken := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		panic(http.ErrAbortHandler)
	}
	for _, c := range []struct {
		name    string
		method  string
		body    io.Reader
		key     bool
		refused string
	}{
		{"GET", "GET", nil, false, ""},
		{"DELETE", "DELETE", nil, false, ""},
		{"PUT with a body that can be read again", "PUT", strings.NewReader("seven"), false, ""},
		{"PUT with one that cannot", "PUT", stream("seven"), false, refusedUnsafe},
		{"POST", "POST", strings.NewReader("seven"), false, refusedUnsafe},
		{"POST with an idempotency key", "POST", strings.NewReader("seven"), true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			good := newRelay(t, nil)
			relays := append(newRelays(t, 2, broken), good)
			cl, web := running(t, Config{Seeds: addrs(relays)})
			settled(t, cl, 3)
			want := c.method + " billing /a "
			if c.body != nil {
				want += "seven"
			}
			req, err := http.NewRequest(c.method, "http://billing/a", c.body)
			if err != nil {
				t.Fatal(err)
			}
			if c.key {
				req.Header.Set("Idempotency-Key", "1")
			}
			failures := 0
			for range 3 { // so that each relay has its turn
				if req.GetBody != nil {
					req.Body, _ = req.GetBody()
				} else if c.body != nil {
					req.Body = io.NopCloser(stream("seven"))
				}
				resp, err := web.Do(req)
				if err != nil {
					failures++
					if !strings.Contains(err.Error(), "client: 1 attempts: relay 127.0.0.1:") {
						t.Error(err)
					}
					continue
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(body) != want {
					t.Errorf("%q, %v", body, err)
				}
			}
			if c.refused == "" && failures > 0 || c.refused != "" && failures == 0 {
				t.Errorf("%d of 3 failed", failures)
			}
			if c.refused != "" && testutil.ToFloat64(cl.metrics.refused.WithLabelValues(c.refused)) != float64(failures) {
				t.Error("refused retries are not counted")
			}
			if c.refused == "" && testutil.ToFloat64(cl.metrics.retries.WithLabelValues(retryFailed)) == 0 {
				t.Error("retries are not counted")
			}
		})
	}
}

func TestAttemptsAndTheBudgetBoundRetriesAndTheErrorHasEveryAttempt(t *testing.T) {
	relays := newRelays(t, 3, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	tries := func(cfg Config, requests int) (int64, *Client, error) {
		for _, r := range relays {
			r.requests.Store(0)
		}
		cfg.Seeds = addrs(relays)
		c, web := running(t, cfg)
		settled(t, c, 3)
		var last error
		for range requests {
			_, _, last = get(web, "http://billing/a")
		}
		var n int64
		for _, r := range relays {
			n += r.requests.Load()
		}
		return n, c, last
	}
	n, c, err := tries(Config{}, 1)
	if n != 5 || testutil.ToFloat64(c.metrics.refused.WithLabelValues(refusedAttempts)) != 1 {
		t.Errorf("%d attempts by default", n)
	}
	for _, r := range relays {
		if err == nil || !strings.Contains(err.Error(), "client: 5 attempts") || !strings.Contains(err.Error(), "relay "+r.addr) {
			t.Errorf("not in the error: %s: %v", r.addr, err)
		}
	}
	if n, _, _ := tries(Config{Attempts: 2}, 1); n != 2 {
		t.Errorf("%d attempts with Attempts 2", n)
	}
	if n, c, _ := tries(Config{RetryBudget: -1}, 1); n != 1 || testutil.ToFloat64(c.metrics.refused.WithLabelValues(refusedBudget)) != 1 {
		t.Errorf("%d attempts without a budget", n)
	}
	// The reserve, and one retry for every five requests.
	if n, _, _ := tries(Config{}, 200); n < 200+savings || n > 200+savings+40 {
		t.Errorf("%d attempts for 200 requests that all fail", n)
	}
	if n, _, _ := tries(Config{RetryBudget: 1}, 200); n < 200+savings+190 {
		t.Errorf("%d attempts with a budget of 1", n)
	}
}

func TestARelayThatHangsIsEvictedAndACallerThatLeavesBlamesNoRelay(t *testing.T) {
	var mu sync.Mutex
	hung := ""
	release := make(chan struct{})
	defer close(release)
	relays := newRelays(t, 3, nil)
	for _, r := range relays {
		answer := r.server.Handler
		r.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			mu.Lock()
			hangs := hung == r.addr
			mu.Unlock()
			if hangs {
				<-release
			}
			answer.ServeHTTP(w, req)
		})
	}
	c, web := running(t, Config{Seeds: addrs(relays)})
	settled(t, c, 3)
	mu.Lock()
	hung = c.status().Primaries[0]
	mu.Unlock()
	request := func(ctx context.Context) error {
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://billing/a", nil)
		resp, err := web.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	for range 12 { // four of them to the one that hangs
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Millisecond, func() { cancel(errTired) })
		_ = request(ctx)
	}
	for _, p := range c.status().Peers {
		if p.Health == relaypool.Out || p.Consecutive != 0 {
			t.Errorf("the caller went away, and %+v is blamed", p)
		}
	}
	// On a busy machine another relay may be evicted first; until it is back, no second one is evicted.
	eventually(t, c, "the relay that hangs is evicted", func(s relaypool.Status) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_ = request(ctx)
		cancel()
		for _, p := range s.Peers {
			if p.ID == hung && p.Health == relaypool.Out {
				return true
			}
		}
		return false
	})
}

func TestAKeySticksToItsRelay(t *testing.T) {
	relays := newRelays(t, 6, nil)
	c, web := running(t, Config{Seeds: addrs(relays)})
	settled(t, c, 5)
	used := map[string]bool{}
	for session := range 6 {
		first := ""
		for range 4 {
			ctx := WithKey(t.Context(), fmt.Sprint("session-", session))
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://billing/a", nil)
			resp, err := web.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			from := resp.Header.Get("Relay")
			if used[from] = true; first == "" {
				first = from
			}
			if from != first {
				t.Errorf("session %d went to %s and to %s", session, first, from)
			}
		}
	}
	if len(used) != 3 {
		t.Errorf("%d relays were used by 6 sessions", len(used))
	}
}

func TestRelaysLearnTheKey(t *testing.T) {
	relays := newRelays(t, 3, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get(wire.KeyHeader)) })
	c, web := running(t, Config{Seeds: addrs(relays)})
	settled(t, c, 3)
	for _, keys := range []struct{ context, header, want string }{
		{"", "", ""}, {"a", "", "a"}, {"", "b", "b"}, {"a", "b", "a"},
	} {
		req, _ := http.NewRequestWithContext(WithKey(t.Context(), keys.context), "GET", "http://billing/a", nil)
		if keys.header != "" {
			req.Header.Set(wire.KeyHeader, keys.header)
		}
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != keys.want || req.Header.Get(wire.KeyHeader) != keys.header {
			t.Errorf("%+v: the relay learns %q", keys, body)
		}
	}
	if n := c.status().Bindings; n != 2 {
		t.Errorf("%d keys stick, want a and b", n)
	}
}

func TestManyRequestsShareFewConnectionsOverHTTP2AndTakeTurnsOverHTTP1(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		gate := make(chan struct{})
		relays := newRelays(t, 1, func(http.ResponseWriter, *http.Request) { <-gate })
		c, web := running(t, Config{Seeds: addrs(relays), HTTP1: http1, Attempts: 1})
		settled(t, c, 1)
		var callers sync.WaitGroup
		var mu sync.Mutex
		var failed []error
		for range 20 {
			callers.Go(func() {
				if _, _, err := get(web, "http://billing/a"); err != nil {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				}
			})
		}
		want, exhausted := 20, 0 // one connection carries them all
		if http1 {
			want, exhausted = 5, 15 // five connections, and the limit
		}
		eventually(t, c, fmt.Sprintf("%d requests are under way", want), func(s relaypool.Status) bool {
			return s.Peers[0].InFlight == want && relays[0].requests.Load() == int64(want)
		})
		if !http1 && c.status().Connections.Total() != 1 {
			t.Errorf("connections: %+v", c.status().Connections)
		}
		if http1 {
			eventually(t, c, "the others are refused", func(relaypool.Status) bool {
				mu.Lock()
				defer mu.Unlock()
				return len(failed) == exhausted
			})
		}
		close(gate)
		callers.Wait()
		if len(failed) != exhausted {
			t.Errorf("HTTP1 %v: %d failed: %v", http1, len(failed), failed)
		}
		for _, err := range failed {
			if !errors.Is(err, ErrOverloaded) || errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "connection pool exhausted") {
				t.Error(err)
			}
		}
		eventually(t, c, "nothing is under way", func(s relaypool.Status) bool { return s.Peers[0].InFlight == 0 })
	}
}

func TestOverHTTP1ConnectionsAreUsedAgain(t *testing.T) {
	relays := newRelays(t, 3, nil)
	c, web := running(t, Config{Seeds: addrs(relays), HTTP1: true})
	before := settled(t, c, 3)
	for range 60 {
		if _, _, err := get(web, "http://billing/a"); err != nil {
			t.Fatal(err)
		}
	}
	if after := c.status(); after.Connections.Total() != 3 || fmt.Sprint(after.Primaries) != fmt.Sprint(before.Primaries) {
		t.Errorf("before %v, after %v with %+v", before.Primaries, after.Primaries, after.Connections)
	}
}

func TestAnUpgradedConnectionCarriesBothWays(t *testing.T) {
	relays := newRelays(t, 1, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		line, _ := both.ReadString('\n')
		_, _ = both.WriteString("echo " + line)
		_ = both.Flush()
	})
	c, web := running(t, Config{Seeds: addrs(relays), HTTP1: true})
	req, _ := http.NewRequest("GET", "http://chat/", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	both, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("status %d, the body is a %T", resp.StatusCode, resp.Body)
	}
	fmt.Fprintln(both, "hello")
	if line, err := bufio.NewReader(both).ReadString('\n'); err != nil || line != "echo hello\n" {
		t.Errorf("%q, %v", line, err)
	}
	both.Close()
	eventually(t, c, "its place is given back", func(s relaypool.Status) bool { return s.Peers[0].InFlight == 0 })
}

func TestOverTLSTheRelayIsChecked(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.TLS != nil)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	_, web := running(t, Config{Seeds: []string{server.Listener.Addr().String()}, TLS: &tls.Config{RootCAs: roots, ServerName: "example.com"}})
	if body, _, err := get(web, "http://billing/a"); err != nil || body != "HTTP/2.0 true" {
		t.Errorf("%q, %v", body, err)
	}
	_, web = running(t, Config{Seeds: []string{server.Listener.Addr().String()}, TLS: &tls.Config{RootCAs: roots, ServerName: "relay.example"}})
	if _, _, err := get(web, "http://billing/a"); err == nil || !strings.Contains(err.Error(), "certificate is valid for") {
		t.Errorf("with another name: %v", err)
	}
}

func TestAResponseBodyHoldsItsPlaceUntilItEnds(t *testing.T) {
	relays := newRelays(t, 1, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "a long answer")
		w.(http.Flusher).Flush()
		if r.URL.Path == "/endless" {
			<-r.Context().Done()
		}
	})
	c, web := running(t, Config{Seeds: addrs(relays)})
	inFlight := func() int { return c.status().Peers[0].InFlight }
	for path, end := range map[string]func(io.ReadCloser){
		"/":        func(b io.ReadCloser) { _, _ = io.ReadAll(b) },
		"/endless": func(b io.ReadCloser) { b.Close(); b.Close() },
	} {
		resp, err := web.Get("http://billing" + path)
		if err != nil {
			t.Fatal(err)
		}
		if n := inFlight(); n != 1 {
			t.Errorf("%s: %d in flight before the body ends", path, n)
		}
		end(resp.Body)
		if n := inFlight(); n != 0 {
			t.Errorf("%s: %d in flight after", path, n)
		}
		resp.Body.Close()
	}
	req, _ := http.NewRequest("HEAD", "http://billing/", nil)
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); inFlight() != 0 {
		t.Errorf("HEAD: %d in flight", inFlight())
	}
}

func TestWithoutRunARequestIsAnError(t *testing.T) {
	cfg := relaypool.DefaultConfig()
	cfg.Selector, cfg.ConnectTimeout = "test", 50*time.Millisecond
	c, err := New(Config{Seeds: []string{"127.0.0.1:1"}, pool: &cfg})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	req, _ := http.NewRequest("POST", "http://billing/a", struct {
		io.Reader
		io.Closer
	}{strings.NewReader("x"), closer(func() { closed = true })})
	if _, err := c.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "is Run running?") {
		t.Errorf("got %v", err)
	}
	if !closed {
		t.Error("the body was not closed")
	}
}

func TestAClientRunsOnce(t *testing.T) {
	relays := newRelays(t, 1, nil)
	c, web := running(t, Config{Seeds: addrs(relays)})
	settled(t, c, 1)
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "runs once") {
		t.Errorf("a second Run: %v", err)
	}
	if _, _, err := get(web, "http://billing/a"); err != nil {
		t.Errorf("the first Run: %v", err)
	}
}

func TestAClientUsesTheConfiguredNumberOfRelays(t *testing.T) {
	relays := newRelays(t, 5, nil)
	c, _ := running(t, Config{Seeds: addrs(relays), Primaries: 1, Backups: -1})
	settled(t, c, 1)
	if s := c.status(); len(s.Primaries) != 1 || s.Connections.Total() != 1 {
		t.Errorf("primaries %v, connections %+v", s.Primaries, s.Connections)
	}
}

type closer func()

func (c closer) Close() error { c(); return nil }

func TestEveryBadSettingIsReportedInOneError(t *testing.T) {
	_, err := New(Config{Seeds: []string{"relay:x"}, Attempts: -1, RetryBudget: 2, RefreshJitter: -1, Primaries: -1})
	for _, part := range []string{
		`seed "relay:x"`, "Attempts is -1, allowed is 1 to 100", "RetryBudget is 2", "RefreshJitter are 0s and -1ns",
		"pool: Primaries is",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("not in the error: %s\n%v", part, err)
		}
	}
	registry := prometheus.NewRegistry()
	if _, err := New(Config{Seeds: []string{"127.0.0.1:1"}, Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
