package advertise

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

	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/metric"
)

// Limits suitable for a relay. A burst of up to 1,056 dead endpoints is checked
// completely; the rest of a larger burst is observed again by later readers.
const (
	maxConcurrentChecks = 32
	maxPendingChecks    = 1024
)

// observation is the result of observe.
type observation uint8

// The results of observe.
const (
	checkQueued   observation = iota // the entry will be checked
	checkDeduped                     // the entry is already waiting or being checked
	checkRejected                    // too many entries wait; the next observation tries again
)

func (r observation) String() string {
	if int(r) < len(observationNames) {
		return observationNames[r]
	}
	return fmt.Sprintf("result(%d)", r)
}

var observationNames = [...]string{checkQueued: "queued", checkDeduped: "deduped", checkRejected: "rejected_capacity"}

// checkOutcome is the outcome of Expire. The zero checkOutcome is returned together with an error.
type checkOutcome uint8

// The outcomes of Expire.
const (
	checkExpired checkOutcome = iota + 1 // this call removed the entry
	checkFresh                           // the entry is alive again or was renewed: no change
	checkAlready                         // the entry had been removed before
)

func (o checkOutcome) String() string {
	if int(o) < len(checkOutcomeNames) {
		return checkOutcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", o)
}

// checkFailed counts calls of Expire that returned an error or did not finish.
const checkFailed checkOutcome = 0

var checkOutcomeNames = [...]string{checkFailed: "error", checkExpired: "expired", checkFresh: "fresh", checkAlready: "already"}

// schedulerConfig describes a scheduler of keys of type K.
type schedulerConfig[K comparable] struct {
	// Expire checks one key again and removes its entry if it is still stale, both in one
	// step; see scheduler. It is called on a goroutine of
	// Run, never concurrently for the same key, and must limit its own time; ctx ends with
	// Run. Required.
	Expire func(ctx context.Context, key K) (checkOutcome, error)
	// MaxConcurrent is how many calls of Expire run simultaneously, at least 1; usually
	// maxConcurrentChecks.
	MaxConcurrent int
	// MaxPending is how many keys may wait, at least 1; usually maxPendingChecks.
	MaxPending int
	// Lines receives one warning for each Expire that failed. Default: none.
	Lines *loglimit.Limiter
	// Registerer receives the metrics. Default: none. Two schedulers need two registerers
	// with different constant labels.
	Registerer prometheus.Registerer
}

func (c schedulerConfig[K]) validate() error {
	var errs []error
	if c.Expire == nil {
		errs = append(errs, errors.New("no Expire: pass the function that checks and removes a key"))
	}
	if c.MaxConcurrent < 1 {
		errs = append(errs, fmt.Errorf("MaxConcurrent %d: nothing would ever be removed; want at least 1, usually %d", c.MaxConcurrent, maxConcurrentChecks))
	}
	if c.MaxPending < 1 {
		errs = append(errs, fmt.Errorf("MaxPending %d: every observation would be rejected; want at least 1, usually %d", c.MaxPending, maxPendingChecks))
	}
	if len(errs) > 0 {
		return fmt.Errorf("expiry: %w", errors.Join(errs...))
	}
	return nil
}

// scheduler removes entries that readers find stale, without delaying the readers: a reader passes
// the key to observe and continues. The entry is checked again, each at most once at a time, and
// removed only if it is still stale. It is the expire scheduler of Rivet's envoy load balancing.
//
//	reader ── observe(key) ──► claimed already? ── yes ──► deduped
//	                                │ no
//	                                ▼
//	                          1,024 waiting? ──── yes ──► rejected_capacity
//	                                │ no
//	                                ▼ queued
//	         run ──► up to 32 at a time ──► Expire(key) ──► expired | fresh | already
//	                                             │
//	                                             └── after any result the key can
//	                                                 be observed again
//
// Expire checks and removes in one step of the owner of the entries, the same step that a graceful
// removal uses: the first of the two removes the entry and reports it, the second finds no entry
// and returns checkAlready. An entry renewed since it was observed is checkFresh. An error, a panic
// or a runtime.Goexit in Expire frees the key and the place, and does not affect other keys. Keys
// that wait when run ends keep waiting; a later run handles them.
//
// All methods may be called from any goroutine. observe takes one short lock, which is not held
// while Expire is called; run owns one goroutine for each running Expire and waits for all of them.
type scheduler[K comparable] struct {
	cfg     schedulerConfig[K]
	metrics *schedulerMetrics
	waiting chan claimed[K]
	active  atomic.Bool // run is running

	mu      sync.Mutex
	claimed map[K]struct{} // keys that wait or are being checked
}

// claimed is a key and the time of its observation.
type claimed[K comparable] struct {
	key   K
	since time.Time
}

// newScheduler checks the configuration and reports all problems together. It starts no goroutine.
func newScheduler[K comparable](cfg schedulerConfig[K]) (*scheduler[K], error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Lines == nil {
		cfg.Lines = loglimit.New(slog.New(slog.DiscardHandler))
	}
	s := &scheduler[K]{cfg: cfg, waiting: make(chan claimed[K], cfg.MaxPending), claimed: map[K]struct{}{}}
	reg := &metric.Checked{Registerer: cfg.Registerer}
	s.metrics = newSchedulerMetrics(reg, func() float64 { return float64(len(s.waiting)) })
	if reg.Err != nil {
		return nil, fmt.Errorf("expiry: register metrics: %w", reg.Err)
	}
	return s, nil
}

// observe schedules a check of a key that was found stale. It never blocks, and it
// allocates nothing if the key is deduped or rejected. Before run the key waits.
func (s *scheduler[K]) observe(key K) observation {
	result := s.claim(key)
	s.metrics.observations[result].Inc()
	return result
}

// claim marks a key from its observation to the end of its check. So a key that thousands of readers
// find stale takes one place and one check.
func (s *scheduler[K]) claim(key K) observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, already := s.claimed[key]; already {
		return checkDeduped
	}
	if len(s.waiting) == cap(s.waiting) { // keys are added only with the lock held
		return checkRejected
	}
	s.claimed[key] = struct{}{}
	s.waiting <- claimed[K]{key, time.Now()}
	return checkQueued
}

