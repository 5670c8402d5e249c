package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/internal/assembly"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relay/clienttls"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/sharedkey"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Relay is one relay or gate.
type Relay struct {
	cfg            Config
	members        *membership.Node
	*assembly.Core                  // its Metrics are of both listeners
	tracing        *tracing.Tracing // nil: requests are not traced
	records        *requestlog.Log
	explained      *ingress.Explanations

	ingress, peer, admin *listener
	// sockets are the addresses of the ingress: they open when the relay is ready for the first
	// time, and so does tcp. clients bounds the connections on all of them.
	sockets        ingressSockets
	tcp            tcpListeners
	clients        *clients
	certificates   *clienttls.Certificates // of the ingress; nil: no address has TLS
	handshakes     *handshake.Pace         // of clients, at the ingress
	refusedClients *loglimit.Limiter       // lines about their certificates

	// The fields that a reload changes: the settings of requests, and their handlers.
	reloading               sync.Mutex
	tuned                   atomic.Pointer[Requests]
	newHandler              func(requests Requests, fromRelay bool) http.Handler
	ingressFront, peerFront front
	reloads                 *prometheus.CounterVec
	reloadRefused           prometheus.Gauge
	blocks                  *ingress.BlockList

	memory       *memory
	drain        *drain
	tunnelsEnded prometheus.Counter
	rebalances   *rebalances
	stopping     atomic.Bool
	checking     chan struct{} // holds one value while a check runs
	comparing    chan struct{} // holds one value while plans are compared
	surveyor     *surveyor
	surveying    chan struct{} // holds one value for each request for the whole fleet
}

// server is the part of http.Server that a listener uses.
type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

// listener is a bound socket with its server.
type listener struct {
	name   string
	socket net.Listener
	server server
	// admission is between socket and server if only members may connect; otherwise nil.
	admission *handshake.Listener
}

