package relay

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait for gossip far more than they compute.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	// A probe of memberlist ends by itself within a second of the shutdown.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// patience bounds every wait of these tests. They wait for states, so it is
// reached only when something is broken.
const patience = 30 * time.Second

// fleet is relays and workers of one cluster, in this process, over real
// sockets.
type fleet struct {
	t      testing.TB
	ctx    context.Context
	relays []*runningRelay
	// secure equips every member; nil for none.
	secure       func(*membership.Config)
	pendingPeers handshake.PendingConfig // of every relay
	// emptyAfter of every relay. By default relays do not wait for the first service.
	emptyAfter time.Duration
	// trafficMemory of every relay. Default: the relay's own.
	trafficMemory time.Duration
}

type runningRelay struct {
	*Relay
	id   string
	stop func() error
	log  *logtest.Log
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	return &fleet{t: t, ctx: t.Context(), emptyAfter: time.Nanosecond}
}

func (f *fleet) seeds() []string {
	var seeds []string
	for _, r := range f.relays {
		seeds = append(seeds, r.GossipAddr())
	}
	return seeds
}

// relay starts a relay that stops with the test.
func (f *fleet) relay(change func(*Settings)) *runningRelay {
	f.t.Helper()
	id := fmt.Sprintf("r%d", len(f.relays)+1)
	s := DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = "test", "ci", id, f.seeds()
	s.GossipAddr, s.IngressAddrs, s.PeerAddr, s.AdminAddr = anyPort, []string{anyPort}, anyPort, anyPort
	change(&s)
	out, level := &logtest.Log{}, slog.LevelInfo
	if s.LogLevel == "debug" { // the log then explains each pick, which takes most of the time
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	cfg, err := s.Config(logger, prometheus.NewRegistry())
	if err != nil {
		f.t.Fatal(err)
	}
	if f.secure != nil {
		f.secure(&cfg.Membership)
	}
	cfg.ProbeDelay, cfg.PendingPeers, cfg.EmptyAfter = time.Millisecond, f.pendingPeers, f.emptyAfter
	cfg.TrafficMemory = f.trafficMemory
	r, err := New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	rr := &runningRelay{Relay: r, id: s.ID, stop: f.run(r), log: out}
	f.relays = append(f.relays, rr)
	return rr
}

type runner interface {
	Run(ctx context.Context) error
}

// run runs r until the returned function, or the end of the test, stops it.
func (f *fleet) run(r runner) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	f.t.Cleanup(func() {
		if err := stop(); err != nil {
			f.t.Errorf("run: %v", err)
		}
	})
	return stop
}

// worker offers services at their addresses.
func (f *fleet) worker(id string, services ...advertise.Service) (stop func() error) {
	f.t.Helper()
	s := worker.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = "test", "ci", id, f.seeds()
	s.GossipAddr, s.AdminAddr, s.DrainDelay = anyPort, anyPort, 300*time.Millisecond
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		f.t.Fatal(err)
	}
	if f.secure != nil {
		f.secure(&cfg.Membership)
		cfg.SidecarAddr = anyPort
	}
	for _, service := range services {
		cfg.Services = append(cfg.Services, worker.Service{Service: service})
	}
	a, err := worker.New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.run(a)
}

const anyPort = "127.0.0.1:0"

// echo offers a backend that answers with name.
func (f *fleet) echo(name string) (stop func() error, backend *httptest.Server) {
	f.t.Helper()
	backend = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Worker", name)
		_, _ = io.WriteString(w, name)
	}))
	f.t.Cleanup(backend.Close)
	return f.worker(name, service("echo", backend)), backend
}

func service(name string, backend *httptest.Server) advertise.Service {
	return advertise.Service{Name: name, Address: backend.Listener.Addr().String()}
}

// settled waits until the relay is ready and sees n endpoints of the service.
func (r *runningRelay) settled(t testing.TB, name string, n int) {
	t.Helper()
	r.await(t, fmt.Sprintf("%d endpoints of %s", n, name), func() bool {
		s, ok := r.Routes.Service(name)
		return ok && len(s.Route().Endpoints) == n && len(r.Reasons()) == 0
	})
}

func (r *runningRelay) await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("%s never saw %s; not ready because %v\n%s", r.id, what, r.Reasons(), r.log)
		}
		time.Sleep(5 * time.Millisecond) // polls a state; nothing depends on how long
	}
}

// call sends one request to the relay's ingress.
func (r *runningRelay) call(t testing.TB, method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.IngressAddr()+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	return do(t, req)
}

func do(t testing.TB, req *http.Request) (*http.Response, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// admin reads a path of the admin API into v, when v is not nil.
func (r *runningRelay) api(t testing.TB, path string, v any) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.AdminAddr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, body := do(t, req)
	if v != nil {
		if err := json.Unmarshal([]byte(body), v); err != nil {
			t.Fatalf("%s: %v in %s", path, err, body)
		}
	}
	return resp.StatusCode, body
}

// refusing is an address where nothing listens.
func refusing(t testing.TB) string {
	t.Helper()
	ln, _, err := bind(anyPort) // and held, so that no other test gets the port
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}
