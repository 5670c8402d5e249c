package demo

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringway/ringway/internal/relay/ingress"
)

const (
	// clientTimeout bounds one request. The relays answer sooner, if only with an
	// error.
	clientTimeout = 35 * time.Second
	// maxInFlight bounds the requests under way. Arrivals beyond it wait, and
	// their waiting counts as latency.
	maxInFlight = 512
	// keptFailures are remembered word for word.
	keptFailures = 5
	// The histogram's range in microseconds, and its digits.
	shortest, longest, digits = 1, int64(2 * clientTimeout / time.Microsecond), 3
)

// load sends requests in an open loop: when one is due does not depend on the
// answers, and its latency counts from when it was due. A closed loop would send
// less exactly when the fleet is slow, and so hide that it is.
type load struct {
	cfg    loadConfig
	client *http.Client

	mu      sync.Mutex // guards everything below
	total   counts
	window  *hdrhistogram.Histogram
	windows counts // when window was begun
	since   time.Time
}

type loadConfig struct {
	// Targets are the base URLs of the relays, taken in turn.
	Targets []string
	// Rate is in requests per second.
	Rate float64
	// Seed decides the arrivals.
	Seed uint64
}

// counts are what the clients saw.
type counts struct {
	Requests, Errors uint64
	Worker           map[string]uint64 // requests answered, by worker
	Latency          *hdrhistogram.Histogram
	Failures         []string // the first few
}

// window is what the clients saw since the last look.
type window struct {
	Seconds          float64
	Requests, Errors uint64
	Worker           map[string]uint64
	P50, P99         time.Duration
}

func newLoad(cfg loadConfig) *load {
	return &load{
		cfg: cfg,
		client: &http.Client{Timeout: clientTimeout, Transport: &http.Transport{
			MaxIdleConnsPerHost: maxInFlight, DisableCompression: true,
		}},
		total:   counts{Worker: map[string]uint64{}, Latency: newHistogram()},
		window:  newHistogram(),
		windows: counts{Worker: map[string]uint64{}},
		since:   time.Now(),
	}
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(shortest, longest, digits) }

// run sends until ctx ends, and returns when the last answer is there.
func (l *load) run(ctx context.Context) {
	rng := rand.New(rand.NewPCG(l.cfg.Seed, streamArrivals))
	room := make(chan struct{}, maxInFlight)
	var sent sync.WaitGroup
	defer l.client.CloseIdleConnections()
	defer sent.Wait()
	due := time.Now()
	for n := 0; ; n++ {
		// Exponential gaps: arrivals of clients that know nothing of each other.
		due = due.Add(time.Duration(rng.ExpFloat64() / l.cfg.Rate * float64(time.Second)))
		if !sleep(ctx, time.Until(due)) {
			return
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		at, target := due, l.cfg.Targets[n%len(l.cfg.Targets)]
		sent.Go(func() {
			worker, err := l.request(target)
			l.count(worker, time.Since(at), err)
			<-room
		})
	}
}

// request sends one request and returns which worker answered it. It is not
// bound to the context of run: what was sent is waited for, not given up.
func (l *load) request(target string) (worker string, err error) {
	req, err := http.NewRequest(http.MethodGet, target+"/", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set(ingress.ServiceHeader, service)
	resp, err := l.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end below
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return "", fmt.Errorf("the answer of %s broke off: %w", target, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answered %s: %.600s", target, resp.Status, body)
	}
	return resp.Header.Get(ingress.EndpointHeader), nil
}

func (l *load) count(worker string, took time.Duration, err error) {
	us := min(max(took.Microseconds(), shortest), longest)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Requests++
	_ = l.total.Latency.RecordValue(us) // fails only out of range
	_ = l.window.RecordValue(us)
	if err == nil {
		l.total.Worker[worker]++
		return
	}
	l.total.Errors++
	if len(l.total.Failures) < keptFailures {
		l.total.Failures = append(l.total.Failures, time.Now().Format(clock)+" "+err.Error())
	}
}

// clock is how times of day are shown.
const clock = "15:04:05.000"

// totals are what the clients saw so far. The histogram is shared: call it when
// run has returned.
func (l *load) totals() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.total
	out.Worker = maps.Clone(out.Worker)
	return out
}

// look returns what happened since the last look and begins a new window.
func (l *load) look() window {
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
