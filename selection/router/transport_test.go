package router_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/router"
)

// proxy serves clients by a router, as a program would.
func proxy(t *testing.T, service string, through http.RoundTripper) *httptest.Server {
	server := httptest.NewServer(&httputil.ReverseProxy{Transport: through, ErrorHandler: router.ServeError, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: service})
		r.SetXForwarded()
	}})
	t.Cleanup(server.Close)
	return server
}

// service answers what the tests of this file ask for.
func service(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/echo":
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s", body, r.Trailer.Get("Sum"), r.Header.Get("X-Forwarded-For"))
	case "/trailers":
		w.Header().Set("Trailer", "Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("Sum", "42")
	case "/fields":
		_, _ = fmt.Fprintf(w, "%q %q", r.Header["Ringway-Caller"], r.Header["Ringway-Service"])
	case "/early":
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "late")
	case "/drip":
		_ = http.NewResponseController(w).EnableFullDuplex()
		for i := range 3 {
			_, _ = fmt.Fprintln(w, i)
			_ = http.NewResponseController(w).Flush()
			if i < 2 {
				_, _ = r.Body.Read(make([]byte, 1))
			}
		}
	case "/break":
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "/hang":
		<-r.Context().Done()
	case "/refuse":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTeapot)
	case "/tunnel":
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		for line, err := rw.ReadString('\n'); err == nil; line, err = rw.ReadString('\n') {
			_, _ = io.WriteString(conn, strings.ToUpper(line))
		}
	}
}

