package routing_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership/identity"
)

// rig is a router and what it reports. Several may follow the catalogue of one relay:
// they then differ in nothing but a setting.
type rig struct {
	*routing.Router
	t   *testing.T
	reg *prometheus.Registry
	log *logtest.Log
}

func watch(t *testing.T, self *member, change func(*routing.Config)) *rig {
	t.Helper()
	r := &rig{t: t, reg: prometheus.NewRegistry(), log: &logtest.Log{}}
	r.Router = route(t, self, func(c *routing.Config) {
		c.Registerer, c.Logger = r.reg, slog.New(slog.NewTextHandler(r.log, nil))
		change(c)
	})
	return r
}

// of is the route of a service, without a plan while it is not known.
func (r *rig) of(service string) *routing.Route {
	if s, ok := r.Service(service); ok {
		return s.Route()
	}
	return &routing.Route{Index: -1}
}

// link is the state of the connection to an endpoint.
func (r *rig) link(e *advertise.Endpoint) peering.State {
	r.t.Helper()
	state, err := r.Link(r.t.Context(), e)
	if err != nil {
		r.t.Fatal(err)
	}
	return state
}

// connected reports whether the plan of a service has this number of relays and workers, and
// whether every endpoint of the range is connected.
func (r *rig) connected(service string, relays, workers int) func() bool {
	return func() bool {
		route := r.of(service)
		if route.Plan == nil || len(route.Plan.Affine()) != relays || len(route.Plan.Workers()) != workers {
			return false
		}
		return len(route.Range) > 0 && !slices.ContainsFunc(route.Range, func(target *routing.Target) bool {
			return r.link(target.Endpoint) != peering.Open
		})
	}
}

// events are ringway_peering_events_total, by event.
func (r *rig) events() map[string]int { return r.counters("ringway_peering_events_total") }

// plans is how often a route was computed.
func (r *rig) plans() int { return r.counters("ringway_relay_route_updates_total")["ok"] }

// counters are counters or gauges of one name, by their first label.
func (r *rig) counters(name string) map[string]int {
	r.t.Helper()
	out := map[string]int{}
	for labels, n := range logtest.Series(r.t, r.reg, name) {
		first, _, _ := strings.Cut(labels, ",")
		out[first] = int(n)
	}
	return out
}

// cluster is relays r1, r2, … and workers w1, w2, …, which all offer echo.
type cluster struct {
	t       *testing.T
	relays  []*member
	workers map[string]*member
	offers  map[string]advertise.Service
}

func startCluster(t *testing.T, relays, workers int) *cluster {
	t.Helper()
	c := &cluster{t: t, relays: []*member{join(t, "r1", identity.RoleRelay, nil)}, workers: map[string]*member{}, offers: map[string]advertise.Service{}}
	for i := 1; i < relays; i++ {
		c.relays = append(c.relays, join(t, fmt.Sprintf("r%d", i+1), identity.RoleRelay, c.relays[0]))
	}
	for i := range workers {
		id := fmt.Sprintf("w%d", i+1)
		c.offers[id] = advertise.Service{Name: "echo", Address: backend(t)}
		c.start(id)
	}
	return c
}

// start has a worker come, or come back.
func (c *cluster) start(id string) {
	c.t.Helper()
	c.workers[id] = join(c.t, id, identity.RoleWorker, c.relays[0])
	offer(c.t, c.workers[id], c.offers[id])
}

// stop has a member leave.
func (c *cluster) stop(m *member) {
	c.t.Helper()
	if err := m.Leave(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	m.crash()
}
