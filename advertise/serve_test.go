package advertise_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// served is a service of a program behind a relay.
type served struct {
	t     *testing.T
	relay *fleet.Relay
	addr  string // of the service
	stop  context.CancelFunc
	done  chan error
}

func serve(t *testing.T, insecure bool, handler http.HandlerFunc) *served {
	return serveService(t, insecure, advertise.Service{}, handler)
}

// serveService is serve of a service with more settings.
func serveService(t *testing.T, insecure bool, service advertise.Service, handler http.HandlerFunc) *served {
	return serveOn(t, procs.Listen(t), insecure, service, handler)
}

// serveOn is serveService on a socket.
func serveOn(t *testing.T, socket net.Listener, insecure bool, service advertise.Service, handler http.HandlerFunc) *served {
	f := fleet.New(fleet.Config{Cluster: "shop", Environment: "dev", Insecure: insecure})
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := f.StartRelay("relay-1", func(s *relay.Settings) { s.Requests.Domain, s.Requests.ExposeRouteHeaders = ".", true }); err != nil {
		t.Fatal(err)
	}
	member := membership.Config{Cluster: "shop", Environment: "dev", ID: "echo-1", Role: identity.RoleWorker}
	if err := f.Equip(&member); err != nil {
		t.Fatal(err)
	}
	addr := socket.Addr().String()
	service.Name, service.Address, service.Secured = "echo", addr, !insecure
	a, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: member.Cluster, Environment: member.Environment, ID: member.ID, Identity: member.Identity, Keyring: member.Keyring,
		BindAddr: "127.0.0.1:0", Seeds: []string{f.Relay("relay-1").GossipAddr()}, DrainDelay: time.Millisecond,
		Services: []advertise.Service{service},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &served{t, f.Relay("relay-1"), addr, stop, make(chan error, 1)}
	go func() { s.done <- a.Serve(ctx, socket, &http.Server{Handler: handler}); close(s.done) }()
	t.Cleanup(func() {
		stop()
		if err := <-s.done; err != nil {
			t.Error(err)
		}
	})
	procs.Await(t, "an answer through the relay", func() bool {
		resp, _ := s.get("/")
		return resp != nil && resp.StatusCode == http.StatusOK
	})
	return s
}

// get sends a request through the relay.
func (s *served) get(path string) (*http.Response, string) {
	req, _ := http.NewRequest(http.MethodGet, "http://"+s.relay.IngressAddr()+path, nil)
	req.Header.Set("Ringway-Service", "echo")
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

func TestAServerStopsWithoutALostRequest(t *testing.T) {
	t.Parallel()
	for name, insecure := range map[string]bool{"certificates": false, "clear text": true} {
		t.Run(name, func(t *testing.T) {
			arrived, release := make(chan struct{}), make(chan struct{})
			s := serve(t, insecure, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					close(arrived)
					<-release
				}
				_, _ = io.WriteString(w, "hello")
			})
			var waiting sync.WaitGroup
			waiting.Go(func() {
				if resp, body := s.get("/wait"); resp == nil || resp.StatusCode != http.StatusOK {
					t.Errorf("the request in flight: %s", body)
				}
			})
			<-arrived
			s.stop()
			for { // until the relay knows that it has left
				if resp, body := s.get("/"); resp == nil || resp.StatusCode != http.StatusOK {
					if !strings.Contains(body, "no_endpoint") && !strings.Contains(body, "unknown_service") {
						t.Errorf("while the service leaves: %s", body)
					}
					break
				}
			}
			close(release)
			waiting.Wait()
		})
	}
}

// lacking is a socket of a host that lacks memory for some connections.
type lacking struct {
	net.Listener
	left atomic.Int64
}

func (l *lacking) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.ENOMEM)}
	}
	return l.Listener.Accept()
}

func TestAShortageEndsNoServer(t *testing.T) {
	t.Parallel()
	for name, insecure := range map[string]bool{"certificates": false, "clear text": true} {
		t.Run(name, func(t *testing.T) {
			socket := &lacking{Listener: procs.Listen(t)}
			socket.left.Store(3)
			serveOn(t, socket, insecure, advertise.Service{}, func(http.ResponseWriter, *http.Request) {})
		})
	}
}

