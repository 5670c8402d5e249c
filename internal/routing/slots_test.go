package routing_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

// everyStrategy is one of each, for workers w01 and on.
func everyStrategy() (texts []string) {
	for _, name := range strategy.Names() {
		if name == strategy.Manual || name == strategy.Ordered {
			name += ";preferred=w01,w02,w03,w04"
		}
		texts = append(texts, name)
	}
	return texts
}

// limit gives the workers shares of slots.
func (p *picking) limit(secured bool, limits ...int) {
	p.t.Helper()
	p.route(len(limits), func(i int, target *routing.Target) { target.Limit, target.Refuses = limits[i], secured })
	p.now += 4 * second // past the ramp of joiners
}

func (p *picking) inFlight() (out []int) {
	for _, s := range p.Endpoints.Stats(p.now) {
		out = append(out, s.InFlight)
	}
	return out
}

func TestEveryStrategyPassesOverAWorkerWhoseShareIsTakenAsLongAsAnotherHasRoom(t *testing.T) {
	for _, text := range everyStrategy() {
		for _, secured := range []bool{false, true} {
			p := newPicking(t, 4, text)
			p.limit(secured, 1, 2, 0, 1)
			for range 12 {
				p.pick("alice", nil)
			}
			if got := p.inFlight(); got[0] > 1 || got[1] > 2 || got[3] > 1 || got[0]+got[1]+got[2]+got[3] != 12 {
				t.Errorf("%s, secured %t: in flight %v", text, secured, got)
			}
		}
	}
}

func TestWhereEveryShareIsTakenOnlyWorkersThatRefuseByThemselvesAreAsked(t *testing.T) {
	for _, text := range everyStrategy() {
		p := newPicking(t, 4, text)
		p.limit(false, 1, 1, 2, 1)
		for range 5 {
			p.pick("alice", nil)
		}
		var tried routing.Tried
		if _, err := p.Pick("alice", p.now, &tried); !errors.Is(err, selection.ErrFull) {
			t.Errorf("%s: %v", text, err)
		}
		if got := p.inFlight(); !slices.Equal(got, []int{1, 1, 2, 1}) {
			t.Errorf("%s: in flight %v", text, got)
		}

		p = newPicking(t, 4, text)
		p.limit(true, 1, 1, 2, 1)
		for range 6 {
			p.pick("alice", nil)
		}
		// All report that they are full: a request asks one of them, and no second one.
		for i := range 4 {
			ticket, err := p.Endpoints.Take(nodeID(i), p.now)
			if err != nil {
				t.Fatal(err)
			}
			p.Endpoints.Done(ticket, p.now, selection.Result{Outcome: selection.Full})
		}
		tried = routing.Tried{}
		_, ticket := p.pick("alice", &tried)
		tried.Add(ticket)
		if _, err := p.Pick("alice", p.now, &tried); !errors.Is(err, selection.ErrFull) {
			t.Errorf("%s, secured: the second attempt: %v", text, err)
		}
	}
}

func nodeID(i int) string { return "w0" + string(rune('1'+i)) + ".1" }

func TestAWorkerWithoutRoomIsTakenBeforeAnEvictedOne(t *testing.T) {
	for _, text := range everyStrategy() {
		p := newPicking(t, 4, text)
		p.evict("w01")
		p.Refresh(p.now)
		p.route(4, func(_ int, target *routing.Target) { target.Limit, target.Refuses = 1, true })
		for range 5 {
			if node, _ := p.pick("alice", nil); node == "w01" {
				t.Errorf("%s: an evicted worker was picked", text)
			}
		}
	}
}

func TestARequestReportsThatWorkersAreFull(t *testing.T) {
	p := newPicking(t, 2, "ordered;preferred=w01")
	p.limit(true, 1, 0)
	p.pick("", nil)
	d := p.Explain("", p.now)
	if d.Winner != "w02" || len(d.Candidates) != 2 || d.Candidates[0].Note != "full" {
		t.Errorf("%+v", d)
	}
	p.choose("p2c", nil)
	if d := p.Explain("", p.now); d.Winner != "w02" || !slices.ContainsFunc(d.Candidates, func(c routing.Candidate) bool { return c.Node == "w01" && c.Note == "pair 1, full" }) {
		t.Errorf("%+v", d)
	}
}

