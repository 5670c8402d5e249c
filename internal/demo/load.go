package demo

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringway/ringway/internal/loadgen"
)

const (
	// keptFailures is how many error texts are kept.
	keptFailures = 5
	// The range of the histogram in microseconds, and its significant digits.
	shortest, longest, digits = 1, int64(2 * loadgen.Timeout / time.Microsecond), 3
)

// load sends requests and counts their results.
type load struct {
	cfg loadConfig

	mu      sync.Mutex // guards everything below
	total   counts
	window  *hdrhistogram.Histogram
	windows counts // at the start of window
	since   time.Time
}

type loadConfig struct {
	// Targets are the base URLs of the relays, used in turn.
	Targets []string
	// Rate is in requests per second.
	Rate float64
	// Seed determines the arrivals.
	Seed uint64
}

// counts are the results that the clients counted.
type counts struct {
	Requests, Errors uint64
	Worker           map[string]uint64 // requests answered, by worker
	Latency          *hdrhistogram.Histogram
	Failures         []string // the first few
}

// window is the results since the previous call of snapshot.
type window struct {
	Seconds          float64
	Requests, Errors uint64
	Worker           map[string]uint64
	P50, P99         time.Duration
}

func newLoad(cfg loadConfig) *load {
	return &load{
		cfg:     cfg,
		total:   counts{Worker: map[string]uint64{}, Latency: newHistogram()},
		window:  newHistogram(),
		windows: counts{Worker: map[string]uint64{}},
		since:   time.Now(),
	}
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(shortest, longest, digits) }

// run sends requests until ctx ends and returns after the last answer.
func (l *load) run(ctx context.Context) {
	loadgen.Load(ctx, loadgen.LoadConfig{
		Targets: l.cfg.Targets, Services: []string{service}, Rate: l.cfg.Rate,
		Random: rand.New(rand.NewPCG(l.cfg.Seed, streamArrivals)), Done: l.count,
	})
}

func (l *load) count(r loadgen.Result) {
	us := min(max(r.Took.Microseconds(), shortest), longest)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Requests++
	_ = l.total.Latency.RecordValue(us) // fails only out of range
	_ = l.window.RecordValue(us)
	if r.Err == nil {
		l.total.Worker[r.Endpoint]++
		return
	}
	l.total.Errors++
	if len(l.total.Failures) < keptFailures {
		l.total.Failures = append(l.total.Failures, time.Now().Format(clock)+" "+r.Err.Error())
	}
}

// clock is the format for times of day.
const clock = "15:04:05.000"

// totals returns the results so far. The histogram is shared: call totals only after run
// has returned.
func (l *load) totals() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.total
	out.Worker = maps.Clone(out.Worker)
	return out
}

// snapshot returns the results since the previous call and begins a new window.
func (l *load) snapshot() window {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	w := window{
		Seconds:  now.Sub(l.since).Seconds(),
		Requests: l.total.Requests - l.windows.Requests, Errors: l.total.Errors - l.windows.Errors,
		Worker: map[string]uint64{},
		P50:    quantile(l.window, 50), P99: quantile(l.window, 99),
	}
	for id, n := range l.total.Worker {
		w.Worker[id] = n - l.windows.Worker[id]
	}
	l.windows = counts{Requests: l.total.Requests, Errors: l.total.Errors, Worker: maps.Clone(l.total.Worker)}
	l.window.Reset()
	l.since = now
	return w
}

func quantile(h *hdrhistogram.Histogram, percent float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(percent)) * time.Microsecond
}
