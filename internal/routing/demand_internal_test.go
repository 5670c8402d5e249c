package routing

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/advertise"
)

const (
	testMemory = 30 * time.Second
	testTick   = testMemory / measureFactor
)

// demandFleet are relays that all serve one service. A statement reaches the others after one
// measurement.
type demandFleet struct {
	random  *rand.Rand
	now     time.Time
	relays  []*demand
	sent    []float64
	stated  []int // what the others know; 0 for nothing
	changes []int // of the statement, by relay

	arrived func(relay, requests int) // in the time of one measurement before now; nil is not called
}

func newDemandFleet(relays int, seed uint64) *demandFleet {
	f := &demandFleet{random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(0, 0), sent: make([]float64, relays), stated: make([]int, relays), changes: make([]int, relays)}
	for range relays {
		f.relays = append(f.relays, &demand{memory: testMemory})
	}
	return f
}

// pass lets time pass. Each relay gets a Poisson stream of its rate.
func (f *demandFleet) pass(d time.Duration, rate func(relay int) float64) {
	for end := f.now.Add(d); f.now.Before(end); {
		f.now = f.now.Add(testTick)
		known := slices.Clone(f.stated)
		for i, r := range f.relays {
			n := f.poisson(rate(i) * testTick.Seconds())
			f.sent[i] += n
			if f.arrived != nil {
				f.arrived(i, int(n))
			}
			s := served{service: "s", sent: uint64(f.sent[i]), index: i}
			for j, other := range known {
				if j != i && other > 0 {
					s.others = append(s.others, statedRate{j, other})
				}
			}
			out, changed := r.update(f.now, []served{s})
			f.stated[i] = 0
			if len(out) > 0 {
				f.stated[i] = int(out[0].Rate)
			}
			if changed {
				f.changes[i]++
			}
		}
	}
}

func (f *demandFleet) poisson(mean float64) float64 {
	if mean > 100 { // there the normal distribution is as good
		return max(0, math.Round(mean+math.Sqrt(mean)*f.random.NormFloat64()))
	}
	n, p := -1.0, 1.0
	for limit := math.Exp(-mean); p > limit; n++ {
		p *= f.random.Float64()
	}
	return n
}

func (f *demandFleet) total() (n int) {
	for _, c := range f.changes {
		n += c
	}
	return n
}

// statements counts the relays that state something.
func (f *demandFleet) statements() int {
	return len(f.stated) - len(slices.DeleteFunc(slices.Clone(f.stated), func(rate int) bool { return rate > 0 }))
}

// wrong returns the largest factor between what is assumed of a relay, relative to the mean, and
// its real traffic.
func (f *demandFleet) wrong(rate func(relay int) float64) float64 {
	var known, n, sum float64
	for _, s := range f.stated {
		if s > 0 {
			known, n = known+float64(s), n+1
		}
	}
	mean := known / max(n, 1)
	for i := range f.relays {
		sum += rate(i)
	}
	realMean, worst := sum/float64(len(f.relays)), 1.0
	for i, s := range f.stated {
		assumed := cmp.Or(float64(s), mean)
		factor := assumed / mean / (rate(i) / realMean)
		if mean == 0 {
			factor = realMean / rate(i)
		}
		worst = max(worst, factor, 1/factor)
	}
	return worst
}

func same(rate float64) func(int) float64 { return func(int) float64 { return rate } }

func TestOneStatementIsEnoughForAnEqualFleetWhileItsTrafficDoublesAndHalvesOverADay(t *testing.T) {
	for _, mean := range []float64{3, 10, 100, 3000} {
		f := newDemandFleet(20, 1)
		f.pass(10*time.Minute, same(mean))
		if n := f.statements(); n != 1 || f.stated[0] == 0 {
			t.Errorf("%v/s: %d relays state their traffic after ten minutes, want the first one: %v", mean, n, f.stated)
		}
		before := f.total()
		start := f.now
		f.pass(24*time.Hour, func(int) float64 {
			return mean * math.Exp2(0.5-0.5*math.Cos(2*math.Pi*f.now.Sub(start).Hours()/24))
		})
		if n := f.total() - before; n > 16 {
			t.Errorf("%v/s: %d changes of statements in a day, want the 8 of one relay and few by chance: %v", mean, n, f.changes)
		}
	}
}