func TestATransportCarriesWhatARelayCarries(t *testing.T) {
	t.Parallel()
	for name, insecure := range map[string]bool{"certificates": false, "clear text": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, fleet.Config{Insecure: insecure})
			c.relay("relay-1", nil)
			c.workers("echo", same(3, service)...)
			r := c.router("relay-2", nil)
			c.knows(r, "echo")
			server := proxy(t, "echo", r)
			ask := func(t *testing.T, req *http.Request) (*http.Response, string) {
				t.Helper()
				resp, err := server.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp, string(body)
			}
			request := func(method, path string, body io.Reader) *http.Request {
				req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, body)
				if err != nil {
					t.Fatal(err)
				}
				return req
			}

			t.Run("a body of known length", func(t *testing.T) {
				if _, body := ask(t, request("POST", "/echo", strings.NewReader("hello"))); body != "hello  127.0.0.1" {
					t.Errorf("%q", body)
				}
			})
			t.Run("a large body of unknown length", func(t *testing.T) {
				large := strings.Repeat("0123456789", 100_000)
				req := request("POST", "/echo", io.MultiReader(strings.NewReader(large)))
				if _, body := ask(t, req); body != large+"  127.0.0.1" {
					t.Errorf("%d bytes, ending with %q", len(body), body[max(0, len(body)-20):])
				}
			})
			t.Run("a field that the service did not send is not there", func(t *testing.T) {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://echo/refuse", nil)
				resp, err := r.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if values, found := resp.Header["Content-Type"]; found {
					t.Errorf("Content-Type %q", values)
				}
			})
			t.Run("a header cannot begin another line", func(t *testing.T) {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://echo/fields", nil)
				req.Header.Set("X-Note", "a\r\nRingway-Caller: admin")
				if resp, err := r.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
					t.Errorf("status %d", resp.StatusCode)
				}
			})
			t.Run("trailers of the request", func(t *testing.T) {
				req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://echo/echo", io.MultiReader(strings.NewReader("hello")))
				req.Trailer = http.Header{"Sum": {"7"}}
				resp, err := r.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if body, err := io.ReadAll(resp.Body); string(body) != "hello 7 " {
					t.Errorf("%q: %v", body, err)
				}
			})
			t.Run("trailers of the response", func(t *testing.T) {
				if resp, body := ask(t, request("GET", "/trailers", nil)); body != "body" || resp.Trailer.Get("Sum") != "42" {
					t.Errorf("%q %v", body, resp.Trailer)
				}
			})
			t.Run("HEAD has no body", func(t *testing.T) {
				if resp, body := ask(t, request("HEAD", "/trailers", nil)); resp.StatusCode != http.StatusOK || body != "" {
					t.Errorf("%d %q", resp.StatusCode, body)
				}
			})
			t.Run("a status without a body", func(t *testing.T) {
				if resp, _ := ask(t, request("GET", "/refuse", nil)); resp.StatusCode != http.StatusTeapot || resp.Header.Get("Retry-After") != "1" {
					t.Errorf("%d %v", resp.StatusCode, resp.Header)
				}
			})
			t.Run("a client of the program cannot name a caller or another service", func(t *testing.T) {
				req := request("GET", "/fields", nil)
				req.Header.Set("Ringway-Caller", "admin")
				req.Header.Set("Ringway-Service", "billing")
				if _, body := ask(t, req); strings.Contains(body, "admin") || strings.Contains(body, "billing") {
					t.Error(body)
				}
			})
			t.Run("both directions of a stream", func(t *testing.T) {
				in, out := io.Pipe()
				req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://echo/drip", in)
				resp, err := r.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				lines := bufio.NewReader(resp.Body)
				for i := range 3 {
					if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintln(i) {
						t.Fatalf("%q: %v", line, err)
					}
					if i < 2 {
						_, _ = io.WriteString(out, ".")
					}
				}
				_ = out.Close()
			})
			t.Run("a tunnel", func(t *testing.T) {
				req := request("GET", "/tunnel", nil)
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", "lines")
				resp, err := server.Client().Do(req)
				if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
					t.Fatal(resp, err)
				}
				both := resp.Body.(io.ReadWriteCloser)
				defer both.Close()
				_, _ = io.WriteString(both, "hello\n")
				if line, err := bufio.NewReader(both).ReadString('\n'); line != "HELLO\n" {
					t.Errorf("%q: %v", line, err)
				}
			})
			t.Run("a response that breaks off breaks off", func(t *testing.T) {
				resp, err := server.Client().Do(request("GET", "/break", nil))
				if err != nil {
					return // nothing was flushed before the connection ended
				}
				defer resp.Body.Close()
				if body, err := io.ReadAll(resp.Body); err == nil {
					t.Errorf("whole response: %q", body)
				}
			})
			t.Run("a program that leaves gets the error of its context", func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(50*time.Millisecond, leave)
				req, _ := http.NewRequestWithContext(ctx, "GET", "http://echo/hang", nil)
				if _, err := r.RoundTrip(req); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				superseded := errors.New("superseded") // as of errgroup
				caused, supersede := context.WithCancelCause(t.Context())
				time.AfterFunc(50*time.Millisecond, func() { supersede(superseded) })
				req, _ = http.NewRequestWithContext(caused, "GET", "http://echo/hang", nil)
				if _, err := r.RoundTrip(req); !errors.Is(err, superseded) {
					t.Error(err)
				}
				short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				req, _ = http.NewRequestWithContext(short, "GET", "http://echo/hang", nil)
				_, err := r.RoundTrip(req)
				if timeout := (interface{ Timeout() bool })(nil); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
					t.Error(err)
				}
				late := errors.New("too late")
				caused, supersede = context.WithCancelCause(t.Context())
				ctx = timerLate{caused, time.Now().Add(50 * time.Millisecond)}
				time.AfterFunc(100*time.Millisecond, func() { supersede(late) })
				req, _ = http.NewRequestWithContext(ctx, "GET", "http://echo/hang", nil)
				if _, err := r.RoundTrip(req); !errors.Is(err, late) {
					t.Error(err)
				}
				ctx = timerLate{t.Context(), time.Now().Add(-time.Minute)} // the clock was set forward
				req, _ = http.NewRequestWithContext(ctx, "GET", "http://echo/hang", nil)
				if _, err := r.RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		})
	}
}

// The relay that it forwards to knows the deadline as well, and may be the first to end the request.
func TestTheDeadlineOfAForwardedRequestIsAlwaysTheSameError(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("echo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w.Header().Set("X-Worker", "echo-0"); r.URL.Path == "/hang" {
			<-r.Context().Done()
		}
	}))
	r := c.router("gate-1", func(m *membership.Config, _ *router.Config) { m.Role = identity.RoleGate })
	c.knows(r, "echo", "echo-0")
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://echo/hang", nil)
		resp, err := r.RoundTrip(req)
		var refused *router.Error
		if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &refused) && !refused.Timeout() {
			t.Fatalf("request %d: %v, %v", i, resp, err)
		}
		cancel()
	}
}