func TestOnlyRelaysReachAServerWithAnIdentity(t *testing.T) {
	t.Parallel()
	s := serve(t, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	if resp, err := http.Get("http://" + s.addr); err == nil {
		_ = resp.Body.Close()
		t.Error("answered in clear text")
	}
	stranger := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	if resp, err := stranger.Get("https://" + s.addr); err == nil {
		_ = resp.Body.Close()
		t.Error("answered without a certificate")
	}
}

func TestAServerReportsItsOtherRequestsToRelaysOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/busy":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/broken":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/own":
			w.Header().Set("Ringway-Load", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/flushed":
			w.(http.Flusher).Flush()
		case "/written":
			_, _ = io.WriteString(w, "hello")
		case "/hints":
			w.WriteHeader(http.StatusEarlyHints)
		}
	})
	for path, want := range map[string]string{
		"/": "0", "/written": "0", "/flushed": "0", "/hints": "0", "/busy": "0", "/own": "7",
		"/broken": "", // a relay would take a failure for a sign of load
	} {
		direct, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(mustGet(t, "http://"+s.addr+path))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, direct.Body) // its end comes after the handler has returned
		_ = direct.Body.Close()
		if got := direct.Header.Get("Ringway-Load"); got != want {
			t.Errorf("%s: load %q, want %q", path, got, want)
		}
	}
	if resp, _ := s.get("/written"); resp == nil || resp.Header.Get("Ringway-Load") != "" {
		t.Error("the client got the load")
	}
}

func TestA503OfAServerIsAFailureOfItsEndpoint(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	s := serve(t, true, func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "no database", http.StatusServiceUnavailable)
		}
	})
	broken.Store(true)
	failures := func() (n int) {
		service, _ := s.relay.Routes.Service("echo")
		for _, e := range service.Endpoints.Stats(0) {
			n += int(e.Failures)
		}
		return n
	}
	for range 10 {
		s.get("/")
	}
	if failures() == 0 {
		t.Error("ten answers with 503 are no failures of the endpoint")
	}
}

func TestASecuredServerIsHeldToItsSlots(t *testing.T) {
	t.Parallel()
	var inFlight, most atomic.Int64
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	s := serveService(t, false, advertise.Service{Slots: 1}, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/wait" {
			return
		}
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		most.Store(max(most.Load(), n))
		arrived <- struct{}{}
		<-release
	})
	var first sync.WaitGroup
	first.Go(func() {
		if resp, body := s.get("/wait"); resp == nil || resp.StatusCode != http.StatusOK {
			t.Errorf("the request in the slot: %s", body)
		}
	})
	<-arrived
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			if resp, body := s.get("/wait"); resp == nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "overloaded") {
				t.Errorf("a request above the slots: %v %s", resp, body)
			}
		})
	}
	ended := make(chan struct{})
	go func() { others.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-arrived:
		t.Error("a second request arrived at one slot")
	}
	close(release)
	first.Wait()
	others.Wait()
	if most.Load() != 1 {
		t.Errorf("%d requests were in flight at one slot", most.Load())
	}
	if resp, body := s.get("/"); resp == nil || resp.StatusCode != http.StatusOK {
		t.Errorf("after the slot is free: %s", body)
	}
}

func mustGet(t *testing.T, url string) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// brokenServer fails immediately.
type brokenServer struct{}

func (brokenServer) Serve(net.Listener) error       { return errors.New("broken") }
func (brokenServer) Shutdown(context.Context) error { return nil }

// late is a server whose requests outlive their time.
type late struct{ closed chan struct{} }

func (l late) Serve(net.Listener) error     { <-l.closed; return nil }
func (late) Shutdown(context.Context) error { return context.DeadlineExceeded }
func (l late) Close() error                 { close(l.closed); return nil }

// graceful is a server like that of gRPC.
type graceful struct{ stopped chan struct{} }

