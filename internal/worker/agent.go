package worker

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

	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/worker/health"
	"github.com/ringway/ringway/internal/worker/sidecar"
	"github.com/ringway/ringway/membership"
)

// Agent offers the services of one instance.
type Agent struct {
	cfg       Config
	members   *membership.Node
	catalogue *advertise.Catalogue
	offering  *offering
	metrics   *metrics
	sidecar   *sidecar.Sidecar // nil: relays connect to the services
	socket    net.Listener
	server    *http.Server
	stopping  atomic.Bool
	killed    chan struct{} // closed by Kill
	kill      sync.Once

	reloading  sync.Mutex // one reload at a time; guards what follows
	file       servicesFile
	configured []Service // those of the settings
}

// ErrKilled is what Run returns after Kill.
var ErrKilled = errors.New("worker: killed")

// New validates the configuration and binds the listeners. It starts nothing;
// when it fails, nothing stays bound.
func New(cfg Config) (*Agent, error) {
	socket, err := admin.Listen(cfg.AdminAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for admin on %s: %w", cfg.AdminAddr, err)
	}
	a := &Agent{cfg: cfg, socket: socket, killed: make(chan struct{}), file: servicesFile{path: cfg.ServicesFile}}
	cfg.Membership.AdminAddr = daemon.Reachable(socket.Addr(), cmp.Or(cfg.Membership.AdvertiseAddr, cfg.Membership.BindAddr))
	if a.members, err = membership.New(cfg.Membership); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	cfg.Rules.Proven = cfg.Membership.Identity != nil
	a.cfg.Rules = cfg.Rules
	if a.catalogue, err = advertise.New(advertise.Config{Gossip: a.members, Rules: cfg.Rules, Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if source := cfg.Membership.Identity; source != nil && cfg.SidecarAddr != "" {
		if a.sidecar, err = sidecar.New(sidecar.Config{Addr: cfg.SidecarAddr, Identity: source, ProgressTimeout: cfg.ProgressTimeout, Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
			return nil, errors.Join(err, a.Close())
		}
	}
	a.metrics = newMetrics(cfg.Registry)
	a.offering = newOffering(offeringConfig{
		Offer: a.catalogue.Offer, SidecarAddress: a.sidecarAddress, Logger: cfg.Logger, Checks: health.NewMetrics(cfg.Registry), Metrics: a.metrics,
	})
	services, err := normalized(cfg.Services)
	if err == nil {
		_, err = a.replace(services, nil)
	}
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	mux := admin.NewMux(admin.Config{
		Snapshot: a.members.Snapshot, Unproven: a.members.Unproven, Reasons: a.Reasons, Gatherer: cfg.Registry,
		Catalogue: func() uint64 { return a.catalogue.View().Checksum() },
	})
	daemon.Handle(mux, daemon.APIConfig{ID: cfg.Membership.ID, Snapshot: a.members.Snapshot, Running: cfg.Running, Monitor: cfg.Monitor})
	a.handle(mux)
	daemon.RegisterReady(cfg.Registry, a.Reasons)
	a.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	if err := cfg.Admin.Serve(a.server, mux, admin.AccessConfig{Identity: cfg.Membership.Identity, Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Check reports what New would refuse of cfg. It builds the agent at free ports of
// loopback, where one with this configuration may run, and closes it.
func Check(cfg Config) error {
	cfg.AdminAddr, cfg.Membership = daemon.FreeAddr, daemon.CheckedMembership(cfg.Membership)
	if cfg.SidecarAddr != "" {
		cfg.SidecarAddr = daemon.FreeAddr
	}
	a, err := New(cfg)
	if err != nil {
		return err
	}
	return a.Close()
}

// AdminAddr is where operators connect.
func (a *Agent) AdminAddr() string { return a.socket.Addr().String() }

// GossipAddr is where other members reach this one.
func (a *Agent) GossipAddr() string { return a.members.Addr() }

// Reasons lists why this agent is of no use at the moment.
func (a *Agent) Reasons() []string {
	var reasons []string
	if a.stopping.Load() {
		reasons = append(reasons, "draining")
	}
	if status := a.members.Status(); !status.Joined {
		reason := "not joined yet"
		if status.Err != nil {
			reason += ": " + status.Err.Error()
		}
		reasons = append(reasons, reason)
	}
	return append(reasons, a.offering.reasons()...)
}

// Run offers the services until ctx ends, withdraws them in order, and returns
// when nothing of the agent is left. The error is nil after an orderly stop.
func (a *Agent) Run(ctx context.Context) error {
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	group, failed := errgroup.WithContext(serving)
	group.Go(func() error {
		serve := func() error { return a.server.Serve(a.socket) }
		if a.server.TLSConfig != nil {
			watched := a.cfg.Membership.Identity.Listener(a.socket)
			serve = func() error { return a.server.ServeTLS(watched, "", "") }
		}
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve admin: %w", err)
		}
		return nil
	})
	if err := a.members.Start(failed); err != nil {
		_ = a.server.Close()
		return errors.Join(err, group.Wait(), a.Close())
	}
	group.Go(func() error { return a.catalogue.Run(failed) })
	group.Go(func() error { return a.offering.run(failed) })
	if a.sidecar != nil {
		group.Go(func() error { return a.sidecar.Run(failed) }) // which finishes what is in flight
	}
	if a.cfg.ServicesFile != "" {
		group.Go(func() error { return a.watchFile(failed) })
	}
	if source := a.cfg.Membership.Identity; source != nil {
		group.Go(func() error { return source.Run(failed) }) // reads renewed certificates
	}
	group.Go(func() error {
		select {
		case <-a.killed:
			if a.sidecar != nil {
				_ = a.sidecar.Close()
			}
			return ErrKilled
		case <-failed.Done():
			return nil
		}
	})
	group.Go(func() error {
		joining, giveUp := context.WithCancel(ctx)
		defer giveUp()
		defer context.AfterFunc(failed, giveUp)()
		if a.members.WaitReady(joining) == nil {
			a.cfg.Logger.Info("ready", "services", len(a.offering.status()), "members", len(a.members.Snapshot().Members()))
		}
		select {
		case <-ctx.Done():
			a.stop()
		case <-failed.Done():
		}
		endServing()
		_ = a.server.Close() // it reports only what closing a socket can report
		return nil
	})
	err := group.Wait()
	return errors.Join(err, a.members.Close())
}

// Kill ends Run as if the process had died: nothing is withdrawn and nobody is
// told. The others find out by themselves. For demos and tests; it may be called
// from any goroutine, more than once, and does not wait for Run.
func (a *Agent) Kill() { a.kill.Do(func() { close(a.killed) }) }

// stop takes the offer back before the agent goes.
func (a *Agent) stop() {
	a.stopping.Store(true)
	a.cfg.Logger.Info("draining: relays are told to send nothing new", "delay", a.cfg.DrainDelay)
	_ = a.offering.drain(true, nil) // it fails for names only, and there is none
	a.catalogue.Drain()             // and nobody takes it back
	time.Sleep(a.cfg.DrainDelay)
	if err := a.members.Leave(context.Background()); err != nil {
		a.cfg.Logger.Warn("the others were not told that this worker leaves", "err", err)
	}
	time.Sleep(leaveDelay)
}

// leaveDelay keeps a leaver answering probes until nobody probes it any more; it
// would be suspected otherwise, and the suspicion gossiped.
const leaveDelay = time.Second

// Close releases what New bound, for an agent that is not run. Run does it by
// itself.
func (a *Agent) Close() error {
	var errs []error
	if a.sidecar != nil {
		errs = append(errs, a.sidecar.Close())
	}
	if a.members != nil {
		errs = append(errs, a.members.Close())
	}
	if err := a.socket.Close(); !errors.Is(err, net.ErrClosed) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
