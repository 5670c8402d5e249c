package routing

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

// canaryFleet is relays and workers in zones. Their names begin with that of the zone: ar0, aw00.
type canaryFleet struct {
	*quietFleet
	t    *testing.T
	size map[string]int // workers by zone
}

func newCanaryFleet(t *testing.T, relays int, workers map[string]int) *canaryFleet {
	t.Helper()
	var members []membership.Member
	for zone, n := range workers {
		place := zone
		if len(workers) == 1 {
			place = "" // no zones
		}
		for i := range relays {
			members = append(members, membership.Member{ID: fmt.Sprintf("%sr%d", zone, i), Epoch: 1, Role: identity.RoleRelay, Datacenter: place,
				GossipAddr: fmt.Sprintf("10.1.%d.%d:7400", zone[0], i), ForwardAddr: fmt.Sprintf("10.1.%d.%d:7402", zone[0], i)})
		}
		for i := range n {
			members = append(members, membership.Member{ID: fmt.Sprintf("%sw%02d", zone, i), Epoch: 1, Role: identity.RoleWorker, Datacenter: place, GossipAddr: fmt.Sprintf("10.2.%d.%d:7400", zone[0], i)})
		}
	}
	return &canaryFleet{newQuietFleet(t, "ar0", members), t, workers}
}

// offer has the workers offer version 1.0, those of the canary 2.0, and returns the view of it.
func (f *canaryFleet) offer(sequence uint64, canary ...string) *advertise.View {
	f.t.Helper()
	all := 0
	for zone, n := range f.size {
		all += n
		for i := range n {
			s := advertise.Service{Name: "echo", Address: fmt.Sprintf("10.2.%d.%d:8080", zone[0], i), Version: "1.0", Weight: 10}
			id := fmt.Sprintf("%sw%02d", zone, i)
			if slices.Contains(canary, id) {
				s.Version = "2.0"
			}
			f.state(id, sequence, s)
		}
	}
	f.view(having(all, "echo", func(*advertise.Endpoint) bool { return true }))
	return f.view(having(len(canary), "echo", func(e *advertise.Endpoint) bool { return e.Version == "2.0" }))
}

// relay is the service at a relay that sends all of its requests to the canary.
func (f *canaryFleet) relay(id string, v *advertise.View) (*Service, *Router) {
	f.t.Helper()
	place, _ := v.Members().Get(id)
	r, err := New(Config{Self: id, Role: identity.RoleRelay, Datacenter: place.Datacenter, Catalogue: f, Selection: selection.DefaultConfig(), Epoch: time.Now(),
		PickOnly: true, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		f.t.Fatal(err)
	}
	r.SetCanaries(Canaries{"echo": {Version: "2.0", Share: 1}})
	r.view, r.snapshot = v, v.Members()
	if planned, _ := r.update(); !planned {
		f.t.Fatal("the route was not computed")
	}
	s, _ := r.Service("echo")
	return s, r
}

// held are n requests without a key that do not end, by worker.
func (f *canaryFleet) held(s *Service, n int) map[string]int {
	f.t.Helper()
	got := map[string]int{}
	for range n {
		p, err := s.Pick("", 1, new(Tried))
		if err != nil {
			f.t.Fatal(err)
		}
		got[p.Value().Node]++
	}
	return got
}

func TestWorkersOfACanaryGetTheSameWhetherTheRelayWasPlannedToHaveThemOrNot(t *testing.T) {
	f := newCanaryFleet(t, 10, map[string]int{"a": 40})
	s, _ := f.relay("ar0", f.offer(1))
	planned := map[string]bool{}
	for _, target := range s.Route().Range {
		planned[target.Node] = true
	}
	var in, added string
	for i := range 40 {
		if id := fmt.Sprintf("aw%02d", i); planned[id] {
			in = id
		} else {
			added = id
		}
	}
	s, _ = f.relay("ar0", f.offer(2, in, added))
	if _, workers := s.Route().Canary(); workers != 2 || len(s.Route().Range) != len(planned)+1 {
		t.Fatalf("%d workers of the canary, %d in the range, %d planned", workers, len(s.Route().Range), len(planned))
	}
	if got := f.held(s, 20); !maps.Equal(got, map[string]int{in: 10, added: 10}) {
		t.Errorf("picked %v, want 10 of %s, which was planned, and 10 of %s, which was added", got, in, added)
	}
}

func TestRequestsToACanaryStayInTheirZoneWhileItsWorkersGetAboutTheMean(t *testing.T) {
	zones := map[string]int{"a": 60, "b": 60}
	f := newCanaryFleet(t, 3, zones)
	for sequence, c := range []struct {
		canary []string
		stay   map[string]float64 // of the requests of each zone
	}{
		{[]string{"aw07", "bw11"}, map[string]float64{"a": 1, "b": 1}},
		{[]string{"aw07", "bw11", "bw12", "bw13"}, map[string]float64{"a": 0.55, "b": 1}}, // 1.1 times a quarter of a half
		{[]string{"bw11", "bw12"}, map[string]float64{"a": 0, "b": 1}},
	} {
		v := f.offer(uint64(sequence+1), c.canary...)
		for zone, want := range c.stay {
			for i := range 3 {
				s, _ := f.relay(fmt.Sprintf("%sr%d", zone, i), v)
				const n = 2000
				own := 0
				got := f.held(s, n)
				for worker, requests := range got {
					if strings.HasPrefix(worker, zone) {
						own += requests
					}
				}
				if part := float64(own) / n; part != want && (want == 0 || want == 1 || math.Abs(part-want) > 0.06) {
					t.Errorf("canary %v: of the requests at relay %d of zone %s %.3f stay, want %v: %v", c.canary, i, zone, part, want, got)
				}
			}
		}
	}
}

func TestACanaryWithoutRoomInTheOwnZoneGetsItsRequestsInAnotherOne(t *testing.T) {
	f := newCanaryFleet(t, 3, map[string]int{"a": 60, "b": 60})
	v := f.offer(1, "aw07", "bw11")
	s, r := f.relay("ar0", v)
	r.SetSlots(Slots{"echo": 30}) // of which each of six relays has five
	r.view, r.snapshot = v, v.Members()
	r.update()
	if got := f.held(s, 8); !maps.Equal(got, map[string]int{"aw07": 5, "bw11": 3}) {
		t.Errorf("picked %v, want five, which is the limit, in the own zone and the others elsewhere", got)
	}
	if d := s.Explain("", 1); d.Winner != "bw11" || !strings.Contains(d.Reason, "those of this zone have no room") {
		t.Errorf("explained as %s, %q", d.Winner, d.Reason)
	}
}

func TestTheMetadataOfABuildCountsIfTheOperatorNamesSome(t *testing.T) {
	for _, c := range []struct {
		canary, version string
		has             bool
	}{
		{"2.0", "v2.0+41", true}, {"2.0+41", "2.0+41", true}, {"v2.0+41", "2.0+41", true}, {"2.0+41", "2.0+42", false}, {"2.0+41", "2.0", false},
	} {
		if got := (Canary{Version: c.canary}).Has(&advertise.Endpoint{Service: advertise.Service{Version: c.version}}); got != c.has {
			t.Errorf("canary %s, worker %s: %v", c.canary, c.version, got)
		}
	}
}
