package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/pool"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/membership"
)

// Relays picks among the relays that a service is forwarded to, and keeps connections to a
// few of them.
type Relays = pool.Pool[*Hop]

// forwarding has a pool for every service that this relay forwards. The relays differ from
// service to service; all services share the connections to one relay.
type forwarding struct {
	cfg     pool.Config
	metrics *pool.Metrics
	logger  *slog.Logger
	conns   *relayConns

	// Used only by Run.
	ctx     context.Context // the context of Run: the pools end with it
	running sync.WaitGroup
}

// newForwarding uses pool.DefaultConfig unless cfg.Forwarding is set.
func newForwarding(cfg Config, open func(poolKey) (*upstream.Pool, error)) (*forwarding, error) {
	f := &forwarding{cfg: cfg.Forwarding, logger: cfg.Logger, conns: newRelayConns(open)}
	if f.cfg.Primaries == 0 {
		f.cfg = pool.DefaultConfig()
	}
	f.cfg.Selector, f.cfg.Datacenter, f.cfg.Region = cfg.Self, cfg.Datacenter, cfg.Region
	f.cfg.Streams = math.MaxInt32 // upstream opens as many connections as the streams need
	if err := f.cfg.Validate(); err != nil {
		return nil, fmt.Errorf("routing: relays to forward to: %w", err)
	}
	var err error
	if f.metrics, err = pool.NewMetrics(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("routing: register metrics: %w", err)
	}
	if err := f.conns.register(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("routing: register metrics: %w", err)
	}
	return f, nil
}

// start lets pools run until the returned function is called, which waits for them.
func (f *forwarding) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	f.ctx = ctx
	return func() { cancel(); f.running.Wait() }
}

// relaysOf is the pool of one service.
type relaysOf struct {
	pool *Relays
	stop context.CancelFunc
}

// setRelays sets the relays that a service is forwarded to; an empty list ends forwarding.
// Requests that still hold the pool of a service without relays then get the error that
// the pool is closed.
func (f *forwarding) setRelays(s *Service, relays []pool.Peer) error {
	now := s.relays.Load()
	switch {
	case len(relays) == 0:
		if now != nil {
			s.relays.Store(nil)
			now.stop()
		}
		return nil
	case now != nil:
		return now.pool.Update(relays)
	}
	p, err := pool.New(f.cfg, f.conns.connect, pool.Observer{Metrics: f.metrics, OnEvent: func(e pool.Event) { f.logEvent(s.Name, e) }})
	if err != nil {
		return err
	}
	if err := p.Update(relays); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(f.ctx)
	f.running.Go(func() { _ = p.Run(ctx) }) // it fails only if it is called twice
	s.relays.Store(&relaysOf{p, stop})
	return nil
}

// publish publishes a route and its relays: the relays first if requests are to go to
// them, last if no more requests are.
func (r *Router) publish(s *Service, next *Route) error {
	if len(next.Forward) > 0 && !r.cfg.PickOnly {
		if err := r.forwarding.setRelays(s, next.Forward); err != nil {
			return err
		}
	}
	if err := s.SetRoute(next, r.now()); err != nil {
		return err
	}
	if len(next.Forward) == 0 {
		return r.forwarding.setRelays(s, nil)
	}
	return nil
}

// logEvent logs an event of a relay. With thousands of services only evictions for failures or
// latency are logged as warnings.
func (f *forwarding) logEvent(service string, e pool.Event) {
	level := slog.LevelDebug
	if e.Kind == pool.Evicted && slices.Contains([]pool.Reason{pool.ErrorRate, pool.ConsecutiveFailures, pool.Latency}, e.Reason) {
		level = slog.LevelWarn
	}
	if !f.logger.Enabled(f.ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("service", service), slog.String("relay", e.Peer), slog.String("role", e.Role.String()),
		slog.String("reason", string(e.Reason)), slog.String("detail", e.Detail)}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("err", e.Err))
	}
	f.logger.LogAttrs(f.ctx, level, "relay to forward to: "+e.Kind.String(), attrs...)
}

// peers returns the relays of a plan that requests can be forwarded to.
func (r *Router) peers(affine []string) (out []pool.Peer) {
	for _, id := range affine {
		// Not from the snapshot: while it is degraded, relays that failed stay.
		i, found := slices.BinarySearchFunc(r.fleet.relays, id, func(m membership.Member, id string) int { return strings.Compare(m.ID, id) })
		if !found || r.fleet.relays[i].ForwardAddr == "" {
			continue // vanished, with its place kept
		}
		m := r.fleet.relays[i]
		out = append(out, pool.Peer{ID: m.ID, Address: m.ForwardAddr, Instance: strconv.FormatUint(m.Epoch, 10), Datacenter: m.Datacenter, Region: m.Region})
	}
	return out
}

