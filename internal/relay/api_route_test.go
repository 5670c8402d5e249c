package relay

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/idna"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/proxy/ingress"
)

// named offers a service of a backend that answers with its own name.
func (f *fleet) named(id string, service advertise.Service) (stop func() error) {
	f.t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Ringway-Key") != "" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, id)
	}))
	f.t.Cleanup(backend.Close)
	service.Address = backend.Listener.Addr().String()
	return f.worker(id, service)
}

// r1 only forwards; r2 and r3 serve the service.
func TestTheAnswerAboutARouteIsWhatHappens(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for range 3 {
		f.relay(func(s *Settings) { s.LogLevel = "debug"; s.SkipRelays.Set("echo=r1") })
	}
	for i := range 4 {
		f.named(fmt.Sprintf("w%d", i+1), advertise.Service{Name: "echo", Selection: "stable"})
	}
	for _, r := range f.relays {
		r.settled(t, "echo", 4)
	}
	route := func(r *runningRelay, key string) (a api.Route) {
		if status, text := r.api(t, "/api/v1/services/echo/route?key="+key, &a); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		return a
	}
	r1, r2 := f.relays[0], f.relays[1]
	r2.await(t, "four candidates", func() bool {
		a := route(r2, "alice")
		return a.Decision != nil && len(a.Decision.Candidates) == 4
	})
	workers := map[string]bool{}
	for i := range 12 {
		key := fmt.Sprint("key", i)
		a := route(r2, key)
		d := a.Decision
		if a.Role != "affine" || a.Key != key || d.Key != key || d.Strategy != "stable" || d.Origin != "advertisement" || d.Candidates[0].Node != d.Winner || d.Candidates[0].Address == "" || a.Relays != nil {
			t.Errorf("%+v %+v", a, d)
		}
		workers[d.Winner] = true
		for _, r := range f.relays {
			if resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo", "Ringway-Key: "+key); resp.StatusCode != 200 || body != d.Winner {
				t.Errorf("%s through %s: %s %q, said was %s", key, r.id, resp.Status, body, d.Winner)
			}
		}
	}
	if len(workers) < 2 {
		t.Errorf("12 keys go to %v", workers)
	}

	a := route(r1, "alice")
	var relays []string
	for _, to := range a.Relays {
		relays = append(relays, to.Relay)
	}
	slices.Sort(relays)
	if a.Role != "forwarding" || a.Decision != nil || !slices.Equal(relays, []string{"r2", "r3"}) || a.Relays[0].Role != "primary" || a.Relays[0].Address == "" {
		t.Errorf("%+v", a)
	}
	for _, line := range []string{"picked a relay", "key=key3"} {
		if !strings.Contains(r1.log.String(), line) {
			t.Errorf("the log of r1 lacks %q", line)
		}
	}
	if log := r2.log.String() + f.relays[2].log.String(); !strings.Contains(log, "picked a worker") || !strings.Contains(log, "strategy=stable") {
		t.Error("no decision is in the logs of those that serve the service")
	}
	// Keys stick to relays at a gate, and the answer names which.
	if a := route(r1, "key3"); !slices.Contains(relays, a.Next) || a.NextReason != "the key sticks to it" {
		t.Errorf("a known key: %q, %q", a.Next, a.NextReason)
	} else {
		for line := range strings.Lines(r1.log.String()) {
			if strings.Contains(line, "picked a relay") && strings.Contains(line, "key=key3 ") && !strings.Contains(line, "winner="+a.Next) {
				t.Errorf("said was %s: %s", a.Next, line)
			}
		}
	}
	if a := route(r1, "new"); a.Next != a.Relays[0].Relay || !strings.Contains(a.NextReason, "the key will stick to it") {
		t.Errorf("a new key: %q, %q of %+v", a.Next, a.NextReason, a.Relays)
	}
	before := route(r1, "another")
	if after := route(r1, "another"); after.Next != before.Next || strings.Contains(after.NextReason, "sticks") {
		t.Errorf("asking bound the key: %+v, then %+v", before, after)
	}
	if status, _ := r1.api(t, "/api/v1/services/absent/route", nil); status != 404 {
		t.Errorf("an unknown service: %d", status)
	}
}

