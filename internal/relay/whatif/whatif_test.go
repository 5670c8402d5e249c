package whatif

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/ring"
)

// service returns a service of a fleet of this size.
func service(name string, relays, workers int) Service {
	cfg := affinity.PlanConfig{Service: name, Minimums: affinity.DefaultMinimums, Strategy: affinity.Projection, IndexSource: affinity.IndexSlot}
	for i := range relays {
		cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("relay-%d", i)})
	}
	for i := range workers {
		cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("%s-%d", name, i), Weight: 10})
	}
	return Service{Plan: cfg}
}

func parse(t rapid.TB, text string) Change {
	t.Helper()
	c, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func compare(t rapid.TB, change string, services ...Service) *api.PlanChange {
	t.Helper()
	a, err := Compare(context.Background(), services, parse(t, change))
	if err != nil {
		t.Fatalf("%s: %v", change, err)
	}
	return a
}

func TestAChangeIsReadOrRefusedWithWhatIsAllowed(t *testing.T) {
	for _, text := range []string{"", " ", "strategy=rendezvous,m=4,relays=+20,workers=-10%", "index=rank, k=auto", "k=3,p=1,tier=1", "relays=5,workers=200", "skip=r1,skip=r2", "m=2000"} {
		if _, err := Parse(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, says := range map[string]string{
		"m":                                  "want KEY=VALUE",
		"m=4,":                               "want KEY=VALUE",
		"stratgy=projection":                 "did you mean strategy?",
		"zone=fra":                           "allowed are strategy, index, m, p, k, relays, workers, tier, slack, skip",
		"m=4,m=5":                            "m is given twice",
		"strategy=modulo":                    "projection or rendezvous",
		"index=ordinal":                      "rank or slot",
		"m=2":                                "3 to 2000",
		"m=2001":                             "3 to 2000",
		"m=four":                             "3 to 2000",
		"p=0":                                "1 to 100000",
		"tier=0":                             "1 to 100000",
		"k=2":                                "auto or 3 to 2000",
		"k=":                                 "auto or 3 to 2000",
		"relays=many":                        "+10% or -10%",
		"relays=":                            "+10% or -10%",
		"relays=+-2":                         "+10% or -10%",
		"relays=50%":                         "+10% or -10%",
		"relays=2001":                        "+10% or -10%",
		"relays=99999999999999999999":        "+10% or -10%",
		"workers=+1.5":                       "+10% or -10%",
		"skip=":                              "the id of a relay",
		strings.Repeat("skip=relay-0,", 400): "at most 4096 are read",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q in it", text, err, says)
		}
	}
}

func TestAChangeThatDoesNotFitTheFleetIsRefused(t *testing.T) {
	few, numbered, large := service("few", 10, 20), service("numbered", 10, 20), service("large", 100, 90_000)
	numbered.Plan.RelaysPerService = 4
	for _, c := range []struct {
		change string
		of     Service
		says   string
	}{
		{"skip=relay-11", few, "did you mean relay-1?"},
		{"relays=-10", few, "relays=-10: that makes 0 of 10"},
		{"workers=-100%", few, "that makes 0 of 20"},
		{"workers=+100000", few, "allowed are 1 to 100000"},
		{"k=4,m=5", few, "allowed are auto, or 5 or more"},
		{"m=5", numbered, "--relays-per-service is 4"},
		{"workers=+12%", large, "100800 of 90000"},
		{"m=60", large, "5400000 connections after the change"},
		{"relays=3,skip=relay-0,skip=relay-1,skip=relay-2,skip=relay-3,skip=relay-4,skip=relay-5,skip=relay-6,skip=relay-7,skip=relay-8,skip=relay-9", few, "skip list"},
	} {
		if _, err := Compare(t.Context(), []Service{c.of}, parse(t, c.change)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q in it", c.change, err, c.says)
		}
	}
	if _, err := Compare(t.Context(), []Service{large, large}, Change{}); err == nil || !strings.Contains(err.Error(), "180000 workers of all services now") {
		t.Errorf("more workers than are compared: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Compare(ended, []Service{few}, Change{}); err == nil {
		t.Error("a comparison goes on that no one waits for")
	}
}

// A relay takes the larger of what the workers ask for and m, and no setting.
func TestWhatWorkersAskForIsRaisedToTheMinimumAndNoSettingReplacesIt(t *testing.T) {
	asked, other := service("asked", 20, 40), service("other", 20, 40)
	asked.Plan.Minimums.PeersPerWorker, asked.Plan.RelaysPerService, asked.RelaysAsked = 6, 6, 3
	other.Plan.Minimums.PeersPerWorker = 6
	for _, c := range []struct {
		change   string
		services []Service
		then     float64 // relays of a service
		ignored  string
	}{
		{"m=4", []Service{asked}, 4, ""},
		{"m=3", []Service{asked}, 3, ""},
		{"m=8", []Service{asked}, 8, ""},
		{"k=8", []Service{asked}, 6, "k: it has no effect on 1 of 1 services, whose workers ask for a number of relays (asked, 3)"},
		{"k=auto", []Service{asked}, 6, "1 of 1 services"},
		{"k=12,m=5", []Service{asked}, 5, "1 of 1 services"},
		{"k=12", []Service{other, asked}, 9, "1 of 2 services, whose workers ask for a number of relays (asked, 3)"},
		{"k=12", []Service{other}, 12, ""},
	} {
		a := compare(t, c.change, c.services...)
		if a.Then.RelaysPerService != c.then || (c.ignored == "") != (a.Ignored == "") || !strings.Contains(a.Ignored, c.ignored) {
			t.Errorf("%s: %v relays of a service, want %v; ignored %q, want %q", c.change, a.Then.RelaysPerService, c.then, a.Ignored, c.ignored)
		}
	}
}

// anyServices are services of one fleet, in places, with weights and under any settings.
var anyServices = rapid.Custom(func(t *rapid.T) (out []Service) {
	relays := rapid.IntRange(1, 24).Draw(t, "relays")
	place := func(i int) affinity.Place { return affinity.Place{Datacenter: "dc-" + fmt.Sprint(i%2), Region: "eu"} }
	placed := rapid.Bool().Draw(t, "placed")
	minimums := affinity.Minimums{PeersPerWorker: rapid.IntRange(3, 6).Draw(t, "m"), PeersPerRelay: rapid.IntRange(1, 4).Draw(t, "p")}
	strategy := rapid.SampledFrom([]affinity.Strategy{affinity.Projection, affinity.Rendezvous}).Draw(t, "strategy")
	for i := range rapid.IntRange(1, 3).Draw(t, "services") {
		s := service(fmt.Sprint("s", i), relays, rapid.IntRange(1, 50).Draw(t, "workers"))
		s.Plan.Minimums, s.Plan.Strategy = minimums, strategy
		s.Plan.WholeRange = rapid.Bool().Draw(t, "whole range")
		if rapid.Bool().Draw(t, "numbered") {
			s.RelaysAsked = rapid.IntRange(1, 30).Draw(t, "asked")
			s.Plan.RelaysPerService = max(s.RelaysAsked, minimums.PeersPerWorker)
		}
		for j := range s.Plan.Workers {
			s.Plan.Workers[j].Weight = rapid.IntRange(0, 3).Draw(t, "weight") * 5
			if placed {
				s.Plan.Workers[j].Place = place(j)
			}
		}
		for j := range s.Plan.Relays {
			if placed {
				s.Plan.Relays[j].Place = place(j)
			}
		}
		if rapid.Bool().Draw(t, "ordered") { // as a relay's routes are
			byID := map[string]affinity.Worker{}
			var ids []string
			for _, w := range s.Plan.Workers {
				ids, byID[w.ID] = append(ids, w.ID), w
			}
			for j, id := range ring.Order(s.Plan.Service, ids) {
				s.Plan.Workers[j] = byID[id]
			}
			s.Plan.WorkersOrdered = true
		}
		out = append(out, s)
	}
	return out
})

func TestAnEmptyChangeOpensAndClosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		services := anyServices.Draw(t, "services")
		a := compare(t, "", services...)
		if a.Opened != 0 || a.Closed != 0 || a.MostOpened != 0 || a.MostOpenedBy != "" || a.Now != a.Then {
			t.Fatalf("%+v", a)
		}
	})
}

