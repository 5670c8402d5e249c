package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/internal/worker/health"
	"github.com/ringway/ringway/internal/worker/sidecar"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Agent offers the services of one instance.
type Agent struct {
	cfg       Config
	members   member
	catalogue *advertise.Catalogue
	offering  *offering
	metrics   *metrics
	sidecar   *sidecar.Sidecar // nil: relays connect to the services
	socket    net.Listener
	server    *http.Server
	stopping  atomic.Bool
	planned   atomic.Bool   // enough relays have connected, and so it stays
	killed    chan struct{} // closed by Kill
	kill      sync.Once

	reloading sync.Mutex // one reload at a time; guards the fields below
	// settingsRefused means that the last reload could not read the settings.
	settingsRefused bool
	file            servicesFile
	configured      []Service // those of the settings
}

// member is how this worker takes part: *membership.Node gossips, *session.Client holds sessions with
// a few relays. Nothing else depends on which one it is.
type member interface {
	advertise.Gossip
	Addr() string
	Epoch() uint64
	Status() membership.Status
	Unproven() []membership.Unproven
	Doubters() map[string]uint64
	Start(ctx context.Context) error
	WaitReady(ctx context.Context) error
	SetDraining(on bool)
	Close() error
}

// join makes the member.
func join(cfg Config) (member, error) {
	if len(cfg.Attach) > 0 {
		return session.NewClient(session.Config{Member: cfg.Membership, Seeds: cfg.Attach})
	}
	node, err := membership.New(cfg.Membership)
	return node, process.GossipError(err)
}

// ErrKilled is the error of Run after Kill.
var ErrKilled = errors.New("worker: killed")

