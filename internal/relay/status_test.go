package relay

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/statuspage"
)

// Runs cover the connected workers, and otherwise only workers that are in no plan; two of
// them never touch.
func TestRunsCoverExactlyWhatIsConnected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "n")
		connects, counts := make([]bool, n), make([]bool, n)
		for i := range n {
			connects[i] = rapid.Bool().Draw(t, "connects")
			counts[i] = connects[i] || rapid.IntRange(0, 3).Draw(t, "counts") > 0
		}
		covered := make([]int, n)
		found := runs(connects, func(i int) bool { return counts[i] })
		for _, r := range found {
			if r.Len < 1 || !connects[r.Start] && r.Len < n {
				t.Fatalf("%v begins with a worker that is not connected", r)
			}
			for k := range r.Len {
				covered[(r.Start+k)%n]++
			}
		}
		for i := range n {
			if connects[i] && covered[i] != 1 || !connects[i] && counts[i] && covered[i] != 0 || covered[i] > 1 {
				t.Fatalf("%v %v: %v covers position %d %d times", connects, counts, found, i, covered[i])
			}
		}
		planned, last := 0, false // of the planned alone, a run begins where one was not connected
		for i := range 2 * n {
			if i := i % n; counts[i] {
				if connects[i] && !last {
					planned++
				}
				last = connects[i]
			}
		}
		if !slices.Contains(connects, false) && (len(found) != 1 || found[0].Len != n) {
			t.Fatalf("all: %v", found)
		}
		if len(found) > planned {
			t.Fatalf("%d runs where %d would do: %v %v %v", len(found), planned, connects, counts, found)
		}
	})
}

func TestTheRingShowsThePlan(t *testing.T) {
	for _, c := range []struct {
		relays, workers int
		strategy        affinity.Strategy
		words           string // of the range
	}{
		{5, 24, affinity.Projection, "14 of 24 workers, from position 5"}, {3, 12, affinity.Projection, "all 12 workers"}, {10, 61, affinity.Projection, "18 of 61 workers, from position 6"},
		{3, 1, affinity.Projection, "the only worker"}, {8, 40, affinity.Rendezvous, ""},
	} {
		route := &routing.Route{Index: 1}
		var ids, relays []string
		for i := range c.workers {
			ids = append(ids, fmt.Sprintf("w%d", i))
		}
		for i := range c.relays {
			relays = append(relays, fmt.Sprintf("r%d", i))
		}
		var err error
		if route.Plan, err = affinity.NewPlan(affinity.PlanConfig{Service: "echo", Relays: affinity.Relays(relays), Workers: affinity.Workers(ids), Strategy: c.strategy}); err != nil {
			t.Fatal(err)
		}
		for _, id := range route.Plan.Workers() {
			state := advertise.Ready
			route.Endpoints = append(route.Endpoints, &advertise.Endpoint{Service: advertise.Service{State: state}, Worker: &advertise.Worker{NodeID: id}})
		}
		if words := rangeInWords(route); words != c.words {
			t.Errorf("%v: the range is %q", c, words)
		}
		self := route.Plan.Affine()[1]
		got := newRing(route, self)
		coverage := route.Plan.Coverage()
		for i, w := range got.Workers {
			if w.ID != route.Plan.Workers()[i] || w.Relays != coverage.PerWorker[i] || w.State != statuspage.Active {
				t.Errorf("%v: position %d is %+v, want %s with %d relays", c, i, w, route.Plan.Workers()[i], coverage.PerWorker[i])
			}
			if w.Mine != (route.Plan.Distance(1, w.ID) == 0) {
				t.Errorf("%v: %s mine: %v", c, w.ID, w.Mine)
			}
		}
		if len(got.Arcs) != c.relays {
			t.Fatalf("%v: %d arcs", c, len(got.Arcs))
		}
		for i, a := range got.Arcs {
			connected := 0
			for _, r := range a.Runs {
				connected += r.Len
			}
			assignments, _ := route.Plan.Assignments(i)
			if connected != len(assignments) || a.Self != (i == 1) {
				t.Errorf("%v: arc %d has %d workers, want %d", c, i, connected, len(assignments))
			}
			if c.strategy == affinity.Projection && len(a.Runs) != 1 {
				t.Errorf("%v: a range of %d runs", c, len(a.Runs))
			}
		}
	}
}

func TestTheRingIsLaidOutOnceForARoute(t *testing.T) {
	var cache ringCache
	route := &routing.Route{Index: -1, Endpoints: []*advertise.Endpoint{{Worker: &advertise.Worker{NodeID: "w1"}}}}
	first := cache.of("echo", route, "r1")
	first.Workers[0].State = statuspage.Evicted // the caller's
	if again := cache.of("echo", route, "r1"); again.Workers[0].State != statuspage.Active {
		t.Errorf("what one caller changed, another sees: %+v", again.Workers)
	}
	next := &routing.Route{Index: -1}
	if got := cache.of("echo", next, "r1"); len(got.Workers) != 0 {
		t.Errorf("the ring of the last route: %+v", got)
	}
	for i := range 3 * mostRings {
		cache.of(fmt.Sprint(i), route, "r1")
	}
	if len(cache.rings) > mostRings {
		t.Errorf("%d rings are kept", len(cache.rings))
	}
}

func TestThePageShowsWhatTheRelayDoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.relay(func(*Settings) {})
	for _, id := range []string{"w1", "w2", "w3"} {
		f.echo(id)
	}
	r.settled(t, "echo", 3)
	source := &statusSource{Relay: r.Relay}
	var d statuspage.Document
	r.await(t, "three connected workers and both relays", func() bool {
		d = source.document(t.Context(), "")
		return d.Focus != nil && len(d.Focus.Ring.Arcs) == 2 && d.Focus.Ring.Tally().States[statuspage.Active] == 3
	})
	if !d.Ready || d.ID != "r1" || d.Role != "relay" || len(d.Members) != 5 || d.Focus.Service != "echo" || d.Focus.Forwarding || len(d.Focus.Peers) != 3 {
		t.Errorf("%+v", d)
	}
	if s := d.Services[0]; s.RangeText != "all 3 workers" || !strings.HasSuffix(d.Focus.Role, ", and its range is all 3 workers.") {
		t.Errorf("%q, %q", s.RangeText, d.Focus.Role)
	}
	if d.Focus.Peers[0].Tier == "" || d.Focus.Peers[0].State != statuspage.Active {
		t.Errorf("%+v", d.Focus.Peers[0])
	}
	// Two relays cannot give a worker three.
	if len(d.Notices) != 1 || d.Notices[0].Runbook != "too-few-relays" || !strings.Contains(d.Notices[0].Remedy, "at least 1 more") {
		t.Errorf("%+v", d.Notices)
	}
	if none := source.document(t.Context(), "absent"); none.Focus != nil {
		t.Errorf("a service without offers: %+v", none.Focus)
	}

	status, page := r.api(t, "/?service=echo", nil)
	if status != http.StatusOK || !strings.Contains(page, ">w2<") {
		t.Errorf("%d %s", status, page)
	}
	if status, _ := r.api(t, "/?service=absent", nil); status != http.StatusNotFound {
		t.Errorf("%d", status)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.AdminAddr()+"/api/v1/drain", nil)
	do(t, req)
	if d := source.document(t.Context(), ""); d.Ready || len(d.Notices) == 0 || d.Notices[0].Runbook != "drain-forgotten" {
		t.Errorf("while drained: %+v", d.Notices)
	}
}

func TestThePageOfAGateShowsWhoItForwardsTo(t *testing.T) {
	t.Parallel()
	gate := gateOf(t, newFleet(t), 6, 2)
	d := (&statusSource{Relay: gate.Relay}).document(t.Context(), "echo")
	states := map[statuspage.PeerState]int{}
	for _, p := range d.Focus.Peers {
		states[p.State]++
	}
	if !d.Focus.Forwarding || states[statuspage.Active] != 3 || states[statuspage.Backup] != 2 || len(d.Focus.Ring.Workers) != 1 {
		t.Errorf("%v %+v", states, d.Focus)
	}
}

func TestARelayThatIsNotReadyReportsTheReasonAndTheRemedy(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Join = []string{refusing(t)} })
	source := &statusSource{Relay: r.Relay}
	r.await(t, "why it has not joined", func() bool {
		d := source.document(t.Context(), "")
		return !d.Ready && slices.ContainsFunc(d.Notices, func(n statuspage.Notice) bool {
			return strings.HasPrefix(n.Text, "Not joined yet") && strings.Contains(n.Remedy, "--join") && n.Severity == statuspage.Problem
		})
	})
}

func TestEveryReasonForNotBeingReadyHasARemedy(t *testing.T) {
	for code := process.Stopping; code <= process.NotListening; code++ {
		if n := readinessNotice(process.Reason{Code: code, Text: "reason"}); n.Remedy == "" || n.Text != "Reason." || n.Severity != statuspage.Problem {
			t.Errorf("%d: %+v", code, n)
		}
	}
}

func TestRunbooksOfThePagesExist(t *testing.T) {
	name := regexp.MustCompile(`Runbook(?:: | = [^,"]*(?:"[^"]*", )?)"([a-z-]+)"`)
	found := 0
	for _, file := range []string{"status_notices.go", "../worker/api.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			found++
			if _, err := os.Stat(filepath.Join("../../docs/operations", m[1]+".md")); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if found < 12 {
		t.Errorf("found only %d runbooks", found)
	}
}

func TestAnEvictedRelayIsShownAsEvictedAndNotAsACandidate(t *testing.T) {
	for state, want := range map[string]statuspage.PeerState{"primary": statuspage.Active, "backup": statuspage.Backup, "none": statuspage.Candidate, "evicted": statuspage.Evicted} {
		if got := peerState(api.Peer{State: state}, nil); got != want {
			t.Errorf("%s is shown as %s, want %s", state, got, want)
		}
	}
}
