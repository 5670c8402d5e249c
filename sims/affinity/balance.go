package main

import (
	"fmt"
	"math"
)

// figures are what one graph shows at rest.
type figures struct {
	perWorker, perRelay span
	peak                float64 // load of the busiest worker in parts of the mean
	connections         int
}

// span is a minimum and a maximum.
type span struct{ min, max int }

func (s span) String() string { return fmt.Sprintf("%d to %d", s.min, s.max) }

func (s *span) add(n int) { s.min, s.max = min(s.min, n), max(s.max, n) }

// measure counts over the relays that serve and all workers of a fleet.
func measure(g *graph, f fleet) figures {
	out := figures{perWorker: span{min: math.MaxInt}, perRelay: span{min: math.MaxInt}}
	ofWorker := make(map[int]int, len(f.workers))
	serving := 0
	for _, relay := range f.relays {
		n := 0
		for _, worker := range f.workers {
			if g.connected(relay, worker) {
				ofWorker[worker]++
				n++
			}
		}
		if n > 0 { // spares have none
			serving++
			out.perRelay.add(n)
			out.connections += n
		}
	}
	for _, worker := range f.workers {
		out.perWorker.add(ofWorker[worker])
		out.peak = max(out.peak, g.load[worker]*float64(len(f.workers))/float64(serving))
	}
	return out
}

// balance compares how evenly fleets are served.
func balance(r *report, sizes []size) error {
	for _, s := range sizes {
		fmt.Fprintf(r, "\n**%v** (the fewest connections are %d)\n\n", s, s.minimum())
		r.head("strategy", "relays per worker", "workers per relay", "load, max ÷ mean", "connections ÷ fewest")
		for _, st := range strategies {
			f := newFleet(s.relays*st.spares, s.workers)
			g := newGraph(f)
			if err := st.connect(g, s, f); err != nil {
				return fmt.Errorf("%s: %w", st.name, err)
			}
			got := measure(g, f)
			r.row(st.name, got.perWorker.String(), got.perRelay.String(), fmt.Sprintf("%.3f", got.peak),
				fmt.Sprintf("%.3f", float64(got.connections)/float64(s.minimum())))
			if st.ours {
				checkBalance(r, s, st, got)
			}
		}
	}
	return nil
}

func checkBalance(r *report, s size, st strategy, got figures) {
	r.require(got.perWorker.min >= s.perWorker, "%v, %s: a worker has %d relays, fewer than m", s, st.name, got.perWorker.min)
	r.require(got.perRelay.min >= min(perRelay, s.workers), "%v, %s: a relay has %d workers, fewer than p", s, st.name, got.perRelay.min)
	r.require(got.peak < 1.0005, "%v, %s: the load of a worker is %.4f of the mean, not 1.000", s, st.name, got.peak)
	if st.name == "rendezvous" {
		return
	}
	r.require(got.connections == s.minimum(), "%v, %s: %d connections, not %d", s, st.name, got.connections, s.minimum())
	if s.byWorkers() {
		r.require(got.perWorker.max == s.perWorker, "%v, %s: a worker has %d relays, more than m", s, st.name, got.perWorker.max)
	}
}
