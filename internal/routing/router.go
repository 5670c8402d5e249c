package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/overload"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/selection"
)

// Label values of the router's counters.
const (
	routeOK              = "ok"
	routeFailed          = "failed"
	leftOutProtocol      = "protocol"
	leftOutNoCertificate = "no_certificate"
	leftOutUnsecured     = "unsecured"
	leftOutOwnListener   = "own_listener"
)

var errStopped = errors.New("routing: the router has stopped")

// Router follows the catalogue and publishes routes.
type Router struct {
	cfg     Config
	lines   *loglimit.Limiter // for the lines about offers and about evictions of relays
	updates *prometheus.CounterVec
	leftOut *prometheus.CounterVec
	own     ownListeners
	reach   *reach
	kept    *keptChecks

	services atomic.Pointer[map[string]*Service]
	appeared changeNotifier // a service that was not known
	settled  atomic.Uint64  // version of the snapshot for which that holds, 0 if for none
	first    chan struct{}  // closed when the router has settled for the first time
	served   atomic.Bool    // there has been a service
	slots    atomic.Pointer[Slots]
	canaries atomic.Pointer[Canaries]
	replan   chan struct{} // holds one value after SetSlots, SetCanaries and SetPlans
	ownPlans atomic.Pointer[ownPlans]
	agreed   atomic.Pointer[AgreedPlans]
	calls    chan func()
	stopped  chan struct{} // closed when Run has ended
	pools    *pools
	picks    *pickMetrics // of all services

	turned       atomic.Int64 // when the loop of Run turned last, in nanoseconds since the Epoch; 0 while it does not run
	stallsLogged atomic.Bool  // the present stall

	// Used only by Run.
	links      *links
	forwarding *forwarding
	strategies *strategyResolver
	view       *advertise.View
	snapshot   *membership.Snapshot // of the view
	trusted    *membership.Snapshot // the last routed one that was not degraded
	fleet      fleet
	traffic    traffic
	plans      map[string]*planning // by service
	agreement  *agreement
	agreements agreementMetrics

	canaryMetrics canaryMetrics
	agreeing      agreeing // with which the agreement was computed
	// loggedAlone and loggedLeftOut (by reason and worker or service) prevent repeated log
	// lines.
	loggedAlone   bool
	loggedLeftOut map[string]struct{}
}

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Router, error) {
	cfg.Plans = cfg.Plans.withDefaults().WithNeeds(cfg.Strategies)
	if err := errors.Join(cfg.Plans.validate(), cfg.Selection.Validate()); err != nil {
		return nil, err
	}
	if cfg.Links.Slack < 0 || cfg.Links.Grace < 0 {
		return nil, fmt.Errorf("routing: slack %d and grace %v: want none negative, 0 for none", cfg.Links.Slack, cfg.Links.Grace)
	}
	if cfg.Vanished == nil {
		cfg.Vanished = func(*Service) {}
	}
	cfg.Selection = countEvictions(cfg.Selection, cfg.Registerer)
	cfg.CoalesceDelay = cmp.Or(cfg.CoalesceDelay, 100*time.Millisecond)
	cfg.AuditInterval = cmp.Or(cfg.AuditInterval, 2*time.Second)
	cfg.ReachTimeout = cmp.Or(cfg.ReachTimeout, 10*time.Second)
	cfg.TrafficMemory = cmp.Or(cfg.TrafficMemory, 30*time.Second)
	f := metric.With(cfg.Registerer)
	r := &Router{
		cfg: cfg, lines: loglimit.New(cfg.Logger), own: newOwnListeners(cfg.Listeners, cfg.Hosts), reach: newReach(cfg), kept: newKeptChecks(),
		first: make(chan struct{}), replan: make(chan struct{}, 1), calls: make(chan func()), stopped: make(chan struct{}),
		plans: map[string]*planning{}, loggedLeftOut: map[string]struct{}{}, fleet: newFleet(cfg.Links.Grace),
		traffic: newTraffic(cfg.TrafficMemory, cfg.Registerer), picks: newPickMetrics(cfg.Registerer),
		updates: f.CounterVec("ringway_relay_route_updates_total", "Times the route of a service was computed anew, by result: ok or failed (its last route stays; the log has the reason).", "result"),
		leftOut: f.CounterVec("ringway_relay_endpoints_left_out_total", "Endpoints left out of a route that was computed, by reason: protocol, no_certificate (the endpoint is secured and this relay has no certificate), unsecured (it is not, and this relay has one) or own_listener (it is a listener of a relay).", "reason"),
	}
	metric.StartAtZero(r.updates, routeOK, routeFailed)
	for _, reason := range [...]string{leftOutProtocol, leftOutNoCertificate, leftOutUnsecured, leftOutOwnListener} {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ringway_relay_endpoints_unused", Help: "Endpoints that the routes of this relay leave out now, by the reasons of ringway_relay_endpoints_left_out_total.",
			ConstLabels: prometheus.Labels{"reason": reason},
		}, func() (n float64) {
			if services := r.services.Load(); services != nil {
				for _, s := range *services {
					n += float64(s.Route().leftOut[reason])
				}
			}
			return n
		})
	}
	metric.StartAtZero(r.leftOut, leftOutProtocol, leftOutNoCertificate, leftOutUnsecured, leftOutOwnListener)
	f.GaugeFunc("ringway_relay_route_loop_age_seconds", "Time since the loop that computes routes turned last: below 1 s in a healthy relay; from 30 s on the relay is not ready.", func() float64 { return r.turnAge().Seconds() })
	r.agreement, r.agreements = newAgreement(cfg.Self, cfg.Plans, cfg.PlansFromFleet), newAgreementMetrics(cfg.Registerer, r.Agreed)
	r.ownPlans.Store(&ownPlans{cfg.Plans, cfg.PlansFromFleet})
	r.agreed.Store(r.agreement.agreed())
	r.canaryMetrics = newCanaryMetrics(cfg.Registerer)
	activity := new(upstream.Activity)
	registerActivity(activity, cfg.Registerer)
	r.pools = newPools(func(key poolKey) (*upstream.Pool, error) {
		dial, err := cfg.dial(key, r.own)
		if err != nil {
			return nil, err
		}
		up := cfg.Upstream
		up.Address, up.Protocol, up.Dial, up.Activity, up.Sessions = key.address, key.protocol, dial, activity, cfg.Sessions
		up.TLS = upstream.ServiceTLS{Roots: cfg.ServiceTLS.Roots, Name: key.serverName}
		if key.role != "" {
			// A member has bounded the head of its service's answer, perhaps in bytes of HTTP/1.1. HTTP/2 counts 28
			// more for each field, which is less than most fields have. The request has run: it must not fail here.
			up.MaxResponseHeaderBytes = 2 * cmp.Or(up.MaxResponseHeaderBytes, upstream.DefaultMaxResponseHead)
		}
		return upstream.NewPool(up)
	})
	var err error
	if r.links, err = newLinks(r.pools, r.lines, cfg); err != nil {
		return nil, err
	}
	if r.forwarding, err = newForwarding(cfg, r.lines, r.pools); err != nil {
		return nil, err
	}
	if r.strategies, err = newStrategyResolver(cfg); err != nil {
		return nil, err
	}
	r.services.Store(&map[string]*Service{})
	r.slots.Store(new(Slots))
	return r, nil
}

