package routing

import (
	"fmt"
	"testing"

	"github.com/ringway/ringway/affinity"
)

func TestRelaysWithTheSamePlanHaveTheSameVersionAndOtherPlansAnother(t *testing.T) {
	route := func(change func(*affinity.PlanConfig)) *Route {
		cfg := affinity.PlanConfig{Service: "echo", Minimums: affinity.Minimums{PeersPerWorker: 3, PeersPerRelay: 2}}
		for i := range 4 {
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprint("r", i)})
		}
		for i := range 20 {
			cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprint("w", i), Weight: 1})
		}
		change(&cfg)
		plan, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return &Route{Plan: plan}
	}
	same := func(*affinity.PlanConfig) {}
	one, other := route(same), route(same)
	if v := one.PlanVersion(); v == 0 || v != one.PlanVersion() || v != other.PlanVersion() {
		t.Errorf("%x and %x", v, other.PlanVersion())
	}
	seen := map[uint64]string{one.PlanVersion(): "the first plan"}
	for name, change := range map[string]func(*affinity.PlanConfig){
		"one worker less":  func(c *affinity.PlanConfig) { c.Workers = c.Workers[1:] },
		"one relay less":   func(c *affinity.PlanConfig) { c.Relays = c.Relays[1:] },
		"another service":  func(c *affinity.PlanConfig) { c.Service = "search" },
		"other minimums":   func(c *affinity.PlanConfig) { c.Minimums.PeersPerWorker = 4 },
		"another strategy": func(c *affinity.PlanConfig) { c.Strategy = affinity.Rendezvous },
	} {
		v := route(change).PlanVersion()
		if before, taken := seen[v]; taken {
			t.Errorf("%s has the version of %s", name, before)
		}
		seen[v] = name
	}
	if (*Route)(nil).PlanVersion() != 0 || (&Route{}).PlanVersion() != 0 {
		t.Error("there is a version without a plan")
	}
}
