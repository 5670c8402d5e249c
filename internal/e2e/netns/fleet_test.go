//go:build linux

package netns

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/history"
	"github.com/ringway/ringway/internal/procs"
)

const (
	echo = "echo" // the service that every worker offers
	// attempt is --attempt-timeout. A request may take that and spare, for a slow
	// machine and a normal answer.
	attempt, spare = 2 * time.Second, time.Second
	// twice is the time of two attempts that hang. A GET has one of them at most.
	twice = 2 * attempt
	// loadClients send to each relay at a time.
	loadClients = 3
)

// fleet is relays and workers with certificates, each on a host of its own.
type fleet struct {
	*network
	*procs.Fleet
	of   map[string]*host // by the id of the member
	dir  string           // of the journals
	sent atomic.Int64     // requests
	// slots of each worker. The shares of all relays together are more, so that the sidecars must refuse.
	slots int
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
	f := &fleet{network: newNetwork(t), of: map[string]*host{}, dir: dir, slots: relays + 1}
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
		f.Start(r, procs.Config{Under: f.of[r.ID].enter(), Args: []string{"--attempt-timeout", attempt.String(), "--expose-route-headers"}})
	}
	for _, w := range f.Workers {
		under := f.of[w.ID].enter()
		procs.Start(t, procs.Config{Name: w.ID + "-backend", Binary: "backend", Dir: binaries, Under: under,
			Args: []string{"-addr", "127.0.0.1:8080", "-name", w.ID, "-journal", f.journal(w)}})
		f.Start(w, procs.Config{Under: under, Args: []string{"--service", fmt.Sprint(echo, "=127.0.0.1:8080;check=tcp;interval=200ms;slots=", f.slots)}})
	}
	f.becomesWhole(procs.Patience)
	return f
}

func (f *fleet) journal(w *member) string { return filepath.Join(f.dir, w.ID+".journal") }

// key returns the fingerprint of the shared key that a relay uses, empty if it uses none.
func (f *fleet) key(r *member) string {
	var got struct{ Fingerprint, Source string }
	if f.Get(r, "/api/v1/shared-key", &got); got.Source == "" {
		return ""
	}
	return got.Fingerprint
}

// forked reports whether relays use different keys.
func (f *fleet) forked() bool {
	uses := map[string]bool{}
	for _, r := range f.Relays {
		if key := f.key(r); key != "" {
			uses[key] = true
		}
	}
	return len(uses) > 1
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

// becomesWhole waits until the fleet is whole, and its relays use one key, and reports what is missing if
// it does not become so.
func (f *fleet) becomesWhole(bound time.Duration) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), bound)
	defer cancel()
	began := time.Now()
	f.Await(ctx, func() error { return f.Whole(echo) })
	f.t.Logf("whole after %v", time.Since(began).Round(time.Millisecond))
	for f.forked() && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond) // between two checks of the state
	}
	h := &history.History{}
	for _, r := range f.Relays {
		h.Add(history.Entry{Kind: history.Key, Client: r.ID, Key: f.key(r), At: time.Now()})
	}
	h.Expect(f.t, history.Limits{})
}

func (f *fleet) hostsOf(members ...*member) (hosts []*host) {
	for _, m := range members {
		hosts = append(hosts, f.of[m.ID])
	}
	return hosts
}

// load is clients that send one request after the other, over connections that they keep. One of the
// clients of each relay sends POSTs, the others GETs.
type load struct {
	finished atomic.Int64
	stopping chan struct{}
	clients  sync.WaitGroup

	mu      sync.Mutex
	results []result
}

// result is one request: Client is the relay through which it went, Endpoint the worker that answered.
type result struct {
	history.Entry
	executed history.Entry // by the clock of the worker, if it answered
	attempts string        // of the relay
	err      error
}

func (r result) took() time.Duration { return r.Until.Sub(r.At) }

