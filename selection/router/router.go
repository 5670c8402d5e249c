package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/assembly"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

// Config describes a Router. Only Node is required.
type Config struct {
	// Node is this process, with the role of a relay, a gate or an observer. Run starts it and leaves the
	// cluster with it, so it must not have been started.
	Node *membership.Node
	// PeerAddr is the IP:port at which other relays forward requests to this one, and attached
	// workers hold sessions with it. Default: the ForwardAddr of the node, which a relay must have
	// unless it is PickOnly: others learn the address from it.
	PeerAddr string

	// Plan has the settings of all plans; all relays of a cluster must have the same. Settings
	// with a version, which relays state (--plan-version), replace it in a node that is no
	// observer and has a certificate or is on loopback. A fleet with --session-cookie needs such
	// a version, because this program has no such setting. The router sets Service, Relays,
	// Workers, WorkersOrdered and Skip. Default: as affinity.PlanConfig.
	Plan affinity.PlanConfig
	// Strategies pick the endpoints of single services, by name, in place of what their workers
	// advertise, in the form of advertise.Service.Selection, such as stable or slots;vnodes=16.
	// The one with an empty name is for services that advertise none. Default: p2c.
	Strategies map[string]string

	// Endpoints is the most endpoints of one service that an observer uses, or a relay that is
	// PickOnly, each with a connection. Default 64: then a third may fail together and enough are
	// left to choose from, and many observers load all workers within half to twice the average.
	// Services with a strategy by key, order or distance use all, like relays. Other roles have a
	// plan.
	Endpoints int

	// PickOnly is for programs with a protocol of their own, which connect to the endpoints
	// themselves: the router opens no connection to workers and relays, and is ready without
	// any. RoundTrip then fails, and other relays cannot forward to this one: PeerAddr and the
	// ForwardAddr of the node must be empty. So a relay has no place in plans either, and uses
	// endpoints as an observer does. Endpoints that RoundTrip could not use, such as
	// those that require mutual TLS of a node without a certificate, are left out as without it.
	// The strategies closest and farthest still connect, to measure. Default: RoundTrip works.
	PickOnly bool

	// RequireServiceNames uses no endpoint of a worker whose certificate names no services, as
	// --require-service-names of the binary does. All relays and routers of a cluster must have
	// the same. Default: the services of a certificate are held against it if it names some.
	RequireServiceNames bool
	// AllowedAddrs are networks in which workers may run services in addition to their own hosts,
	// as --endpoint-allowed-cidr of the binary does, for workers that offer services of other
	// hosts. All members of a cluster must have the same. It has no effect without an Identity.
	// Default: none.
	AllowedAddrs []netip.Prefix
	// MaxServicesPerRecord is how many services one worker may offer, at most 1,024; a worker that
	// offers more has no endpoint. It is --max-services-per-record of the binary, and all members
	// of a cluster must have the same. Default 128.
	MaxServicesPerRecord int

	// RequestTimeout bounds the time until the response to a request begins, for all attempts
	// together, unless the workers of a service advertise another one. The deadline of a
	// request's context shortens it. Default 30 s.
	RequestTimeout time.Duration
	// AttemptTimeout bounds an attempt after which another endpoint may be tried. Default: a
	// third of RequestTimeout, so that an endpoint that hangs leaves time for two others.
	AttemptTimeout time.Duration
	// Policies limit the requests to single services, by name, in place of what their workers
	// advertise and of RequestTimeout and AttemptTimeout, field by field, as --service-policy
	// of the binary does. The one with an empty name is for all services; that of a service has
	// precedence. advertise.ParsePolicy reads them from text, such as
	// request-timeout=5s;retry=connect. A SessionCookie is an error: workers advertise it.
	// Pick takes from them only how long it waits until the router knows the services.
	// Default: what the workers advertise.
	Policies map[string]advertise.Policy
	// DrainTimeout is how long Run waits for requests in flight after its context has ended.
	// Default 30 s.
	DrainTimeout time.Duration

	// Logger receives the log. Default: that of the node.
	Logger *slog.Logger
	// Registerer receives the metrics, which are those of the relay's binary, until Run or Close
	// ends. Routers at the same time need one each. Default: that of the node.
	Registerer prometheus.Registerer
}

const defaultEndpoints = 64 // of an observer