func TestAServiceShowsItsStrategy(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) {
		s.Strategies.Set("echo=ordered;preferred=w9,w2", "closest;expiry=1m")
	})
	f.named("w1", advertise.Service{Name: "echo", Selection: "stable"})
	f.named("w2", advertise.Service{Name: "echo", Selection: "stable"})
	f.named("w3", advertise.Service{Name: "slotted", Selection: "slots;vnodes=16"})
	f.named("w4", advertise.Service{Name: "plain"})
	r.settled(t, "echo", 2)
	r.settled(t, "slotted", 1)
	r.settled(t, "plain", 1)
	for name, want := range map[string]api.Selection{
		"echo": {Strategy: "ordered", Text: "ordered;preferred=w9,w2", Origin: "service_setting",
			Parameters: map[string]string{"preferred": "w9,w2"}, UnknownPreferred: []string{"w9"}},
		"slotted": {Strategy: "slots", Text: "slots;vnodes=16", Origin: "advertisement",
			Parameters: map[string]string{"vnodes": "16", "samples": "2", "maxscan": "16", "jitter": "4", "fresh": "10s"}},
		"plain": {Strategy: "closest", Text: "closest;expiry=1m0s", Origin: "setting",
			Parameters: map[string]string{"preferred": "", "expiry": "1m0s", "timeout": "2s"}},
	} {
		var got struct{ Selection api.Selection }
		r.await(t, "the strategy of "+name, func() bool {
			status, _ := r.api(t, "/api/v1/services/"+name, &got)
			return status == 200 && fmt.Sprint(got.Selection) == fmt.Sprint(want)
		})
	}
	r.await(t, "the warning", func() bool { return strings.Contains(r.log.String(), "unknown=w9\n") })
	if _, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo"); body != "w2" {
		t.Errorf("%q, want the preferred one that is there", body)
	}
	if n := strings.Count(r.log.String(), "unknown=w9\n"); n != 1 { // before w2 came they were two
		t.Errorf("said %d times", n)
	}
}

func TestARelayWhoseStrategyFindsNoEndpointReportsIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Strategies.Set("manual;preferred=w9"); s.Requests.ExposeRouteHeaders = true })
	f.named("w1", advertise.Service{Name: "echo"})
	r.settled(t, "echo", 1)
	resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo")
	if resp.StatusCode != 503 || !strings.Contains(body, "no_endpoint") || !strings.Contains(body, "w9") {
		t.Errorf("%s %s", resp.Status, body)
	}
	var a api.Route
	if status, _ := r.api(t, "/api/v1/services/echo/route", &a); status != 200 || a.Decision.Winner != "" || !strings.Contains(a.Decision.Reason, "w9") {
		t.Errorf("%d %+v", status, a.Decision)
	}
}

// People know workers by their ids; the number behind is that of a life.
func TestTheReasonOfARouteNamesWorkersAndNotInstances(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	for _, id := range []string{"w1", "w2"} {
		f.named(id, advertise.Service{Name: "echo"})
	}
	r.settled(t, "echo", 2)
	r.await(t, "a draw of two", func() bool {
		var a api.Route
		r.api(t, "/api/v1/services/echo/route", &a)
		if a.Decision == nil || len(a.Decision.Candidates) < 2 {
			return false
		}
		for _, c := range a.Decision.Candidates {
			if strings.Contains(a.Decision.Reason, c.ID) {
				t.Fatalf("%q", a.Decision.Reason)
			}
		}
		return strings.Contains(a.Decision.Reason, `"w1"`) || strings.Contains(a.Decision.Reason, `"w2"`)
	})
}

// r1 only forwards; r2 serves the services.
func TestExplainAndRouteNameTheSessionCookieOfAService(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for range 2 {
		f.relay(func(s *Settings) {
			s.SkipRelays.Set("echo=r1", "plain=r1")
			s.SessionCookies.Set("echo=sid")
		})
	}
	f.worker("w1", advertise.Service{Name: "echo", Address: "127.0.0.1:1"}, advertise.Service{Name: "plain", Address: "127.0.0.1:1"})
	for _, r := range f.relays {
		for service, want := range map[string]string{"echo": "sid", "plain": ""} {
			r.settled(t, service, 1)
			var explained api.Explanation
			var routed api.Route
			r.api(t, "/api/v1/services/"+service+"/explain", &explained)
			r.api(t, "/api/v1/services/"+service+"/route", &routed)
			if explained.Service != service || explained.SessionCookie != want || routed.Service != service || routed.SessionCookie != want {
				t.Errorf("%s of %s: %+v, %+v", service, r.id, explained, routed)
			}
		}
	}
}

