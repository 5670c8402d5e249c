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

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// AdvertiserConfig describes a process that advertises its own services.
type AdvertiserConfig struct {
	// Cluster, Environment and ID say where the process belongs and who it is; see
	// membership.Config. Required.
	Cluster, Environment, ID string
	// Datacenter and Region place it; empty means unknown.
	Datacenter, Region string
	// Seeds are where the cluster is found: host, host:port, dns+name[:port] or
	// srv+_gossip._udp.name. At least one: nobody looks for an advertiser.
	Seeds []string
	// Services are offered from the start; Set replaces them. Each address must be
	// one that relays can connect to.
	Services []Service

	// BindAddr is the IP:port for gossip, TCP and UDP; port 0 takes a free one.
	// Required. AdvertiseAddr is the IP:port that others use, by default the bound
	// one.
	BindAddr, AdvertiseAddr string
	// Identity has the certificate of the process; Run reads renewed files. Relays
	// with certificates then use only services that are Secured. Default: none.
	Identity *identity.Source
	// Keyring has the gossip keys. Default: none.
	Keyring *membership.Keyring
	// AllowedAddrs are networks in which services may be besides this process's own
	// host. They matter with an Identity, where all members must allow them; see
	// Rules.
	AllowedAddrs []netip.Prefix
	// Insecure allows an address that other hosts can reach without both an
	// Identity and a Keyring.
	Insecure bool

	// DrainDelay is how long services are offered as draining before this process
	// leaves, so that relays hear of it before they meet a closed door. Default
	// 2 s.
	DrainDelay time.Duration
	// OnEvent is told of every step. Calls come one at a time, from Run's own
	// goroutine: one that blocks delays the events after it, and the leaving.
	// Default: none.
	OnEvent func(Event)
	// Logger gets what membership and the catalogue have to say. Default: none.
	Logger *slog.Logger
	// Registerer gets their metrics. Default: none.
	Registerer prometheus.Registerer
}

const (
	defaultDrainDelay = 2 * time.Second
	// statusInterval is how often a node that is alone is asked why: as often as
	// it tries at most.
	statusInterval = 500 * time.Millisecond
	// leaveDelay keeps a leaver answering probes until nobody probes it any more.
	leaveDelay = time.Second
)

// problems lists what only an advertiser cares about, and what is wrong with the
// services; the rest is membership's to judge.
func (c *AdvertiserConfig) problems() []error {
	errs := c.serviceProblems(c.Services)
	if len(c.Seeds) == 0 {
		errs = append(errs, errors.New("no seeds: give at least one member to join, nobody looks for an advertiser"))
	}
	if bind, err := netip.ParseAddrPort(c.BindAddr); err == nil && !bind.Addr().IsLoopback() && !c.Insecure && (c.Identity == nil || c.Keyring == nil) {
		errs = append(errs, fmt.Errorf("gossip address %s can be reached by other hosts, and nothing protects it: give an Identity and a Keyring, or set Insecure", c.BindAddr))
	}
	if c.DrainDelay < 0 {
		errs = append(errs, fmt.Errorf("drain delay %v: must not be negative", c.DrainDelay))
	}
	return errs
}

// rules are those of this process.
func (c *AdvertiserConfig) rules() Rules {
	return Rules{Proven: c.Identity != nil, AllowedAddrs: c.AllowedAddrs}
}

// serviceProblems finds all that is wrong with each service by itself, and
// addresses that others could not connect to or would refuse.
func (c *AdvertiserConfig) serviceProblems(services []Service) (errs []error) {
	for _, s := range services {
		s, err := s.Normalize()
		if err != nil {
			errs = append(errs, err)
		} else if err := c.rules().CheckOffer(s.Address, cmp.Or(c.AdvertiseAddr, c.BindAddr)); err != nil {
			errs = append(errs, fmt.Errorf("service %q: %w", s.Name, err))
		}
	}
	return errs
}

// Advertiser is a process that offers services of its own: a member with the
// role of a worker and its catalogue, in one piece. Failing to reach the cluster
// is never fatal: it is an event, and is tried again for ever. A process that
// would rather die ends Run's context at the first error event.
//
// New binds, Run does everything else; all methods are safe for concurrent use.
type Advertiser struct {
	cfg       AdvertiserConfig
	node      *membership.Node
	catalogue *Catalogue
	started   atomic.Bool
	changed   chan struct{} // capacity 1: there may be something to publish
}

