package ingress

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/wire"
)

func TestARouteByHeadersMatchesRequestsThatHaveAllOfThem(t *testing.T) {
	routes := []Route{
		{Host: "shop.test", Service: "web"},
		{Host: "shop.test", Headers: map[string]string{"x-tenant": "acme"}, Service: "acme"},
		{Host: "shop.test", Headers: map[string]string{"X-Tenant": "acme", "X-Beta": "*"}, Service: "acme-beta"},
		{Host: "shop.test", PathPrefix: "/pay", Headers: map[string]string{"X-Tenant": "acme"}, Service: "acme-pay"},
		{Headers: map[string]string{"X-Tenant": "*"}, Service: "tenants"},
		{Headers: map[string]string{"Ringway-Key": "test"}, Service: "tested"},
	}
	if err := CheckRoutes(routes); err != nil {
		t.Fatal(err)
	}
	requests := &Requests{Routes: routes, Domain: "svc.test"}
	for _, c := range []struct {
		url     string
		headers []string
		want    Naming
	}{
		{"http://shop.test/", nil, Naming{"web", NamedByRoute, 0}},
		{"http://shop.test/", []string{"X-Tenant: other"}, Naming{"web", NamedByRoute, 0}},
		{"http://shop.test/", []string{"X-Tenant: acme"}, Naming{"acme", NamedByRoute, 1}},
		{"http://shop.test/", []string{"X-Tenant: ACME"}, Naming{"web", NamedByRoute, 0}},
		{"http://shop.test/", []string{"X-Tenant: other", "X-Tenant: acme"}, Naming{"acme", NamedByRoute, 1}},
		{"http://shop.test/", []string{"X-Tenant: acme", "X-Beta: 1"}, Naming{"acme-beta", NamedByRoute, 2}},
		{"http://shop.test/", []string{"X-Beta: 1"}, Naming{"web", NamedByRoute, 0}},
		{"http://shop.test/pay/1", []string{"X-Tenant: acme", "X-Beta: 1"}, Naming{"acme-pay", NamedByRoute, 3}},
		{"http://shop.test/pay/1", nil, Naming{"web", NamedByRoute, 0}},
		{"http://other.test/", []string{"X-Tenant: x"}, Naming{"tenants", NamedByRoute, 4}},
		{"http://other.test/", []string{"Ringway-Key: test"}, Naming{"tested", NamedByRoute, 5}},
		{"http://other.test/", nil, Naming{"", "", -1}},
		{"http://billing.svc.test/", []string{"X-Tenant: x"}, Naming{"billing", NamedByDomain, 4}},
		{"http://billing.svc.test/", []string{"Ringway-Service: echo"}, Naming{"echo", NamedByHeader, -1}},
	} {
		r := httptest.NewRequest("GET", c.url, nil)
		for _, line := range c.headers {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Add(name, value)
		}
		if got := requests.Name(r); got != c.want {
			t.Errorf("%s %q: %+v, want %+v", c.url, c.headers, got, c.want)
		}
		if got := newNamer(requests.Domain, routes).service(r); got != c.want.Service {
			t.Errorf("%s %q: requests go to %q, want %q", c.url, c.headers, got, c.want.Service)
		}
	}
}

func TestARouteWhoseHeadersNoRequestHasIsRefusedWithTheReason(t *testing.T) {
	nine := map[string]string{}
	for i := range 9 {
		nine[fmt.Sprintf("X-%d", i)] = "a"
	}
	for _, c := range []struct {
		headers map[string]string
		want    string
	}{
		{map[string]string{"X Tenant": "a"}, "not the name of a header"},
		{map[string]string{"": "a"}, "not the name of a header"},
		{map[string]string{"X-Tenant:": "a"}, "not the name of a header"},
		{map[string]string{":path": "a"}, "not the name of a header"},
		{map[string]string{"X-Tenant": ""}, "* stands for any"},
		{map[string]string{"X-Tenant": " a"}, "no blanks around"},
		{map[string]string{"X-Tenant": "a\n"}, "no blanks around"},
		{map[string]string{"X-Tenant": "a\nb"}, "a header cannot have the value"},
		{map[string]string{"X-Tenant": "a\x00"}, "a header cannot have the value"},
		{map[string]string{"host": "a"}, "a key of its own: write it as host"},
		{map[string]string{"ringway-service": "a"}, "names its service already"},
		{map[string]string{"Ringway-Hop": "a"}, "the relays' own"},
		{map[string]string{"ringway_relay": "a"}, "the relays' own"},
		{map[string]string{"Transfer-Encoding": "chunked"}, "not among those that a relay reads"},
		{map[string]string{"Trailer": "a"}, "not among those that a relay reads"},
		{map[string]string{"X-A": "1", "x-a": "2"}, `header "X-A" is given twice`},
		{nine, "at most 8 are compared"},
	} {
		err := CheckRoutes([]Route{{Host: "fine", Service: "fine"}, {Headers: c.headers, Service: "s"}})
		if err == nil || !strings.HasPrefix(err.Error(), "route 2: ") || strings.Contains(err.Error(), "\nroute") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.headers, err, c.want)
		}
	}
	same := []Route{{Headers: map[string]string{"X-A": "1", "x-b": "*"}, Service: "a"}, {Headers: map[string]string{"x-a": "1", "X-B": "*"}, Service: "b"}}
	if err := CheckRoutes(same); err == nil || !strings.Contains(err.Error(), "matches what route 1 matches") {
		t.Errorf("%v", err)
	}
}

