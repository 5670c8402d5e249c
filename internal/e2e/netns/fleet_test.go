//go:build linux

package netns

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

const (
	echo = "echo" // the service that every worker offers
	// attempt is --attempt-timeout. A request may take that and spare, for a slow
	// machine and a normal answer.
	attempt, spare = 2 * time.Second, time.Second
	// loadClients send to each relay at a time.
	loadClients = 3
)

// fleet is relays and workers with certificates, each on a host of its own.
type fleet struct {
	*network
	admin           *http.Client // its host names are ids
	relays, workers []*member
}

type member struct {
	*procs.Process
	*host
	id string
}

// startFleet starts everything and waits until it is whole.
func startFleet(t *testing.T, relays, workers int) *fleet {
	t.Helper()
	if !enabled {
		t.Skip("needs network namespaces: make test-netns")
	}
	dir, err := os.MkdirTemp(binaries, "") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		id, _, _ := strings.Cut(addr, ":")
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, id))
	}}
	t.Cleanup(transport.CloseIdleConnections)
	f := &fleet{network: newNetwork(t), admin: &http.Client{Transport: transport, Timeout: procs.Patience}}
	security := procs.NewSecurity(t, procs.SecurityConfig{Dir: t.TempDir(), Binaries: binaries, Cluster: "netns", Environment: "test"})
	security.IssueAll(t, relays, workers)
	var seeds []string
	for n := range relays {
		r := &member{id: fmt.Sprintf("r%d", n+1), host: f.add()}
		f.relays, seeds = append(f.relays, r), append(seeds, r.addr+":7400")
	}
	for n := range workers {
		f.workers = append(f.workers, &member{id: fmt.Sprintf("w%d", n+1), host: f.add()})
	}
	start := func(m *member, binary string, args ...string) {
		args = append(args, "run", "--cluster", "netns", "--environment", "test", "--id", m.id, "--log-format", "json",
			"--gossip-addr", m.addr+":7400", "--admin-addr", "unix:"+filepath.Join(dir, m.id), "--join", strings.Join(seeds, ","))
		m.Process = procs.Start(t, procs.Config{Name: m.id, Binary: binary, Dir: binaries, Under: m.enter(), Args: append(args, security.Flags(m.id, m.id)...)})
	}
	for _, r := range f.relays {
		start(r, "relay", "--ingress-addr", r.addr+":7410", "--peer-addr", r.addr+":7420", "--attempt-timeout", attempt.String())
	}
	for _, w := range f.workers {
		procs.Start(t, procs.Config{Name: w.id + "-backend", Binary: "backend", Dir: binaries, Under: w.enter(),
			Args: []string{"-addr", "127.0.0.1:8080", "-name", w.id, "-journal", filepath.Join(dir, w.id+".journal")}})
		start(w, "worker", "--service", echo+"=127.0.0.1:8080;check=tcp;interval=200ms")
	}
	f.becomesWhole(procs.Patience)
	return f
}

