package expiry_test

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

	"github.com/ringway/ringway/internal/expiry"
	"github.com/ringway/ringway/internal/observed"
)

// bench is a scheduler whose Expire the test controls, inside a synctest bubble.
type bench struct {
	*expiry.Scheduler[int]
	t        *testing.T
	registry *prometheus.Registry
	log      strings.Builder
	stop     context.CancelFunc
	ended    chan error
}

func newBench(t *testing.T, cfg expiry.Config[int]) *bench {
	t.Helper()
	b := &bench{t: t, registry: prometheus.NewRegistry()}
	if cfg.MaxConcurrent == 0 {
		cfg.MaxConcurrent, cfg.MaxPending = 2, 4
	}
	cfg.Registerer, cfg.Logger = b.registry, slog.New(slog.NewTextHandler(&b.log, nil))
	s, err := expiry.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.Scheduler = s
	return b
}

func (b *bench) start() {
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- b.Run(ctx) }()
	synctest.Wait()
}

func (b *bench) end() {
	b.t.Helper()
	b.stop()
	if err := <-b.ended; err != nil {
		b.t.Errorf("Run returned %v", err)
	}
}

// metric reads a counter or gauge, with the value of its label where it has one.
func (b *bench) metric(name, label string) float64 {
	b.t.Helper()
	n, there := observed.Series(b.t, b.registry, name)[label]
	if !there {
		b.t.Fatalf("no metric %s{%s}", name, label)
	}
	return n
}

func (b *bench) want(name, label string, want float64) {
	b.t.Helper()
	if got := b.metric(name, label); got != want {
		b.t.Errorf("%s{%s} is %v, want %v", name, label, got, want)
	}
}

func (b *bench) observe(key int, want expiry.Result) {
	b.t.Helper()
	if got := b.Observe(key); got != want {
		b.t.Errorf("observing %d: %v, want %v", key, got, want)
	}
}

func TestAKeyIsCheckedOnceAtATimeAndAgainWhenObservedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		b := newBench(t, expiry.Config[int]{Expire: func(context.Context, int) (expiry.Outcome, error) {
			calls.Add(1)
			time.Sleep(time.Second)
			return expiry.Fresh, nil
		}})
		b.observe(1, expiry.Queued)
		b.observe(1, expiry.Deduped) // while it waits
		b.start()
		defer b.end()
		b.observe(1, expiry.Deduped) // while it is checked
		time.Sleep(2 * time.Second)
		b.observe(1, expiry.Queued)
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
		b := newBench(t, expiry.Config[int]{MaxConcurrent: 2, MaxPending: 4, Expire: func(context.Context, int) (expiry.Outcome, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-release
			return expiry.Expired, nil
		}})
		b.start()
		defer b.end()
		b.observe(0, expiry.Queued)
		b.observe(1, expiry.Queued)
		synctest.Wait() // both run
		for key := 2; key < 6; key++ {
			b.observe(key, expiry.Queued)
		}
		for key := 6; key < 100; key++ {
			b.observe(key, expiry.RejectedCapacity)
		}
		b.observe(3, expiry.Deduped) // known keys are known even when it is full
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
		b.observe(99, expiry.Queued) // a rejected key was not remembered
	})
}

func TestAfterEveryExpireTheKeyAndThePlaceAreFreed(t *testing.T) {
	for name, c := range map[string]struct {
		expire func() (expiry.Outcome, error)
		log    string
	}{
		"an error":              {func() (expiry.Outcome, error) { return expiry.Expired, errors.New("disk on fire") }, "disk on fire"},
		"a panic":               {func() (expiry.Outcome, error) { panic("out of cheese") }, "out of cheese"},
		"a panic with nil":      {func() (expiry.Outcome, error) { panic(nil) }, "panic"},
		"the goroutine's end":   {func() (expiry.Outcome, error) { runtime.Goexit(); return 0, nil }, "ended its goroutine"},
		"no outcome":            {func() (expiry.Outcome, error) { return 0, nil }, "unknown outcome"},
		"an outcome of its own": {func() (expiry.Outcome, error) { return 9, nil }, "unknown outcome"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				healed := false
				b := newBench(t, expiry.Config[int]{MaxConcurrent: 1, MaxPending: 8, Expire: func(_ context.Context, key int) (expiry.Outcome, error) {
					if key == 1 && !healed {
						return c.expire()
					}
					return expiry.Expired, nil
				}})
				b.start()
				defer b.end()
				b.observe(1, expiry.Queued)
				b.observe(2, expiry.Queued) // needs the same place
				synctest.Wait()
				b.want("ringway_expiry_outcomes_total", "error", 1)
				b.want("ringway_expiry_outcomes_total", "expired", 1)
				b.want("ringway_expiry_running", "", 0)
				if log := b.log.String(); !strings.Contains(log, c.log) || strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "key=1") {
					t.Errorf("want one warning with the key and %q, got: %s", c.log, log)
				}
				healed = true
				b.observe(1, expiry.Queued)
				synctest.Wait()
				b.want("ringway_expiry_outcomes_total", "expired", 2)
			})
		})
	}
}

