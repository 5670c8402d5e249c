package expiry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/series"
)

// Limits suitable for a relay. A burst of up to 1,056 dead endpoints is checked
// completely; the rest of a larger burst is observed again by later readers.
const (
	DefaultMaxConcurrent = 32
	DefaultMaxPending    = 1024
)

// Result is the result of an observation.
type Result uint8

// The results of Observe.
const (
	Queued           Result = iota // the entry will be checked
	Deduped                        // the entry is already waiting or being checked
	RejectedCapacity               // too many entries wait; the next observation tries again
)

func (r Result) String() string {
	if int(r) < len(resultNames) {
		return resultNames[r]
	}
	return fmt.Sprintf("result(%d)", r)
}

var resultNames = [...]string{Queued: "queued", Deduped: "deduped", RejectedCapacity: "rejected_capacity"}

// Outcome is the outcome of Expire. The zero Outcome is returned together with an error.
type Outcome uint8

// The outcomes of Expire.
const (
	Expired Outcome = iota + 1 // this call removed the entry
	Fresh                      // the entry is alive again or was renewed: no change
	Already                    // the entry had been removed before
)

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", o)
}

// failed counts calls of Expire that returned an error or did not finish.
const failed Outcome = 0

var outcomeNames = [...]string{failed: "error", Expired: "expired", Fresh: "fresh", Already: "already"}

// Config describes a Scheduler of keys of type K.
type Config[K comparable] struct {
	// Expire checks one key again and removes its entry if it is still stale, both in one
	// step (see the contract in the package documentation). It is called on a goroutine of
	// Run, never concurrently for the same key, and must limit its own time; ctx ends with
	// Run. Required.
	Expire func(ctx context.Context, key K) (Outcome, error)
	// MaxConcurrent is how many calls of Expire run simultaneously, at least 1; usually
	// DefaultMaxConcurrent.
	MaxConcurrent int
	// MaxPending is how many keys may wait, at least 1; usually DefaultMaxPending.
	MaxPending int
	// Logger receives one warning for each Expire that failed. Default: none.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: none. Two schedulers need two registerers
	// with different constant labels.
	Registerer prometheus.Registerer
}

func (c Config[K]) validate() error {
	var errs []error
	if c.Expire == nil {
		errs = append(errs, errors.New("Config.Expire is nil: pass the function that checks and removes a key"))
	}
	if c.MaxConcurrent < 1 {
		errs = append(errs, fmt.Errorf("MaxConcurrent %d: nothing would ever be removed; want at least 1, usually %d", c.MaxConcurrent, DefaultMaxConcurrent))
	}
	if c.MaxPending < 1 {
		errs = append(errs, fmt.Errorf("MaxPending %d: every observation would be rejected; want at least 1, usually %d", c.MaxPending, DefaultMaxPending))
	}
	if len(errs) > 0 {
		return fmt.Errorf("expiry: %w", errors.Join(errs...))
	}
	return nil
}

// Scheduler checks observed keys again, each at most once at a time. Create it with New,
// run it with Run; all methods are safe for concurrent use.
type Scheduler[K comparable] struct {
	cfg     Config[K]
	metrics *metrics
	waiting chan claim[K]
	active  atomic.Bool // Run is running

	mu      sync.Mutex
	claimed map[K]struct{} // keys that wait or are being checked
}

// claim is a key and the time of its observation.
type claim[K comparable] struct {
	key   K
	since time.Time
}

// New checks the configuration and reports all problems together. It starts no goroutine.
func New[K comparable](cfg Config[K]) (*Scheduler[K], error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Scheduler[K]{cfg: cfg, waiting: make(chan claim[K], cfg.MaxPending), claimed: map[K]struct{}{}}
	reg := &series.Checked{Registerer: cfg.Registerer}
	s.metrics = newMetrics(reg, func() float64 { return float64(len(s.waiting)) })
	if reg.Err != nil {
		return nil, fmt.Errorf("expiry: register metrics: %w", reg.Err)
	}
	return s, nil
}

