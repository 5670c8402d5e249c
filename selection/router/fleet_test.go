package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

// moody is a service whose answers change.
type moody struct {
	name string
	mood atomic.Int32
}

const (
	well = iota
	failing
	hanging
	slow
)

func (m *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.name != "" {
		w.Header().Set("X-Worker", m.name)
	}
	switch m.mood.Load() {
	case failing:
		w.WriteHeader(http.StatusInternalServerError)
	case hanging:
		<-r.Context().Done()
	case slow:
		select {
		case <-time.After(300 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
	_, _ = io.WriteString(w, m.name)
}

// load sends requests to a server by some clients and counts those that failed.
func load(server string, client *http.Client, requests int) (failed int64) {
	var wg sync.WaitGroup
	var failures, next atomic.Int64
	for range 8 {
		wg.Go(func() {
			for next.Add(1) <= int64(requests) {
				resp, err := client.Get(server)
				if err != nil || resp.StatusCode != http.StatusOK {
					failures.Add(1)
				}
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	wg.Wait()
	return failures.Load()
}

// served is a service that offers itself by Advertiser.Serve.
type served struct {
	stop func() // in order
	kill func() // as a crash
}

// serve starts a worker of the service "own" in a program.
func (c *cluster) serve(id string, handler http.Handler) served {
	c.t.Helper()
	member := membership.Config{Role: identity.RoleWorker, Cluster: "shop", Environment: "dev", ID: id}
	if err := c.Equip(&member); err != nil {
		c.t.Fatal(err)
	}
	socket := procs.Listen(c.t)
	worker, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: id, BindAddr: "127.0.0.1:0", Seeds: []string{c.Relays()[0].GossipAddr()},
		Identity: member.Identity, Keyring: member.Keyring,
		Services: []advertise.Service{{Name: "own", Address: socket.Addr().String(), Secured: member.Identity != nil}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	server, done := &http.Server{Handler: handler}, make(chan struct{})
	go func() {
		defer close(done)
		_ = worker.Serve(ctx, socket, server) // of one that is killed it is an error
	}()
	kill := func() {
		_ = worker.Close()
		_ = server.Close()
		stop()
		<-done
	}
	c.t.Cleanup(kill)
	return served{func() { stop(); <-done }, kill}
}

// named sends requests with the name of a service.
type named struct {
	http.RoundTripper
	service string
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Ringway-Service", n.service)
	return n.RoundTripper.RoundTrip(r)
}

func TestRequestsAreForwardedToAndFromOtherRelays(t *testing.T) {
	t.Parallel()
	for name, insecure := range map[string]bool{"certificates": false, "clear text": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, fleet.Config{Insecure: insecure})
			three := func(s *relay.Settings) { s.Plans.RelaysPerService = 3 }
			binary := c.relay("relay-1", three)
			c.relay("relay-3", three)
			c.relay("relay-4", three)
			// With three of four relays for each service, each of them forwards some of eight services.
			const services = 8
			for i := range services {
				c.workers(fmt.Sprintf("service%d", i), &moody{name: "w"})
			}
			r := c.router("relay-2", func(_ *membership.Config, cfg *router.Config) { cfg.Plan.RelaysPerService = 3 })
			program := map[bool]int{}
			for i := range services {
				name := fmt.Sprintf("service%d", i)
				c.knows(r, name, "w")
				plan, err := affinity.NewPlan(affinity.PlanConfig{Service: name, RelaysPerService: 3,
					Relays: affinity.Relays([]string{"relay-1", "relay-2", "relay-3", "relay-4"}), Workers: affinity.Workers([]string{name + "-0"})})
				if err != nil {
					t.Fatal(err)
				}
				_, serves := plan.Index("relay-2")
				program[serves]++
				// A program that has just joined does not know all relays yet.
				procs.Await(t, fmt.Sprintf("the program serves %s: %t", name, serves), func() bool {
					pick, err := r.Pick(t.Context(), name, "")
					if err == nil {
						pick.Done(0)
					}
					return (err == nil) == serves
				})
			}
			if program[true] == 0 || program[false] == 0 {
				t.Fatalf("the program serves %d services and forwards %d", program[true], program[false])
			}
			c.ready(binary)
			for i := range services {
				name := fmt.Sprintf("service%d", i)
				own := httptest.NewRequest(http.MethodGet, "http://"+name+"/", nil)
				if resp, err := r.RoundTrip(own); err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("the program to %s: %v", name, err)
				} else {
					_ = resp.Body.Close()
				}
				client := &http.Client{Transport: named{http.DefaultTransport, name}}
				// A relay is ready before it knows each service that the program knows.
				procs.Await(t, "the relay learns of "+name, func() bool { return load("http://"+binary.IngressAddr(), client, 1) == 0 })
				if failed := load("http://"+binary.IngressAddr(), client, 20); failed > 0 {
					t.Errorf("%d of 20 requests from the relay to %s failed", failed, name)
				}
			}
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		})
	}
}

func TestRelaysGetTheSharedKeyFromAProgramThatIsOlder(t *testing.T) {
	t.Parallel()
	for name, insecure := range map[string]bool{"certificates": false, "clear text": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, fleet.Config{Insecure: insecure})
			gossip := procs.FreeAddr(t)
			r := c.router("program", func(m *membership.Config, _ *router.Config) { m.BindAddr = gossip })
			if err := r.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			binary := c.relay("relay-1", func(s *relay.Settings) {
				s.Join = []string{gossip}
				s.SessionCookies.Set("echo=sid")
			})
			c.ready(binary)
			resp, err := http.Get("http://" + binary.AdminAddr() + "/api/v1/shared-key")
			if err != nil {
				t.Fatal(err)
			}
			defer http.DefaultClient.CloseIdleConnections()
			defer resp.Body.Close()
			var key struct {
				GeneratedBy string `json:"generated_by"`
				Source      string `json:"source"`
			}
			if err := json.NewDecoder(resp.Body).Decode(&key); err != nil || key.GeneratedBy != "program" || key.Source != "peer" {
				t.Errorf("%+v: %v", key, err)
			}
		})
	}
}

func TestASessionStaysAtItsWorkerThroughAProgram(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{})
	c.relay("relay-1", nil)
	for i := range 4 {
		if err := c.StartWorker(fleet.WorkerConfig{
			ID: fmt.Sprintf("echo-%d", i), Handler: &moody{name: fmt.Sprintf("echo-%d", i)}, Services: []string{"echo"},
			Change: func(s *worker.Settings) { s.Services[0] += ";session-cookie=sid" },
		}); err != nil {
			t.Fatal(err)
		}
	}
	r := c.router("relay-2", nil)
	c.knows(r, "echo", "echo-0", "echo-1", "echo-2", "echo-3")
	server := proxy(t, "echo", r)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Transport: server.Client().Transport}
	ask := func() string {
		resp, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	home, _ := url.Parse(server.URL)
	for end := time.Now().Add(waitTime); len(jar.Cookies(home)) == 0; ask() { // until there is a key
		if time.Now().After(end) {
			t.Fatal("no cookie was set")
		}
	}
	worker := ask()
	for range 20 {
		if got := ask(); got != worker {
			t.Fatalf("a session of %s went to %s", worker, got)
		}
	}
}