// startLoad sends to these relays until stop, or the end of the test.
func (f *fleet) startLoad(t *testing.T, relays ...*member) *load {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: loadClients, DisableCompression: true}
	client := &http.Client{Transport: transport, Timeout: procs.Patience}
	l := &load{stopping: make(chan struct{})}
	for _, r := range relays {
		for c := range loadClients {
			method := http.MethodGet
			if c == 0 {
				method = http.MethodPost
			}
			l.clients.Go(func() {
				for {
					select {
					case <-l.stopping:
						return
					default:
					}
					got := f.one(client, r, method)
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

func (f *fleet) one(client *http.Client, r *member, method string) (got result) {
	id := fmt.Sprint(r.ID, "-", f.sent.Add(1))
	got = result{Entry: history.Entry{Kind: history.Request, ID: method + " " + id, Client: r.ID, Service: echo, Once: method == http.MethodPost, At: time.Now()}}
	defer func() { got.Until = time.Now() }()
	// A moment, so that requests are in flight when something happens.
	req, err := http.NewRequest(method, "http://"+r.Ingress+"/delay?ms=20", nil)
	if err != nil {
		got.err = err
		return got
	}
	req.Header.Set("Ringway-Service", echo)
	req.Header.Set("X-Request-Id", id)
	resp, err := client.Do(req)
	if err != nil {
		got.err = err
		return got
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	body, err := io.ReadAll(resp.Body)
	got.Status, got.Echo, got.Endpoint = resp.StatusCode, resp.Header.Get("Seen-Request"), resp.Header.Get("Worker")
	got.attempts = resp.Header.Get("Ringway-Attempts")
	began, ended := micros(resp, "Began-At"), micros(resp, "Completed-At")
	if !began.IsZero() && !ended.IsZero() {
		got.executed = history.Entry{Kind: history.Executed, ID: got.ID, Endpoint: got.Endpoint, At: began, Until: ended}
	}
	if err != nil || got.Status != http.StatusOK {
		got.err = fmt.Errorf("%d %.500s %w", got.Status, body, err)
	}
	return got
}

// micros is the time in a field of an answer, zero without it.
func micros(resp *http.Response, field string) time.Time {
	n, err := strconv.ParseInt(resp.Header.Get(field), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(n)
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
	return slices.ContainsFunc(l.results, func(r result) bool { return r.Endpoint == by && r.err == nil && r.At.After(after) })
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

// late reports whether a GET took longer than one attempt that hangs and a normal answer. A slow machine
// may take more than spare for the answer, and there is no third attempt then.
func (r result) late() bool {
	return r.took() >= twice || r.took() > attempt+spare && r.attempts != "1" && r.attempts != "2"
}

// wellServed expects that no GET failed or was late, and what judge expects. A POST waits for its worker,
// and fails if that is lost.
func (f *fleet) wellServed(t *testing.T, results []result, outages ...history.Entry) {
	t.Helper()
	gets, failures, late, slow, lost := 0, 0, 0, 0, 0
	var slowest time.Duration
	for _, r := range results {
		if r.Once {
			if r.err != nil {
				lost++
			}
			continue
		}
		gets++
		slowest = max(slowest, r.took())
		if r.took() > spare {
			slow++
		}
		if r.err != nil {
			if failures++; failures <= 5 {
				t.Errorf("%s failed after %v, through %s: %v", r.ID, r.took(), r.Client, r.err)
			}
		}
		if r.late() {
			if late++; late <= 5 {
				t.Errorf("%s took %v and %s attempts, through %s: an attempt may take %v", r.ID, r.took(), r.attempts, r.Client, attempt)
			}
		}
	}
	t.Logf("%d GETs: %d took longer than %v, the slowest %v; %d POSTs: %d failed", gets, slow, spare, slowest.Round(time.Millisecond), len(results)-gets, lost)
	if failures+late > 0 {
		t.Errorf("of %d GETs %d failed and %d were late", gets, failures, late)
	}
	f.judge(t, results, outages...)
}

// judge judges requests by the journals of the services: a POST is executed at most once, what was
// answered was executed, each answer is that to its request, none comes from a worker that is out, and no
// worker executes more at a time than it has slots, as far as answers show when.
func (f *fleet) judge(t *testing.T, results []result, outages ...history.Entry) {
	t.Helper()
	h := &history.History{}
	h.Add(outages...)
	timed := map[history.Entry]bool{} // executions whose times are known
	for _, r := range results {
		if e := r.executed; e.Kind != "" {
			h.Add(e)
			timed[history.Entry{ID: e.ID, Endpoint: e.Endpoint}] = true
		}
	}
	for _, w := range f.Workers {
		h.Add(history.Entry{Kind: history.Slots, Endpoint: w.ID, Count: f.slots})
		journal, err := os.ReadFile(f.journal(w))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(journal)) {
			e := history.Entry{ID: strings.TrimSuffix(line, "\n"), Endpoint: w.ID}
			if timed[e] {
				delete(timed, e) // once: a second execution counts
				continue
			}
			e.Kind = history.Executed
			h.Add(e)
		}
	}
	for _, r := range results {
		h.Add(r.Entry)
	}
	h.Expect(t, history.Limits{})
}

// out are the outages of workers that a network kept from all relays of a load, from a time until it
// healed. The request that has just begun then waits until it has.
func out(workers []*member, from, healed time.Time) (outages []history.Entry) {
	for _, w := range workers {
		outages = append(outages, history.Entry{Kind: history.Down, Endpoint: w.ID, At: from},
			history.Entry{Kind: history.Up, Endpoint: w.ID, At: healed.Add(-twice)})
	}
	return outages
}
