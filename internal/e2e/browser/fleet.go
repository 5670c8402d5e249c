package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
)

const anyPort = "127.0.0.1:0"

// RelayConfig describes one relay of a fleet.
type RelayConfig struct {
	ID         string
	Gate       bool
	Datacenter string
	// RelaysPerService is the number of relays that serve a service; 0 is the default.
	RelaysPerService int
}

// WorkerConfig describes one worker of a fleet.
type WorkerConfig struct {
	ID         string
	Datacenter string
	// Services are the services that the worker offers, all with the same backend.
	Services []string
	// Delay is the median time of an answer. Default 25 ms.
	Delay time.Duration
}

// Fleet has relays and workers in this process, connected by real sockets.
type Fleet struct {
	logger *slog.Logger

	mu      sync.Mutex // guards the fields below
	relays  map[string]*member
	order   []string // of the relays
	workers map[string]*member
}

// member is a running relay or worker.
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
// other. After an error nothing is left running.
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
		s.Plans.RelaysPerService = cfg.RelaysPerService
	}
	s.GossipAddr, s.IngressAddr, s.PeerAddr, s.AdminAddr = anyPort, anyPort, anyPort, anyPort
	s.Links.Grace = 5 * time.Second
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

// StartWorker starts a worker with its own backend.
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

// Kill ends a worker and its backend like kill -9.
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

// Drain drains a worker through its admin API.
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

// Fail sets whether the backend of a worker answers every request with an error.
func (f *Fleet) Fail(id string, failing bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers[id].backend.failing.Store(failing)
}

// RelayURL returns the URL of the status page of a relay.
func (f *Fleet) RelayURL(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return "http://" + f.relays[id].relay.AdminAddr() + "/"
}

// WorkerURL returns the URL of the status page of a worker.
func (f *Fleet) WorkerURL(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return "http://" + f.workers[id].agent.AdminAddr() + "/"
}

// Ingresses returns the addresses at which the relays accept requests.
func (f *Fleet) Ingresses() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range f.order {
		out = append(out, f.relays[id].relay.IngressAddr())
	}
	return out
}

// Stop stops the members in order and waits for all.
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

// Backend is a service next to a worker.
type Backend struct {
	name    string
	delay   time.Duration
	failing atomic.Bool
	socket  net.Listener
	server  *http.Server
	done    chan struct{}
}

// StartBackend serves on a free port of loopback until Stop. The median time of its answers
// is delay.
func StartBackend(name string, delay time.Duration) (*Backend, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the service of %s: %w", name, err)
	}
	b := &Backend{name: name, delay: delay, socket: socket, done: make(chan struct{})}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(b.done)
		_ = b.server.Serve(socket) // it ends with Stop, and its error reports only that
	}()
	return b, nil
}

// Addr returns the address of the service.
func (b *Backend) Addr() string { return b.socket.Addr().String() }

// Stop closes every connection immediately and waits for the server to end.
func (b *Backend) Stop() {
	_ = b.server.Close() // only errors of closing a socket
	<-b.done
}

// ServeHTTP answers after a time distributed as in real services: most times are near the
// median, a few are several times as long.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	timer := time.NewTimer(time.Duration(float64(b.delay) * math.Exp(0.35*rand.NormFloat64())))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	if b.failing.Load() {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, b.name+"\n") // an error concerns only the connection of the client
}

// LoadConfig describes a load.
type LoadConfig struct {
	// Targets are the ingress addresses, used in turn.
	Targets []string
	// Services are chosen at random; one that is listed twice gets twice the requests.
	Services []string
	// PerSecond is the number of requests per second, with exponential gaps.
	PerSecond float64
}

// Load sends requests until ctx ends, and then waits for those in flight. It ignores their
// results.
func Load(ctx context.Context, cfg LoadConfig) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	defer wg.Wait()
	under := make(chan struct{}, 256)
	for n := 0; ; n++ {
		wait := time.NewTimer(time.Duration(rand.ExpFloat64() / cfg.PerSecond * float64(time.Second)))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		select {
		case under <- struct{}{}:
		default:
			continue // too many are in flight: this one is not sent
		}
		wg.Go(func() {
			defer func() { <-under }()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+cfg.Targets[n%len(cfg.Targets)]+"/", nil)
			if err != nil {
				return
			}
			req.Header.Set(wire.ServiceHeader, cfg.Services[rand.IntN(len(cfg.Services))])
			answer, err := client.Do(req)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		})
	}
}