// NewAdvertiser checks the configuration, all of it at once, and binds the gossip
// sockets. It starts nothing.
func NewAdvertiser(cfg AdvertiserConfig) (*Advertiser, error) {
	problems := cfg.problems()
	members := membership.Config{
		Cluster: cfg.Cluster, Environment: cfg.Environment, ID: cfg.ID, Role: membership.RoleWorker,
		Datacenter: cfg.Datacenter, Region: cfg.Region, Seeds: cfg.Seeds,
		BindAddr: cfg.BindAddr, AdvertiseAddr: cfg.AdvertiseAddr, Identity: cfg.Identity, Keyring: cfg.Keyring,
		Logger: cfg.Logger, Registerer: cfg.Registerer,
	}
	if len(problems) > 0 {
		members.Registerer = nil // asked for its opinion only
	}
	node, err := membership.New(members)
	if err = errors.Join(append(problems, err)...); err != nil {
		if node != nil {
			_ = node.Close()
		}
		return nil, fmt.Errorf("advertiser %q: %w", cfg.ID, err)
	}
	a := &Advertiser{cfg: cfg, node: node, changed: make(chan struct{}, 1)}
	if a.cfg.DrainDelay == 0 {
		a.cfg.DrainDelay = defaultDrainDelay
	}
	if a.cfg.Logger == nil {
		a.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a.catalogue, err = New(Config{Gossip: node, Rules: cfg.rules(), Logger: cfg.Logger, Registerer: cfg.Registerer})
	if err == nil && len(cfg.Services) > 0 {
		err = a.catalogue.Offer(cfg.Services)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("advertiser %q: %w", cfg.ID, err), node.Close())
	}
	return a, nil
}

// Addr is the IP:port at which other members reach this one's gossip.
func (a *Advertiser) Addr() string { return a.node.Addr() }

// View is what is on offer in the whole cluster, as this process knows it; its
// Discover finds the endpoints of a service. One atomic load, never nil.
func (a *Advertiser) View() *View { return a.catalogue.View() }

// Set replaces what this process offers. With an error, which names every faulty
// service, nothing has changed.
func (a *Advertiser) Set(services ...Service) error {
	if err := errors.Join(a.cfg.serviceProblems(services)...); err != nil {
		return err
	}
	if err := a.catalogue.Offer(services); err != nil {
		return err
	}
	a.wake()
	return nil
}

// Drain offers every service as draining, now and after every later Set: no new
// work is sent here, and what runs goes on.
func (a *Advertiser) Drain() {
	a.catalogue.Drain()
	a.wake()
}

// Withdraw takes back what is offered, until the next Set.
func (a *Advertiser) Withdraw() {
	a.catalogue.Withdraw()
	a.wake()
}

func (a *Advertiser) wake() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Run advertises until ctx ends, then drains, leaves the cluster, and returns
// when nothing of the Advertiser is left: with other members in sight that takes
// the drain delay and, at most seven seconds, the time for the news to spread. It
// owns all goroutines, and runs once. The error is nil after an orderly stop.
func (a *Advertiser) Run(ctx context.Context) error {
	if !a.started.CompareAndSwap(false, true) {
		return errors.New("advertise: Run called twice: make a new advertiser")
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := a.node.Start(background); err != nil {
		a.emit(Event{Kind: EventError, Cause: err})
		return errors.Join(err, a.node.Close())
	}
	var running sync.WaitGroup
	running.Go(func() { _ = a.catalogue.Run(background) }) // it fails only when called twice
	if source := a.cfg.Identity; source != nil {
		running.Go(func() { _ = source.Run(background) }) // it logs what it cannot read
	}
	a.follow(ctx)
	a.leave()
	stop()
	running.Wait()
	return a.node.Close()
}

// Close releases what NewAdvertiser bound, for an advertiser that is not run. Run
// does it by itself.
func (a *Advertiser) Close() error { return a.node.Close() }

func (a *Advertiser) emit(e Event) {
	if a.cfg.OnEvent != nil {
		a.cfg.OnEvent(e)
	}
}

// follow tells of what happens until ctx ends.
func (a *Advertiser) follow(ctx context.Context) {
	snapshots := a.node.Watch(ctx)
	status := time.NewTicker(statusInterval)
	defer status.Stop()
	var (
		company   bool   // another member is in sight
		published uint64 // sequence of the last publication told of, 0 before
		reason    string // of the last failure to join told of
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

// published waits until everything is published and returns the sequence of it.
func (a *Advertiser) published(ctx context.Context) (sequence uint64, err error) {
	if err := a.catalogue.Flush(ctx); err != nil {
		return 0, err
	}
	err = a.catalogue.ask(ctx, func() { sequence = a.catalogue.own.sequence })
	return sequence, err
}

// leave goes in the order that costs no request: nothing new, then nothing.
func (a *Advertiser) leave() {
	if len(a.node.Snapshot().Members()) < 2 {
		return // nobody to tell
	}
	a.catalogue.Drain()
	_ = a.catalogue.Flush(context.Background()) // a publish interval at most; it fails only after Run
	time.Sleep(a.cfg.DrainDelay)
	if err := a.node.Leave(context.Background()); err != nil { // bounded by itself
		a.cfg.Logger.Warn("the others were not told that this member leaves", "node", a.cfg.ID, "err", err)
	}
	time.Sleep(leaveDelay)
}