// countEvictions makes the balancers count their evictions.
func countEvictions(cfg selection.Config, reg prometheus.Registerer) selection.Config {
	evictions := metric.With(reg).CounterVec("ringway_selection_evictions_total", "Endpoints evicted for some time, by reason: consecutive_failures, error_rate, latency (far above the others' for a long time), half_open (failed again when it was tried).", "reason")
	of := map[selection.EvictionCause]prometheus.Counter{}
	for _, cause := range selection.EvictionCauses() {
		of[cause] = evictions.WithLabelValues(string(cause))
	}
	cfg.OnEvict = func(cause selection.EvictionCause) { of[cause].Inc() }
	return cfg
}

// Settled reports whether a complete view of the catalogue was routed and each of its
// connections was tried once. Before that, this relay would answer with errors where
// another relay can answer well. Settled becomes false when the view is no longer
// settled; see [advertise.View.Settled].
func (r *Router) Settled() bool { return r.settled.Load() > 0 }

// SettledAt is Settled for a view with this version of the members or a newer one. The
// routed view may be older than what the membership knows.
func (r *Router) SettledAt(version uint64) bool { return r.settled.Load() >= max(version, 1) }

// WaitSettled waits until the router has settled for the first time. It is an error that it has
// stopped.
func (r *Router) WaitSettled(ctx context.Context) error {
	select {
	case <-r.first:
		select {
		case <-r.stopped:
			return errStopped
		default:
			return nil
		}
	case <-r.stopped:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Informed reports whether a service that is not found is really offered by no worker. A
// relay that is not settled, or has never had any service, does not know this.
func (r *Router) Informed() bool { return r.served.Load() && r.Settled() }

// Empty reports whether there has been no service since the start.
func (r *Router) Empty() bool { return !r.served.Load() }

// Link returns the state of the connection to an endpoint, while Run runs.
func (r *Router) Link(ctx context.Context, e *advertise.Endpoint) (peering.State, error) {
	state := peering.None
	done := make(chan struct{})
	select {
	case r.calls <- func() { state = r.links.table.State(r.cfg.endpointKey(e)); close(done) }:
		<-done
		return state, nil
	case <-r.stopped:
		return state, errStopped
	case <-ctx.Done():
		return state, ctx.Err()
	}
}

// Run follows the catalogue until ctx ends, then closes every connection and waits for all
// goroutines that it started. It is called once.
func (r *Router) Run(ctx context.Context) error {
	defer close(r.stopped)
	defer r.lines.Stop()
	defer r.links.close()
	defer r.forwarding.start(ctx)()
	defer r.strategies.start(ctx)()
	probing, endProbes := context.WithCancel(ctx)
	defer r.reviveAll()
	defer r.kept.running.Wait() // each result has room in ended
	defer r.reach.running.Wait()
	defer endProbes()
	defer r.turned.Store(0)
	views := r.cfg.Catalogue.Watch(ctx)
	refresh, audit := time.NewTicker(overload.Every), time.NewTicker(r.cfg.AuditInterval)
	probes := time.NewTicker(r.cfg.ReachTimeout / 10)
	measure := time.NewTicker(r.cfg.TrafficMemory / measureFactor)
	defer measure.Stop()
	defer probes.Stop()
	defer refresh.Stop()
	defer audit.Stop()
	pacer, changed := publish.NewPacer(), false
	var due, graceOver <-chan time.Time // nil channels never fire
	plan := func() {
		planned, next := r.updateOrStay()
		if planned { // a view without effect, such as that of a member without offers, delays no other
			pacer.Begin(r.cfg.CoalesceDelay)
		}
		if r.Settled() {
			r.settled.Store(r.snapshot.Version())
		}
		changed, graceOver = false, publish.At(next)
		r.checkKept(probing)
	}
	for {
		r.turned.Store(int64(max(r.now(), 1)))
		select {
		case <-ctx.Done():
			return nil
		case v, ok := <-views:
			if !ok {
				return nil
			}
			if v.Members() == nil {
				continue // no members are known yet
			}
			r.view, r.snapshot = v, v.Members()
			if !v.Settled() {
				r.settled.Store(0)
			}
			if !changed && !r.Settled() {
				pacer.Begin(r.cfg.CoalesceDelay) // plans of parts would open connections that the whole does not need
			}
			changed = true
		case <-r.replan:
			changed = changed || r.view != nil
		case <-pacer.C:
		case <-graceOver:
			plan()
		case o := <-r.links.ended:
			r.links.finish(o, time.Now())
		case <-due:
		case <-audit.C:
			r.links.audit(time.Now())
			r.forwarding.audit()
			r.checkKept(probing)
		case <-probes.C:
			pools, kind := r.reachable()
			r.reach.probe(probing, pools, kind, time.Now())
			continue
		case <-measure.C:
			if r.states() {
				r.stateTraffic(time.Now())
			}
			continue
		case c := <-r.kept.ended:
			changed = r.endCheck(c) || changed
			r.nextChecks(probing)
		case call := <-r.calls:
			call()
			continue
		case <-refresh.C:
			now := r.now()
			for _, s := range *r.services.Load() {
				s.Refresh(now)
			}
			if !changed {
				r.noteSettled()
			}
			r.links.count()
			if r.Settled() {
				for name, s := range *r.services.Load() {
					r.strategies.logUnknown(s, &r.plans[name].strategyState)
				}
			}
			continue
		}
		if changed && pacer.May() {
			plan()
		}
		due = publish.At(r.links.act(ctx, time.Now()))
	}
}

// stallAfter is how long one turn of the loop of Run may take. Without work the loop turns every
// overload.Every, and the routes of the largest fleets take seconds.
const stallAfter = 30 * time.Second

// turnAge returns the time since the loop of Run turned last, 0 while Run does not run.
func (r *Router) turnAge() time.Duration {
	at := r.turned.Load()
	if at == 0 {
		return 0
	}
	return max(0, time.Duration(r.now())-time.Duration(at))
}

// Stalled returns why this relay should get no traffic although it reaches workers: the loop of
// Run has not turned for 30 s, so routes do not follow the catalogue any more. A stall is logged
// once. Stalled may be called from any goroutine.
func (r *Router) Stalled() string {
	age := r.turnAge()
	if age < stallAfter {
		r.stallsLogged.Store(false)
		return ""
	}
	if r.stallsLogged.CompareAndSwap(false, true) {
		r.cfg.Logger.Error("the loop that computes routes does not turn: the last routes stay", "for", age)
	}
	return fmt.Sprintf("its routes are not updated any more: the loop that computes them has not turned for %v", age.Round(time.Second))
}

func (r *Router) now() selection.Instant { return selection.Instant(time.Since(r.cfg.Epoch)) }

func (r *Router) noteSettled() {
	if !r.Settled() && r.view != nil && r.view.Settled() && r.links.table.Tried() && r.forwardingTried() {
		r.settled.Store(r.snapshot.Version())
		select {
		case <-r.first:
		default:
			close(r.first)
			r.agreement.firm = true
			r.statePlans()
		}
	}
}

// routeAlone is route, but a panic is an error of this service only. Every relay routes the
// services of all records, so one record would otherwise end all relays together, and again
// after each restart.
func (r *Router) routeAlone(s *Service, relaysChanged bool, now time.Time) (computed bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			computed, err = true, fmt.Errorf("routing: panic in this build, report it: %v\n%s", p, debug.Stack())
		}
	}()
	return r.route(s, relaysChanged, now)
}

