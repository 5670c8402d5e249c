package routing

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/relay/overload"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/pool"
	"github.com/ringway/ringway/selection/strategy"
)

// Service is one service as this relay serves it. The value lives as long as the
// service is known; what changes is behind Route. All methods may be called from
// any goroutine.
type Service struct {
	// Name is the service's name.
	Name string
	// Endpoints picks among the workers of this relay's range.
	Endpoints *selection.Balancer
	// InFlight counts the requests of this service that this relay carries.
	InFlight atomic.Int64
	// Clients counts them by client, where a client's share is limited.
	Clients Clients
	// Waiting bounds those whose answers have not begun, where the limit is adaptive.
	Waiting overload.Limiter

	gone   atomic.Bool
	route  atomic.Pointer[Route]
	relays atomic.Pointer[relaysOf]
	choice atomic.Pointer[Choice]
}

// Route is how this relay reaches a service at one moment. It is immutable.
type Route struct {
	// Plan is nil while the service has no endpoint that takes requests.
	Plan *affinity.Plan
	// Index is this relay's place among the affine relays, -1 when it forwards.
	Index int
	// Range are the endpoints this relay connects to, in ring order, when Index
	// is not negative.
	Range []*Target
	// MinEffective is how many of Range, from the first on, get requests however few
	// there are, so that with those of the other relays no worker is left out; 0: all.
	MinEffective int
	// Forward are the affine relays, when Index is negative. Service.Relays keeps
	// connected to a few of them.
	Forward []pool.Peer
	// Endpoints are all endpoints of the service in ring order, draining ones
	// included.
	Endpoints []*advertise.Endpoint

	// At is when the route was computed; it stays until something changes.
	At time.Time

	// Votes are what the workers advertise for the whole service.
	Votes Votes

	// absentRelays and absentWorkers have vanished; the plan may count them still.
	absentRelays, absentWorkers map[string]bool

	offered *advertise.Endpoints // what the catalogue had, nil when Endpoints are more
}

// NewService returns a service without endpoints.
func NewService(name string, cfg selection.Config) (*Service, error) {
	endpoints, err := selection.NewBalancer(cfg)
	if err != nil {
		return nil, err
	}
	s := &Service{Name: name, Endpoints: endpoints}
	s.route.Store(&Route{Index: -1})
	s.choice.Store(&Choice{Spec: strategy.Default(strategy.P2C), Origin: FromDefault})
	return s, nil
}

// Gone reports whether the service is no longer known. Requests under way may still
// hold it.
func (s *Service) Gone() bool { return s.gone.Load() }

// Retire makes the service gone. A Router does this.
func (s *Service) Retire() { s.gone.Store(true) }

// Route is the newest route, never nil.
func (s *Service) Route() *Route { return s.route.Load() }

// Relays picks among the affine relays when this relay is not one of them. It is nil
// when this relay is, or when there is none.
func (s *Service) Relays() *Relays {
	if of := s.relays.Load(); of != nil {
		return of.pool
	}
	return nil
}

// Choice is how endpoints are picked now, never nil.
func (s *Service) Choice() *Choice { return s.choice.Load() }

// SetChoice has another choice pick the endpoints from now on. What the balancer
// knows of them, and requests under way, stay as they are. A Router does this; one
// goroutine at a time.
func (s *Service) SetChoice(c *Choice) error {
	if err := c.update(s.Endpoints, s.Route().Range); err != nil {
		return err
	}
	s.choice.Store(c)
	return nil
}

// Refresh takes medians and evictions anew, and the limit on waiting requests. Call it every 250 ms.
func (s *Service) Refresh(now selection.Instant) {
	s.Endpoints.Refresh(now)
	s.Choice().refresh(s.Endpoints, now)
	route := s.Route()
	endpoints := len(route.Range)
	if !route.Affine() {
		endpoints = len(route.Endpoints)
	}
	s.Waiting.Tick(time.Duration(now), endpoints)
}

// SetRoute publishes a route: the balancer first, so that a request that sees
// the new route finds its endpoints, or last when it has none. A request that still
// holds the last route may find none and has to look again. A Router does this; one
// goroutine at a time.
func (s *Service) SetRoute(route *Route, now selection.Instant) error {
	if !route.Affine() {
		s.route.Store(route)
	}
	if err := errors.Join(fill(s.Endpoints, route, now), s.Choice().update(s.Endpoints, route.Range)); err != nil {
		return err
	}
	s.route.Store(route)
	return nil
}

func fill(b *selection.Balancer, route *Route, now selection.Instant) error {
	endpoints := make([]selection.Endpoint, len(route.Range))
	for i, t := range route.Range {
		// A sidecar refuses what is more than its endpoint's slots.
		endpoints[i] = selection.Endpoint{ID: t.ID, Weight: t.Weight, Limit: t.Limit, Refuses: t.Secured, Value: t}
	}
	return b.UpdateRange(selection.Range{Endpoints: endpoints, MinEffective: route.MinEffective}, now)
}

// Affine reports whether this relay connects to the service's workers itself.
func (r *Route) Affine() bool { return r.Index >= 0 }

// RelayAbsent reports whether a relay of the plan has vanished and only keeps its
// place.
func (r *Route) RelayAbsent(id string) bool { return r.absentRelays[id] }

// WorkerAbsent reports whether a worker of the plan takes no requests now, or has
// vanished, and only keeps its place.
func (r *Route) WorkerAbsent(id string) bool { return r.absentWorkers[id] }

// Target is where a request can be carried to.
type Target struct {
	// ID is the balancer's identity: the instance of a worker or relay, so that a
	// restarted process starts with a clean record.
	ID string
	// Node is the member's stable id.
	Node string
	// Address is the IP:port that is dialled.
	Address string
	// Weight is the share of this relay's traffic.
	Weight float64
	// Secured says that a worker's sidecar answers at the address, over mutual
	// TLS: it asks for the service's name and reports failures behind it.
	Secured bool
	// Limit is how many requests this relay has in flight there, 0 for any number: its
	// share of the endpoint's slots.
	Limit int
	// Endpoint is the worker's offer, nil for a relay.
	Endpoint *advertise.Endpoint
	// Pool holds the connections.
	Pool *upstream.Pool
	// Upgrades holds the connections for requests that upgrade theirs, when Pool
	// cannot carry them because it speaks HTTP/2; nil when it can.
	Upgrades *upstream.Pool

	key poolKey
}
