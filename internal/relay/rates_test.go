package relay

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership/identity"
)

// passes sends requests until one is refused by a limit, and returns how many were carried before
// and the refusal.
func (r *runningRelay) passes(t *testing.T, headers ...string) (n int, refusal *http.Response, body string) {
	t.Helper()
	for {
		resp, body := r.call(t, "GET", "/", nil, headers...)
		switch {
		case resp.StatusCode == http.StatusTooManyRequests:
			return n, resp, body
		case resp.StatusCode != http.StatusOK || n > 100:
			t.Fatalf("answer %d is %s %s", n+1, resp.Status, body)
		}
		n++
	}
}

func TestEachRelayLetsItsShareOfALimitPass(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	limited := func(s *Settings) {
		s.Requests.RateLimits = []ingress.RateLimit{{Service: "echo", Rate: "1/h", Burst: 4}}
	}
	relays := []*runningRelay{f.relay(limited), f.relay(limited)}
	f.echo("w1")
	for _, r := range relays {
		r.settled(t, "echo", 1)
		r.await(t, "both relays in the plan", func() bool {
			s, _ := r.Routes.Service("echo")
			return s.Route().Share() == 0.5
		})
		n, refusal, body := r.passes(t, "Ringway-Service: echo")
		if n != 2 || !strings.Contains(body, `"code":"rate_limited"`) {
			t.Errorf("%d pass, then %s; want 2, half of the burst", n, body)
		}
		after, _ := strconv.Atoi(refusal.Header.Get("Retry-After")) // from the first request on
		if after < 7000 || after > 7200 {
			t.Errorf("Retry-After is %d s, want two hours less the time since the first request", after)
		}
		for field, want := range map[string]string{"Ratelimit-Policy": `"service";q=1;w=3600`, "Ratelimit": fmt.Sprintf(`"service";r=0;t=%d`, after)} {
			if got := refusal.Header.Get(field); got != want {
				t.Errorf("%s is %q, want %q", field, got, want)
			}
		}
		if got := logtest.Series(t, r.cfg.Registry, "ringway_relay_rejections_total")["rate_limited,echo"]; got != 1 {
			t.Errorf("%v refusals are counted, want 1", got)
		}
		if got := logtest.Series(t, r.cfg.Registry, "ringway_relay_rate_limited_requests_total")["service"]; got != 1 {
			t.Errorf("%v refusals of services are counted, want 1", got)
		}
	}
	r := relays[0]
	var x api.Explanation
	if status, _ := r.api(t, "/api/v1/services/echo/explain", &x); status != http.StatusOK {
		t.Fatalf("explain: %d", status)
	}
	if want := []api.RateLimit{{Of: "service", Rate: "1/h", Burst: 4, Share: 0.5, PerSecond: 0.5 / 3600, Refused: 1}}; !slices.Equal(x.RateLimits, want) {
		t.Errorf("explain has %+v, want %+v", x.RateLimits, want)
	}
	requests := *r.tuned.Load()
	r.tune(requests) // as a reload does
	if n, _, _ := r.passes(t, "Ringway-Service: echo"); n != 0 {
		t.Errorf("%d pass after a reload, which must not fill the bucket", n)
	}
	requests.RateLimits = nil
	r.tune(requests)
	if resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo"); resp.StatusCode != http.StatusOK {
		t.Errorf("without limits: %s %s", resp.Status, body)
	}
}

