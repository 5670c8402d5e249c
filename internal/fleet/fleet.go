package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// anyPort lets the system choose.
	anyPort = "127.0.0.1:0"
	// leaveTimeout and drainTimeout are short: gossip on loopback is fast, and a fleet in
	// one process should end quickly.
	leaveTimeout = time.Second
	drainTimeout = 3 * time.Second
	// certificateLife is longer than any fleet, even one left running over a weekend.
	certificateLife = 7 * 24 * time.Hour
)

// Fleet is the relays and workers of one cluster.
type Fleet struct {
	cfg      Config
	security func() (security, error)

	mu      sync.Mutex // guards the fields below
	relays  []*Relay
	workers []*Worker
}

// Config configures a Fleet.
type Config struct {
	Cluster, Environment string
	// Insecure members have no certificates and do not encrypt gossip.
	Insecure bool
	// Seeds are gossip addresses of members that are not of this fleet, but of its cluster.
	Seeds []string
	// Logger gets the log of the members. Default: none.
	Logger *slog.Logger
}

// Relay is a relay of a fleet.
type Relay struct {
	*relay.Relay
	*running
}

// Worker is a worker of a fleet.
type Worker struct {
	*worker.Agent
	*running
	service *loadgen.Service // nil: it has none of its own
}

// running is a member that runs.
type running struct {
	id   string
	stop context.CancelFunc
	done chan struct{}
	err  error // the error of Run; set when done is closed
}

func launch(id string, run func(context.Context) error) *running {
	ctx, stop := context.WithCancel(context.Background())
	r := &running{id: id, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = run(ctx)
	}()
	return r
}

// ID returns the id of the member.
func (r *running) ID() string { return r.id }

// New returns a fleet without members.
func New(cfg Config) *Fleet {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Fleet{cfg: cfg, security: sync.OnceValues(newSecurity)}
}

// security is the authority and the gossip key of a fleet. The first member makes it.
type security struct {
	authority *identity.Authority
	key       []byte
}

func newSecurity() (s security, err error) {
	if s.authority, err = identity.NewAuthority(identity.AuthorityConfig{Name: "ringway fleet", Validity: certificateLife + time.Hour}); err != nil {
		return s, fmt.Errorf("make the authority of the fleet: %w", err)
	}
	if s.key, err = membership.ParseKey(membership.GenerateKey()); err != nil {
		return s, fmt.Errorf("make the gossip key of the fleet: %w", err)
	}
	return s, nil
}

// Equip gives a member its certificate and the gossip key.
func (f *Fleet) Equip(c *membership.Config) error {
	c.LeaveTimeout = leaveTimeout
	if f.cfg.Insecure {
		return nil
	}
	s, err := f.security()
	if err != nil {
		return err
	}
	claims := identity.Claims{Role: c.Role, Cluster: c.Cluster, Environment: c.Environment, Node: c.ID}
	if c.Identity, err = s.authority.Source(claims, certificateLife); err != nil {
		return err
	}
	c.Keyring, err = membership.NewKeyring(s.key)
	return err
}

func (f *Fleet) seeds() []string {
	seeds := slices.Clone(f.cfg.Seeds)
	for _, r := range f.Relays() {
		seeds = append(seeds, r.GossipAddr())
	}
	return seeds
}

// Relays returns the relays in the order of their start.
func (f *Fleet) Relays() []*Relay {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.relays)
}

// Relay returns the relay with an id, or nil.
func (f *Fleet) Relay(id string) *Relay {
	f.mu.Lock()
	defer f.mu.Unlock()
	return find(f.relays, id)
}

// Worker returns the running worker with an id, or nil.
func (f *Fleet) Worker(id string) *Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return find(f.workers, id)
}

func find[M interface{ ID() string }](members []M, id string) (none M) {
	if i := slices.IndexFunc(members, func(m M) bool { return m.ID() == id }); i >= 0 {
		return members[i]
	}
	return none
}