func TestRunWaitsForWhatItStartedAndLeavesTheRestForTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []int
		b := newBench(t, expiry.Config[int]{MaxConcurrent: 1, MaxPending: 4, Expire: func(ctx context.Context, key int) (expiry.Outcome, error) {
			if key == 1 {
				<-ctx.Done()
				time.Sleep(time.Minute) // it takes its time, and Run waits
				seen = append(seen, key)
				return 0, ctx.Err()
			}
			seen = append(seen, key)
			return expiry.Expired, nil
		}})
		b.start()
		b.observe(1, expiry.Queued)
		synctest.Wait()
		b.observe(2, expiry.Queued)
		if err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "already") {
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

func TestABadConfigurationIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := expiry.New(expiry.Config[int]{MaxPending: -1})
	for _, want := range []string{"Config.Expire is nil", "MaxConcurrent 0", "usually 32", "MaxPending -1", "usually 1024"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that says %q, got: %v", want, err)
		}
	}
	cfg := expiry.Config[int]{MaxConcurrent: 1, MaxPending: 1, Registerer: prometheus.NewRegistry(), Expire: removed}
	if _, err := expiry.New(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := expiry.New(cfg); err == nil {
		t.Error("two schedulers share one set of metrics")
	}
}

func removed(context.Context, int) (expiry.Outcome, error) { return expiry.Expired, nil }

func TestAnObservationThatChangesNothingAllocatesNothing(t *testing.T) {
	s, err := expiry.New(expiry.Config[string]{MaxConcurrent: 1, MaxPending: 1, Expire: func(context.Context, string) (expiry.Outcome, error) { return expiry.Fresh, nil }})
	if err != nil {
		t.Fatal(err)
	}
	s.Observe("worker-1")
	for key, want := range map[string]expiry.Result{"worker-1": expiry.Deduped, "worker-2": expiry.RejectedCapacity} {
		if allocs := testing.AllocsPerRun(100, func() {
			if got := s.Observe(key); got != want {
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
	s, err := expiry.New(expiry.Config[int]{MaxConcurrent: 3, MaxPending: 5, Expire: func(_ context.Context, key int) (expiry.Outcome, error) {
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
		return expiry.Fresh, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var runs, readers sync.WaitGroup
	runs.Go(func() { _ = s.Run(ctx) })
	for range 8 {
		readers.Go(func() {
			for i := range 2000 {
				s.Observe(i % 20)
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

func BenchmarkObserve(b *testing.B) {
	for _, c := range []struct {
		name string
		key  int
	}{{"deduped", 1}, {"rejected", 2}} {
		b.Run(c.name, func(b *testing.B) {
			s, err := expiry.New(expiry.Config[int]{MaxConcurrent: 1, MaxPending: 1, Expire: removed})
			if err != nil {
				b.Fatal(err)
			}
			s.Observe(1)
			b.ReportAllocs()
			for b.Loop() {
				s.Observe(c.key)
			}
		})
	}
}

func TestAnUnknownResultOrOutcomeHasATextAndDoesNotPanic(t *testing.T) {
	if got := fmt.Sprint(expiry.Result(9), expiry.Outcome(9)); got != "result(9) outcome(9)" {
		t.Error(got)
	}
}
