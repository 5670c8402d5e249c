package advertise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// AdvertiserConfig describes a process that advertises its own services.
type AdvertiserConfig struct {
	// Cluster, Environment and ID identify the cluster and this process; see
	// membership.Config. Required.
	Cluster, Environment, ID string
	// Datacenter and Region are the place of the process; empty means unknown.
	Datacenter, Region string
	// Seeds are addresses or names of members: host, host:port, dns+name[:port] or
	// srv+_gossip._udp.name. At least one is required, because an advertiser must join
	// by itself.
	Seeds []string
	// Attach are peer addresses of relays, in the same forms: in place of Seeds, for a process
	// that takes part by sessions with a few relays. It does not gossip, so BindAddr,
	// AdvertiseAddr, Keyring and Network stay empty.
	Attach []string
	// Services are offered from the start; Set replaces them. Relays must be able to
	// connect to each address.
	Services []Service

	// BindAddr is the IP:port for gossip, TCP and UDP; port 0 selects a free port.
	// Required with Seeds. AdvertiseAddr is the IP:port that other members use, by default the bound
	// address.
	BindAddr, AdvertiseAddr string
	// Identity holds the certificate of the process; Run reads renewed files. Relays
	// with certificates then use only services that are Secured. Default: none.
	Identity *identity.Source
	// Keyring holds the gossip keys. Default: none.
	Keyring *membership.Keyring
	// AllowedAddrs are networks in which services may run in addition to the host of this
	// process. They matter only with an Identity, and all members must allow them; see
	// Rules.
	AllowedAddrs []netip.Prefix
	// MaxServicesPerRecord is how many services this process may offer, at most 1,024. All
	// members must allow as many; see Rules. Default 128.
	MaxServicesPerRecord int
	// Insecure allows an address that other hosts can reach without both an
	// Identity and a Keyring, and to attach to other hosts without an Identity.
	Insecure bool

	// DrainDelay is how long services are offered as draining before this process
	// leaves, so that relays learn of it before connections are refused. Default 2 s.
	DrainDelay time.Duration
	// OnEvent is called for every event, one at a time, from Run's own goroutine: a call
	// that blocks delays later events and the shutdown. Default: none.
	OnEvent func(Event)
	// Network carries gossip. Default: that of the operating system.
	Network membership.Network
	// Logger receives the log lines of membership and the catalogue. Default: none.
	Logger *slog.Logger
	// Registerer receives their metrics. Default: none.
	Registerer prometheus.Registerer
}

const (
	defaultDrainDelay = 2 * time.Second
	// statusInterval is how often the status of a node that is alone is checked. The node
	// does not try to join more often than that.
	statusInterval = 500 * time.Millisecond
)

// problems returns the problems that only an advertiser has and those of the services;
// membership.New checks the rest.
func (c *AdvertiserConfig) problems() []error {
	errs := c.serviceProblems(c.Services)
	gossip := len(c.Attach) == 0
	switch {
	case gossip && len(c.Seeds) == 0:
		errs = append(errs, errors.New("no seeds: give at least one member to join"))
	case !gossip && (len(c.Seeds) > 0 || c.BindAddr != "" || c.AdvertiseAddr != "" || c.Keyring != nil || c.Network != nil):
		errs = append(errs, errors.New("it attaches and gossips: leave Seeds, BindAddr, AdvertiseAddr, Keyring and Network empty, or Attach"))
	}
	for _, seed := range c.Attach {
		if err := session.CheckSeed(seed, c.Identity != nil || c.Insecure); err != nil {
			errs = append(errs, fmt.Errorf("attach to %q: %w", seed, err))
		}
	}
	if bind, err := netip.ParseAddrPort(c.BindAddr); err == nil && !bind.Addr().IsLoopback() && !c.Insecure && (c.Identity == nil || c.Keyring == nil) {
		errs = append(errs, fmt.Errorf("gossip address %s can be reached by other hosts, and nothing protects it: give an Identity and a Keyring, or set Insecure", c.BindAddr))
	}
	if c.DrainDelay < 0 {
		errs = append(errs, fmt.Errorf("drain delay %v: must not be negative", c.DrainDelay))
	}
	return errs
}

