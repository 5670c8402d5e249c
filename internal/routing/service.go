package routing

import (
	"errors"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/overload"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/ratelimit"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

// Service is one service of this relay. The value lives as long as the service is known;
// its changing parts are behind Route. All methods may be called from any goroutine.
type Service struct {
	// Name is the name of the service.
	Name string
	// Endpoints picks among the workers of this relay's range.
	Endpoints *selection.Balancer[*Target]
	// InFlight counts the requests of this service that this relay carries.
	InFlight atomic.Int64
	// Forwarded counts those of them that another relay forwarded.
	Forwarded atomic.Int64
	// Waiting bounds those whose answers have not begun, if the limit is adaptive.
	Waiting overload.Limiter
	// Retries bounds the retries of requests of clients, PeerRetries those of requests that another
	// relay forwarded, which has retries of its own.
	Retries, PeerRetries Retries
	// Rate counts requests for the limit of this service on requests per second, and Limited those
	// that this limit has refused, which are a part of the demand.
	Rate    ratelimit.Bucket
	Limited atomic.Uint64

	picks *pickMetrics // nil: none

	demand atomic.Uint64 // see Demand, as bits of a float64

	gone   atomic.Bool
	route  atomic.Pointer[Route]
	relays atomic.Pointer[relaysOf]
	choice atomic.Pointer[Choice]

	changed changeNotifier // of the endpoints in the range
}

// Route is how this relay reaches a service at one moment. It is immutable.
type Route struct {
	// Plan is nil while the service has no endpoint that takes requests, and for an observer.
	Plan *affinity.Plan
	// Basis is what Plan was made from, without members that have vanished.
	Basis affinity.PlanConfig
	// Index is this relay's place among the affine relays, -1 if it forwards. An observer has
	// the index 0 while there are endpoints that take requests.
	Index int
	// Range lists the endpoints that this relay connects to, in ring order, if Index is not
	// negative.
	Range []*Target
	// MinEffective is how many endpoints of Range, from the first on, always get requests,
	// so that together the relays reach every worker; 0 means all.
	MinEffective int
	// Forward lists the affine relays if Index is negative. Service.Relays keeps connections
	// to a few of them.
	Forward []relaypool.Peer
	// Elsewhere lists the affine relays of other zones if Index is not negative. While a worker
	// of Range is out of reach, Service.Relays keeps connections to a few of them.
	Elsewhere []relaypool.Peer
	// Unreachable is how many workers planned for this relay it could not connect to lately. They
	// are left out of Range, unless it reaches none: then OutOfReach is true.
	Unreachable int
	OutOfReach  bool
	// Endpoints lists all endpoints of the service in ring order, including draining ones.
	Endpoints []*advertise.Endpoint

	// At is when the route was computed; a route stays until something changes.
	At time.Time

	// TCP reports whether the service takes TCP sessions. If its endpoints differ, most of
	// them decide, and the others are left out.
	TCP bool

	// Version is, with the strategy slots, the version whose workers get the requests.
	Version string

	// Votes are the advertisements of the workers for the whole service.
	Votes Votes
	// Policy is what most of them advertise, field by field.
	Policy advertise.Policy

	// Refused has the workers whose offers this relay does not use, with the reason. Those at a
	// listener of any relay have no place in the plan. The others keep theirs, because the
	// reason may be this relay's alone and all relays must make the same plan.
	Refused map[string]string
	leftOut map[string]int // by the label of the metrics

	// absentRelays and absentWorkers have vanished; the plan may still count them.
	absentRelays, absentWorkers map[string]bool

	canary *canaryRoute // nil without a canary

	traffic map[string]int // requests per second that the relays of Plan state

	expected []float64 // see expectedOf
	share    float64   // see Share; 0 if this relay is not in Plan

	offered *advertise.Endpoints // the catalogue's endpoints, nil if Endpoints has more

	version atomic.Uint64 // of Plan, 0 until PlanVersion was called
}

// NewService returns a service without endpoints.
func NewService(name string, cfg selection.Config) (*Service, error) {
	endpoints, err := selection.NewBalancer[*Target](cfg)
	if err != nil {
		return nil, err
	}
	s := &Service{Name: name, Endpoints: endpoints}
	s.route.Store(&Route{Index: -1})
	s.choice.Store(&Choice{Spec: strategy.Default(strategy.P2C), Origin: FromDefault})
	return s, nil
}

// Service finds a service by name, with one atomic load and one map lookup.
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

// Gone reports whether the service is no longer known. Requests in flight may still hold
// it.
func (s *Service) Gone() bool { return s.gone.Load() }

// Retire makes the service gone. Only a Router calls it.
func (s *Service) Retire() {
	s.gone.Store(true)
	s.changed.fire()
}

// Demand returns the requests per second that arrive at this relay for the service, those refused by
// its limit included, averaged over routing.Config.TrafficMemory; 0 if this relay does not serve it.
func (s *Service) Demand() float64 { return math.Float64frombits(s.demand.Load()) }

// Route returns the newest route, never nil.
func (s *Service) Route() *Route { return s.route.Load() }

// Relays returns the pool that picks among the affine relays. It is nil if there is none, or if
// this relay is affine and needs no relay of another zone.
func (s *Service) Relays() *Relays {
	if of := s.relays.Load(); of != nil {
		return of.pool
	}
	return nil
}

// Choice returns the current choice of endpoints, never nil.
func (s *Service) Choice() *Choice { return s.choice.Load() }

// SetChoice replaces the choice that picks the endpoints. The balancer's statistics and
// the requests in flight are not changed. Only a Router calls it, one goroutine at a time.
func (s *Service) SetChoice(c *Choice) error {
	if err := c.update(s.Endpoints, s.Route().picked()); err != nil {
		return err
	}
	s.choice.Store(c)
	return nil
}

// Refresh updates the statistics and evictions of the balancer and the limit on waiting
// requests. It must be called every 250 ms.
func (s *Service) Refresh(now selection.Instant) {
	s.Endpoints.Refresh(now)
	route := s.Route()
	endpoints := len(route.Range)
	if !route.Affine() {
		endpoints = len(route.Endpoints)
	}
	s.Waiting.Tick(time.Duration(now), endpoints)
}

// SetRoute publishes a route. The balancer gets the range first, so that a request with
// the new route finds its endpoints, or last if the new route has no range. A request with
// the old route may find no endpoint and must then read the route again. Only a Router
// calls it, one goroutine at a time.
func (s *Service) SetRoute(route *Route, now selection.Instant) error {
	old := s.Route()
	if !route.Affine() {
		s.route.Store(route)
	}
	if err := errors.Join(fill(s.Endpoints, route, now), s.Choice().update(s.Endpoints, route.picked())); err != nil {
		return err
	}
	s.route.Store(route)
	if !sameEndpoints(old, route) {
		s.changed.fire()
	}
	return nil
}

func fill(b *selection.Balancer[*Target], route *Route, now selection.Instant) error {
	endpoints := make([]selection.Endpoint[*Target], len(route.Range))
	for i, t := range route.Range {
		endpoints[i] = selection.Endpoint[*Target]{ID: t.ID, Weight: t.Weight, Limit: t.Limit, Refuses: t.Refuses, OtherZone: t.OtherZone, Apart: t.Canary, Value: t}
	}
	return b.UpdateRange(selection.Range[*Target]{Endpoints: endpoints, MinEffective: route.MinEffective}, now)
}

// Affine reports whether this relay itself connects to the service's workers.
func (r *Route) Affine() bool { return r.Index >= 0 }

// RelayAbsent reports whether a relay of the plan has vanished and only keeps its place.
func (r *Route) RelayAbsent(id string) bool { return r.absentRelays[id] }

// WorkerAbsent reports whether a worker of the plan takes no requests now or has vanished,
// and only keeps its place.
func (r *Route) WorkerAbsent(id string) bool { return r.absentWorkers[id] }

// Target is a destination of requests.
type Target struct {
	// ID is the identity for the balancer: the instance of a worker or relay, so that a
	// restarted process starts with new statistics.
	ID string
	// Node is the member's stable ID.
	Node string
	// Address is the IP:port that is dialled.
	Address string
	// Weight is the share of this relay's traffic.
	Weight float64
	// Secured means that a worker's sidecar answers at the address, over mutual TLS. A
	// sidecar needs the service's name and reports failures behind it.
	Secured bool
	// Limit is how many requests this relay may have in flight there: its share of the
	// endpoint's slots. 0 means no limit.
	Limit int
	// Refuses means that a sidecar refuses requests above the endpoint's slots.
	Refuses bool
	// OtherZone is true for a worker of another zone.
	OtherZone bool
	// Canary is true for a worker of the service's canary; its Weight is 0.
	Canary bool
	// Endpoint is the worker's offer, nil for a relay.
	Endpoint *advertise.Endpoint
	// Pool holds the connections. It is nil with Config.PickOnly.
	Pool *upstream.Pool
	// Upgrades holds the connections for requests that upgrade their connection, if Pool
	// cannot carry them because it uses HTTP/2; otherwise nil.
	Upgrades *upstream.Pool

	key poolKey
}

// offeredWeight returns the weight that the worker offers, of which Weight is this relay's share.
func (t *Target) offeredWeight() float64 { return float64(max(t.Endpoint.Weight, 1)) }

// triedSize is how many endpoints a Tried can hold: those of at most eight attempts.
const triedSize = 8

// Tried holds the endpoints that one request must not be sent to again. The zero value is
// empty and ready. It is not for concurrent use, and allocates nothing.
type Tried struct {
	// Session is true if the request opens a session: then the balancer counts sessions and
	// does not compare latencies. Strategies pick as for every request.
	Session bool

	canary canaryGroup // of the request, if its service has a canary

	exclusion selection.Exclusion
	ids       [triedSize]string // the same for the canary
	n         int
	ordering  ordering // of the current pick
}

// Add records that the endpoint of p was tried.
func (t *Tried) Add(p selection.Pick[*Target]) {
	p.AddTo(&t.exclusion)
	if t.n < len(t.ids) {
		t.ids[t.n] = p.ID()
		t.n++
	}
}

// ordering is the selection.Chooser of one request: the strategy of its service, which orders the
// endpoints that the balancer does not exclude.
type ordering struct {
	choice   *Choice
	request  strategy.Request
	decision *strategy.Decision // gets the last choice; nil if nothing explains it
	dryRun   bool               // nothing is counted; only with a decision
}

// Choose implements selection.Chooser.
func (o *ordering) Choose(x *selection.Exclusion) (id string, err error) {
	o.request.Balancer = x
	var e *strategy.Endpoint
	switch {
	case o.decision == nil:
		e, err = o.choice.strategy.Pick(o.request)
	case o.dryRun:
		*o.decision = o.choice.strategy.Explain(o.request)
		e, err = o.decision.Winner, o.decision.Err
	default:
		*o.decision = o.choice.strategy.PickExplained(o.request)
		e, err = o.decision.Winner, o.decision.Err
	}
	switch {
	case errors.Is(err, strategy.ErrNoMeasurement):
		return o.unmeasured(x, err)
	case err != nil:
		return "", err
	}
	return e.ID, nil
}

// unmeasured chooses while nothing was measured yet, or nothing of the endpoints that are left: in
// the order of the preferred nodes, and without such nodes as the balancer does.
func (o *ordering) unmeasured(x *selection.Exclusion, err error) (string, error) {
	order := o.choice.preferred.Load()
	if order == nil || len(*order) == 0 {
		return "", nil
	}
	for _, id := range *order {
		if !x.Excludes(id) {
			return id, nil
		}
	}
	return "", err
}

// Pick chooses an endpoint for a request that begins now and counts the request as begun;
// the ticket must be returned to s.Endpoints. Only a strategy by key reads key. An
// endpoint that was evicted because of its failures is chosen only if the strategy has no
// other: in this way a deterministic strategy fails over. Likewise an endpoint that
// has this relay's share of its slots in flight is chosen only if no other has room, and
// before an evicted one. The error contains the reason that there is none. Pick allocates
// nothing unless the range has just changed.
func (s *Service) Pick(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], error) {
	if s.picks == nil || !sampled(now) {
		return s.pickOfGroup(key, now, tried)
	}
	began := time.Now()
	p, err := s.pickOfGroup(key, now, tried)
	s.picks.took(len(s.Route().Range), time.Since(began))
	return p, err
}

