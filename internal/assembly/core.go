// Package assembly is what the relay's binary and the router of a Go program have in common: the
// parts between a membership node and the handler of requests, their start and their stop. What
// differs, such as listeners and settings, stays with the two.
//
// Rules: New starts nothing. Start starts the node and the goroutines of all parts, which group
// waits for. All other methods may be called from any goroutine.
package assembly

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/presence"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/sharedkey"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Config describes a Core.
type Config struct {
	// Node is the member, which has not been started.
	Node *membership.Node
	// Rules of the catalogue; New decides on Proven.
	Rules advertise.Rules
	// Routing has what differs between programs. New fills in what follows from the node and
	// from the other parts.
	Routing routing.Config
	// SharedKey specifies where the key of cookies is; New fills in the node. An observer has none.
	SharedKey ingress.KeeperConfig
	// EmptyAfter is how long after its start a member that knows no service expects one. When
	// all relays of a cluster were restarted, perhaps at other addresses, its workers need up
	// to eleven seconds to find them. Default 15 s.
	EmptyAfter time.Duration
	// Logger and Registerer are those of all parts. Required.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Core finds the endpoints for the requests of one member, and carries them.
type Core struct {
	// Fleet is the view of the node with the attached workers.
	Fleet     *presence.Fleet
	Attached  *presence.Server // their sessions; nil for an observer, and with PickOnly
	Catalogue *advertise.Catalogue
	Routes    *routing.Router
	Keeper    *sharedkey.Keeper // nil for an observer
	Metrics   *ingress.Metrics
	Rates     *ingress.Rates    // of the limits on requests per second
	Sessions  upstream.Sessions // of all connections to workers and relays

	cfg     Config
	member  membership.Config
	cookies *ingress.Cookies // nil for an observer
	clients *ingress.Clients
	epoch   time.Time

	stating sync.Mutex // guards stated
	stated  advertise.RelayStatement

	informed atomic.Bool // see Uninformed
}

// New makes the parts.
func New(cfg Config) (_ *Core, err error) {
	cfg.EmptyAfter = cmp.Or(cfg.EmptyAfter, 15*time.Second)
	member := cfg.Node.Config()
	c := &Core{cfg: cfg, member: member, epoch: time.Now(), Metrics: ingress.NewMetrics(cfg.Registerer), clients: ingress.NewClients(), Rates: ingress.NewRates(cfg.Registerer)}
	cfg.Rules.Proven = member.Identity != nil
	c.Fleet = presence.New(cfg.Node, cfg.Logger, cfg.Registerer)
	catalogue := advertise.Config{Gossip: c.Fleet, Rules: cfg.Rules, Probe: true, Logger: cfg.Logger, Registerer: cfg.Registerer}
	if member.Network != nil {
		catalogue.Dial = member.Network.Dial
	}
	if c.Catalogue, err = advertise.New(catalogue); err != nil {
		return nil, err
	}
	of := cfg.Routing
	of.Vanished = c.Metrics.Vanished
	if member.Role.Relays() {
		key := cfg.SharedKey
		key.Node, key.Logger, key.Registerer = cfg.Node, cfg.Logger, cfg.Registerer
		if c.Keeper, err = ingress.NewKeeper(key); err != nil {
			return nil, err
		}
		c.cookies = ingress.NewCookies(ingress.CookieConfig{Names: of.Strategies.SessionCookies, Keys: c.Keeper, Registerer: cfg.Registerer})
		of.Vanished = func(s *routing.Service) { c.Metrics.Vanished(s); c.cookies.Vanished(s) }
	}
	if !of.PickOnly { // the catalogue connects to what is reported to it
		of.Strategies.Stale = c.unreachable
	}
	of.Self, of.Role, of.Identity, of.Dial = member.ID, member.Role, member.Identity, ingress.DialOver(member.Network)
	of.Datacenter, of.Region = member.Datacenter, member.Region
	of.Catalogue, of.Sessions, of.Epoch = c.Catalogue, &c.Sessions, c.epoch
	of.Logger, of.Registerer = cfg.Logger, cfg.Registerer
	if member.Role == identity.RoleRelay {
		of.State = func(plan advertise.PlanSettings) {
			c.state(func(s *advertise.RelayStatement) { s.Plan = plan })
		}
		of.StateTraffic = func(traffic []advertise.Traffic) {
			c.state(func(s *advertise.RelayStatement) { s.Traffic = traffic })
		}
	}
	if c.Routes, err = routing.New(of); err != nil {
		return nil, err
	}
	if member.Role.Relays() && !of.PickOnly {
		c.Attached = presence.NewServer(presence.ServerConfig{
			Fleet: c.Fleet, RowSize: func() int { return c.Routes.Agreed().Minimums.PeersPerWorker }, Logger: cfg.Logger, Registerer: cfg.Registerer,
		})
	}
	return c, nil
}

// Uninformed returns why a service that this member does not know may exist, so that it should
// get no requests, and answers that it is not ready: it is not settled, or it may be the first
// that the workers still have to find. Once it returns "" it always does: later changes are
// those of a member among others.
func (c *Core) Uninformed() string {
	if c.informed.Load() {
		return ""
	}
	if reason := c.unsettled(); reason != "" {
		return reason
	}
	if !c.Routes.Informed() && time.Since(c.epoch) < c.cfg.EmptyAfter {
		return fmt.Sprintf("no worker has offered a service yet; a cluster counts as empty %v after the start", c.cfg.EmptyAfter)
	}
	c.informed.Store(true)
	return ""
}

// unsettled returns why this member may not know yet what the others do: it has not joined, or
// its routes are older than what it has joined.
func (c *Core) unsettled() string {
	status := c.Fleet.Status()
	switch {
	case status.Joined && !c.Fleet.Informed():
		return "the lists of attached workers have not arrived yet"
	case !status.Joined || !c.Routes.SettledAt(status.Version):
		return "the catalogue is not settled yet"
	}
	return ""
}

// WaitSettled waits until this member knows what the members that it has joined know. Where one
// of them offers a service, Uninformed is "" afterwards.
func (c *Core) WaitSettled(ctx context.Context) error {
	if err := c.Routes.WaitSettled(ctx); err != nil { // most of the time
		return err
	}
	// Versions and lists change when members come and go, or with time alone: no event reports that
	// this one has caught up.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for c.Uninformed() != "" && c.unsettled() != "" {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := c.Routes.WaitSettled(ctx); err != nil { // the router has stopped
			return err
		}
	}
	return nil
}