func TestTheAnswerAboutARequestNamesTheRouteThatDecides(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) {
		s.Requests.Domain = "svc.test"
		s.KeySource.Set("query:user;header:X-User")
		s.Requests.Routes = []ingress.Route{
			{Host: "shop.test", Service: "missing"},
			{Host: "shop.test", PathPrefix: "/pay", Headers: map[string]string{"X-Tenant": "acme"}, Service: "echo"},
			{Host: "bücher.test", Service: "echo"},
		}
	})
	f.named("w1", advertise.Service{Name: "echo", Selection: "stable"})
	r.settled(t, "echo", 1)
	ask := func(values url.Values) (a api.Route) {
		if status, text := r.api(t, "/api/v1/route?"+values.Encode(), &a); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		return a
	}
	const books = "{route 3 {host: bücher.test, service: echo}}"
	for _, c := range []struct {
		url            string
		headers        []string
		service, named string
		key            string
	}{
		{"http://shop.test/pay/1?user=alice", []string{"X-Tenant: acme"}, "echo", "{route 2 {host: shop.test, path_prefix: /pay, headers: {X-Tenant: acme}, service: echo}}", "alice"},
		{"https://shop.test:8443/pay", []string{"X-Tenant: other"}, "missing", "{route 1 {host: shop.test, service: missing}}", ""},
		{"http://127.0.0.1/pay", []string{"Host: shop.test", "X-Tenant: acme", "X-User: bob"}, "echo", "{route 2 {host: shop.test, path_prefix: /pay, headers: {X-Tenant: acme}, service: echo}}", "bob"},
		{"http://xn--bcher-kva.test/", nil, "echo", books, ""},
		{"http://bücher.test/", nil, "echo", books, ""},
		{"https://BÜCHER.Test.:8443/", nil, "echo", books, ""},
		{"http://b%C3%BCcher。test:80/", nil, "echo", books, ""},
		{"http://127.0.0.1/", []string{"Host: XN--bcher-kva.test.:80"}, "echo", books, ""},
		{"http://echo.svc.test/", nil, "echo", "{domain 0 }", ""},
		{"http://x.test/", []string{"ringway-service: echo"}, "echo", "{header 0 }", ""},
		{"http://x.test/", nil, "", "{ 0 }", ""},
	} {
		a := ask(url.Values{"url": {c.url}, "header": c.headers})
		if a.Service != c.service || fmt.Sprint(*a.Naming) != c.named || a.Key != c.key || (a.Decision != nil) != (c.service == "echo") {
			t.Errorf("%s %q: %+v %+v", c.url, c.headers, a, *a.Naming)
		}
		// A request with the same head goes there. Clients send the ASCII form of a name.
		u, _ := url.Parse(c.url)
		if ascii, err := idna.Lookup.ToASCII(u.Hostname()); err == nil {
			u.Host = strings.Replace(u.Host, u.Hostname(), ascii, 1)
		}
		resp, body := r.call(t, "GET", u.RequestURI(), nil, append([]string{"Host: " + u.Host}, c.headers...)...)
		if got := resp.StatusCode == 200 && body == "w1"; got != (c.service == "echo") {
			t.Errorf("%s %q: %s %s", c.url, c.headers, resp.Status, body)
		}
	}
	for values, want := range map[string]string{
		"":                                    "not the URL of a request",
		"url=shop.test":                       "not the URL of a request",
		"url=ftp://shop.test":                 "not the URL of a request",
		"url=http://a..test/":                 "host of a request",
		"url=http://h:99999/":                 "host of a request",
		"url=http://xn--%C3%BC.test/":         "not an internationalized name",
		"url=http://h/&header=Host:b%C3%BC":   "host of a request",
		"url=http://h/&header=a":              "not a header",
		"url=http://h/&header=a%20b:c":        "not a header",
		"url=http://h/&header=X:a%0d%0ab:%20": "not a header",
	} {
		if status, text := r.api(t, "/api/v1/route?"+values, nil); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", values, status, text)
		}
	}
}

