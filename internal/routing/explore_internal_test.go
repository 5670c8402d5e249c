package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/explore"
	"github.com/ringway/ringway/internal/peering"
)

// The model below has four relays and four workers. One relay is given new settings of the plan,
// another one takes them back, and the relays hear of it, connect and close in any order. What the
// real fleet ensures by its times, the model ensures by waiting: before a tick of 10 s ends a relay has
// opened what it wants, and before the second one ends it has heard what the others state, which is
// less than the drain delay of three ticks. (If opening takes as long as hearing, the explorer finds
// a change that is taken back just before the connections of before it close: a worker then has two
// relays.)

const (
	exploredMembers = 4
	tick            = 10 * time.Second
)

var tickZero = time.UnixMilli(1_800_000_000_000)

var relayIDs, workerIDs = [exploredMembers]string{"r1", "r2", "r3", "r4"}, [exploredMembers]string{"w1", "w2", "w3", "w4"}

// exploredSettings are the settings in the configuration of a relay: at first, after the change, and
// after the change is taken back.
var exploredSettings = func() (settings [3]PlanSettings) {
	for i, strategy := range [...]affinity.Strategy{affinity.Projection, affinity.Rendezvous, affinity.Projection} {
		settings[i] = DefaultPlanSettings()
		settings[i].Version, settings[i].Strategy = uint64(i+1), strategy
	}
	return settings
}()

// exploredWorkers are the workers of each relay by strategy.
var exploredWorkers = func() map[affinity.Strategy][exploredMembers][]string {
	all := map[affinity.Strategy][exploredMembers][]string{}
	for _, strategy := range []affinity.Strategy{affinity.Projection, affinity.Rendezvous} {
		cfg := affinity.PlanConfig{Service: "echo", Strategy: strategy, Minimums: affinity.Minimums{PeersPerWorker: 3, PeersPerRelay: 1}}
		for i := range exploredMembers {
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: relayIDs[i]})
			cfg.Workers = append(cfg.Workers, affinity.Worker{ID: workerIDs[i]})
		}
		plan, err := affinity.NewPlan(cfg)
		if err != nil {
			panic(err)
		}
		var of [exploredMembers][]string
		for i := range of {
			index, ok := plan.Index(cfg.Relays[i].ID)
			assigned, err := plan.Assignments(index)
			if !ok || err != nil {
				panic(err)
			}
			for _, a := range assigned {
				of[i] = append(of[i], a.Worker)
			}
			slices.Sort(of[i])
		}
		all[strategy] = of
	}
	return all
}()

// event is what happened to the connections of a relay: it wants those of a strategy, or, without
// one, what it wanted is open.
type event struct {
	tick int
	want affinity.Strategy
}

// planner is one relay of the model.
type planner struct {
	agreement agreement
	own       PlanSettings
	heard     says
	since     int // the tick in which it adopted what it uses
	events    []event
	links     opened
}

// opened are the connections of a relay after its events.
type opened struct {
	states [exploredMembers]peering.State // by worker
	drains time.Duration                  // how long those that drain go on; all began together
}

// planWorld is a state of the model.
type planWorld struct {
	relays  [exploredMembers]planner
	tick    int
	reloads int
}

// planRules are what the model calls, in which a test plants a fault.
type planRules struct {
	merge func(*agreement, says, PlanSettings)
	drain time.Duration
}

var realPlanRules = planRules{
	merge: func(a *agreement, heard says, own PlanSettings) { a.merge(heard.All(), own, true) },
	drain: 3 * tick,
}

// play returns the world in which a table of production has played the events of a relay.
func (r planRules) play(w planWorld, i int) planWorld {
	t, err := peering.NewTable[string](peering.Config{DrainDelay: r.drain})
	if err != nil {
		panic(err)
	}
	events := w.relays[i].events
	var actions peering.Actions[string]
	for at := 0; at <= w.tick; at++ {
		now := tickZero.Add(time.Duration(at) * tick)
		for ; len(events) > 0 && events[0].tick == at; events = events[1:] {
			if want := events[0].want; want != "" {
				t.Want("echo", exploredWorkers[want][i], nil, now)
			} else {
				for _, id := range workerIDs {
					t.Opened(id, now) // no effect unless it is being opened
				}
			}
			t.Step(now)
		}
		actions = t.Step(now)
	}
	l := opened{}
	for n, id := range workerIDs {
		l.states[n] = t.State(id)
	}
	if !actions.Next.IsZero() {
		l.drains = actions.Next.Sub(tickZero.Add(time.Duration(w.tick) * tick))
	}
	w.relays[i].links = l
	return w
}

// hear changes what a relay has heard, or its own settings, and merges.
func (r planRules) hear(w planWorld, i int, change func(*planner)) planWorld {
	p := &w.relays[i]
	p.heard, p.agreement.reported = maps.Clone(p.heard), maps.Clone(p.agreement.reported)
	change(p)
	before := p.agreement.inUse
	r.merge(&p.agreement, p.heard, p.own)
	if after := p.agreement.inUse; after.plans.Version != before.plans.Version {
		p.since = w.tick
		p.events = append(slices.Clip(p.events), event{w.tick, after.plans.Strategy})
		return r.play(w, i)
	}
	return w
}