// unreachable reports an endpoint that refused a connection, or was not seen lately.
func (c *Core) unreachable(e advertise.Endpoint) { c.Catalogue.Observe(e) }

// state changes a part of what this relay states to the other members.
func (c *Core) state(change func(*advertise.RelayStatement)) {
	c.stating.Lock()
	defer c.stating.Unlock()
	next := c.stated
	change(&next)
	if err := c.Catalogue.State(next); err != nil {
		c.cfg.Logger.Error("this relay cannot state its traffic and its plan to the others", "err", err)
		return
	}
	c.stated = next
}

// Epoch is the zero of the times of all parts.
func (c *Core) Epoch() time.Time { return c.epoch }

// Handler returns a handler of requests, to which New's parts are added.
func (c *Core) Handler(of ingress.Config) *ingress.Handler {
	of.Self, of.Services, of.Informed, of.Epoch = c.member.ID, c.Routes, func() bool { return c.Uninformed() == "" }, c.epoch
	of.Empty, of.Unreached = c.Routes.Empty, c.Routes.Unreached
	of.Clients, of.Rates, of.Cookies, of.Unreachable, of.Metrics, of.Logger = c.clients, c.Rates, c.cookies, c.unreachable, c.Metrics, c.cfg.Logger
	return ingress.New(of)
}

// WithSharedKey answers other relays that ask for the key of cookies.
func (c *Core) WithSharedKey(next http.Handler) http.Handler {
	return ingress.WithSharedKey(c.Keeper, next)
}

// Start starts the node and all parts, until ctx ends. After an error nothing runs.
func (c *Core) Start(ctx context.Context, group *errgroup.Group) error {
	if err := c.cfg.Node.Start(ctx); err != nil {
		if c.Attached != nil { // a listener may serve already
			c.Attached.Close()
		}
		return err
	}
	if c.Attached != nil {
		group.Go(func() error {
			defer c.Attached.Close()
			return c.Attached.Run(ctx)
		})
	}
	group.Go(func() error { return c.Fleet.Run(ctx) })
	group.Go(func() error { return c.Catalogue.Run(ctx) })
	group.Go(func() error { return c.Routes.Run(ctx) })
	if c.Keeper != nil {
		group.Go(func() error { return c.Keeper.Run(ctx) })
	}
	if source := c.member.Identity; source != nil {
		group.Go(func() error { return source.Run(ctx) }) // reads renewed certificates
	}
	return nil
}

// InFlight counts the requests in flight.
func (c *Core) InFlight() (n int64) {
	for _, s := range c.Routes.Services() {
		n += s.InFlight.Load()
	}
	return n
}

// Stop describes the end of a member without failed requests.
type Stop struct {
	// Stay is how long the member still answers probes, and load balancers notice that it is not
	// ready. Default 1 s.
	Stay time.Duration
	// EndIntake ends the intake of requests from clients. Default: there are none.
	EndIntake func()
	// Drain specifies what Stop waits for; Stop fills in the logger.
	Drain upstream.Drain
}

// Stop leaves the cluster, and waits for what is in flight.
func (c *Core) Stop(s Stop) {
	ctx := context.Background()
	c.Catalogue.Leave(ctx, 0, s.Stay)
	if s.EndIntake != nil {
		s.EndIntake()
	}
	s.Drain.Logger = c.cfg.Logger
	if left, err := c.Sessions.Drain(ctx, s.Drain); err != nil || left > 0 {
		c.cfg.Logger.Warn("requests were still in flight at the end of the drain timeout", "in_flight", left)
	}
}
