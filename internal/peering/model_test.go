package peering

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A table under arbitrary histories, compared with what it promises: nothing that a
// service needs is closed, nothing is closed before its drain delay, openings stay
// bounded, and when things are quiet exactly what is needed is open.
func TestUnderAnyHistoryNothingNeededIsClosedAndTheRestIsInTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := Config{DrainDelay: 10 * time.Second, MaxOpening: rapid.IntRange(1, 4).Draw(rt, "max opening"), RetryDelay: time.Second, MaxRetryDelay: 4 * time.Second}
		table, err := NewTable[int](cfg)
		if err != nil {
			rt.Fatal(err)
		}
		now := time.Unix(0, 0)
		keys := rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 0, 6, rapid.ID[int])
		services := map[string][2][]int{}
		opening, open := map[int]bool{}, map[int]bool{}
		unneeded := map[int]time.Time{} // since when an open one is in no service's lists

		needed := func(k, lists int) bool {
			for _, s := range services {
				for _, list := range s[:lists] {
					for _, other := range list {
						if other == k {
							return true
						}
					}
				}
			}
			return false
		}
		note := func() {
			for k := range open {
				if needed(k, 2) {
					delete(unneeded, k)
				} else if _, already := unneeded[k]; !already {
					unneeded[k] = now
				}
			}
		}
		step := func() {
			a := table.Step(now)
			for _, k := range a.Open {
				if open[k] || opening[k] {
					rt.Fatalf("%d is opened a second time", k)
				}
				if !needed(k, 1) {
					rt.Fatalf("%d is opened and in no range", k)
				}
				opening[k] = true
			}
			for _, k := range a.Close {
				switch {
				case opening[k] && needed(k, 1):
					rt.Fatalf("the opening of %d is given up, and it is in a range", k)
				case open[k] && needed(k, 2):
					rt.Fatalf("%d is closed, and a service needs it", k)
				case open[k] && now.Sub(unneeded[k]) < cfg.DrainDelay:
					rt.Fatalf("%d is closed %v after it was needed: want %v", k, now.Sub(unneeded[k]), cfg.DrainDelay)
				}
				delete(opening, k)
				delete(open, k)
				delete(unneeded, k)
			}
			if len(opening) > cfg.MaxOpening {
				rt.Fatalf("%d connections are being opened: want at most %d", len(opening), cfg.MaxOpening)
			}
		}
		any := func(m map[int]bool, label string) (int, bool) {
			for k := range 10 {
				if m[k] && rapid.Bool().Draw(rt, label) {
					return k, true
				}
			}
			return 0, false
		}
		rt.Repeat(map[string]func(*rapid.T){
			"want": func(rt *rapid.T) {
				name := rapid.SampledFrom([]string{"s", "t", "u"}).Draw(rt, "service")
				in := keys.Draw(rt, "in")
				var near []int
				for _, k := range keys.Draw(rt, "near") {
					inside := false
					for _, other := range in {
						inside = inside || other == k
					}
					if !inside {
						near = append(near, k)
					}
				}
				services[name] = [2][]int{in, near}
				table.Want(name, in, near, now)
				note()
			},
			"opened": func(rt *rapid.T) {
				if k, ok := any(opening, "opened"); ok {
					delete(opening, k)
					open[k] = true
					table.Opened(k, now)
					note()
				}
			},
			"failed": func(rt *rapid.T) {
				if k, ok := any(opening, "failed"); ok {
					delete(opening, k)
					table.Failed(k, now)
				}
			},
			"lost": func(rt *rapid.T) {
				if k, ok := any(open, "lost"); ok {
					delete(open, k)
					delete(unneeded, k)
					table.Lost(k, now)
				}
			},
			"renewed": func(rt *rapid.T) {
				table.Renewed(rapid.IntRange(0, 9).Draw(rt, "renewed"))
			},
			"pass": func(rt *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 12_000).Draw(rt, "ms")) * time.Millisecond)
			},
			// After every action, as a caller does.
			"": func(*rapid.T) { step() },
		})
		// Quiet: everything opens at the first attempt.
		for range 100 {
			now = now.Add(time.Second)
			step()
			for k := range opening {
				delete(opening, k)
				open[k] = true
				table.Opened(k, now)
			}
			note()
		}
		for k := range 10 {
			if needed(k, 1) && !open[k] {
				rt.Errorf("%d is in a range and not open after 100 s of quiet: it is %v", k, table.State(k))
			}
			if open[k] && !needed(k, 2) {
				rt.Errorf("%d is open after 100 s of quiet, and no service needs it: it is %v", k, table.State(k))
			}
			if known := table.State(k) == Open || table.State(k) == Spare; known != open[k] {
				rt.Errorf("%d is open %v, and the table says %v", k, open[k], table.State(k))
			}
		}
	})
}