// rules returns the rules of this process.
func (c *AdvertiserConfig) rules() Rules {
	return Rules{Proven: c.Identity != nil, AllowedAddrs: c.AllowedAddrs, MaxServicesPerRecord: c.MaxServicesPerRecord}
}

// serviceProblems returns the problems of each service, including addresses that other
// members could not connect to or would refuse.
func (c *AdvertiserConfig) serviceProblems(services []Service) (errs []error) {
	for _, s := range services {
		s, err := s.Normalize()
		if err != nil {
			errs = append(errs, err)
		} else if err := checkWishes(s); err != nil {
			errs = append(errs, fmt.Errorf("service %q: %w", s.Name, err))
		} else if err := c.rules().CheckOffer(s.Address, cmp.Or(c.AdvertiseAddr, c.BindAddr)); err != nil && len(c.Attach) == 0 {
			errs = append(errs, fmt.Errorf("service %q: %w", s.Name, err))
		} else if err := c.checkServiceName(s.Name); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// checkWishes refuses what relays would ignore: a strategy or a policy that they do not know.
func checkWishes(s Service) error {
	_, strategyErr := strategy.Parse(s.Selection)
	_, policyErr := ParsePolicy(s.Policy)
	return errors.Join(strategyErr, policyErr)
}

// checkServiceName returns an error if the certificate of the process names other services.
func (c *AdvertiserConfig) checkServiceName(name string) error {
	if c.Identity == nil {
		return nil
	}
	return c.rules().checkServiceName(name, c.Identity.Claims().Services)
}

// member is how the process takes part: *membership.Node gossips, *session.Client does not.
type member interface {
	Gossip
	Status() membership.Status
	Start(ctx context.Context) error
	Close() error
}

// join makes the member. It starts nothing.
func (c *AdvertiserConfig) join(members membership.Config) (member, error) {
	if len(c.Attach) > 0 {
		return session.NewClient(session.Config{Member: members, Seeds: c.Attach})
	}
	return membership.New(members)
}

// Advertiser lets a process offer its own services: it combines a member with the role of
// a worker and a catalogue. A failure to reach the cluster is never fatal: it is reported
// as an event, and the Advertiser retries indefinitely. A process that should exit instead
// ends Run's context at the first error event.
//
// New binds, Run does everything else; all methods are safe for concurrent use.
type Advertiser struct {
	cfg       AdvertiserConfig
	node      member
	catalogue *Catalogue
	started   atomic.Bool
	changed   chan struct{} // capacity 1: there may be something to publish

	setting sync.Mutex // held while services and slots change together; guards server and offered
	server  Server     // of Serve
	offered []Service  // nil before the first
	slots   sync.Map   // from names of services to *slots, for Serve

	refused    *prometheus.CounterVec // connections, by Serve
	unregister func()                 // the metrics
}

// NewAdvertiser checks the configuration, reports all problems together, and binds the
// gossip sockets. It starts no goroutine.
func NewAdvertiser(cfg AdvertiserConfig) (*Advertiser, error) {
	problems := cfg.problems()
	members := membership.Config{
		Cluster: cfg.Cluster, Environment: cfg.Environment, ID: cfg.ID, Role: identity.RoleWorker,
		Datacenter: cfg.Datacenter, Region: cfg.Region, Seeds: cfg.Seeds,
		BindAddr: cfg.BindAddr, AdvertiseAddr: cfg.AdvertiseAddr, Identity: cfg.Identity, Keyring: cfg.Keyring,
		Network: cfg.Network, Logger: cfg.Logger, Registerer: cfg.Registerer,
	}
	if len(problems) > 0 {
		members.Registerer = nil // New is called only to collect its problems
	}
	// A registry of its own: nothing is registered if this fails, and nothing stays after the end, so
	// that a process can make a new advertiser.
	metrics := prometheus.NewRegistry()
	if members.Registerer != nil {
		members.Registerer = metrics
	}
	node, err := cfg.join(members)
	if all := errors.Join(append(problems, err)...); all != nil {
		if err == nil {
			_ = node.Close()
		}
		return nil, fmt.Errorf("advertiser %q: %w", cfg.ID, all)
	}
	a := &Advertiser{cfg: cfg, node: node, changed: make(chan struct{}, 1), unregister: func() {}}
	if a.cfg.DrainDelay == 0 {
		a.cfg.DrainDelay = defaultDrainDelay
	}
	if a.cfg.Logger == nil {
		a.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a.catalogue, err = New(Config{Gossip: node, Rules: cfg.rules(), Logger: cfg.Logger, Registerer: metrics})
	if err == nil && len(cfg.Services) > 0 {
		err = a.offer(cfg.Services)
	}
	a.refused = metric.With(metrics).CounterVec("ringway_advertise_connections_refused_total", "Connections refused by the server of an advertiser with a certificate, by reason, as ringway_sidecar_refused_total.", "reason")
	if cfg.Registerer != nil && err == nil {
		if err = cfg.Registerer.Register(metrics); err != nil {
			err = fmt.Errorf("register metrics: %w: give each advertiser a Registerer of its own, such as prometheus.WrapRegistererWith returns", err)
		}
		a.unregister = sync.OnceFunc(func() { cfg.Registerer.Unregister(metrics) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("advertiser %q: %w", cfg.ID, err), node.Close())
	}
	return a, nil
}

// Set replaces the services that this process offers; without any it offers none. If it returns an error, which names
// every invalid service, nothing has changed.
func (a *Advertiser) Set(services ...Service) error {
	if err := errors.Join(a.cfg.serviceProblems(services)...); err != nil {
		return err
	}
	if err := a.offer(services); err != nil {
		return err
	}
	a.wake()
	return nil
}

// offer replaces the services and their slots.
func (a *Advertiser) offer(services []Service) error {
	a.setting.Lock()
	defer a.setting.Unlock()
	if a.server != nil {
		if err := a.checkSecured(services); err != nil {
			return err
		}
	}
	if err := a.catalogue.Offer(services); err != nil {
		return err
	}
	a.offered = append([]Service{}, services...) // not nil, also without any
	limits := map[string]int64{}
	for _, s := range services {
		if s.Secured {
			limits[s.Name] = int64(s.Slots)
			if s.Slots > 0 {
				a.slots.LoadOrStore(s.Name, &slots{})
			}
		}
	}
	a.slots.Range(func(name, of any) bool {
		of.(*slots).limit.Store(limits[name.(string)])
		return true
	})
	return nil
}

// slotsOf returns the slots of a service, nil if it never had any.
func (a *Advertiser) slotsOf(service string) *slots {
	s, _ := a.slots.Load(service)
	of, _ := s.(*slots)
	return of
}

// Drain offers every service as draining, now and after every later Set: relays send no
// new requests, and requests in flight continue.
func (a *Advertiser) Drain() {
	a.catalogue.Drain()
	a.wake()
}

func (a *Advertiser) wake() {
	publish.Notify(a.changed)
}

// Run advertises until ctx ends, then drains, leaves the cluster, and returns when all
// goroutines have ended and the sockets are closed. If there are other members, leaving
// takes the drain delay and the time for the announcement to spread, at most seven
// seconds. Call Run once. The error is nil after an orderly stop.
func (a *Advertiser) Run(ctx context.Context) error {
	if !a.started.CompareAndSwap(false, true) {
		return errors.New("advertise: Run called twice: make a new advertiser")
	}
	// The member and the catalogue outlive ctx: after its end they announce that the services drain
	// and that the member leaves.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := a.node.Start(background); err != nil {
		a.emit(Event{Kind: EventError, Cause: err})
		return errors.Join(err, a.Close())
	}
	var running sync.WaitGroup
	running.Go(func() { _ = a.catalogue.Run(background) }) // fails only when called twice
	if source := a.cfg.Identity; source != nil {
		running.Go(func() { _ = source.Run(background) }) // logs its errors
	}
	a.follow(ctx)
	a.leave()
	stop()
	running.Wait()
	return a.Close()
}

// Close closes the sockets of an Advertiser whose Run is never called. Run closes them
// itself.
func (a *Advertiser) Close() error {
	a.unregister() // before the node takes its metrics out of those that were registered
	return a.node.Close()
}

func (a *Advertiser) emit(e Event) {
	if a.cfg.OnEvent != nil {
		a.cfg.OnEvent(e)
	}
}

// follow emits events until ctx ends.
func (a *Advertiser) follow(ctx context.Context) {
	snapshots := a.node.Watch(ctx)
	status := time.NewTicker(statusInterval)
	defer status.Stop()
	var (
		company   bool   // there is another live member
		published uint64 // sequence of the last publication with an event, 0 before
		reason    string // of the last failure to join with an event
	)
	for {
		gained := false
		select {
		case <-ctx.Done():
			return
		case s, ok := <-snapshots:
			if !ok {
				return
			}
			was := company
			if company = len(s.Members()) > 1; company == was {
				continue
			}
			if gained = company; !gained {
				a.emit(Event{Kind: EventError, WillRetry: true, Cause: ErrAlone})
			}
		case <-a.changed:
		case <-status.C:
			if err := a.node.Status().Err; !company && err != nil && err.Error() != reason {
				reason = err.Error()
				a.emit(Event{Kind: EventError, WillRetry: true, Cause: err})
			}
			continue
		}
		if !company {
			continue
		}
		sequence, err := a.published(ctx)
		switch {
		case err != nil: // ctx has ended
			return
		case published == 0 && sequence > 0:
			a.emit(Event{Kind: EventAdvertised})
		case sequence > published, gained && sequence > 0:
			a.emit(Event{Kind: EventReadvertised})
		}
		published = sequence
	}
}

// published waits until all changes are published and returns the sequence of the record, 0 if it
// has offered nothing yet.
func (a *Advertiser) published(ctx context.Context) (sequence uint64, err error) {
	a.setting.Lock()
	begun := a.offered != nil
	a.setting.Unlock()
	if !begun {
		return 0, nil
	}
	if err := a.catalogue.Flush(ctx); err != nil {
		return 0, err
	}
	err = a.catalogue.onLoop(ctx, func() { sequence = a.catalogue.own.sequence })
	return sequence, err
}

// leave stops without failing requests: it first drains the services and then leaves the
// cluster.
func (a *Advertiser) leave() {
	if len(a.node.Snapshot().Members()) < 2 {
		return // no other member would learn of it
	}
	a.catalogue.Leave(context.Background(), a.cfg.DrainDelay, 0)
}

// EventKind is the kind of an [Event].
type EventKind string

// The kinds of events.
const (
	// EventAdvertised: for the first time, the services of this process have been passed
	// to gossip in a cluster with another member.
	EventAdvertised EventKind = "advertised"
	// EventReadvertised: the services have been passed to gossip again, after a change
	// (Set, Drain) or because other members have returned after this one had
	// been alone.
	EventReadvertised EventKind = "readvertised"
	// EventError: the services of this process do not reach any member at the moment.
	EventError EventKind = "error"
)

// Event is a change in the state of an Advertiser.
type Event struct {
	Kind EventKind
	// WillRetry is true for an error after which the Advertiser continues to try. If it
	// is false, Run returns with Cause.
	WillRetry bool
	// Cause is the reason of an error. It is, or wraps, a *membership.RefusalError if a
	// seed refused this member, and [ErrAlone] if every other member is gone.
	Cause error
}

// ErrAlone is the cause of an error event when the other members have vanished.
var ErrAlone = errors.New("advertise: no other member is left: still trying to reach seeds and lost members")