// Observe schedules a check of a key that was found stale. It never blocks, and it
// allocates nothing if the key is deduped or rejected. Before Run the key waits.
func (s *Scheduler[K]) Observe(key K) Result {
	result := s.claim(key)
	s.metrics.observations[result].Inc()
	return result
}

func (s *Scheduler[K]) claim(key K) Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, already := s.claimed[key]; already {
		return Deduped
	}
	if len(s.waiting) == cap(s.waiting) { // keys are added only with the lock held
		return RejectedCapacity
	}
	s.claimed[key] = struct{}{}
	s.waiting <- claim[K]{key, time.Now()}
	return Queued
}

// Run checks observed keys until ctx ends, and returns nil when every Expire that it
// started has returned. Run returns an error if another Run is already running.
func (s *Scheduler[K]) Run(ctx context.Context) error {
	if !s.active.CompareAndSwap(false, true) {
		return errors.New("expiry: Run is already running: one Run handles all keys")
	}
	defer s.active.Store(false)
	places := make(chan struct{}, s.cfg.MaxConcurrent)
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select { // take a place before a key, so that a key without a place still counts as waiting
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		select {
		case c := <-s.waiting:
			running.Go(func() {
				defer func() { <-places }()
				s.expire(ctx, c)
			})
		case <-ctx.Done():
			return nil
		}
	}
}

// expire checks one key. The deferred function runs even if Expire panics or ends its
// goroutine.
func (s *Scheduler[K]) expire(ctx context.Context, c claim[K]) {
	outcome, err := failed, errors.New("the function Expire ended its goroutine")
	s.metrics.running.Inc()
	defer func() {
		if v := recover(); v != nil {
			outcome, err = failed, fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		if err == nil && (outcome == failed || int(outcome) >= len(outcomeNames)) {
			err = fmt.Errorf("unknown outcome %d", outcome)
		}
		if err != nil {
			outcome = failed
			if ctx.Err() == nil {
				s.cfg.Logger.Warn("a stale entry could not be checked, the next observation tries again", "key", c.key, "err", err)
			}
		}
		s.metrics.running.Dec()
		s.metrics.duration.Observe(time.Since(c.since).Seconds())
		s.metrics.outcomes[outcome].Inc()
		s.mu.Lock()
		delete(s.claimed, c.key)
		s.mu.Unlock()
	}()
	outcome, err = s.cfg.Expire(ctx, c.key)
}

// metrics are the metrics of a scheduler. The label values are the names of the results
// and outcomes, resolved once; no label contains a key.
type metrics struct {
	observations [len(resultNames)]prometheus.Counter
	outcomes     [len(outcomeNames)]prometheus.Counter
	running      prometheus.Gauge
	duration     prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, waiting func() float64) *metrics {
	f := series.With(reg)
	observations := f.CounterVec("ringway_expiry_observations_total", "Stale entries observed, by result: queued, deduped (already known), rejected_capacity (too many waiting).", "result")
	outcomes := f.CounterVec("ringway_expiry_outcomes_total", "Stale entries checked again, by outcome: expired (removed), fresh (alive again), already (had been removed before), error.", "outcome")
	f.GaugeFunc("ringway_expiry_pending", "Stale entries waiting to be checked.", waiting)
	m := &metrics{
		running:  f.Gauge("ringway_expiry_running", "Stale entries being checked."),
		duration: f.Histogram("ringway_expiry_duration_seconds", "Time from an observation to its outcome, waiting included.", prometheus.ExponentialBuckets(0.0001, 10, 7)), // 100 µs to 100 s
	}
	for i, name := range resultNames {
		m.observations[i] = observations.WithLabelValues(name)
	}
	for i, name := range outcomeNames {
		m.outcomes[i] = outcomes.WithLabelValues(name)
	}
	return m
}
