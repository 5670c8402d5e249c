package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

// Catalogue is what the router needs of advertise.Directory.
type Catalogue interface {
	// Settled reports whether the newest view is whole.
	Settled() bool
	Watch(ctx context.Context) <-chan *advertise.View
}

// Config describes a Router.
type Config struct {
	// Self is this relay's id.
	Self string
	// Role is relay, or gate for one that only forwards.
	Role membership.Role
	// Catalogue is followed. Its views carry the members of the same moment, so
	// relays and endpoints always fit together. Required.
	Catalogue Catalogue

	// RelaysPerService, Minimums and IndexSource go into every plan.
	RelaysPerService int
	Minimums         affinity.Minimums
	IndexSource      affinity.IndexSource
	// Selection configures the balancers.
	Selection selection.Config

	// DrainDelay is how long a connection that is no longer in the range stays
	// open. It must exceed the time in which the relays come to agree; default
	// 30 s.
	DrainDelay time.Duration
	// RewarmInterval is how often an endpoint of the range without any connection
	// is connected to again. Default 2 s.
	RewarmInterval time.Duration
	// Identity has this relay's certificate; other relays are then reached over
	// mutual TLS. Default: none, clear text.
	Identity *identity.Source
	// Epoch is the zero of selection.Instant. Required, the same one that the
	// requests are timed with.
	Epoch time.Time
	// Logger gets a line when this relay's role for a service changes. Required.
	Logger *slog.Logger
	// Registerer takes the metrics. Required.
	Registerer prometheus.Registerer
}

// refreshInterval is how often the medians of each range are taken anew.
const refreshInterval = 250 * time.Millisecond

// Router follows the catalogue and publishes routes.
type Router struct {
	cfg     Config
	pools   *pools
	updates *prometheus.CounterVec

	services atomic.Pointer[map[string]*Service]
	settled  atomic.Bool

	// Run's own state.
	snapshot   *membership.Snapshot
	view       *advertise.View
	relays     []membership.Member
	generation uint64
	warming    []<-chan struct{}
}

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Router, error) {
	if err := errors.Join(cfg.Minimums.Validate(), cfg.Selection.Validate()); err != nil {
		return nil, err
	}
	if cfg.DrainDelay == 0 {
		cfg.DrainDelay = 30 * time.Second
	}
	if cfg.RewarmInterval == 0 {
		cfg.RewarmInterval = 2 * time.Second
	}
	r := &Router{cfg: cfg, updates: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_relay_route_updates_total", Help: "Times the route of a service was computed anew, by result.",
	}, []string{"result"})}
	r.pools = newPools(func(key poolKey) (*upstream.Pool, error) {
		return upstream.NewPool(upstream.Config{Address: key.address, Protocol: key.protocol, Dial: cfg.dialRelay(key)})
	}, cfg)
	r.services.Store(&map[string]*Service{})
	return r, nil
}

// Service finds a service by name. One atomic load, one map lookup.
func (r *Router) Service(name string) (*Service, bool) {
	s, ok := (*r.services.Load())[name]
	return s, ok
}

// Services lists the services that have, or recently had, an endpoint, by name.
func (r *Router) Services() []*Service {
	m := *r.services.Load()
	out := make([]*Service, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
}

// Settled reports whether a whole view of the catalogue was routed and every
// connection of it was tried once: before that, this relay would answer with
// errors what another relay can answer well.
func (r *Router) Settled() bool { return r.settled.Load() }

// Run follows the catalogue until ctx ends, then closes every
// connection and waits for all that it started.
func (r *Router) Run(ctx context.Context) error {
	defer r.pools.close()
	views := r.cfg.Catalogue.Watch(ctx)
	refresh, rewarm := time.NewTicker(refreshInterval), time.NewTicker(r.cfg.RewarmInterval)
	defer refresh.Stop()
	defer rewarm.Stop()
	var sweep <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case v, ok := <-views:
			if !ok {
				return nil
			}
			if v.Members() == nil {
				continue // nothing is known yet
			}
			r.view, r.snapshot = v, v.Members()
			r.update(ctx)
			sweep = r.sweep()
		case <-sweep:
			sweep = r.sweep()
		case <-rewarm.C:
			r.pools.rewarm(ctx, r.generation)
		case <-refresh.C:
			now := r.now()
			for _, s := range *r.services.Load() {
				s.Endpoints.Refresh(now)
				s.Relays.Refresh(now)
			}
			r.noteSettled()
		}
	}
}

func (r *Router) now() selection.Instant { return selection.Instant(time.Since(r.cfg.Epoch)) }

func (r *Router) sweep() <-chan time.Time {
	if next := r.pools.sweep(r.generation, time.Now()); next > 0 {
		return time.After(next)
	}
	return nil
}

func (r *Router) noteSettled() {
	if r.settled.Load() || r.view == nil || !r.cfg.Catalogue.Settled() {
		return
	}
	for _, warm := range r.warming {
		select {
		case <-warm:
		default:
			return
		}
	}
	r.warming = nil
	r.settled.Store(true)
}

