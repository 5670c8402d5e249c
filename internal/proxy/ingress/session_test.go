package ingress_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// key signs; the empty one is none.
type key string

func (k key) Sign(message []byte) []byte {
	if k == "" {
		return nil
	}
	h := hmac.New(sha256.New, []byte(k))
	_, _ = h.Write(message)
	return h.Sum(nil)
}

func (k key) Verify(message, mac []byte) bool { return k != "" && hmac.Equal(k.Sign(message), mac) }

// tokenFor is a token as the format is described, made without the code that is tested.
func tokenFor(k key, service, node string, expires time.Time) string {
	tag := sha256.Sum256([]byte("ringway session\x00" + service + "\x00"))
	endpoint := sha256.Sum256([]byte("ringway session\x00" + service + "\x00" + node))
	body := append(binary.BigEndian.AppendUint64([]byte{1}, uint64(expires.Unix())), tag[:8]...)
	body = append(body, endpoint[:16]...)
	return base64.RawURLEncoding.EncodeToString(append(body, k.Sign(append([]byte("ringway session cookie\x00"), body...))...))
}

// sticky is a trial whose service has the cookie sid, and which counts what becomes of it.
func sticky(t *testing.T, k ingress.CookieKeys, behind func(int64, http.ResponseWriter, *http.Request), change func(*ingress.Config)) *trial {
	t.Helper()
	registry := prometheus.NewRegistry()
	x := try(t, 8, behind, func(c *ingress.Config) {
		c.Cookies = ingress.NewCookies(ingress.CookieConfig{Names: map[string]string{"echo": "sid"}, Keys: k, Registerer: registry})
		change(c)
	})
	x.registry = registry
	return x
}

func (x *trial) event(name string) int { return x.count("ringway_relay_session_cookies_total", name) }

// visit sends a request with these cookies. It returns the worker that answered and the
// cookie that came with the answer.
func (x *trial) visit(method string, cookies ...string) (node, set string, resp *http.Response) {
	x.t.Helper()
	var headers []string
	if len(cookies) > 0 {
		headers = []string{"Cookie: " + strings.Join(cookies, "; ")}
	}
	resp, _ = x.send(method, strings.Repeat("body ", 10_000), headers...)
	if resp.StatusCode != http.StatusOK {
		x.t.Fatalf("%s %v", resp.Status, resp.Header)
	}
	for _, c := range resp.Cookies() {
		if c.Name == "sid" {
			set = c.Value
		}
	}
	return resp.Header.Get(wire.EndpointHeader), set, resp
}

// reroute publishes a route whose endpoints are changed; those for which change reports
// false are left out.
func (f *front) reroute(change func(*routing.Target) (keep bool)) {
	f.t.Helper()
	route := *f.Route()
	route.Range = nil
	for _, target := range f.Route().Range {
		changed := *target
		if change(&changed) {
			route.Range = append(route.Range, &changed)
		}
	}
	if err := f.SetRoute(&route, f.now()); err != nil {
		f.t.Fatal(err)
	}
}

func unchanged(*ingress.Config) {}