// Router finds endpoints for the requests of a program.
type Router struct {
	cfg      Config
	member   membership.Config
	core     *assembly.Core
	routes   *routing.Router  // of core
	requests ingress.Requests // limits
	attempts *ingress.Handler // of requests that this process makes
	peers    *peers           // nil: other relays forward nothing to this one
	inFlight atomic.Int64
	began    atomic.Int64 // when Run began, in nanoseconds since epoch
	// unregister removes the metrics.
	unregister func()

	ran   atomic.Bool
	ended context.Context // once Run or Close has begun to end the router
	end   context.CancelFunc
}

// New checks the configuration and binds the address for other relays. It starts nothing. If it
// fails, only the node stays bound, which the caller closes.
func New(cfg Config) (*Router, error) {
	if cfg.Node == nil {
		return nil, errors.New("router: no Node: give the one that membership.New returns")
	}
	member := cfg.Node.Config()
	observes := member.Role == identity.RoleObserver
	switch {
	case !member.Role.Relays() && !observes:
		return nil, fmt.Errorf("router: the node %q is a %s: give it the role %s, %s to only forward requests, or %s to be in no plan", member.ID, member.Role, identity.RoleRelay, identity.RoleGate, identity.RoleObserver)
	case observes && cfg.PeerAddr != "":
		return nil, fmt.Errorf("router: PeerAddr %s, but the node %q is an observer, to which nothing connects: leave PeerAddr empty, or give the node the role %s", cfg.PeerAddr, member.ID, identity.RoleRelay)
	case cfg.Endpoints < 0 || cfg.Endpoints > 0 && !observes && !(cfg.PickOnly && member.Role == identity.RoleRelay):
		return nil, fmt.Errorf("router: Endpoints %d of the %s %q: give an observer 1 or more, 0 for the default of %d; the plan decides for other roles", cfg.Endpoints, member.Role, member.ID, defaultEndpoints)
	}
	switch {
	case !cfg.RequireServiceNames:
	case member.Identity == nil:
		return nil, fmt.Errorf("router: RequireServiceNames, and the node %q has no certificate, so none is checked: give it an Identity", member.ID)
	case member.Identity.Info().Template != "": // once, at the start
		return nil, fmt.Errorf("router: RequireServiceNames, and the Identity of the node %q has a Template, with which no certificate names services, so every offer would be refused: leave one of the two out", member.ID)
	}
	cfg.Endpoints = cmp.Or(cfg.Endpoints, defaultEndpoints)
	for name, limit := range map[string]time.Duration{"RequestTimeout": cfg.RequestTimeout, "AttemptTimeout": cfg.AttemptTimeout, "DrainTimeout": cfg.DrainTimeout} {
		if limit < 0 {
			return nil, fmt.Errorf("router: %s %v is negative: give 0 for the default or more", name, limit)
		}
	}
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, ingress.DefaultRequests().Timeout)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, wire.DrainTimeout)
	cfg.PeerAddr = cmp.Or(cfg.PeerAddr, member.ForwardAddr)
	if cfg.PickOnly && cfg.PeerAddr != "" {
		return nil, fmt.Errorf("router: PickOnly, and other relays forward requests to %s: leave PeerAddr and the ForwardAddr of the node empty, or PickOnly unset", cfg.PeerAddr)
	}
	if member.Role == identity.RoleRelay && member.ForwardAddr == "" && !cfg.PickOnly {
		return nil, fmt.Errorf("router: the node %q has the role of a relay and no ForwardAddr, so that others plan with it and cannot forward requests to it: give the node a ForwardAddr, or the role %s to be in no plan; or set PickOnly", member.ID, identity.RoleObserver)
	}
	if cfg.Logger == nil {
		cfg.Logger = member.Logger
	}
	if cfg.Registerer == nil {
		cfg.Registerer = member.Registerer
	}
	// A registry of its own: nothing is registered if New fails, and nothing stays after the end.
	metrics, all := prometheus.NewRegistry(), cfg.Registerer
	cfg.Registerer = metrics
	r := &Router{cfg: cfg, member: member, unregister: func() {}}
	r.ended, r.end = context.WithCancel(context.Background())
	if err := r.build(); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	if all != nil {
		if err := all.Register(metrics); err != nil {
			r.peers.close()
			return nil, fmt.Errorf("router: register metrics: %w: give each router a Registerer of its own, such as prometheus.WrapRegistererWith returns", err)
		}
		// Once: the metrics of a later router have the same names.
		r.unregister = sync.OnceFunc(func() { all.Unregister(metrics) })
	}
	return r, nil
}

