//go:build unix

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/history"
	"github.com/ringway/ringway/internal/procs"
)

// load is clients that send one request after the other, half of them GETs and
// half of them POSTs, over connections that they keep.
type load struct {
	name     string
	finished atomic.Int64              // requests
	each     [loadClients]atomic.Int64 // finished requests of each client
	stopping chan struct{}
	once     sync.Once
	clients  sync.WaitGroup

	mu      sync.Mutex
	results []result
}

// result is one request of a load.
type result struct {
	request
	answer
	began time.Time
	took  time.Duration
}

func (r result) ok() bool { return r.err == nil && r.status == http.StatusOK }

func (r result) String() string {
	return fmt.Sprintf("%s %s through %s: %v", r.method, r.id, r.addr, r.answer)
}

type loadConfig struct {
	// Name begins the id of every request.
	Name string
	// Service is asked.
	Service string
	// Relay is the relay through which to send the n-th request of a client.
	Relay func(n int) *relay
	// Retry has clients try the next relay when one refuses the connection.
	Retry bool
	// GETs: no POSTs.
	GETs bool
	// Count gets each result, which is then not kept; several clients call it at a time.
	Count func(result)
	// Pause is how long a client waits between two requests.
	Pause time.Duration
}

const (
	loadClients = 6
	// loadPath takes a moment, so that requests are in flight when something
	// happens, and so that the load does not take the whole machine.
	loadPath = "/delay?ms=10"
)

// long reports whether there is time for tests of minutes, as in `make test-long`.
func long() bool { return os.Getenv("LONG_TESTS") != "" }

// full reports whether there is time for tests of an hour, as in `make test-full`.
func full() bool { return os.Getenv("LONG_TESTS") == "full" }

func size(ordinary, inCI, asked int64) int64 {
	switch {
	case full():
		return asked
	case long():
		return inCI
	}
	return ordinary
}

// startLoad sends until stop, or the end of the test.
func (f *fleet) startLoad(t *testing.T, cfg loadConfig) *load {
	t.Helper()
	l := &load{name: cfg.Name, stopping: make(chan struct{})}
	client := newClient(t)
	for c := range loadClients {
		method := http.MethodGet
		if c%2 == 1 {
			method = http.MethodPost
		}
		if cfg.GETs {
			method = http.MethodGet
		}
		l.clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stopping:
					return
				default:
				}
				if r := l.one(client, cfg, method, c, n); cfg.Count != nil {
					cfg.Count(r)
				} else {
					l.keep(r)
				}
				l.finished.Add(1)
				l.each[c].Add(1)
				time.Sleep(cfg.Pause)
			}
		})
	}
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *load) one(client *client, cfg loadConfig, method string, c, n int) (r result) {
	r = result{began: time.Now()}
	defer func() { r.took = time.Since(r.began) }()
	for try := range 3 {
		r.request = request{method: method, addr: cfg.Relay(c + n + try).Ingress, path: loadPath, service: cfg.Service, id: fmt.Sprintf("%s-%d-%d", l.name, c, n)}
		if method == http.MethodPost {
			r.payload = strings.NewReader("payload of " + r.id)
		}
		r.answer = client.send(r.request)
		if !cfg.Retry || !errors.Is(r.err, syscall.ECONNREFUSED) {
			break
		}
	}
	return r
}

func (l *load) keep(r result) {
	l.mu.Lock()
	l.results = append(l.results, r)
	l.mu.Unlock()
}

// more waits until n further requests have finished.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	target := l.finished.Load() + n
	procs.Await(t, fmt.Sprintf("%d more requests", n), func() bool { return l.finished.Load() >= target })
}

// turn waits until each client has finished two further requests: all that had begun before are over.
func (l *load) turn(t *testing.T) {
	t.Helper()
	for c := range l.each {
		target := l.each[c].Load() + 2
		procs.Await(t, fmt.Sprintf("two more requests of client %d", c), func() bool { return l.each[c].Load() >= target })
	}
}

// stop ends the load and returns what became of its requests.
func (l *load) stop() []result {
	l.once.Do(func() { close(l.stopping) })
	l.clients.Wait()
	return l.results
}

// failed are the requests that were not answered with 200.
func failed(results []result) (bad []result) {
	for _, r := range results {
		if !r.ok() {
			bad = append(bad, r)
		}
	}
	return bad
}

// noneFailed reports every request that failed, the first few in full.
func noneFailed(t *testing.T, results []result) {
	t.Helper()
	bad := failed(results)
	for _, r := range bad[:min(5, len(bad))] {
		t.Errorf("failed: %v", r)
	}
	if len(bad) > 0 {
		t.Errorf("%d of %d requests failed", len(bad), len(results))
	}
	t.Logf("%d requests, %d failed", len(results), len(bad))
}

// judge judges the history of a load: a POST is executed at most once, what was answered was
// executed, each answer is that to its request, and no worker gets a request that began leftFor after
// its exit.
func (f *fleet) judge(t *testing.T, results []result) {
	t.Helper()
	h := &history.History{}
	h.Add(f.outages...)
	executed := f.executed(t)
	repeated := 0
	for _, r := range results {
		id := r.method + " " + r.id
		h.Add(history.Entry{Kind: history.Request, ID: id, Client: r.addr, Service: r.service, Endpoint: r.header.Get("Worker"),
			At: r.began, Until: r.began.Add(r.took), Status: r.status, Echo: r.header.Get("Seen-Request"), Once: r.method == http.MethodPost})
		n := executed[id]
		if n > 1 && r.method != http.MethodPost {
			repeated++
		}
		for range n {
			h.Add(history.Entry{Kind: history.Executed, ID: id})
		}
	}
	h.Expect(t, history.Limits{Down: leftFor})
	t.Logf("%d GETs were repeated", repeated)
}