func answers(_ int64, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	w.Header().Set("Seen-Cookie", r.Header.Get("Cookie"))
	w.Header().Set("Seen-Bytes", strconv.Itoa(len(body)))
	w.Header().Add("Set-Cookie", "own=1")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

func TestRequestsWithASessionCookieStayAtOneWorkerThroughEveryRelay(t *testing.T) {
	first, second := sticky(t, key("k"), answers, unchanged), sticky(t, key("k"), answers, unchanged)
	home, sid, resp := first.visit("GET")
	if got := resp.Header.Values("Set-Cookie"); len(got) != 2 || got[0] != "own=1" || got[1] != "sid="+sid+"; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax" {
		t.Errorf("%q", got)
	}
	for i := range 40 {
		x, method := []*trial{first, second}[i%2], []string{"GET", "POST"}[i/2%2]
		node, again, resp := x.visit(method, "other=a=b", "sid="+sid, "sid2=c")
		if node != home || again != "" {
			t.Fatalf("%s %d went to %s, the first request to %s; a new cookie %q", method, i, node, home, again)
		}
		if resp.Header.Get("Seen-Bytes") != "50000" || resp.Header.Get("Seen-Cookie") != "other=a=b; sid="+sid+"; sid2=c" {
			t.Fatalf("the worker saw %v", resp.Header)
		}
	}
	if a, b := first.event("accepted"), second.event("accepted"); a != 20 || b != 20 || first.event("issued") != 1 || second.event("issued") != 0 {
		t.Errorf("%d and %d accepted, %d and %d issued", a, b, first.event("issued"), second.event("issued"))
	}
}

func TestASessionCookieThatDoesNotCountIsReplacedWithTheAnswer(t *testing.T) {
	x := sticky(t, key("k"), answers, unchanged)
	soon := time.Now().Add(time.Hour)
	for reason, value := range map[string]string{
		"malformed": "w1", "signature": tokenFor("other", "echo", "w1", soon), "service": tokenFor("k", "billing", "w1", soon),
		"expired": tokenFor("k", "echo", "w1", time.Now().Add(-time.Second)), "endpoint_gone": tokenFor("k", "echo", "w99", soon),
	} {
		before := x.event("issued")
		node, sid, _ := x.visit("GET", "sid="+value)
		if sid == "" || x.event(reason) != 1 || x.event("issued") != before+1 {
			t.Errorf("%s: counted %d, a new cookie %q", reason, x.event(reason), sid)
		}
		if again, replaced, _ := x.visit("GET", "sid="+sid); again != node || replaced != "" {
			t.Errorf("%s: the new cookie leads from %s to %s", reason, node, again)
		}
	}
	// One that is used is renewed, and the session stays.
	for range 10 {
		if node, sid, _ := x.visit("GET", "sid="+tokenFor("k", "echo", "w3", soon)); node != "w3" || sid == "" {
			t.Errorf("to %s, a new cookie %q", node, sid)
		}
	}
	// The first good one counts, of a few.
	good, bad := "sid="+tokenFor("k", "echo", "w5", time.Now().Add(23*time.Hour)), "sid=bad"
	if node, sid, _ := x.visit("GET", bad, bad, bad, good); node != "w5" || sid != "" {
		t.Errorf("to %s, a new cookie %q", node, sid)
	}
	if _, sid, _ := x.visit("GET", bad, bad, bad, bad, good); sid == "" {
		t.Error("a fifth cookie was looked at")
	}
}

func TestASessionMovesOnceWhenItsWorkerIsGone(t *testing.T) {
	x := sticky(t, key("k"), answers, unchanged)
	home, sid, _ := x.visit("GET")
	x.reroute(func(target *routing.Target) bool {
		if target.Node == home {
			target.ID = home + ".2" // it has restarted
		}
		return true
	})
	if node, next, _ := x.visit("GET", "sid="+sid); node != home || next != "" {
		t.Fatalf("a restart moves the session from %s to %s, a new cookie %q", home, node, next)
	}
	x.reroute(func(target *routing.Target) bool { return target.Node != home })
	moved, next, _ := x.visit("GET", "sid="+sid)
	if moved == home || next == "" || x.event("endpoint_gone") != 1 {
		t.Fatalf("from %s to %s, a new cookie %q", home, moved, next)
	}
	for range 10 {
		if node, again, _ := x.visit("POST", "sid="+next); node != moved || again != "" {
			t.Fatalf("from %s to %s, a new cookie %q", moved, node, again)
		}
	}
}

func TestASessionLeavesAWorkerThatFailsAndOneThatIsEvicted(t *testing.T) {
	sid := tokenFor("k", "echo", "w2", time.Now().Add(23*time.Hour))
	x := sticky(t, key("k"), func(n int64, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			breakOff(n, w, r)
		}
		answers(n, w, r)
	}, unchanged)
	// A GET, as one with a body is not repeated: the second attempt is answered.
	resp, _ := x.send("GET", "", "Cookie: sid="+sid)
	if resp.StatusCode != http.StatusOK || resp.Header.Get(wire.EndpointHeader) == "w2" || resp.Header.Get(wire.AttemptsHeader) != "2" || x.event("issued") != 1 || x.event("accepted") != 1 {
		t.Errorf("%s %v, issued %d", resp.Status, resp.Header, x.event("issued"))
	}
	x.awaitInFlight(0)
	for range 10 { // enough failures in a row
		pick, err := x.Endpoints.Take("w2.1", x.now())
		if err != nil {
			t.Fatal(err)
		}
		x.Endpoints.Done(pick, x.now(), selection.Result{Outcome: selection.Failure})
	}
	if x.Endpoints.Usable("w2.1", x.now()) {
		t.Fatal("the worker is not evicted: this test shows nothing")
	}
	if node, next, _ := x.visit("GET", "sid="+sid); node == "w2" || next == "" || x.event("endpoint_unusable") != 1 {
		t.Errorf("to %s, a new cookie %q", node, next)
	}
}

func TestASessionLeavesAWorkerThatHasNoRoom(t *testing.T) {
	x := sticky(t, key("k"), answers, unchanged)
	x.reroute(func(target *routing.Target) bool {
		target.Limit, target.Secured = 1, true // a sidecar would refuse one more
		return true
	})
	sid := tokenFor("k", "echo", "w2", time.Now().Add(23*time.Hour))
	if node, next, _ := x.visit("GET", "sid="+sid); node != "w2" || next != "" {
		t.Fatalf("to %s, a new cookie %q", node, next)
	}
	x.awaitInFlight(0)
	pick, err := x.Endpoints.Take("w2.1", x.now())
	if err != nil {
		t.Fatal(err)
	}
	defer x.Endpoints.Done(pick, x.now(), selection.Result{Outcome: selection.Success})
	if node, next, _ := x.visit("GET", "sid="+sid); node == "w2" || next == "" || x.event("endpoint_unusable") != 1 {
		t.Errorf("to %s, a new cookie %q", node, next)
	}
}