// run checks observed keys until ctx ends, and returns nil when every Expire that it
// started has returned. run returns an error if another run is already running.
func (s *scheduler[K]) run(ctx context.Context) error {
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
func (s *scheduler[K]) expire(ctx context.Context, c claimed[K]) {
	outcome, err := checkFailed, errors.New("the function Expire ended its goroutine")
	s.metrics.running.Inc()
	defer func() {
		if v := recover(); v != nil {
			outcome, err = checkFailed, fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		if err == nil && (outcome == checkFailed || int(outcome) >= len(checkOutcomeNames)) {
			err = fmt.Errorf("unknown outcome %d", outcome)
		}
		if err != nil {
			outcome = checkFailed
			if ctx.Err() == nil {
				s.cfg.Lines.Log(slog.LevelWarn, "endpoint could not be checked; its next failed connection has it checked again", "endpoint", fmt.Sprint(c.key), "err", err)
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

// schedulerMetrics are the metrics of a scheduler. The label values are the names of the results
// and outcomes, resolved once; no label contains a key.
type schedulerMetrics struct {
	observations [len(observationNames)]prometheus.Counter
	outcomes     [len(checkOutcomeNames)]prometheus.Counter
	running      prometheus.Gauge
	duration     prometheus.Histogram
}

func newSchedulerMetrics(reg prometheus.Registerer, waiting func() float64) *schedulerMetrics {
	f := metric.With(reg)
	observations := f.CounterVec("ringway_expiry_observations_total", "Stale entries observed, by result: queued, deduped (already known), rejected_capacity (too many waiting).", "result")
	outcomes := f.CounterVec("ringway_expiry_outcomes_total", "Stale entries checked again, by outcome: expired (removed), fresh (alive again), already (had been removed before), error.", "outcome")
	f.GaugeFunc("ringway_expiry_pending", "Stale entries waiting to be checked.", waiting)
	m := &schedulerMetrics{
		running:  f.Gauge("ringway_expiry_running", "Stale entries being checked."),
		duration: f.Histogram("ringway_expiry_duration_seconds", "Time from an observation to its outcome, waiting included.", prometheus.ExponentialBuckets(0.0001, 10, 7)), // 100 µs to 100 s
	}
	for i, name := range observationNames {
		m.observations[i] = observations.WithLabelValues(name)
	}
	for i, name := range checkOutcomeNames {
		m.outcomes[i] = outcomes.WithLabelValues(name)
	}
	return m
}
