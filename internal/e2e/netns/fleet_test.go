//go:build linux

package netns

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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
	*procs.Fleet
	of map[string]*host // by the id of the member
}

type member = procs.Member

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
	f := &fleet{network: newNetwork(t), of: map[string]*host{}}
	f.Fleet = procs.NewFleet(procs.FleetConfig{T: t, Cluster: "netns", Environment: "test", Binaries: binaries, Addr: func(id, use string) string {
		if use == "admin" {
			return "unix:" + filepath.Join(dir, id)
		}
		if f.of[id] == nil {
			f.of[id] = f.add()
		}
		return f.of[id].addr + map[string]string{"gossip": ":7400", "ingress": ":7410", "peer": ":7420", "sidecar": ":7421"}[use]
	}})
	f.Secure(t.TempDir())
	for n := range relays {
		f.Relay(fmt.Sprintf("r%d", n+1))
	}
	for n := range workers {
		f.Worker(fmt.Sprintf("w%d", n+1))
	}
	for _, r := range f.Relays {
		f.Start(r, procs.Config{Under: f.of[r.ID].enter(), Args: []string{"--attempt-timeout", attempt.String()}})
	}
	for _, w := range f.Workers {
		under := f.of[w.ID].enter()
		procs.Start(t, procs.Config{Name: w.ID + "-backend", Binary: "backend", Dir: binaries, Under: under,
			Args: []string{"-addr", "127.0.0.1:8080", "-name", w.ID, "-journal", filepath.Join(dir, w.ID+".journal")}})
		f.Start(w, procs.Config{Under: under, Args: []string{"--service", echo + "=127.0.0.1:8080;check=tcp;interval=200ms"}})
	}
	f.becomesWhole(procs.Patience)
	return f
}

// peer is what a relay knows of a worker that it connects to.
type peer struct {
	Node, State string
	Connected   bool
}

func (f *fleet) peers(r *member) (peers []peer) {
	var got struct{ Peers []peer }
	f.Get(r, "/api/v1/services/"+echo, &got)
	return got.Peers
}

// ready returns the reasons why a member is not.
func (f *fleet) ready(m *member) (ok bool, reasons []string) {
	var got struct{ Reasons []string }
	return f.Get(m, "/readyz", &got) == http.StatusOK, got.Reasons
}

func (f *fleet) degraded(m *member) bool {
	var got struct{ Degraded bool }
	f.Get(m, "/api/v1/departures", &got)
	return got.Degraded
}

// becomesWhole waits until the fleet is whole and reports what is missing if it is not.
func (f *fleet) becomesWhole(bound time.Duration) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), bound)
	defer cancel()
	began := time.Now()
	f.Await(ctx, func() error { return f.Whole(echo) })
	f.t.Logf("whole after %v", time.Since(began).Round(time.Millisecond))
}

func (f *fleet) hostsOf(members ...*member) (hosts []*host) {
	for _, m := range members {
		hosts = append(hosts, f.of[m.ID])
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
	got = result{began: time.Now(), through: r.ID}
	defer func() { got.took = time.Since(got.began) }()
	// A moment, so that requests are in flight when something happens.
	req, err := http.NewRequest(http.MethodGet, "http://"+r.Ingress+"/delay?ms=20", nil)
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
