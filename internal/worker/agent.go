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
	"github.com/ringway/ringway/membership"
)

// Agent offers the services of one instance.
type Agent struct {
	cfg       Config
	members   *membership.Node
	catalogue *advertise.Catalogue
	socket    net.Listener
	server    *http.Server
	stopping  atomic.Bool
	killed    chan struct{} // closed by Kill
	kill      sync.Once
}

// ErrKilled is what Run returns after Kill.
var ErrKilled = errors.New("worker: killed")

// New validates the configuration and binds the listeners. It starts nothing;
// when it fails, nothing stays bound.
func New(cfg Config) (*Agent, error) {
	socket, err := net.Listen("tcp", cfg.AdminAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for admin on %s: %w: is another process on this port?", cfg.AdminAddr, err)
	}
	a := &Agent{cfg: cfg, socket: socket, killed: make(chan struct{})}
	cfg.Membership.AdminAddr = daemon.Reachable(socket.Addr(), cmp.Or(cfg.Membership.AdvertiseAddr, cfg.Membership.BindAddr))
	if a.members, err = membership.New(cfg.Membership); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	if a.catalogue, err = advertise.New(advertise.Config{Gossip: a.members, Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
		return nil, errors.Join(err, socket.Close(), a.members.Close())
	}
	if err := a.catalogue.Offer(cfg.Services); err != nil {
		return nil, errors.Join(err, socket.Close(), a.members.Close())
	}
	mux := admin.NewMux(admin.Config{
		Snapshot: a.members.Snapshot, Reasons: a.Reasons, Gatherer: cfg.Registry,
		Catalogue: func() uint64 { return a.catalogue.View().Checksum() },
	})
	mux.HandleFunc("GET /api/v1/services", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteJSON(w, http.StatusOK, map[string]any{"worker": cfg.Membership.ID, "services": cfg.Services, "draining": a.stopping.Load()})
	})
	a.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	return a, nil
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
	return reasons
}

// Run offers the services until ctx ends, withdraws them in order, and returns
// when nothing of the agent is left. The error is nil after an orderly stop.
func (a *Agent) Run(ctx context.Context) error {
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	group, failed := errgroup.WithContext(serving)
	group.Go(func() error {
		if err := a.server.Serve(a.socket); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve admin: %w", err)
		}
		return nil
	})
	if err := a.members.Start(failed); err != nil {
		_ = a.server.Close()
		return errors.Join(err, group.Wait(), a.members.Close())
	}
	group.Go(func() error { return a.catalogue.Run(failed) })
	if source := a.cfg.Membership.Identity; source != nil {
		group.Go(func() error { return source.Run(failed) }) // reads renewed certificates
	}
	group.Go(func() error {
		select {
		case <-a.killed:
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
			a.cfg.Logger.Info("ready", "services", len(a.cfg.Services), "members", len(a.members.Snapshot().Members()))
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
	a.catalogue.Drain()
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
func (a *Agent) Close() error { return errors.Join(a.socket.Close(), a.members.Close()) }
