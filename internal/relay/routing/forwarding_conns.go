package routing

import (
	"context"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/selection/pool"
)

// Hop is the hold of one service's pool on the connections to a relay.
type Hop struct {
	// Target is the relay.
	Target *Target

	conns *relayConn
	lost  func(error)
}

// Close gives the hold up. The pool does it when no request of the service is on the
// way any more; the last hold closes the connections.
func (h *Hop) Close() error {
	h.conns.of.release(h.conns, h)
	return nil
}

// Failed is called when a request to the relay has failed: with no connection left,
// nobody has to find that out again.
func (h *Hop) Failed(err error) {
	if h.conns.pool.Stats().Open == 0 {
		h.conns.of.lose(h.conns, err)
	}
}

// relayConns owns the connections to relays. All methods may be called from any
// goroutine; none starts one.
type relayConns struct {
	open func(poolKey) (*upstream.Pool, error)

	mu    sync.Mutex // guards what follows, and relayConn's; never held while calling others
	byKey map[poolKey]*relayConn
}

// relayConn is the connections to one relay.
type relayConn struct {
	of             *relayConns
	key            poolKey
	pool, upgrades *upstream.Pool
	holds          int               // hops, those that are connecting included
	hops           map[*Hop]struct{} // connected
	attempt        *attempt          // to connect, nil when there is none
}

// attempt is one to connect, which all that want to connect meanwhile wait for.
type attempt struct {
	done chan struct{}
	err  error
}

func newRelayConns(open func(poolKey) (*upstream.Pool, error)) *relayConns {
	return &relayConns{open: open, byKey: map[poolKey]*relayConn{}}
}

// connect is what pools open connections with.
func (r *relayConns) connect(ctx context.Context, relay pool.Peer, lost func(error)) (*Hop, error) {
	c, err := r.hold(relayKey(relay.Address, upstream.H2C, relay.ID))
	if err != nil {
		return nil, err
	}
	h := &Hop{conns: c, lost: lost, Target: &Target{
		ID: relay.ID + "." + relay.Instance, Node: relay.ID, Address: relay.Address, Weight: 1, Pool: c.pool, Upgrades: c.upgrades, key: c.key,
	}}
	if err := c.connect(ctx); err != nil {
		r.release(c, h)
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.hops[h] = struct{}{}
	return h, nil
}

func (r *relayConns) hold(key poolKey) (*relayConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.byKey[key]
	if c == nil {
		c = &relayConn{of: r, key: key, hops: map[*Hop]struct{}{}}
		var err, upgradesErr error
		c.pool, err = r.open(key)
		c.upgrades, upgradesErr = r.open(key.forUpgrades())
		if err := errors.Join(err, upgradesErr); err != nil {
			return nil, err
		}
		r.byKey[key] = c
	}
	c.holds++
	return c, nil
}

func (r *relayConns) release(c *relayConn, h *Hop) {
	r.mu.Lock()
	delete(c.hops, h)
	c.holds--
	last := c.holds == 0
	if last {
		delete(r.byKey, c.key)
	}
	r.mu.Unlock()
	if last {
		c.pool.Close()
		c.upgrades.Close()
	}
}

// to are the connections to one relay.
func (r *relayConns) to(id string) (pools []*upstream.Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, c := range r.byKey {
		if key.node == id {
			pools = append(pools, c.pool, c.upgrades)
		}
	}
	return pools
}

// all are the connections to all relays, without those for upgrades.
func (r *relayConns) all() (pools []*upstream.Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.byKey {
		pools = append(pools, c.pool)
	}
	return pools
}

// connect makes sure that a connection is open. Upgrades get theirs when they need
// one.
func (c *relayConn) connect(ctx context.Context) error {
	for {
		c.of.mu.Lock()
		a := c.attempt
		if a == nil {
			a = &attempt{done: make(chan struct{})}
			c.attempt = a
			c.of.mu.Unlock()
			a.err = c.pool.Warm(ctx)
			c.of.mu.Lock()
			c.attempt = nil
			c.of.mu.Unlock()
			close(a.done)
			return a.err
		}
		c.of.mu.Unlock()
		select {
		case <-a.done:
			if !errors.Is(a.err, context.Canceled) { // who tried has been told to stop; we have not
				return a.err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lose tells everybody who holds the connections that there is none.
func (r *relayConns) lose(c *relayConn, err error) {
	r.mu.Lock()
	hops := make([]*Hop, 0, len(c.hops))
	for h := range c.hops {
		hops = append(hops, h)
	}
	r.mu.Unlock()
	for _, h := range hops {
		h.lost(err)
	}
}

var errNoneOpen = errors.New("no connection is open any more")

// audit finds the relays whose last connection broke without a request on it.
func (r *relayConns) audit() {
	r.mu.Lock()
	var all []*relayConn
	for _, c := range r.byKey {
		if len(c.hops) > 0 {
			all = append(all, c)
		}
	}
	r.mu.Unlock()
	for _, c := range all {
		if c.pool.Stats().Open == 0 {
			r.lose(c, errNoneOpen)
		}
	}
}

// register shows how many relays are connected to.
func (r *relayConns) register(reg prometheus.Registerer) error {
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringway_relay_forward_links", Help: "Relays that this relay is connected to, to forward requests.",
	}, func() float64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := 0
		for _, c := range r.byKey {
			if len(c.hops) > 0 {
				n++
			}
		}
		return float64(n)
	}))
}