// pairs returns the connections of a plan with their weights, and the relays that serve.
func pairs(t *rapid.T, cfg affinity.PlanConfig) (out map[[2]string]float64, serving int) {
	plan, err := affinity.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	out = map[[2]string]float64{}
	for i, relay := range plan.Affine() {
		row, err := plan.Assignments(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range row {
			out[[2]string{relay, a.Worker}] = a.Weight
		}
	}
	return out, len(plan.Affine())
}

// trafficOf is the part of the traffic that each relay carries, while none is known: all relays of
// the fleet get the same, and those that do not serve forward within their place. A relay counts as
// a quarter to four times the mean.
func trafficOf(cfg affinity.PlanConfig, set map[[2]string]float64) map[string]float64 {
	out, fleet, serving := map[string]float64{}, map[affinity.Place]float64{}, map[affinity.Place]float64{}
	for pair := range set {
		out[pair[0]] = 0
	}
	for _, r := range cfg.Relays {
		fleet[r.Place]++
		if _, serves := out[r.ID]; serves {
			serving[r.Place]++
		}
	}
	total := func() (sum float64) {
		for _, one := range out {
			sum += one
		}
		return sum
	}
	for _, r := range cfg.Relays {
		if _, serves := out[r.ID]; serves {
			out[r.ID] = fleet[r.Place] / serving[r.Place]
		}
	}
	mean := total() / float64(len(out))
	for id := range out {
		out[id] = min(max(out[id], mean/affinity.MaxTrafficRatio), mean*affinity.MaxTrafficRatio)
	}
	sum := total()
	for id := range out {
		out[id] /= sum
	}
	return out
}

// The dumb reference: sets of pairs, and every figure by its definition.
func TestAComparisonIsTheDifferenceOfTwoSetsOfConnections(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		services := anyServices.Draw(t, "services")
		relays := len(services[0].Plan.Relays)
		text := rapid.SampledFrom([]string{"strategy=rendezvous", "strategy=projection,index=rank", "m=6", "k=auto", "k=7", "relays=+3", "workers=+40%", "workers=-1%", "relays=12,workers=7", "p=5,tier=9", "skip=relay-0,relays=+2"}).Draw(t, "change")
		if relays > 2 && rapid.Bool().Draw(t, "fewer") {
			text = "relays=-2"
		}
		change := parse(t, text)
		got := compare(t, text, services...)
		want := api.PlanChange{Services: len(services)}
		opened := map[string]int{}
		sides := [2]api.PlanFigures{}
		perRelay := [2]map[string]int{{}, {}}
		for i := range sides {
			sides[i].LeastLoaded = math.Inf(1)
		}
		for _, s := range services {
			changed, err := change.apply(s)
			if err != nil {
				t.Fatal(err)
			}
			var sets [2]map[[2]string]float64
			for i, cfg := range []affinity.PlanConfig{s.Plan, changed} {
				set, serving := pairs(t, cfg)
				sets[i] = set
				traffic := trafficOf(cfg, set)
				f, loads, weights := &sides[i], map[string]float64{}, 0
				for _, r := range cfg.Relays {
					perRelay[i][r.ID] += 0
				}
				for pair, weight := range set {
					perRelay[i][pair[0]]++
					loads[pair[1]] += weight * traffic[pair[0]]
				}
				f.Workers += len(cfg.Workers)
				f.Connections += len(set)
				f.RelaysPerService += float64(serving) / float64(len(services))
				f.HopShare += (1 - float64(serving)/float64(len(cfg.Relays))) / float64(len(services))
				weight := func(w affinity.Worker) int {
					if w.Weight == 0 {
						return affinity.DefaultWeight
					}
					return w.Weight
				}
				for _, w := range cfg.Workers {
					weights += weight(w)
				}
				for _, w := range cfg.Workers {
					relative := loads[w.ID] / (float64(weight(w)) / float64(weights))
					f.LeastLoaded, f.MostLoaded = min(f.LeastLoaded, relative), max(f.MostLoaded, relative)
				}
			}
			for pair := range sets[0] {
				if _, there := sets[1][pair]; !there {
					want.Closed++
				}
			}
			for pair := range sets[1] {
				if _, there := sets[0][pair]; !there {
					want.Opened++
					opened[pair[0]]++
				}
			}
		}
		for _, n := range opened {
			want.MostOpened = max(want.MostOpened, n)
		}
		if got.Opened != want.Opened || got.Closed != want.Closed || got.MostOpened != want.MostOpened || opened[got.MostOpenedBy] != want.MostOpened || got.Services != want.Services {
			t.Fatalf("%s:\ngot  %+v\nwant %+v", text, got, want)
		}
		for i, have := range []api.PlanFigures{got.Now, got.Then} {
			f, least, most := sides[i], math.MaxInt, 0
			for _, n := range perRelay[i] {
				least, most = min(least, n), max(most, n)
			}
			near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
			if have.Relays != len(perRelay[i]) || have.Workers != f.Workers || have.Connections != f.Connections || have.WorkersPerRelay != (api.MinMax{Min: least, Max: most}) ||
				!near(have.MeanWorkersPerRelay, float64(f.Connections)/float64(len(perRelay[i]))) || !near(have.RelaysPerService, f.RelaysPerService) || !near(have.HopShare, f.HopShare) ||
				!near(have.LeastLoaded, f.LeastLoaded) || !near(have.MostLoaded, f.MostLoaded) {
				t.Fatalf("%s, side %d:\ngot  %+v\nwant %+v, %d to %d of %d relays", text, i, have, f, least, most, len(perRelay[i]))
			}
		}
	})
}