func TestTheRelayThatPicksTheWorkerCountsCallersAndRoutesOfRequestsThatAnotherForwards(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	limited := func(s *Settings) {
		s.TrustedProxies.Set("127.0.0.2/32")
		s.Requests.Routes = []ingress.Route{
			{PathPrefix: "/export", Service: "echo", Rate: "1/h", Burst: 1}, {PathPrefix: "/", Service: "echo"},
			{PathPrefix: "/bulk", Headers: map[string]string{"X-Tenant": "free"}, Service: "echo", Rate: "1/h", Burst: 1},
		}
		s.Requests.RateLimits = []ingress.RateLimit{
			{Service: "echo", Caller: "*", Rate: "1/h", Burst: 2},
			{Service: "*", Caller: "batch", Rate: "1/h", Burst: 5},
			{Service: "echo", Rate: "1/h", Burst: 20},
		}
	}
	relay := f.relay(limited)
	gate := f.relay(func(s *Settings) { limited(s); s.Role = identity.RoleGate })
	f.echo("w1")
	relay.settled(t, "echo", 1)
	gate.settled(t, "echo", 1)
	// The callers are distinguished by the addresses that they come from.
	ask := func(r *runningRelay, from, path string, headers ...string) (int, http.Header) {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}}
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.IngressAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode, resp.Header
	}
	passes := func(r *runningRelay, from, path string, headers ...string) (n int, policy string) {
		t.Helper()
		for {
			status, header := ask(r, from, path, headers...)
			if status == http.StatusTooManyRequests {
				return n, header.Get("RateLimit-Policy")
			}
			if n++; status != http.StatusOK || n > 100 {
				t.Fatalf("answer %d is %d", n, status)
			}
		}
	}
	for i, c := range []struct {
		via        *runningRelay
		from, path string
		headers    []string
		want       int
		policy     string
	}{
		{gate, "127.0.0.7", "/", nil, 2, `"caller";q=1;w=3600`},
		{relay, "127.0.0.7", "/", nil, 0, `"caller";q=1;w=3600`},                                      // the same caller, at the relay itself
		{gate, "127.0.0.8", "/", []string{"Ringway-Counted-Caller: batch"}, 2, `"caller";q=1;w=3600`}, // no client names itself
		{gate, "127.0.0.2", "/", []string{"Ringway-Caller: batch"}, 5, `"caller";q=1;w=3600`},
		{gate, "127.0.0.9", "/export/1", nil, 1, `"route";q=1;w=3600`},
		{gate, "127.0.0.11", "/bulk", []string{"X-Tenant: free", "Connection: X-Tenant"}, 1, `"route";q=1;w=3600`}, // no field that is not passed on evades it
		{gate, "127.0.0.12", "/export", []string{"Ringway-Counted-Route: -"}, 0, `"route";q=1;w=3600`},             // no client states what it counts for
		{gate, "127.0.0.9", "/", nil, 1, `"caller";q=1;w=3600`},                                                    // what the route refused is not counted for the caller
		{gate, "127.0.0.2", "/", nil, 8, `"service";q=1;w=3600`},                                                   // a proxy that names no caller: 20 less the 12 above
		{gate, "127.0.0.10", "/", nil, 0, `"service";q=1;w=3600`},
	} {
		if n, policy := passes(c.via, c.from, c.path, c.headers...); n != c.want || policy != c.policy {
			t.Errorf("row %d: %d pass by %s from %s, and then the policy is %s; want %d and %s", i, n, c.via.id, c.from, policy, c.want, c.policy)
		}
	}
	for r, share := range map[*runningRelay]float64{relay: 1, gate: 0} {
		want := []api.RateLimit{
			{Of: "caller", Subject: "*", Burst: 2}, {Of: "caller", Subject: "batch", Burst: 5}, {Of: "service", Burst: 20},
			{Of: "route", Subject: "{path_prefix: /export, service: echo, rate: 1/h, burst: 1}", Burst: 1},
			{Of: "route", Subject: "{path_prefix: /bulk, headers: {X-Tenant: free}, service: echo, rate: 1/h, burst: 1}", Burst: 1},
		}
		var x api.Explanation
		r.api(t, "/api/v1/services/echo/explain", &x)
		for i := range min(len(x.RateLimits), len(want)) {
			want[i].Rate, want[i].Share, want[i].PerSecond, want[i].Refused = "1/h", share, share/3600, x.RateLimits[i].Refused
		}
		if !slices.Equal(x.RateLimits, want) {
			t.Errorf("%s explains %+v, want %+v", r.id, x.RateLimits, want)
		}
	}
	if got := logtest.Series(t, gate.cfg.Registry, "ringway_relay_rate_limited_requests_total")["caller"]; got != 0 {
		t.Errorf("the gate has refused %v requests, and knows no share", got)
	}
	for _, peer := range gate.forwarding(t).Peers {
		if peer.Failures != 0 {
			t.Errorf("the gate blames %s for refusals: %+v", peer.Node, peer)
		}
	}
}

func TestAGRPCCallBeyondALimitGetsResourceExhausted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	limited := func(s *Settings) {
		s.Requests.RateLimits = []ingress.RateLimit{{Service: "echo", Rate: "1/h", Burst: 1}}
	}
	relay := f.relay(limited)
	gate := f.relay(func(s *Settings) { limited(s); s.Role = identity.RoleGate })
	f.echo("w1")
	relay.settled(t, "echo", 1)
	gate.settled(t, "echo", 1)
	if n, _, _ := relay.passes(t, "Ringway-Service: echo"); n != 1 {
		t.Fatalf("%d pass", n)
	}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: transport}
	t.Cleanup(client.CloseIdleConnections)
	for _, r := range []*runningRelay{relay, gate} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.IngressAddr()+"/shop.v1.Cart/Add", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Ringway-Service", "echo")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Grpc-Status") != "8" || after < 3000 || after > 3600 {
			t.Errorf("%s: %s %v", r.id, resp.Status, resp.Header)
		}
		if resp.Header.Get("Ratelimit-Policy") != `"service";q=1;w=3600` || resp.Header.Get("Ratelimit") != fmt.Sprintf(`"service";r=0;t=%d`, after) {
			t.Errorf("%s: %v", r.id, resp.Header)
		}
	}
}

