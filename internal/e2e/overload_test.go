//go:build unix

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// The services of these tests complete a few hundred requests a second, all together,
// because their requests sleep. Clients, relays and services then fit on two processors,
// and what limits is the services, not the machine.

// arrivals are clients that come at a rate, whether answers come or not. Each sends one
// GET and waits for a time.
type arrivals struct {
	client *client
	relays []*relay
	path   string
	within time.Duration
	chance *rand.Rand
	sent   int
	stalls []stall

	clients sync.WaitGroup
	mu      sync.Mutex
	results []result
}

// stall is a time in which the machine did not run the clients, so that none came.
type stall struct{ from, to time.Time }

// stallsFrom is how late a client is in a stall. The queue of the services lasts longer, so
// a shorter pause does not leave them without work.
const stallsFrom = 250 * time.Millisecond

func (f *fleet) newArrivals(t *testing.T, path string, within time.Duration) *arrivals {
	a := &arrivals{client: newClient(t), relays: f.relays, path: path, within: within, chance: rand.New(rand.NewPCG(1, 2))}
	t.Cleanup(a.clients.Wait)
	return a
}

// come sends at a rate for a time, with the gaps of independent clients.
func (a *arrivals) come(rate float64, span time.Duration) {
	next, end := time.Now(), time.Now().Add(span)
	for {
		next = next.Add(time.Duration(a.chance.ExpFloat64() / rate * float64(time.Second)))
		if next.After(end) {
			time.Sleep(time.Until(end))
			return
		}
		time.Sleep(time.Until(next))
		if now := time.Now(); now.Sub(next) > stallsFrom {
			a.stalls = append(a.stalls, stall{next, now})
			next = now // or all that did not come would come now
		}
		a.sent++
		r := result{request: request{addr: a.relays[a.chance.IntN(len(a.relays))].Ingress, path: a.path, service: echo, within: a.within}}
		a.clients.Go(func() {
			r.began = time.Now()
			r.answer = a.client.send(r.request)
			r.took = time.Since(r.began)
			a.mu.Lock()
			a.results = append(a.results, r)
			a.mu.Unlock()
		})
	}
}

// answered waits until n requests have been.
func (a *arrivals) answered(t *testing.T, n int) {
	t.Helper()
	procs.Await(t, fmt.Sprintf("%d requests are answered", n), func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.results) >= n
	})
}

// all waits for the last answer and returns what became of the requests.
func (a *arrivals) all() []result {
	a.clients.Wait()
	return a.results
}

// outcome is what a client got, in a word or two.
func (r result) outcome() string {
	if r.err != nil {
		return "no answer"
	}
	return fmt.Sprint(r.status, " ", r.failure().Code)
}

// refused reports whether a relay refused the request as one too many.
func (r result) refused() bool {
	return r.err == nil && (r.status == http.StatusServiceUnavailable || r.status == http.StatusTooManyRequests)
}

// stalled are the seconds of the n after a time that have a stall, and those after one, in which the
// queue grows again.
func (a *arrivals) stalled(from time.Time, n int) map[int]bool {
	stalled := map[int]bool{}
	for _, s := range a.stalls {
		for i := range n {
			begins := from.Add(time.Duration(i) * time.Second)
			if s.from.Before(begins.Add(time.Second)) && s.to.After(begins.Add(-time.Second)) {
				stalled[i] = true
			}
		}
	}
	return stalled
}

// nearStall reports whether a time is within a second of a stall.
func (a *arrivals) nearStall(at time.Time) bool {
	return slices.ContainsFunc(a.stalls, func(s stall) bool {
		return at.After(s.from.Add(-time.Second)) && at.Before(s.to.Add(time.Second))
	})
}

// fewStalled expects that the machine ran the clients in most of the n seconds.
func fewStalled(t *testing.T, stalled map[int]bool, n int) {
	t.Helper()
	if len(stalled) > n/3 {
		t.Errorf("the machine has no time for this test: it stalled in %d of %d seconds", len(stalled), n)
	}
}

func outcomes(results []result) map[string]int {
	counts := map[string]int{}
	for _, r := range results {
		counts[r.outcome()]++
	}
	return counts
}

