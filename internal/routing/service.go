package routing

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/overload"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/ratelimit"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/membership/identity"
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

	share float64 // see Share; 0 if this relay is not in Plan

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
		endpoints[i] = selection.Endpoint[*Target]{ID: t.ID, Weight: t.Weight, Limit: t.Limit, Refuses: t.Refuses, Guest: t.Guest, Apart: t.Canary, Value: t}
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
	// Guest is true for a worker of another zone.
	Guest bool
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

// endpointKey returns the key of the connections to an endpoint.
func (c *Config) endpointKey(e *advertise.Endpoint) poolKey {
	protocol := e.Protocol
	switch {
	case !e.Secured && protocol == advertise.H2:
		return poolKey{address: e.Address, protocol: protocol, serverName: c.ServiceTLS.name(e.Name)}
	case !e.Secured:
		return poolKey{address: e.Address, protocol: protocol}
	case protocol == advertise.TCP:
		protocol = advertise.HTTP1 // a sidecar opens a session for an upgrade
	case protocol == advertise.H2:
		protocol = advertise.H2C // the sidecar has the TLS with the service
	}
	return sidecarKey(e.Address, protocol, e.NodeID)
}

// keys returns the keys of the target's connections.
func (t *Target) keys() []poolKey {
	if t.Upgrades == nil {
		return []poolKey{t.key}
	}
	return []poolKey{t.key, t.key.forUpgrades()}
}

// targets returns the endpoints of this relay's range. Endpoints that could not be reached
// are left out, unless the strategy may use no other: then an attempt costs nothing, and
// the first connection ends the outage.
func (r *Router) targets(route *Route, assignments []affinity.Assignment, ready *readyEndpoints, spec strategy.Spec) []*Target {
	sharing := r.relaysSharing(route, ready)
	reachable, unreachable := make([]*Target, 0, len(assignments)), []affinity.Assignment(nil)
	use := func(a affinity.Assignment, e *advertise.Endpoint) {
		t, err := r.endpointTarget(e, route.TCP)
		if err != nil {
			// One endpoint that cannot be dialled must not prevent the use of the others.
			r.leaveOut(route, e, err)
			return
		}
		t.Weight, t.Endpoint = a.Weight, e
		t.Guest = r.cfg.Datacenter != "" && e.Datacenter != r.cfg.Datacenter
		slots := r.slotsOf(e)
		if slots > 0 {
			t.Limit = (slots-1)/max(sharing[a.Worker], 1) + 1
		}
		t.Refuses = t.Secured && e.Slots > 0 && int(e.Slots) <= slots // the sidecar does not know the operator's
		reachable = append(reachable, t)
	}
	for _, a := range assignments {
		switch e := ready.of(a.Worker); {
		case e == nil: // vanished, with its place kept
		case e.Unreachable: // a target would keep a connection that is not wanted
			unreachable = append(unreachable, a)
		default:
			use(a, e)
		}
	}
	route.Unreachable, route.OutOfReach = len(unreachable), len(reachable) == 0 && len(unreachable) > 0
	preferred := func(node string) bool { return slices.Contains(spec.Preferred, node) }
	chosen := spec.Name == strategy.Manual && !slices.ContainsFunc(reachable, func(t *Target) bool { return preferred(t.Node) })
	for _, a := range unreachable {
		if route.OutOfReach || chosen && preferred(a.Worker) {
			use(a, ready.of(a.Worker))
		}
	}
	return reachable
}

// errOtherKind is the error of an endpoint that differs from most endpoints of its service.
var errOtherKind = errors.New("it takes TCP sessions and most workers of this service take requests of HTTP, or the other way round: advertise the same kind of protocol on all")

