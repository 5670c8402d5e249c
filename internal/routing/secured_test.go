package routing_test

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership/identity"
)

func relayIdentity(t *testing.T) *identity.Source {
	t.Helper()
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	source, err := authority.Source(identity.Claims{Role: identity.RoleRelay, Cluster: "test", Environment: "ci", Node: "r1"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func offer(t *testing.T, m *member, services ...advertise.Service) {
	t.Helper()
	if err := m.catalogue.Offer(services); err != nil {
		t.Fatal(err)
	}
}

// A sidecar that speaks HTTP/2 takes upgrades over HTTP/1.1 in addition. Both stay
// open while other services change.
func TestASecuredEndpointHasConnectionsOfItsOwn(t *testing.T) {
	self := join(t, "r1", identity.RoleRelay, nil)
	w := join(t, "w1", identity.RoleWorker, self)
	reg := prometheus.NewRegistry()
	r := route(t, self, func(c *routing.Config) {
		c.Identity, c.Registerer, c.AllowClearText = relayIdentity(t), reg, []string{"plain"}
	})
	address := backend(t)
	secured := advertise.Service{Name: "secured", Address: address, Protocol: advertise.H2C, Secured: true}
	plain := advertise.Service{Name: "plain", Address: address, Protocol: advertise.H2C}
	offer(t, w, secured, plain)
	target := func(name string) (found *routing.Target) {
		procs.Await(t, name+" has a target", func() bool {
			s, ok := r.Service(name)
			if ok && len(s.Route().Range) == 1 {
				found = s.Route().Range[0]
			}
			return found != nil
		})
		return found
	}
	behind, direct := target("secured"), target("plain")
	if !behind.Secured || behind.Upgrades == nil || direct.Secured || direct.Upgrades != nil || behind.Pool == direct.Pool {
		t.Errorf("secured %+v, direct %+v", behind, direct)
	}
	offer(t, w, secured)
	link := func(target *routing.Target) peering.State {
		state, err := r.Link(t.Context(), target.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	procs.Await(t, "the plain one is let go", func() bool { return link(direct) == peering.None })
	if state := link(behind); state == peering.None {
		t.Errorf("the secured one is %v: want it to be connected or tried", state)
	}
}

func TestWithoutACertificateSecuredEndpointsAreLeftOutAndThisIsLoggedOnce(t *testing.T) {
	self := join(t, "r1", identity.RoleRelay, nil)
	w := join(t, "w1", identity.RoleWorker, self)
	reg, log := prometheus.NewRegistry(), &logtest.Log{}
	r := route(t, self, func(c *routing.Config) {
		c.Registerer, c.Logger = reg, slog.New(slog.NewTextHandler(log, nil))
	})
	offer(t, w, advertise.Service{Name: "a", Address: "127.0.0.1:1", Secured: true}, advertise.Service{Name: "b", Address: "127.0.0.1:1", Secured: true},
		advertise.Service{Name: "d", Address: "127.0.0.1:1"})
	procs.Await(t, "all are routed", func() bool { s, ok := r.Service("d"); return ok && len(s.Route().Range) == 1 })
	for name, want := range map[string]int{"a": 0, "b": 0, "d": 1} {
		s, ok := r.Service(name)
		if !ok || len(s.Route().Range) != want || len(s.Route().Endpoints) != 1 {
			t.Errorf("%s: %+v", name, s.Route())
		}
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP ringway_relay_endpoints_left_out_total Endpoints left out of a route that was computed, by reason: protocol, no_certificate (the endpoint is secured and this relay has no certificate), unsecured (it is not, and this relay has one) or own_listener (it is a listener of a relay).
# TYPE ringway_relay_endpoints_left_out_total counter
ringway_relay_endpoints_left_out_total{reason="no_certificate"} 2
ringway_relay_endpoints_left_out_total{reason="own_listener"} 0
ringway_relay_endpoints_left_out_total{reason="protocol"} 0
ringway_relay_endpoints_left_out_total{reason="unsecured"} 0
`), "ringway_relay_endpoints_left_out_total"); err != nil {
		t.Error(err)
	}
	if now := logtest.Series(t, reg, "ringway_relay_endpoints_unused"); now["no_certificate"] != 2 || now["unsecured"] != 0 {
		t.Errorf("unused are %v", now)
	}
	if n := strings.Count(log.String(), "no certificate"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
}

// Clear text would go to the writer of the record, which can be anyone.
func TestARelayWithACertificateSendsNothingInClearTextUnlessSettingsAllowIt(t *testing.T) {
	self := join(t, "r1", identity.RoleRelay, nil)
	w := join(t, "w1", identity.RoleWorker, self)
	r := watch(t, self, func(c *routing.Config) { c.Identity, c.AllowClearText = relayIdentity(t), []string{"legacy"} })
	address := backend(t)
	offer(t, w, advertise.Service{Name: "plain", Address: address}, advertise.Service{Name: "other", Address: address}, advertise.Service{Name: "legacy", Address: address},
		advertise.Service{Name: "secured", Address: address, Secured: true})
	procs.Await(t, "all are routed", func() bool { return len(r.of("legacy").Range) == 1 && len(r.of("secured").Range) == 1 })
	for _, name := range []string{"plain", "other"} {
		if route := r.of(name); len(route.Range) != 0 || len(route.Endpoints) != 1 {
			t.Errorf("%s: %d targets of %d endpoints, want none of 1", name, len(route.Range), len(route.Endpoints))
		}
	}
	if got := r.counters("ringway_relay_endpoints_left_out_total")["unsecured"]; got < 2 {
		t.Errorf("%d are counted, want each", got)
	}
	if n := strings.Count(r.log.String(), "--allow-clear-text"); n != 2 {
		t.Errorf("said %d times, want once for each service:\n%s", n, r.log)
	}
}

// The admin API trusts those who connect from its own host, and a relay would.
func TestNoRequestGoesToAListenerOfTheRelayItself(t *testing.T) {
	self := join(t, "r1", identity.RoleRelay, nil)
	w := join(t, "w1", identity.RoleWorker, self)
	own := backend(t) // stands for the admin API
	_, port, err := net.SplitHostPort(own)
	if err != nil {
		t.Fatal(err)
	}
	r := watch(t, self, func(c *routing.Config) {
		c.Listeners, c.Hosts = []string{own, "10.1.2.3:" + port}, []string{"192.0.2.7:7400"}
	})
	var services []advertise.Service
	for i, host := range []string{"127.0.0.1", "0.0.0.0", "192.0.2.7", "::ffff:127.0.0.1", "::"} {
		services = append(services, advertise.Service{Name: fmt.Sprint("own-", i), Address: net.JoinHostPort(host, port)})
	}
	refused := len(services)
	services = append(services, advertise.Service{Name: "good", Address: backend(t)}, advertise.Service{Name: "elsewhere", Address: "198.51.100.1:" + port},
		advertise.Service{Name: "beside", Address: "127.1.2.3:" + port},
		advertise.Service{Name: "named", Address: "localhost:" + port})
	offer(t, w, services...)
	procs.Await(t, "all are routed", func() bool {
		return len(r.of("good").Range) == 1 && len(r.of("beside").Range) == 1 && len(r.of("elsewhere").Range) == 1 && len(r.of("named").Range) == 1
	})
	for _, s := range services[:refused] {
		if route := r.of(s.Name); len(route.Range) != 0 || len(route.Endpoints) != 1 {
			t.Errorf("%s is a target of this relay", s.Address)
		}
	}
	if got := r.counters("ringway_relay_endpoints_left_out_total")["own_listener"]; got < refused {
		t.Errorf("%d are counted, want each", got)
	}
	// A name shows what it means when it is dialled.
	if err := r.of("named").Range[0].Pool.Warm(t.Context()); err == nil || !strings.Contains(err.Error(), "this relay itself listens there") {
		t.Errorf("connected to localhost: %v", err)
	}
}
