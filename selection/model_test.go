package selection

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAnyHistoryKeepsThePromises runs random histories against the plainest
// bookkeeping there is.
func TestAnyHistoryKeepsThePromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, DefaultConfig())
		inRange := map[string]bool{}
		out, limits := map[string]int{}, map[string]int{} // limits that are never exceeded
		var tickets []Pick[any]
		resize := func(rt *rapid.T) {
			var endpoints []Endpoint[any]
			members := map[string]bool{}
			for i := range rapid.IntRange(0, 12).Draw(rt, "size") {
				id := fmt.Sprintf("w%d", i)
				weight := float64(rapid.IntRange(0, 3).Draw(rt, "weight"))
				e := Endpoint[any]{ID: id, Weight: weight, Limit: max(rapid.IntRange(-4, 3).Draw(rt, "limit"), 0), Refuses: rapid.Bool().Draw(rt, "refuses")}
				endpoints, limits[id] = append(endpoints, e), 0
				if !e.Refuses {
					limits[id] = e.Limit
				}
				members[id] = true
			}
			if err := r.Update(endpoints, r.now); err != nil {
				rt.Fatal(err)
			}
			inRange = members
		}
		rt.Repeat(map[string]func(*rapid.T){
			"update": resize,
			"pick": func(rt *rapid.T) {
				var tried Exclusion
				excluded := map[string]bool{}
				for range rapid.IntRange(1, exclusionSize).Draw(rt, "attempts") {
					p, err := r.Pick(r.now, &tried)
					if err != nil {
						if !errors.Is(err, ErrFull) && len(excluded) < len(inRange) {
							rt.Fatalf("%v with %d of %d excluded", err, len(excluded), len(inRange))
						}
						return
					}
					if limit := limits[p.ID()]; limit > 0 && out[p.ID()] >= limit {
						rt.Fatalf("picked %q with %d in flight and a limit of %d", p.ID(), out[p.ID()], limit)
					}
					if excluded[p.ID()] || !inRange[p.ID()] {
						rt.Fatalf("picked %q; range %v, excluded %v", p.ID(), inRange, excluded)
					}
					p.AddTo(&tried)
					excluded[p.ID()] = true
					out[p.ID()]++
					tickets = append(tickets, p)
				}
			},
			"done": func(rt *rapid.T) {
				if len(tickets) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(tickets)-1).Draw(rt, "ticket")
				o := rapid.SampledFrom([]ended{Cancelled, Success, Success.with(3), Failure, Failure, Failure, Shed, Shed.with(9), Full, Full.with(2)}).Draw(rt, "outcome")
				out[tickets[i].ID()]--
				r.Done(tickets[i], r.now, o)
				tickets = append(tickets[:i], tickets[i+1:]...)
			},
			"fail one": func(rt *rapid.T) {
				if len(inRange) == 0 {
					rt.Skip()
				}
				id := fmt.Sprintf("w%d", rapid.IntRange(0, len(inRange)-1).Draw(rt, "endpoint"))
				if limit := limits[id]; limit > 0 && out[id] >= limit {
					rt.Skip()
				}
				r.requests(4, id, 0, Failure)
			},
			"wait": func(rt *rapid.T) {
				r.wait(time.Duration(rapid.Int64Range(0, int64(40*time.Second)).Draw(rt, "time")))
				r.Refresh(r.now)
			},
			"": func(rt *rapid.T) {
				drawable, gone := 0, 0
				for _, s := range r.Stats(r.now) {
					if s.InFlight != out[s.ID] {
						rt.Fatalf("%s has %d in flight, want %d", s.ID, s.InFlight, out[s.ID])
					}
					if !(s.Score > 0) || s.SuccessAverage < 0 || s.SuccessAverage > 1 || s.ErrorRate < 0 || s.ErrorRate > 1 {
						rt.Fatalf("impossible statistics %+v", s)
					}
					if s.Weight > 0 {
						drawable++
						if s.State != "active" {
							gone++
						}
					}
				}
				if gone > drawable/3 {
					rt.Fatalf("%d of %d are out", gone, drawable)
				}
			},
		})
	})
}
