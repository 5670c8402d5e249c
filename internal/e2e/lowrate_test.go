//go:build unix

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/loadgen"
)

// TestAtALowRateEveryWorkerStaysKnownAndOneThatReturnsHasItsShare is, with processes, what
// selection/shares_test.go shows in virtual time: six equal workers, one relay, minutes of few requests.
func TestAtALowRateEveryWorkerStaysKnownAndOneThatReturnsHasItsShare(t *testing.T) {
	if !long() {
		t.Skip("minutes of few requests: make test-full")
	}
	const workers = 6
	f := startFleet(t, fleetConfig{Relays: 1, Workers: workers, Plain: true, Services: func(int) []string { return []string{echo} }})
	f.awaitRange(t, workers)

	// A fifth of the fair share in a minute, but for chance: an estimate may be bad twice.
	poor := 0
	for _, rate := range []float64{50, 5} {
		for minute := range 2 {
			got := f.sendFor(t, time.Minute, rate)
			for _, w := range f.workers {
				if share := got.share(w.ID) * workers; share < 0.2 {
					poor++
				}
			}
			t.Logf("%v requests/s, minute %d: %v", rate, minute, got)
		}
	}

	if poor > 1 {
		t.Errorf("%d times a worker got less than a fifth of its share in a minute", poor)
	}

	const returns = 6
	share := 0.0
	for n := range returns {
		w := f.workers[0] // the one that has been there for longest
		w.Signal(t, syscall.SIGKILL)
		w.backend.Signal(t, syscall.SIGKILL)
		<-w.Done
		<-w.backend.Done
		f.sendFor(t, 5*time.Second, 50)
		f.startWorker(w.ID, echo)
		f.awaitRange(t, workers)
		f.sendFor(t, 10*time.Second, 50)
		got := f.sendFor(t, 10*time.Second, 50)
		share += got.share(w.ID) * workers / returns
		t.Logf("return %d, from the tenth to the twentieth second: %v", n, got)
	}
	if share < 0.5 {
		t.Errorf("workers that return have %.2f of their share after ten seconds", share)
	}
}

// spread is where the requests of a load went, and how long they took.
type spread struct {
	answers map[string]int
	took    []time.Duration
}

func (s *spread) share(id string) float64 {
	return float64(s.answers[id]) / float64(max(len(s.took), 1))
}

func (s *spread) String() string {
	slices.Sort(s.took)
	at := func(q float64) time.Duration {
		if len(s.took) == 0 {
			return 0
		}
		return s.took[int(q*float64(len(s.took)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%d answers %v, p50 %v, p99 %v", len(s.took), s.answers, at(0.5), at(0.99))
}

// sendFor sends requests at random times to the first relay.
func (f *fleet) sendFor(t *testing.T, d time.Duration, rate float64) *spread {
	t.Helper()
	var mu sync.Mutex
	s := &spread{answers: make(map[string]int)}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	loadgen.Load(ctx, loadgen.LoadConfig{Targets: []string{"http://" + f.relays[0].Ingress}, Services: []string{echo}, Rate: rate,
		Random: rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano()))), Done: func(r loadgen.Result) {
			mu.Lock()
			defer mu.Unlock()
			if r.Err != nil {
				t.Errorf("a GET failed: %v", r.Err) // one that a killed worker had is repeated
				return
			}
			s.answers[r.Endpoint]++
			s.took = append(s.took, r.Took)
		}})
	return s
}
