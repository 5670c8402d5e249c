//go:build linux

package hostile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

const (
	cluster     = "hostile"
	environment = "test"
	echo        = "echo" // the service that every worker offers
	// serviceHeader names the service of a request.
	serviceHeader = "Ringway-Service"
)

// fleet is relays and workers with certificates and a gossip key. Each member is on
// a loopback address of its own, as members are on hosts of their own.
type fleet struct {
	*procs.Fleet
	t       *testing.T
	client  *http.Client
	servers []*httptest.Server // of the workers
}

type relay = procs.Member

type fleetConfig struct {
	Relays, Workers int
	// RelayArgs are added to those of every relay.
	RelayArgs []string
	// Services are those in the certificates of the workers. Default: they name none.
	Services string
	// Offer is added to the service of every worker, as in ";version=v2".
	Offer string
	// RelayEnv is added to the environment of every relay.
	RelayEnv []string
	// KeyOnly gives the members the gossip key and no certificates.
	KeyOnly bool
	// Advertised returns the gossip address that r1 announces to the others, where it is not the
	// one it listens on.
	Advertised func(gossip string) string
	// Before is called when the addresses are known and no member runs yet. The fleet
	// is then not waited for.
	Before func(*fleet)
}

// startFleet starts all members together and waits until it serves.
func startFleet(t *testing.T, cfg fleetConfig) *fleet {
	t.Helper()
	f := &fleet{t: t, client: clientFrom(t, "")}
	f.Fleet = procs.NewFleet(procs.FleetConfig{T: t, Cluster: cluster, Environment: environment, Binaries: binaries, Addr: func(id, _ string) string {
		return procs.FreeAddrOn(t, strings.NewReplacer("r", "127.0.1.", "w", "127.0.2.").Replace(id))
	}})
	f.Secure(t.TempDir())
	f.KeyOnly = cfg.KeyOnly
	for n := range cfg.Relays {
		f.Relay(fmt.Sprintf("r%d", n+1))
	}
	if cfg.Advertised != nil {
		f.Seeds[0] = cfg.Advertised(f.Seeds[0])
	}
	for n := range cfg.Workers {
		claims := procs.Claims{Role: "worker", Node: fmt.Sprintf("w%d", n+1), Services: cfg.Services}
		if err := f.Security.Issue(claims); err != nil {
			t.Fatal(err)
		}
		f.servers = append(f.servers, startService(t, f.Worker(fmt.Sprintf("w%d", n+1)).ID))
	}
	if cfg.Before != nil {
		cfg.Before(f)
	}
	for n, r := range f.Relays {
		f.Start(r, procs.Config{Args: append([]string{"--advertise-addr", f.Seeds[n]}, cfg.RelayArgs...), Env: cfg.RelayEnv})
	}
	for n, w := range f.Workers {
		f.Start(w, procs.Config{Args: []string{"--drain-delay", "1s", "--service", echo + "=" + f.servers[n].Listener.Addr().String() + ";check=tcp;interval=2s" + cfg.Offer}})
	}
	if cfg.Before == nil { // else the test is about the start
		f.serving()
	}
	return f
}

// serving waits until all members see each other and serve.
func (f *fleet) serving() {
	f.t.Helper()
	f.Await(f.t.Context(), func() error { return f.Whole(echo) })
}

// ids returns the names of all members, sorted.
func (f *fleet) ids() []string { return procs.IDs(slices.Concat(f.Relays, f.Workers)) }

// member is what a relay reports about one.
type member struct {
	ID         string
	Epoch      uint64
	GossipAddr string `json:"gossip_addr"`
	Leaving    bool
	Draining   bool
}

// listed are the members that a relay lists; those that it names as unproven are in
// another list.
func (f *fleet) listed(r *relay) (members []member) {
	var got struct{ Members []member }
	f.Get(r, "/api/v1/members", &got)
	return got.Members
}

// services are the names that a relay knows an endpoint of; known is how many names it
// knows at all: those that ended are remembered for a day.
func (f *fleet) services(r *relay) (names []string, known int) {
	var got struct {
		Services []struct {
			Service   string
			Endpoints int
		}
	}
	f.Get(r, "/api/v1/services", &got)
	for _, s := range got.Services {
		if s.Endpoints > 0 {
			names = append(names, s.Service)
		}
	}
	return names, len(got.Services)
}

// offers reports whether a relay knows an endpoint of a service.
func (f *fleet) offers(r *relay, service string) bool {
	names, _ := f.services(r)
	return slices.Contains(names, service)
}

// endpoints is how many a relay knows of a service.
func (f *fleet) endpoints(r *relay, service string) int {
	var got struct{ Endpoints int }
	f.Get(r, "/api/v1/services/"+service, &got)
	return got.Endpoints
}

// clientFrom returns a client whose connections come from an address of this host,
// the usual one when it is empty.
func clientFrom(t *testing.T, host string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{}
	if host != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(host)}
	}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 16, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: procs.Patience}
}

// call is one request. The keys of header may be Host.
type call struct {
	method, addr, path string
	header             map[string]string
}

