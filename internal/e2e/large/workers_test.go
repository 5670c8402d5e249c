//go:build unix

package large

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const (
	cluster, environment = "large", "test"
	service              = "echo"
	// rowSize is how many relays a worker should have sessions with.
	rowSize = 3
	// away is how long a worker that was ended stays away.
	away = 3 * time.Second
)

// processConfig is the configuration that a process of workers gets by the environment.
type processConfig struct {
	Control     string   // where it answers
	First, Last int      // numbers of its workers
	Attach      []string // peer addresses of relays
	Authority   string   // the directory of ca.crt and ca.key
	PerSecond   float64  // how many workers it starts in a second
	PerMinute   float64  // how many workers it replaces in a minute while it is asked to
}

// state is the answer to GET /state.
type state struct {
	Running, Whole int
	// Late counts how long workers had another number of sessions than they should, from the change
	// until it was right again: up to 1 s, 2 s, 5 s, and longer.
	Late    [4]int
	Longest time.Duration
}

// workers are the workers of one process.
type workers struct {
	cfg       processConfig
	authority *identity.Authority
	all       []*worker
	churn     chan bool

	mu   sync.Mutex
	late state // without Running and Whole
}

// worker is one worker, which may be ended and started again.
type worker struct {
	of     *workers
	id     string
	host   string // of its service: an address of loopback of its own
	source *identity.Source

	mu    sync.Mutex
	end   func(leave bool) // nil while it is away
	since time.Time        // since when it has another number of sessions; zero: it has the right one
}

// serveWorkers is the whole process.
func serveWorkers(config string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w := &workers{churn: make(chan bool, 1)}
	if err := json.Unmarshal([]byte(config), &w.cfg); err != nil {
		return err
	}
	certificate, err := os.ReadFile(filepath.Join(w.cfg.Authority, "ca.crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(filepath.Join(w.cfg.Authority, "ca.key"))
	if err != nil {
		return err
	}
	if w.authority, err = identity.LoadAuthority(certificate, key, time.Now); err != nil {
		return err
	}
	for n := w.cfg.First; n <= w.cfg.Last; n++ {
		one := &worker{of: w, id: fmt.Sprintf("w%05d", n), host: fmt.Sprintf("127.%d.%d.%d", 1+n>>16, n>>8&0xff, n&0xff)}
		claims := identity.Claims{Cluster: cluster, Environment: environment, Role: identity.RoleWorker, Node: one.id}
		if one.source, err = w.authority.Source(claims, 24*time.Hour); err != nil {
			return err
		}
		w.all = append(w.all, one)
	}
	listener, err := net.Listen("tcp", w.cfg.Control)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: w.control()}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	running.Go(func() { w.run(ctx) })
	<-ctx.Done()
	_ = server.Close()
	running.Wait()
	return nil
}

func (w *workers) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(out http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(out).Encode(w.state()) })
	mux.HandleFunc("POST /churn", func(http.ResponseWriter, *http.Request) {
		w.mu.Lock()
		w.late = state{}
		w.mu.Unlock()
		w.churn <- true
	})
	mux.HandleFunc("POST /rest", func(http.ResponseWriter, *http.Request) { w.churn <- false })
	return mux
}

// run starts all workers, and then replaces some while it is asked to.
func (w *workers) run(ctx context.Context) {
	pace := time.NewTicker(time.Duration(float64(time.Second) / w.cfg.PerSecond))
	for _, one := range w.all {
		select {
		case <-pace.C:
			one.start(ctx)
		case <-ctx.Done():
		}
	}
	pace.Stop()
	replace := time.NewTicker(time.Duration(float64(time.Minute) / w.cfg.PerMinute))
	defer replace.Stop()
	churn, n := false, 0
	var restarting sync.WaitGroup
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case churn = <-w.churn:
		case <-replace.C:
			one := w.all[rand.IntN(len(w.all))]
			if n++; churn && one.stop(n%2 == 0) { // every other one announces that it leaves
				restarting.Go(func() {
					select {
					case <-time.After(away):
						one.start(ctx)
					case <-ctx.Done():
					}
				})
			}
		}
	}
	restarting.Wait()
	for _, one := range w.all {
		one.stop(false)
	}
}

func (w *workers) state() state {
	w.mu.Lock()
	s := w.late
	w.mu.Unlock()
	for _, one := range w.all {
		one.mu.Lock()
		if one.end != nil {
			s.Running++
			if one.since.IsZero() {
				s.Whole++
			} else {
				s.Longest = max(s.Longest, time.Since(one.since))
			}
		}
		one.mu.Unlock()
	}
	return s
}

// start starts a new life of the worker.
func (o *worker) start(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	socket, err := net.Listen("tcp", net.JoinHostPort(o.host, "0"))
	if err != nil {
		panic(err)
	}
	client, err := session.NewClient(session.Config{Seeds: o.of.cfg.Attach, Member: membership.Config{
		Cluster: cluster, Environment: environment, ID: o.id, Role: identity.RoleWorker, Identity: o.source,
	}})
	if err != nil {
		panic(err)
	}
	catalogue, err := advertise.New(advertise.Config{Gossip: client})
	if err == nil {
		err = catalogue.Offer([]advertise.Service{{Name: service, Address: socket.Addr().String(), Secured: true}})
	}
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		panic(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(out, o.id) })}
	var running sync.WaitGroup
	running.Go(func() { _ = catalogue.Run(ctx) })
	running.Go(func() {
		_ = server.Serve(tls.NewListener(o.source.Listener(socket), o.source.ServerConfig(o.source.Policy(identity.DataPlane), "h2", "http/1.1")))
	})
	running.Go(func() {
		for snapshot := range client.Watch(ctx) {
			o.has(len(snapshot.Members()) - 1)
		}
	})
	o.since = time.Now()
	o.end = func(leave bool) {
		if leave {
			_ = client.Leave(ctx) // its error names the reason, and then the worker counts as failed
		}
		cancel()
		_ = client.Close()
		_ = server.Close()
		running.Wait()
	}
}

// stop ends the worker and returns false if it is away.
func (o *worker) stop(leave bool) bool {
	o.mu.Lock()
	end := o.end
	o.end = nil
	o.mu.Unlock()
	if end != nil {
		end(leave)
	}
	return end != nil
}

// has takes the number of relays that the worker has a session with.
func (o *worker) has(relays int) {
	o.mu.Lock()
	late, now := time.Duration(0), time.Now()
	switch {
	case o.end == nil: // it ends
	case relays != rowSize && o.since.IsZero():
		o.since = now
	case relays == rowSize && !o.since.IsZero():
		late, o.since = now.Sub(o.since), time.Time{}
	}
	o.mu.Unlock()
	if late == 0 {
		return
	}
	w := o.of
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late.Longest = max(w.late.Longest, late)
	for i, bound := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, time.Hour} {
		if late <= bound {
			w.late.Late[i]++
			break
		}
	}
}
