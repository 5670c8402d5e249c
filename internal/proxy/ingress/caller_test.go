package ingress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

type only struct{ service *routing.Service }

func (o only) Service(string) (*routing.Service, bool) { return o.service, true }

// What each way for a request to end means to the circuit of its caller: seven that end so,
// and then one that could be answered.
func TestOnlyWhatTheServiceFailsAtOpensACircuit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		open   bool
	}{
		"it answers":         {func(http.ResponseWriter, *http.Request) {}, false},
		"it says no":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, false},
		"it is broken":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, true},
		"it sheds load":      {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "1"); w.WriteHeader(503) }, false},
		"it is unavailable":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, true},
		"it hangs up":        {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"it breaks off":      {breakOff, true},
		"it takes too long":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, true},
		"the client is gone": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := httptest.NewUnstartedServer(c.answer)
			backend.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			backend.Start()
			defer backend.Close()
			timeout := time.Minute
			if name == "it takes too long" {
				timeout = 20 * time.Millisecond
			}
			h := guardedHandler(t, backend.Listener.Addr(), timeout)
			send := func(ctx context.Context) (status int) {
				r := httptest.NewRequestWithContext(ctx, "POST", "/", http.NoBody)
				r.Header.Set(wire.ServiceHeader, "echo")
				w := httptest.NewRecorder()
				defer func() {
					if recover() != nil {
						status = 0 // the answer broke off
					}
				}()
				h.ServeHTTP(w, r)
				return w.Code
			}
			for range 7 {
				ctx, cancel := context.WithCancel(t.Context())
				if name == "the client is gone" {
					time.AfterFunc(time.Millisecond, cancel)
				}
				send(ctx)
				cancel()
			}
			_, err := h.cfg.Circuits.Allow("192.0.2.1", "echo", "")
			if open := err != nil; open != c.open {
				t.Errorf("open: %v, want %v", open, c.open)
			}
		})
	}
}

// breakOff begins an answer and does not end it.
func breakOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte("not all of it"))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func guardedHandler(t *testing.T, addr net.Addr, timeout time.Duration) *Handler {
	t.Helper()
	pool, err := upstream.NewPool(upstream.Config{Address: addr.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	service, err := routing.NewService("echo", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := service.SetRoute(&routing.Route{Range: []*routing.Target{{ID: "w1.1", Node: "w1", Address: addr.String(), Weight: 1, Pool: pool}}}, 0); err != nil {
		t.Fatal(err)
	}
	cfg := circuit.DefaultConfig()
	cfg.Period = time.Hour
	circuits, err := circuit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Self: "r1", Services: only{service}, Epoch: time.Now(), Requests: Requests{Timeout: timeout, MaxAttempts: 1, MaxInFlight: 100},
		Circuits: circuits, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
}

func TestALongNameIsCut(t *testing.T) {
	tr := &request{from: fromFront, r: httptest.NewRequest("GET", "/", nil)}
	if got := tr.caller(); got != "" {
		t.Errorf("a proxy that names no caller: %q", got)
	}
	tr.r.Header.Set(wire.CallerHeader, strings.Repeat("x", 1000))
	if got := tr.caller(); len(got) != wire.MaxCaller {
		t.Errorf("%d bytes, want %d", len(got), wire.MaxCaller)
	}
}

// A caller that claims to be another must not be able to have that one refused.
func TestAClientCannotCloseTheServiceForAnother(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.WriteHeader(500)
		}
	}))
	defer backend.Close()
	h := guardedHandler(t, backend.Listener.Addr(), time.Minute)
	send := func(from, caller, path string) int {
		r := httptest.NewRequest("GET", path, http.NoBody)
		r.RemoteAddr = from
		r.Header.Set(wire.ServiceHeader, "echo")
		r.Header.Set(wire.CallerHeader, caller)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for range 20 {
		send("192.0.2.66:1000", "victim", "/broken")
	}
	for _, from := range []string{"192.0.2.1:1000", "[2001:db8::1]:1000"} {
		if status := send(from, "victim", "/"); status != 200 {
			t.Errorf("%s is answered %d because of what another client did in its name", from, status)
		}
	}
	if status := send("192.0.2.66:2000", "another", "/"); status != 503 {
		t.Errorf("the client that failed is answered %d under another name, want 503", status)
	}
}