func TestWithoutASharedKeyNoCookieIsIssuedAndRequestsAreServed(t *testing.T) {
	x := sticky(t, key(""), answers, unchanged)
	if _, sid, _ := x.visit("GET"); sid != "" || x.event("no_key") != 1 {
		t.Errorf("%q, %d counted", sid, x.event("no_key"))
	}
	if _, sid, _ := x.visit("GET", "sid="+tokenFor("k", "echo", "w1", time.Now().Add(time.Hour))); sid != "" || x.event("no_key") != 3 || x.event("issued")+x.event("accepted")+x.event("signature") != 0 {
		t.Errorf("%q, %d counted", sid, x.event("no_key"))
	}
}

// A former key is accepted, and what it signed is signed anew.
type replacedKey struct{ now, before key }

func (k replacedKey) Sign(message []byte) []byte { return k.now.Sign(message) }
func (k replacedKey) Verify(message, mac []byte) bool {
	return k.now.Verify(message, mac) || k.before.Verify(message, mac)
}

func TestASessionOutlivesTheKeyThatItsCookieWasSignedWith(t *testing.T) {
	x := sticky(t, replacedKey{"now", "before"}, answers, unchanged)
	until := time.Now().Add(23 * time.Hour)
	node, sid, _ := x.visit("GET", "sid="+tokenFor("before", "echo", "w4", until))
	if node != "w4" || sid == "" {
		t.Fatalf("to %s, a new cookie %q", node, sid)
	}
	y := sticky(t, key("now"), answers, unchanged) // which has never heard of the former one
	if node, again, _ := y.visit("GET", "sid="+sid); node != "w4" || again != "" {
		t.Errorf("to %s, a new cookie %q", node, again)
	}
}

func TestASessionCookieIsSecureWhereTheClientSpeaksTLS(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for name, c := range map[string]struct {
		change func(*ingress.Config)
		proto  string
		want   bool
	}{
		"a client that says so":           {unchanged, "https", false},
		"a trusted proxy":                 {func(c *ingress.Config) { c.TrustedProxies = loopback }, "https", true},
		"a trusted proxy behind another":  {func(c *ingress.Config) { c.TrustedProxies = loopback }, "HTTPS, http", true},
		"a trusted proxy of clear text":   {func(c *ingress.Config) { c.TrustedProxies = loopback }, "http", false},
		"a trusted proxy that is silent":  {func(c *ingress.Config) { c.TrustedProxies = loopback }, "", false},
		"a relay whose client speaks TLS": {func(c *ingress.Config) { c.FromRelay = true }, "https", true},
		"a relay whose client does not":   {func(c *ingress.Config) { c.FromRelay = true }, "http", false},
	} {
		x := sticky(t, key("k"), answers, c.change)
		headers := []string{"Ringway-Hop: r9", "X-Forwarded-Proto: " + c.proto}
		if c.proto == "" {
			headers = nil
		}
		resp, _ := x.send("GET", "", headers...)
		var secure, found bool
		for _, one := range resp.Cookies() {
			if one.Name == "sid" {
				secure, found = one.Secure, true
			}
		}
		if !found || secure != c.want {
			t.Errorf("%s: %v", name, resp.Header["Set-Cookie"])
		}
	}

	x := sticky(t, key("k"), answers, unchanged)
	server := httptest.NewUnstartedServer(x.served)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	home := ""
	var sid *http.Cookie
	for range 20 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(wire.ServiceHeader, "echo")
		if sid != nil {
			req.AddCookie(&http.Cookie{Name: "a", Value: "b"})
			req.AddCookie(sid)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		for _, one := range resp.Cookies() {
			if one.Name == "sid" && sid == nil {
				sid, home = one, resp.Header.Get(wire.EndpointHeader)
			} else if one.Name == "sid" {
				t.Errorf("replaced: %v", one)
			}
		}
		if resp.ProtoMajor != 2 || sid == nil || !sid.Secure || resp.Header.Get(wire.EndpointHeader) != home {
			t.Fatalf("%s %v, home is %s", resp.Proto, resp.Header, home)
		}
	}
}

func TestOfTwoServicesOnlyTheOneWithACookieHasOne(t *testing.T) {
	registry := prometheus.NewRegistry()
	x := try(t, 8, answers, func(c *ingress.Config) {
		c.Cookies = ingress.NewCookies(ingress.CookieConfig{Names: map[string]string{"billing": "sid"}, Keys: key("k"), Registerer: registry})
	})
	seen := map[string]bool{}
	for range 100 {
		node, sid, _ := x.visit("GET", "sid="+tokenFor("k", "echo", "w1", time.Now().Add(time.Hour)))
		if seen[node] = true; sid != "" {
			t.Fatalf("a cookie %q", sid)
		}
	}
	if len(seen) == 1 {
		t.Errorf("all requests went to %v", seen)
	}
}

func TestADecisionByASessionCookieIsExplained(t *testing.T) {
	log := &logtest.Log{}
	x := sticky(t, key("k"), answers, func(c *ingress.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	x.visit("GET", "sid="+tokenFor("k", "echo", "w1", time.Now().Add(23*time.Hour)))
	if !strings.Contains(log.String(), "winner=w1") || !strings.Contains(log.String(), "the session cookie of the request names it") {
		t.Errorf("%s", log)
	}
}