// Every relay gives the same answer, whatever the order in which it knows the members.
func TestTheMembersThatLeaveAndJoinFollowFromTheIdsAlone(t *testing.T) {
	s := service("billing", 40, 300)
	want := compare(t, "relays=-25%,workers=+10%", s)
	if want.Then.Relays != 30 || want.Then.Workers != 330 {
		t.Errorf("%+v", want)
	}
	turned := service("billing", 40, 300)
	for i, j := 0, len(turned.Plan.Relays)-1; i < j; i, j = i+1, j-1 {
		turned.Plan.Relays[i], turned.Plan.Relays[j] = turned.Plan.Relays[j], turned.Plan.Relays[i]
	}
	turned.Plan.Workers = append(turned.Plan.Workers[100:], turned.Plan.Workers[:100]...)
	if got := compare(t, "relays=-25%,workers=+10%", turned); *got != *want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// Members that were called so before keep their names.
	s.Plan.Relays[0].ID = "+1"
	changed, err := func() (affinity.PlanConfig, error) { c := parse(t, "relays=+2"); return c.apply(s) }()
	if err != nil || changed.Relays[40].ID != "+2" || changed.Relays[41].ID != "+3" {
		t.Errorf("%v, %v", changed.Relays[40:], err)
	}
}

func TestMembersThatJoinAreLikeThoseThatThereAre(t *testing.T) {
	s := service("billing", 6, 12)
	for i := range s.Plan.Relays {
		s.Plan.Relays[i].Datacenter = fmt.Sprint("dc-", i%3)
	}
	for i := range s.Plan.Workers {
		s.Plan.Workers[i].Datacenter, s.Plan.Workers[i].Weight = fmt.Sprint("dc-", i%3), 1+i%4
	}
	c := parse(t, "relays=+100%,workers=+200%")
	changed, err := c.apply(s)
	if err != nil {
		t.Fatal(err)
	}
	relays, workers := map[string]int{}, map[string]int{}
	for _, r := range changed.Relays {
		relays[r.Datacenter]++
	}
	for _, w := range changed.Workers {
		workers[fmt.Sprint(w.Datacenter, " ", w.Weight)]++
	}
	if len(relays) != 3 || len(workers) != 12 {
		t.Errorf("%v %v", relays, workers)
	}
	for of, n := range relays {
		if n != 4 {
			t.Errorf("%d relays in %s, want twice as many as before", n, of)
		}
	}
	for of, n := range workers {
		if n != 3 {
			t.Errorf("%d workers of %s, want three times as many as before", n, of)
		}
	}
}

func TestNoServicesAreComparedToo(t *testing.T) {
	if a := compare(t, "relays=+1"); a.Services != 0 || a.Now.LeastLoaded != 0 || a.Opened != 0 {
		t.Errorf("%+v", a)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "strategy=rendezvous,m=4,relays=+20,workers=-10%", "skip=a,skip=b", "k=auto", "m=-1", "=,="} {
		f.Add(seed)
	}
	of := service("fuzzed", 5, 9)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil || c.workers.n > 1000 {
			return
		}
		if a, err := Compare(t.Context(), []Service{of}, c); err == nil && (a.Opened-a.Closed != a.Then.Connections-a.Now.Connections || a.Then.Relays < 1) {
			t.Errorf("%q: %+v", text, a)
		}
	})
}
