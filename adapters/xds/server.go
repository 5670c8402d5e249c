package xds

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/presence"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// ControlPlane serves the plans of a cluster to Envoys. New binds, Run does everything else.
type ControlPlane struct {
	cfg       Config
	member    membership.Config
	fleet     *presence.Fleet // the members that the node sees, and attached workers
	catalogue *advertise.Catalogue
	clients   *clients
	planner   *planner
	socket    net.Listener
	admission *handshake.Listener // nil without the Identity of the node
	lines     *loglimit.Limiter
	metrics   *metrics
	// unregister removes the metrics.
	unregister func()
	ran        atomic.Bool
}

// New checks the configuration and binds the listener. It starts nothing. If it fails, only the
// node stays bound, which the caller closes.
func New(cfg Config) (*ControlPlane, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	// A registry of its own: nothing is registered if New fails, and nothing stays after the end.
	registry := prometheus.NewRegistry()
	c := &ControlPlane{cfg: cfg, member: cfg.Node.Config(), lines: loglimit.New(cfg.Logger), metrics: newMetrics(registry), unregister: func() {}}
	source := c.member.Identity
	if cfg.TLS != nil { // its certificates are no members'
		source = nil
	}
	c.clients = newClients(cfg, source, c.metrics, c.lines)
	c.planner = newPlanner(cfg, c.member.Identity != nil, c.clients, c.metrics)
	c.fleet = presence.New(cfg.Node, cfg.Logger, registry)
	rules := advertise.Rules{Proven: c.member.Identity != nil, RequireServiceNames: cfg.RequireServiceNames, AllowedAddrs: cfg.AllowedAddrs, MaxServicesPerRecord: cfg.MaxServicesPerRecord}
	c.catalogue, err = advertise.New(advertise.Config{Gossip: c.fleet, Rules: rules, Logger: cfg.Logger, Registerer: registry})
	if err != nil {
		return nil, fmt.Errorf("xds: %w", err)
	}
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(registry); err != nil {
			return nil, fmt.Errorf("xds: register metrics: %w: give each control plane a Registerer of its own, such as prometheus.WrapRegistererWith returns", err)
		}
		// Once: the metrics of a later control plane have the same names.
		c.unregister = sync.OnceFunc(func() { cfg.Registerer.Unregister(registry) })
	}
	if c.socket, err = net.Listen("tcp", cfg.Addr); err != nil {
		c.unregister()
		return nil, fmt.Errorf("xds: listen for clients: %w", err)
	}
	return c, nil
}

// Addr returns the IP:port of the listener for clients.
func (c *ControlPlane) Addr() string { return c.socket.Addr().String() }

// Plan returns the newest plan of a service, nil if it has no client or no worker.
func (c *ControlPlane) Plan(service string) *affinity.Plan {
	if plans := c.planner.plans.Load(); plans != nil {
		return (*plans)[service]
	}
	return nil
}

// Run starts the node and serves clients until ctx ends. Then it leaves the cluster and closes
// every stream, the listener and the node; clients keep the endpoints that they have. It returns
// when all of its goroutines have ended. The error is nil after an orderly stop.
func (c *ControlPlane) Run(ctx context.Context) error {
	if !c.ran.CompareAndSwap(false, true) {
		return errors.New("xds: Run was called before: call it once")
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, failed := errgroup.WithContext(running)
	if err := c.cfg.Node.Start(failed); err != nil {
		return errors.Join(err, c.Close())
	}
	joined, worlds := make(chan uint64, 1), make(chan world)
	group.Go(func() error { return c.fleet.Run(failed) })
	group.Go(func() error { return c.catalogue.Run(failed) })
	group.Go(func() error {
		if version, ok := c.informed(failed); ok {
			joined <- version
		}
		return nil
	})
	group.Go(func() error {
		for view := range c.catalogue.Watch(failed) {
			select {
			case worlds <- viewed{view}:
			case <-failed.Done():
			}
		}
		return nil
	})
	group.Go(func() error { c.planner.run(failed, worlds, joined); return nil })
	if source := c.member.Identity; source != nil {
		group.Go(func() error { return source.Run(failed) }) // reads renewed certificates
	}
	grpcServer, listener := c.server(failed)
	if c.admission != nil {
		group.Go(func() error { c.admission.Run(); return nil })
	}
	group.Go(func() error {
		if err := grpcServer.Serve(handshake.Lasting(listener, c.cfg.Logger)); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
			if err := c.cfg.Node.Leave(context.Background()); err != nil {
				c.cfg.Logger.Warn("cannot announce that this control plane leaves", "err", err)
			}
		case <-failed.Done(): // a part failed, so all parts end
		}
		end()
		grpcServer.Stop()
		return nil
	})
	err := group.Wait()
	return errors.Join(err, c.Close())
}