// relaysSharing returns for each worker the number of relays of the plan that send to it:
// each may use an equal part of its slots, rounded up. It is nil if no endpoint has slots.
// Relays that only keep a connection as a reserve are not counted. Nor are observers, whose
// number changes often: without a plan each may use all slots, and the sidecar refuses more.
func (r *Router) relaysSharing(route *Route, ready *readyEndpoints) map[string]int {
	if route.Plan == nil {
		return nil
	}
	if !slices.ContainsFunc(route.Endpoints, func(e *advertise.Endpoint) bool { return r.slotsOf(e) > 0 && ready.has(e) }) {
		return nil
	}
	sharing := make(map[string]int, len(route.Endpoints))
	var row []affinity.Assignment
	for i := range route.Plan.Affine() {
		row, _ = route.Plan.AppendAssignments(row[:0], i) // cannot fail: i is an index of the plan
		for _, a := range row {
			if a.Weight > 0 {
				sharing[a.Worker]++
			}
		}
	}
	return sharing
}

// endpointTarget returns the target for the requests to an endpoint.
func (r *Router) endpointTarget(e *advertise.Endpoint, tcp bool) (*Target, error) {
	if (e.Protocol == advertise.TCP) != tcp {
		return nil, fmt.Errorf("%s (%s): %w", e.NodeID, e.Address, errOtherKind)
	}
	if r.own.listens(e.Address) {
		return nil, fmt.Errorf("%s (%s): %w", e.NodeID, e.Address, errOwnListener)
	}
	if r.cfg.Identity != nil && !e.Secured && !slices.Contains(r.cfg.AllowClearText, e.Name) {
		return nil, fmt.Errorf("%s (%s): %w", e.NodeID, e.Address, errUnsecured)
	}
	return r.target(e.NodeID, e.Epoch, r.cfg.endpointKey(e))
}

// maxLogged bounds how many lines are remembered so that they are not repeated.
const maxLogged = 1024

// leaveOut records in the route an endpoint that this relay cannot use, counts it, and logs it:
// once for each service and worker, or once in all if this relay itself is the cause.
func (r *Router) leaveOut(route *Route, e *advertise.Endpoint, err error) {
	if route.Refused == nil {
		route.Refused, route.leftOut = map[string]string{}, map[string]int{}
	}
	route.Refused[e.NodeID] = err.Error()
	reason, subject := leftOutProtocol, e.Name+" "+e.NodeID
	switch {
	case errors.Is(err, errNoCertificate):
		reason, subject = leftOutNoCertificate, ""
	case errors.Is(err, errUnsecured):
		reason, subject = leftOutUnsecured, e.Name
	case errors.Is(err, errOwnListener), errors.Is(err, errListener):
		reason = leftOutOwnListener
	}
	r.leftOut.WithLabelValues(reason).Inc()
	route.leftOut[reason]++
	line := reason + " " + subject
	if _, said := r.loggedLeftOut[line]; said || len(r.loggedLeftOut) >= maxLogged {
		return
	}
	r.loggedLeftOut[line] = struct{}{}
	r.cfg.Logger.Warn("endpoint left out", "service", e.Name, "worker", e.NodeID, "reason", reason, "err", err)
}

func (r *Router) target(node string, epoch uint64, key poolKey) (*Target, error) {
	fail := func(err error) (*Target, error) { return nil, fmt.Errorf("%s (%s): %w", node, key.address, err) }
	t := &Target{ID: fmt.Sprintf("%s.%d", node, epoch), Node: node, Address: key.address, Secured: key.role == identity.RoleWorker, key: key}
	if r.cfg.PickOnly {
		if _, err := r.cfg.dial(key, r.own); err != nil { // the program could not connect either
			return fail(err)
		}
		return t, nil
	}
	var err error
	if t.Pool, err = r.links.pool(key, node); err != nil {
		return fail(err)
	}
	if key.role != "" && key.protocol == advertise.H2C {
		// Relays and sidecars support both protocols; a service with h2c may support only h2c.
		if t.Upgrades, err = r.links.pool(key.forUpgrades(), node); err != nil {
			return fail(err)
		}
	}
	return t, nil
}
