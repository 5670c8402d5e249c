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
// may lose more than chance explains. No other test runs meanwhile: its load would delay responses.
// The race detector would need minutes for the requests, which are many for the sake of chance; it
// sees the same calls in other tests.
func TestAProgramFailsNoMoreRequestsThanTheRelay(t *testing.T) {
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
		change()
		failed := make([]int64, len(ways))
		var all sync.WaitGroup
		for i, way := range ways {
			all.Go(func() { failed[i] = way.load() })
		}
		all.Wait()
		for i, way := range ways {
			t.Logf("%s, %s: %d of %d requests failed", name, way.name, failed[i], requests)
			// Failures come in few evictions and come-backs, about as Poisson's: their difference
			// is within four standard deviations, and one eviction more.
			noise := 4*math.Sqrt(float64(failed[i]+failed[0])) + 5
			if failed[i] > most || math.Abs(float64(failed[i]-failed[0])) > noise {
				t.Errorf("%s, %s: %d failed, of the binaries %d: want at most %d, and a difference within %.0f", name, way.name, failed[i], failed[0], most, noise)
			}
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
}