// New validates the configuration and binds the listeners. It starts nothing; after an
// error nothing stays bound.
func New(cfg Config) (*Agent, error) {
	socket, err := process.Listen(cfg.AdminAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for admin on %s (--admin-addr): %w", cfg.AdminAddr, err)
	}
	a := &Agent{cfg: cfg, socket: socket, killed: make(chan struct{}), file: servicesFile{path: cfg.ServicesFile}}
	cfg.Membership.AdminAddr = process.Reachable(socket.Addr(), cmp.Or(cfg.Membership.AdvertiseAddr, cfg.Membership.BindAddr))
	members, err := join(cfg)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.members = members
	cfg.Rules.Proven = cfg.Membership.Identity != nil
	a.cfg.Rules = cfg.Rules
	if a.catalogue, err = advertise.New(advertise.Config{Gossip: a.members, Rules: cfg.Rules, Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if source := cfg.Membership.Identity; source != nil && cfg.SidecarAddr != "" {
		if a.sidecar, err = sidecar.New(sidecar.Config{
			Addr: cfg.SidecarAddr, Identity: source, ServiceRoots: cfg.ServiceRoots, ProgressTimeout: cfg.ProgressTimeout, MaxAnswerHead: cfg.MaxAnswerHead, ReadyRelays: cfg.ReadyRelays,
			DrainTimeout: cfg.DrainTimeout, SessionDrainTimeout: cfg.SessionDrainTimeout, Logger: cfg.Logger, Registerer: cfg.Registry,
		}); err != nil {
			return nil, errors.Join(err, a.Close())
		}
	}
	a.metrics = newMetrics(cfg.Registry)
	a.offering = newOffering(offeringConfig{
		Offer: a.catalogue.Offer, Drained: a.members.SetDraining, SidecarAddress: a.SidecarAddr(), ServiceRoots: cfg.ServiceRoots, Logger: cfg.Logger, Checks: health.NewMetrics(cfg.Registry), Metrics: a.metrics,
	})
	services, err := normalized(cfg.Services)
	if err == nil {
		_, err = a.replace(services, nil)
	}
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	mux := process.NewMux(process.Config{
		Snapshot: a.members.Snapshot, Unproven: a.members.Unproven, Doubters: a.members.Doubters, Reasons: a.Reasons, Gatherer: cfg.Registry, Brief: true,
		Catalogue: func() uint64 { return a.catalogue.View().Checksum() },
	})
	process.Handle(mux, process.APIConfig{ID: cfg.Membership.ID, Snapshot: a.members.Snapshot, Running: cfg.Running, Monitor: cfg.Monitor})
	a.handle(mux)
	process.RegisterReady(cfg.Registry, a.Reasons)
	a.server = &http.Server{ReadHeaderTimeout: downstream.DefaultHeadTimeout, IdleTimeout: downstream.DefaultIdleTimeout, MaxHeaderBytes: downstream.DefaultMaxHead}
	if err := cfg.Admin.Serve(a.server, mux, process.AccessConfig{Identity: cfg.Membership.Identity, Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Check returns the error that New would return for cfg. It builds the agent on free ports
// of loopback, so that an agent with this configuration may run meanwhile, and closes it.
func Check(cfg Config) error {
	cfg.AdminAddr, cfg.Membership = process.FreeAddr, process.CheckedMembership(cfg.Membership)
	if cfg.SidecarAddr != "" {
		cfg.checkedSidecar, cfg.SidecarAddr = cfg.SidecarAddr, process.FreeAddr
	}
	a, err := New(cfg)
	if err != nil {
		return err
	}
	return a.Close()
}

// AdminAddr returns the address of the admin API.
func (a *Agent) AdminAddr() string { return a.socket.Addr().String() }

// GossipAddr returns the address at which other members reach this one.
func (a *Agent) GossipAddr() string { return a.members.Addr() }

// Reasons lists why this agent offers nothing at the moment.
func (a *Agent) Reasons() []process.Reason {
	var reasons []process.Reason
	if a.stopping.Load() {
		reasons = append(reasons, process.Reason{Code: process.Stopping, Text: "draining"})
	}
	if status := a.members.Status(); !status.Joined {
		reasons = append(reasons, process.WaitsToJoin(status.Err))
	} else if !a.knowsRelay() {
		reasons = append(reasons, process.Reason{Code: process.NoRelay, Text: a.noRelay()})
	}
	if text := a.fewRelays(); text != "" {
		reasons = append(reasons, process.Reason{Code: process.FewRelays, Text: text})
	}
	reasons = append(reasons, process.Limits(a.members.Status(), nil)...)
	return append(reasons, a.offering.reasons()...)
}

// knowsRelay reports whether a member is alive that sends requests to workers.
func (a *Agent) knowsRelay() bool {
	s := a.members.Snapshot()
	return s != nil && slices.ContainsFunc(s.Members(), func(m membership.Member) bool { return m.Role != identity.RoleWorker })
}

// noRelay describes why no relay is known, with the remedy.
func (a *Agent) noRelay() string {
	if len(a.cfg.Membership.Seeds) == 0 {
		return "no relay is known: give --join, the gossip address of a relay, or wait until a relay joins this worker"
	}
	return "no relay is known: the members that were reached are workers; start a relay, or name one in --join"
}

// fewRelays describes which relays have not connected yet of those that ReadyRelays requires, but no
// more than this worker sees or is about to see: a relay that is gone must not hold up a rollout. It
// latches: relays that restart later make no worker unready.
func (a *Agent) fewRelays() string {
	if a.cfg.ReadyRelays == 0 || a.sidecar == nil || a.planned.Load() {
		return ""
	}
	relays := a.members.Status().Attaching
	if s := a.members.Snapshot(); s != nil {
		for _, m := range s.Members() {
			if m.Role == identity.RoleRelay && !m.Leaving {
				relays++
			}
		}
	}
	connected, required := a.sidecar.Relays(), min(a.cfg.ReadyRelays, max(relays, 1))
	if connected >= required {
		a.planned.Store(true)
		return ""
	}
	return fmt.Sprintf("%d of %d relays (--ready-relays) have connected: the plan with this worker is not in effect; if this lasts, check whether relays reach %s", connected, required, a.SidecarAddr())
}

// readyInterval is the interval at which Run checks whether the agent has become ready.
const readyInterval = 50 * time.Millisecond

// becomeReady logs when the agent is ready for the first time, as /readyz has it.
func (a *Agent) becomeReady(ctx, failed context.Context) {
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for len(a.Reasons()) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-failed.Done():
			return
		}
	}
	a.cfg.Logger.Info("ready", "services", len(a.offering.status()), "members", len(a.members.Snapshot().Members()))
}

// Run offers the services until ctx ends, withdraws them in order, and returns when nothing
// of the agent is left. The error is nil after an orderly stop.
func (a *Agent) Run(ctx context.Context) error {
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	group, failed := errgroup.WithContext(serving)
	group.Go(func() error {
		socket := handshake.Lasting(a.socket, a.cfg.Logger)
		serve := func() error { return a.server.Serve(socket) }
		if a.server.TLSConfig != nil {
			watched := a.cfg.Membership.Identity.Listener(socket)
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
	carrying, drainSidecar := context.WithCancel(failed)
	defer drainSidecar()
	drained := make(chan struct{})
	group.Go(func() error {
		defer close(drained)
		if a.sidecar == nil {
			return nil
		}
		return a.sidecar.Run(carrying) // it finishes the requests in flight
	})
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
		a.becomeReady(ctx, failed)
		select {
		case <-ctx.Done():
			a.stop()
			drainSidecar()
			<-drained // meanwhile operators can watch the drain
		case <-failed.Done():
			// A failed agent needs a restart, so it waits for requests and not for
			// sessions.
			select {
			case <-drained:
			case <-time.After(a.cfg.DrainTimeout):
				if a.sidecar != nil {
					_ = a.sidecar.Close()
				}
			}
		}
		endServing()
		_ = a.server.Close() // only errors of closing a socket
		return nil
	})
	err := group.Wait()
	return errors.Join(err, a.members.Close())
}

// Kill ends Run as if the process had died: nothing is withdrawn and no member is notified.
// The other members detect the failure themselves. For demos and tests; it may be called
// from any goroutine, more than once, and does not wait for Run.
func (a *Agent) Kill() { a.kill.Do(func() { close(a.killed) }) }

// stop withdraws the offer and leaves the cluster. Requests and sessions through the
// sidecar continue meanwhile: first the relays must learn to send nothing new.
func (a *Agent) stop() {
	a.stopping.Store(true)
	a.cfg.Logger.Info("draining: relays send no new requests", "delay", a.cfg.DrainDelay)
	_ = a.offering.drain(true, nil)                              // it fails only for unknown names, and there are no names
	a.catalogue.Leave(context.Background(), a.cfg.DrainDelay, 0) // an undrain cannot revoke it
}

// Close releases everything that New bound, for an agent that is not run. Run closes the
// agent itself.
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

// The results of reloads.
const (
	reloadApplied   = "applied"
	reloadUnchanged = "unchanged"
	reloadRefused   = "refused"
)

var states = [...]State{Offered, Unhealthy, Draining}

type metrics struct {
	services *prometheus.GaugeVec
	reloads  *prometheus.CounterVec
	refused  prometheus.Gauge // the last reload
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := metric.With(reg)
	m := &metrics{
		services: f.GaugeVec("ringway_worker_services", "Services of this worker, by what becomes of them: offered, unhealthy (relays do not know them), draining (relays send nothing new).", "state"),
		reloads:  f.CounterVec("ringway_worker_reloads_total", "Reloads of the services, by a signal, the admin API or a changed file: applied, unchanged, refused (nothing changed).", "result"),
		refused:  f.Gauge("ringway_worker_reload_refused", "1 if the last reload was refused: the settings or the services on disk are not in use."),
	}
	metric.StartAtZero(m.reloads, reloadApplied, reloadUnchanged, reloadRefused)
	m.count(nil)
	return m
}

func (m *metrics) count(services map[State]int) {
	for _, state := range states {
		m.services.WithLabelValues(string(state)).Set(float64(services[state]))
	}
}
