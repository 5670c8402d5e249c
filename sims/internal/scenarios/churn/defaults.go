package churn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// usual are the results of one fleet at the defaults: connections opened ÷ the least possible, for
// each change.
type usual struct {
	serving                                   int
	replaced, leaves, joins, exchanged, grown ratio
	sharing                                   float64 // other relays that a relay shares workers with, mean
	worstPair                                 int     // workers that two relays share, at most
}

// ratio is a sum of opened connections compared with the sum of the least possible.
type ratio struct{ opened, least float64 }

func (o *ratio) add(opened, least int) {
	o.opened, o.least = o.opened+float64(opened), o.least+float64(least)
}

func (o ratio) value() float64 { return o.opened / o.least }

// atDefaults measures what changes cost with the settings that a relay has by default. Size.Relays
// is the whole fleet; as many relays serve as the service needs.
func atDefaults(r *scenario.Run, sub subject) error {
	sizes, err := fleet.ParseSizes(r.Texts("default-fleets"))
	if err != nil {
		return err
	}
	strategies := []affinity.Strategy{affinity.Projection, affinity.Rendezvous}
	// Each change of a fleet is measured apart, so that all processors have work.
	parts := []func(*scenario.Run, fleet.Size, fleet.RolloutPolicy, *usual) error{replacements, departures, exchangesOfWorkers, growth, failures}
	got := make([]usual, len(sizes)*len(strategies)*len(parts))
	if err := r.Parallel(len(got), func(i int) error {
		s := sizes[i/len(parts)/len(strategies)]
		how := rolloutPolicy(r, sub.index)
		how.Auto, how.Slack, how.Grace, how.Strategy = true, r.Int("slack"), r.Duration("grace"), strategies[i/len(parts)%len(strategies)]
		return parts[i%len(parts)](r, s, how, &got[i])
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "defaults", Title: "Opened at the defaults, ÷ least possible", Section: "defaults",
		Columns: []scenario.Column{
			{Name: "fleet", Key: true}, {Name: "strategy", Key: true}, {Name: "relays that serve"},
			{Name: "relay leaves for good", Digits: 2}, {Name: "another joins later", Digits: 2}, {Name: "relay replaced at once", Digits: 2}, {Name: "worker leaves, another joins", Digits: 2}, {Name: "grows tenfold in a day", Digits: 2},
			{Name: "relays that share workers with one", Digits: 1}, {Name: "workers that lose two relays, worst pair"},
		},
	})
	for i := 0; i < len(got); i += len(parts) {
		s, strategy := sizes[i/len(parts)/len(strategies)], strategies[i/len(parts)%len(strategies)]
		replaced, apart, exchanged, grown, failed := got[i].replaced, got[i+1], got[i+2].exchanged, got[i+3].grown, got[i+4]
		t.Add(sizeName(s), string(strategy), failed.serving, apart.leaves.value(), apart.joins.value(), replaced.value(), exchanged.value(), grown.value(), failed.sharing, failed.worstPair)
		r.Check(relaysUsual, apart.leaves.value(), fmt.Sprintf("%v, %s, a relay leaves", s, strategy))
		r.Check(relaysUsual, apart.joins.value(), fmt.Sprintf("%v, %s, another joins", s, strategy))
		r.Check(replacedUsual, replaced.value(), fmt.Sprintf("%v, %s", s, strategy))
		r.Check(workersUsual, exchanged.value(), fmt.Sprintf("%v, %s", s, strategy))
		if strategy == affinity.Rendezvous {
			r.Check(rendezNear, apart.leaves.value(), fmt.Sprintf("%v, at the defaults, a relay leaves", s))
			r.Check(rendezNear, apart.joins.value(), fmt.Sprintf("%v, at the defaults, another joins", s))
			// The workers of the one that left choose others, and those of the one that joins choose it.
			r.Check(rendezNear, replaced.value()/2, fmt.Sprintf("%v, at the defaults, a relay is replaced at once", s))
			r.Check(rendezNear, exchanged.value(), fmt.Sprintf("%v, at the defaults, a worker leaves and another joins", s))
		}
	}
	return nil
}

// settle makes all relays learn of a fleet and lets grace and draining end.
func settle(m *fleet.Mesh, v *fleet.View, f fleet.Fleet, how fleet.RolloutPolicy) error {
	for range 2 { // the second plan is without the members whose grace has ended
		if err := m.All(v, f); err != nil {
			return err
		}
		m.Pass(max(how.Grace, how.Drain) + time.Minute)
	}
	return nil
}

// begin connects a fleet.
func begin(s fleet.Size, how fleet.RolloutPolicy) (*fleet.Mesh, *fleet.View, fleet.Fleet, error) {
	m, f := fleet.NewMesh(s, how), fleet.New(s.Relays, s.Workers)
	v := m.NewView()
	return m, v, f, m.Begin(v, f)
}

