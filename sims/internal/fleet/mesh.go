package fleet

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/peering"
)

// RolloutPolicy holds the settings that limit how many connections a change of the plan moves.
type RolloutPolicy struct {
	Index affinity.IndexSource
	// Strategy is projection by default.
	Strategy affinity.Strategy
	Slack    int
	Grace    time.Duration
	Drain    time.Duration // negative closes immediately
	// Auto makes as many relays serve as the service needs (affinity.PlanConfig.Serving), instead of
	// Size.Relays.
	Auto bool
}

// Mesh holds the relays of one service and their connections, with a clock that the
// program advances. Each relay has a table of package peering; relays with the same
// knowledge of the fleet use the same view.
type Mesh struct {
	size    Size
	policy  RolloutPolicy
	now     time.Time
	relays  map[int]*relay
	degree  []int  // open connections by worker
	inRange []bool // by worker, while Follow updates a relay
	// Service is the service name in the plans, on which ranges depend. The caller may
	// replace the default before Begin.
	Service string
	// Opened counts the connections opened; the caller may reset Opened.
	Opened int
}

// relay is a running relay. Peers are the numbers of workers.
type relay struct {
	id     int
	table  *peering.Table[int]
	open   map[int]bool
	linked []int // workers in the range, or within slack of the range
}

// View is the fleet as some relays see it, and their plan.
type View struct {
	grace struct {
		relays, workers *peering.Grace[int]
	}
	plan    *affinity.Plan
	present []bool // whether the worker exists, by worker
}

// service is the service name in the plans.
const service = "bench"

// maxJoiners is the largest number of workers that may join a mesh.
const maxJoiners = 1000

// NewMesh returns a mesh without relays.
func NewMesh(s Size, policy RolloutPolicy) *Mesh {
	numbers := s.Workers + maxJoiners
	return &Mesh{size: s, policy: policy, Service: service, now: time.Unix(0, 0), relays: map[int]*relay{}, degree: make([]int, numbers), inRange: make([]bool, numbers)}
}

// NewView returns the view of relays that start now.
func (m *Mesh) NewView() *View {
	v := &View{}
	v.grace.relays = peering.NewGrace(m.policy.Grace, RelayID)
	v.grace.workers = peering.NewGrace(m.policy.Grace, WorkerID)
	return v
}

// Start starts a relay without connections.
func (m *Mesh) Start(id int) error {
	table, err := peering.NewTable[int](peering.Config{DrainDelay: m.policy.Drain, MaxOpening: m.size.Workers})
	m.relays[id] = &relay{id: id, table: table, open: map[int]bool{}}
	return err
}

// Kill stops a relay and closes its connections.
func (m *Mesh) Kill(relay int) {
	for w := range m.relays[relay].open {
		m.degree[w]--
	}
	delete(m.relays, relay)
}

// KillWorker stops a worker and breaks its connections.
func (m *Mesh) KillWorker(worker int) {
	for _, r := range m.relays {
		if r.open[worker] {
			m.close(r, worker)
			r.table.Lost(worker, m.now)
		}
	}
}

func (m *Mesh) close(r *relay, worker int) {
	delete(r.open, worker)
	m.degree[worker]--
}

// Learn updates a view with the current members and makes a new plan.
func (m *Mesh) Learn(v *View, f Fleet) error {
	var absent peering.Absent
	gone, _ := v.grace.relays.Update(f.Relays, m.now)
	absent.Relays = affinity.Relays(ids(gone, RelayID))
	gone, _ = v.grace.workers.Update(f.Workers, m.now)
	absent.Workers = affinity.Workers(ids(gone, WorkerID))
	v.present = make([]bool, m.size.Workers+maxJoiners)
	for _, w := range f.Workers {
		v.present[w] = true
	}
	serving := max(m.size.Relays, m.size.PerWorker)
	if m.policy.Auto {
		serving = 0
	}
	var err error
	v.plan, err = peering.Plan(affinity.PlanConfig{
		Service: m.Service, Relays: affinity.Relays(f.RelayIDs()), Workers: affinity.Workers(f.WorkerIDs()),
		RelaysPerService: serving, IndexSource: m.policy.Index, Strategy: m.policy.Strategy,
		Minimums: affinity.Minimums{PeersPerWorker: m.size.PerWorker, PeersPerRelay: m.size.PerRelay},
	}, absent)
	return err
}

// Follow makes relays apply the plan of a view.
func (m *Mesh) Follow(v *View, relays []int) error {
	index := make(map[int]int, m.size.Relays)
	for i, relay := range v.plan.Affine() {
		index[Number(relay)] = i
	}
	var row []affinity.Assignment
	for _, relay := range relays {
		r := m.relays[relay]
		var in, near []int
		if i, serves := index[relay]; serves {
			var err error
			if row, err = v.plan.AppendAssignments(row[:0], i); err != nil {
				return err
			}
			for _, a := range row {
				if w := Number(a.Worker); v.present[w] {
					in = append(in, w)
					m.inRange[w] = true
				}
			}
			for _, w := range r.linked {
				if m.policy.Slack == 0 || m.inRange[w] || !v.present[w] {
					continue
				}
				if v.plan.Keeps(i, WorkerID(w), m.policy.Slack) {
					near = append(near, w)
				}
			}
			for _, w := range in {
				m.inRange[w] = false
			}
		}
		r.linked = append(in[:len(in):len(in)], near...)
		r.table.Want(m.Service, in, near, m.now)
		m.act(r)
	}
	return nil
}

// act executes the actions of a relay's table. Every connection opens immediately.
func (m *Mesh) act(r *relay) {
	actions := r.table.Step(m.now)
	for _, w := range actions.Close {
		if r.open[w] {
			m.close(r, w)
		}
	}
	for _, w := range actions.Open {
		r.table.Opened(w, m.now)
		r.open[w] = true
		m.degree[w]++
		m.Opened++
	}
}

// Pass advances the clock.
func (m *Mesh) Pass(d time.Duration) {
	m.now = m.now.Add(d)
	for _, r := range m.relays {
		m.act(r)
	}
}

// All makes a view learn a fleet and every relay of the fleet follow the view.
func (m *Mesh) All(v *View, f Fleet) error {
	if err := m.Learn(v, f); err != nil {
		return err
	}
	return m.Follow(v, f.Relays)
}

// Begin starts all relays of a fleet and connects them.
func (m *Mesh) Begin(v *View, f Fleet) error {
	for _, relay := range f.Relays {
		if err := m.Start(relay); err != nil {
			return err
		}
	}
	if err := m.All(v, f); err != nil {
		return fmt.Errorf("%v: %w", m.size, err)
	}
	return nil
}

// Connections counts the open connections.
func (m *Mesh) Connections() (n int) {
	for _, r := range m.relays {
		n += len(r.open)
	}
	return n
}

// Coverage returns the fewest relays that any of the workers has, and how many workers have
// fewer than m.
func (m *Mesh) Coverage(workers []int) (lowest, short int) {
	lowest = m.size.Relays
	for _, w := range workers {
		lowest = min(lowest, m.degree[w])
		if m.degree[w] < m.size.PerWorker {
			short++
		}
	}
	return lowest, short
}

// Affine returns the relays that serve according to the view, by index.
func (v *View) Affine() []int { return numbers(v.plan.Affine()) }

// Plan returns the plan of the view.
func (v *View) Plan() *affinity.Plan { return v.plan }

// Runs reports whether a relay runs.
func (m *Mesh) Runs(relay int) bool { return m.relays[relay] != nil }
