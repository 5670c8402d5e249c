package discovery

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func many(n int) (out []netip.AddrPort) {
	for i := range n {
		out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 7400))
	}
	return out
}

func TestPausesGrowToFifteenSecondsAndStayThere(t *testing.T) { // HS-A16
	b, apart := Backoff(), false
	for _, want := range []float64{0.5, 1, 2, 4, 8, 15, 15, 15} {
		got := b.NextBackOff().Seconds()
		if got < 0.75*want-1e-6 || got > 1.25*want+1e-6 {
			t.Errorf("paused %v s, want %v ± 25 %%", got, want)
		}
		apart = apart || got != want
	}
	if !apart {
		t.Error("no jitter")
	}
}

func TestAtMostTenProbesRunConcurrently(t *testing.T) { // HS-A15
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		reached, errs := ProbeAll(t.Context(), many(95), func(context.Context, netip.AddrPort) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(200 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			now--
			return nil
		})
		if len(reached) != 95 || len(errs) != 0 {
			t.Errorf("%d reached, %v", len(reached), errs)
		}
		if most != 10 {
			t.Errorf("%d at once, want 10", most)
		}
	})
}

func TestStartsAreSpreadOverAHundredMilliseconds(t *testing.T) { // HS-A15
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var starts []time.Duration
		ProbeAll(t.Context(), many(400), func(context.Context, netip.AddrPort) error {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Since(began))
			return nil
		})
		if last := slices.Max(starts); last >= 100*time.Millisecond || last < 80*time.Millisecond {
			t.Errorf("the last of 400 starts was after %v", last)
		}
		if first := slices.Min(starts); first > 20*time.Millisecond {
			t.Errorf("the first of 400 starts was after %v", first)
		}
	})
}

func TestAProbeEndsAfterHalfASecond(t *testing.T) { // HS-A15
	synctest.Test(t, func(t *testing.T) {
		list := append(many(3), many(3)...) // each once
		down := errors.New("connection refused")
		reached, errs := ProbeAll(t.Context(), list, func(ctx context.Context, a netip.AddrPort) error {
			switch a {
			case list[0]:
				began := time.Now()
				<-ctx.Done()
				if d := time.Since(began); d != 500*time.Millisecond {
					t.Errorf("ended after %v", d)
				}
				return ctx.Err()
			case list[1]:
				return down
			}
			return nil
		})
		if !slices.Equal(reached, list[2:3]) || len(errs) != 2 || !errors.Is(errs[list[0]], context.DeadlineExceeded) || !errors.Is(errs[list[1]], down) {
			t.Errorf("got %v, %v", reached, errs)
		}
	})
}

func TestTheNearestIsReachedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := many(5)
		reached, _ := pacer{Spread: -1}.probeAll(t.Context(), list, func(_ context.Context, a netip.AddrPort) error {
			time.Sleep(time.Duration(10-slices.Index(list, a)) * time.Millisecond)
			return nil
		})
		slices.Reverse(list)
		if !slices.Equal(reached, list) {
			t.Errorf("got %v", reached)
		}
	})
}

func TestProbingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		reached, errs := ProbeAll(ctx, many(30), func(ctx context.Context, _ netip.AddrPort) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if len(reached) != 0 || len(errs) != 30 {
			t.Errorf("%d reached, %d errors", len(reached), len(errs))
		}
		for a, err := range errs {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: %v", a, err)
			}
		}
	})
}

func TestEveryPacerSettingChangesBehaviour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(p pacer) time.Duration {
			began := time.Now()
			p.probeAll(t.Context(), many(20), func(ctx context.Context, _ netip.AddrPort) error { <-ctx.Done(); return ctx.Err() })
			return time.Since(began)
		}
		if d := run(pacer{Spread: -1}); d != time.Second { // two rounds of ten
			t.Errorf("defaults without a spread: %v", d)
		}
		if d := run(pacer{Spread: -1, Limit: 5}); d != 2*time.Second {
			t.Errorf("Limit: %v", d)
		}
		if d := run(pacer{Spread: -1, Timeout: time.Second}); d != 2*time.Second {
			t.Errorf("Timeout: %v", d)
		}
		if d := run(pacer{Spread: time.Hour}); d < 10*time.Minute {
			t.Errorf("Spread: %v", d)
		}
	})
}
