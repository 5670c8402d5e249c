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
)

// The bounds that suit a relay. A burst of 1,056 dead endpoints is looked at
// whole; of a larger one the rest is observed again while it is still met.
const (
	DefaultMaxConcurrent = 32
	DefaultMaxPending    = 1024
)

// Result says what became of an observation.
type Result uint8

// The results of Observe.
const (
	Queued           Result = iota // it will be looked at
	Deduped                        // it waits or is being looked at already
	RejectedCapacity               // too many wait; the next observation tries again
)

func (r Result) String() string { return resultNames[r] }

var resultNames = [...]string{Queued: "queued", Deduped: "deduped", RejectedCapacity: "rejected_capacity"}

// Outcome says what Expire found. The zero Outcome is none: it goes with an
// error.
type Outcome uint8

// The outcomes of Expire.
const (
	Expired Outcome = iota + 1 // this call removed it
	Fresh                      // it is alive again, or was renewed: nothing was done
	Already                    // somebody else had removed it
)

func (o Outcome) String() string { return outcomeNames[o] }

// failed is what an Expire that did not finish is counted as.
const failed Outcome = 0

var outcomeNames = [...]string{failed: "error", Expired: "expired", Fresh: "fresh", Already: "already"}

// Config describes a Scheduler of keys of type K.
type Config[K comparable] struct {
	// Expire looks at one key again and, if it is still stale, removes it: the
	// check and the removal in one step (see the package's contract). It is called
	// on a goroutine of Run, never twice at once for one key, and bounds its own
	// time; ctx ends with Run. Required.
	Expire func(ctx context.Context, key K) (Outcome, error)
	// MaxConcurrent is how many calls of Expire run at once, at least 1; usually
	// DefaultMaxConcurrent.
	MaxConcurrent int
	// MaxPending is how many keys wait for their turn, at least 1; usually
	// DefaultMaxPending.
	MaxPending int
	// Logger gets one warning for each Expire that failed. Default: none.
	Logger *slog.Logger
	// Registerer takes the metrics. Default: none. Two schedulers need two, told
	// apart by a constant label.
	Registerer prometheus.Registerer
}

func (c Config[K]) validate() error {
	var errs []error
	if c.Expire == nil {
		errs = append(errs, errors.New("Config.Expire is nil: say how a key is looked at and removed"))
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

// Scheduler looks at observed keys again, each at most once at a time. New makes
// one, Run makes it work; all methods are safe for concurrent use.
type Scheduler[K comparable] struct {
	cfg     Config[K]
	metrics *metrics
	waiting chan claim[K]
	active  atomic.Bool // Run runs

	mu      sync.Mutex
	claimed map[K]struct{} // keys that wait or are being looked at
}

// claim is a key and when it was observed.
type claim[K comparable] struct {
	key   K
	since time.Time
}

// New checks the configuration, all of it at once. It starts nothing.
func New[K comparable](cfg Config[K]) (*Scheduler[K], error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Scheduler[K]{cfg: cfg, waiting: make(chan claim[K], cfg.MaxPending), claimed: map[K]struct{}{}}
	s.metrics = newMetrics(func() float64 { return float64(len(s.waiting)) })
	if err := s.metrics.register(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("expiry: register metrics: %w", err)
	}
	return s, nil
}

// Observe hands over a key that was found stale. It never blocks, and allocates
// nothing when the key is deduped or rejected. Before Run the key waits for it.
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
	if len(s.waiting) == cap(s.waiting) { // only this lock's holder adds to it
		return RejectedCapacity
	}
	s.claimed[key] = struct{}{}
	s.waiting <- claim[K]{key, time.Now()}
	return Queued
}

// Run looks at what was observed until ctx ends, and returns, with nil, when
// every Expire that it started has returned. One Run runs at a time; an error
// says that one does already.
func (s *Scheduler[K]) Run(ctx context.Context) error {
	if !s.active.CompareAndSwap(false, true) {
		return errors.New("expiry: Run is running already: one is enough for all keys")
	}
	defer s.active.Store(false)
	places := make(chan struct{}, s.cfg.MaxConcurrent)
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select { // a place first, so that a key without one still counts as waiting
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

// expire looks at one key. What it defers runs however Expire ends.
func (s *Scheduler[K]) expire(ctx context.Context, c claim[K]) {
	outcome, err := failed, errors.New("it ended its goroutine")
	s.metrics.running.Inc()
	defer func() {
		if v := recover(); v != nil {
			outcome, err = failed, fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		if err == nil && (outcome == failed || int(outcome) >= len(outcomeNames)) {
			err = fmt.Errorf("neither an outcome nor an error, but %d", outcome)
		}
		if err != nil {
			outcome = failed
			if ctx.Err() == nil {
				s.cfg.Logger.Warn("a stale entry could not be looked at, the next observation tries again", "key", c.key, "err", err)
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