func TestTheCallerIsWhatAProxyNamesOrTheClientsAddress(t *testing.T) {
	h := New(Config{Requests: Requests{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}}})
	for _, c := range []struct {
		remote    string
		names     []string
		certified string
		want      string
	}{
		{"192.0.2.1:80", []string{"web"}, "spiffe://shop.test/cart", "spiffe://shop.test/cart"},
		{"10.1.2.3:80", []string{"web"}, "proxy", "web"},
		{"10.1.2.3:80", nil, "proxy", ""},
		{"10.1.2.3:80", []string{"web"}, "", "web"},
		{"10.1.2.3:80", []string{"forged", "web"}, "", "web"},
		{"10.1.2.3:80", nil, "", ""},
		{"[::ffff:10.1.2.3]:80", []string{"web"}, "", "web"},
		{"[2001:db8:1::9]:80", []string{"web"}, "", "web"},
		{"192.0.2.1:80", []string{"web"}, "", "192.0.2.1"},
		{"[2001:db8:2:3:4::9]:80", []string{"web"}, "", "2001:db8:2:3::"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.certified != "" {
			r = r.WithContext(WithCaller(r.Context(), c.certified))
		}
		r.RemoteAddr = c.remote
		r.Header[wire.CallerHeader] = c.names
		tr := &request{from: h.originOf(r), r: r}
		if got := tr.caller(); got != c.want {
			t.Errorf("%s naming %q: %q, want %q", c.remote, c.names, got, c.want)
		}
	}
}

// upgraded is an answer that gives away its connection.
type upgraded struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (u upgraded) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return u.conn, bufio.NewReadWriter(bufio.NewReader(u.conn), bufio.NewWriter(u.conn)), nil
}

// A session may be open for days: until its end it would be the only probe.
func TestASessionThatStaysOpenDoesNotKeepACircuitOpen(t *testing.T) {
	t.Parallel()
	backend := procs.Listen(t)
	procs.Accept(t, backend, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	h := guardedHandler(t, backend.Addr(), time.Minute)
	service := h.cfg.Services.(only).service
	pool, err := upstream.NewPool(upstream.Config{Address: backend.Addr().String(), Protocol: advertise.TCP})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := service.SetRoute(&routing.Route{TCP: true, Range: []*routing.Target{{ID: "w1.1", Node: "w1", Address: backend.Addr().String(), Weight: 1, Pool: pool}}}, 0); err != nil {
		t.Fatal(err)
	}
	cfg := circuit.DefaultConfig()
	cfg.Period, cfg.Probes = 10*time.Millisecond, 2
	if h.cfg.Circuits, err = circuit.New(cfg); err != nil {
		t.Fatal(err)
	}
	for range 7 {
		ticket, err := h.cfg.Circuits.Allow("192.0.2.1", "echo", "")
		if err != nil {
			break
		}
		ticket.Done(selection.Failure)
	}

	var sessions sync.WaitGroup
	t.Cleanup(sessions.Wait) // after the cleanups that end them
	opens := func() bool {
		client, relays := net.Pipe()
		session := &Session{}
		r := httptest.NewRequestWithContext(WithSession(t.Context(), session), http.MethodGet, "/", http.NoBody)
		r.Header.Set(wire.ServiceHeader, "echo")
		r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{wire.UpgradeTCP}
		sessions.Go(func() {
			defer relays.Close()
			h.ServeHTTP(upgraded{httptest.NewRecorder(), relays}, r)
		})
		_, err := bufio.NewReader(client).ReadString('\n')
		if err != nil {
			return false
		}
		t.Cleanup(func() { _ = client.Close() }) // the sessions stay open until then
		return true
	}
	for n := range 3 {
		procs.Await(t, fmt.Sprintf("another session beside %d", n), opens)
	}
}

// Blocks and limits name a caller in one form.
func TestAnAddressIsOneCallerWhereverItIsNamed(t *testing.T) {
	proxied, certified := httptest.NewRequest("GET", "/", nil), httptest.NewRequest("GET", "/", nil)
	proxied.Header.Set(wire.CallerHeader, "2001:DB8::7")
	certified = certified.WithContext(WithCaller(t.Context(), "2001:db8:0::7"))
	for name, got := range map[string]string{
		"by a proxy": callerOf(proxied, fromFront), "in a certificate": callerOf(certified, fromClient), "in a block": sameCaller("2001:db8::7"),
	} {
		if got != "2001:db8::" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for text, want := range map[string]string{"fe80::1%eth0": "fe80::", "batch.example.com": "batch.example.com", "abc%20": "abc%20", "*": "*", "": ""} {
		if got := sameCaller(text); got != want {
			t.Errorf("%q is the caller %q, want %q", text, got, want)
		}
	}
}

func TestAnAnswerThatLastsDoesNotKeepACircuitOpen(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(backend.Close)
	h := guardedHandler(t, backend.Listener.Addr(), time.Minute)
	cfg := circuit.DefaultConfig()
	cfg.Period, cfg.Probes = 10*time.Millisecond, 2
	var err error
	if h.cfg.Circuits, err = circuit.New(cfg); err != nil {
		t.Fatal(err)
	}
	for range 7 {
		if ticket, err := h.cfg.Circuits.Allow("127.0.0.1", "echo", ""); err == nil {
			ticket.Done(selection.Failure)
		}
	}
	relay := httptest.NewServer(h)
	t.Cleanup(relay.Close)
	for n := range 3 {
		procs.Await(t, fmt.Sprintf("another stream beside %d", n), func() bool {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, relay.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(wire.ServiceHeader, "echo")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK {
				_ = resp.Body.Close()
				return false
			}
			t.Cleanup(func() { _ = resp.Body.Close() }) // the streams stay open until then
			return true
		})
	}
}