// Clients get the same answer as for a service that no worker offers.
func TestTheAnswerAboutARouteNamesTheServicesThatClientsMayNotReach(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	only := f.relay(func(s *Settings) { s.Requests.Domain, s.Requests.OnlyServices = "svc.test", []string{"other"} })
	every := f.relay(func(s *Settings) { s.Requests.Domain = "svc.test" })
	f.named("w1", advertise.Service{Name: "echo"})
	f.named("w2", advertise.Service{Name: "other"})
	for _, r := range f.relays {
		r.settled(t, "echo", 1)
		r.settled(t, "other", 1)
	}
	for _, c := range []struct {
		relay   *runningRelay
		service string
		want    int
	}{{only, "echo", http.StatusNotFound}, {only, "other", http.StatusOK}, {every, "echo", http.StatusOK}} {
		if resp, body := c.relay.call(t, "GET", "/", nil, "Host: "+c.service+".svc.test"); resp.StatusCode != c.want {
			t.Errorf("%s at %s: %s %s", c.service, c.relay.id, resp.Status, body)
		}
		for _, path := range []string{"route?url=http://" + c.service + ".svc.test/", "services/" + c.service + "/route", "services/" + c.service + "/explain"} {
			var a struct {
				NotForClients bool `json:"not_for_clients"`
			}
			if status, text := c.relay.api(t, "/api/v1/"+path, &a); status != http.StatusOK || a.NotForClients != (c.want == http.StatusNotFound) {
				t.Errorf("%s at %s: %d %s", path, c.relay.id, status, text)
			}
		}
	}
}

func TestTheAnswerAboutARequestHasTheLimitsThatCountIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) {
		s.Requests.Domain = "svc.test"
		s.Requests.Routes = []ingress.Route{
			{Host: "shop.test", Service: "echo"},
			{Host: "shop.test", PathPrefix: "/export", Service: "echo", Rate: "1/h", Burst: 1},
			{Host: "shop.test", PathPrefix: "/import", Service: "echo", Rate: "2/h", Burst: 1},
			{Host: "echo.svc.test", PathPrefix: "/other", Service: "other", Rate: "3/h", Burst: 1},
		}
		s.Requests.RateLimits = []ingress.RateLimit{{Service: "echo", Rate: "1000/s"}, {Service: "*", Caller: "*", Rate: "2000/s"}, {Service: "other", Rate: "1/h"}}
		s.Requests.Blocks = []ingress.Block{{Caller: "*", Service: "closed", Reason: "repair"}, {Caller: "batch", Service: "echo"}}
	})
	f.named("w1", advertise.Service{Name: "echo"})
	f.named("w2", advertise.Service{Name: "closed"})
	r.settled(t, "echo", 1)
	r.settled(t, "closed", 1)
	const always = "service 1000/s, caller 2000/s"
	for _, c := range []struct {
		path, want string
		passes     int // of two requests; -1: none are sent
	}{
		{"route?url=http://shop.test/", always, 2},
		{"route?url=http://shop.test/export", always + ", route 1/h", 1},
		{"route?url=http://shop.test/import&header=Ringway-Service:%20echo", always + ", route 2/h", 1}, // its route does not name it, and counts it
		{"route?url=http://echo.svc.test/other", always, 2},                                             // the route is of another service
		{"route?url=http://closed.svc.test/", "caller 2000/s, blocked: repair", 0},
		{"services/echo/route", always + ", route 1/h, route 2/h", -1},
	} {
		var a api.Route
		if status, text := r.api(t, "/api/v1/"+c.path, &a); status != http.StatusOK {
			t.Fatalf("%s: %d %s", c.path, status, text)
		}
		var has []string
		for _, l := range a.RateLimits {
			has = append(has, l.Of+" "+l.Rate)
		}
		for _, b := range a.Blocks {
			has = append(has, "blocked: "+b.Reason)
		}
		if got := strings.Join(has, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
		if c.passes < 0 {
			continue
		}
		u, _ := url.Parse("/" + c.path)
		to, _ := url.Parse(u.Query().Get("url"))
		passes := 0
		for range 2 {
			if resp, _ := r.call(t, "GET", to.RequestURI(), nil, append([]string{"Host: " + to.Host}, u.Query()["header"]...)...); resp.StatusCode == http.StatusOK {
				passes++
			}
		}
		if passes != c.passes {
			t.Errorf("%s: %d of two requests pass, want %d", c.path, passes, c.passes)
		}
	}
}