func TestTrafficThatChangesOnAllRelaysAlikeRemainsOneStatement(t *testing.T) {
	for _, factor := range []float64{0.1, 0.5, 2, 10} {
		f := newDemandFleet(20, 2)
		f.pass(10*time.Minute, same(200))
		before := f.total()
		f.pass(10*time.Minute, same(200*factor))
		if n := f.total() - before; n > 6 || f.statements() != 1 {
			t.Errorf("traffic of all × %v: %d changes, %d statements: %v", factor, n, f.statements(), f.stated)
		}
	}
}

func TestAnUnequalFleetAgreesWithinNinetySeconds(t *testing.T) {
	classes := []float64{0.3, 1, 1.7}
	for name, of := range map[string]func(int) float64{
		"three classes":            func(i int) float64 { return classes[i%3] },
		"uniform":                  func(i int) float64 { return 0.5 + float64(i)/20 },
		"one with twice as much":   func(i int) float64 { return 1 + float64(i/20) },
		"one with half":            func(i int) float64 { return 1 - float64(i/20)/2 },
		"the first one with twice": func(i int) float64 { return 1 + float64((20-i)/20) },
	} {
		for _, mean := range []float64{30, 300} {
			rates := func(i int) float64 { return mean * of(i) }
			for began, within := range map[string]time.Duration{"at the start": 90 * time.Second, "later": 150 * time.Second} { // later the average must change first
				f := newDemandFleet(21, 3)
				if began == "later" {
					f.pass(10*time.Minute, same(mean))
				}
				f.pass(within, rates)
				bound := math.Exp2((0.5 + margin(mean*0.3, testMemory) + 1) / stepsPerOctave) // a step for the average that still follows
				if w := f.wrong(rates); w > bound {
					t.Errorf("%s, %v/s, %s: after %v a relay is taken for %.2f times its traffic, want at most %.2f: %v", name, mean, began, within, w, bound, f.stated)
				}
				f.pass(10*time.Minute, rates)
				if n := f.statements(); n != len(f.relays) {
					t.Errorf("%s, %v/s, %s: %d of %d relays state their traffic", name, mean, began, n, len(f.relays))
				}
				before := f.total()
				f.pass(2*time.Hour, rates)
				if n := f.total() - before; n > 10 { // first statements that were wrong by a step
					t.Errorf("%s, %v/s, %s: %d changes in two hours of steady traffic: %v", name, mean, began, n, f.changes)
				}
			}
		}
	}
}

func TestTheNoiseOfASteadyStreamChangesNoStatement(t *testing.T) {
	worst := 0
	for position := range 8 { // within one step and between two
		mean := 10 * math.Exp2(float64(position)/8/stepsPerOctave)
		f := newDemandFleet(1, uint64(position))
		f.pass(10*time.Minute, same(mean))
		before := f.total()
		f.pass(24*time.Hour, same(mean))
		worst = max(worst, f.total()-before)
	}
	t.Log("changes in the worst day:", worst)
	if worst > 2 {
		t.Errorf("a stream of about 10/s changed its statement %d times in a day", worst)
	}
}

