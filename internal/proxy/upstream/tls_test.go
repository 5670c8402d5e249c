package upstream_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// tlsEndpoint is a net/http server with a certificate for 127.0.0.1 and example.com, and
// the trust in it.
func tlsEndpoint(t *testing.T, h http.HandlerFunc, protocols ...string) (address string, roots *x509.CertPool) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = len(protocols) == 0
	srv.TLS = &tls.Config{NextProtos: protocols}
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots = x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return srv.Listener.Addr().String(), roots
}

func TestAServiceWithH2IsAskedOverTLSOnOneConnection(t *testing.T) {
	for _, name := range []string{"", "example.com"} {
		addr, roots := tlsEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "Grpc-Status")
			w.Header().Set("Server-Name", r.TLS.ServerName)
			_, _ = io.WriteString(w, r.Proto)
			w.(http.Flusher).Flush() // without a length, as gRPC answers
			w.Header().Set("Grpc-Status", "7")
		})
		activity := new(upstream.Activity)
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: advertise.H2, Activity: activity, TLS: upstream.ServiceTLS{Roots: roots, Name: name}}), nil)
		for range 10 {
			resp, body := in.get(t, "/")
			if resp.StatusCode != 200 || body != "HTTP/2.0" || resp.Header.Get("Server-Name") != name || resp.Trailer.Get("Grpc-Status") != "7" {
				t.Fatalf("name %q: %s %q %v, trailers %v", name, resp.Status, body, resp.Header, resp.Trailer)
			}
		}
		if opened := activity.Opened.Load(); opened != 1 || activity.Failed.Load()+activity.Untrusted.Load()+activity.NotH2.Load() != 0 {
			t.Errorf("name %q: %d connections were opened, want 1 and no failure", name, opened)
		}
	}
}

func TestAServiceIsNotUsedWithoutTheExpectedCertificateAndHTTP2(t *testing.T) {
	asked := func(http.ResponseWriter, *http.Request) { t.Error("the service was asked") }
	good, roots := tlsEndpoint(t, asked)
	old, oldRoots := tlsEndpoint(t, asked, "http/1.1")
	mute, muteRoots := tlsEndpoint(t, asked, "other/1")
	for what, c := range map[string]struct {
		address string
		tls     upstream.ServiceTLS
		want    error
	}{
		"an authority that is not known":  {good, upstream.ServiceTLS{Name: "example.com"}, upstream.ErrUntrusted},
		"another name":                    {good, upstream.ServiceTLS{Roots: roots, Name: "billing.example.org"}, upstream.ErrUntrusted},
		"a service without h2":            {old, upstream.ServiceTLS{Roots: oldRoots}, upstream.ErrNotH2},
		"a service with another protocol": {mute, upstream.ServiceTLS{Roots: muteRoots}, upstream.ErrNotH2},
		"a service in clear text":         {httpEndpoint(t, asked), upstream.ServiceTLS{Roots: roots}, upstream.ErrNotH2},
	} {
		t.Run(what, func(t *testing.T) {
			activity := new(upstream.Activity)
			in := startIngress(t, newPool(t, upstream.Config{Address: c.address, Protocol: advertise.H2, TLS: c.tls, Activity: activity}), nil)
			in.get(t, "/")
			e := within(t, in.outcomes, "outcome").err
			if e == nil || !errors.Is(e, c.want) || e.Stage != upstream.StageDial || e.Sent() || e.Client() || e.Local() {
				t.Errorf("%+v", e)
			}
			untrusted, notH2 := uint64(0), uint64(1)
			if c.want == upstream.ErrUntrusted {
				untrusted, notH2 = 1, 0
			}
			if activity.Untrusted.Load() != untrusted || activity.NotH2.Load() != notH2 || activity.Failed.Load() != 0 {
				t.Errorf("counted: %d untrusted, %d not h2, %d others", activity.Untrusted.Load(), activity.NotH2.Load(), activity.Failed.Load())
			}
			if err := in.pool.Warm(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("Warm: %v", err)
			}
		})
	}
}

func TestNamesOfServersAreThoseOfCertificates(t *testing.T) {
	for name, want := range map[string]bool{
		"billing.example.org": true, "10.0.0.1": true, "::1": true, "a_b": true,
		"": false, ".a": false, "-a": false, "a b": false, "a:443": false, "*.example.org": false, "a\n": false, strings.Repeat("a", 254): false,
	} {
		if err := upstream.CheckServerName(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}
