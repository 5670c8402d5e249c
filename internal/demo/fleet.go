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
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// service is the service that all workers offer.
	service = "demo"
	// anyPort lets the system choose.
	anyPort = "127.0.0.1:0"
	// leaveTimeout and drainTimeout are short: gossip on loopback is fast, and a demo
	// should end quickly.
	leaveTimeout = time.Second
	drainTimeout = 3 * time.Second
)

// The streams of the seed, so that no two parts draw the same random numbers.
const (
	streamSlow = iota + 1
	streamArrivals
	streamVictims
	streamService // plus the index of the worker
)

// fleet has all relays and workers.
type fleet struct {
	seed     uint64
	logger   *slog.Logger
	security *security

	relays []*relayMember // not changed after start
	slow   []float64      // by index of the worker

	mu      sync.Mutex // guards workers, whose elements are replaced
	workers []*workerMember
}

type fleetConfig struct {
	// Relays and Workers are their numbers.
	Relays, Workers int
	// Seed determines the slow workers and the service times.
	Seed uint64
	// Logger gets the log of the members.
	Logger *slog.Logger
}

// running is a running member.
type running struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // the error of Run; set when done is closed
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

// startFleet starts all members, the workers concurrently. It does not wait until they have
// found each other. After an error nothing is left running.
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

// seeds returns the gossip addresses of the relays started so far.
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
	s.Requests.ExposeRouteHeaders = true // the clients count the answers of each worker
	s.DrainTimeout, s.SessionDrainTimeout = drainTimeout, drainTimeout
	cfg, err := s.Config(f.logger.With("node", id), prometheus.NewRegistry())
	if err == nil {
		err = f.security.equip(&cfg.Membership)
	}
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", id, err)
	}
	cfg.Membership.LeaveTimeout = leaveTimeout
	cfg.ProbeDelay = time.Millisecond // no load balancer probes the relays
	r, err := relay.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	return &relayMember{id: id, Relay: r, running: launch(r.Run)}, nil
}

// workerID is the id of the worker at an index. Its replacements have the same id.
func workerID(place int) string { return fmt.Sprintf("worker-%02d", place+1) }

// startWorker starts the worker at an index, with a new service on a new port.
func (f *fleet) startWorker(place int) error {
	id := workerID(place)
	b, err := startBackend(backendConfig{Worker: id, Slow: f.slow[place], Seed: f.seed, Stream: streamService + uint64(place)})
	if err != nil {
		return err
	}
	s := worker.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = "demo", "loopback", id, f.seeds()
	s.GossipAddr, s.AdminAddr, s.SidecarAddr = anyPort, anyPort, anyPort
	s.DrainDelay = 0 // the load has ended before a worker stops
	s.DrainTimeout, s.SessionDrainTimeout = drainTimeout, drainTimeout
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

// kill ends the worker at an index like kill -9 and waits until nothing of it is left. Only
// the killer calls kill, and then startWorker.
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

// stop stops the members in order and waits for all. The error joins the errors of the
// members.
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

// addresses returns the addresses of the relays.
func (f *fleet) addresses() (out []relayAddress) {
	for _, r := range f.relays {
		out = append(out, relayAddress{ID: r.id, Ingress: "http://" + r.IngressAddr(), Admin: "http://" + r.AdminAddr()})
	}
	return out
}

// security is the authority and the gossip key of the fleet. They exist in memory only and
// end with the demo.
type security struct {
	authority *identity.Authority
	key       []byte
}

// The certificates are valid longer than any demo, even one left running over a weekend.
const certificateLife = 7 * 24 * time.Hour

func newSecurity() (*security, error) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Name: "ringway demo", Validity: certificateLife + time.Hour})
	if err != nil {
		return nil, fmt.Errorf("make the demo's authority: %w", err)
	}
	key, err := membership.ParseKey(membership.GenerateKey())
	if err != nil {
		return nil, fmt.Errorf("make the demo's gossip key: %w", err)
	}
	return &security{authority, key}, nil
}

// equip gives a member its certificate and the gossip key.
func (s *security) equip(c *membership.Config) error {
	var err error
	c.Identity, err = s.authority.Source(identity.Claims{
		Role: c.Role, Cluster: c.Cluster, Environment: c.Environment, Node: c.ID,
	}, certificateLife)
	if err != nil {
		return err
	}
	c.Keyring, err = membership.NewKeyring(s.key)
	return err
}