// timerLate is the context of a program whose timer fires after its deadline.
type timerLate struct {
	context.Context
	deadline time.Time
}

func (c timerLate) Deadline() (time.Time, bool) { return c.deadline, true }

func TestAResponseThatIsClosedEarlyEndsTheRequest(t *testing.T) {
	t.Parallel()
	left := make(chan struct{}, 1)
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("endless", same(1, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
				break
			}
		}
		left <- struct{}{}
	})...)
	r := c.router("relay-2", nil)
	c.knows(r, "endless")
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://endless/", nil)
	resp, err := r.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	select {
	case <-left:
	case <-time.After(waitTime):
		t.Error("the service still sends")
	}
}

func TestErrorsNameTheRemedy(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("echo", same(1, service)...)
	r := c.router("relay-2", func(_ *membership.Config, cfg *router.Config) { cfg.RequestTimeout = 300 * time.Millisecond })
	c.knows(r, "echo")
	if err := r.WaitReady(t.Context()); err != nil { // before that, an unknown service may be one that is not known yet
		t.Fatal(err)
	}
	for _, each := range []struct {
		url    string
		is     error
		status int
	}{
		{"http://nowhere/", router.ErrUnknownService, http.StatusNotFound},
		{"http://echo/hang", context.DeadlineExceeded, http.StatusGatewayTimeout},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", each.url, nil)
		_, err := r.RoundTrip(req)
		var e *router.Error
		if !errors.Is(err, each.is) || !errors.As(err, &e) {
			t.Errorf("%s: %v", each.url, err)
		}
		w := httptest.NewRecorder()
		if router.ServeError(w, req, err); w.Code != each.status {
			t.Errorf("%s: answered with %d", each.url, w.Code)
		}
	}
	for _, url := range []string{"https://echo/", "http://echo:80/", "http:///"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.RoundTrip(req); err == nil {
			t.Errorf("%s was carried", url)
		}
	}
	if _, err := r.Pick(t.Context(), "nowhere", ""); !errors.Is(err, router.ErrUnknownService) {
		t.Error(err)
	}
}

