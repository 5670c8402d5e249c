package containers

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// clientsPerEntry is the number of requests in flight at each relay and gate.
const clientsPerEntry = 2

// load has clients that send GETs one after the other.
type load struct {
	counts   map[string]*atomic.Int64 // by entry
	stopping chan struct{}
	clients  sync.WaitGroup

	mu      sync.Mutex
	failed  []string
	slowest time.Duration
	by      string // the slowest
}

// startLoad sends to these entries until stop.
func (f *fleet) startLoad(t *testing.T, to entries) *load {
	t.Helper()
	l := &load{counts: map[string]*atomic.Int64{}, stopping: make(chan struct{})}
	for _, e := range to {
		count := &atomic.Int64{}
		l.counts[e.name] = count
		for range clientsPerEntry {
			l.clients.Go(func() {
				for {
					select {
					case <-l.stopping:
						return
					default:
					}
					l.one(f, e)
					count.Add(1)
				}
			})
		}
	}
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *load) one(f *fleet, e entry) {
	began := time.Now()
	status, body, err := f.get("http://"+e.ingress+"/", service)
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	if took > l.slowest {
		l.slowest, l.by = took, e.name
	}
	if err != nil || status != http.StatusOK || !strings.HasPrefix(string(body), service+"-") {
		l.failed = append(l.failed, fmt.Sprintf("through %s, after %v: %d %.300s %v", e.name, took, status, body, err))
	}
}

// more waits until n further requests have finished at every entry.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	for name, count := range l.counts {
		target := count.Load() + n
		await(t, fmt.Sprintf("%d more requests through %s", n, name), func() bool { return count.Load() >= target })
	}
}

// stop ends the load. It may be called more than once.
func (l *load) stop() {
	l.mu.Lock()
	select {
	case <-l.stopping:
	default:
		close(l.stopping)
	}
	l.mu.Unlock()
	l.clients.Wait()
}

// noneFailed ends the load and reports every request that failed, a few in full.
func (l *load) noneFailed(t *testing.T) {
	t.Helper()
	l.stop()
	total := int64(0)
	for _, count := range l.counts {
		total += count.Load()
	}
	for _, text := range l.failed[:min(5, len(l.failed))] {
		t.Errorf("failed: %s", text)
	}
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed", len(l.failed), total)
	}
	t.Logf("%d requests, %d failed; the slowest took %v, through %s", total, len(l.failed), l.slowest.Round(time.Millisecond), l.by)
}
