package routing

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/selection/pool"
)

// Relays picks among the relays that a service is forwarded to, and keeps connected
// to a few of them.
type Relays = pool.Pool[*Hop]

// forwarding has a pool for every service that this relay forwards. Which relays
// serve it differs from service to service; the connections to one relay are shared
// by all of them.
type forwarding struct {
	cfg     pool.Config
	metrics *pool.Metrics
	logger  *slog.Logger
	conns   *relayConns

	// Of Run.
	ctx     context.Context // Run's: the pools end with it
	running sync.WaitGroup
}

// newForwarding takes what differs from pool.DefaultConfig from cfg.
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

// to has a service forwarded to relays from now on, to nobody if there are none.
// Requests that still hold the last pool of a service that has none any more learn
// that it is closed.
func (f *forwarding) to(s *Service, relays []pool.Peer) error {
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
	p, err := pool.New(f.cfg, f.conns.connect, pool.Observer{Metrics: f.metrics, OnEvent: func(e pool.Event) { f.tell(s.Name, e) }})
	if err != nil {
		return err
	}
	if err := p.Update(relays); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(f.ctx)
	f.running.Go(func() { _ = p.Run(ctx) }) // it fails only when it is run twice
	s.relays.Store(&relaysOf{p, stop})
	return nil
}

// publish publishes a route, and the relays with it: before it when requests are to
// go there, after it when no more are to.
func (r *Router) publish(s *Service, next *Route) error {
	if len(next.Forward) > 0 {
		if err := r.forwarding.to(s, next.Forward); err != nil {
			return err
		}
	}
	if err := s.SetRoute(next, r.now()); err != nil {
		return err
	}
	if len(next.Forward) == 0 {
		return r.forwarding.to(s, nil)
	}
	return nil
}

// tell logs what became of a relay. With thousands of services only what a relay
// did to deserve it is worth a line.
func (f *forwarding) tell(service string, e pool.Event) {
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

// peers are the relays of a plan that can be forwarded to.
func (r *Router) peers(affine []string) (out []pool.Peer) {
	for _, id := range affine {
		// Not the snapshot's: while that is degraded, relays that failed stay.
		i, found := slices.BinarySearchFunc(r.fleet.relays, id, func(m membership.Member, id string) int { return strings.Compare(m.ID, id) })
		if !found || r.fleet.relays[i].ForwardAddr == "" {
			continue // vanished, its place is kept
		}
		m := r.fleet.relays[i]
		out = append(out, pool.Peer{ID: m.ID, Address: m.ForwardAddr, Instance: strconv.FormatUint(m.Epoch, 10), Datacenter: m.Datacenter, Region: m.Region})
	}
	return out
}

// forwardingTried reports whether every service that is forwarded has a relay, or
// none that lets itself be connected to.
func (r *Router) forwardingTried() bool {
	for _, s := range *r.services.Load() {
		if relays := s.Relays(); relays != nil && !relays.Tried() {
			return false
		}
	}
	return true
}
