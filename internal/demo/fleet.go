package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
)

const (
	// service is the one that all workers offer.
	service = "demo"
	// anyPort lets the system choose.
	anyPort = "127.0.0.1:0"
	// leaveTimeout and drainTimeout are short: on loopback news travels fast, and
	// nobody wants to wait for a demo to end.
	leaveTimeout = time.Second
	drainTimeout = 3 * time.Second
)

// streams of the seed, so that no two parts draw the same numbers.
const (
	streamSlow = iota + 1
	streamArrivals
	streamVictims
	streamService // plus the place of the worker
)

// fleet is all relays and workers.
type fleet struct {
	seed     uint64
	logger   *slog.Logger
	security *security

	relays []*relayMember // fixed after start
	slow   []float64      // by place of the worker

	mu      sync.Mutex // guards workers, whose elements are replaced
	workers []*workerMember
}

type fleetConfig struct {
	// Relays and Workers are how many of each there are.
	Relays, Workers int
	// Seed decides which workers are slow, and the service times.
	Seed uint64
	// Logger gets what the members log.
	Logger *slog.Logger
}

// running is a member that runs.
type running struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // what Run returned; set when done is closed
}

func launch(run func(context.Context) error) *running {
	ctx, stop := context.WithCancel(context.Background())
	r := &running{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = run(ctx)
	}()
	return r
}

type relayMember struct {
	id string
	*relay.Relay
	*running
}

type workerMember struct {
	id      string
	agent   *worker.Agent
	backend *backend
	*running
}

// startFleet starts all members, the workers concurrently. It does not wait
// until they have found each other. When it fails, nothing is left.
func startFleet(cfg fleetConfig) (*fleet, error) {
	security, err := newSecurity()
	if err != nil {
		return nil, err
	}
	f := &fleet{seed: cfg.Seed, logger: cfg.Logger, security: security, workers: make([]*workerMember, cfg.Workers)}
	f.slow = slowFactors(cfg.Workers, rand.New(rand.NewPCG(cfg.Seed, streamSlow)))
	for i := range cfg.Relays {
		m, err := f.startRelay(fmt.Sprintf("relay-%d", i+1))
		if err != nil {
			return nil, errors.Join(err, f.stop())
		}
		f.relays = append(f.relays, m)
	}
	var group errgroup.Group
	for place := range f.workers {
		group.Go(func() error { return f.startWorker(place) })
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, f.stop())
	}
	return f, nil
}

// slowFactors makes one worker in six slow.
func slowFactors(workers int, rng *rand.Rand) []float64 {
	factors := slices.Repeat([]float64{1}, workers)
	for _, place := range rng.Perm(workers)[:workers/6] {
		factors[place] = slowFactor
	}
	return factors
}

// seeds are the gossip addresses of the relays started so far.
func (f *fleet) seeds() []string {
	var seeds []string
	for _, r := range f.relays {
		seeds = append(seeds, r.GossipAddr())
	}
	return seeds
}

func (f *fleet) startRelay(id string) (*relayMember, error) {
	s := relay.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = "demo", "loopback", id, f.seeds()
	s.GossipAddr, s.IngressAddr, s.PeerAddr, s.AdminAddr = anyPort, anyPort, anyPort, anyPort
	s.ExposeRouteHeaders = true // the clients count by worker
	s.DrainTimeout, s.SessionDrainTimeout = drainTimeout, drainTimeout
	cfg, err := s.Config(f.logger.With("node", id), prometheus.NewRegistry())
	if err == nil {
		err = f.security.equip(&cfg.Membership)
	}
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", id, err)
	}
	cfg.Membership.LeaveTimeout = leaveTimeout
	cfg.ProbeDelay = time.Millisecond // no load balancer looks
	r, err := relay.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	return &relayMember{id: id, Relay: r, running: launch(r.Run)}, nil
}

// workerID is the name of the worker at a place, which outlives its deaths.
func workerID(place int) string { return fmt.Sprintf("worker-%02d", place+1) }

// startWorker starts the worker of a place, with a new service on a new port.
func (f *fleet) startWorker(place int) error {
	id := workerID(place)
	b, err := startBackend(backendConfig{Worker: id, Slow: f.slow[place], Seed: f.seed, Stream: streamService + uint64(place)})
	if err != nil {
		return err
	}
	s := worker.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = "demo", "loopback", id, f.seeds()
	s.GossipAddr, s.AdminAddr, s.SidecarAddr = anyPort, anyPort, anyPort
	s.DrainDelay = 0 // the load has ended before a worker is told to stop
	cfg, err := s.Config(f.logger.With("node", id), prometheus.NewRegistry())
	if err == nil {
		err = f.security.equip(&cfg.Membership)
	}
	if err == nil {
		cfg.Membership.LeaveTimeout = leaveTimeout
		cfg.Services = []worker.Service{{Service: advertise.Service{Name: service, Address: b.Addr()}}}
		var agent *worker.Agent
		if agent, err = worker.New(cfg); err == nil {
			f.mu.Lock()
			f.workers[place] = &workerMember{id: id, agent: agent, backend: b, running: launch(agent.Run)}
			f.mu.Unlock()
			return nil
		}
	}
	b.die()
	return fmt.Errorf("start %s: %w", id, err)
}

// kill ends the worker of a place like kill -9, and waits for its remains. Only
// the killer calls it, and startWorker after it.
func (f *fleet) kill(place int) error {
	f.mu.Lock()
	w := f.workers[place]
	f.workers[place] = nil
	f.mu.Unlock()
	w.agent.Kill()
	w.backend.die()
	<-w.done
	w.stop()
	if !errors.Is(w.err, worker.ErrKilled) {
		return fmt.Errorf("%s ended before it was killed: %w", w.id, w.err)
	}
	return nil
}

// stop ends every member in order and waits for all. The error has what any of
// them returned.
func (f *fleet) stop() error {
	f.mu.Lock()
	workers := slices.DeleteFunc(slices.Clone(f.workers), func(w *workerMember) bool { return w == nil })
	f.mu.Unlock()
	var all []*running
	for _, r := range f.relays {
		all = append(all, r.running)
	}
	for _, w := range workers {
		all = append(all, w.running)
	}
	for _, r := range all {
		r.stop()
	}
	var errs []error
	for _, r := range all {
		<-r.done
		errs = append(errs, r.err)
	}
	for _, w := range workers {
		w.backend.die()
	}
	return errors.Join(errs...)
}

// addresses says where the relays are reached.
func (f *fleet) addresses() (out []relayAddress) {
	for _, r := range f.relays {
		out = append(out, relayAddress{ID: r.id, Ingress: "http://" + r.IngressAddr(), Admin: "http://" + r.AdminAddr()})
	}
	return out
}