// served is the path that services make of one with empty elements and dots.
func served(path string) string {
	elements := strings.Split(path[1:], "/")
	var kept []string
	for i, e := range elements {
		switch e {
		case "", ".":
		case "..":
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, e)
			continue
		}
		if i == len(elements)-1 {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// slowly is the rule of routes as it is documented: each route is compared, and the most specific wins.
func slowly(routes []Route, host string, r *http.Request) string {
	best, service := -1, ""
	for _, of := range routes {
		rank, path := 0, served(r.URL.Path)
		switch want, _ := routeHost(of.Host); {
		case want == "":
		case want[0] == '.':
			label, ok := strings.CutSuffix(host, want)
			if !ok || label == "" || strings.Contains(label, ".") {
				continue
			}
			rank = 1
		case want != host:
			continue
		default:
			rank = 2
		}
		rest, ok := strings.CutPrefix(path, of.PathPrefix)
		ends := of.PathPrefix == "" || rest == "" || rest[0] == '/' || strings.HasSuffix(of.PathPrefix, "/") || strings.HasSuffix(of.PathPrefix, ".")
		if !ok || !ends {
			continue
		}
		for name, value := range of.Headers {
			if got := r.Header.Get(name); got == "" || value != "*" && got != value {
				ok = false
			}
		}
		if rank = rank<<20 | len(of.PathPrefix)<<4 | len(of.Headers); ok && rank > best {
			best, service = rank, of.Service
		}
	}
	return service
}

func TestTheTableOfRoutesFindsWhatComparingEachRouteFinds(t *testing.T) {
	hosts := []string{"", "a.test", "b.test", "*.test", "*.a.test", "x.a.test", "y.x.a.test", "test"}
	var random *rand.Rand
	text := func() string {
		var b strings.Builder
		for range random.IntN(4) {
			b.WriteString([]string{"/", "/a", "/ab", ".", "a.", "//", "/.."}[random.IntN(7)])
		}
		return b.String()
	}
	found := 0
	for seed := range uint64(2000) {
		random = rand.New(rand.NewPCG(seed, 0))
		var routes []Route
		for range 1 + random.IntN(12) {
			r := Route{Host: hosts[random.IntN(len(hosts))], Service: fmt.Sprintf("s%d", len(routes))}
			if random.IntN(4) > 0 {
				r.PathPrefix = "/" + text()
			}
			if random.IntN(3) == 0 {
				r.Headers = map[string]string{"X-A": []string{"1", "2", "*"}[random.IntN(3)]}
			}
			if CheckRoutes(append(routes, r)) == nil {
				routes = append(routes, r)
			}
		}
		n := newNamer("", routes)
		for range 20 {
			host := strings.TrimPrefix(hosts[random.IntN(len(hosts))], "*.")
			r := &http.Request{Host: host, URL: &url.URL{Path: "/" + text()}, Header: http.Header{}}
			if v := random.IntN(3); v > 0 {
				r.Header["X-A"] = []string{fmt.Sprint(v)}
			}
			// Of two routes that differ in the value of a header only, both may match: the first wins.
			got, want := n.service(r), slowly(routes, host, r)
			if got != want {
				t.Fatalf("seed %d, host %q, path %q, %v: %q, want %q of %+v", seed, host, r.URL.Path, r.Header, got, want, routes)
			}
			if got != "" {
				found++
			}
		}
	}
	if found < 10_000 {
		t.Errorf("only %d requests matched", found)
	}
}

// thousand are routes of all kinds.
func thousand() []Route {
	var routes []Route
	for i := range 250 {
		routes = append(routes,
			Route{Host: fmt.Sprintf("h%d.shop.test", i), Service: "host"},
			Route{Host: fmt.Sprintf("*.w%d.shop.test", i), PathPrefix: "/api", Service: "wild"},
			Route{PathPrefix: fmt.Sprintf("/p%d/v1/", i), Service: "path"},
			Route{Host: "shop.test", PathPrefix: fmt.Sprintf("/a/%d", i), Headers: map[string]string{"X-Tenant": "acme"}, Service: "all"})
	}
	return routes
}

func TestAThousandRoutesAllocateNothingForARequest(t *testing.T) {
	n := newNamer("", thousand())
	for url, want := range map[string]string{
		"http://h249.shop.test/": "host", "http://x.w249.shop.test/api/1": "wild", "http://other.test/p249/v1/x": "path",
		"http://shop.test/a/249/x": "all", "http://none.test/b/c/d": "", "http://other.test/p249/v1/.a/": "path", "http://other.test/p249/v1/a#b": "path",
	} {
		r := httptest.NewRequest("GET", url, nil)
		r.Header.Set("X-Tenant", "acme")
		if got := n.service(r); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
		if allocs := testing.AllocsPerRun(100, func() { n.service(r) }); allocs > 0 {
			t.Errorf("%s: %v allocations", url, allocs)
		}
	}
}

func BenchmarkAThousandRoutes(b *testing.B) {
	n := newNamer("", thousand())
	r := httptest.NewRequest("GET", "http://shop.test/a/249/x/y/z", nil)
	r.Header.Set("X-Tenant", "acme")
	r.Header.Set(wire.KeyHeader, "k")
	for b.Loop() {
		n.service(r)
	}
}
