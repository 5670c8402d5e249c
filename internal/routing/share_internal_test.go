package routing

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/ratelimit"
)

// limitedFleet is a demandFleet whose relays let requests pass by their share of one limit.
type limitedFleet struct {
	*demandFleet
	plan    *affinity.Plan
	buckets []ratelimit.Bucket
	split   int // this many relays, and the others, see only each other; 0: all see all
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

// share returns the share of a relay, by what the fleet states.
func (f *limitedFleet) share(relay int) float64 {
	traffic := map[string]int{}
	for i, id := range f.plan.Affine() {
		if f.stated[i] > 0 {
			traffic[id] = f.stated[i]
		}
	}
	absent := map[string]bool{}
	for i, id := range f.plan.Affine() {
		absent[id] = f.split > 0 && (i < f.split) != (relay < f.split)
	}
	r := &Route{Plan: f.plan, traffic: traffic, absentRelays: absent}
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

// traffics are what arrives at each relay, as a part of the mean.
func traffics(relays int) map[string]func(relay int) float64 {
	return map[string]func(int) float64{
		"even":            func(int) float64 { return 1 },
		"from 0.2 to 1.8": func(i int) float64 { return 0.2 + 1.6*float64(i)/float64(relays-1) },
		"half at one": func(i int) float64 {
			if i == 0 {
				return float64(relays) / 2
			}
			return float64(relays) / 2 / float64(relays-1)
		},
	}
}

func TestRelaysTogetherLetPassWhatALimitAllowsOverTenSeconds(t *testing.T) {
	const perRelay = 30
	for _, relays := range []int{3, 10, 30} {
		limit := ratelimit.Rate{Requests: perRelay * relays, Per: time.Second}
		for name, part := range traffics(relays) {
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

// Ten of 39 relays in three equal zones serve: four, three and three. Each zone gets as much, so a relay
// of the four carries less; one that states this changes no share and makes no other one state anything.
func TestARelayCarriesMoreWhereFewerOfItsZoneServe(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "s"}
	for i := range 39 {
		place := affinity.Place{Datacenter: fmt.Sprint("zone-", i%3)}
		cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("r%02d", i), Place: place})
		cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w%02d", i), Place: place})
	}
	plan, err := affinity.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	zone := func(relay string) affinity.Place {
		return cfg.Relays[slices.IndexFunc(cfg.Relays, func(r affinity.Relay) bool { return r.ID == relay })].Place
	}
	serving := map[affinity.Place]int{}
	for _, relay := range plan.Affine() {
		serving[zone(relay)]++
	}
	share := func(relay string) float64 { return 1 / 3. / float64(serving[zone(relay)]) }
	for _, traffic := range []map[string]int{nil, {plan.Affine()[0]: int(math.Round(12000 * share(plan.Affine()[0])))}} {
		for i, relay := range plan.Affine() {
			r := &Route{Plan: plan, Index: i, traffic: traffic, expected: expectations(plan, cfg.Relays)}
			if got, want := r.shareOf(relay), share(relay); math.Abs(got-want) > 1e-9 {
				t.Errorf("%d relays of %v serve, %v is stated: the share of one is %v, want %v", serving[zone(relay)], zone(relay), traffic, got, want)
			}
			for other, rate := range traffic {
				at, _ := plan.Index(other)
				d := demand{memory: 30 * time.Second}
				var stated int
				for tick := range 200 {
					out, _ := d.update(time.Unix(int64(2*tick), 0), []served{{"s", uint64(math.Round(float64(2*tick) * 12000 * share(relay))), i, []statedRate{r.statedBy(at, rate)}}})
					stated += len(out)
				}
				if relay != other && stated > 0 {
					t.Errorf("a relay of %v that carries what is expected of it states that beside one of %v", zone(relay), zone(other))
				}
			}
		}
	}
}

// A zone has lost nine of its ten relays. The plan counts none of them any more, and neither does the
// share of the one that is left.
func TestAbsentRelaysThatThePlanLeavesOutRaiseNoShare(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "s"}
	var absent []affinity.Relay
	for i := range 30 {
		place := affinity.Place{Datacenter: fmt.Sprint("zone-", i%3)}
		relay := affinity.Relay{ID: fmt.Sprintf("r%02d", i), Place: place}
		if i%3 == 1 && i > 1 {
			absent = append(absent, relay)
		} else {
			cfg.Relays = append(cfg.Relays, relay)
		}
		cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w%02d", i), Place: place})
	}
	plan, err := peering.Plan(cfg, peering.Absent{Relays: absent})
	if err != nil {
		t.Fatal(err)
	}
	r := &Route{Plan: plan, absentRelays: idSet(absent, func(r affinity.Relay) string { return r.ID })}
	r.expected = expectations(plan, slices.Concat(cfg.Relays, countedOf(plan, absent)))
	if len(countedOf(plan, absent)) == len(absent) {
		t.Fatal("the plan counts all that are absent: the case is another one")
	}
	if got := r.shareOf("r01"); got > 0.1 {
		t.Errorf("the relay that is left in its zone has the share %.3f", got)
	}
}

// A bucket that holds one request refuses a third of those that arrive by chance at half of its rate,
// and half of them at all of it.
func TestALimitOfFewRequestsPerRelayLetsPassThoseThatArriveByChance(t *testing.T) {
	for _, perRelay := range []float64{1, 3} {
		for _, relays := range []int{3, 10, 30} {
			limit := ratelimit.Rate{Requests: int(perRelay) * relays, Per: time.Second}
			for load, want := range map[float64]float64{0.5: 0.98, 0.8: 0.94, 1: 0.87, 2: 0.97, 5: 0.98} {
				f := newLimitedFleet(t, relays, limit)
				rate := func(int) float64 { return load * perRelay }
				f.pass(10*time.Minute, rate)
				part := f.passes / min(f.arrives, 600*limit.PerSecond())
				most := 0.0 // of the limit in ten seconds
				for range 30 {
					f.arrives, f.passes = 0, 0
					f.pass(10*time.Second, rate)
					most = max(most, f.passes/(10*limit.PerSecond()))
				}
				t.Logf("%v/s at each of %2d relays, %.1f of the limit: %.3f passes, at most %.2f of the limit in ten seconds", perRelay, relays, load, part, most)
				if part < want || part > 1.02 || most > 1+ratelimit.LeastBurst/(10*perRelay) {
					t.Errorf("%v/s at each of %d relays, %v of the limit: %.3f passes, want %v; at most %.2f of the limit in ten seconds", perRelay, relays, load, part, want, most)
				}
			}
		}
	}
}

// At exactly the limit, requests that arrive by chance find buckets empty, which a larger burst fills.
// So few requests that relays do not notice a difference between each other are counted with the share
// of the mean, which no burst changes. The numbers are on the page about limits.
func TestFewRequestsPerRelayPassLessAndALargerBurstHelpsAgainstChanceButNotAgainstUnevenTraffic(t *testing.T) {
	for _, c := range []struct {
		perRelay, relays int
		traffic          string
		passes           float64 // of the limit, over ten minutes
		withBurst        float64 // of ten seconds of the limit
	}{
		{1, 10, "even", 0.90, 0.95},
		{3, 10, "even", 0.90, 0.99},
		{10, 10, "even", 0.90, 1},
		{3, 10, "from 0.2 to 1.8", 0.885, 0.95},
		{10, 30, "half at one", 0.94, 0.97},
		{1, 3, "from 0.2 to 1.8", 0.685, 0.70},
		{3, 3, "from 0.2 to 1.8", 0.70, 0.725},
		{1, 10, "half at one", 0.82, 0.86},
	} {
		for seconds, want := range map[int]float64{0: c.passes, 10: c.withBurst} {
			limit := ratelimit.Rate{Requests: c.perRelay * c.relays, Per: time.Second, Burst: seconds * c.perRelay * c.relays}
			f := newLimitedFleet(t, c.relays, limit)
			part := traffics(c.relays)[c.traffic]
			rate := func(i int) float64 { return float64(c.perRelay) * part(i) }
			f.pass(10*time.Minute, rate)
			f.passes = 0
			f.pass(10*time.Minute, rate)
			if passes := f.passes / (600 * limit.PerSecond()); math.Abs(passes-want) > 0.02 {
				t.Errorf("%d/s at each of %d relays, %s, burst of %d seconds: %.3f of the limit passes, want %v", c.perRelay, c.relays, c.traffic, seconds, passes, want)
			}
		}
	}
}

func TestEachSideOfASplitLetsTheWholeRatePassAndBothTogetherAfterIt(t *testing.T) {
	const relays = 10
	limit := ratelimit.Rate{Requests: 300, Per: time.Second}
	f := newLimitedFleet(t, relays, limit)
	rate := func(int) float64 { return 5 * 30 }
	for _, c := range []struct {
		split int
		want  float64
	}{{0, 1}, {4, 2}, {1, 1.5}, {0, 1}} { // at one relay alone arrives half of the limit
		f.split = c.split
		f.pass(5*time.Second, rate) // the bursts of the larger shares
		f.arrives, f.passes = 0, 0
		f.pass(10*time.Second, rate)
		if part := f.passes / (10 * limit.PerSecond()); math.Abs(part-c.want) > 0.05*c.want {
			t.Errorf("%d of %d relays see only each other: %.2f of the limit passes, want %v", c.split, relays, part, c.want)
		}
	}
}

func TestARelayThatStatesTooMuchLeavesAQuarterOfTheirPartsToTheOthers(t *testing.T) {
	for _, lie := range []int{1 << 24, 1_000_000, 108} {
		f := newLimitedFleet(t, 10, ratelimit.Rate{Requests: 1000, Per: time.Second})
		for i := range f.stated {
			f.stated[i] = 108
		}
		f.stated[0] = lie
		sum := 0.0
		for i := range f.stated {
			share := f.share(i)
			if sum += share; share < 1.0/(10*affinity.MaxTrafficRatio) || share > 1 {
				t.Errorf("with %d stated by relay 0, relay %d has %.3g of the limit", lie, i, share)
			}
		}
		if sum < 1-1e-9 || sum > 1+1.0/affinity.MaxTrafficRatio {
			t.Errorf("with %d stated by relay 0, all together have %.3g of the limit", lie, sum)
		}
	}
}
