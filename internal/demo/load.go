package demo

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringway/ringway/internal/wire"
)

const (
	// clientTimeout limits one request. The relays answer sooner, at least with an error.
	clientTimeout = 35 * time.Second
	// maxInFlight limits the requests in flight. Arrivals beyond the limit wait, and the
	// time of waiting counts as latency.
	maxInFlight = 512
	// keptFailures is how many error texts are kept.
	keptFailures = 5
	// The range of the histogram in microseconds, and its significant digits.
	shortest, longest, digits = 1, int64(2 * clientTimeout / time.Microsecond), 3
)

// load sends requests in an open loop: the time at which a request is due does not depend
// on the answers, and its latency counts from that time. A closed loop would send fewer
// requests when the fleet is slow and so hide the slowness.
type load struct {
	cfg    loadConfig
	client *http.Client

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

// run sends requests until ctx ends and returns after the last answer.
func (l *load) run(ctx context.Context) {
	rng := rand.New(rand.NewPCG(l.cfg.Seed, streamArrivals))
	room := make(chan struct{}, maxInFlight)
	var sent sync.WaitGroup
	defer l.client.CloseIdleConnections()
	defer sent.Wait()
	due := time.Now()
	for n := 0; ; n++ {
		// Exponential gaps, as for independent clients (a Poisson process).
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

// request sends one request and returns the worker that answered. It does not use the
// context of run, so that requests in flight at the end finish.
func (l *load) request(target string) (worker string, err error) {
	req, err := http.NewRequest(http.MethodGet, target+"/", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set(wire.ServiceHeader, service)
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
	return resp.Header.Get(wire.EndpointHeader), nil
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

// The service times of a backend are log-normal, like those of real services: most are near
// the median, a few are several times as long.
const (
	medianServiceTime = 5 * time.Millisecond
	serviceTimeSpread = 0.35 // standard deviation of the logarithm
	// slowFactor multiplies the medians of a few workers, so that the load balancing has an
	// effect.
	slowFactor = 3.0
)

// backend is the service next to a worker: it answers every request with the name of the
// worker after a random time.
type backend struct {
	worker   string
	server   *http.Server
	socket   net.Listener
	inFlight atomic.Int64

	wg    sync.WaitGroup // the serving goroutine and one for each connection
	drawn sync.Mutex     // guards rng
	rng   *rand.Rand
	slow  float64
}

type backendConfig struct {
	// Worker is the name in the answers.
	Worker string
	// Slow multiplies every service time; 1 is the normal speed.
	Slow float64
	// Seed and Stream determine the service times.
	Seed, Stream uint64
}

// startBackend binds a free port and serves on it until die.
func startBackend(cfg backendConfig) (*backend, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the service of %s: %w", cfg.Worker, err)
	}
	b := &backend{worker: cfg.Worker, socket: socket, slow: cfg.Slow, rng: rand.New(rand.NewPCG(cfg.Seed, cfg.Stream))}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state { // Close does not wait for connections, so they are counted here
		case http.StateNew:
			b.wg.Add(1)
		case http.StateClosed, http.StateHijacked:
			b.wg.Done()
		}
	}}
	b.wg.Go(func() { _ = b.server.Serve(socket) }) // it ends with die, and its error reports only that
	return b, nil
}

// Addr is the address of the service.
func (b *backend) Addr() string { return b.socket.Addr().String() }

// die closes the listener and all connections immediately, whatever is in flight, as the
// kernel does for a killed process, and waits for the goroutines.
func (b *backend) die() {
	_ = b.server.Close() // only errors of closing a socket
	b.wg.Wait()
}

// ServeHTTP answers after the service time, or not at all if the client disconnects or the
// backend dies first.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.inFlight.Add(1)
	served := sleep(r.Context(), b.serviceTime())
	load := b.inFlight.Add(-1) // without this request, which has ended
	if !served {
		return
	}
	w.Header().Set(wire.LoadHeader, strconv.FormatInt(load, 10))
	_, _ = io.WriteString(w, b.worker+"\n") // an error concerns only the connection of the client
}

func (b *backend) serviceTime() time.Duration {
	b.drawn.Lock()
	z := b.rng.NormFloat64()
	b.drawn.Unlock()
	return time.Duration(float64(medianServiceTime) * b.slow * math.Exp(serviceTimeSpread*z))
}

// sleep waits for d and returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
