package routing

import (
	"cmp"
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
	"github.com/ringway/ringway/affinity/peering"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/pool"
)

// Catalogue is what the router needs of advertise.Directory.
type Catalogue interface {
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

	// Plans go into every plan; Links say what becomes of connections then.
	Plans PlanConfig
	Links LinkConfig
	// Selection configures the balancers.
	Selection selection.Config
	// Choosing says with which strategies endpoints are picked.
	Choosing ChoosingConfig
	// Forwarding says how the few relays are chosen, out of those that serve a
	// service, to which this relay is connected and forwards it. Selector, Streams
	// and the place are the router's. Default: pool.DefaultConfig.
	Forwarding pool.Config
	// Upstream says how connections to workers and relays are opened and kept. Address,
	// Protocol, Dial, Activity and Sessions are the router's.
	Upstream upstream.Config
	// Datacenter and Region are where this relay is: it forwards to near relays.
	Datacenter, Region string

	// CoalesceDelay is how long changes are collected before they are planned
	// with. Default 100 ms: a burst costs one plan, and nobody waits long.
	CoalesceDelay time.Duration
	// AuditInterval is how often the connections there are, are compared with
	// those there should be. Default 2 s.
	AuditInterval time.Duration
	// ReachTimeout is how long this relay may reach none of the workers that it should,
	// until Unreached says so. Default 10 s: the restart of the only worker, or a few
	// lost packets, must not take a relay out of rotation.
	ReachTimeout time.Duration
	// Identity has this relay's certificate; other relays and secured endpoints
	// are reached over mutual TLS. Default: none; relays are then reached in clear
	// text and secured endpoints not at all.
	Identity *identity.Source
	// AllowClearText names services that may be reached in clear text although this
	// relay has a certificate. Default: none.
	AllowClearText []string
	// Listeners are the addresses on which this process listens, and Hosts what else
	// other members call its host, as host or host:port. No request goes to a listener
	// of the relay itself, whatever a worker offers. Default: none.
	Listeners, Hosts []string
	// Epoch is the zero of selection.Instant. Required, the same one that the
	// requests are timed with.
	Epoch time.Time
	// Vanished is told of each service that is no longer known, from the goroutine of
	// Run, when Service does not find it any more and it is Gone. It must not block.
	// Default: none is told.
	Vanished func(*Service)
	// Sessions gets to know the tunnels and streams of all connections. Default: none
	// does.
	Sessions *upstream.Sessions
	// Logger gets a line when this relay's role for a service changes, and when an
	// offer appears or goes, some a second at most. Required.
	Logger *slog.Logger
	// Registerer takes the metrics. Required.
	Registerer prometheus.Registerer
}

// PlanConfig goes into every plan. All relays must have the same, or their ranges do
// not fit together. The zero value of every field means the default of
// affinity.PlanConfig.
type PlanConfig struct {
	// RelaysPerService is for services whose workers do not ask for more or fewer
	// relays; see Votes.
	RelaysPerService int
	// MaxRelaysPerService bounds what workers can ask for. Default 64.
	MaxRelaysPerService int
	Minimums            affinity.Minimums
	PeersPerTier        int
	IndexSource         affinity.IndexSource
	Strategy            affinity.Strategy
	// Skip lists, by service, the relays that must not serve it.
	Skip map[string][]string
}

// LinkConfig says how little connections move when plans do.
type LinkConfig struct {
	// DrainDelay is how long a connection that is no longer in the range stays
	// open. It must exceed the time in which the relays come to agree. Default
	// 30 s; negative closes at once.
	DrainDelay time.Duration
	// Slack is how many places outside the range an open connection is kept. 0 is
	// none.
	Slack int
	// Grace is how long a relay or worker that has vanished keeps its place in the
	// plans, so that its restart moves nothing. 0 is none.
	Grace time.Duration
}

// refreshInterval is how often the medians of each range are taken anew.
const refreshInterval = 250 * time.Millisecond

// Label values of the router's counters.
const (
	routeOK              = "ok"
	routeFailed          = "failed"
	leftOutProtocol      = "protocol"
	leftOutNoCertificate = "no_certificate"
	leftOutUnsecured     = "unsecured"
	leftOutOwnListener   = "own_listener"
)