func (s *Service) pickOfGroup(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], error) {
	if canary := s.Route().canary; canary != nil {
		return canary.pick(s, key, now, tried)
	}
	return s.pick(key, now, tried)
}

func (s *Service) pick(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], error) {
	c := s.choice.Load()
	if c.strategy == nil {
		if tried.Session {
			return s.Endpoints.PickSession(now, &tried.exclusion, nil)
		}
		return s.Endpoints.Pick(now, &tried.exclusion)
	}
	tried.ordering = ordering{choice: c, request: strategy.Request{Key: key, Now: now}}
	return s.Endpoints.PickBy(now, &tried.exclusion, &tried.ordering)
}

// pickMetrics measure a sample of the picks of all services: two clock reads cost more than a pick.
type pickMetrics struct{ duration, endpoints prometheus.Histogram }

func newPickMetrics(reg prometheus.Registerer) *pickMetrics {
	f := metric.With(reg)
	return &pickMetrics{
		duration:  f.Histogram("ringway_relay_pick_duration_seconds", "Time to pick an endpoint, by whatever strategy; one of about 1024 picks is measured.", []float64{1e-7, 2.5e-7, 5e-7, 1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 1e-4, 1e-3}),
		endpoints: f.Histogram("ringway_relay_pick_endpoints", "Endpoints in the range of the service from which those picks chose, evicted ones included.", prometheus.ExponentialBuckets(1, 2, 13)), // to 4096
	}
}

func (m *pickMetrics) took(endpoints int, d time.Duration) {
	m.duration.Observe(d.Seconds())
	m.endpoints.Observe(float64(endpoints))
}

// sampled reports whether a pick at this instant is measured: one of about 1024. The product mixes
// the bits, because some clocks tick in microseconds.
func sampled(now selection.Instant) bool { return uint64(now)*0x9e3779b97f4a7c15>>54 == 0 }