// send returns the status, 0 without an answer, and the body or the error.
func send(client *http.Client, c call) (status int, body string) {
	req, err := http.NewRequestWithContext(context.Background(), c.method, "http://"+c.addr+c.path, nil)
	if err != nil {
		return 0, err.Error()
	}
	for name, value := range c.header {
		req.Header.Set(name, value)
	}
	req.Host = c.header["Host"]
	status, text, err := procs.Ask(client, req)
	if err != nil {
		return 0, err.Error()
	}
	return status, string(text)
}

func (f *fleet) get(addr, path string) (status int, body string) {
	return send(f.client, call{method: http.MethodGet, addr: addr, path: path})
}

// ask sends a request to a service through a relay.
func (f *fleet) ask(r *relay, service, method, path string) (status int, body string) {
	return send(f.client, call{method: method, addr: r.Ingress, path: path, header: map[string]string{
		serviceHeader: service, "Authorization": "Bearer secret-of-a-client"}})
}

// serves expects that the fleet's own workers answer n POSTs through every relay.
func (f *fleet) serves(n int) {
	f.t.Helper()
	if err := f.served(n); err != nil {
		f.t.Error(err)
	}
}

// served sends n POSTs through every relay and reports those that no worker of the
// fleet answered.
func (f *fleet) served(n int) error {
	wrong := map[string]int{}
	for _, r := range f.Relays {
		for range n {
			if status, body := f.ask(r, echo, http.MethodPost, "/"); status != http.StatusOK || !slices.ContainsFunc(f.Workers, func(w *procs.Member) bool { return w.ID == body }) {
				wrong[fmt.Sprintf("through %s: %d %.120s", r.ID, status, body)]++
			}
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d requests through each relay, not answered by a worker of the fleet: %v", n, wrong)
	}
	return nil
}

// metrics sums the series of a member whose name has the prefix and whose labels pass.
func (f *fleet) metrics(admin, prefix string, labels func(string) bool) (sum float64) {
	_, text := f.get(admin, "/metrics")
	for series, value := range procs.Metrics(text) {
		if strings.HasPrefix(series, prefix) && (labels == nil || labels(series)) {
			sum += value
		}
	}
	return sum
}

// refusals counts what a member refused of gossip, of records and of offers.
func (f *fleet) refusals(admin string) (sum float64) {
	for _, name := range []string{"ringway_membership_packets_dropped_total", "ringway_membership_refusals_total",
		"ringway_advertise_offers_refused_total", "ringway_relay_endpoints_left_out_total"} {
		sum += f.metrics(admin, name, nil)
	}
	return sum + f.metrics(admin, "ringway_advertise_records_received_total", func(series string) bool {
		return !slices.ContainsFunc([]string{"applied", "old", "hint"}, func(result string) bool { return strings.Contains(series, strconv.Quote(result)) })
	})
}

// arrives repeats an attack until every relay has shown that it arrived: it believes
// it, or has refused what it did not refuse before. The attack goes on until stop, or
// the end of the test.
func (f *fleet) arrives(attack func(), believed func(*relay) bool) (stop func()) {
	f.t.Helper()
	const enough = 5
	before := map[string]float64{}
	for _, r := range f.Relays {
		before[r.ID] = f.refusals(r.Admin)
	}
	begun := time.Now()
	stop = keepDoing(f.t, attack)
	for _, r := range f.Relays {
		procs.Await(f.t, "the attack arrives at "+r.ID, func() bool { return believed(r) || f.refusals(r.Admin) >= before[r.ID]+enough })
		if believed(r) {
			f.t.Logf("%s believed the attack after %v", r.ID, time.Since(begun).Round(10*time.Millisecond))
		}
	}
	return stop
}

// keepDoing repeats until stop, or the end of the test.
func keepDoing(t *testing.T, what func()) (stop func()) {
	const pause = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			what()
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}()
	stop = func() { cancel(); <-stopped }
	t.Cleanup(stop)
	return stop
}

// during checks a state again and again for a time in which an attack that works
// would show.
func during(t *testing.T, d time.Duration, holds func() error) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := holds(); err != nil {
			t.Fatal(err)
		}
	}
}

// wellDuring expects that nothing changes for the time: members, endpoints, answers.
func (f *fleet) wellDuring(d time.Duration) {
	f.t.Helper()
	during(f.t, d, func() error { return errors.Join(f.allThere(), f.served(2)) })
}

// allThere is nil while every relay sees every member, and none of them as leaving.
func (f *fleet) allThere() error {
	for _, r := range f.Relays {
		listed := f.listed(r)
		for _, id := range f.ids() {
			i := slices.IndexFunc(listed, func(m member) bool { return m.ID == id })
			if i < 0 || listed[i].Leaving {
				return fmt.Errorf("%s does not see %s any more: it lists %v", r.ID, id, listed)
			}
		}
		if n := f.endpoints(r, echo); n != len(f.Workers) {
			return fmt.Errorf("%s has %d endpoints of %s, there are %d", r.ID, n, echo, len(f.Workers))
		}
	}
	return nil
}
