package peering

import (
	"slices"

	"github.com/ringway/ringway/affinity"
)

// Absent are members that have vanished and still count, longest gone first; see
// [Grace].
type Absent struct {
	Relays  []affinity.Relay
	Workers []affinity.Worker
}

// Plan plans with the members of cfg and, beside them, with as many of the absent as
// do no harm: every worker that is there keeps all but one of its relays, and every
// relay as many workers as it must have. Where a lot is gone at one time, the longest
// gone lose their place first. All relays that know the same members come to the
// same plan.
func Plan(cfg affinity.PlanConfig, absent Absent) (*affinity.Plan, error) {
	if len(cfg.Relays) == 0 || len(cfg.Workers) == 0 {
		return affinity.NewPlan(cfg) // its error says which
	}
	for {
		all := cfg
		if len(absent.Relays) > 0 {
			all.Relays = append(slices.Clone(cfg.Relays), absent.Relays...)
		}
		if len(absent.Workers) > 0 {
			all.Workers = append(slices.Clone(cfg.Workers), absent.Workers...)
			all.WorkersOrdered = false
		}
		plan, err := affinity.NewPlan(all)
		if err != nil || len(absent.Relays)+len(absent.Workers) == 0 || harmless(plan, cfg, absent) {
			return plan, err
		}
		// Halving, so that a lost datacenter does not cost a plan for each member.
		absent.Relays = absent.Relays[(len(absent.Relays)+1)/2:]
		absent.Workers = absent.Workers[(len(absent.Workers)+1)/2:]
	}
}

// harmless reports whether those who are there are connected well enough in a plan
// that counts on the absent.
func harmless(plan *affinity.Plan, cfg affinity.PlanConfig, absent Absent) bool {
	goneRelays, goneWorkers := map[string]bool{}, map[string]bool{}
	for _, r := range absent.Relays {
		goneRelays[r.ID] = true
	}
	for _, w := range absent.Workers {
		goneWorkers[w.ID] = true
	}
	if cfg.Minimums == (affinity.Minimums{}) {
		cfg.Minimums = affinity.DefaultMinimums
	}
	enough := min(cfg.Minimums.PeersPerRelay, len(cfg.Workers))
	lost := map[string]bool{} // workers with one relay less
	var row []affinity.Assignment
	living := 0
	for i, relay := range plan.Affine() {
		row, _ = plan.AppendAssignments(row[:0], i) // i is an index of the plan
		there := 0
		for _, a := range row {
			if goneWorkers[a.Worker] {
				continue
			}
			there++
			if goneRelays[relay] {
				if lost[a.Worker] {
					return false
				}
				lost[a.Worker] = true
			}
		}
		if goneRelays[relay] {
			continue
		}
		living++
		if there < min(enough, len(row)) {
			return false
		}
	}
	return living > 0
}
