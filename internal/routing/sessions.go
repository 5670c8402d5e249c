package routing

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

// WorkerSessions are the sessions that this relay has open to one worker of its range.
type WorkerSessions struct {
	Target *Target
	// Weight is that with which new sessions are spread. 0: the worker gets none.
	Weight float64
	// Out is why it gets none; empty if it does.
	Out string
	// Joining means that it is in its slow start, and so gets fewer than its weight.
	Joining bool
	Open    []upstream.Tunnel
	// Bound reports for each of Open that its client would come back to this worker.
	Bound []bool
}

// Sessions lists the workers of the range with those of open that go to them, the sessions of this
// relay. Sessions that pass another relay to a worker are not among them. The error is that
// of a strategy that does not spread sessions.
func (s *Service) Sessions(open *upstream.Sessions, now selection.Instant) ([]WorkerSessions, error) {
	c, route := s.Choice(), s.Route()
	if of, _ := route.Canary(); of.Set() {
		return nil, fmt.Errorf("%s has a canary, whose workers keep their sessions: end the canary %s first", s.Name, of.Version)
	}
	if c.Spec.Prefers() {
		return nil, fmt.Errorf("the strategy %s of %s sends sessions to the worker that it prefers: a session that is asked to go would come back to the same worker. Choose p2c, random or slots", c.Spec.Name, s.Name)
	}
	stats := make(map[string]selection.EndpointStats, len(route.Range))
	for _, st := range s.Endpoints.Stats(now) {
		stats[st.ID] = st
	}
	out, tunnels := make([]WorkerSessions, len(route.Range)), open.Tunnels(s.Name)
	for i, t := range route.Range {
		w := &out[i]
		w.Target, w.Weight = t, c.sessionWeight(t)
		switch st := stats[t.ID]; {
		case st.State != selection.Active:
			w.Weight, w.Out = 0, cmp.Or(string(st.State), "leaving")
		case w.Weight == 0:
			w.Out = "standby"
		default:
			w.Joining = c.strategy == nil && st.Ramp < 1
		}
		w.Open = tunnels[t.Node]
		w.Bound = make([]bool, len(w.Open))
		for j, one := range w.Open {
			w.Bound[j] = one.Cookie || one.Key && c.Spec.ByKey()
		}
	}
	return out, nil
}

// sessionWeight returns the weight with which the choice spreads sessions.
func (c *Choice) sessionWeight(t *Target) float64 {
	switch {
	case t.Weight == 0 || c.strategy == nil:
		return t.Weight
	case c.Spec.Name == strategy.Stable && t.Endpoint != nil:
		return t.offeredWeight()
	}
	return 1
}

// Holding is what one worker holds, for FairShares.
type Holding struct {
	// Weight is the worker's part of all sessions, relative to the others; not negative.
	Weight float64
	// Sessions is how many it has, Fixed how many of these cannot move.
	Sessions, Fixed int
	// Limit is the most that it may have, 0 for any number.
	Limit int
}

// FairShares divides total sessions by weight. No share is below what is fixed or above the
// limit of its worker; limits that leave too little room for all are ignored. A share is the
// exact one rounded up or down, so that the sum is total, and up rather where a session
// would have to move otherwise. Total is at least the sum of Fixed, and some weight is
// positive, or all shares are Fixed.
func FairShares(of []Holding, total int) []int {
	exact := exactShares(of, total)
	shares, rest := make([]int, len(of)), total
	order := make([]int, len(of))
	fraction := make([]float64, len(of))
	for i, q := range exact {
		const tolerance = 1e-6 // of the bisection
		shares[i] = int(math.Floor(q + tolerance))
		fraction[i] = max(q-float64(shares[i]), 0)
		if fraction[i] < tolerance {
			fraction[i] = 0
		}
		rest -= shares[i]
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		first := func(yes bool) int { return map[bool]int{true: 0, false: 1}[yes] }
		return cmp.Or(
			cmp.Compare(first(fraction[i] > 0), first(fraction[j] > 0)),
			cmp.Compare(first(of[i].Sessions > shares[i]), first(of[j].Sessions > shares[j])),
			cmp.Compare(fraction[j], fraction[i]),
		)
	})
	for _, i := range order {
		if rest <= 0 {
			break
		}
		if of[i].Weight > 0 {
			shares[i]++
			rest--
		}
	}
	return shares
}

// exactShares finds by bisection the level at which the shares, level · weight within their
// bounds, add up to total.
func exactShares(of []Holding, total int) []float64 {
	room, weights := 0, 0.0
	for _, h := range of {
		weights += h.Weight
		switch {
		case h.Weight == 0:
			room += h.Fixed
		case h.Limit == 0:
			room = math.MaxInt / 2
		case room < math.MaxInt/2:
			room += max(h.Limit, h.Fixed)
		}
	}
	limited := room >= total
	at := func(level float64) (shares []float64, sum float64) {
		shares = make([]float64, len(of))
		for i, h := range of {
			share := level * h.Weight
			if limited && h.Limit > 0 {
				share = min(share, float64(h.Limit))
			}
			shares[i] = max(share, float64(h.Fixed))
			sum += shares[i]
		}
		return shares, sum
	}
	low, high := 0.0, 0.0
	if weights > 0 {
		for high = float64(total+1) / weights; ; high *= 2 {
			if _, sum := at(high); sum >= float64(total) || math.IsInf(high, 1) {
				break
			}
		}
	}
	for range 100 { // far below the resolution of a float64
		middle := (low + high) / 2
		if _, sum := at(middle); sum < float64(total) {
			low = middle
		} else {
			high = middle
		}
	}
	shares, _ := at(high)
	return shares
}
