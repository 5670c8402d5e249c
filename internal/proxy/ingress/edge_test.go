package ingress

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// hopOr is a handler at the edge, or behind another relay, that trusts proxies in
// 10.0.0.0/8, and what its worker saw last.
func hopOr(t *testing.T, hop bool) (*Handler, func() http.Header) {
	t.Helper()
	seen := make(chan http.Header, 1)
	backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	t.Cleanup(backend.Close)
	h := guardedHandler(t, backend.Listener.Addr(), time.Minute)
	h.cfg.FromRelay, h.cfg.Circuits, h.cfg.TrustedProxies = hop, nil, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	return h, func() http.Header { return <-seen }
}

func TestOnlyATrustedProxyNamesTheSourceOfARequest(t *testing.T) {
	said := http.Header{
		"X-Forwarded-For": {"198.51.100.7"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"shop.test"}, "X-Forwarded-Port": {"443"},
		"X-Forwarded-Prefix": {"/shop"}, "Forwarded": {"for=198.51.100.7"}, "X-Real-Ip": {"198.51.100.7"},
		"True-Client-Ip": {"198.51.100.7"}, "Cf-Connecting-Ip": {"198.51.100.7"}, "True_client_ip": {"203.0.113.9"},
		"X_forwarded_for": {"203.0.113.9"}, "X-Forwarded_for": {"203.0.113.9"}, "X_real_ip": {"203.0.113.9"},
		"Ringway-Caller": {"web"}, "Ringway_caller": {"web"}, "Ringway_load": {"9"}, "Ringway-Hop": {"r9"},
		"X-Forwarding": {"kept"}, "Forwarded-Twice": {"kept"}, "X-Other_header": {"kept"},
	}
	kept := http.Header{"X-Forwarding": {"kept"}, "Forwarded-Twice": {"kept"}, "X-Other_header": {"kept"}}
	with := func(more http.Header) http.Header {
		out := kept.Clone()
		maps.Copy(out, more)
		return out
	}
	proxied := with(http.Header{
		"X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"shop.test"}, "X-Forwarded-Port": {"443"},
		"X-Forwarded-Prefix": {"/shop"}, "Forwarded": {"for=198.51.100.7"}, "X-Real-Ip": {"198.51.100.7"},
		"True-Client-Ip": {"198.51.100.7"}, "Cf-Connecting-Ip": {"198.51.100.7"},
	})
	proxied["X-Forwarded-For"] = []string{"198.51.100.7, 10.0.0.1"}
	for _, c := range []struct {
		name, remote string
		hop          bool
		said, want   http.Header
		certified    string // by a certificate
	}{
		{"a client", "192.0.2.1:99", false, said, with(http.Header{"X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"example.com"}}), ""},
		{"a proxy", "10.0.0.1:99", false, said, proxied, ""},
		{"a proxy that says nothing", "10.0.0.1:99", false, nil, http.Header{"X-Forwarded-For": {"10.0.0.1"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"example.com"}}, ""},
		{"a client with a certificate", "192.0.2.1:99", false, said, with(http.Header{"X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"example.com"}, "Ringway-Caller": {"cart"}}), "cart"},
		{"a proxy with a certificate", "10.0.0.1:99", false, said, proxied, "proxy"},
		{"a relay that names the caller", "192.0.2.1:99", true, http.Header{"Ringway-Caller": {"cart"}, "Ringway_caller": {"web"}}, http.Header{"Ringway-Caller": {"cart"}}, ""},
		{"a relay", "192.0.2.1:99", true, http.Header{"X-Forwarded-For": {"198.51.100.7"}, "X-Forwarded-Proto": {"https"}, "X-Real-Ip": {"198.51.100.7"}, "Ringway-Hop": {"r9"}},
			http.Header{"X-Forwarded-For": {"198.51.100.7"}, "X-Forwarded-Proto": {"https"}, "X-Real-Ip": {"198.51.100.7"}}, ""},
	} {
		h, seen := hopOr(t, c.hop)
		r := httptest.NewRequest("GET", "http://example.com/", http.NoBody)
		if c.certified != "" {
			r = r.WithContext(WithCaller(r.Context(), c.certified))
		}
		maps.Copy(r.Header, c.said.Clone())
		r.RemoteAddr = c.remote
		r.Header.Set(wire.ServiceHeader, "echo")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got := seen(); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: the worker saw\n%v, want\n%v", c.name, got, c.want)
		}
	}
}

func TestARelayIsInViaOnlyIfThatIsConfiguredAndItHasTheClient(t *testing.T) {
	for _, c := range []struct {
		via, hop     bool
		major, minor int
		want         string
	}{
		{false, false, 1, 1, "[1.0 front]"}, {true, true, 2, 0, "[1.0 front]"},
		{true, false, 1, 0, "[1.0 front, 1.0 r1]"}, {true, false, 1, 1, "[1.0 front, 1.1 r1]"}, {true, false, 2, 0, "[1.0 front, 2.0 r1]"},
	} {
		before, seen := hopOr(t, c.hop)
		before.cfg.Self, before.cfg.Via = "r1", c.via
		h := New(before.cfg)
		r := httptest.NewRequest("GET", "http://example.com/", http.NoBody)
		r.ProtoMajor, r.ProtoMinor = c.major, c.minor
		r.Header.Set(wire.ServiceHeader, "echo")
		r.Header.Set("Via", "1.0 front")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got := fmt.Sprint(seen()["Via"]); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if got := viaValues("a b")[1]; got != "1.1 ringway" {
		t.Errorf("%q for an ID that is no token", got)
	}
}

// What went wrong is for operators: with the flag, and between relays if the first one
// asks for it.
func TestOnlyWhereDetailsAreExposedDoAnswersNameWorkersAndAddresses(t *testing.T) {
	pool, err := upstream.NewPool(upstream.Config{Address: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var log strings.Builder
	ask := func(method string, expose, hop, asked bool) string {
		service := known(t, "echo")
		if err := service.SetRoute(&routing.Route{Range: []*routing.Target{{ID: "w1.1", Node: "w1", Address: "127.0.0.1:1", Weight: 1, Pool: pool}}}, 0); err != nil {
			t.Fatal(err)
		}
		h := New(Config{
			Self: "r1", Services: only{service}, Epoch: time.Now(), Requests: Requests{Timeout: time.Minute, MaxAttempts: 2, MaxInFlight: 9, ExposeRouteHeaders: expose}, FromRelay: hop,
			Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		r := httptest.NewRequest(method, "/", http.NoBody)
		r.Header.Set(wire.ServiceHeader, "echo")
		if asked {
			r.Header.Set(wire.ExposeHeader, "1")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Body.String()
	}
	for _, c := range []struct {
		expose, hop, asked bool
		exposed            bool
	}{
		{exposed: false}, {expose: true, exposed: true}, {asked: true, exposed: false},
		{hop: true, exposed: false}, {hop: true, expose: true, exposed: false}, {hop: true, asked: true, exposed: true},
	} {
		body := ask("GET", c.expose, c.hop, c.asked)
		if !strings.Contains(body, `"code":"upstream_failed","service":"echo"`) {
			t.Fatalf("%+v: %s", c, body)
		}
		for _, inner := range []string{"w1", "127.0.0.1", "attempts", "refused"} {
			if strings.Contains(body, inner) != c.exposed {
				t.Errorf("%+v: %q is in the answer: %v\n%s", c, inner, !c.exposed, body)
			}
		}
	}
	if body := ask("CONNECT", false, false, false); !strings.Contains(body, `"code":"bad_request"`) || !strings.Contains(body, "CONNECT") || strings.Contains(body, "127.0.0.1") {
		t.Errorf("of a bad request: %s", body)
	}
	if !strings.Contains(log.String(), "w1") || !strings.Contains(log.String(), "127.0.0.1:1") {
		t.Errorf("the log lacks the details:\n%s", log.String())
	}
}

func TestAClientHasItsShareOfTheRelayAndNotTheOthers(t *testing.T) {
	entered, release := make(chan struct{}, 9), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	defer backend.Close()
	h := guardedHandler(t, backend.Listener.Addr(), time.Minute)
	h.cfg.Circuits, h.cfg.Clients, h.cfg.MaxInFlightPerClient, h.cfg.TrustedProxies = nil, NewClients(), 2, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	send := func(h *Handler, remote string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.RemoteAddr = remote
		r.Header.Set(wire.ServiceHeader, "echo")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	carried := make(chan int, 20)
	begin := func(h *Handler, remotes ...string) {
		for _, remote := range remotes {
			go func() { carried <- send(h, remote).Code }()
			<-entered
		}
	}
	begin(h, "192.0.2.1:1", "192.0.2.1:2", "[2001:db8::1]:1", "[2001:db8::2]:1", "10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3")
	for _, remote := range []string{"192.0.2.1:3", "[2001:db8::3]:1", "[::ffff:192.0.2.1]:1"} {
		if w := send(h, remote); w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"code":"client_limit"`) {
			t.Errorf("one more of %s: %d %v %s", remote, w.Code, w.Header(), w.Body)
		}
	}
	begin(h, "192.0.2.2:1", "[2001:db8:0:1::1]:1")
	if n := h.cfg.Clients.Len(); n != 4 {
		t.Errorf("%d clients are remembered, want those with a request in flight: 4", n)
	}
	hop := *h
	hop.cfg.FromRelay = true
	begin(&hop, "192.0.2.1:4", "192.0.2.1:5", "192.0.2.1:6") // a relay, for many clients
	close(release)
	codes := make([]int, 12)
	for i := range codes {
		codes[i] = <-carried
	}
	if slices.ContainsFunc(codes, func(code int) bool { return code != 200 }) {
		t.Errorf("answers to those that were let in: %v", codes)
	}
	if w := send(h, "192.0.2.1:7"); w.Code != 200 || h.cfg.Clients.Len() != 0 {
		t.Errorf("afterwards: %d, %d clients are remembered", w.Code, h.cfg.Clients.Len())
	}
}

// FuzzReservedNames holds the names that are dropped against what a service behind CGI
// makes of them.
func FuzzReservedNames(f *testing.F) {
	for _, name := range []string{"Ringway-Caller", "Ringway_caller", "X_forwarded-For", "X-Forwarded", "Forwarded", "X-Real_ip", "X-Real-Ip-2", "True-Client-Ip", "True_client_ip", "Cf-Connecting-Ip", "Client-Ip", "X-Client-Ip", "Ringway", "K"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		cgi := strings.Map(func(c rune) rune { // RFC 3875, section 4.1.18
			switch {
			case c == '-':
				return '_'
			case 'a' <= c && c <= 'z':
				return c &^ 0x20
			}
			return c
		}, name)
		if got, want := wire.Reserved(name), strings.HasPrefix(cgi, "RINGWAY_"); got != want {
			t.Errorf("%q reserved: %v, want %v", name, got, want)
		}
		want := strings.HasPrefix(cgi, "X_FORWARDED") || slices.ContainsFunc(origins[:], func(origin string) bool {
			return cgi == strings.ToUpper(strings.ReplaceAll(origin, "-", "_"))
		})
		if got := saysOrigin(name); got != want {
			t.Errorf("%q says an origin: %v, want %v", name, got, want)
		}
		if name == "" || http.CanonicalHeaderKey(name) != name {
			return // no key of a header
		}
		tr := &request{}
		if tr.drops(name) != (wire.Reserved(name) || want) {
			t.Errorf("%q is dropped: %v", name, tr.drops(name))
		}
	})
}