// Router follows the catalogue and publishes routes.
type Router struct {
	cfg     Config
	lines   *loglimit.Limiter // of offers
	updates *prometheus.CounterVec
	leftOut *prometheus.CounterVec
	own     ownListeners
	reach   *reach

	services atomic.Pointer[map[string]*Service]
	settled  atomic.Bool
	served   atomic.Bool // there was a service
	calls    chan func()
	stopped  chan struct{} // closed when Run has ended

	// Run's own state.
	links      *links
	forwarding *forwarding
	choosing   *choosing
	view       *advertise.View
	snapshot   *membership.Snapshot // the view's
	trusted    *membership.Snapshot // the last one routed that was not degraded
	fleet      fleet
	plans      map[string]*planning // by service
	// saidAlone and saidLeftOut, by reason and worker or service, keep the log from
	// repeating itself.
	saidAlone   bool
	saidLeftOut map[string]struct{}
}

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Router, error) {
	if cfg.Plans.Minimums == (affinity.Minimums{}) {
		cfg.Plans.Minimums = affinity.DefaultMinimums
	}
	if err := errors.Join(cfg.Plans.Minimums.Validate(), cfg.Selection.Validate()); err != nil {
		return nil, err
	}
	cfg.Plans.MaxRelaysPerService = cmp.Or(cfg.Plans.MaxRelaysPerService, DefaultMaxRelaysPerService)
	if cfg.Links.Slack < 0 || cfg.Links.Grace < 0 {
		return nil, fmt.Errorf("routing: slack %d and grace %v: want none negative, 0 for none", cfg.Links.Slack, cfg.Links.Grace)
	}
	if cfg.Vanished == nil {
		cfg.Vanished = func(*Service) {}
	}
	cfg.CoalesceDelay = cmp.Or(cfg.CoalesceDelay, 100*time.Millisecond)
	cfg.AuditInterval = cmp.Or(cfg.AuditInterval, 2*time.Second)
	cfg.ReachTimeout = cmp.Or(cfg.ReachTimeout, 10*time.Second)
	r := &Router{cfg: cfg, lines: loglimit.New(cfg.Logger), own: newOwnListeners(cfg.Listeners, cfg.Hosts), reach: newReach(cfg), calls: make(chan func()), stopped: make(chan struct{}), plans: map[string]*planning{}, saidLeftOut: map[string]struct{}{}, fleet: newFleet(cfg.Links.Grace), updates: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_relay_route_updates_total", Help: "Times the route of a service was computed anew, by result.",
	}, []string{"result"}), leftOut: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_relay_endpoints_left_out_total", Help: "Endpoints left out of a route that was computed, by reason: protocol, no_certificate (the endpoint is secured and this relay has no certificate), unsecured (it is not, and this relay has one) or own_listener (it is a listener of this relay).",
	}, []string{"reason"})}
	for _, result := range []string{routeOK, routeFailed} {
		r.updates.WithLabelValues(result)
	}
	for _, reason := range []string{leftOutProtocol, leftOutNoCertificate, leftOutUnsecured, leftOutOwnListener} {
		r.leftOut.WithLabelValues(reason)
	}
	activity := new(upstream.Activity)
	registerActivity(activity, cfg.Registerer)
	open := func(key poolKey) (*upstream.Pool, error) {
		dial, err := cfg.dial(key, r.own)
		if err != nil {
			return nil, err
		}
		up := cfg.Upstream
		up.Address, up.Protocol, up.Dial, up.Activity, up.Sessions = key.address, key.protocol, dial, activity, cfg.Sessions
		return upstream.NewPool(up)
	}
	var err error
	if r.links, err = newLinks(open, cfg); err != nil {
		return nil, err
	}
	if r.forwarding, err = newForwarding(cfg, open); err != nil {
		return nil, err
	}
	if r.choosing, err = newChoosing(cfg); err != nil {
		return nil, err
	}
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
// errors what another relay can answer well. It stops being so when the view does; see
// [advertise.View.Settled].
func (r *Router) Settled() bool { return r.settled.Load() }

// Informed reports whether a service that is not found now is one that no worker
// offers. A relay that is not settled, or has never heard of any service, cannot tell.
func (r *Router) Informed() bool { return r.served.Load() && r.settled.Load() }

