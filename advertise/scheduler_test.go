package advertise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/logtest"
)

// schedulerBench is a scheduler whose Expire the test controls, inside a synctest bubble.
type schedulerBench struct {
	*scheduler[int]
	t        *testing.T
	registry *prometheus.Registry
	log      strings.Builder
	stop     context.CancelFunc
	ended    chan error
}

func newSchedulerBench(t *testing.T, cfg schedulerConfig[int]) *schedulerBench {
	t.Helper()
	b := &schedulerBench{t: t, registry: prometheus.NewRegistry()}
	if cfg.MaxConcurrent == 0 {
		cfg.MaxConcurrent, cfg.MaxPending = 2, 4
	}
	cfg.Registerer, cfg.Lines = b.registry, loglimit.New(slog.New(slog.NewTextHandler(&b.log, nil)))
	s, err := newScheduler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.scheduler = s
	return b
}

func (b *schedulerBench) start() {
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- b.run(ctx) }()
	synctest.Wait()
}

func (b *schedulerBench) end() {
	b.t.Helper()
	b.stop()
	if err := <-b.ended; err != nil {
		b.t.Errorf("Run returned %v", err)
	}
}

func (b *schedulerBench) want(name, label string, want float64) {
	b.t.Helper()
	if got := logtest.Value(b.t, b.registry, name, label); got != want {
		b.t.Errorf("%s{%s} is %v, want %v", name, label, got, want)
	}
}

func (b *schedulerBench) wantObserved(key int, want observation) {
	b.t.Helper()
	if got := b.observe(key); got != want {
		b.t.Errorf("observing %d: %v, want %v", key, got, want)
	}
}

func TestAKeyIsCheckedOnceAtATimeAndAgainWhenObservedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		b := newSchedulerBench(t, schedulerConfig[int]{Expire: func(context.Context, int) (checkOutcome, error) {
			calls.Add(1)
			time.Sleep(time.Second)
			return checkFresh, nil
		}})
		b.wantObserved(1, checkQueued)
		b.wantObserved(1, checkDeduped) // while it waits
		b.start()
		defer b.end()
		b.wantObserved(1, checkDeduped) // while it is checked
		time.Sleep(2 * time.Second)
		b.wantObserved(1, checkQueued)
		time.Sleep(2 * time.Second)
		if got := calls.Load(); got != 2 {
			t.Errorf("looked at %d times, want 2", got)
		}
		b.want("ringway_expiry_observations_total", "queued", 2)
		b.want("ringway_expiry_observations_total", "deduped", 2)
		b.want("ringway_expiry_outcomes_total", "fresh", 2)
		b.want("ringway_expiry_duration_seconds", "", 2)
	})
}

func TestNoMoreRunAndWaitThanAllowedAndTheRestIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var running, most atomic.Int32
		b := newSchedulerBench(t, schedulerConfig[int]{MaxConcurrent: 2, MaxPending: 4, Expire: func(context.Context, int) (checkOutcome, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-release
			return checkExpired, nil
		}})
		b.start()
		defer b.end()
		b.wantObserved(0, checkQueued)
		b.wantObserved(1, checkQueued)
		synctest.Wait() // both run
		for key := 2; key < 6; key++ {
			b.wantObserved(key, checkQueued)
		}
		for key := 6; key < 100; key++ {
			b.wantObserved(key, checkRejected)
		}
		b.wantObserved(3, checkDeduped) // known keys are known even when it is full
		synctest.Wait()
		b.want("ringway_expiry_pending", "", 4)
		b.want("ringway_expiry_running", "", 2)
		b.want("ringway_expiry_observations_total", "rejected_capacity", 94)
		close(release)
		synctest.Wait()
		b.want("ringway_expiry_outcomes_total", "expired", 6)
		b.want("ringway_expiry_pending", "", 0)
		b.want("ringway_expiry_running", "", 0)
		if got := most.Load(); got != 2 {
			t.Errorf("%d ran at once, want 2", got)
		}
		b.wantObserved(99, checkQueued) // a rejected key was not remembered
	})
}

func TestAfterEveryExpireTheKeyAndThePlaceAreFreed(t *testing.T) {
	for name, c := range map[string]struct {
		expire func() (checkOutcome, error)
		log    string
	}{
		"an error":              {func() (checkOutcome, error) { return checkExpired, errors.New("disk on fire") }, "disk on fire"},
		"a panic":               {func() (checkOutcome, error) { panic("out of cheese") }, "out of cheese"},
		"a panic with nil":      {func() (checkOutcome, error) { panic(nil) }, "panic"},
		"the goroutine's end":   {func() (checkOutcome, error) { runtime.Goexit(); return 0, nil }, "ended its goroutine"},
		"no outcome":            {func() (checkOutcome, error) { return 0, nil }, "unknown outcome"},
		"an outcome of its own": {func() (checkOutcome, error) { return 9, nil }, "unknown outcome"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				healed := false
				b := newSchedulerBench(t, schedulerConfig[int]{MaxConcurrent: 1, MaxPending: 8, Expire: func(_ context.Context, key int) (checkOutcome, error) {
					if key == 1 && !healed {
						return c.expire()
					}
					return checkExpired, nil
				}})
				b.start()
				defer b.end()
				b.wantObserved(1, checkQueued)
				b.wantObserved(2, checkQueued) // needs the same place
				synctest.Wait()
				b.want("ringway_expiry_outcomes_total", "error", 1)
				b.want("ringway_expiry_outcomes_total", "expired", 1)
				b.want("ringway_expiry_running", "", 0)
				if log := b.log.String(); !strings.Contains(log, c.log) || strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "endpoint=1") {
					t.Errorf("want one warning with the key and %q, got: %s", c.log, log)
				}
				healed = true
				b.wantObserved(1, checkQueued)
				synctest.Wait()
				b.want("ringway_expiry_outcomes_total", "expired", 2)
			})
		})
	}
}