// build makes the parts of the router.
func (r *Router) build() error {
	cfg := r.cfg
	strategies, err := r.strategies()
	if err != nil {
		return err
	}
	if r.requests, err = r.limits(); err != nil {
		return err
	}
	of := assembly.Config{
		Node: cfg.Node, Logger: cfg.Logger, Registerer: cfg.Registerer,
		Rules: advertise.Rules{RequireServiceNames: cfg.RequireServiceNames, AllowedAddrs: cfg.AllowedAddrs, MaxServicesPerRecord: cfg.MaxServicesPerRecord},
		// Other relays ask this one for the key, and do not make one while it may have one. Without
		// a certificate and a gossip key the cluster is one in clear text.
		SharedKey: ingress.KeeperConfig{Insecure: true},
		Routing: routing.Config{
			Endpoints: cfg.Endpoints, PickOnly: cfg.PickOnly, Strategies: strategies, Listeners: []string{cfg.Node.Addr()},
			Plans:          routing.PlanSettings{PlanConfig: cfg.Plan},
			PlansFromFleet: followsFleet(cfg.Node),
			Links:          routing.DefaultLinks(), Selection: selection.DefaultConfig(), Upstream: upstream.DefaultConfig(),
		},
	}
	if cfg.PeerAddr != "" {
		of.Routing.Listeners = append(of.Routing.Listeners, cfg.PeerAddr)
	}
	if r.core, err = assembly.New(of); err != nil {
		return err
	}
	r.routes = r.core.Routes
	attempts := func(fromRelay bool) *ingress.Handler {
		return r.core.Handler(ingress.Config{Requests: r.requests, Progress: ingress.DefaultProgress, FromRelay: fromRelay, Local: !fromRelay})
	}
	r.attempts = attempts(false)
	if cfg.PeerAddr != "" {
		r.peers, err = r.listen(r.core.Attached.Handler(r.core.WithSharedKey(attempts(true))))
	}
	return err
}

// followsFleet reports whether a node plans with the settings that relays state with a version:
// a member of a plan does where the statements are proven, or only its host can send them.
func followsFleet(n *membership.Node) bool {
	member := n.Config()
	addr, err := netip.ParseAddrPort(n.Addr())
	return member.Role.Relays() && (member.Identity != nil || err == nil && addr.Addr().IsLoopback())
}

// strategies reads the strategies of the settings.
func (r *Router) strategies() (routing.StrategiesConfig, error) {
	c := routing.StrategiesConfig{ByService: map[string]strategy.Spec{}}
	for service, text := range r.cfg.Strategies {
		spec, err := strategy.Parse(text)
		c.ByService[service] = spec
		if service != "" {
			err = errors.Join(affinity.ValidateService(service), err)
		}
		if err != nil {
			return c, fmt.Errorf("strategy of the service %q: %w", service, err)
		}
	}
	return c, nil
}

// limits returns the limits of requests, after it has checked the policies.
func (r *Router) limits() (ingress.Requests, error) {
	l := ingress.DefaultRequests()
	l.Timeout = r.cfg.RequestTimeout
	l.AttemptTimeout = cmp.Or(r.cfg.AttemptTimeout, time.Duration(float64(r.cfg.RequestTimeout)*ingress.DefaultAttemptShare))
	l.Policies.ByService = maps.Clone(r.cfg.Policies)
	for service, policy := range r.cfg.Policies {
		_, err := advertise.ParsePolicy(policy.String())
		if service != "" {
			err = errors.Join(affinity.ValidateService(service), err)
		}
		if service == "" && policy.Retry == advertise.RetryAlways {
			err = errors.Join(err, errors.New("retry always: only for a single service, whose requests may run more than once; name it"))
		}
		if policy.SessionCookie != "" {
			err = errors.Join(err, errors.New("SessionCookie: leave it empty, its workers advertise it"))
		}
		if err != nil {
			return l, fmt.Errorf("policy of the service %q: %w", service, err)
		}
	}
	return l, nil
}

// patience is how long a request may wait before its service is known.
func (r *Router) patience(service string) time.Duration {
	return r.requests.Policy(service, advertise.Policy{}, 0).RequestTimeout
}

func (r *Router) now() selection.Instant { return selection.Instant(time.Since(r.core.Epoch())) }

