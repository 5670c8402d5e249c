package health

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/ringway/ringway/internal/logtest"
)

var errDown = errors.New("down")

// run starts a Checker whose probes call probe, in a bubble with a virtual clock,
// and stops it at the end of the test. The address is never used.
func run(t *testing.T, cfg Config, probe func(context.Context) error) *Checker {
	t.Helper()
	cfg.Name, cfg.Check.Kind, cfg.Check.Address = "chat", TCP, "127.0.0.1:1"
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.probe = probe
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// probeUntil is a service that hangs or refuses once down is reached.
func probeUntil(down time.Time, hangs bool, timeout time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if time.Now().Before(down) {
			return nil
		}
		if hangs {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			<-ctx.Done()
		}
		return errDown
	}
}

func TestAServiceThatFailsIsUnhealthyWithinIntervalTimesFallPlusTimeout(t *testing.T) {
	nearest := 0.0 // to the bound, of all cases
	rapid.Check(t, func(r *rapid.T) {
		interval := time.Duration(rapid.IntRange(10, 5000).Draw(r, "interval ms")) * time.Millisecond
		timeout := min(interval, time.Duration(rapid.IntRange(1, 5000).Draw(r, "timeout ms"))*time.Millisecond)
		fall := rapid.IntRange(1, 6).Draw(r, "fall")
		hangs := rapid.Bool().Draw(r, "hangs")
		after := time.Duration(rapid.Int64Range(1, int64(3*interval)).Draw(r, "fails after"))

		var took time.Duration
		synctest.Test(t, func(t *testing.T) {
			down := time.Now().Add(after)
			seen := make(chan Status, 2)
			run(t, Config{Check: Check{Interval: interval, Timeout: timeout, Fall: fall}, OnChange: func(s Status) { seen <- s }},
				probeUntil(down, hangs, timeout))
			<-seen
			<-seen
			took = time.Since(down)
		})
		bound := time.Duration(fall)*interval + timeout
		if took > bound {
			r.Fatalf("seen after %v, the bound is %v", took, bound)
		}
		if least := time.Duration(fall-1) * interval * 9 / 10; took < least {
			r.Fatalf("seen after %v: %d probes start at least %v apart", took, fall, least)
		}
		nearest = max(nearest, float64(took)/float64(bound))
	})
	if nearest < 0.9 {
		t.Errorf("no case came nearer to the bound than %.2f: it says nothing", nearest)
	}
}

func TestProbesStartImmediatelyAndThenAnIntervalApartLessATenth(t *testing.T) {
	for _, lasts := range []time.Duration{0, time.Second, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var starts []time.Time
			begun := time.Now()
			run(t, Config{Check: Check{Interval: 2 * time.Second, Timeout: 2 * time.Second}}, func(context.Context) error {
				starts = append(starts, time.Now())
				time.Sleep(lasts)
				return nil
			})
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if !starts[0].Equal(begun) {
				t.Errorf("the first probe came after %v", starts[0].Sub(begun))
			}
			least, most := time.Hour, time.Duration(0)
			for i := range starts[1:] {
				apart := starts[i+1].Sub(starts[i])
				least, most = min(least, apart), max(most, apart)
			}
			if least < max(lasts, 1800*time.Millisecond) || most > 2*time.Second {
				t.Errorf("probes of %v: %v to %v apart", lasts, least, most)
			}
			if lasts == 0 && most-least < 10*time.Millisecond {
				t.Error("no jitter: many checks would stay in step")
			}
		})
	}
}

func TestAServiceThatStartsIsOfferedWithin200MillisecondsOfBeingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := time.Now().Add(4321 * time.Millisecond)
		var log logtest.Log
		told := make(chan Status, 10)
		c := run(t, Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)), OnChange: func(s Status) { told <- s },
		}, func(context.Context) error {
			if time.Now().Before(up) {
				return errDown
			}
			return nil
		})

		time.Sleep(4 * time.Second)
		synctest.Wait()
		status := c.Status()
		if status.Healthy || !status.Since.IsZero() || !errors.Is(status.Err, errDown) || status.Failures != status.Probes || status.Probes < 20 {
			t.Errorf("while it starts: %+v", status)
		}
		if len(told) != 0 || log.String() != "" {
			t.Errorf("told %d times and logged %s while it may still be starting", len(told), &log)
		}

		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		status = c.Status()
		if first := <-told; first.Since != status.Since || !first.Healthy || !status.Healthy || status.Err != nil || status.Since.Sub(up) > startInterval {
			t.Fatalf("up at %v, then %+v, told of %+v", up, status, first)
		}
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "level=INFO") || !strings.Contains(log.String(), "service=chat") {
			t.Errorf("logged %s", &log)
		}

		probes := status.Probes
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if status = c.Status(); status.Probes-probes > 12 {
			t.Errorf("%d probes in 20 s after the first success, want one in 1.8 to 2 s", status.Probes-probes)
		}
		if len(told) != 0 {
			t.Errorf("told %d more times", len(told))
		}
	})
}