func TestRunWaitsForWhatItStartedAndLeavesTheRestForTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []int
		b := newSchedulerBench(t, schedulerConfig[int]{MaxConcurrent: 1, MaxPending: 4, Expire: func(ctx context.Context, key int) (checkOutcome, error) {
			if key == 1 {
				<-ctx.Done()
				time.Sleep(time.Minute) // it takes its time, and Run waits
				seen = append(seen, key)
				return 0, ctx.Err()
			}
			seen = append(seen, key)
			return checkExpired, nil
		}})
		b.start()
		b.wantObserved(1, checkQueued)
		synctest.Wait()
		b.wantObserved(2, checkQueued)
		if err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("a second Run next to the first: %v", err)
		}
		b.end()
		if fmt.Sprint(seen) != "[1]" {
			t.Errorf("when Run returned %v had ended, want [1]", seen)
		}
		if b.log.Len() > 0 {
			t.Errorf("the end of Run is no failure of Expire, but: %s", b.log.String())
		}
		b.want("ringway_expiry_pending", "", 1)
		b.start()
		b.end()
		if fmt.Sprint(seen) != "[1 2]" {
			t.Errorf("after the second Run %v, want [1 2]", seen)
		}
	})
}

func TestABadConfigurationOfTheSchedulerIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := newScheduler(schedulerConfig[int]{MaxPending: -1})
	for _, want := range []string{"no Expire", "MaxConcurrent 0", "usually 32", "MaxPending -1", "usually 1024"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that says %q, got: %v", want, err)
		}
	}
	cfg := schedulerConfig[int]{MaxConcurrent: 1, MaxPending: 1, Registerer: prometheus.NewRegistry(), Expire: alwaysExpires}
	if _, err := newScheduler(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := newScheduler(cfg); err == nil {
		t.Error("two schedulers share one set of metrics")
	}
}

func alwaysExpires(context.Context, int) (checkOutcome, error) { return checkExpired, nil }

func TestAnObservationThatChangesNothingAllocatesNothing(t *testing.T) {
	s, err := newScheduler(schedulerConfig[string]{MaxConcurrent: 1, MaxPending: 1, Expire: func(context.Context, string) (checkOutcome, error) { return checkFresh, nil }})
	if err != nil {
		t.Fatal(err)
	}
	s.observe("worker-1")
	for key, want := range map[string]observation{"worker-1": checkDeduped, "worker-2": checkRejected} {
		if allocs := testing.AllocsPerRun(100, func() {
			if got := s.observe(key); got != want {
				t.Fatalf("%v, want %v", got, want)
			}
		}); allocs != 0 {
			t.Errorf("%v: %v allocations", want, allocs)
		}
	}
}

// While thousands of readers find dead entries, no entry may run twice at the same time.
func TestManyConcurrentReadersKeepEveryBound(t *testing.T) {
	var mu sync.Mutex
	running, most, checked := map[int]bool{}, 0, make(chan struct{}, 1)
	s, err := newScheduler(schedulerConfig[int]{MaxConcurrent: 3, MaxPending: 5, Expire: func(_ context.Context, key int) (checkOutcome, error) {
		select {
		case checked <- struct{}{}:
		default:
		}
		mu.Lock()
		if running[key] {
			t.Errorf("key %d is looked at twice at once", key)
		}
		running[key] = true
		most = max(most, len(running))
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		delete(running, key)
		mu.Unlock()
		return checkFresh, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var runs, readers sync.WaitGroup
	runs.Go(func() { _ = s.run(ctx) })
	for range 8 {
		readers.Go(func() {
			for i := range 2000 {
				s.observe(i % 20)
			}
		})
	}
	readers.Wait()
	<-checked
	cancel()
	runs.Wait()
	if most > 3 {
		t.Errorf("%d ran at once, want at most 3", most)
	}
}

func BenchmarkSchedulerObserve(b *testing.B) {
	for _, c := range []struct {
		name string
		key  int
	}{{"deduped", 1}, {"rejected", 2}} {
		b.Run(c.name, func(b *testing.B) {
			s, err := newScheduler(schedulerConfig[int]{MaxConcurrent: 1, MaxPending: 1, Expire: alwaysExpires})
			if err != nil {
				b.Fatal(err)
			}
			s.observe(1)
			b.ReportAllocs()
			for b.Loop() {
				s.observe(c.key)
			}
		})
	}
}

func TestAnUnknownResultOrOutcomeHasATextAndDoesNotPanic(t *testing.T) {
	if got := fmt.Sprint(observation(9), checkOutcome(9)); got != "result(9) outcome(9)" {
		t.Error(got)
	}
}
