package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/relay/ingress"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/sharedkey"
)

// Relay is one relay or gate.
type Relay struct {
	cfg       Config
	epoch     time.Time
	members   *membership.Node
	catalogue *advertise.Catalogue
	expirer   *advertise.Expirer
	router    *routing.Router
	keeper    *sharedkey.Keeper
	tracing   *tracing.Tracing // nil: requests are not traced

	ingress, peer, admin *listener

	// What a reload changes: the configuration that requests are served by, and what
	// serves them.
	reloading               sync.Mutex
	tuned                   atomic.Pointer[Config]
	newHandler              func(cfg Config, hop bool) http.Handler
	ingressFront, peerFront front
	reloads                 *prometheus.CounterVec

	drain    *drain
	stopping atomic.Bool
	checking chan struct{} // holds one while a check is under way
}

// listener is a bound socket and what serves it.
type listener struct {
	name   string
	socket net.Listener
	server *http.Server
}

// New validates the configuration and binds every listener. It starts nothing;
// when it fails, nothing stays bound.
func New(cfg Config) (_ *Relay, err error) {
	if cfg.ProbeDelay == 0 {
		cfg.ProbeDelay = time.Second
	}
	r := &Relay{epoch: time.Now(), checking: make(chan struct{}, 1)}
	var undo []func() error
	defer func() {
		if err != nil {
			for _, f := range undo {
				err = errors.Join(err, f())
			}
		}
	}()

	conns := newConnMetrics(cfg.Registry)
	for _, l := range []struct {
		to         **listener
		name, addr string
	}{{&r.ingress, "ingress", cfg.IngressAddr}, {&r.peer, "peer", cfg.PeerAddr}, {&r.admin, "admin", cfg.AdminAddr}} {
		socket, err := listen(l.name, l.addr, conns)
		if err != nil {
			return nil, err
		}
		undo = append(undo, socket.Close)
		*l.to = &listener{name: l.name, socket: socket}
	}

	advertised := cmp.Or(cfg.Membership.AdvertiseAddr, cfg.Membership.BindAddr)
	cfg.Membership.ForwardAddr = daemon.Reachable(r.peer.socket.Addr(), advertised)
	cfg.Membership.AdminAddr = daemon.Reachable(r.admin.socket.Addr(), advertised)
	cfg.Choosing.Stale = func(e advertise.Endpoint) { r.expirer.Observe(e) }
	r.cfg = cfg
	if r.members, err = membership.New(cfg.Membership); err != nil {
		return nil, err
	}
	undo = append(undo, r.members.Close)
	if r.catalogue, err = advertise.New(advertise.Config{Gossip: r.members, Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
		return nil, err
	}
	metrics := ingress.NewMetrics(cfg.Registry)
	if r.router, err = routing.New(routing.Config{
		Self: cfg.Membership.ID, Role: cfg.Membership.Role, Catalogue: r.catalogue,
		Plans: cfg.Plans, Links: cfg.Links, Choosing: cfg.Choosing, Datacenter: cfg.Membership.Datacenter, Region: cfg.Membership.Region,
		Selection: selectionConfig(cfg.Registry), Identity: cfg.Membership.Identity, Epoch: r.epoch, Logger: cfg.Logger, Registerer: cfg.Registry,
		Appeared: metrics.Expect,
	}); err != nil {
		return nil, err
	}
	if r.expirer, err = advertise.NewExpirer(advertise.ExpirerConfig{Catalogue: r.catalogue, Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
		return nil, err
	}
	circuits, err := newCircuits(cfg)
	if err != nil {
		return nil, err
	}
	tracer, err := r.startTracing()
	if err != nil {
		return nil, err
	}
	undo = append(undo, r.endTracing)
	r.reloads, r.drain = newReloads(cfg.Registry), newDrain(cfg.Registry)
	newCoverage(cfg.Registry, r.router.Services)
	r.newHandler = func(cfg Config, hop bool) http.Handler {
		return ingress.New(ingress.Config{
			Self: cfg.Membership.ID, Services: r.router, Epoch: r.epoch, Domain: cfg.Domain, Routes: cfg.Routes,
			Timeout: cfg.RequestTimeout, MaxAttempts: cfg.MaxAttempts, RetryBudget: cfg.RetryBudget,
			MaxInFlight: cfg.MaxInFlight, ExposeRouteHeaders: cfg.ExposeRouteHeaders, Hop: hop,
			Circuits:    edge(circuits, hop),
			Unreachable: func(e advertise.Endpoint) { r.expirer.Observe(e) },
			Tracer:      tracer,
			Metrics:     metrics, Logger: cfg.Logger,
		})
	}
	r.ingressFront.closing = r.drain.on
	r.tune(&cfg)
	r.ingress.server = newServer(&r.ingressFront, cfg.Logger)
	if r.keeper, err = r.newKeeper(); err != nil {
		return nil, err
	}
	r.peer.server = newServer(r.withFacts(withSharedKey(r.keeper, &r.peerFront)), cfg.Logger)
	if cfg.Membership.Identity != nil {
		secure(r.peer.server, cfg.Membership.Identity)
	}
	r.admin.server = newServer(nil, cfg.Logger)
	if err = cfg.Admin.Serve(r.admin.server, r.adminMux(), cfg.Membership.Identity, cfg.Registry); err != nil {
		return nil, err
	}
	daemon.RegisterReady(cfg.Registry, r.Reasons)
	return r, nil
}

// IngressAddr is where clients connect.
func (r *Relay) IngressAddr() string { return r.ingress.socket.Addr().String() }

// AdminAddr is where operators connect.
func (r *Relay) AdminAddr() string { return r.admin.socket.Addr().String() }

// PeerAddr is where other relays connect.
func (r *Relay) PeerAddr() string { return r.peer.socket.Addr().String() }

// GossipAddr is where other members reach this one.
func (r *Relay) GossipAddr() string { return r.members.Addr() }

// Run serves until ctx ends, stops in order, and returns when nothing of the
// relay is left. The error is nil after an orderly stop.
func (r *Relay) Run(ctx context.Context) error {
	// What serves outlives ctx until stop has run.
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	group, failed := errgroup.WithContext(serving)

	for _, l := range []*listener{r.ingress, r.peer, r.admin} {
		group.Go(func() error {
			if err := l.serve(); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", l.name, err)
			}
			return nil
		})
	}
	if err := r.members.Start(failed); err != nil {
		r.closeServers()
		return errors.Join(err, group.Wait(), r.members.Close(), r.endTracing())
	}
	group.Go(func() error { return r.catalogue.Run(failed) })
	group.Go(func() error { return r.expirer.Run(failed) })
	group.Go(func() error { return r.router.Run(failed) })
	group.Go(func() error { return r.keeper.Run(failed) })
	if source := r.cfg.Membership.Identity; source != nil {
		group.Go(func() error { return source.Run(failed) }) // reads renewed certificates
	}
	group.Go(func() error {
		r.announceReady(ctx, failed)
		select {
		case <-ctx.Done():
			r.stop()
		case <-failed.Done(): // a part of the relay broke: the others go, too
		}
		endServing()
		r.closeServers()
		return nil
	})
	err := group.Wait()
	return errors.Join(err, r.members.Close(), r.endTracing())
}

// announceReady logs the moment from which this relay should get traffic. It
// gives up when one of the contexts ends.
func (r *Relay) announceReady(ctx, failed context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(r.Reasons()) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-failed.Done():
			return
		}
	}
	r.cfg.Logger.Info("ready", "members", len(r.members.Snapshot().Members()), "services", len(r.router.Services()))
}