func TestSlotsAreSharedByTheRelaysThatSendToTheWorker(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4, 6)
	for id, slots := range map[string]int{"w1": 5, "w2": 1, "w3": 3, "w4": 300} {
		changed := c.offers[id]
		changed.Slots = int32(slots)
		offer(t, c.workers[id], changed)
	}
	var relays []*rig
	for i := range c.relays {
		relays = append(relays, watch(t, c.relays[i], func(cfg *routing.Config) { cfg.Self = c.relays[i].Config().ID }))
	}
	want := map[string]int{"w1": 2, "w2": 1, "w3": 1, "w4": 100, "w5": 0, "w6": 0} // of 3 relays each
	procs.Await(t, "the shares of all relays", func() bool {
		found := map[string]int{}
		for _, r := range relays {
			for _, target := range r.of("echo").Range {
				if target.Limit != want[target.Node] {
					return false
				}
				found[target.Node]++
			}
		}
		return len(found) == 6 && found["w1"] == 3 && found["w6"] == 3
	})
	for _, r := range relays { // the operator's are shared in the same way
		r.SetSlots(routing.Slots{"": 6, "other": 1})
	}
	procs.Await(t, "the shares of the operator's slots", func() bool {
		for _, r := range relays {
			if targets := r.of("echo").Range; slices.ContainsFunc(targets, func(t *routing.Target) bool { return t.Limit != 2 || t.Refuses }) {
				return false
			}
		}
		return true
	})
	for _, r := range relays {
		r.SetSlots(nil)
	}
	// All relays reach the workers of a canary, also those that are planned to have none.
	changed := c.offers["w1"]
	changed.Version, changed.Slots = "2.0", 30
	offer(t, c.workers["w1"], changed)
	for _, r := range relays {
		r.SetCanaries(routing.Canaries{"echo": {Version: "2.0", Share: 0.5}})
	}
	procs.Await(t, "the shares of four relays of a canary", func() bool {
		for _, r := range relays {
			if !slices.ContainsFunc(r.of("echo").Range, func(t *routing.Target) bool { return t.Node == "w1" && t.Canary && t.Limit == 8 }) {
				return false
			}
		}
		return true
	})
	// Nor does it change a share when all have its version.
	for id, m := range c.workers {
		changed := c.offers[id]
		changed.Version, changed.Slots = "2.0", 30
		offer(t, m, changed)
	}
	procs.Await(t, "the shares of three relays each", func() bool {
		for _, r := range relays {
			if targets := r.of("echo").Range; slices.ContainsFunc(targets, func(t *routing.Target) bool { return t.Limit != 10 || t.Canary || t.Endpoint.Version != "2.0" }) {
				return false
			}
		}
		return true
	})
	for _, r := range relays {
		r.SetCanaries(nil)
	}
	// With a strategy for which all relays reach all workers, all of them share.
	for id, m := range c.workers {
		changed := c.offers[id]
		changed.Selection, changed.Slots = "stable", 6
		offer(t, m, changed)
	}
	procs.Await(t, "the shares of four relays", func() bool {
		for _, r := range relays {
			if targets := r.of("echo").Range; len(targets) != 6 || slices.ContainsFunc(targets, func(t *routing.Target) bool { return t.Limit != 2 }) {
				return false
			}
		}
		return true
	})
}

// versions offers echo with slots from all workers, the first of a higher version.
func (c *cluster) versions(newer ...string) {
	for id, m := range c.workers {
		s := c.offers[id]
		if s.Selection, s.Version = "slots", "v1.9"; slices.Contains(newer, id) {
			s.Version = "v1.10"
		}
		c.offers[id] = s
		offer(c.t, m, s)
	}
}

