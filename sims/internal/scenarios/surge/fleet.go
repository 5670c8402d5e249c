package surge

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

// setup configures one surge.
type setup struct {
	workers, relays, allocators int // allocators of all relays together
	// stay is the average time for which a slot is held, in report intervals; 0 means that
	// slots are never released.
	stay int
	// blind relays use only the reports and ignore the requests sent since.
	blind bool
	spec  strategy.Spec
	// full is the number of slots of the first worker that other clients use.
	full int
}

// every is the interval of the load reports of a worker. Each allocator takes one slot per
// interval.
const every = time.Second

// fleet holds relays and workers. Relays use the real strategy, which reads loads from the real
// balancer; workers count slots.
type fleet struct {
	setup
	now    selection.Instant
	random *rand.Rand
	taken  []int // by worker
	sent   []int // by worker, since the last report
	relays []*relay
}

type relay struct {
	fleet     *fleet
	balancer  *selection.Balancer[int]
	strategy  *strategy.Strategy
	choices   []strategy.Endpoint
	sessions  []session
	allocates int // slots taken between two reports
}

type session struct {
	worker int
	pick   selection.Pick[int]
}

// signals provides the load of a worker to the strategy, as relays do.
type signals struct {
	relay    *relay
	worker   int
	reported int
}

func (s *signals) Load() (int, bool) {
	if s.relay.fleet.blind {
		return s.reported, true
	}
	load, _ := s.relay.balancer.Load(id(s.worker), s.relay.fleet.now)
	return int(math.Round(load)), true
}

func (*signals) Seen() (selection.Instant, bool) { return math.MaxInt64, true }

func id(worker int) string { return fmt.Sprintf("worker-%d", worker) }

func newFleet(s setup, random func(stream string) *rand.Rand) (*fleet, error) {
	f := &fleet{
		setup: s, now: selection.Instant(time.Second), random: random("sessions"),
		taken: make([]int, s.workers), sent: make([]int, s.workers),
	}
	f.taken[0] = s.full
	for i := range s.relays {
		chance := random(fmt.Sprintf("relay-%d", i))
		cfg := selection.DefaultConfig()
		cfg.Rand = chance.Uint64
		b, err := selection.NewBalancer[int](cfg)
		if err != nil {
			return nil, err
		}
		st, err := strategy.New(strategy.Config{Spec: s.spec, Service: "sim", Rand: chance})
		if err != nil {
			return nil, err
		}
		r := &relay{fleet: f, balancer: b, strategy: st, allocates: s.allocators / s.relays}
		known, choices := make([]selection.Endpoint[int], s.workers), make([]strategy.Endpoint, s.workers)
		for w := range known {
			known[w] = selection.Endpoint[int]{ID: id(w), Weight: 1, Value: w}
			choices[w] = strategy.Endpoint{ID: id(w), Node: id(w), Weight: 1, Value: w, Signals: &signals{relay: r, worker: w}}
		}
		if err := b.Update(known, f.now); err != nil {
			return nil, err
		}
		if err := st.Update(choices); err != nil {
			return nil, err
		}
		f.relays = append(f.relays, r)
		r.choices = choices
	}
	return f, nil
}

// interval simulates the time from one report to the next: every worker reports its load, then
// every allocator takes a slot, which no other relay knows. Slots are released at the end of
// the interval.
func (f *fleet) interval() error {
	for _, r := range f.relays {
		if err := r.receiveReports(); err != nil {
			return err
		}
	}
	clear(f.sent)
	step := selection.Instant(every) / selection.Instant(f.relays[0].allocates+1)
	// The allocators of the relays take turns, as an approximation of parallel relays.
	for range f.relays[0].allocates {
		f.now += step
		for _, r := range f.relays {
			if err := r.allocate(); err != nil {
				return err
			}
		}
	}
	f.now += step
	if f.stay > 0 {
		for _, r := range f.relays {
			r.end()
		}
	}
	return nil
}

// receiveReports passes the load reports of all workers to the relay's balancer.
func (r *relay) receiveReports() error {
	f := r.fleet
	for i := range r.choices {
		load := f.taken[i]
		r.choices[i].Signals.(*signals).reported = load
		p, err := r.balancer.Take(id(i), f.now)
		if err != nil {
			return err
		}
		r.balancer.Done(p, f.now, selection.Result{Outcome: selection.Success, Load: load, HasLoad: true})
	}
	return nil
}

func (r *relay) allocate() error {
	e, err := r.strategy.Pick(strategy.Request{Now: r.fleet.now})
	if err != nil {
		return err
	}
	p, err := r.balancer.Take(e.ID, r.fleet.now)
	if err != nil {
		return err
	}
	worker := e.Value.(int)
	r.fleet.taken[worker]++
	r.fleet.sent[worker]++
	r.sessions = append(r.sessions, session{worker, p})
	return nil
}

// end releases each slot with a probability of 1/stay. The other relays see the release in the
// next report.
func (r *relay) end() {
	f, kept := r.fleet, r.sessions[:0]
	for _, s := range r.sessions {
		if f.random.IntN(f.stay) > 0 {
			kept = append(kept, s)
			continue
		}
		f.taken[s.worker]--
		r.balancer.Done(s.pick, f.now, selection.Result{Outcome: selection.Cancelled})
	}
	r.sessions = kept
}

// mean returns the average number of slots of a worker.
func mean(values []int) float64 {
	sum := 0
	for _, v := range values {
		sum += v
	}
	return float64(sum) / float64(len(values))
}
