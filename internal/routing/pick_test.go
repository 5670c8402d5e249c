package routing_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

const second = selection.Instant(time.Second)

// picking is a service of n workers, w01 and on, whose strategy a test has chosen, at
// a time of its own.
type picking struct {
	*routing.Service
	t     testing.TB
	now   selection.Instant
	stale []string
}

func newPicking(t testing.TB, n int, text string) *picking {
	t.Helper()
	service, err := routing.NewService("echo", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	p := &picking{Service: service, t: t, now: 1000 * second}
	p.route(n, nil)
	p.choose(text, nil)
	return p
}

// route publishes a route of n workers.
func (p *picking) route(n int, change func(i int, t *routing.Target)) {
	p.t.Helper()
	r := &routing.Route{}
	for i := range n {
		node := fmt.Sprintf("w%02d", i+1)
		target := &routing.Target{ID: node + ".1", Node: node, Weight: 1 / float64(n), Endpoint: &advertise.Endpoint{
			Service: advertise.Service{Name: "echo", Weight: 10}, Worker: &advertise.Worker{NodeID: node},
		}}
		if change != nil {
			change(i, target)
		}
		r.Range = append(r.Range, target)
	}
	if err := p.SetRoute(r, p.now); err != nil {
		p.t.Fatal(err)
	}
}

func (p *picking) choose(text string, change func(*routing.ChoiceConfig)) {
	p.t.Helper()
	spec, err := strategy.Parse(text)
	if err != nil {
		p.t.Fatal(err)
	}
	cfg := routing.ChoiceConfig{Spec: spec, Service: "echo", Now: func() selection.Instant { return p.now },
		Stale: func(e advertise.Endpoint) { p.stale = append(p.stale, e.NodeID) }}
	if change != nil {
		change(&cfg)
	}
	choice, err := routing.NewChoice(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.SetChoice(choice); err != nil {
		p.t.Fatal(err)
	}
}

// pick begins a request and returns its node with the ticket.
func (p *picking) pick(key string, tried *routing.Tried) (string, selection.Pick[*routing.Target]) {
	p.t.Helper()
	if tried == nil {
		tried = &routing.Tried{}
	}
	ticket, err := p.Pick(key, p.now, tried)
	if err != nil {
		p.t.Fatal(err)
	}
	return ticket.Value().Node, ticket
}

// to is where a request with the key goes; it succeeds there.
func (p *picking) to(key string) string {
	p.t.Helper()
	node, ticket := p.pick(key, nil)
	p.Endpoints.Done(ticket, p.now, selection.Result{Outcome: selection.Success})
	return node
}

// evict has a worker fail until it is evicted.
func (p *picking) evict(node string) {
	p.t.Helper()
	end := func(node string, n int, o selection.Outcome) {
		for range n {
			ticket, err := p.Endpoints.Take(node, p.now)
			if err != nil {
				p.t.Fatal(err)
			}
			p.Endpoints.Done(ticket, p.now, selection.Result{Outcome: o})
		}
	}
	for _, s := range p.Endpoints.Stats(p.now) { // where all fail, none is evicted
		if s.ID != node+".1" && s.State == "active" {
			end(s.ID, 200, selection.Success)
			break
		}
	}
	end(node+".1", 4, selection.Failure)
	if p.Endpoints.Usable(node+".1", p.now) {
		p.t.Fatalf("%s is not evicted", node)
	}
}

func TestAKeyStaysWithItsWorkerUntilThatIsEvictedAndReturnsToIt(t *testing.T) {
	p := newPicking(t, 6, "stable")
	home := p.to("alice")
	for range 20 {
		if got := p.to("alice"); got != home {
			t.Fatalf("%s, then %s", home, got)
		}
	}
	p.evict(home)
	second := p.to("alice") // immediately, before any refresh
	if second == home {
		t.Fatalf("%s is evicted", home)
	}
	p.Refresh(p.now)
	for range 20 {
		if got := p.to("alice"); got != second {
			t.Errorf("failed over to %s, then %s", second, got)
		}
	}

	p.now += selection.Instant(time.Minute)
	p.Refresh(p.now) // half-open
	first, trial := p.pick("alice", nil)
	if first != home {
		t.Fatalf("%s is not tried again: %s", home, first)
	}
	if got := p.to("alice"); got != second {
		t.Errorf("%s while %s is tried by another request", got, home)
	}
	p.Endpoints.Done(trial, p.now, selection.Result{Outcome: selection.Success})
	if got := p.to("alice"); got != home {
		t.Errorf("%s after %s came back", got, home)
	}
}

func TestAnEvictedWorkerIsBetterThanNone(t *testing.T) {
	p := newPicking(t, 3, "manual;preferred=w02")
	p.evict("w02")
	for _, refreshed := range []bool{false, true} {
		if refreshed {
			p.Refresh(p.now)
		}
		if got := p.to(""); got != "w02" {
			t.Errorf("%s: manual uses only what is preferred", got)
		}
	}
	both := newPicking(t, 3, "manual;preferred=w02,w03")
	both.evict("w02")
	if got := both.to(""); got != "w03" {
		t.Errorf("%s: the next preferred one takes over", got)
	}
}

// More are evicted than a single pick checks.
func TestAnyNumberOfEvictedWorkersIsPassedOver(t *testing.T) {
	p := newPicking(t, 63, "ordered;preferred=w01")
	for i := range 21 {
		p.evict(fmt.Sprintf("w%02d", i+1))
	}
	p.Refresh(p.now)
	if got := p.to(""); got != "w22" {
		t.Errorf("%s, want w22: those before it are evicted", got)
	}
}

func TestWhatARequestHasTriedIsItsOwnAffair(t *testing.T) {
	for _, text := range []string{"p2c", "stable", "stable-sha256", "ordered;preferred=w03", "random", "slots"} {
		p := newPicking(t, 4, text)
		var tried routing.Tried
		seen := map[string]bool{}
		for range 4 {
			node, ticket := p.pick("key", &tried)
			if seen[node] {
				t.Errorf("%s: %s twice", text, node)
			}
			seen[node] = true
			p.Endpoints.Done(ticket, p.now, selection.Result{Outcome: selection.Cancelled})
			tried.Add(ticket)
		}
		if _, err := p.Pick("key", p.now, &tried); err == nil {
			t.Errorf("%s: a fifth of four", text)
		}
		if _, err := p.Pick("key", p.now, &routing.Tried{}); err != nil {
			t.Errorf("%s: another request: %v", text, err)
		}
	}
}

func TestAPickWithoutAChoiceReportsTheReason(t *testing.T) {
	for text, want := range map[string]error{
		"p2c": selection.ErrNoEndpoint, "stable": strategy.ErrNoEndpoints, "manual;preferred=w09": strategy.ErrNoEndpoints,
		"closest": strategy.ErrNoEndpoints,
	} {
		p := newPicking(t, 0, text)
		if _, err := p.Pick("key", p.now, &routing.Tried{}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	p := newPicking(t, 3, "manual;preferred=w09")
	if _, err := p.Pick("", p.now, &routing.Tried{}); err == nil || !strings.Contains(err.Error(), "w09") {
		t.Errorf("%v: want it to name the nodes", err)
	}
}

// The strategy changes while requests are under way.
func TestAnotherStrategyKeepsRequestsAndWhatIsKnown(t *testing.T) {
	p := newPicking(t, 3, "p2c")
	node, under := p.pick("", nil)
	for range 100 {
		p.to("")
	}
	p.choose("stable", nil)
	home := p.to("alice")
	p.choose("manual;preferred=w02", nil)
	if got := p.to("alice"); got != "w02" {
		t.Errorf("%s, want w02", got)
	}
	p.choose("stable", nil)
	if got := p.to("alice"); got != home {
		t.Errorf("%s, want %s as before", got, home)
	}
	requests, inFlight := uint64(0), 0
	for _, s := range p.Endpoints.Stats(p.now) {
		requests += s.Picks
		if inFlight += s.InFlight; s.InFlight > 0 && s.ID != node+".1" {
			t.Errorf("%s has requests in flight", s.ID)
		}
	}
	if requests != 104 || inFlight != 1 {
		t.Errorf("%d requests, %d in flight, want 104 and 1", requests, inFlight)
	}
	p.Endpoints.Done(under, p.now, selection.Result{Outcome: selection.Success})
}

func TestKeysFollowTheAdvertisedWeightsAndNotThisRelaysShares(t *testing.T) {
	share := func(relay int) map[string]string {
		p := newPicking(t, 4, "stable")
		p.route(4, func(i int, target *routing.Target) {
			target.Weight = float64(1+(i+relay)%4) / 10 // another share on every relay
			target.Endpoint.Weight = 10
			if i == 0 {
				target.Endpoint.Weight = 30
			}
		})
		out := map[string]string{}
		for i := range 600 {
			key := fmt.Sprint("key", i)
			out[key] = p.to(key)
		}
		return out
	}
	one, other := share(1), share(2)
	counts := map[string]int{}
	for key, node := range one {
		if other[key] != node {
			t.Fatalf("%s goes to %s and to %s", key, node, other[key])
		}
		counts[node]++
	}
	if counts["w01"] < 240 || counts["w01"] > 360 { // 300 expected, 5 standard deviations
		t.Errorf("%v: w01 has half of the weight", counts)
	}
}

func TestWarmStandbysAreOnlyForStrategiesThatNameWorkers(t *testing.T) {
	for text, want := range map[string]bool{"random": false, "slots": false, "stable": true, "ordered;preferred=w04": true} {
		p := newPicking(t, 0, text)
		p.route(4, func(i int, target *routing.Target) {
			if i == 3 {
				target.Weight = 0
			}
		})
		used := false
		for i := range 200 {
			used = used || p.to(fmt.Sprint("key", i)) == "w04"
		}
		if used != want {
			t.Errorf("%s: a standby is used: %v, want %v", text, used, want)
		}
	}
}

// A sample of eight of two is nearly always both.
func TestSlotsTakesTheWorkerThatReportsLess(t *testing.T) {
	p := newPicking(t, 2, "slots;samples=8;jitter=0")
	for node, load := range map[string]int{"w01": 50, "w02": 3} {
		ticket, err := p.Endpoints.Take(node+".1", p.now)
		if err != nil {
			t.Fatal(err)
		}
		p.Endpoints.Done(ticket, p.now, selection.Result{Outcome: selection.Success, Load: load, HasLoad: true})
	}
	sessions := map[string]int{}
	for range 40 { // which stay
		node, _ := p.pick("", nil)
		sessions[node]++
	}
	if sessions["w02"] < 30 {
		t.Errorf("%v: w01 has 50 already", sessions)
	}
}

func TestSlotsCountsSessionsUntilTheyEnd(t *testing.T) {
	p := newPicking(t, 2, "slots;samples=8;jitter=0")
	counts := map[string]int{}
	for range 40 {
		node, ticket := p.pick("", nil)
		p.now += second / 10
		p.Endpoints.Answered(ticket, p.now, selection.Result{Outcome: selection.Success}) // a stream that does not end
		counts[node]++
	}
	if counts["w01"] < 17 || counts["w02"] < 17 {
		t.Errorf("%v, want 20 each, or nearly", counts)
	}
}

func TestAWorkerThatRequestsWaitForIsStaleAndHandedOver(t *testing.T) {
	for text, stale := range map[string]bool{"slots;samples=8;fresh=10s": true, "slots;samples=8;fresh=30s": false} {
		p := newPicking(t, 2, text)
		waiting, err := p.Endpoints.Take("w01.1", p.now)
		if err != nil {
			t.Fatal(err)
		}
		p.now += 11 * second
		seen := map[string]bool{}
		for range 50 {
			seen[p.to("")] = true
		}
		if seen["w01"] == stale || slices.Contains(p.stale, "w01") != stale || slices.Contains(p.stale, "w02") {
			t.Errorf("%s: picked %v, handed over %v", text, seen, p.stale)
		}
		p.Endpoints.Done(waiting, p.now, selection.Result{Outcome: selection.Success})
		p.now += 3600 * second // idle, and so not stale
		p.stale, seen = nil, map[string]bool{}
		for range 100 {
			seen[p.to("")] = true
		}
		if len(seen) != 2 || len(p.stale) != 0 {
			t.Errorf("%s, after an hour without requests: picked %v, handed over %v", text, seen, p.stale)
		}
	}
}

func TestAnUnreachableWorkerGetsNoSlots(t *testing.T) {
	p := newPicking(t, 0, "slots")
	p.route(2, func(i int, target *routing.Target) { target.Endpoint.Unreachable = i == 0 })
	for range 50 {
		if got := p.to(""); got != "w02" {
			t.Fatalf("%s cannot be reached", got)
		}
	}
}

func TestUntilSomethingIsMeasuredTheBalancerPicks(t *testing.T) {
	nearest := "10.0.0.2:1"
	p := newPicking(t, 0, "closest")
	p.route(3, func(i int, target *routing.Target) { target.Address = fmt.Sprintf("10.0.0.%d:1", i+1) })
	measure := make(chan struct{})
	p.choose("closest", func(c *routing.ChoiceConfig) {
		c.Dial = func(ctx context.Context, _, address string) (net.Conn, error) {
			select {
			case <-measure:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if address != nearest {
				return nil, errors.New("refused")
			}
			ours, theirs := net.Pipe()
			_ = theirs.Close()
			return ours, nil
		}
	})
	if got := p.to(""); got == "" {
		t.Error("nothing was picked")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Choice().Run(ctx) }()
	close(measure)
	procs.Await(t, "the nearest is measured", func() bool {
		for range 20 {
			if p.to("") != "w02" {
				return false
			}
		}
		return true
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestUntilSomethingIsMeasuredOnlyThePreferredAreUsed(t *testing.T) {
	p := newPicking(t, 6, "closest;preferred=w05,w03,w09")
	for range 20 {
		if got := p.to(""); got != "w05" {
			t.Fatalf("%s was picked, which is not the first that is preferred", got)
		}
	}
	tried := &routing.Tried{}
	_, first := p.pick("", tried)
	tried.Add(first)
	second, ticket := p.pick("", tried)
	if second != "w03" {
		t.Errorf("after w05: %s", second)
	}
	tried.Add(ticket)
	if other, err := p.Pick("", p.now, tried); err == nil {
		t.Errorf("after all that are preferred: %s", other.ID())
	}
	p.evict("w05")
	p.Refresh(p.now)
	if got := p.to(""); got != "w03" {
		t.Errorf("with w05 evicted: %s", got)
	}
}

func TestADecisionReportsWhatThePickDoes(t *testing.T) {
	p := newPicking(t, 6, "stable")
	home := p.to("alice")
	d := p.Explain("alice", p.now)
	if d.Winner != home || d.Strategy != "stable" || d.Key != "alice" || len(d.Candidates) != 6 || d.Candidates[0].Node != home || d.Range != 6 {
		t.Errorf("%+v", d)
	}
	p.evict(home)
	second := p.to("alice")
	d = p.Explain("alice", p.now)
	if d.Winner != second || !strings.Contains(d.Candidates[0].Note, "evicted") {
		t.Errorf("%+v, want %s", d, second)
	}
	picks := func() (n uint64) {
		for _, s := range p.Endpoints.Stats(p.now) {
			n += s.Picks
		}
		return n
	}
	before := picks()
	p.Explain("alice", p.now)
	if picks() != before {
		t.Error("an explanation began a request")
	}
	ticket, d, err := p.PickExplained("alice", p.now, &routing.Tried{})
	if err != nil || d.Winner != second || ticket.Value().Node != second || picks() != before+1 {
		t.Errorf("%+v, %v", d, err)
	}

	p.choose("p2c", nil)
	d = p.Explain("", p.now)
	if d.Winner == "" || len(d.Candidates) < 2 || d.Candidates[0].Parts == nil || d.Candidates[0].Parts.Latency <= 0 || d.Origin != routing.FromDefault {
		t.Errorf("%+v", d)
	}
	ticket, d, err = p.PickExplained("", p.now, &routing.Tried{})
	if err != nil || ticket.Value().Node != d.Winner {
		t.Errorf("%+v, %v", d, err)
	}
	p.choose("manual;preferred=w77", nil)
	if d := p.Explain("", p.now); d.Winner != "" || !strings.Contains(d.Reason, "w77") {
		t.Errorf("%+v", d)
	}
}

// Names can be advertised by the thousand, and few of them are asked for.
func TestAServiceThatGetsNoRequestTakesLittleMemory(t *testing.T) {
	const services, bound = 1000, 8 << 10
	target := &routing.Target{ID: "w1.1", Node: "w1", Weight: 1}
	kept := make([]*routing.Service, services)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range kept {
		s, err := routing.NewService("s", selection.DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetRoute(&routing.Route{Range: []*routing.Target{target}}, 0); err != nil {
			t.Fatal(err)
		}
		s.Refresh(0)
		kept[i] = s
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / services; each > bound { // more than it keeps
		t.Errorf("%d bytes for a service with one worker, want at most %d", each, bound)
	}
}

func TestAPickByAStrategyAllocatesNothing(t *testing.T) {
	for _, text := range []string{"stable", "slots", "ordered;preferred=w03"} {
		p := newPicking(t, 20, text)
		tried := &routing.Tried{}
		if n := testing.AllocsPerRun(100, func() {
			pick, err := p.Pick("alice", p.now, tried)
			if err != nil {
				t.Fatal(err)
			}
			p.Endpoints.Done(pick, p.now, selection.Result{Outcome: selection.Success})
		}); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}
