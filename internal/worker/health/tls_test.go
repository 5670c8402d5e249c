package health

import (
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

// A probe fails where a relay would fail.
func TestAServiceWithH2IsCheckedOverTLS(t *testing.T) {
	serve := func(http2 bool) (address string, roots *x509.CertPool) {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.ProtoMajor != 2 || r.TLS == nil:
				t.Errorf("a probe over %s", r.Proto)
			case r.URL.Path == "/long":
				_, _ = io.WriteString(w, strings.Repeat("x", 200<<10))
			case r.URL.Path != "/healthz":
				http.Error(w, "out of order", http.StatusServiceUnavailable)
			}
		}))
		srv.EnableHTTP2 = http2
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		srv.StartTLS()
		t.Cleanup(srv.Close)
		roots = x509.NewCertPool()
		roots.AddCert(srv.Certificate())
		return srv.Listener.Addr().String(), roots
	}
	good, roots := serve(true)
	old, oldRoots := serve(false)
	for what, c := range map[string]struct {
		check        Check
		result, text string
		cause        error
	}{
		"http":             {Check{Kind: HTTP, Address: good, Path: "/healthz", ServiceRoots: roots}, resultSuccess, "", nil},
		"http by its name": {Check{Kind: HTTP, Address: good, Path: "/healthz", ServiceRoots: roots, ServerName: "example.com"}, resultSuccess, "", nil},
		"a long answer":    {Check{Kind: HTTP, Address: good, Path: "/long", ServiceRoots: roots}, resultSuccess, "", nil},
		"tcp":              {Check{Kind: TCP, Address: good, ServiceRoots: roots}, resultSuccess, "", nil},
		"a bad status":     {Check{Kind: HTTP, Address: good, Path: "/", ServiceRoots: roots}, resultStatus, "answered 503 Service Unavailable \"out of order\\n\"", nil},
		"gRPC without it":  {Check{Kind: GRPC, Address: good, ServiceRoots: roots}, resultStatus, "answered HTTP \"503\"", nil},
		"no authority":     {Check{Kind: TCP, Address: good, ServerName: "example.com"}, resultUntrusted, "--service-ca", upstream.ErrUntrusted},
		"another name":     {Check{Kind: TCP, Address: good, ServiceRoots: roots, ServerName: "a.example"}, resultUntrusted, "a.example", upstream.ErrUntrusted},
		"no h2":            {Check{Kind: HTTP, Address: old, ServiceRoots: oldRoots}, resultNotH2, "protocol=h2", upstream.ErrNotH2},
		"clear text":       {Check{Kind: HTTP, Address: serveClear(t), ServiceRoots: roots}, resultNotH2, "protocol=h2", upstream.ErrNotH2},
	} {
		t.Run(what, func(t *testing.T) {
			c.check.TLS = true
			err := normalized(t, c.check).probe(t.Context())
			if resultOf(err) != c.result || c.cause != nil && !errors.Is(err, c.cause) || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("result %s: %v", resultOf(err), err)
			}
		})
	}
}

func TestAServiceWithH2CIsCheckedOverHTTP2(t *testing.T) {
	only := func(protocols func(*http.Protocols)) (address string) {
		server := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodGet && r.Host != "health.test":
				t.Errorf("a probe for the host %q", r.Host)
			case r.URL.Path == "/long":
				_, _ = io.WriteString(w, strings.Repeat("x", 200<<10))
			case r.URL.Path != "/healthz":
				http.Error(w, "out of order", http.StatusServiceUnavailable)
			}
		})
		server.Config.Protocols = new(http.Protocols)
		protocols(server.Config.Protocols)
		server.Start()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	h2c := only(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })
	http1 := only(func(p *http.Protocols) { p.SetHTTP1(true) })
	for what, c := range map[string]struct{ address, path, result, text string }{
		"a good answer": {h2c, "/healthz", resultSuccess, ""},
		"a long answer": {h2c, "/long", resultSuccess, ""},
		"a bad status":  {h2c, "/", resultStatus, "answered 503 Service Unavailable \"out of order\\n\""},
		"HTTP/1.1 only": {http1, "/healthz", resultGarbage, "protocol"},
	} {
		err := normalized(t, Check{Kind: HTTP, Address: c.address, Path: c.path, Host: "health.test", HTTP2: true}).probe(t.Context())
		if resultOf(err) != c.result || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: result %s: %v", what, resultOf(err), err)
		}
	}
}

func serveClear(t *testing.T) string {
	server := serveHTTP(t, func(http.ResponseWriter, *http.Request) { t.Error("a request in clear text") })
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