// Link reports how far the connection to an endpoint has come, while Run runs.
func (r *Router) Link(ctx context.Context, e *advertise.Endpoint) (peering.State, error) {
	state := peering.None
	done := make(chan struct{})
	select {
	case r.calls <- func() { state = r.links.table.State(endpointKey(e)); close(done) }:
		<-done
		return state, nil
	case <-r.stopped:
		return state, errors.New("routing: the router has stopped")
	case <-ctx.Done():
		return state, ctx.Err()
	}
}

// Run follows the catalogue until ctx ends, then closes every connection and waits
// for all that it started. It is called once.
func (r *Router) Run(ctx context.Context) error {
	defer close(r.stopped)
	defer r.lines.Stop()
	defer r.links.close()
	defer r.forwarding.start(ctx)()
	defer r.choosing.start(ctx)()
	probing, endProbes := context.WithCancel(ctx)
	defer r.reach.running.Wait()
	defer endProbes()
	views := r.cfg.Catalogue.Watch(ctx)
	refresh, audit := time.NewTicker(refreshInterval), time.NewTicker(r.cfg.AuditInterval)
	look := time.NewTicker(r.cfg.ReachTimeout / 10)
	defer look.Stop()
	defer refresh.Stop()
	defer audit.Stop()
	// Timers that are not set never fire.
	var coalesced, due, graceOver <-chan time.Time
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
			if !v.Settled() {
				r.settled.Store(false)
			}
			if coalesced == nil {
				coalesced = time.After(r.cfg.CoalesceDelay)
			}
			continue
		case <-coalesced:
			coalesced = nil
			graceOver = after(r.update())
		case <-graceOver:
			graceOver = after(r.update())
		case o := <-r.links.ended:
			r.links.finish(o, time.Now())
		case <-due:
		case <-audit.C:
			r.links.audit(time.Now())
			r.forwarding.conns.audit()
		case <-look.C:
			pools, kind := r.reachable()
			r.reach.look(probing, pools, kind, time.Now())
			continue
		case call := <-r.calls:
			call()
			continue
		case <-refresh.C:
			now := r.now()
			for _, s := range *r.services.Load() {
				s.Refresh(now)
			}
			if coalesced == nil {
				r.noteSettled()
			}
			r.links.count()
			if r.Settled() {
				for name, s := range *r.services.Load() {
					r.choosing.tellUnknown(s, &r.plans[name].chosen)
				}
			}
			continue
		}
		due = after(r.links.act(ctx, time.Now()))
	}
}

// after is a timer for a moment, nil for the zero moment.
func after(at time.Time) <-chan time.Time {
	if at.IsZero() {
		return nil
	}
	return time.After(time.Until(at))
}

func (r *Router) now() selection.Instant { return selection.Instant(time.Since(r.cfg.Epoch)) }

func (r *Router) noteSettled() {
	if !r.settled.Load() && r.view != nil && r.view.Settled() && r.links.table.Tried() && r.forwardingTried() {
		r.settled.Store(true)
	}
}

// update recomputes what changed and publishes it. It returns when a vanished member
// loses its place, zero if there is none.
func (r *Router) update() (next time.Time) {
	now := time.Now()
	dead := r.failedPools()
	relaysChanged := r.updateFleet(now)
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	sooner(r.fleet.graceOver)
	old := *r.services.Load()
	services := make(map[string]*Service, len(old))
	for name := range r.view.Services() {
		s, known := old[name]
		if !known {
			var err error
			if s, err = NewService(name, r.cfg.Selection); err != nil {
				r.cfg.Logger.Error("cannot route a service", "service", name, "err", err)
				continue
			}
			r.plans[name] = newPlanning(r.cfg.Links.Grace)
		}
		services[name] = s
		if err := r.route(s, relaysChanged, now); err != nil {
			// The last good route stays: stale peers beat none.
			r.updates.WithLabelValues(routeFailed).Inc()
			r.cfg.Logger.Error("cannot plan a service; its last route stays", "service", name, "err", err)
		}
		sooner(r.plans[name].graceOver)
	}
	r.services.Store(&services)
	if len(services) > 0 {
		r.served.Store(true)
	}
	for _, p := range dead { // now that nothing new is sent there
		p.Abandon()
	}
	for name, s := range old {
		if services[name] == nil {
			s.Retire()
			r.cfg.Vanished(s)
			_ = r.forwarding.to(s, nil) // nobody: that cannot fail
			r.plans[name].end()
			delete(r.plans, name)
			r.links.table.Want(name, nil, nil, now)
		}
	}
	return next
}