// Run starts the node and keeps the router up to date until ctx ends. Then it leaves the
// cluster, waits up to DrainTimeout for requests in flight, closes every connection and the
// node, and returns when all of its goroutines have ended. The error is nil after an orderly
// stop. It is called once.
func (r *Router) Run(ctx context.Context) error {
	if !r.ran.CompareAndSwap(false, true) {
		return errors.New("router: Run was called before, by Serve or by this program: call one of them, once")
	}
	r.began.Store(int64(time.Since(r.core.Epoch())))
	running, end := context.WithCancel(context.WithoutCancel(ctx)) // requests in flight outlive ctx
	defer end()
	group, failed := errgroup.WithContext(running)
	if err := r.core.Start(failed, group); err != nil {
		return errors.Join(err, r.Close())
	}
	if r.peers != nil {
		group.Go(r.peers.serve)
	}
	group.Go(func() error {
		select {
		case <-ctx.Done():
			r.drain()
		case <-failed.Done(): // a part failed, so all parts end
		}
		end()
		r.peers.close()
		return nil
	})
	err := group.Wait()
	return errors.Join(err, r.Close())
}

// drain leaves the cluster and waits for the requests in flight.
func (r *Router) drain() {
	r.core.Stop(assembly.Stop{Drain: upstream.Drain{
		Requests: r.cfg.DrainTimeout, Sessions: r.cfg.DrainTimeout, Shutdown: r.peers.shutdown,
		InFlight: func() int64 { return r.core.InFlight() + r.inFlight.Load() }, // with the picks that were not given back
		Ended:    func(int) {},
	}})
}

// Close releases what New and the node have bound, for a router that is not run. Run calls it
// automatically.
func (r *Router) Close() error {
	r.end()
	r.peers.close()
	r.unregister()
	return r.cfg.Node.Close()
}

// WaitReady waits until the router has joined the cluster, knows its services, and has tried
// each of its connections once. A program that serves clients waits for it before it accepts
// them. The error wraps that of ctx and has what the router still waits for, or is that the router
// has ended.
func (r *Router) WaitReady(ctx context.Context) error {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(r.ended, func() { stop(errEnded) })()
	if err := r.core.WaitSettled(waiting); err != nil {
		err = cmp.Or(context.Cause(waiting), errEnded) // the end of the core may be seen first
		if ctx.Err() != nil {
			return fmt.Errorf("router: not ready: %s: %w", r.lacks(), err)
		}
		return err
	}
	return nil
}

// lacks returns what the router waits for until it is ready.
func (r *Router) lacks() string {
	switch status := r.core.Fleet.Status(); {
	case status.Joined:
		return cmp.Or(r.core.Uninformed(), "its first connections are not open yet")
	case status.Err != nil:
		return "not joined yet: " + status.Err.Error()
	}
	return "not joined yet: the first answer of a seed is awaited"
}

var errEnded = errors.New("router: it has ended, or could not start: see the error of Run")

// await is WaitReady for a request.
func (r *Router) await(ctx context.Context, service string) error {
	if r.core.Uninformed() == "" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, r.patience(service))
	defer cancel()
	if err := r.WaitReady(limited); err != nil {
		return r.notReady(ctx, service, "this process does not know yet which services there are")
	}
	return nil
}

// awaitOffer is await, and waits for the first offer of the service, because a program and its
// workers may start together. A name that is unknown later is no reason to wait: it may be
// misspelled. Pick does not wait for an offer: callers such as grpc-go's must not block there.
func (r *Router) awaitOffer(ctx context.Context, service string) error {
	if _, known := r.routes.Service(service); r.core.Uninformed() == "" && (known || !r.isNew()) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, r.patience(service))
	defer cancel()
	if err := r.await(ctx, service); err != nil {
		return err
	}
	for {
		_, changed := r.routes.Endpoints(service)
		if _, known := r.routes.Service(service); known {
			return nil
		}
		select {
		case <-changed:
		case <-limited.Done():
			if r.core.Uninformed() != "" {
				return r.notReady(ctx, service, "no worker has offered a service yet")
			}
			return nil // the service is unknown
		}
	}
}

// isNew reports whether a service that is not known may be one that starts with this process.
func (r *Router) isNew() bool {
	return time.Since(r.core.Epoch())-time.Duration(r.began.Load()) < r.cfg.RequestTimeout
}

func (r *Router) notReady(ctx context.Context, service, text string) error {
	return errors.Join(&Error{Service: service, Code: string(wire.CodeNotReady), RetryAfter: time.Second, Text: text}, context.Cause(ctx))
}