// New validates the configuration and binds every address. It starts nothing; if it fails,
// nothing stays bound.
func New(cfg Config) (_ *Relay, err error) {
	r := &Relay{checking: make(chan struct{}, 1), comparing: make(chan struct{}, 1), surveying: make(chan struct{}, surveysAtOnce), surveyor: newSurveyor(cfg.Registry), handshakes: handshake.NewPace(), refusedClients: loglimit.New(cfg.Logger)}
	var undo []func() error
	defer func() {
		if err != nil {
			for _, f := range undo {
				err = errors.Join(err, f())
			}
		}
	}()

	conns := newConnMetrics(cfg.Registry)
	r.clients = newClients(conns, cfg.Registry, r.fronts)
	undo = append(undo, func() error { return r.clientSockets().close() })
	if err = r.listenClients(&cfg, conns); err != nil {
		return nil, err
	}
	r.ingress = &listener{name: "ingress"}
	for _, l := range []struct {
		to         **listener
		name, addr string
	}{{&r.peer, "peer", cfg.PeerAddr}, {&r.admin, "admin", cfg.AdminAddr}} {
		socket, err := listen(l.name, l.addr)
		if err != nil {
			return nil, err
		}
		undo = append(undo, socket.Close)
		*l.to = &listener{name: l.name, socket: socket}
	}

	advertised := cmp.Or(cfg.Membership.AdvertiseAddr, cfg.Membership.BindAddr)
	cfg.Membership.ForwardAddr = process.Reachable(r.peer.socket.Addr(), advertised)
	cfg.Membership.AdminAddr = process.Reachable(r.admin.socket.Addr(), advertised)
	r.cfg = cfg
	if r.members, err = membership.New(cfg.Membership); err != nil {
		return nil, process.GossipError(err)
	}
	undo = append(undo, r.members.Close)
	peer, err := netip.ParseAddrPort(r.peer.socket.Addr().String())
	if r.Core, err = assembly.New(assembly.Config{
		Node: r.members, Rules: cfg.Rules, EmptyAfter: cfg.EmptyAfter, Logger: cfg.Logger, Registerer: cfg.Registry,
		SharedKey: ingress.KeeperConfig{Value: sharedkey.Secret(cfg.SharedKey), File: cfg.SharedKeyFile, Insecure: cfg.Insecure || err == nil && peer.Addr().IsLoopback()},
		Routing: routing.Config{
			Plans: cfg.Plans, PlansFromFleet: cfg.PlansFromFleet, Links: cfg.Links, Strategies: cfg.Strategies, Selection: cfg.Selection, Forwarding: cfg.Forwarding, Upstream: cfg.Upstream,
			AllowClearText: cfg.AllowClearText, ServiceTLS: cfg.ServiceTLS, TrafficMemory: cfg.TrafficMemory,
			Listeners: slices.Concat(r.TCPAddrs(), r.IngressAddrs(), []string{r.PeerAddr(), r.AdminAddr(), r.GossipAddr()}),
			Hosts:     []string{advertised},
		},
	}); err != nil {
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
	if r.records, err = newRecords(&cfg); err != nil {
		return nil, err
	}
	r.explained = ingress.NewExplanations(cfg.Explanations)
	r.memory = newMemory(cfg.Logger, cfg.Registry)
	r.reloads, r.reloadRefused = newReloads(cfg.Registry)
	r.drain = newDrain(cfg.Registry, r.members.SetDraining)
	r.tunnelsEnded, r.rebalances = newTunnelsEnded(cfg.Registry), newRebalances(cfg.Registry)
	newCoverage(cfg.Registry, r.Routes.Services)
	r.blocks = ingress.NewBlockList(cfg.Registry)
	r.newHandler = func(requests Requests, fromRelay bool) http.Handler {
		return r.Handler(ingress.Config{
			Requests: requests.Requests, Progress: cfg.ProgressTimeout, FromRelay: fromRelay,
			Circuits: ingressOnly(circuits, fromRelay), Tracer: tracer, Records: r.records, Explanations: r.explained,
			Strained: r.memory.strained.Load, Blocked: r.blocks,
		})
	}
	r.ingressFront.closing = func() bool { return r.stopping.Load() || r.drain.on() }
	r.tune(cfg.Requests)
	if err = r.serveIngress(&cfg, conns); err != nil {
		return nil, err
	}
	r.serveTCP()
	r.peer.socket = conns.counting("peer", r.peer.socket)
	// No IdleTimeout: peers keep their connections for the next request, however late it comes. No limits
	// of clients either: the relay that forwards has applied them.
	ofPeers := downstream.Config{Handler: r.Attached.Handler(r.withFacts(ingress.WithSharedKey(r.Keeper, &r.peerFront))), Shared: downstream.OfRelays}
	if cfg.Membership.Identity != nil {
		ofPeers.Until = handshake.UntilRenewal(cfg.Membership.Identity)
	}
	r.peer.serveClients(&cfg, conns, ofPeers)
	if cfg.Membership.Identity != nil {
		r.peer.secure(&cfg, conns, r.Attached)
	}
	r.admin.socket = conns.countingDropped("admin", r.admin.socket)
	if err = r.admin.serveOperators(&cfg, r.adminMux()); err != nil {
		return nil, err
	}
	process.RegisterReady(cfg.Registry, r.Reasons)
	return r, nil
}

// Check reports what New would refuse in cfg. It builds the relay on free ports of
// loopback, because a relay with this configuration may be running, and closes it.
func Check(cfg Config) error {
	addrs, err := parseIngressAddrs(cfg.IngressAddrs)
	if err != nil {
		return err
	}
	cfg.IngressAddrs = nil
	for _, a := range addrs {
		a.addr = process.FreeAddr
		cfg.IngressAddrs = append(cfg.IngressAddrs, a.String())
	}
	cfg.TCP = freeTCP(cfg.TCP)
	cfg.PeerAddr, cfg.AdminAddr, cfg.Passed = process.FreeAddr, process.FreeAddr, nil
	cfg.Membership = process.CheckedMembership(cfg.Membership)
	r, err := New(cfg)
	if err != nil {
		return err
	}
	return r.Close()
}

// IngressAddr returns the first address for clients. They are refused until the relay is
// ready for the first time.
func (r *Relay) IngressAddr() string { return r.sockets[0].Addr().String() }

// IngressAddrs returns all addresses for clients, in the order of the configuration.
func (r *Relay) IngressAddrs() []string {
	addrs := make([]string, len(r.sockets))
	for i, s := range r.sockets {
		addrs[i] = s.Addr().String()
	}
	return addrs
}

// AdminAddr returns the address for operators.
func (r *Relay) AdminAddr() string { return r.admin.socket.Addr().String() }

// PeerAddr returns the address for other relays.
func (r *Relay) PeerAddr() string { return r.peer.socket.Addr().String() }

// GossipAddr returns the address at which other members reach this one.
func (r *Relay) GossipAddr() string { return r.members.Addr() }

// Run serves until ctx ends, stops in order, and returns when no part of the relay is
// left. The error is nil after an orderly stop.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.records.Start(); err != nil {
		return errors.Join(err, r.Close())
	}
	defer r.endRecords() // last, because the listeners record until they are closed
	defer r.refusedClients.Stop()
	// The servers outlive ctx until stop has run.
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	group, failed := errgroup.WithContext(serving)

	serve := func(l *listener, serve func() error) {
		group.Go(func() error {
			err := serve()
			if closed := r.stopping.Load() && errors.Is(err, net.ErrClosed); !closed && !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", l.name, err)
			}
			return nil
		})
	}
	for _, socket := range r.sockets {
		serve(r.ingress, func() error { return r.ingress.server.Serve(socket.accepts) })
	}
	serve(r.peer, r.peer.serve)
	serve(r.admin, r.admin.serve)
	for _, l := range r.tcp.listeners {
		serve(l, l.serve)
	}
	if err := r.Start(failed, group); err != nil {
		r.closeServers()
		return errors.Join(err, group.Wait(), r.members.Close(), r.endTracing())
	}
	group.Go(func() error { return r.watchFleet(failed) })
	group.Go(func() error { return r.memory.run(failed) })
	if r.certificates != nil {
		group.Go(func() error { return r.certificates.Run(failed) })
	}
	group.Go(func() error {
		err := r.becomeReady(ctx, failed)
		if err == nil {
			select {
			case <-ctx.Done():
				r.stop()
			case <-failed.Done(): // a part of the relay failed, so all parts end
			}
		}
		endServing()
		r.closeServers()
		return err
	})
	err := group.Wait()
	return errors.Join(err, r.members.Close(), r.endTracing())
}