func TestAMajorityOfTheServiceAndNotARelaysRangeDecidesOnTheVersion(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4, 8)
	var relays []*rig
	for _, self := range c.relays {
		relays = append(relays, watch(t, self, func(cfg *routing.Config) {
			cfg.Self, cfg.Plans.Minimums, cfg.Links.Grace = self.Config().ID, one, time.Hour
		}))
	}
	uses := func(what string, want ...string) {
		t.Helper()
		for _, r := range relays {
			procs.Await(t, what, func() bool {
				got := nodes(r.of("echo").Range)
				return len(got) > 0 && !slices.ContainsFunc(got, func(node string) bool { return !slices.Contains(want, node) })
			})
			s, _ := r.Service("echo")
			for range 20 {
				p, err := s.Pick("", 0, &routing.Tried{})
				if err != nil {
					t.Fatal(err)
				}
				if node := p.Value().Node; !slices.Contains(want, node) {
					t.Errorf("%s: %s was picked at %s", what, node, r.of("echo").Plan.Affine()[r.of("echo").Index])
				}
				s.Endpoints.Done(p, 0, selection.Result{Outcome: selection.Success})
			}
		}
	}
	c.versions("w3")
	uses("one worker of a higher version decides nothing", "w1", "w2", "w4", "w5", "w6", "w7", "w8")
	c.versions("w1", "w2", "w3", "w6")
	uses("half of the workers decide nothing", "w4", "w5", "w7", "w8")
	c.versions("w1", "w2", "w3", "w4", "w6")
	uses("more than half decide", "w1", "w2", "w3", "w4", "w6")
	c.stop(c.workers["w3"]) // it keeps its place for an hour
	delete(c.workers, "w3")
	uses("the four of seven that are left decide", "w1", "w2", "w4", "w6")
	c.stop(c.workers["w6"])
	delete(c.workers, "w6")
	uses("three of six do not", "w5", "w7", "w8")
	for _, id := range []string{"w5", "w7", "w8"} { // all at the same time, as when the old ones are drained
		c.stop(c.workers[id])
		delete(c.workers, id)
	}
	uses("the higher version is alone", "w1", "w2", "w4")
}

// A report counts the others: the session whose answer brought it is one more.
func TestSlotsSpreadsSessionsEvenlyWhereWorkersReportTheirLoad(t *testing.T) {
	p := newPicking(t, 4, "slots;samples=8;jitter=0;vnodes=64")
	open := map[string]int{}
	for range 12 {
		node, ticket := p.pick("", nil)
		p.Endpoints.Answered(ticket, p.now, selection.Result{Outcome: selection.Success, Load: open[node], HasLoad: true})
		open[node]++
		p.now += second / 10
	}
	for _, n := range open {
		if n < 2 || n > 4 || len(open) < 4 {
			t.Errorf("12 sessions are shared out as %v", open)
			break
		}
	}
	if load, _ := p.Endpoints.Load("w01.1", p.now); int(load) != open["w01"] {
		t.Errorf("the load of w01 is %v with %d sessions", load, open["w01"])
	}
}

// The worker of the key has no room and refuses nothing by itself, and of the others one is evicted: any
// is better than none, unless no place is left.
func TestAnExplanationNamesTheWorkerThatARequestWouldGet(t *testing.T) {
	const evicted = "w04"
	for _, text := range []string{"stable", "ordered;preferred=w01,w02,w03,w04", "manual;preferred=w01,w02,w03,w04"} {
		p := newPicking(t, 4, text)
		key := "alice"
		for p.to(key) == evicted {
			key += "x"
		}
		p.evict(evicted)
		p.Refresh(p.now)
		p.route(4, func(_ int, target *routing.Target) { target.Limit = 1 })
		for step := range 5 {
			d := p.Explain(key, p.now)
			ticket, err := p.Pick(key, p.now, &routing.Tried{})
			picked := ""
			if err == nil {
				picked = ticket.Value().Node
			}
			if d.Winner != picked || (picked == evicted) != (step == 3) || (picked == "") != (step == 4) {
				t.Errorf("%s, with %d requests in flight: %q is explained, %q picked (%v)", text, step, d.Winner, picked, err)
			}
		}
	}
}