func (r planRules) steps(w planWorld) (steps []explore.Step[planWorld]) {
	step := func(next func() planWorld, format string, args ...any) {
		steps = append(steps, explore.Step[planWorld]{Name: fmt.Sprintf(format, args...), Next: next})
	}
	waits := false // for a relay that has not connected, or not heard since the tick before
	for i, p := range w.relays {
		if i < 2 && w.reloads == i {
			step(func() planWorld {
				w := w
				w.reloads++
				return r.hear(w, i, func(p *planner) { p.own = exploredSettings[i+1] })
			}, "r%d is given version %d", i+1, i+2)
		}
		for j, other := range w.relays {
			id, states := relayIDs[j], other.agreement.inUse.stated()
			if i == j || j > 1 || p.heard[id] == states { // the other two only repeat what they heard
				continue
			}
			waits = waits || other.since < w.tick
			step(func() planWorld {
				return r.hear(w, i, func(p *planner) { p.heard[id] = states })
			}, "r%d hears r%d", i+1, j+1)
		}
		if slices.Contains(p.links.states[:], peering.Opening) {
			waits = true
			step(func() planWorld {
				w := w
				p := &w.relays[i]
				p.events = append(slices.Clip(p.events), event{tick: w.tick})
				return r.play(w, i)
			}, "r%d connects", i+1)
		}
	}
	if !waits && w.tick < 9 {
		step(func() planWorld {
			w := w
			w.tick++
			for i := range w.relays {
				w = r.play(w, i)
			}
			return w
		}, "10 s pass")
	}
	return steps
}

func (w planWorld) key() string {
	var b strings.Builder
	fmt.Fprint(&b, w.reloads)
	for _, p := range w.relays {
		fmt.Fprint(&b, "|", p.own.Version, p.agreement.inUse.plans.Version, p.agreement.inUse.author, min(w.tick-p.since, 1), p.links.states, p.links.drains)
		for _, id := range relayIDs {
			fmt.Fprint(&b, " ", p.heard[id].Version)
		}
	}
	return b.String()
}

// check is what must hold in each state: each worker has three relays, and once all relays have
// heard all, they use the highest version.
func (r planRules) check(w planWorld) error {
	for n, id := range workerIDs {
		have := 0
		for _, p := range w.relays {
			if s := p.links.states[n]; s == peering.Open || s == peering.Draining {
				have++
			}
		}
		if have < 3 {
			return fmt.Errorf("%s has %d relays, with 3 before the change and after it", id, have)
		}
	}
	highest := uint64(0)
	for _, p := range w.relays {
		highest = max(highest, p.agreement.inUse.plans.Version)
	}
	for range 2 {
		for i := range w.relays {
			for j := range w.relays {
				if i != j {
					w = r.hear(w, i, func(p *planner) { p.heard[relayIDs[j]] = w.relays[j].agreement.inUse.stated() })
				}
			}
		}
	}
	for i, p := range w.relays {
		if v := p.agreement.inUse.plans.Version; v != highest {
			return fmt.Errorf("when all have heard all, r%d uses version %d of %d", i+1, v, highest)
		}
	}
	return nil
}

func (r planRules) model() explore.Model[planWorld] {
	var w planWorld
	first := exploredSettings[0]
	for i := range w.relays {
		p := &w.relays[i]
		id := relayIDs[i]
		p.own, p.agreement, p.heard = first, *newAgreement(id, first, true), says{}
		for j := range w.relays {
			if i != j {
				p.heard[relayIDs[j]] = advertise.PlanSettings{Version: 1, Author: relayIDs[j], Body: first.Text()}
			}
		}
		p.agreement.firm = true
		p.events = []event{{0, first.Strategy}, {tick: 0}}
		w = r.play(w, i)
	}
	return explore.Model[planWorld]{Start: w, Steps: r.steps, Key: planWorld.key, Check: r.check, Most: 1_000_000}
}

func TestNoOrderOfEventsTakesARelayFromAWorkerWhileSettingsChange(t *testing.T) {
	result, err := realPlanRules.model().Explore()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d steps, depth %d", result.States, result.Steps, result.Depth)
	if result.States < 1_000 {
		t.Errorf("only %d states: the model has lost events", result.States)
	}
}

func TestTheExplorerFindsFaultsOfAChangeOfSettings(t *testing.T) {
	for name, test := range map[string]struct {
		rules planRules
		steps int
	}{
		"connections are closed at once": {planRules{realPlanRules.merge, -1}, 2},
		"a relay keeps its own settings": {planRules{func(a *agreement, heard says, own PlanSettings) {
			a.merge(heard.All(), own, false)
		}, realPlanRules.drain}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			explore.Planted(t, test.rules.model(), realPlanRules.model(), test.steps)
		})
	}
}
