package selection

import (
	"cmp"
	"math"
	"slices"
)

// tierShare is the traffic of one tier.
type tierShare struct {
	tier uint8
	load float64 // of all traffic, 0 to 1
}

// tierShares divides the traffic among the tiers, nearest first (the load of
// priorities in Envoy). A tier can take its healthy share, by weight, times the
// overprovisioning, all of the traffic at most; what it cannot take goes on to the
// next. Where all together cannot take everything, all get proportionally more.
// Where nobody is healthy the traffic goes by weight. Endpoints of weight 0 do not
// count. Tiers that get nothing are listed, too: they may have somebody to try.
func tierShares(entries []entry, overprovisioning float64) []tierShare {
	type tier struct{ healthy, total float64 }
	var tiers [256]tier
	var shares []tierShare
	everything := 0.0
	for i := range entries {
		e := &entries[i]
		if e.Weight <= 0 {
			continue
		}
		t := &tiers[e.Tier]
		if t.total == 0 {
			shares = append(shares, tierShare{tier: e.Tier})
		}
		t.total += e.Weight
		everything += e.Weight
		if phase(e.state.phase.Load()) == active {
			t.healthy += e.Weight
		}
	}
	slices.SortFunc(shares, func(a, b tierShare) int { return cmp.Compare(a.tier, b.tier) })
	rest := 1.0
	for i := range shares {
		t := &tiers[shares[i].tier]
		shares[i].load = min(rest, t.healthy/t.total*overprovisioning)
		if rest -= shares[i].load; rest < 1e-9 {
			rest = 0
		}
	}
	for i := range shares {
		if rest == 1 {
			shares[i].load = tiers[shares[i].tier].total / everything
		} else {
			shares[i].load /= 1 - rest
		}
	}
	return shares
}

// ceil is of products that are whole numbers but for rounding.
func ceil(x float64) int { return int(math.Ceil(x - 1e-9)) }