// forwardingTried reports whether every forwarded service is connected to a relay, or has
// tried all of them.
func (r *Router) forwardingTried() bool {
	for _, s := range *r.services.Load() {
		if relays := s.Relays(); relays != nil && !relays.Tried() {
			return false
		}
	}
	return true
}

// Hop is the hold of one service's pool on the connections to a relay.
type Hop struct {
	// Target is the relay. Its pools own the connections.
	Target *Target

	of   *relayConns
	lost func(error)
}

// Close releases the hold. The pool calls it when no request of the service is in flight
// on it any more; the last hold closes the connections.
func (h *Hop) Close() error {
	h.of.release(h)
	return nil
}

// Failed is called when a request to the relay has failed. If no connection is left, all
// holders are notified, so that their requests need not fail as well.
func (h *Hop) Failed(err error) {
	if h.Target.Pool.Stats().Open == 0 {
		h.of.lose(h.Target.key, err)
	}
}

// relayConns counts the holds of services on the connections to relays. All methods may be
// called from any goroutine; none starts a goroutine.
type relayConns struct {
	open func(poolKey) (*upstream.Pool, error)

	mu    sync.Mutex // guards the fields below; never held during calls of others
	byKey map[poolKey]*relayConn
}

// relayConn is the connections to one relay.
type relayConn struct {
	pool, upgrades *upstream.Pool
	hops           map[*Hop]bool // the holds; true if the hop is connected
}

func newRelayConns(open func(poolKey) (*upstream.Pool, error)) *relayConns {
	return &relayConns{open: open, byKey: map[poolKey]*relayConn{}}
}

// connect is the function with which pools open connections. Connections for upgrades are
// opened when they are needed.
func (r *relayConns) connect(ctx context.Context, relay pool.Peer, lost func(error)) (*Hop, error) {
	key := relayKey(relay.Address, upstream.H2C, relay.ID)
	h := &Hop{of: r, lost: lost, Target: &Target{ID: relay.ID + "." + relay.Instance, Node: relay.ID, Address: relay.Address, Weight: 1, key: key}}
	if err := r.hold(h); err != nil {
		return nil, err
	}
	if err := h.Target.Pool.Warm(ctx); err != nil {
		r.release(h)
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byKey[key].hops[h] = true
	return h, nil
}

// hold gives a hop the pools of its relay.
func (r *relayConns) hold(h *Hop) error {
	key := h.Target.key
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.byKey[key]
	if c == nil {
		connections, err := r.open(key)
		if err != nil {
			return err
		}
		upgrades, err := r.open(key.forUpgrades())
		if err != nil {
			connections.Close()
			return err
		}
		c = &relayConn{connections, upgrades, map[*Hop]bool{}}
		r.byKey[key] = c
	}
	c.hops[h] = false
	h.Target.Pool, h.Target.Upgrades = c.pool, c.upgrades
	return nil
}

func (r *relayConns) release(h *Hop) {
	key := h.Target.key
	r.mu.Lock()
	c := r.byKey[key]
	delete(c.hops, h)
	last := len(c.hops) == 0
	if last {
		delete(r.byKey, key)
	}
	r.mu.Unlock()
	if last {
		c.pool.Close()
		c.upgrades.Close()
	}
}

// to returns the connections to one relay.
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

// all returns the connections to all relays, without those for upgrades.
func (r *relayConns) all() (pools []*upstream.Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.byKey {
		pools = append(pools, c.pool)
	}
	return pools
}

// connected lists the relays with a hop that is connected.
func (r *relayConns) connected() map[poolKey]*upstream.Pool {
	out := map[poolKey]*upstream.Pool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, c := range r.byKey {
		for _, connected := range c.hops {
			if connected {
				out[key] = c.pool
			}
		}
	}
	return out
}

// lose reports to all connected holders that no connection to their relay is open.
func (r *relayConns) lose(key poolKey, err error) {
	var hops []*Hop
	r.mu.Lock()
	if c := r.byKey[key]; c != nil {
		for h, connected := range c.hops {
			if connected {
				hops = append(hops, h)
			}
		}
	}
	r.mu.Unlock()
	for _, h := range hops {
		h.lost(err)
	}
}

var errNoneOpen = errors.New("no connection is open any more")

// audit finds the relays whose last connection ended without a request on it.
func (r *relayConns) audit() {
	for key, connections := range r.connected() {
		if connections.Stats().Open == 0 {
			r.lose(key, errNoneOpen)
		}
	}
}

// register registers the metric of connected relays.
func (r *relayConns) register(reg prometheus.Registerer) error {
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringway_relay_forward_links", Help: "Relays that this relay is connected to, to forward requests.",
	}, func() float64 { return float64(len(r.connected())) }))
}
