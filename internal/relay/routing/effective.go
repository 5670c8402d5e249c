package routing

import "github.com/ringway/ringway/affinity"

// leastEffective is how many endpoints of the range of the relay at index must get
// traffic, from the first one on, so that no worker is left out when every relay
// narrows its range as far as it may: ⌈W/R⌉ of a ring of W workers that R relays share
// evenly, since their ranges begin that far from each other. Where a relay has a part
// in several rings, or the strategy gives no order to its workers, it is all of them,
// 0.
func leastEffective(plan *affinity.Plan, index int) int {
	own, err := plan.Ranges(index)
	if err != nil || len(own) != 1 || own[0].Len() == 0 {
		return 0
	}
	assignments, err := plan.Assignments(index)
	if err != nil || len(assignments) == 0 {
		return 0
	}
	// Relays of several rings narrow none of them: they are not needed for this.
	sharing := 0
	for i := range plan.Affine() {
		if ranges, err := plan.Ranges(i); err == nil && len(ranges) == 1 && plan.Distance(i, assignments[0].Worker) >= 0 {
			sharing++
		}
	}
	return (own[0].Size() + sharing - 1) / max(sharing, 1)
}
