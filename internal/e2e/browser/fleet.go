package browser

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
)

const anyPort = "127.0.0.1:0"

// RelayConfig describes one relay of a fleet.
type RelayConfig struct {
	ID         string
	Gate       bool
	Datacenter string
	// RelaysPerService is how many relays serve a service; 0 is the default.
	RelaysPerService int
}

// WorkerConfig describes one worker of a fleet.
type WorkerConfig struct {
	ID         string
	Datacenter string
	// Services are what it offers, all of them by one backend.
	Services []string
	// Delay is the median time of an answer. Default 25 ms.
	Delay time.Duration
}

// Fleet is relays and workers in this process, over real sockets.
type Fleet struct {
	logger *slog.Logger

	mu      sync.Mutex // guards what follows
	relays  map[string]*member
	order   []string // of relays
	workers map[string]*member
}

// member is a relay or a worker that runs.
type member struct {
	relay   *relay.Relay
	agent   *worker.Agent
	backend *Backend
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
}

func (m *member) launch(run func(context.Context) error) *member {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.done = cancel, make(chan struct{})
	go func() {
		defer close(m.done)
		m.err = run(ctx)
	}()
	return m
}

func (m *member) stop() error {
	m.cancel()
	<-m.done
	if m.backend != nil {
		m.backend.Stop()
	}
	if errors.Is(m.err, worker.ErrKilled) {
		return nil
	}
	return m.err
}

// StartFleet starts relays, then workers. It does not wait until they have found each
// other. When it fails, nothing is left.
func StartFleet(relays []RelayConfig, workers []WorkerConfig) (*Fleet, error) {
	f := &Fleet{logger: slog.New(slog.DiscardHandler), relays: map[string]*member{}, workers: map[string]*member{}}
	for _, r := range relays {
		if err := f.StartRelay(r); err != nil {
			return nil, errors.Join(err, f.Stop())
		}
	}
	var group errgroup.Group
	for _, w := range workers {
		group.Go(func() error { return f.StartWorker(w) })
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

func (f *Fleet) seeds() (seeds []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range f.order {
		seeds = append(seeds, f.relays[id].relay.GossipAddr())
	}
	return seeds
}

// StartRelay starts a relay or gate that joins the others.
func (f *Fleet) StartRelay(cfg RelayConfig) error {
	s := relay.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join, s.Datacenter = "shop", "production", cfg.ID, f.seeds(), cfg.Datacenter
	if cfg.Gate {
		s.Role = membership.RoleGate
	}
	if cfg.RelaysPerService > 0 {
		s.RelaysPerService = cfg.RelaysPerService
	}
	s.GossipAddr, s.IngressAddr, s.PeerAddr, s.AdminAddr = anyPort, anyPort, anyPort, anyPort
	s.MemberGrace = 5 * time.Second
	s.DrainTimeout = 2 * time.Second
	c, err := s.Config(f.logger, prometheus.NewRegistry())
	if err != nil {
		return fmt.Errorf("configure %s: %w", cfg.ID, err)
	}
	c.ProbeDelay, c.Membership.LeaveTimeout = time.Millisecond, time.Second
	r, err := relay.New(c)
	if err != nil {
		return fmt.Errorf("start %s: %w", cfg.ID, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.relays[cfg.ID] = (&member{relay: r}).launch(r.Run)
	f.order = append(f.order, cfg.ID)
	return nil
}

// StartWorker starts a worker with a backend of its own.
func (f *Fleet) StartWorker(cfg WorkerConfig) error {
	if cfg.Delay == 0 {
		cfg.Delay = 25 * time.Millisecond
	}
	b, err := StartBackend(cfg.ID, cfg.Delay)
	if err != nil {
		return err
	}
	s := worker.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join, s.Datacenter = "shop", "production", cfg.ID, f.seeds(), cfg.Datacenter
	s.GossipAddr, s.AdminAddr, s.DrainDelay = anyPort, anyPort, 0
	c, err := s.Config(f.logger, prometheus.NewRegistry())
	if err == nil {
		c.Membership.LeaveTimeout = time.Second
		for _, name := range cfg.Services {
			c.Services = append(c.Services, worker.Service{Service: advertise.Service{Name: name, Address: b.Addr()}})
		}
		var agent *worker.Agent
		if agent, err = worker.New(c); err == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.workers[cfg.ID] = (&member{agent: agent, backend: b}).launch(agent.Run)
			return nil
		}
	}
	b.Stop()
	return fmt.Errorf("start %s: %w", cfg.ID, err)
}

// Kill ends a worker and its backend as kill -9 does.
func (f *Fleet) Kill(id string) error {
	f.mu.Lock()
	w := f.workers[id]
	delete(f.workers, id)
	f.mu.Unlock()
	w.backend.Stop()
	w.agent.Kill()
	<-w.done
	return w.stop()
}

// Drain has a worker ask for no more requests.
func (f *Fleet) Drain(ctx context.Context, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.WorkerURL(id)+"api/v1/drain", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("drain %s: %s", id, answer.Status)
	}
	return nil
}

// Fail has the backend of a worker answer every request with an error, or no more.
func (f *Fleet) Fail(id string, failing bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers[id].backend.failing.Store(failing)
}

// RelayURL is the status page of a relay, WorkerURL that of a worker.
func (f *Fleet) RelayURL(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return "http://" + f.relays[id].relay.AdminAddr() + "/"
}

// WorkerURL is the status page of a worker.
func (f *Fleet) WorkerURL(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return "http://" + f.workers[id].agent.AdminAddr() + "/"
}

// Ingresses are where the relays take requests.
func (f *Fleet) Ingresses() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range f.order {
		out = append(out, f.relays[id].relay.IngressAddr())
	}
	return out
}

// Stop ends every member in order and waits for all.
func (f *Fleet) Stop() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var group errgroup.Group
	for _, all := range []map[string]*member{f.workers, f.relays} {
		for _, m := range all {
			group.Go(m.stop)
		}
	}
	return group.Wait()
}
