package ringwaygrpc

import (
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/wire"
)

// policy is the name of the balancing policy in a service config.
const policy = "ringway"

// grpc-go finds policies by a global name only. What differs between clients, such as the
// router, comes from the resolver.
func init() { balancer.Register(builder{}) }

type builder struct{}

// Name implements balancer.Builder.
func (builder) Name() string { return policy }

// Build implements balancer.Builder.
func (builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &connections{cc: cc}
}

// connections keeps a connection to each endpoint. grpc-go calls its methods, and the listeners
// of the connections, one at a time.
type connections struct {
	cc    balancer.ClientConn
	found *found
	// byPlace is shared with pickers, so it is replaced and never changed.
	byPlace map[place]*connection
	skipped error // an endpoint that cannot serve gRPC
}

// place is a worker at an address. Two workers may have one address until membership has removed
// the one that is gone: of these, a connection that proves its worker reaches only the other.
type place struct{ worker, address string }

func placeOf(e *advertise.Endpoint) place { return place{e.NodeID, e.Address} }

// connection is the connection to one life of one endpoint. Pickers read its state.
type connection struct {
	balancer.SubConn
	endpoint *advertise.Endpoint
	// metadata is what the endpoint requires with each RPC.
	metadata metadata.MD
	state    atomic.Uint32 // a connectivity.State; a failure lasts until Ready
	failed   atomic.Pointer[error]
}

func (c *connection) is() connectivity.State { return connectivity.State(c.state.Load()) }

// serves reports whether the connection is one to the same life of an endpoint of its place. A worker
// that has restarted is dialled anew, without the delay after the failures of its former life.
func (c *connection) serves(e *advertise.Endpoint) bool {
	o := c.endpoint
	return o.Epoch == e.Epoch && o.Secured == e.Secured && o.Protocol == e.Protocol
}

var errOtherResolver = errors.New("ringwaygrpc: the policy ringway needs the resolver of this package: make the ClientConn with NewClient")

// UpdateClientConnState implements balancer.Balancer.
func (b *connections) UpdateClientConnState(s balancer.ClientConnState) error {
	f, ok := s.ResolverState.Attributes.Value(foundKey{}).(*found)
	if !ok {
		b.fail(errOtherResolver)
		return balancer.ErrBadResolverState
	}
	b.found, b.skipped = f, nil
	next := make(map[place]*connection, len(f.endpoints))
	for _, e := range f.endpoints {
		if e.Protocol != advertise.H2C && e.Protocol != advertise.H2 {
			b.skipped = fmt.Errorf("worker %s offers the service with the protocol %s: advertise h2c for a server of gRPC, or h2 if it has TLS of its own", e.NodeID, e.Protocol)
			continue
		}
		if c := b.byPlace[placeOf(e)]; c != nil && c.serves(e) {
			next[placeOf(e)] = c
			continue
		}
		c, err := b.connect(e)
		if err != nil {
			b.skipped = fmt.Errorf("connect to %s: %w", e.Address, err)
			continue
		}
		next[placeOf(e)] = c
	}
	old := b.byPlace
	b.byPlace = next
	for at, c := range old {
		if next[at] != c {
			c.Shutdown() // RPCs in flight go on
		}
	}
	b.publish()
	return nil
}

// connect opens a connection and keeps it open.
func (b *connections) connect(e *advertise.Endpoint) (*connection, error) {
	c := &connection{endpoint: e}
	c.state.Store(uint32(connectivity.Connecting))
	if e.Secured { // the sidecar of a worker serves several services
		c.metadata = metadata.Pairs(wire.ServiceHeader, e.Name)
	}
	address := resolver.Address{Addr: e.Address, Attributes: attributes.New(endpointKey{}, e)}
	var err error
	//lint:ignore SA1019 deprecated is only a list of several addresses
	c.SubConn, err = b.cc.NewSubConn([]resolver.Address{address}, balancer.NewSubConnOptions{
		StateListener: func(s balancer.SubConnState) { b.changed(c, s) },
	})
	if err != nil {
		return nil, err
	}
	c.Connect()
	return c, nil
}

// changed follows the state of a connection. After a failure a connection counts as failed until
// it is ready: RPCs that do not wait fail while it is dialled again and again.
func (b *connections) changed(c *connection, s balancer.SubConnState) {
	if b.byPlace[placeOf(c.endpoint)] != c {
		return // shut down
	}
	before := c.is()
	now := before
	switch s.ConnectivityState {
	case connectivity.Ready:
		now = connectivity.Ready
	case connectivity.TransientFailure:
		now = connectivity.TransientFailure
		c.failed.Store(&s.ConnectionError)
	case connectivity.Idle, connectivity.Connecting:
		if before == connectivity.Ready {
			now = connectivity.Connecting
		}
		if s.ConnectivityState == connectivity.Idle {
			c.Connect() // grpc-go waits between two failures
		}
	}
	c.state.Store(uint32(now))
	if now != before {
		b.publish()
	}
}

// publish makes RPCs that wait pick again.
func (b *connections) publish() {
	state := connectivity.TransientFailure
	for _, c := range b.byPlace {
		switch c.is() {
		case connectivity.Ready:
			state = connectivity.Ready
		case connectivity.Connecting:
			if state != connectivity.Ready {
				state = connectivity.Connecting
			}
		}
	}
	b.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: &picker{
		router: b.found.router, service: b.found.service, byPlace: b.byPlace, skipped: b.skipped,
	}})
}

// fail lets RPCs fail that do not wait.
func (b *connections) fail(err error) {
	b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: failing{err}})
}

type failing struct{ err error }

// Pick implements balancer.Picker.
func (f failing) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{}, f.err
}

// ResolverError implements balancer.Balancer.
func (b *connections) ResolverError(err error) {
	if b.found == nil {
		b.fail(err)
	}
}

// UpdateSubConnState is not used: connections have listeners.
func (*connections) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle does nothing: connections are never idle.
func (*connections) ExitIdle() {}

// Close implements balancer.Balancer.
func (b *connections) Close() {
	for _, c := range b.byPlace {
		c.Shutdown()
	}
	b.byPlace = nil
}
