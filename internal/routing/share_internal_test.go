package routing

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/ratelimit"
)

// limitedFleet is a demandFleet whose relays let requests pass by their share of one limit.
type limitedFleet struct {
	*demandFleet
	plan    *affinity.Plan
	buckets []ratelimit.Bucket
	absent  map[string]bool // for every relay
	arrives float64
	passes  float64
}

func newLimitedFleet(t *testing.T, relays int, limit ratelimit.Rate) *limitedFleet {
	t.Helper()
	cfg := affinity.PlanConfig{Service: "s", RelaysPerService: relays}
	for i := range relays {
		cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("r%02d", i)})
		cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w%02d", i)})
	}
	plan, err := affinity.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &limitedFleet{demandFleet: newDemandFleet(relays, 1), plan: plan, buckets: make([]ratelimit.Bucket, relays)}
	f.arrived = func(relay, requests int) {
		part := limit.For(f.share(relay))
		at := make([]time.Duration, requests)
		for i := range at {
			at[i] = f.now.Sub(time.Unix(0, 0)) - time.Duration(f.random.Float64()*float64(testTick))
		}
		slices.Sort(at)
		for _, now := range at {
			f.arrives++
			if f.buckets[relay].Take(now, part) == 0 {
				f.passes++
			}
		}
	}
	return f
}

// share is that of a relay, by what the fleet states.
func (f *limitedFleet) share(relay int) float64 {
	traffic := map[string]int{}
	for i, id := range f.plan.Affine() {
		if f.stated[i] > 0 {
			traffic[id] = f.stated[i]
		}
	}
	r := &Route{Plan: f.plan, traffic: traffic, absentRelays: f.absent}
	return r.shareOf(f.plan.Affine()[relay])
}

// worst lets a minute pass and returns the ten seconds in which what passed differs most from what
// could, as the part of it that passed.
func (f *limitedFleet) worst(limit ratelimit.Rate, rate func(int) float64) float64 {
	worst := 1.0
	for range 6 {
		f.arrives, f.passes = 0, 0
		f.pass(10*time.Second, rate)
		part := f.passes / min(f.arrives, 10*limit.PerSecond())
		if math.Abs(part-1) > math.Abs(worst-1) {
			worst = part
		}
	}
	return worst
}

func TestRelaysTogetherLetPassWhatALimitAllowsOverTenSeconds(t *testing.T) {
	const perRelay = 30
	for _, relays := range []int{3, 10, 30} {
		limit := ratelimit.Rate{Requests: perRelay * relays, Per: time.Second}
		for name, part := range map[string]func(int) float64{
			"even":            func(int) float64 { return 1 },
			"from 0.2 to 1.8": func(i int) float64 { return 0.2 + 1.6*float64(i)/float64(relays-1) },
			"half at one": func(i int) float64 {
				if i == 0 {
					return float64(relays) / 2
				}
				return float64(relays) / 2 / float64(relays-1)
			},
		} {
			for _, load := range []float64{0.8, 1, 1.2, 2, 5} {
				f := newLimitedFleet(t, relays, limit)
				rate := func(i int) float64 { return load * perRelay * part(i) }
				first := f.worst(limit, rate)
				f.pass(5*time.Minute, rate)
				worst := f.worst(limit, rate)
				t.Logf("%2d relays, %-15s, %.1f of the limit: %.3f passes in the first minute, %.3f later", relays, name, load, first, worst)
				if worst < 0.9 || worst > 1.1 {
					t.Errorf("%d relays, %s, %v of the limit: %.3f of what could pass has passed in ten seconds", relays, name, load, worst)
				}
			}
		}
	}
}