// One relay alone, with what the others state given.
func TestWhatARelayStates(t *testing.T) {
	type phase struct {
		lasts  time.Duration
		rate   int // requests in each second
		others []statedRate
		want   int // at its end; 0 for nothing
	}
	first, second := func(rate int) statedRate { return statedRate{0, rate} }, func(rate int) statedRate { return statedRate{2, rate} }
	for name, phases := range map[string][]phase{
		"nothing in its first half minute":                     {{28 * time.Second, 100, nil, 0}, {10 * time.Second, 100, nil, 108}},
		"nothing below a request per second":                   {{time.Hour, 0, nil, 0}},
		"nothing while it is near what is stated":              {{time.Hour, 100, []statedRate{first(90)}, 0}},
		"its rate where it differs from what is stated":        {{time.Minute, 100, []statedRate{first(50)}, 108}},
		"its rate where the others differ":                     {{time.Minute, 100, []statedRate{first(80), second(160)}, 108}},
		"that it gets nothing where others do":                 {{time.Minute, 0, []statedRate{first(100)}, 1}, {time.Hour, 0, []statedRate{first(100)}, 1}},
		"nothing any more five minutes after its last request": {{time.Minute, 100, nil, 108}, {4 * time.Minute, 0, nil, 1}, {2 * time.Minute, 0, nil, 0}},
		"nothing any more when no relay gets requests":         {{time.Minute, 100, []statedRate{first(50)}, 108}, {6 * time.Minute, 0, []statedRate{first(1)}, 0}},
		"its rate still when another begins to agree":          {{time.Minute, 100, []statedRate{first(50)}, 108}, {4 * time.Minute, 100, []statedRate{first(108)}, 108}, {2 * time.Minute, 100, []statedRate{first(108)}, 0}},
		"its rate, being the first of those that agree":        {{time.Minute, 100, []statedRate{second(50)}, 108}, {time.Hour, 100, []statedRate{second(108)}, 108}},
	} {
		t.Run(name, func(t *testing.T) {
			d, now, sent := &demand{memory: testMemory}, time.Unix(0, 0), uint64(0)
			for i, p := range phases {
				var out []advertise.Traffic
				for end := now.Add(p.lasts); now.Before(end); {
					now, sent = now.Add(testTick), sent+uint64(p.rate)*uint64(testTick/time.Second)
					out, _ = d.update(now, []served{{"s", sent, 1, p.others}})
				}
				var got int
				if len(out) > 0 {
					got = int(out[0].Rate)
				}
				if got != p.want {
					t.Errorf("at the end of phase %d: states %d/s, want %d", i, got, p.want)
				}
			}
		})
	}
}

func TestAServiceThatTheRelayNoLongerServesLeavesTheStatement(t *testing.T) {
	d, now := &demand{memory: testMemory}, time.Unix(0, 0)
	var out []advertise.Traffic
	for i := range 60 {
		now = now.Add(testTick)
		services := []served{{service: "a", sent: uint64(200 * i)}, {service: "b", sent: uint64(200 * i)}}
		if i > 30 {
			services = services[1:]
		}
		out, _ = d.update(now, services)
		if i == 30 && len(out) != 2 {
			t.Fatalf("states %v, want two services", out)
		}
	}
	if len(out) != 1 || out[0].Service != "b" {
		t.Errorf("states %v, want b alone", out)
	}
}

// Whatever happens, the statement is one that the catalogue takes, it rests for a memory, and
// its rates are steps.
func TestAStatementIsBoundedSortedAndRests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, now, last := &demand{memory: testMemory}, time.Unix(0, 0), time.Time{}
		sent := make([]uint64, rapid.IntRange(0, 100).Draw(t, "services"))
		var before []advertise.Traffic
		for range rapid.IntRange(1, 80).Draw(t, "measurements") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			var services []served
			for i := range sent {
				sent[i] += rapid.Uint64Range(0, 1<<rapid.IntRange(0, 40).Draw(t, "size")).Draw(t, "requests")
				if rapid.IntRange(0, 20).Draw(t, "served") == 0 {
					continue
				}
				s := served{service: fmt.Sprintf("s%03d", i), sent: sent[i], index: 1}
				for j := range rapid.IntRange(0, 2).Draw(t, "others") {
					s.others = append(s.others, statedRate{2 * j, rapid.IntRange(0, advertise.MaxTrafficRate).Draw(t, "rate")})
				}
				services = append(services, s)
			}
			out, changed := d.update(now, services)
			if changed == slices.Equal(out, before) {
				t.Fatalf("changed is %v from %v to %v", changed, before, out)
			}
			if changed && !last.IsZero() && now.Sub(last) < testMemory {
				t.Fatalf("changed %v after the last change", now.Sub(last))
			}
			if changed {
				last, before = now, slices.Clone(out)
			}
			if len(out) > advertise.MaxTraffic || !slices.IsSortedFunc(out, func(a, b advertise.Traffic) int { return cmp.Compare(a.Service, b.Service) }) {
				t.Fatalf("%d services: %v", len(out), out)
			}
			for _, s := range out {
				if s.Rate < 1 || s.Rate > advertise.MaxTrafficRate || rateOf(int(math.Round(stepOf(float64(s.Rate))))) != s.Rate && s.Rate != advertise.MaxTrafficRate {
					t.Fatalf("states %d/s", s.Rate)
				}
			}
		}
	})
}