func TestAServiceThatNeverComesUpIsReportedOnceTheGraceIsOver(t *testing.T) {
	for grace, wantProbesAtMost := range map[time.Duration]int{10 * time.Second: 57, 2 * time.Second: 14, noGrace: 1} {
		synctest.Test(t, func(t *testing.T) {
			var log logtest.Log
			told := make(chan Status, 10)
			begun := time.Now()
			c := run(t, Config{
				Check: Check{StartGrace: grace}, OnChange: func(s Status) { told <- s }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}, func(context.Context) error { return errDown })

			first := <-told
			if after := first.Since.Sub(begun); first.Healthy || after < grace || after > max(0, grace)+startInterval {
				t.Errorf("grace %v: told after %v: %+v", grace, after, first)
			}
			if first.Probes > wantProbesAtMost || grace > 0 && first.Probes < wantProbesAtMost*3/4 {
				t.Errorf("grace %v: %d probes until then", grace, first.Probes)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(told) != 0 || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "level=WARN") {
				t.Errorf("grace %v: told %d more times, logged %s", grace, len(told), &log)
			}
			if n := c.Status().Probes - first.Probes; n < 30 || n > 34 {
				t.Errorf("grace %v: %d probes in the minute after, want one in 1.8 to 2 s", grace, n)
			}
		})
	}
}

func TestAServiceThatWasHealthyIsNotWithdrawnForOneFailure(t *testing.T) {
	v := healthState{rise: 2, fall: 3, succeeded: true, healthy: true, decided: true}
	for i, success := range []bool{false, true, false, false, false} {
		if changed := v.observe(success, false); changed != (i == 4) {
			t.Errorf("probe %d: changed %t", i, changed)
		}
	}
}

func TestAnUnhealthyServiceKeepsItsReasonUntilItHasRisen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := []error{nil, errDown, nil, errDown, errDown, nil, nil}
		var got []Status
		var at []time.Time
		step := make(chan struct{})
		c := run(t, Config{Check: Check{Rise: 2, Fall: 2}}, func(context.Context) error {
			<-step
			result := results[0]
			results = results[1:]
			return result
		})
		for range len(results) {
			step <- struct{}{}
			synctest.Wait()
			got, at = append(got, c.Status()), append(at, time.Now())
		}
		for i, want := range []Status{
			{Healthy: true, Probes: 1},
			{Healthy: true, Probes: 2, Failures: 1, Err: errDown},
			{Healthy: true, Probes: 3, Failures: 1},
			{Healthy: true, Probes: 4, Failures: 2, Err: errDown},
			{Healthy: false, Probes: 5, Failures: 3, Err: errDown},
			{Healthy: false, Probes: 6, Failures: 3, Err: errDown},
			{Healthy: true, Probes: 7, Failures: 3},
		} {
			want.Since = at[[]int{0, 0, 0, 0, 4, 4, 6}[i]] // the probe that changed the verdict
			if got[i] != want {
				t.Errorf("after probe %d: %+v, want %+v", i+1, got[i], want)
			}
		}
	})
}

// A worker that has too few descriptors cannot probe, and its services work.
func TestAProbeThatThisProcessCannotMakeIsNoVerdict(t *testing.T) {
	check := normalized(t, Check{Kind: TCP, Address: "h:1"})
	lacking := check.broken("connection", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)})
	down := error(errDown)
	for name, test := range map[string]struct {
		results []error
		changes int
		after   string
	}{
		"of a healthy service": {append([]error{nil}, slices.Repeat([]error{lacking}, 5)...), 1, "H"},
		"of one that fails":    {append(append([]error{nil, down, down}, slices.Repeat([]error{lacking}, 5)...), down), 2, "u"},
		"of one that recovers": {[]error{nil, down, down, down, nil, lacking, lacking, lacking, lacking, lacking, nil}, 3, "H"},
		"before a success":     {slices.Repeat([]error{lacking}, 5), 1, "u"}, // it is not offered either way, and the reason is published
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logtest.Log
				metrics, results, changes, step := NewMetrics(nil), test.results, 0, make(chan struct{})
				c := run(t, Config{
					Check: Check{StartGrace: noGrace, Rise: 2, Fall: 3}, Metrics: metrics, Logger: slog.New(slog.NewTextHandler(&log, nil)),
					OnChange: func(Status) { changes++ },
				}, func(context.Context) error {
					<-step
					result := results[0]
					results = results[1:]
					return result
				})
				for range test.results {
					step <- struct{}{}
					synctest.Wait()
				}
				s := c.Status()
				if s.Healthy != (test.after == "H") || changes != test.changes || s.Probes != len(test.results) {
					t.Errorf("%d changes to %+v, want %d to %s", changes, s, test.changes, test.after)
				}
				if n := testutil.ToFloat64(metrics.checks.WithLabelValues("chat", "exhausted")); n != 5 {
					t.Errorf("%v probes are counted as exhausted, want 5", n)
				}
				if n := log.Lines("raise the limit of open files"); n != 1 || !strings.Contains(log.String(), "too many open files") {
					t.Errorf("%d lines with the remedy of one shortage, want 1:\n%s", n, &log)
				}
			})
		})
	}
}

func TestAProbeThatIsCutShortCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := NewMetrics(nil)
		c, err := New(Config{Name: "chat", Check: Check{Kind: TCP, Address: "127.0.0.1:1", StartGrace: noGrace}, Metrics: metrics,
			OnChange: func(s Status) { t.Errorf("told of %+v", s) }})
		if err != nil {
			t.Fatal(err)
		}
		c.probe = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Run(ctx); err != nil || c.Status() != (Status{}) {
			t.Errorf("%v, %+v", err, c.Status())
		}
		if probes, services := testutil.CollectAndCount(metrics.checks), testutil.CollectAndCount(metrics.healthy); probes != 0 || services != 1 {
			t.Errorf("%d series of probes, %d of services: want the service as unhealthy and no probe", probes, services)
		}
	})
}

func TestACheckerThatCannotWorkIsRefused(t *testing.T) {
	_, err := New(Config{Check: Check{Kind: "icmp"}})
	for _, want := range []string{"Name", "kind", "address"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not speak of %s", err, want)
		}
	}
}
