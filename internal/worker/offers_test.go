package worker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringway/ringway/advertise"
)

func TestAServiceIsOfferedWhileItIsHealthyAndDrainsOnRequest(t *testing.T) {
	echo := advertise.Service{Name: "echo", Address: "127.0.0.1:9000", Protocol: advertise.HTTP1, Weight: 10, State: advertise.Ready}
	draining, fronted := echo, echo
	draining.State = advertise.Draining
	fronted.Address, fronted.Secured = "10.0.0.1:7421", true
	for name, c := range map[string]struct {
		condition Condition
		state     State
		offers    []advertise.Service
	}{
		"healthy":              {Condition{Service: echo, Healthy: true}, Offered, []advertise.Service{echo}},
		"drained":              {Condition{Service: echo, Healthy: true, Drained: true}, Draining, []advertise.Service{draining}},
		"unhealthy":            {Condition{Service: echo}, Unhealthy, []advertise.Service{}},
		"drained, unhealthy":   {Condition{Service: echo, Drained: true}, Unhealthy, []advertise.Service{}},
		"behind a sidecar":     {Condition{Service: echo, Healthy: true, SidecarAddress: "10.0.0.1:7421"}, Offered, []advertise.Service{fronted}},
		"unhealthy behind one": {Condition{Service: echo, SidecarAddress: "10.0.0.1:7421"}, Unhealthy, []advertise.Service{}},
	} {
		if got := c.condition.State(); got != c.state {
			t.Errorf("%s: %s, want %s", name, got, c.state)
		}
		if diff := cmp.Diff(c.offers, Offers([]Condition{c.condition})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// One service at a time is easy to get right; this is about many.
func TestEachServiceIsOfferedByItsOwnConditionAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var conditions []Condition
		var want []advertise.Service
		for i := range rapid.IntRange(0, 20).Draw(t, "services") {
			c := Condition{
				Service: advertise.Service{Name: fmt.Sprintf("s%d", i), Address: fmt.Sprintf("127.0.0.1:%d", 9000+i), State: advertise.Ready},
				Healthy: rapid.Bool().Draw(t, "healthy"), Drained: rapid.Bool().Draw(t, "drained"),
			}
			conditions = append(conditions, c)
			want = append(want, Offers([]Condition{c})...)
		}
		before := slices.Clone(conditions)
		if got := Offers(conditions); !slices.EqualFunc(got, want, func(a, b advertise.Service) bool { return cmp.Equal(a, b) }) {
			t.Fatalf("%v gave %v, want %v", conditions, got, want)
		}
		if !cmp.Equal(before, conditions) {
			t.Fatal("the conditions were changed")
		}
	})
}

func TestDrainsAndUndrainsAddUp(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		var d drains
		reference := map[string]bool{} // of every name that there could be
		for range rapid.IntRange(0, 20).Draw(t, "operations") {
			some := rapid.SliceOfN(rapid.SampledFrom(names), 0, 3).Draw(t, "names")
			switch rapid.SampledFrom([]string{"drain", "undrain", "remove"}).Draw(t, "operation") {
			case "remove": // and come back as a new service: only a drain of all holds for it
				for _, name := range some {
					d.forget(name)
					reference[name] = d.all
				}
			case "drain":
				d = d.with(true, some)
				for _, name := range affected(names, some) {
					reference[name] = true
				}
			case "undrain":
				d = d.with(false, some)
				for _, name := range affected(names, some) {
					reference[name] = false
				}
			}
			for _, name := range names {
				if d.drained(name) != reference[name] {
					t.Fatalf("%s is drained: %v, want %v", name, d.drained(name), reference[name])
				}
			}
		}
	})
}

func affected(all, named []string) []string {
	if len(named) == 0 {
		return all
	}
	return named
}
