package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Relays picks among the relays that a service is forwarded to, and keeps connections to a
// few of them.
type Relays = relaypool.Pool[*RelayHold]

// forwarding has a pool for every service that this relay forwards. The relays differ from
// service to service; all services share the connections to one relay.
type forwarding struct {
	cfg     relaypool.Config
	auto    bool // the number of primaries follows from the fleet
	metrics *relaypool.Metrics
	logger  *slog.Logger
	lines   *loglimit.Limiter
	pools   *pools

	mu    sync.Mutex                          // guards holds; never held during calls of others
	holds map[poolKey]map[*RelayHold]struct{} // connected ones

	// Used only by Run.
	ctx     context.Context // the context of Run: the pools end with it
	running sync.WaitGroup
}

// newForwarding uses the defaults of Config.Forwarding.
func newForwarding(cfg Config, lines *loglimit.Limiter, owner *pools) (*forwarding, error) {
	f := &forwarding{cfg: cfg.Forwarding, logger: cfg.Logger, lines: lines, pools: owner, holds: map[poolKey]map[*RelayHold]struct{}{}}
	if f.auto = f.cfg.Primaries == 0; f.auto {
		least := relaypool.DefaultConfig()
		if f.cfg.Candidates == 0 {
			f.cfg = least
		}
		f.cfg.Primaries = least.Primaries
	}
	f.cfg.Selector, f.cfg.Datacenter, f.cfg.Region = cfg.Self, cfg.Datacenter, cfg.Region
	// All links to a relay share the connections of its pool, of which upstream opens as many as the
	// streams need: a limit on links would keep a relay away whose sessions hold old ones.
	f.cfg.Streams, f.cfg.MaxPerPeer, f.cfg.MaxTotal = math.MaxInt32, math.MaxInt32, math.MaxInt32
	if err := f.cfg.Validate(); err != nil {
		return nil, fmt.Errorf("routing: relays to forward to: %w", err)
	}
	var err error
	if f.metrics, err = relaypool.NewMetrics(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("routing: register metrics: %w", err)
	}
	links := metric.With(nil).GaugeFunc("ringway_relay_forward_links", "Relays that this relay is connected to, to forward requests.", func() float64 { return float64(f.connected()) })
	if err := cfg.Registerer.Register(links); err != nil {
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
	tier int // the MinPeersPerTier of the pool
}

// overlap is how many times the relays of a service are in use, counted over all forwarders.
//
// Each forwarder ranks the relays in an order of its own, so how many forwarders use a relay varies
// as by chance: with few places some relays, and workers that only these are connected to, get no
// request. With 8 the busiest of 20,000 workers has less than twice the mean, for any number of
// gates; with the 3 places of a pool it has 16 times the mean behind four gates before 288 relays.
const overlap = 8

// primaries returns how many relays share the requests of a service, by how many relays serve it
// and how many members forward to them.
func primaries(relays, forwarders int) int {
	return (overlap*relays + forwarders - 1) / forwarders
}

// setRelays sets the relays that a service is forwarded to, and how many share its requests unless the
// configuration does; an empty list ends forwarding. Requests that still hold the pool of a service
// without relays then get the error that the pool is closed.
func (f *forwarding) setRelays(s *Service, relays []relaypool.Peer, size int) error {
	now := s.relays.Load()
	if !f.auto {
		size = f.cfg.Primaries
	}
	switch {
	case len(relays) == 0:
		if now != nil {
			s.relays.Store(nil)
			now.stop()
		}
		return nil
	case now != nil && now.tier == f.cfg.MinPeersPerTier:
		now.pool.Resize(size)
		return now.pool.Update(relays)
	}
	p, err := relaypool.New(f.cfg, f.connect, relaypool.Observer{Metrics: f.metrics, OnEvent: func(e relaypool.Event) { f.logEvent(s.Name, e) }})
	if err != nil {
		return err
	}
	p.Resize(size)
	if err := p.Update(relays); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(f.ctx)
	f.running.Go(func() { _ = p.Run(ctx) }) // it fails only if it is called twice
	s.relays.Store(&relaysOf{p, stop, f.cfg.MinPeersPerTier})
	if now != nil { // a request that still holds it reads the pool again
		now.stop()
	}
	return nil
}

// publish publishes a route and its relays: the relays first if requests are to go to
// them, last if no more requests are.
func (r *Router) publish(s *Service, next *Route) error {
	relays := next.Forward
	if next.Unreachable > 0 {
		relays = next.Elsewhere
	}
	if len(relays) > 0 && !r.cfg.PickOnly {
		if err := r.forwarding.setRelays(s, relays, primaries(r.forwarders(next, relays))); err != nil {
			return err
		}
	}
	if err := s.SetRoute(next, r.now()); err != nil {
		return err
	}
	if len(relays) == 0 {
		return r.forwarding.setRelays(s, nil, 0)
	}
	return nil
}

// forwarders returns how many relays of a list this member chooses from, which are the nearest ones
// of which there are enough, and how many members there forward requests as this one does: the
// gates, the relays that do not serve the service, or those that serve it and reach none of its
// workers.
func (r *Router) forwarders(route *Route, relays []relaypool.Peer) (near, forwarders int) {
	here := affinity.Place{Datacenter: r.cfg.Datacenter, Region: r.cfg.Region}
	within := func(tier affinity.Tier, datacenter, region string) bool {
		return here.Tier(affinity.Place{Datacenter: datacenter, Region: region}) <= tier
	}
	tier := affinity.SameDatacenter
	for ; ; tier++ {
		near = 0
		for i := range relays {
			if within(tier, relays[i].Datacenter, relays[i].Region) {
				near++
			}
		}
		if near >= r.forwarding.cfg.MinPeersPerTier || tier == affinity.Global {
			break
		}
	}
	switch {
	case r.cfg.Role == identity.RoleGate:
		for _, g := range r.fleet.gates {
			if within(tier, g.Datacenter, g.Region) {
				forwarders++
			}
		}
	case route.Affine():
		forwarders = len(route.Plan.Affine()) - len(route.Elsewhere)
	default:
		for i := range r.fleet.relays {
			if within(tier, r.fleet.relays[i].Datacenter, r.fleet.relays[i].Region) {
				forwarders++
			}
		}
		forwarders -= near
	}
	return near, max(forwarders, 1)
}

// logEvent logs an event of a relay. With thousands of services only evictions are logged
// above debug, as few as lines allows: all of them lose a relay at the same time.
func (f *forwarding) logEvent(service string, e relaypool.Event) {
	level := slog.LevelDebug
	if e.Kind == relaypool.Evicted {
		level = slog.LevelInfo
		if slices.Contains([]relaypool.Reason{relaypool.ErrorRate, relaypool.ConsecutiveFailures, relaypool.Latency}, e.Reason) {
			level = slog.LevelWarn
		}
	}
	if !f.logger.Enabled(f.ctx, level) {
		return
	}
	attrs := []any{"service", service, "relay", e.Peer, "role", e.Role.String(), "reason", string(e.Reason), "detail", e.Detail}
	if e.Err != nil {
		attrs = append(attrs, "err", e.Err)
	}
	message := "relay to forward to: " + e.Kind.String()
	if level == slog.LevelDebug {
		f.logger.Log(f.ctx, level, message, attrs...)
		return
	}
	f.lines.Log(level, message, attrs...)
}

// peers returns the relays of a plan that requests can be forwarded to.
func (r *Router) peers(affine []string) (out []relaypool.Peer) {
	for _, id := range affine {
		// Not from the snapshot: while it is degraded, relays that failed stay.
		i, found := slices.BinarySearchFunc(r.fleet.relays, id, func(m membership.Member, id string) int { return strings.Compare(m.ID, id) })
		if !found || r.fleet.relays[i].ForwardAddr == "" {
			continue // vanished, with its place kept
		}
		m := r.fleet.relays[i]
		out = append(out, relaypool.Peer{ID: m.ID, Address: m.ForwardAddr, Instance: strconv.FormatUint(m.Epoch, 10), Datacenter: m.Datacenter, Region: m.Region})
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

// RelayHold is the hold of one service on the connections to a relay.
type RelayHold struct {
	// Target is the relay. Its pools own the connections.
	Target *Target

	of   *forwarding
	lost func(error)
}

// connect is the function with which the pools of services open connections. Connections for
// upgrades are opened when they are needed.
func (f *forwarding) connect(ctx context.Context, relay relaypool.Peer, lost func(error)) (_ *RelayHold, err error) {
	key := relayKey(relay.Address, advertise.H2C, relay.ID)
	h := &RelayHold{of: f, lost: lost, Target: &Target{ID: relay.ID + "." + relay.Instance, Node: relay.ID, Address: relay.Address, Weight: 1, key: key}}
	if h.Target.Pool, err = f.pools.hold(key); err != nil {
		return nil, err
	}
	if h.Target.Upgrades, err = f.pools.hold(key.forUpgrades()); err != nil {
		f.pools.release(key)
		return nil, err
	}
	if err := h.Target.Pool.Warm(ctx); err != nil {
		_ = h.Close() // it cannot fail
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holds[key] == nil {
		f.holds[key] = map[*RelayHold]struct{}{}
	}
	f.holds[key][h] = struct{}{}
	return h, nil
}

// Close releases the hold. The pool of the service calls it when no request of the service is
// in flight on its connections any more; the last hold closes the connections.
func (h *RelayHold) Close() error {
	f, key := h.of, h.Target.key
	f.mu.Lock()
	delete(f.holds[key], h)
	if len(f.holds[key]) == 0 {
		delete(f.holds, key)
	}
	f.mu.Unlock()
	f.pools.release(key)
	f.pools.release(key.forUpgrades())
	return nil
}

// Failed is called when a request to the relay has failed. If no connection is left, all
// holds on the relay are notified, so that their requests need not fail as well.
func (h *RelayHold) Failed(err error) {
	if h.Target.Pool.Stats().Open == 0 {
		h.of.lose(h.Target.key, err)
	}
}

// lose reports to all holds on a relay that no connection is open.
func (f *forwarding) lose(key poolKey, err error) {
	f.mu.Lock()
	holds := slices.Collect(maps.Keys(f.holds[key]))
	f.mu.Unlock()
	for _, h := range holds {
		h.lost(err)
	}
}

var errNoneOpen = errors.New("no connection is open any more")

// audit finds the relays whose last connection ended without a request on it.
func (f *forwarding) audit() {
	f.mu.Lock()
	keys := slices.Collect(maps.Keys(f.holds))
	f.mu.Unlock()
	for _, key := range keys {
		if p := f.pools.get(key); p != nil && p.Stats().Open == 0 {
			f.lose(key, errNoneOpen)
		}
	}
}

// connected returns how many relays are held.
func (f *forwarding) connected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.holds)
}