// StartRelay starts a relay, or a gate if change sets that role. change may be nil.
func (f *Fleet) StartRelay(id string, change func(*relay.Settings)) error {
	s := relay.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = f.cfg.Cluster, f.cfg.Environment, id, f.seeds()
	s.GossipAddr, s.IngressAddrs, s.PeerAddr, s.AdminAddr = anyPort, []string{anyPort}, anyPort, anyPort
	s.DrainTimeout, s.SessionDrainTimeout = drainTimeout, drainTimeout
	if change != nil {
		change(&s)
	}
	cfg, err := s.Config(f.cfg.Logger.With("node", id), prometheus.NewRegistry())
	if err == nil {
		err = f.Equip(&cfg.Membership)
	}
	if err != nil {
		return fmt.Errorf("configure %s: %w", id, err)
	}
	cfg.ProbeDelay = time.Millisecond // no load balancer probes the relays
	r, err := relay.New(cfg)
	if err != nil {
		return fmt.Errorf("start %s: %w", id, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.relays = append(f.relays, &Relay{r, launch(id, r.Run)})
	return nil
}

// WorkerConfig configures a worker.
type WorkerConfig struct {
	ID string
	// Handler answers for Services on a new port, and dies with the worker. nil: the worker
	// offers what Change sets.
	Handler  http.Handler
	Services []string
	// Change changes the settings. Default: nothing.
	Change func(*worker.Settings)
}

// StartWorker starts a worker. Several may be started concurrently.
func (f *Fleet) StartWorker(c WorkerConfig) (err error) {
	s := worker.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = f.cfg.Cluster, f.cfg.Environment, c.ID, f.seeds()
	s.GossipAddr, s.AdminAddr, s.SidecarAddr = anyPort, anyPort, anyPort
	s.DrainDelay = 0 // the load of a fleet ends before the fleet
	s.DrainTimeout, s.SessionDrainTimeout = drainTimeout, drainTimeout
	w := &Worker{}
	if c.Handler != nil {
		if w.service, err = loadgen.Serve(c.Handler); err != nil {
			return err
		}
		for _, name := range c.Services {
			s.Services = append(s.Services, name+"="+w.service.Addr())
		}
	}
	if c.Change != nil {
		c.Change(&s)
	}
	cfg, err := s.Config(f.cfg.Logger.With("node", c.ID), prometheus.NewRegistry())
	if err == nil {
		err = f.Equip(&cfg.Membership)
	}
	if err == nil {
		w.Agent, err = worker.New(cfg)
	}
	if err != nil {
		w.die()
		return fmt.Errorf("start %s: %w", c.ID, err)
	}
	w.running = launch(c.ID, w.Run)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers = append(f.workers, w)
	return nil
}

func (w *Worker) die() {
	if w.service != nil {
		w.service.Die()
	}
}

// Kill ends a worker and its service like kill -9 and waits until nothing of it is left.
func (f *Fleet) Kill(id string) error {
	f.mu.Lock()
	w := find(f.workers, id)
	f.workers = slices.DeleteFunc(f.workers, func(other *Worker) bool { return other == w })
	f.mu.Unlock()
	w.Agent.Kill()
	w.die()
	<-w.done
	w.stop()
	if !errors.Is(w.err, worker.ErrKilled) {
		return fmt.Errorf("%s ended before it was killed: %w", w.id, w.err)
	}
	return nil
}

// Drain drains a worker by its admin API.
func (f *Fleet) Drain(id string) error {
	resp, err := http.Post("http://"+f.Worker(id).AdminAddr()+"/api/v1/drain", "", nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("drain %s: %s", id, resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// Stop stops the members in order and waits for all. The error joins the errors of the
// members.
func (f *Fleet) Stop() error {
	f.mu.Lock()
	relays, workers := f.relays, f.workers
	f.relays, f.workers = nil, nil
	f.mu.Unlock()
	var all []*running
	for _, r := range relays {
		all = append(all, r.running)
	}
	for _, w := range workers {
		all = append(all, w.running)
	}
	var errs []error
	for _, r := range all {
		r.stop()
	}
	for _, r := range all {
		<-r.done
		errs = append(errs, r.err)
	}
	for _, w := range workers {
		w.die()
	}
	return errors.Join(errs...)
}
