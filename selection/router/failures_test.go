//go:build !race

package router_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/selection/client"
	"github.com/ringway/ringway/selection/router"
)

// The programs of the README, a relay, workers and a caller, get the same requests at the same
// time as the binaries, while their workers fail in all ways. All have the same policy, so none
// may lose more than chance explains. No other test of this package runs meanwhile: its load would
// delay responses. The load of other packages may, too: what fails in a phase in which the machine
// stalled shows nothing, and the phases begin again with another cluster, at most twice. The race
// detector would need minutes for the requests, which are many for the sake of chance; it sees the
// same calls in other tests.
func TestAProgramFailsNoMoreRequestsThanTheRelay(t *testing.T) {
	for round := 1; ; round++ {
		var problems []string
		stalled := false
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) { problems, stalled = failuresOfWays(t) })
		if stalled && round < 3 && !t.Failed() {
			t.Logf("round %d: this machine stalled: %v", round, problems)
			continue
		}
		for _, problem := range problems {
			t.Error(problem)
		}
		return
	}
}

// failuresOfWays runs the phases and returns where a way lost more requests than it may, and whether
// the machine stalled in each such phase.
func failuresOfWays(t *testing.T) (problems []string, stalled bool) {
	const workers, requests = 8, 1000
	moods, theirs, ours := make([]*moody, workers), make([]http.Handler, workers), make([]served, workers)
	names, own := make([]string, workers), make([]string, workers)
	c := startCluster(t, fleet.Config{})
	binary := c.relay("relay-1", func(s *relay.Settings) { s.Requests.Timeout, s.Requests.Domain = 3*time.Second, "." })
	for i := range moods {
		moods[i] = &moody{}
		name := func(name string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Worker", name)
				moods[i].ServeHTTP(w, r)
			})
		}
		names[i], own[i] = fmt.Sprintf("echo-%d", i), fmt.Sprintf("own-%d", i)
		theirs[i], ours[i] = name(names[i]), c.serve(own[i], name(own[i]))
	}
	c.workers("echo", theirs...)
	r := c.router("relay-2", func(_ *membership.Config, cfg *router.Config) { cfg.RequestTimeout = 3 * time.Second })
	c.knows(r, "echo", names...)
	c.knows(r, "own", own...)
	c.ready(binary)

	direct := &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 8}
	defer direct.CloseIdleConnections()
	caller, err := client.New(client.Config{Seeds: []string{binary.IngressAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	calling, hangUp := context.WithCancel(context.Background())
	called := make(chan error, 1)
	go func() { called <- caller.Run(calling) }()
	defer func() {
		hangUp()
		if err := <-called; err != nil {
			t.Error(err)
		}
	}()
	ingress := "http://" + binary.IngressAddr()
	ways := []struct {
		name string
		load func() (failed int64)
	}{
		{"binaries", func() int64 { return load(ingress, &http.Client{Transport: named{direct, "echo"}}, requests) }}, // what the others are compared with
		{"program as relay", func() int64 { return load(proxy(t, "echo", r).URL, &http.Client{Transport: direct}, requests) }},
		{"program as caller", func() int64 { return load("http://echo/", &http.Client{Transport: caller}, requests) }},
		{"programs as workers", func() int64 { return load(ingress, &http.Client{Transport: named{direct, "own"}}, requests) }},
		{"programs as relay and workers", func() int64 { return load(proxy(t, "own", r).URL, &http.Client{Transport: direct}, requests) }},
	}
	phase := func(name string, most int64, change func()) {
		before, stall := len(problems), watchStalls()
		change()
		failed := make([]int64, len(ways))
		var all sync.WaitGroup
		for i, way := range ways {
			all.Go(func() { failed[i] = way.load() })
		}
		all.Wait()
		longest := stall()
		t.Logf("%s: the longest stall took %v", name, longest)
		for i, way := range ways {
			t.Logf("%s, %s: %d of %d requests failed", name, way.name, failed[i], requests)
			// Failures come in few evictions and come-backs, about as Poisson's: their difference
			// is within four standard deviations, and one eviction more.
			noise := 4*math.Sqrt(float64(failed[i]+failed[0])) + 5
			if failed[i] > most || math.Abs(float64(failed[i]-failed[0])) > noise {
				problems = append(problems, fmt.Sprintf("%s, %s: %d failed, of the binaries %d: want at most %d, and a difference within %.0f", name, way.name, failed[i], failed[0], most, noise))
			}
		}
		if len(problems) > before {
			stalled = longest >= stallsFrom && (before == 0 || stalled)
		}
	}
	phase("all well", 0, func() {})
	// A worker that fails answers with 500, which passes through: each relay sends it requests
	// until it is evicted, and one at a time when it may come back.
	phase("one fails", 60, func() { moods[0].mood.Store(failing) })
	phase("one hangs", 0, func() { moods[0].mood.Store(well); moods[1].mood.Store(hanging) })
	phase("one is slow", 0, func() { moods[1].mood.Store(well); moods[2].mood.Store(slow) })
	var stopping sync.WaitGroup
	defer stopping.Wait()
	phase("one drains", 0, func() {
		moods[2].mood.Store(well)
		if err := c.Drain("echo-3"); err != nil {
			t.Error(err)
		}
		stopping.Go(ours[3].stop)
	})
	phase("one is killed", 0, func() {
		if err := c.Kill("echo-4"); err != nil {
			t.Error(err)
		}
		ours[4].kill()
	})
	return problems, stalled
}

// stallsFrom is a delay that fails requests to workers that are well: they take as long as one that is
// slow.
const stallsFrom = 300 * time.Millisecond

// watchStalls watches how late a goroutine is that only waits. The function that it returns ends the
// watch and returns the longest delay.
func watchStalls() (end func() time.Duration) {
	const turn = 2 * time.Millisecond
	ended, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		most, tick := time.Duration(0), time.NewTicker(turn)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-tick.C:
			case <-ended:
				longest <- most
				return
			}
			now := time.Now()
			most, last = max(most, now.Sub(last)-turn), now
		}
	}()
	return func() time.Duration {
		close(ended)
		return <-longest
	}
}
