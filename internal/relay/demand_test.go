package relay

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/logtest"
)

// The averages here are of one second, so that agreement does not take a minute.
func TestRelaysThatGetUnequalTrafficTellEachOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.trafficMemory = time.Second
	for range 3 {
		f.relay(func(*Settings) {})
	}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	t.Cleanup(backend.Close)
	const workers = 12
	var stopping sync.WaitGroup // together, because each takes seconds
	defer stopping.Wait()
	for i := range workers {
		stop := f.worker(fmt.Sprintf("w%02d", i+1), service("echo", backend))
		defer stopping.Go(func() { _ = stop() }) // the fleet reports its error
	}
	for _, r := range f.relays {
		r.settled(t, "echo", workers)
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	for i, share := range []float64{0.3, 1, 1.7} {
		load.Go(func() {
			loadgen.Load(ctx, loadgen.LoadConfig{Targets: []string{"http://" + f.relays[i].IngressAddr()}, Services: []string{"echo"}, Rate: 100 * share,
				Random: rand.New(rand.NewPCG(1, uint64(i)))})
		})
	}
	// of returns what a relay's plan states about the traffic of all.
	of := func(r *runningRelay) (rates map[string]int, ratios map[string]float64) {
		var plan api.Plan
		if status, text := r.api(t, "/api/v1/services/echo/plan", &plan); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		rates, ratios = map[string]int{}, map[string]float64{}
		for _, p := range plan.Relays {
			rates[p.Relay], ratios[p.Relay] = p.Traffic, p.TrafficRatio
		}
		return rates, ratios
	}
	f.relays[0].await(t, "all relays know the traffic of all", func() bool {
		first, ratios := of(f.relays[0])
		for _, r := range f.relays[1:] {
			if other, _ := of(r); !maps.Equal(first, other) {
				return false
			}
		}
		// A busy machine carries less than was sent, in about the same shares.
		return 0 < first["r1"] && ratios["r1"] < 0.6 && 0.6 < ratios["r2"] && ratios["r2"] < 1.4 && 1.4 < ratios["r3"]
	})
	f.relays[2].await(t, "its metric says so", func() bool {
		return logtest.Series(t, f.relays[2].cfg.Registry, "ringway_relay_demand_ratio")["echo"] > 1.4
	})
	if log := f.relays[2].log.String(); !strings.Contains(log, "this relay states its traffic") {
		t.Errorf("no line about the traffic:\n%s", log)
	}
}