// A relay that carries little of a service, of which another one carries much, must state that: the
// others would take the mean of the statements for its rate, which is that of the busy relay.
func TestTheStatementsThatOthersWouldBeMostWrongAboutAreKept(t *testing.T) {
	d, now := &demand{memory: testMemory}, time.Unix(0, 0)
	var out []advertise.Traffic
	for i := range 120 {
		now = now.Add(testTick)
		services := []served{{service: "skewed", sent: uint64(i * 2), index: 1, others: []statedRate{{0, 1000}}}}
		for n := range 100 {
			services = append(services, served{service: fmt.Sprintf("s%03d", n), sent: uint64(i * 200), index: 1, others: []statedRate{{0, 50}}})
		}
		out, _ = d.update(now, services)
	}
	if len(out) != 64 || !slices.ContainsFunc(out, func(s advertise.Traffic) bool { return s.Service == "skewed" && s.Rate < 10 }) {
		t.Errorf("%d are stated, and the one that differs most is not among them: %v", len(out), out)
	}
}

// Each relay sees what the other states, and both have more to state than a record holds.
func TestTwoRelaysWithTooManyServicesComeToRest(t *testing.T) {
	for _, rates := range [][2]int{{304, 108}, {150, 100}, {1000, 2}} {
		relays, stated := [2]*demand{{memory: testMemory}, {memory: testMemory}}, [2]map[string]int{}
		now, changedAt := time.Unix(0, 0), 0
		const ticks = 900 // 60 memories
		for i := range ticks {
			now = now.Add(testTick)
			for r, d := range relays {
				var services []served
				for n := range 128 {
					s := served{service: fmt.Sprintf("s%03d", n), sent: uint64(float64(i*rates[r]) * testTick.Seconds()), index: r}
					if rate := stated[1-r][s.service]; rate > 0 {
						s.others = []statedRate{{1 - r, rate}}
					}
					services = append(services, s)
				}
				out, changed := d.update(now, services)
				if changed {
					changedAt = i
				}
				stated[r] = map[string]int{}
				for _, s := range out {
					stated[r][s.Service] = int(s.Rate)
				}
			}
		}
		if changedAt > ticks/2 {
			t.Errorf("relays with %v requests a second of each service change their statements until tick %d of %d", rates, changedAt, ticks)
		}
	}
}

func TestTheBusiest64ServicesAreStated(t *testing.T) {
	d, now := &demand{memory: testMemory}, time.Unix(0, 0)
	var out []advertise.Traffic
	for i := range 60 {
		now = now.Add(testTick)
		var services []served
		for n := range 100 {
			services = append(services, served{service: fmt.Sprintf("s%03d", n), sent: uint64(i * (n + 1) * 20)})
		}
		out, _ = d.update(now, services)
	}
	if len(out) != 64 || out[0].Service < "s030" || out[63].Service != "s099" { // those of one step are taken by name
		t.Errorf("%d services, from %v to %v", len(out), out[0], out[len(out)-1])
	}
}
