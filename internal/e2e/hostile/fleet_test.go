//go:build linux

package hostile

import (
	"context"
	"encoding/json"
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
	t        *testing.T
	cfg      fleetConfig
	security *procs.Security
	client   *http.Client
	relays   []*relay
	workers  []*worker
}

type relay struct {
	*procs.Process
	id, host                     string
	gossip, ingress, peer, admin string
}

// worker is an agent; its service is a server of the test.
type worker struct {
	*procs.Process
	id, host               string
	gossip, sidecar, admin string
	service                *httptest.Server
}

type fleetConfig struct {
	Relays, Workers int
	// RelayArgs are added to those of every relay.
	RelayArgs []string
	// Advertised is the gossip address that a member tells the others, where it is
	// not the one it listens on.
	Advertised func(id, gossip string) string
	// Before is called when the addresses are known and no member runs yet. The fleet
	// is then not waited for.
	Before func(*fleet)
}

// startFleet starts everything at once and waits until it serves.
func startFleet(t *testing.T, cfg fleetConfig) *fleet {
	t.Helper()
	f := &fleet{t: t, cfg: cfg, client: clientFrom(t, "")}
	f.security = procs.NewSecurity(t, procs.SecurityConfig{Dir: t.TempDir(), Binaries: binaries, Cluster: cluster, Environment: environment})
	f.security.IssueAll(t, cfg.Relays, cfg.Workers)
	var seeds []string
	for n := 1; n <= cfg.Relays; n++ {
		host := fmt.Sprintf("127.0.1.%d", n)
		r := &relay{id: fmt.Sprintf("r%d", n), host: host, gossip: procs.FreeAddrOn(t, host),
			ingress: procs.FreeAddrOn(t, host), peer: procs.FreeAddrOn(t, host), admin: procs.FreeAddrOn(t, host)}
		f.relays = append(f.relays, r)
		seeds = append(seeds, f.advertised(r.id, r.gossip))
	}
	for n := 1; n <= cfg.Workers; n++ {
		host := fmt.Sprintf("127.0.2.%d", n)
		f.workers = append(f.workers, &worker{id: fmt.Sprintf("w%d", n), host: host, gossip: procs.FreeAddrOn(t, host),
			sidecar: procs.FreeAddrOn(t, host), admin: procs.FreeAddrOn(t, host), service: startService(t, fmt.Sprintf("w%d", n))})
	}
	if cfg.Before != nil {
		cfg.Before(f)
	}
	common := func(id, gossip, admin string) []string {
		return append([]string{"run", "--cluster", cluster, "--environment", environment, "--id", id, "--log-format", "json",
			"--gossip-addr", gossip, "--advertise-addr", f.advertised(id, gossip), "--admin-addr", admin, "--join", strings.Join(seeds, ","),
		}, f.security.Flags(id, id)...)
	}
	for _, r := range f.relays {
		r.Process = procs.Start(t, procs.Config{Name: r.id, Binary: "relay", Dir: binaries, Args: slices.Concat(common(r.id, r.gossip, r.admin),
			[]string{"--ingress-addr", r.ingress, "--peer-addr", r.peer}, cfg.RelayArgs)})
	}
	for _, w := range f.workers {
		w.Process = procs.Start(t, procs.Config{Name: w.id, Binary: "worker", Dir: binaries, Args: append(common(w.id, w.gossip, w.admin),
			"--sidecar-addr", w.sidecar, "--drain-delay", "1s", "--service", echo+"="+w.service.Listener.Addr().String()+";check=tcp;interval=2s")})
	}
	if cfg.Before == nil { // else the test is about the start
		procs.Await(t, "all members see each other and serve", func() bool { f.running(); return f.whole() })
	}
	return f
}

// running fails the test at once when a process has ended by itself.
func (f *fleet) running() {
	f.t.Helper()
	for _, r := range f.relays {
		if err := r.Ended(); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, w := range f.workers {
		if err := w.Ended(); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fleet) advertised(id, gossip string) string {
	if f.cfg.Advertised == nil {
		return gossip
	}
	return f.cfg.Advertised(id, gossip)
}

// whole reports whether every relay is ready, sees all members that were started, and
// has the endpoints of all workers.
func (f *fleet) whole() bool {
	for _, r := range f.relays {
		if status, _ := f.get(r.admin, "/readyz"); status != http.StatusOK {
			return false
		}
	}
	return f.allThere() == nil
}

// ids are those of the members that were started, sorted.
func (f *fleet) ids() (ids []string) {
	for _, r := range f.relays {
		ids = append(ids, r.id)
	}
	for _, w := range f.workers {
		ids = append(ids, w.id)
	}
	slices.Sort(ids)
	return ids
}

// member is what a relay says of one.
type member struct {
	ID         string
	Epoch      uint64
	GossipAddr string `json:"gossip_addr"`
	Leaving    bool
}

// listed are the members that a relay lists; those that it names as unproven are in
// another list.
func (f *fleet) listed(r *relay) (members []member) {
	var got struct{ Members []member }
	f.decode(r.admin, "/api/v1/members", &got)
	return got.Members
}

// members are their ids, sorted.
func (f *fleet) members(r *relay) (ids []string) {
	for _, m := range f.listed(r) {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return ids
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
	f.decode(r.admin, "/api/v1/services", &got)
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
	f.decode(r.admin, "/api/v1/services/"+service, &got)
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

// decode leaves into alone when there is no answer.
func (f *fleet) decode(addr, path string, into any) {
	if status, body := f.get(addr, path); status == http.StatusOK {
		_ = json.Unmarshal([]byte(body), into)
	}
}

// ask sends a request to a service through a relay.
func (f *fleet) ask(r *relay, service, method, path string) (status int, body string) {
	return send(f.client, call{method: method, addr: r.ingress, path: path, header: map[string]string{
		serviceHeader: service, "Authorization": "Bearer secret-of-a-client"}})
}

// serves expects that the fleet's own workers answer n POSTs through every relay.
func (f *fleet) serves(n int) {
	f.t.Helper()
	if err := f.served(n); err != nil {
		f.t.Error(err)
	}
}

// served sends n POSTs through every relay and tells of those that no worker of the
// fleet answered.
func (f *fleet) served(n int) error {
	wrong := map[string]int{}
	for _, r := range f.relays {
		for range n {
			if status, body := f.ask(r, echo, http.MethodPost, "/"); status != http.StatusOK || !slices.ContainsFunc(f.workers, func(w *worker) bool { return w.id == body }) {
				wrong[fmt.Sprintf("through %s: %d %.120s", r.id, status, body)]++
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
	for _, r := range f.relays {
		before[r.id] = f.refusals(r.admin)
	}
	begun := time.Now()
	stop = keepDoing(f.t, attack)
	for _, r := range f.relays {
		procs.Await(f.t, "the attack arrives at "+r.id, func() bool { return believed(r) || f.refusals(r.admin) >= before[r.id]+enough })
		if believed(r) {
			f.t.Logf("%s believed the attack after %v", r.id, time.Since(begun).Round(10*time.Millisecond))
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
	for _, r := range f.relays {
		listed := f.listed(r)
		for _, id := range f.ids() {
			i := slices.IndexFunc(listed, func(m member) bool { return m.ID == id })
			if i < 0 || listed[i].Leaving {
				return fmt.Errorf("%s does not see %s any more: it lists %v", r.id, id, listed)
			}
		}
		if n := f.endpoints(r, echo); n != len(f.workers) {
			return fmt.Errorf("%s has %d endpoints of %s, there are %d", r.id, n, echo, len(f.workers))
		}
	}
	return nil
}
