package advertise_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

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
	socket := procs.Listen(t)
	addr := socket.Addr().String()
	a, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: member.Cluster, Environment: member.Environment, ID: member.ID, Identity: member.Identity, Keyring: member.Keyring,
		BindAddr: "127.0.0.1:0", Seeds: []string{f.Relay("relay-1").GossipAddr()}, DrainDelay: time.Millisecond,
		Services: []advertise.Service{{Name: "echo", Address: addr, Secured: !insecure}},
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

func TestAServerReportsItsLoadToRelaysOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	direct, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(mustGet(t, "http://"+s.addr))
	if err != nil {
		t.Fatal(err)
	}
	_ = direct.Body.Close()
	if got := direct.Header.Get("Ringway-Load"); got != "1" {
		t.Errorf("load %q", got)
	}
	if resp, _ := s.get("/"); resp == nil || resp.Header.Get("Ringway-Load") != "" {
		t.Error("the client got the load")
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
