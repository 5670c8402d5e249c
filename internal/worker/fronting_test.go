package worker_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

func TestAnAgentDoesNotStartWithAServiceThatItsCertificateLeavesOut(t *testing.T) {
	t.Parallel()
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for names, want := range map[string]string{
		"other": `service echo: the certificate of its worker is for other`, "echo": "", "*": "", "": "",
	} {
		s := worker.DefaultSettings()
		s.Cluster, s.Environment, s.ID, s.Join = "test", "ci", "w1", []string{"127.0.0.1:7400"}
		s.GossipAddr, s.AdminAddr, s.SidecarAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		s.Services = []string{"echo=127.0.0.1:9000"}
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Membership.Identity, err = authority.Source(identity.Claims{Role: identity.RoleWorker, Cluster: "test", Environment: "ci", Node: "w1", Services: names}, time.Hour); err != nil {
			t.Fatal(err)
		}
		err = worker.Check(cfg)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("a certificate for %q: %v, want %q", names, err, want)
		}
	}
}

func TestAnAgentWithACertificateFrontsItsServices(t *testing.T) {
	t.Parallel()
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	member := func(role identity.Role, node string) *identity.Source {
		s, err := authority.Source(identity.Claims{Role: role, Cluster: "test", Environment: "ci", Node: node}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	relay := member(identity.RoleRelay, "r1")
	node, catalogue := observer(t, relay)
	watching, done := context.WithTimeout(context.Background(), patience)
	defer done()

	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(backend.Close)
	address := backend.Listener.Addr().String()
	s := worker.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = "test", "ci", "w1", []string{node.Addr()}
	s.GossipAddr, s.AdminAddr, s.SidecarAddr, s.DrainDelay = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", 0
	s.Services = []string{"echo=" + address, "raw=" + address + ";protocol=h2"}
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Membership.Identity = member(identity.RoleWorker, "w1")
	services := cfg.Services
	cfg.ReadSettings = func() ([]worker.Service, []string, error) { return services, nil, nil }
	agent, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()

	tr := &http.Transport{TLSClientConfig: relay.ClientConfig(relay.Policy(identity.DataPlane), identity.Expected{Node: "w1"}, "http/1.1")}
	defer tr.CloseIdleConnections()
	ask := func() (int, string) {
		req, err := http.NewRequestWithContext(watching, "GET", "https://"+agent.SidecarAddr(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Ringway-Service", "echo")
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	for view := range catalogue.Watch(watching) {
		echo, ok := view.Endpoint("echo", "w1")
		if !ok {
			continue
		}
		if !echo.Secured || echo.Address != agent.SidecarAddr() {
			t.Errorf("offered %+v, want the sidecar at %s", echo, agent.SidecarAddr())
		}
		if raw, ok := view.Endpoint("raw", "w1"); !ok || !raw.Secured || raw.Address != agent.SidecarAddr() {
			t.Errorf("a service with h2 is offered as %+v, want the sidecar", raw)
		}
		break
	}
	if status, body := ask(); status != 200 || body != "hello" {
		t.Errorf("a relay got %d %q", status, body)
	}
	services = services[1:]
	agent.Reload()
	if status, _ := ask(); status != http.StatusNotFound {
		t.Errorf("a service that is gone answers %d", status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("an orderly stop returned %v", err)
	}
}

func TestTheSidecarIsOnTheHostOfTheGossipAddressUnlessConfigured(t *testing.T) {
	for _, c := range []struct{ gossip, sidecar, cert, want string }{
		{"10.0.0.1:7401", "", "cert.pem", "10.0.0.1:7421"},
		{":7401", "", "cert.pem", ":7421"},
		{"[::1]:7401", "10.0.0.1:9000", "cert.pem", "10.0.0.1:9000"},
		{"10.0.0.1:7401", "", "", ""},
	} {
		s := worker.DefaultSettings()
		s.GossipAddr, s.SidecarAddr, s.TLSCert = c.gossip, c.sidecar, c.cert
		if got := s.SidecarAddress(); got != c.want {
			t.Errorf("gossip at %s, --sidecar-addr %q, certificate %q: %q, want %q", c.gossip, c.sidecar, c.cert, got, c.want)
		}
	}
}

// What peers will not use is refused before the start, not found out in production.
func TestAnAddressThatNoPeerWouldUseIsRefusedBeforeTheStart(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // a part of the problem; empty: it is valid
	}{
		{[]string{"--service", "hello=0.0.0.0:9000"}, "every interface is where to listen"},
		{[]string{"--service", "hello=[::]:9000"}, "every interface is where to listen"},
		{[]string{"--service", "hello=127.0.0.1:9000"}, ""},
		{[]string{"--service", "hello=10.0.0.9:9000"}, ""},
		{[]string{"--service", "hello=127.0.0.1:9000", "--gossip-addr", "10.0.0.7:7401", "--insecure"}, "only this host can connect to it"},
		{[]string{"--service", "hello=127.0.0.1:9000", "--gossip-addr", "0.0.0.0:7401", "--advertise-addr", "10.0.0.7:7401", "--insecure"}, "only this host can connect to it"},
		{[]string{"--service", "hello=10.0.0.9:9000", "--gossip-addr", "10.0.0.7:7401", "--insecure"}, ""},
		// With certificates the sidecar is what others connect to.
		{[]string{"--service", "hello=127.0.0.1:9000", "--gossip-addr", "10.0.0.7:7401", "with-certificate"}, ""},
		{[]string{"--service", "hello=127.0.0.1:9000", "--gossip-addr", "10.0.0.7:7401", "--sidecar-addr", "10.0.0.8:7421", "with-certificate"}, "it is not on the worker's host"},
		{[]string{"--service", "hello=127.0.0.1:9000", "--gossip-addr", "10.0.0.7:7401", "--sidecar-addr", "10.0.0.8:7421", "--endpoint-allowed-cidr", "10.0.0.0/24", "with-certificate"}, ""},
		{[]string{"--service", "a=127.0.0.1:1", "--service", "b=127.0.0.1:1", "--max-services-per-record", "1"}, "other members take at most 1"},
		{[]string{"--service", "hello=127.0.0.1:9000", "--endpoint-allowed-cidr", "10.0.0.0/99"}, "not a network"},
	} {
		s := worker.DefaultSettings()
		set := settings.New("worker", "RINGWAY")
		s.Declare(set)
		flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
		set.BindFlags(flags)
		args := append([]string{"--cluster", "test", "--environment", "ci", "--id", "w1"}, c.args...)
		if last := len(args) - 1; args[last] == "with-certificate" {
			args = append(args[:last], "--tls-cert", "c", "--tls-key", "k", "--tls-ca", "a", "--gossip-key-file", "g")
		}
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		err := set.Load(settings.Sources{})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestSessionsThroughTheSidecarHaveAtLeastTheTimeOfRequests(t *testing.T) {
	for _, c := range []struct {
		args               []string
		requests, sessions time.Duration
		problem            string
	}{
		{nil, 30 * time.Second, 5 * time.Minute, ""},
		{[]string{"--drain-timeout", "10m"}, 10 * time.Minute, 10 * time.Minute, ""},
		{[]string{"--session-drain-timeout", "1m"}, 30 * time.Second, time.Minute, ""},
		{[]string{"--drain-timeout", "1m", "--session-drain-timeout", "1s"}, 0, 0, "at least --drain-timeout, 1m0s"},
		{[]string{"--session-drain-timeout", "-1s"}, 0, 0, "--session-drain-timeout"},
	} {
		s := worker.DefaultSettings()
		set := settings.New("worker", "RINGWAY")
		s.Declare(set)
		flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
		set.BindFlags(flags)
		if err := flags.Parse(append([]string{"--cluster", "test", "--environment", "ci", "--id", "w1", "--service", "a=127.0.0.1:1"}, c.args...)); err != nil {
			t.Fatal(err)
		}
		if err := set.Load(settings.Sources{}); c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%v: %v, want %q", c.args, err, c.problem)
			}
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil || cfg.DrainTimeout != c.requests || cfg.SessionDrainTimeout != c.sessions {
			t.Errorf("%v: %v for requests, %v for sessions, %v", c.args, cfg.DrainTimeout, cfg.SessionDrainTimeout, err)
		}
	}
}

// Relays connect to a worker once they have planned with it.
func TestAWorkerIsReadyOnceTheRelaysThatItSeesHaveConnected(t *testing.T) {
	t.Parallel()
	f := fleet.New(fleet.Config{Cluster: "test", Environment: "ci"})
	var seed []string
	member := func(role identity.Role, id string) *identity.Source {
		cfg := membership.Config{Cluster: "test", Environment: "ci", ID: id, Role: role, BindAddr: "127.0.0.1:0", Seeds: seed}
		if err := f.Equip(&cfg); err != nil {
			t.Fatal(err)
		}
		node, err := membership.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = node.Close() })
		seed = []string{node.Addr()}
		return cfg.Identity
	}
	r1, r2, other := member(identity.RoleRelay, "r1"), member(identity.RoleRelay, "r2"), member(identity.RoleObserver, "o1")
	if err := f.StartWorker(fleet.WorkerConfig{ID: "w1", Change: func(s *worker.Settings) {
		s.Join, s.Services, s.ReadyRelays = seed, []string{"echo=127.0.0.1:9000"}, 3
	}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	agent := f.Worker("w1").Agent
	reasons := func() string {
		var health api.Health
		_ = ask(t, agent, "GET", "/readyz", "", &health)
		return strings.Join(health.Reasons, "; ")
	}
	reach := func(want string) {
		t.Helper()
		procs.Await(t, fmt.Sprintf("not ready because %q", want), func() bool {
			got := reasons()
			return want == "" && got == "" || want != "" && strings.Contains(got, want)
		})
	}
	connect := func(as *identity.Source) { // an answer shows that the connection was accepted
		t.Helper()
		tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: as.ClientConfig(as.Policy(identity.DataPlane), identity.Expected{Node: "w1"}, "http/1.1")}
		answer, err := (&http.Client{Transport: tr}).Get("https://" + agent.SidecarAddr())
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	reach("0 of 2 relays (--ready-relays) have connected")
	connect(other)
	connect(r1)
	connect(r1)
	if got := reasons(); !strings.Contains(got, "1 of 2 relays") {
		t.Errorf("after an observer, and a relay twice: %q", got)
	}
	connect(r2)
	reach("")
	member(identity.RoleRelay, "r3")
	procs.Await(t, "the worker sees five members", func() bool { return len(seen(t, agent)) >= 5 })
	if got := reasons(); got != "" {
		t.Errorf("a relay that joins later makes it unready: %s", got)
	}
}

// seen are the members that a worker sees.
func seen(t *testing.T, agent *worker.Agent) []membership.Member {
	t.Helper()
	var all api.Members
	_ = ask(t, agent, "GET", "/api/v1/members", "", &all)
	return all.Members
}

func TestOnlyAWorkerWithACertificateCanWaitForRelays(t *testing.T) {
	for _, c := range []struct {
		relays, want string
		tls          bool
	}{
		{"0", "", false}, {"2", "", true}, {"2", "relays connect to the services themselves", false},
		{"-1", "--ready-relays", true}, {"101", "--ready-relays", true}, {"two", "--ready-relays", true},
	} {
		s := worker.DefaultSettings()
		set := settings.New("worker", "RINGWAY")
		s.Declare(set)
		environ := []string{"RINGWAY_CLUSTER=test", "RINGWAY_ENVIRONMENT=ci", "RINGWAY_ID=w1", "RINGWAY_SERVICE=a=127.0.0.1:1", "RINGWAY_READY_RELAYS=" + c.relays}
		if c.tls {
			environ = append(environ, "RINGWAY_TLS_CERT=c", "RINGWAY_TLS_KEY=k", "RINGWAY_TLS_CA=a", "RINGWAY_GOSSIP_KEY_FILE=g")
		}
		err := set.Load(settings.Sources{Environ: environ})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s relays, certificate %v: %v, want %q", c.relays, c.tls, err, c.want)
		}
	}
}