func (g graceful) Serve(net.Listener) error { <-g.stopped; return nil }
func (g graceful) GracefulStop()            { close(g.stopped) }
func (graceful) Stop()                      {}

// endless is a server that cannot be stopped.
type endless struct{}

func (endless) Serve(net.Listener) error { return nil }

func TestAServerThatCannotServeWithdrawsItsServices(t *testing.T) {
	t.Parallel()
	for name, each := range map[string]struct {
		server  advertise.Server
		secured bool
		stopped bool // before it has served
		want    string
	}{
		"fails":                   {server: brokenServer{}, want: "broken"},
		"cannot be stopped":       {server: endless{}, want: "cannot be stopped in order"},
		"is cut off":              {server: late{make(chan struct{})}, stopped: true, want: "deadline exceeded"},
		"promises TLS":            {server: brokenServer{}, secured: true, want: "Secured is true"},
		"stops like that of gRPC": {server: graceful{make(chan struct{})}, stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			socket := procs.Listen(t)
			a, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
				Cluster: "shop", Environment: "dev", ID: "echo-1", BindAddr: "127.0.0.1:0", Seeds: []string{"127.0.0.1:1"},
				Services: []advertise.Service{{Name: "echo", Address: socket.Addr().String(), Secured: each.secured}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			if each.stopped {
				stop()
			}
			err = a.Serve(ctx, socket, each.server)
			stop()
			if each.want == "" && err != nil || each.want != "" && (err == nil || !strings.Contains(err.Error(), each.want)) {
				t.Errorf("%v, want %q", err, each.want)
			}
			if conn, err := net.Dial("tcp", socket.Addr().String()); err == nil {
				_ = conn.Close()
				t.Error("the socket is still open")
			}
		})
	}
}

func TestTheNextAdvertiserOfAProcessRegistersItsMetrics(t *testing.T) {
	t.Parallel()
	for name, attach := range map[string]bool{"gossips": false, "attaches": true} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			cfg := advertise.AdvertiserConfig{Cluster: "shop", Environment: "dev", ID: "echo-1", Registerer: registry, Insecure: true}
			if attach {
				cfg.Attach = []string{"127.0.0.1:1"}
			} else {
				cfg.BindAddr, cfg.Seeds = "127.0.0.1:0", []string{"127.0.0.1:1"}
			}
			twice := cfg
			service := advertise.Service{Name: "echo", Address: "127.0.0.1:1"}
			twice.Services = []advertise.Service{service, service}
			if _, err := advertise.NewAdvertiser(twice); err == nil {
				t.Fatal("one service twice")
			}
			for range 2 {
				a, err := advertise.NewAdvertiser(cfg)
				if err != nil {
					t.Fatal(err)
				}
				if got, _ := registry.Gather(); len(got) == 0 {
					t.Error("no metrics are registered")
				}
				ctx, stop := context.WithCancel(t.Context())
				stop()
				if err := a.Run(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if got, _ := registry.Gather(); len(got) > 0 {
				t.Errorf("%d metrics stay", len(got))
			}
		})
	}
}

func TestSlotsToWhichNothingHoldsAServiceAreRefused(t *testing.T) {
	t.Parallel()
	f := fleet.New(fleet.Config{Cluster: "shop", Environment: "dev"})
	member := membership.Config{Cluster: "shop", Environment: "dev", ID: "echo-1", Role: identity.RoleWorker}
	if err := f.Equip(&member); err != nil {
		t.Fatal(err)
	}
	socket := procs.Listen(t)
	service := advertise.Service{Name: "echo", Address: socket.Addr().String(), Secured: true, Slots: 2}
	a, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: "echo-1", BindAddr: "127.0.0.1:0", Seeds: []string{"127.0.0.1:1"},
		Identity: member.Identity, Keyring: member.Keyring, Services: []advertise.Service{service},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Serve(t.Context(), socket, graceful{}); err == nil || !strings.Contains(err.Error(), "only an http.Server is held to its Slots") {
		t.Error(err)
	}
}