// The workers advertise that a request may be repeated, and may take a minute.
func TestPoliciesOfTheProgramReplaceThoseOfTheWorkers(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	var broken atomic.Bool // a request is answered at its second worker
	for _, id := range []string{"echo-0", "echo-1"} {
		if err := c.StartWorker(fleet.WorkerConfig{ID: id, Services: []string{"echo"}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Worker", id)
			switch {
			case r.URL.Path == "/hang":
				<-r.Context().Done()
			case r.URL.Path == "/break" && !broken.Swap(true):
				panic(http.ErrAbortHandler)
			}
		}), Change: func(s *worker.Settings) { s.Services[0] += ";retry=idempotent;request-timeout=1m;attempt-timeout=50s" }}); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct {
		id, path, code string
		policies       map[string]advertise.Policy
	}{
		{"none", "/break", "", nil},
		{"all", "/break", "upstream_failed", map[string]advertise.Policy{"": {Retry: advertise.RetryNever}}},
		{"own", "/break", "", map[string]advertise.Policy{"": {Retry: advertise.RetryNever}, "echo": {Retry: advertise.RetryIdempotent}}},
		{"other", "/break", "", map[string]advertise.Policy{"news": {Retry: advertise.RetryNever}}},
		{"short", "/hang", "timeout", map[string]advertise.Policy{"echo": {RequestTimeout: 300 * time.Millisecond}}},
	}
	routers := map[string]*running{}
	for _, each := range cases {
		routers[each.id] = c.router(each.id, func(m *membership.Config, cfg *router.Config) {
			m.Role, m.ForwardAddr, cfg.Policies = identity.RoleObserver, "", each.policies
		})
	}
	for _, each := range cases {
		r := routers[each.id]
		c.knows(r, "echo", "echo-0", "echo-1")
		broken.Store(false)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://echo"+each.path, nil)
		resp, err := r.RoundTrip(req)
		code := ""
		if e, failed := errors.AsType[*router.Error](err); failed {
			code = e.Code
		} else if err != nil {
			t.Fatal(err)
		} else {
			_ = resp.Body.Close()
		}
		if code != each.code {
			t.Errorf("%s: the code is %q, want %q: %v", each.id, code, each.code, err)
		}
	}
	for _, r := range routers { // together, because each takes a second
		r.stop()
	}
	// It is also how long a request waits for the first offer.
	r := c.router("early", func(m *membership.Config, cfg *router.Config) {
		cfg.Policies = map[string]advertise.Policy{"news": {RequestTimeout: 50 * time.Millisecond}}
	})
	if err := r.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://news/", nil)
	began := time.Now()
	if _, err := r.RoundTrip(req); !errors.Is(err, router.ErrUnknownService) || time.Since(began) > waitTime/2 {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func TestErrorsReportAFullServiceAndOneWithoutWorkers(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	if err := c.StartWorker(fleet.WorkerConfig{ID: "echo-0", Services: []string{"echo"}, Handler: http.HandlerFunc(service), Change: func(s *worker.Settings) {
		s.Services[0] += ";slots=1"
	}}); err != nil {
		t.Fatal(err)
	}
	r := c.router("observer", func(m *membership.Config, cfg *router.Config) { m.Role, m.ForwardAddr = identity.RoleObserver, "" })
	c.knows(r, "echo")
	fails := func(want error) {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://echo/", nil)
		if _, err := r.RoundTrip(req); !errors.Is(err, want) {
			t.Errorf("a request: %v, want %v", err, want)
		}
		if _, err := r.Pick(t.Context(), "echo", ""); !errors.Is(err, want) {
			t.Errorf("a pick: %v, want %v", err, want)
		}
	}
	pick, err := r.Pick(t.Context(), "echo", "")
	for end := time.Now().Add(waitTime); errors.Is(err, selection.ErrFull) && time.Now().Before(end); pick, err = r.Pick(t.Context(), "echo", "") {
		time.Sleep(time.Millisecond) // the request of knows ends after its answer was read
	}
	if err != nil {
		t.Fatal(err)
	}
	fails(selection.ErrFull)
	pick.Done(selection.Success)
	if err := c.Drain("echo-0"); err != nil {
		t.Fatal(err)
	}
	for endpoints, changed := r.Endpoints("echo"); len(endpoints) > 0; endpoints, changed = r.Endpoints("echo") {
		select {
		case <-changed:
		case <-time.After(waitTime):
			t.Fatal("the worker stays")
		}
	}
	fails(selection.ErrNoEndpoint)
}

func TestARequestBeforeTheRouterKnowsTheServicesWaits(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("echo", same(1, service)...)
	alone := []string{procs.Refusing(t)} // no seed answers
	impatient := c.router("relay-2", func(m *membership.Config, cfg *router.Config) { m.Seeds, cfg.RequestTimeout = alone, time.Nanosecond })
	if _, err := impatient.Pick(t.Context(), "echo", ""); !errors.Is(err, router.ErrNotReady) {
		t.Error(err)
	}
	r := c.router("relay-4", nil)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://echo/echo", nil)
	resp, err := r.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := c.router("relay-5", func(m *membership.Config, _ *router.Config) { m.Seeds = alone }).WaitReady(gone); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "not joined") {
		t.Errorf("the error names not what the router waits for: %v", err)
	}
}

// The first of the two routers starts before any worker; the second knows one service when a
// request for another comes.
func TestARequestWaitsForTheFirstOfferOfItsService(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	for _, name := range []string{"first", "second"} {
		r := c.router(name, nil)
		if err := r.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Pick(t.Context(), name, ""); !errors.Is(err, router.ErrUnknownService) {
			t.Errorf("a pick before the first offer: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		early, _ := http.NewRequestWithContext(short, http.MethodGet, "http://"+name+"/echo", nil)
		if _, err := r.RoundTrip(early); err == nil {
			t.Error("a request was answered before the first offer")
		}
		cancel()
		answered := make(chan error, 1)
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+name+"/echo", nil)
			resp, err := r.RoundTrip(req)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
			if resp != nil {
				_ = resp.Body.Close()
			}
			answered <- err
		}()
		c.workers(name, same(1, service)...)
		if err := <-answered; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := c.router("impatient", func(_ *membership.Config, cfg *router.Config) { cfg.RequestTimeout = 100 * time.Millisecond })
	if err := r.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.knows(r, "first")
	never, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://nowhere/", nil)
	if _, err := r.RoundTrip(never); !errors.Is(err, router.ErrUnknownService) {
		t.Errorf("a service that is never offered: %v", err)
	}
}