// informed waits until the node has joined and the lists of attached workers are here, and returns
// the version of the snapshot that has both.
func (c *ControlPlane) informed(ctx context.Context) (version uint64, ok bool) {
	if c.fleet.WaitReady(ctx) != nil {
		return 0, false
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if version = c.fleet.Status().Version; c.fleet.Informed() && version <= c.fleet.Snapshot().Version() {
			return version, true
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// Close releases what New and the node have bound, for a control plane that is not run. Run
// calls it automatically.
func (c *ControlPlane) Close() error {
	err := c.socket.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	c.lines.Stop()
	c.unregister()
	return errors.Join(err, c.cfg.Node.Close())
}

// server returns the gRPC server and the listener that it serves.
func (c *ControlPlane) server(ctx context.Context) (*grpc.Server, net.Listener) {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest), grpc.StaticStreamWindowSize(window), grpc.MaxHeaderListSize(maxHeader), grpc.ReadBufferSize(readBuffer),
		grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(idleTime), grpc.ForceServerCodecV2(newLean(c.cfg.MaxServices)),
		grpc.StreamInterceptor(c.clients.intercept),
		// A client whose host has vanished counts until its stream ends.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 15 * time.Second, Timeout: 5 * time.Second, MaxConnectionIdle: idleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	var listener net.Listener
	switch {
	case c.clients.source != nil:
		source := c.clients.source
		policy := source.Policy(identity.DataPlane)
		policy.Only = []identity.Role{identity.RoleRelay}
		// By the matrix of connections an observer accepts none. Relays may connect to a gate, and
		// whatever the role of the node is, this listener serves those in the place of relays.
		policy.Self.Role = identity.RoleGate
		c.admission = handshake.NewListener(handshake.ListenerConfig{
			Socket: c.socket, PerNode: maxConns, Source: source, TLS: source.ServerConfig(policy, "h2"),
			Allowed: "clients with a relay's certificate of this cluster and environment", Refused: c.metrics.connections, Logger: c.cfg.Logger,
		})
		listener = c.admission
		options = append(options, grpc.Creds(shaken{}))
	default:
		// One connection is enough for a client.
		listener = netutil.LimitListener(c.socket, 2*c.cfg.MaxClients+maxSilent)
		if c.cfg.TLS != nil {
			options = append(options, grpc.Creds(credentials.NewTLS(c.cfg.TLS)))
		}
	}
	s := grpc.NewServer(options...)
	// Without names a request subscribes to nothing: the offers of a whole cluster are never meant.
	x := server.NewServer(ctx, c.clients, callbacks{c.clients}, config.DeactivateLegacyWildcard())
	endpointservice.RegisterEndpointDiscoveryServiceServer(s, x)
	discovery.RegisterAggregatedDiscoveryServiceServer(s, x)
	return s, listener
}

// shaken are the credentials of connections whose handshake a handshake.Listener has completed.
type shaken struct{}

func (shaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return nil, nil, fmt.Errorf("xds: a connection of type %T has made no handshake", conn)
	}
	return conn, credentials.TLSInfo{
		State:          secured.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

func (shaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("xds: these credentials are for servers only")
}

func (shaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (s shaken) Clone() credentials.TransportCredentials { return s }

func (shaken) OverrideServerName(string) error { return nil }