// stop goes through the order of an orderly end.
func (r *Relay) stop() {
	r.stopping.Store(true) // /readyz says so from here on
	ctx := context.Background()
	if err := r.members.Leave(ctx); err != nil {
		r.cfg.Logger.Warn("the others were not told that this relay leaves", "err", err)
	}
	time.Sleep(r.cfg.ProbeDelay)
	timeout := r.tuned.Load().DrainTimeout
	r.cfg.Logger.Info("draining requests", "timeout", timeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := errors.Join(r.ingress.server.Shutdown(ctx), r.peer.server.Shutdown(ctx))
	if left := r.awaitTunnels(ctx); err != nil || left > 0 {
		r.cfg.Logger.Warn("requests were still in flight at the end of the drain timeout", "in_flight", left)
	}
}

// awaitTunnels waits for the requests that net/http does not know of any more:
// upgraded connections. It returns how many are left when ctx ends.
func (r *Relay) awaitTunnels(ctx context.Context) (left int64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if left = r.inFlight(); left == 0 {
			return 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return left
		}
	}
}

// inFlight counts the requests under way.
func (r *Relay) inFlight() (n int64) {
	for _, s := range r.router.Services() {
		n += s.InFlight.Load()
	}
	return n
}

func (r *Relay) closeServers() {
	for _, l := range []*listener{r.ingress, r.peer, r.admin} {
		_ = l.server.Close() // it reports only what closing a socket can report
	}
}

// Reasons lists why this relay should get no traffic.
func (r *Relay) Reasons() []string {
	var reasons []string
	if r.stopping.Load() {
		reasons = append(reasons, "stopping")
	}
	if r.drain.on() {
		reasons = append(reasons, "draining")
	}
	if status := r.members.Status(); !status.Joined {
		reason := "not joined yet"
		if status.Err != nil {
			reason += ": " + status.Err.Error()
		}
		reasons = append(reasons, reason)
	}
	if err := r.keeper.Ready(); err != nil {
		reasons = append(reasons, err.Error())
	}
	if !r.router.Settled() {
		reasons = append(reasons, "the catalogue is not settled yet")
	}
	return reasons
}

// Close releases what New bound, for a relay that is not run. Run does it by
// itself.
func (r *Relay) Close() error {
	return errors.Join(r.ingress.socket.Close(), r.peer.socket.Close(), r.admin.socket.Close(), r.members.Close(), r.endTracing())
}
