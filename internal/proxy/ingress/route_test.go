package ingress

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestTheMostSpecificRouteNamesTheService(t *testing.T) {
	routes := []Route{
		{PathPrefix: "/", Service: "rest"},
		{PathPrefix: "/api/v1/long/path", Service: "anywhere"},
		{Host: "*.shop.test", Service: "stores"},
		{Host: "*.shop.test", PathPrefix: "/api", Service: "stores-api"},
		{Host: "eu.shop.test.", Service: "europe"},
		{Host: "Eu.Shop.Test", PathPrefix: "/api/", Service: "europe-api"},
		{Host: "eu.shop.test", PathPrefix: "/api/v1", Service: "europe-v1"},
		{Host: "eu.shop.test", PathPrefix: "/.", Service: "hidden"},
		{Host: "bücher.example", Service: "books"},
		{Host: "*.BÜCHER.example", Service: "shelves"},
		{Host: "xn--mnchen-3ya.example", Service: "munich"},
		{Host: "[::1]", Service: "six"},
		{Host: "2001:DB8::0:1", Service: "address"},
		{Host: "10.0.0.1", Service: "four"},
		{Host: "a_b.example", Service: "underscore"},
		{PathPrefix: "/shop.v1.", Service: "grpc"},
		{PathPrefix: "/x y/ü", Service: "decoded"},
	}
	for i := range 2 { // the order of the routes does not matter
		n := newNamer("", routes)
		for _, c := range []struct{ host, path, want string }{
			{"eu.shop.test", "/", "europe"},
			{"eu.shop.test:8080", "/apiary", "europe"},
			{"eu.shop.test", "/api", "europe"},
			{"eu.shop.test", "/api/", "europe-api"},
			{"eu.shop.test", "/api/v1", "europe-v1"},
			{"eu.shop.test", "/api/v1/long/path", "europe-v1"},
			{"eu.shop.test", "/api/v10", "europe-api"},
			{"eu.shop.test", "//api/v1", "europe-v1"},
			{"eu.shop.test", "/api///v1", "europe-v1"},
			{"eu.shop.test", "/x/../api/v1", "europe-v1"},
			{"eu.shop.test", "/x//%2e%2e/api/./v1", "europe-v1"},
			{"eu.shop.test", "/../api/v1/..", "europe-api"},
			{"eu.shop.test", "/api/.", "europe-api"},
			{"eu.shop.test", "/api;x=1/v1;y", "europe-v1"},
			{"eu.shop.test", "/x/..;z/api/v1", "europe-v1"},
			{"eu.shop.test", "/;/api/v1;", "europe-v1"},
			{"eu.shop.test", "/api/v1#x", "europe-v1"},
			{"eu.shop.test", "/api%2Fv1#/../..", "europe-v1"},
			{"eu.shop.test", "/api/v1%23x", "europe-api"},
			{"eu.shop.test", "/.well-known", "hidden"},
			{"eu.shop.test", "/..api/v1/", "hidden"},
			{"us.shop.test", "/", "stores"},
			{"US.shop.test.:80", "/api", "stores-api"},
			{"us.shop.test", "/api/v1/long/path", "stores-api"},
			{"a.us.shop.test", "/", "rest"},
			{"shop.test", "/", "rest"},
			{"shop.test", "/api/v1/long/path", "anywhere"},
			{".shop.test", "/", "rest"},
			{"xn--bcher-kva.example", "/", "books"},
			{"new.xn--bcher-kva.example", "/", "shelves"},
			{"xn--mnchen-3ya.example", "/", "munich"},
			{"[::1]:80", "/", "six"},
			{"[0:0::1]", "/", "six"},
			{"[2001:db8::1]", "/", "address"},
			{"10.0.0.1:80", "/", "four"},
			{"a_b.example", "/", "underscore"},
			{"", "/shop.v1.Orders/Place", "grpc"},
			{"", "/shop.v10.Orders/Place", "rest"},
			{"", "/x%20y/%C3%BC/z", "decoded"},
			{"", "", "rest"},
		} {
			r := httptest.NewRequest("GET", "http://a"+c.path, nil)
			r.Host = c.host
			if got := n.service(r); got != c.want {
				t.Errorf("order %d, host %q, path %q: %q, want %q", i, c.host, c.path, got, c.want)
			}
		}
		slices.Reverse(routes)
	}
	if err := CheckRoutes(routes); err != nil {
		t.Error(err)
	}
}

func TestARouteThatMatchesNothingIsRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct {
		route Route
		want  string
	}{
		{Route{Service: "a"}, "neither host nor path_prefix"},
		{Route{Host: "h", Service: "-"}, "service"},
		{Route{Host: "h:80"}, `host "h:80" matches no request: leave the port out`},
		{Route{Host: "[::1]:80"}, "leave the port out"},
		{Route{Host: "https://h"}, "leave the scheme out"},
		{Route{Host: "h/x"}, "leave the path out"},
		{Route{Host: " h"}, "leave the blank out"},
		{Route{Host: "h\t"}, "leave the blank out"},
		{Route{Host: ".h"}, "leave the first dot out"},
		{Route{Host: "*"}, "leave host out"},
		{Route{Host: "a.*.h"}, "the whole first label"},
		{Route{Host: "*a.h"}, "the whole first label"},
		{Route{Host: "*.*.h"}, "the whole first label"},
		{Route{Host: "*.::1"}, "leave the wildcard out"},
		{Route{Host: "*."}, "not the name of a host"},
		{Route{Host: "a..h"}, "not the name of a host"},
		{Route{Host: "[h]"}, "not the name of a host"},
		{Route{Host: "[::1"}, "leave the port out"},
		{Route{Host: "u@h"}, "not the name of a host"},
		{Route{Host: "a,b"}, "not the name of a host"},
		{Route{Host: "h%20"}, "not the name of a host"},
		{Route{Host: "\u00ad"}, "not the name of a host"},
		{Route{Host: "xn--\u00fc"}, "not an internationalized name"},
		{Route{PathPrefix: "x"}, `path_prefix "x" matches no request: a path begins with /`},
		{Route{PathPrefix: "/x?a=b"}, "in front of ?"},
		{Route{PathPrefix: "/x#a"}, "in front of ? and #"},
		{Route{PathPrefix: "/a%2Fb"}, "compared decoded"},
		{Route{PathPrefix: "/a%zz"}, "compared decoded"},
		{Route{PathPrefix: "//a"}, "without empty elements"},
		{Route{PathPrefix: "/a//"}, "without empty elements"},
		{Route{PathPrefix: "/a/./b"}, "without empty elements"},
		{Route{PathPrefix: "/../"}, "without empty elements"},
		{Route{Host: "FINE.", PathPrefix: "/fine"}, "matches what route 1 matches"},
	} {
		if c.route.Service == "" {
			c.route.Service = "s"
		}
		fine := Route{Host: "fine", PathPrefix: "/fine", Service: "fine"}
		err := CheckRoutes([]Route{fine, c.route})
		if err == nil || !strings.HasPrefix(err.Error(), "route 2: ") || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.route, err, c.want)
		}
	}
}

func TestADomainBelowWhichNoHostIsIsRefused(t *testing.T) {
	for domain, want := range map[string]bool{
		"": true, ".": true, "svc.test": true, "svc.test.": true, "localhost": true, "Bücher.example": true,
		".svc.test": false, "svc.test:80": false, "http://svc.test": false, "svc test": false, "*.svc.test": false, "..": false,
	} {
		if err := CheckDomain(domain); (err == nil) != want {
			t.Errorf("%q: %v", domain, err)
		}
	}
	r := httptest.NewRequest("GET", "http://billing.xn--bcher-kva.example/", nil)
	if got := newNamer("Bücher.example.", nil).service(r); got != "billing" {
		t.Errorf("got %q", got)
	}
}