func TestALimitThatMakesNoSenseIsRefused(t *testing.T) {
	s := DefaultSettings()
	set := settings.New("relay", "RINGWAY")
	s.Declare(set)
	path := filepath.Join(t.TempDir(), "relay.yaml")
	for content, want := range map[string]string{
		"rate-limits: [{rate: 1/s}]":                                                                "limit 1: needs a service; * is each service",
		"rate-limits: [{service: echo}]":                                                            `limit 1: rate "": want a whole number of requests per second, minute or hour`,
		"rate-limits: [{service: bad name, rate: 1/s}]":                                             "limit 1: ",
		"rate-limits: [{service: echo, rate: 0/s}]":                                                 "would refuse all requests: block the caller or the service instead",
		"rate-limits: [{service: echo, rate: 100}]":                                                 "such as 100/s, 30/m or 1000/h",
		"rate-limits: [{service: echo, rate: 100/d}]":                                               `rate "100/d": want`,
		"rate-limits: [{service: echo, rate: 1.5/s}]":                                               `rate "1.5/s": want a whole number`,
		"rate-limits: [{service: echo, rate: -1/s}]":                                                `rate "-1/s": want a whole number`,
		"rate-limits: [{service: echo, rate: 99999999999/s}]":                                       "leave the limit out",
		"rate-limits: [{service: echo, rate: 1/s, burst: -1}]":                                      "burst -1: want 1 to 1000000 requests",
		"rate-limits: [{service: echo, rate: 1/s, burst: 1000001}]":                                 "burst 1000001: want",
		"rate-limits: [{service: echo, rate: 1/s, burst: 1.5}]":                                     "not a whole number: 1.5",
		"rate-limits: [{service: echo, rate: 1/s, burst: many}]":                                    `want a whole number, found "many"`,
		"rate-limits: [{service: echo, rate: 1/s, per: caller}]":                                    "no such field: per",
		"rate-limits: [{service: echo, rate: 1/s, caller: 10.0.0.0/8}]":                             "is a network",
		"rate-limits: [{service: echo, rate: 1/s, caller: ' a'}]":                                   `caller " a" is none`,
		"rate-limits: [{service: echo, rate: 1/s}, {service: echo, rate: 2/s}]":                     "limit 2: has the caller and the service of limit 1",
		"rate-limits: [{service: '*', caller: a, rate: 1/s}, {service: '*', caller: a, rate: 2/s}]": "limit 2: has the caller",
		"rate-limits: {service: echo, rate: 1/s}":                                                   "rate-limits",
		"rate-limits: [" + strings.Repeat("{service: echo, rate: 1/s}, ", 1001) + "]":               "1001 limits: at most 1000 are compared",
		"routes: [{path_prefix: /a, service: echo, rate: 5}]":                                       `route 1: rate "5": want a whole number`,
		"routes: [{path_prefix: /a, service: echo, rate: 0/s}]":                                     "route 1: rate \"0/s\": would refuse all requests",
		"routes: [{path_prefix: /a, service: echo, burst: 5}]":                                      `route 1: rate "": want a whole number`,
		"routes: [{path_prefix: /a, service: echo, rate: 5/s, burst: -5}]":                          "route 1: burst -5: want",
	} {
		if err := os.WriteFile(path, []byte("cluster: test\nenvironment: ci\n"+content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := set.Load(settings.Sources{File: path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", content, err, want)
		}
	}
	fine := "rate-limits: [{service: '*', rate: 100/s}, {service: '*', caller: '*', rate: 30/m, burst: 10}, {service: echo, caller: 2001:db8::, rate: 1/h}]\nroutes: [{path_prefix: /a, service: echo, rate: 5/s}]"
	if err := os.WriteFile(path, []byte("cluster: test\nenvironment: ci\n"+fine), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := set.Load(settings.Sources{File: path}); err != nil || len(s.Requests.RateLimits) != 3 {
		t.Errorf("%v, %+v", err, s.Requests.RateLimits)
	}
}
