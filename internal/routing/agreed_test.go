package routing_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/routing"
)

func TestOneRelayChangesThePlansOfAllThatFollowTheFleet(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4, 8)
	var rigs []*rig
	for i, self := range c.relays {
		rigs = append(rigs, watch(t, self, func(cfg *routing.Config) {
			cfg.Plans.RelaysPerService = 4
			cfg.PlansFromFleet = i < 3 // the last one does not follow
			cfg.State = func(plan advertise.PlanSettings) {
				if err := self.catalogue.State(advertise.RelayStatement{Plan: plan}); err != nil {
					t.Error(err)
				}
			}
		}))
	}
	for _, r := range rigs {
		procs.Await(t, "all are connected", r.connected("echo", 4, 8))
	}
	for version, strategy := range map[uint64]affinity.Strategy{8: affinity.Rendezvous} {
		plans := routing.PlanSettings{Version: version, PlanConfig: affinity.PlanConfig{Strategy: strategy, RelaysPerService: 4}}
		if next, err := rigs[0].SetPlans(plans, true); err != nil || next.Lags() || next.Version != version {
			t.Fatalf("%+v, %v", next, err)
		}
		for i, r := range rigs {
			want, by := strategy, version
			if i == 3 {
				want, by = affinity.Projection, 0
			}
			procs.Await(t, "every relay plans with its version", func() bool {
				agreed := r.Agreed()
				plan := r.of("echo").Plan
				return plan != nil && plan.Strategy() == want && agreed.Version == by && agreed.FromFleet == (i != 3)
			})
		}
	}
	for i, r := range rigs[:3] {
		if agreed := r.Agreed(); agreed.Author != "r1" || agreed.Lags() != (i != 0) {
			t.Errorf("%+v", agreed)
		}
		if n := strings.Count(r.log.String(), "settings of the plan are in use"); n != 1 || !strings.Contains(r.log.String(), "author=r1") || !strings.Contains(r.log.String(), "version=8") {
			t.Errorf("logged %d times:\n%s", n, r.log)
		}
		version := r.counters("ringway_relay_plan_version")
		if adopted := r.counters("ringway_relay_plan_adoptions_total"); adopted[""] != 1 || version[""] != 8 {
			t.Errorf("counted %v, version %v", adopted, version)
		}
	}
	// A downgrade, and other values with the version in use, change nothing.
	before := rigs[0].of("echo").Plan
	for _, plans := range []routing.PlanSettings{{Version: 7}, {Version: 8, PlanConfig: affinity.PlanConfig{Strategy: affinity.Projection}}} {
		if next, err := rigs[0].SetPlans(plans, true); err != nil || !next.Lags() || next.Version != 8 {
			t.Fatalf("%+v, %v", next, err)
		}
		procs.Await(t, "it is taken note of", func() bool { return rigs[0].Agreed().FileVersion == plans.Version })
	}
	if now := rigs[0].of("echo").Plan; now != before || rigs[0].Agreed().Strategy != affinity.Rendezvous {
		t.Error("the plan has changed")
	}
	if _, err := rigs[0].SetPlans(routing.PlanSettings{Version: 9, PlanConfig: affinity.PlanConfig{Minimums: affinity.Minimums{PeersPerWorker: 2, PeersPerRelay: 1}}}, true); err == nil {
		t.Error("settings out of their bounds are taken")
	}
	if relays := rigs[1].of("echo").Plan.Affine(); !slices.Contains(relays, "r4") {
		t.Errorf("the relay that does not follow is no relay of the plan: %v", relays)
	}
}