// becomeReady opens the ingress as soon as this relay should get traffic, and logs this.
// It gives up when one of the contexts ends.
func (r *Relay) becomeReady(ctx, failed context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(r.waitsFor()) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		case <-failed.Done():
			return nil
		}
	}
	if err := r.clientSockets().open(); err != nil {
		return fmt.Errorf("serve ingress: %w", err)
	}
	r.cfg.Logger.Info("ready", "members", len(r.Fleet.Snapshot().Members()), "services", len(r.Routes.Services()))
	return nil
}

// stop runs the steps of an orderly stop.
func (r *Relay) stop() {
	r.stopping.Store(true) // /readyz reports it from now on
	tuned := r.tuned.Load()
	r.Stop(assembly.Stop{Stay: r.cfg.ProbeDelay, EndIntake: r.endIntake, Drain: upstream.Drain{
		Requests: tuned.DrainTimeout, Sessions: tuned.SessionDrainTimeout,
		Shutdown: func(ctx context.Context) error {
			return errors.Join(r.tcp.shutdown(ctx), r.ingress.server.Shutdown(ctx), r.peer.server.Shutdown(ctx))
		},
		InFlight: r.InFlight, Ended: func(n int) { r.tunnelsEnded.Add(float64(n)) },
	}})
}

const (
	// handshakeTime is how long connections that are being opened are still accepted, while
	// no new ones begin.
	handshakeTime = 50 * time.Millisecond
	// lastRequests is how long clients may send the next request on a connection that they
	// keep. Its answer ends the connection. net/http drops what it reads after Shutdown has
	// begun, and closes idle connections immediately, even with requests on the way.
	lastRequests = 500 * time.Millisecond
)

