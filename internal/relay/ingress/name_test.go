package ingress

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTheServiceIsNamedByHeaderThenHostThenRoute(t *testing.T) {
	n := namer{suffix: ".svc.test", routes: []Route{
		{Host: "shop.test", PathPrefix: "/pay", Service: "billing"},
		{PathPrefix: "/files/", Service: "files"},
		{Host: "Shop.Test", Service: "web"},
	}}
	for _, c := range []struct{ header, host, path, want string }{
		{"echo", "billing.svc.test", "/files/x", "echo"},
		{"", "billing.svc.test", "/files/x", "billing"},
		{"", "billing.svc.test:7410", "/", "billing"},
		{"", "BILLING.SVC.TEST", "/", "billing"},
		{"", "billing.eu.svc.test", "/", "billing"},
		{"", ".svc.test", "/", ""},
		{"", "svc.test", "/", ""},
		{"", "shop.test", "/pay/1", "billing"},
		{"", "shop.test:80", "/other", "web"},
		{"", "elsewhere.test", "/files/a", "files"},
		{"", "[::1]:7410", "/files/a", "files"},
		{"", "elsewhere.test", "/", ""},
	} {
		r := httptest.NewRequest("GET", c.path, nil)
		r.Host = c.host
		if c.header != "" {
			r.Header.Set(ServiceHeader, c.header)
		}
		if got := n.service(r); got != c.want {
			t.Errorf("header %q, host %q, path %q: %q, want %q", c.header, c.host, c.path, got, c.want)
		}
	}
}

func TestWithoutDomainTheHostSaysNothing(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = "billing.svc.test"
	if got := (namer{}).service(r); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestARouteThatCannotWorkIsRefused(t *testing.T) {
	err := CheckRoutes([]Route{{Service: "a"}, {Host: "h", Service: "-"}, {PathPrefix: "x", Service: "b"}, {Host: "h", Service: "fine"}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"route 1", "neither host nor path_prefix", "route 2", "route 3", "does not begin with /"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "route 4") {
		t.Errorf("a good route is refused:\n%v", err)
	}
}