// kill stops a random relay that serves, and returns the fleet without it and how many connections
// it had.
func kill(m *fleet.Mesh, v *fleet.View, f fleet.Fleet, random *rand.Rand) (after fleet.Fleet, own int) {
	serving := v.Affine()
	gone := serving[random.IntN(len(serving))]
	own = m.Connections()
	m.Kill(gone)
	return fleet.Fleet{Relays: fleet.Without(f.Relays, slices.Index(f.Relays, gone)), Workers: f.Workers}, own - m.Connections()
}

// replacements replaces relays, one at a time, by relays of another name that join in the moment in
// which they leave. The least possible is the connections of the relay.
func replacements(r *scenario.Run, s fleet.Size, how fleet.RolloutPolicy, got *usual) error {
	m, v, f, err := begin(s, how)
	random := r.Rand("replaced")
	for trial := 0; err == nil && trial < r.Int("trials"); trial++ {
		var own int
		f, own = kill(m, v, f, random)
		next := s.Relays + trial
		f.Relays = fleet.With(f.Relays, next)
		if err = m.Start(next); err != nil {
			break
		}
		m.Opened = 0
		err = settle(m, v, f, how)
		got.replaced.add(m.Opened, own)
	}
	return err
}

// departures lets a relay leave for good, and another join later. The least possible is the
// connections of the relay that left, for each.
func departures(r *scenario.Run, s fleet.Size, how fleet.RolloutPolicy, got *usual) error {
	m, v, f, err := begin(s, how)
	random := r.Rand("leaves")
	for trial := 0; err == nil && trial < r.Int("trials"); trial++ {
		var own int
		f, own = kill(m, v, f, random)
		m.Opened = 0
		if err = settle(m, v, f, how); err != nil {
			break
		}
		got.leaves.add(m.Opened, own)
		next := s.Relays + trial
		f.Relays = fleet.With(f.Relays, next)
		m.Opened = 0
		if err = m.Start(next); err == nil {
			err = settle(m, v, f, how)
		}
		got.joins.add(m.Opened, own)
	}
	return err
}

// exchangesOfWorkers lets a worker leave, and another join later. The least possible is the
// connections of the one that joins. The figures are noisy: at 300x10000x3 with projection, each 50
// of 300 exchanges opened 11 to 18 times the least possible, the later ones less.
func exchangesOfWorkers(r *scenario.Run, s fleet.Size, how fleet.RolloutPolicy, got *usual) error {
	m, v, f, err := begin(s, how)
	random := r.Rand("exchanged")
	for trial := 0; err == nil && trial < 3*r.Int("trials"); trial++ {
		m.Opened = 0
		i := random.IntN(len(f.Workers))
		m.KillWorker(f.Workers[i])
		f.Workers = fleet.Without(f.Workers, i)
		if err = settle(m, v, f, how); err == nil {
			f.Workers = fleet.With(f.Workers, s.Workers+trial)
			err = settle(m, v, f, how)
		}
		got.exchanged.add(m.Opened, s.PerWorker)
	}
	return err
}

// growth lets a service grow to ten times its workers in equal steps. The least possible of a step
// is the connections of the new workers, or of the relays that begin to serve, whichever is more.
func growth(r *scenario.Run, s fleet.Size, how fleet.RolloutPolicy, got *usual) error {
	m := fleet.NewMesh(s, how)
	f := fleet.Fleet{Relays: fleet.New(s.Relays, 0).Relays, Workers: fleet.New(0, s.Workers).Workers}
	all := f.Workers
	f.Workers = all[:max(1, len(all)/10)]
	v := m.NewView()
	err := m.Begin(v, f)
	steps := r.Int("growth-steps")
	for step, first := 1, len(f.Workers); err == nil && step <= steps; step++ {
		serving, workers := len(v.Affine()), len(f.Workers)
		f.Workers = all[:first+(len(all)-first)*step/steps]
		m.Opened = 0
		if err = m.All(v, f); err != nil {
			break
		}
		m.Pass(24 * time.Hour / time.Duration(steps))
		now := len(v.Affine())
		got.grown.add(m.Opened, s.PerWorker*max(len(f.Workers)-workers, (now-serving)*len(f.Workers)/now))
	}
	return err
}

// failures counts which relays share workers: those whose failures fall on the same workers.
func failures(_ *scenario.Run, s fleet.Size, how fleet.RolloutPolicy, got *usual) error {
	_, v, _, err := begin(s, how)
	if err != nil {
		return err
	}
	relays := make([][]int, s.Workers)
	if err := fleet.EachConnection(v.Plan(), func(relay, worker int, _ float64) {
		relays[worker] = append(relays[worker], relay)
	}); err != nil {
		return err
	}
	shared := map[[2]int]int{}
	for _, of := range relays {
		for i, a := range of {
			for _, b := range of[:i] {
				shared[[2]int{min(a, b), max(a, b)}]++
			}
		}
	}
	got.serving = len(v.Affine())
	got.sharing = 2 * float64(len(shared)) / float64(got.serving)
	for _, n := range shared {
		got.worstPair = max(got.worstPair, n)
	}
	return nil
}
