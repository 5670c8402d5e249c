package routing_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity/peering"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/membership"
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

// A sidecar that speaks HTTP/2 takes upgrades over HTTP/1.1 beside it. Both stay
// open while other services change.
func TestASecuredEndpointHasConnectionsOfItsOwn(t *testing.T) {
	self := join(t, "r1", membership.RoleRelay, nil)
	w := join(t, "w1", membership.RoleWorker, self)
	reg := prometheus.NewRegistry()
	r := route(t, self, func(c *routing.Config) { c.Identity, c.Registerer = relayIdentity(t), reg })
	address := backend(t)
	secured := advertise.Service{Name: "secured", Address: address, Protocol: advertise.H2C, Secured: true}
	plain := advertise.Service{Name: "plain", Address: address, Protocol: advertise.H2C}
	offer(t, w, secured, plain)
	target := func(name string) (found *routing.Target) {
		await(t, name+" has a target", func() bool {
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
	await(t, "the plain one is let go", func() bool { return link(direct) == peering.None })
	if state := link(behind); state == peering.None {
		t.Errorf("the secured one is %v: want it to be connected or tried", state)
	}
}

func TestWithoutACertificateSecuredEndpointsAreLeftOutAndItIsSaidOnce(t *testing.T) {
	self := join(t, "r1", membership.RoleRelay, nil)
	w := join(t, "w1", membership.RoleWorker, self)
	reg, log := prometheus.NewRegistry(), &lines{}
	r := route(t, self, func(c *routing.Config) {
		c.Registerer, c.Logger = reg, slog.New(slog.NewTextHandler(log, nil))
	})
	offer(t, w, advertise.Service{Name: "a", Address: "127.0.0.1:1", Secured: true}, advertise.Service{Name: "b", Address: "127.0.0.1:1", Secured: true},
		advertise.Service{Name: "c", Address: "127.0.0.1:1", Protocol: advertise.TCP}, advertise.Service{Name: "d", Address: "127.0.0.1:1"})
	await(t, "all are routed", func() bool { s, ok := r.Service("d"); return ok && len(s.Route().Range) == 1 })
	for name, want := range map[string]int{"a": 0, "b": 0, "c": 0, "d": 1} {
		s, ok := r.Service(name)
		if !ok || len(s.Route().Range) != want || len(s.Route().Endpoints) != 1 {
			t.Errorf("%s: %+v", name, s.Route())
		}
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP ringway_relay_endpoints_left_out_total Endpoints left out of a route that was computed, by reason: protocol, or no_certificate, when the endpoint is secured and this relay has no certificate.
# TYPE ringway_relay_endpoints_left_out_total counter
ringway_relay_endpoints_left_out_total{reason="no_certificate"} 2
ringway_relay_endpoints_left_out_total{reason="protocol"} 1
`), "ringway_relay_endpoints_left_out_total"); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "no certificate"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
}

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