// update recomputes what changed and publishes it.
func (r *Router) update(ctx context.Context) {
	r.generation++
	relays := slices.DeleteFunc(r.snapshot.WithRole(membership.RoleRelay), func(m membership.Member) bool { return m.Leaving })
	if r.cfg.Role == membership.RoleRelay && !hasMember(relays, r.cfg.Self) {
		// Ranges computed without this relay would drop all its workers at once.
		if _, present := r.snapshot.Get(r.cfg.Self); !present && hasMember(r.relays, r.cfg.Self) {
			r.cfg.Logger.Warn("this relay does not find itself among the members: it keeps the connections it has")
		}
		relays = r.relays
	}
	if r.snapshot.Degraded() {
		relays = keepFailedRelays(r.relays, relays, r.snapshot)
	}
	relaysChanged := !slices.Equal(relays, r.relays)
	r.relays = relays

	old := *r.services.Load()
	next := make(map[string]*Service, len(old))
	for _, name := range r.view.Services() {
		s, known := old[name]
		if !known {
			var err error
			if s, err = NewService(name, r.cfg.Selection); err != nil {
				r.cfg.Logger.Error("cannot route a service", "service", name, "err", err)
				continue
			}
		}
		next[name] = s
		if err := r.route(ctx, s, relaysChanged); err != nil {
			// The last good route stays: stale peers beat none.
			r.updates.WithLabelValues("failed").Inc()
			r.cfg.Logger.Error("cannot plan a service; its last route stays", "service", name, "err", err)
		}
	}
	r.services.Store(&next)
}

// route brings one service up to date.
func (r *Router) route(ctx context.Context, s *Service, relaysChanged bool) error {
	old := s.Route()
	endpoints := r.view.Endpoints(s.Name)
	if r.snapshot.Degraded() {
		endpoints = keepFailedEndpoints(s.Name, old.Endpoints, endpoints, r.snapshot)
	}
	// The catalogue keeps the slice of a service that did not change.
	if !relaysChanged && old.Plan != nil && sameSlice(old.Endpoints, endpoints) {
		r.keep(ctx, old)
		return nil
	}
	next := &Route{Index: -1, Endpoints: endpoints}
	byNode := make(map[string]advertise.Endpoint, len(endpoints))
	var workers []string
	for _, e := range endpoints {
		if e.State == advertise.Ready {
			workers = append(workers, e.NodeID)
			byNode[e.NodeID] = e
		}
	}
	if len(workers) > 0 && len(r.relays) > 0 {
		plan, err := affinity.NewPlan(affinity.PlanConfig{
			Service: s.Name, Relays: membership.IDs(r.relays), Workers: workers, WorkersOrdered: true,
			RelaysPerService: r.cfg.RelaysPerService, Minimums: r.cfg.Minimums, IndexSource: r.cfg.IndexSource,
		})
		if err != nil {
			return err
		}
		next.Plan = plan
		if i, ok := plan.Index(r.cfg.Self); ok {
			next.Index = i
			if next.Range, err = r.targets(ctx, plan, i, byNode); err != nil {
				return err
			}
		} else if next.Forward, err = r.peers(ctx, plan.Affine()); err != nil {
			return err
		}
	}
	if err := s.SetRoute(next, r.now()); err != nil {
		return err
	}
	r.updates.WithLabelValues("ok").Inc()
	if old.Plan == nil || old.Affine() != next.Affine() {
		role := "forwarding"
		if next.Affine() {
			role = "affine"
		}
		r.cfg.Logger.Debug("role for a service changed", "service", s.Name, "role", role, "endpoints", len(endpoints))
	}
	return nil
}

func hasMember(members []membership.Member, id string) bool {
	return slices.ContainsFunc(members, func(m membership.Member) bool { return m.ID == id })
}

func sameSlice(a, b []advertise.Endpoint) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// keep marks the pools of an unchanged route as needed.
func (r *Router) keep(ctx context.Context, route *Route) {
	for _, targets := range [][]*Target{route.Range, route.Forward} {
		for _, t := range targets {
			_, _ = r.pools.need(ctx, t.key, r.generation) // it is open already
			if t.Upgrades != nil {
				_, _ = r.pools.need(ctx, poolKey{t.Address, upstream.HTTP1, t.Node}, r.generation)
			}
		}
	}
}

// targets are the endpoints of this relay's range. An endpoint's own weight
// multiplies its share.
func (r *Router) targets(ctx context.Context, plan *affinity.Plan, index int, byNode map[string]advertise.Endpoint) ([]*Target, error) {
	assignments, err := plan.Assignments(index)
	if err != nil {
		return nil, err
	}
	out := make([]*Target, 0, len(assignments))
	for _, a := range assignments {
		e := byNode[a.Worker]
		t, err := r.target(ctx, e.NodeID, e.Epoch, poolKey{address: e.Address, protocol: upstream.Protocol(e.Protocol)})
		if err != nil {
			// One endpoint that cannot be dialled must not cost the others.
			r.cfg.Logger.Warn("endpoint left out", "service", plan.Service(), "worker", e.NodeID, "err", err)
			continue
		}
		t.Weight = a.Weight * float64(e.Weight)
		out = append(out, t)
	}
	return out, nil
}

// peers are the relays to forward to.
func (r *Router) peers(ctx context.Context, relays []string) ([]*Target, error) {
	var out []*Target
	for _, id := range relays {
		m, ok := r.snapshot.Get(id)
		if !ok || m.ForwardAddr == "" {
			continue
		}
		t, err := r.target(ctx, m.ID, m.Epoch, poolKey{m.ForwardAddr, upstream.H2C, m.ID})
		if err != nil {
			return nil, err
		}
		t.Weight = 1
		upgrades, err := r.pools.need(ctx, poolKey{m.ForwardAddr, upstream.HTTP1, m.ID}, r.generation)
		if err != nil {
			return nil, err
		}
		t.Upgrades = upgrades.pool
		out = append(out, t)
	}
	return out, nil
}

func (r *Router) target(ctx context.Context, node string, epoch uint64, key poolKey) (*Target, error) {
	p, err := r.pools.need(ctx, key, r.generation)
	if err != nil {
		return nil, fmt.Errorf("%s (%s): %w", node, key.address, err)
	}
	if !r.settled.Load() {
		r.warming = append(r.warming, p.warm)
	}
	return &Target{ID: fmt.Sprintf("%s.%d", node, epoch), Node: node, Address: key.address, Pool: p.pool, key: key}, nil
}