// get returns the status of an answer of the admin API, 0 without one, and decodes it.
func (f *fleet) get(m *member, path string, into any) (status int) {
	req, err := http.NewRequest(http.MethodGet, "http://"+m.id+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Host = "localhost"
	status, body, _ := procs.Ask(f.admin, req)
	_ = json.Unmarshal(body, into) // a field that is missing fails the test's comparison
	return status
}

// seen are the ids that a member lists, in order, twice if they are listed twice.
func (f *fleet) seen(m *member) (ids []string) {
	var got struct{ Members []struct{ ID string } }
	f.get(m, "/api/v1/members", &got)
	for _, one := range got.Members {
		ids = append(ids, one.ID)
	}
	slices.Sort(ids)
	return ids
}

// peer is what a relay knows of a worker that it connects to.
type peer struct {
	Node, State string
	Connected   bool
}

func (f *fleet) peers(r *member) (peers []peer) {
	var got struct{ Peers []peer }
	f.get(r, "/api/v1/services/"+echo, &got)
	return got.Peers
}

// ready returns the reasons why a member is not.
func (f *fleet) ready(m *member) (ok bool, reasons []string) {
	var got struct{ Reasons []string }
	return f.get(m, "/readyz", &got) == http.StatusOK, got.Reasons
}

func (f *fleet) degraded(m *member) bool {
	var got struct{ Degraded bool }
	f.get(m, "/api/v1/departures", &got)
	return got.Degraded
}

// whole is nil when every member sees every member once, and no relay is degraded,
// unready, or has not one endpoint of each worker.
func (f *fleet) whole() error {
	all := slices.Concat(ids(f.relays), ids(f.workers))
	for _, m := range slices.Concat(f.relays, f.workers) {
		if seen := f.seen(m); !slices.Equal(seen, all) {
			return fmt.Errorf("%s sees %v, the members are %v", m.id, seen, all)
		}
		if f.degraded(m) {
			return fmt.Errorf("the view of %s is degraded", m.id)
		}
		if ok, reasons := f.ready(m); !ok {
			return fmt.Errorf("%s is not ready: %q", m.id, reasons)
		}
	}
	for _, r := range f.relays {
		var got struct {
			Catalogue []struct {
				NodeID string `json:"node_id"`
			}
		}
		f.get(r, "/api/v1/services/"+echo, &got)
		var offers []string
		for _, e := range got.Catalogue {
			offers = append(offers, e.NodeID)
		}
		slices.Sort(offers)
		if !slices.Equal(offers, ids(f.workers)) {
			return fmt.Errorf("%s has endpoints of %v", r.id, offers)
		}
	}
	return nil
}

// becomesWhole waits until the fleet is whole and says what is missing if it is not.
func (f *fleet) becomesWhole(bound time.Duration) {
	f.t.Helper()
	began, missing := time.Now(), f.whole()
	defer func() {
		if missing != nil {
			f.t.Error(missing)
		}
	}()
	procs.AwaitFor(f.t, bound, "the fleet is whole", func() bool { missing = f.whole(); return missing == nil })
	f.t.Logf("whole after %v", time.Since(began).Round(time.Millisecond))
}

func ids(members []*member) (ids []string) {
	for _, m := range members {
		ids = append(ids, m.id)
	}
	return ids
}

func hosts(members ...*member) (hosts []*host) {
	for _, m := range members {
		hosts = append(hosts, m.host)
	}
	return hosts
}

// load is clients that send one GET after the other, over connections that they keep.
type load struct {
	finished atomic.Int64
	stopping chan struct{}
	clients  sync.WaitGroup

	mu      sync.Mutex
	results []result
}

// result is one GET.
type result struct {
	began   time.Time
	took    time.Duration
	by      string // the worker that answered
	through string
	err     error
}

// startLoad sends to these relays until stop, or the end of the test.
func (f *fleet) startLoad(t *testing.T, relays ...*member) *load {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: loadClients, DisableCompression: true}
	client := &http.Client{Transport: transport, Timeout: procs.Patience}
	l := &load{stopping: make(chan struct{})}
	for _, r := range relays {
		for range loadClients {
			l.clients.Go(func() {
				for {
					select {
					case <-l.stopping:
						return
					default:
					}
					got := l.one(client, r)
					l.mu.Lock()
					l.results = append(l.results, got)
					l.mu.Unlock()
					l.finished.Add(1)
				}
			})
		}
	}
	t.Cleanup(func() { l.stop(); transport.CloseIdleConnections() })
	return l
}

func (l *load) one(client *http.Client, r *member) (got result) {
	got = result{began: time.Now(), through: r.id}
	defer func() { got.took = time.Since(got.began) }()
	// A moment, so that requests are in flight when something happens.
	req, err := http.NewRequest(http.MethodGet, "http://"+r.addr+":7410/delay?ms=20", nil)
	if err != nil {
		got.err = err
		return got
	}
	req.Header.Set("Ringway-Service", echo)
	status, body, err := procs.Ask(client, req)
	if got.by = string(body); status != http.StatusOK {
		got.err = fmt.Errorf("%d %.500s %w", status, body, err)
	}
	return got
}

// more waits until n further requests have finished.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	target := l.finished.Load() + n
	procs.Await(t, fmt.Sprintf("%d more requests", n), func() bool { return l.finished.Load() >= target })
}

// answered reports whether a worker has answered a request that began after a time.
func (l *load) answered(by string, after time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.results, func(r result) bool { return r.by == by && r.err == nil && r.began.After(after) })
}

// stop ends the load and returns what became of its requests.
func (l *load) stop() []result {
	l.mu.Lock()
	select {
	case <-l.stopping:
	default:
		close(l.stopping)
	}
	l.mu.Unlock()
	l.clients.Wait()
	return l.results
}

// wellServed expects that no GET failed or took longer than an attempt and a normal answer.
func wellServed(t *testing.T, results []result) {
	t.Helper()
	failures, late, slow := 0, 0, 0
	var slowest time.Duration
	for _, r := range results {
		slowest = max(slowest, r.took)
		if r.took > spare {
			slow++
		}
		if r.err != nil {
			if failures++; failures <= 5 {
				t.Errorf("failed after %v, through %s: %v", r.took, r.through, r.err)
			}
		}
		if r.took > attempt+spare {
			if late++; late <= 5 {
				t.Errorf("took %v, through %s: an attempt may take %v", r.took, r.through, attempt)
			}
		}
	}
	t.Logf("%d GETs: %d took longer than %v, the slowest %v", len(results), slow, spare, slowest.Round(time.Millisecond))
	if failures+late > 0 {
		t.Errorf("of %d GETs %d failed and %d took longer than %v", len(results), failures, late, attempt+spare)
	}
}