// retryAfterPanic is when an update is tried again, also if nothing changes: the view that it did not
// take may be the last one for long.
const retryAfterPanic = time.Second

// updateOrStay is update, but after a panic the routes stay, as in routeAlone: what is computed for
// all services together comes from the records of all members, too.
func (r *Router) updateOrStay() (planned bool, next time.Time) {
	defer func() {
		if p := recover(); p != nil {
			r.updates.WithLabelValues(routeFailed).Inc()
			r.lines.Log(slog.LevelError, "cannot update the routes; the last ones stay; a defect of this build: report it", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			planned, next = true, time.Now().Add(retryAfterPanic)
		}
	}()
	return r.update()
}

// update recomputes what changed and publishes it. It returns whether there was any change,
// and when the next vanished member loses its place, zero if there is none.
func (r *Router) update() (planned bool, next time.Time) {
	now := time.Now()
	if !r.snapshot.Degraded() {
		r.reviveAll()
	}
	dead := r.failedPools()
	relaysChanged := r.updateFleet(now)
	relaysChanged = r.agree() || relaysChanged
	replan, stated := r.updateTraffic()
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	sooner(r.fleet.graceOver)
	old := *r.services.Load()
	services, appeared := make(map[string]*Service, len(old)), false
	for name := range r.view.Services() {
		s, known := old[name]
		if !known {
			var err error
			if s, err = NewService(name, r.cfg.Selection); err != nil {
				r.cfg.Logger.Error("cannot route a service", "service", name, "err", err)
				continue
			}
			s.picks = r.picks
			r.plans[name] = newPlanning(r.cfg.Links.Grace)
		}
		services[name] = s
		appeared = appeared || !known
		computed, err := r.routeAlone(s, relaysChanged || replan[name], now)
		planned = planned || computed
		if r.plans[name].failed = err != nil; err != nil {
			// The last good route stays: stale endpoints are better than none.
			r.updates.WithLabelValues(routeFailed).Inc()
			r.lines.Log(slog.LevelError, "cannot plan a service; its last route stays", "service", name, "err", err)
		}
		sooner(r.plans[name].graceOver)
	}
	r.services.Store(&services)
	r.countRefused(stated)
	if appeared {
		r.appeared.fire()
	}
	if len(services) > 0 {
		r.served.Store(true)
	}
	for _, p := range dead { // nothing new is sent there any more
		p.Abandon()
	}
	for name, s := range old {
		if services[name] == nil {
			s.Retire()
			r.cfg.Vanished(s)
			_ = r.forwarding.setRelays(s, nil, 0) // without relays it cannot fail
			r.plans[name].end()
			delete(r.plans, name)
			r.canaryMetrics.requests.DeletePartialMatch(prometheus.Labels{"service": name})
			r.links.table.Want(name, nil, nil, now)
			planned = true
		}
	}
	return planned, next
}
