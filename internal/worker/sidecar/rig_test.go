package sidecar

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

// patience bounds every wait; it is reached only when something is broken.
const patience = 30 * time.Second

const anyPort = "127.0.0.1:0"

func claims(role identity.Role, node string) identity.Claims {
	return identity.Claims{Role: role, Cluster: "test", Environment: "ci", Node: node}
}

func newAuthority(t testing.TB) *identity.Authority {
	t.Helper()
	a, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func source(t testing.TB, a *identity.Authority, c identity.Claims) *identity.Source {
	t.Helper()
	s, err := a.Source(c, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// running is a sidecar of worker w1 that serves until the end of the test.
type running struct {
	*Sidecar
	authority *identity.Authority
	log       *logtest.Log
	registry  *prometheus.Registry
	// stop ends Run in order and returns what it returned.
	stop func() error
}

func start(t testing.TB, change func(*Config), services ...advertise.Service) *running {
	t.Helper()
	r := &running{authority: newAuthority(t), log: &logtest.Log{}, registry: prometheus.NewRegistry()}
	cfg := Config{
		Addr: anyPort, Identity: source(t, r.authority, claims(identity.RoleWorker, "w1")), DrainTimeout: patience,
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Registerer: r.registry,
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.Sidecar, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	r.set(t, services...)
	r.stop = run(t, r.Sidecar)
	return r
}

// run runs s until the returned function, or the end of the test, stops it.
func run(t testing.TB, s interface{ Run(context.Context) error }) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return stop
}

func (r *running) set(t testing.TB, services ...advertise.Service) {
	t.Helper()
	set := make([]Service, len(services))
	for i, s := range services {
		set[i].Service = s
	}
	if err := r.SetServices(set); err != nil {
		t.Fatal(err)
	}
}

// tlsAs is how a member with these claims connects to the sidecar, whatever it
// thinks of it itself.
func tlsAs(source *identity.Source, protocols ...string) *tls.Config {
	config := source.ClientConfig(source.Policy(identity.DataPlane), identity.Expected{}, protocols...)
	config.VerifyConnection = nil
	return config
}

// relay is an HTTP client with the certificate of relay r1; protocols default to
// HTTP/1.1. Its connections end with the test.
func (r *running) relay(t testing.TB, protocols ...string) *http.Client {
	t.Helper()
	if len(protocols) == 0 {
		protocols = []string{"http/1.1"}
	}
	config := tlsAs(source(t, r.authority, claims(identity.RoleRelay, "r1")), protocols...)
	tr := &http.Transport{DisableCompression: true, TLSClientConfig: config, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(protocols[0] == "http/1.1")
	tr.Protocols.SetHTTP2(protocols[0] == "h2")
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// request is one for the service; headers are "Name: value".
func (r *running) request(t testing.TB, method, service string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "https://"+r.Addr().String()+"/path?q=1", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(wire.ServiceHeader, service)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	return req
}

// answer sends req and reads the whole answer.
func answer(t testing.TB, client *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// serve is a local service that speaks HTTP/1.1 and clear-text HTTP/2, and its
// offer under the name.
func serve(t testing.TB, name string, protocol advertise.Protocol, h http.HandlerFunc) advertise.Service {
	t.Helper()
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return advertise.Service{Name: name, Address: procs.Serve(t, srv), Protocol: protocol}
}

// within ends a hang.
func within[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// metricOf is the value of a metric with these label values, in the order of the
// names, and whether it exists.
func metricOf(t testing.TB, reg prometheus.Gatherer, name string, labels ...string) (float64, bool) {
	t.Helper()
	n, there := logtest.Series(t, reg, name)[strings.Join(labels, ",")]
	return n, there
}
