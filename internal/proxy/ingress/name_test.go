package ingress

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/wire"
)

func TestTheServiceIsNamedByHeaderThenHostThenRoute(t *testing.T) {
	n := newNamer("svc.test", []Route{
		{Host: "shop.test", PathPrefix: "/pay", Service: "billing"},
		{PathPrefix: "/files/", Service: "files"},
		{Host: "Shop.Test", Service: "web"},
	})
	for _, c := range []struct{ header, host, path, want string }{
		{"echo", "billing.svc.test", "/files/x", "echo"},
		{"", "billing.svc.test", "/files/x", "billing"},
		{"", "billing.svc.test:7410", "/", "billing"},
		{"", "BILLING.SVC.TEST", "/", "billing"},
		{"", "billing.eu.svc.test", "/", "billing"},
		{"", "billing.svc.test.", "/", "billing"},
		{"", "billing.svc.test.:7410", "/", "billing"},
		{"", "billing.svc.test..", "/", ""},
		{"", ".svc.test", "/", ""},
		{"", "svc.test", "/", ""},
		{"", "shop.test", "/pay/1", "billing"},
		{"", "shop.test:80", "/other", "web"},
		{"", "shop.test.", "/pay/1", "billing"},
		{"", "elsewhere.test", "/files/a", "files"},
		{"", "[::1]:7410", "/files/a", "files"},
		{"", "elsewhere.test", "/", ""},
	} {
		r := httptest.NewRequest("GET", c.path, nil)
		r.Host = c.host
		if c.header != "" {
			r.Header.Set(wire.ServiceHeader, c.header)
		}
		if got := n.service(r); got != c.want {
			t.Errorf("header %q, host %q, path %q: %q, want %q", c.header, c.host, c.path, got, c.want)
		}
	}
}

func TestAHostWithoutADotNamesTheServiceIfThatIsConfigured(t *testing.T) {
	n := newNamer(WholeHost, []Route{{PathPrefix: "/files/", Service: "files"}})
	for host, want := range map[string]string{
		"billing": "billing", "Billing:7410": "billing", "billing.": "billing", "billing.test": "files", "": "files", "[::1]:7410": "files", "10.0.0.1": "files",
	} {
		r := httptest.NewRequest("GET", "/files/a", nil)
		r.Host = host
		if got := n.service(r); got != want {
			t.Errorf("host %q: %q, want %q", host, got, want)
		}
	}
}

// FuzzServiceName holds the naming against the slow way, which leaves hosts to net/url.
func FuzzServiceName(f *testing.F) {
	for _, c := range [][3]string{
		{"", "billing.svc.test:7410", "/"}, {"", "BILLING.eu.svc.test", "/"}, {"", ".svc.test", "/"}, {"", "[::1]:80", "/files/"},
		{"echo", "billing.svc.test", "/"}, {"", "shop.test:", "/pay"}, {"", "a..svc.test", "/pay/"}, {"", "[a.svc.test]", ""}, {"", "a.svc.test.:80", "/"},
	} {
		f.Add(c[0], c[1], c[2])
	}
	routes := []Route{{Host: "shop.test", PathPrefix: "/pay", Service: "billing"}, {PathPrefix: "/files/", Service: "files"}}
	n := newNamer("svc.test", routes)
	f.Fuzz(func(t *testing.T, header, host, path string) {
		if u, err := url.Parse("http://" + host + "/"); err != nil || u.Host != host || u.User != nil || host == "" {
			return // net/http answers 400, or upstream refuses it
		}
		r := &http.Request{Header: http.Header{}, Host: host, URL: &url.URL{Path: path}}
		if header != "" {
			r.Header[wire.ServiceHeader] = []string{header}
		}
		got := n.service(r)
		name := strings.TrimSuffix(strings.ToLower((&url.URL{Host: host}).Hostname()), ".")
		want := ""
		switch labels, under := strings.CutSuffix(name, ".svc.test"); {
		case header != "":
			want = header
		case under && labels != "":
			want = strings.Split(labels, ".")[0]
		case name == "shop.test" && (path == "/pay" || strings.HasPrefix(path, "/pay/")):
			want = "billing"
		case strings.HasPrefix(path, "/files/"):
			want = "files"
		}
		if got != want {
			t.Errorf("header %q, host %q, path %q: %q, want %q", header, host, path, got, want)
		}
	})
}

func TestWithoutDomainTheHostNamesNoService(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = "billing.svc.test"
	if got := (namer{}).service(r); got != "" {
		t.Errorf("got %q", got)
	}
}