func newTunnelsEnded(reg prometheus.Registerer) prometheus.Counter {
	return metric.With(reg).Counter("ringway_relay_sessions_ended_total", "Tunnels and streams that this relay ended because it stops, over --session-drain-timeout.")
}

// endIntake ends the intake of requests from clients without cutting a request: begun
// connections are accepted, then the address is released, then connections end with their
// next answer. It waits only while there are connections.
func (r *Relay) endIntake() {
	if !r.sockets.isOpen() {
		return
	}
	r.clientSockets().refuse()
	time.Sleep(handshakeTime)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	// The kernel would reset the connections that a busy process has not accepted yet.
	for end := time.Now().Add(lastRequests); r.clientSockets().pending() && time.Now().Before(end); {
		<-tick.C
	}
	_ = r.clientSockets().close() // only errors of closing a socket
	for end := time.Now().Add(lastRequests); r.clients.count() > 0 && time.Now().Before(end); {
		<-tick.C
	}
}

func (r *Relay) closeServers() {
	for _, l := range r.listeners() {
		_ = l.server.Close() // only errors of closing a socket
	}
}

// Reasons lists why this relay should get no traffic.
func (r *Relay) Reasons() []process.Reason {
	reasons := r.waitsFor()
	if len(reasons) == 0 && !r.sockets.isOpen() {
		return []process.Reason{{Code: process.NotListening, Text: "the ingress is not open yet"}}
	}
	return reasons
}

// waitsFor returns the reasons except that of the ingress, which opens when they end.
func (r *Relay) waitsFor() []process.Reason {
	var reasons []process.Reason
	add := func(code process.ReasonCode, text string) {
		reasons = append(reasons, process.Reason{Code: code, Text: text})
	}
	if r.stopping.Load() {
		add(process.Stopping, "stopping")
	}
	if r.drain.on() {
		add(process.Draining, "draining")
	}
	status := r.Fleet.Status()
	if !status.Joined {
		reasons = append(reasons, process.WaitsToJoin(status.Err))
	}
	if reason := r.Uninformed(); reason != "" {
		add(process.NotSettled, reason)
	}
	if !r.sockets.isOpen() { // later it keeps what it has: a member that joins takes no relay out of rotation
		reasons = append(reasons, r.exceededLimits()...)
	}
	if reason := r.Routes.Unreached(); reason != "" {
		add(process.NothingReached, reason)
	}
	if reason := r.Routes.Stalled(); reason != "" {
		add(process.Stalled, reason)
	}
	// A gate picks no worker, so it signs no cookie. A cookie that workers advertise makes no
	// relay wait: a record must not take relays out of rotation.
	if m := r.cfg.Membership; slices.ContainsFunc(slices.Collect(maps.Values(r.cfg.Strategies.SessionCookies)), func(name string) bool { return name != "" }) && m.Role == identity.RoleRelay {
		if err := r.Keeper.Ready(); err != nil {
			add(process.NoSharedKey, err.Error())
		}
	}
	return reasons
}

// exceededLimits returns the limits that leave out a part of the fleet.
func (r *Relay) exceededLimits() []process.Reason {
	return process.Limits(r.Fleet.Status(), r.Catalogue.View())
}

// Close releases what New bound, for a relay that is not run. Run calls it automatically.
func (r *Relay) Close() error {
	return errors.Join(r.clientSockets().close(), r.peer.socket.Close(), r.admin.socket.Close(), r.members.Close(), r.endTracing())
}