// took is the time that this share of the answers took at most.
func took(results []result, share float64) time.Duration {
	var times []time.Duration
	for _, r := range results {
		if r.ok() {
			times = append(times, r.took)
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[int(share*float64(len(times)-1))]
}

// completed is when the service completed the request.
func (r result) completed(t *testing.T) time.Time {
	t.Helper()
	us, err := strconv.ParseInt(r.header.Get("Completed-At"), 10, 64)
	if err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	return time.UnixMicro(us)
}

// seconds counts events by the second.
type seconds []int

func (s seconds) count(at time.Duration) {
	if i := int(at / time.Second); at >= 0 && i < len(s) {
		s[i]++
	}
}

// TestThreeTimesTheCapacityKeepsTheServiceAtWorkForClientsThatStillWait has no setting
// touched: the relays have the defaults, and the services advertise no slots.
func TestThreeTimesTheCapacityKeepsTheServiceAtWorkForClientsThatStillWait(t *testing.T) {
	if !long() {
		t.Skip("takes more than ten seconds: make test-long")
	}
	t.Parallel()
	const (
		relays, workers, slots = 3, 4, 2
		work                   = 50 * time.Millisecond
		capacity               = workers * slots * float64(time.Second/work) // per second
		within                 = 2 * time.Second
		before, lasts, after   = 10 * time.Second, time.Minute, 10 * time.Second
		settled                = 5 // the second from which on it counts
	)
	f := startFleet(t, fleetConfig{Relays: relays, Workers: workers, Slots: slots, Plain: true,
		Services: func(int) []string { return []string{echo} }})
	f.awaitRange(t, workers)
	a := f.newArrivals(t, fmt.Sprintf("/work?ms=%d", work.Milliseconds()), within)
	a.come(0.7*capacity, before)
	from := time.Now()
	a.come(3*capacity, lasts)
	to := time.Now()
	a.come(0.7*capacity, after)

	var quiet, normal []result
	// An answer in time counts in the second in which the service completed it. The
	// machine may deliver it a moment later, with those of the next second.
	asked, goodput := make(seconds, lasts/time.Second), make(seconds, lasts/time.Second)
	for _, r := range a.all() {
		asked.count(r.began.Sub(from))
		if r.ok() {
			goodput.count(r.completed(t).Sub(from))
		}
		switch {
		case r.began.Before(from):
			quiet = append(quiet, r)
		case r.began.After(to.Add(time.Second)):
			normal = append(normal, r)
		}
	}
	stalled := a.stalled(from, len(goodput))
	t.Logf("capacity %.0f/s; asked %v; answered in time %v; stalled %v", capacity, asked, goodput, slices.Sorted(maps.Keys(stalled)))
	t.Logf("all: %v", outcomes(a.results))
	t.Logf("before: %v, half up to %v, 99 of 100 up to %v", outcomes(quiet), took(quiet, 0.5), took(quiet, 0.99))
	t.Logf("a second after: %v, half up to %v, 99 of 100 up to %v", outcomes(normal), took(normal, 0.5), took(normal, 0.99))
	for s := settled; s < len(goodput); s++ {
		if n := goodput[s]; float64(n) < 0.95*capacity && !stalled[s] {
			t.Errorf("in the second %d of the overload %d requests were answered in time, of %.0f that the services complete", s, n, capacity)
		}
	}
	fewStalled(t, stalled, len(goodput))
	if bad := failed(normal); len(bad) > 0 {
		t.Errorf("%d of %d requests failed a second after the overload or later, the first %v after it: %v", len(bad), len(normal), bad[0].began.Sub(to), bad[0])
	}
	if usual, now := took(quiet, 0.5), took(normal, 0.5); now > 2*usual {
		t.Errorf("half of the requests take up to %v after the overload, before it %v", now, usual)
	}
}

// TestABusyFleetRefusesFewerThanOneOfTenThousandRequests has bursts of twice the load, a
// slow worker, one that joins and one that dies, at nine tenths of the capacity.
func TestABusyFleetRefusesFewerThanOneOfTenThousandRequests(t *testing.T) {
	if !long() {
		t.Skip("takes more than ten seconds: make test-long")
	}
	t.Parallel()
	const (
		relays, workers, slots = 3, 10, 2
		work                   = 60 * time.Millisecond
		slow                   = 3
		within                 = 2 * time.Second
		requests               = 20_000
		every, long, burst     = 2 * time.Second, 200 * time.Millisecond, 2.0
	)
	f := startFleet(t, fleetConfig{Relays: relays, Workers: workers, Slots: slots, Plain: true,
		Services: func(int) []string { return []string{echo} }})
	f.awaitRange(t, workers)
	one := slots * float64(time.Second) / float64(work) // worker's capacity
	// What the fleet completes at its least: one worker is slow, and as many die as join.
	capacity := (workers - 1 + 1.0/slow) * one
	between := 0.9 * capacity / (1 + (burst-1)*long.Seconds()/every.Seconds())
	a := f.newArrivals(t, fmt.Sprintf("/work?ms=%d", work.Milliseconds()), within)
	from := time.Now()
	var coming sync.WaitGroup
	t.Cleanup(coming.Wait)
	coming.Go(func() {
		for a.sent < requests {
			a.come(between, every-long)
			a.come(burst*between, long)
		}
	})
	a.answered(t, requests/4)
	if got := f.client.get(f.workers[0].backendAddr, fmt.Sprintf("/slow?by=%d", slow)); got.status != 200 {
		t.Fatal(got)
	}
	a.answered(t, requests/2)
	f.startWorker("joins", echo)
	a.answered(t, 3*requests/4)
	dead := f.workers[1]
	dead.backend.Kill()
	dead.Kill()
	coming.Wait()
	lasted := int(time.Since(from) / time.Second)
	fewStalled(t, a.stalled(from, lasted), lasted)
	results := a.all()
	t.Logf("capacity %.0f/s, %d requests: %v; half up to %v, 99 of 100 up to %v", capacity, len(results), outcomes(results), took(results, 0.5), took(results, 0.99))
	if !f.sees("joins", true) || f.sees(dead.ID, true) {
		t.Error("no worker joined, or none died")
	}
	n, counted := 0, 0
	for _, r := range results {
		if a.nearStall(r.began) {
			continue // what the machine did not serve
		}
		counted++
		if r.refused() {
			n++
		}
	}
	t.Logf("%d requests began near one of %d stalls", len(results)-counted, len(a.stalls))
	if 10_000*n >= counted {
		t.Errorf("%d of %d requests were refused", n, counted)
	}
}
