package fleet

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/affinity/peering"
)

// Gentleness is how little connections move when plans do.
type Gentleness struct {
	Index affinity.IndexSource
	// Strategy is projection unless said otherwise.
	Strategy affinity.Strategy
	Slack    int
	Grace    time.Duration
	Drain    time.Duration // negative closes at once
}

// Mesh is the relays of one service and their connections, under a clock that the
// program moves: each relay has a table of package peering, relays that know the same
// share a view.
type Mesh struct {
	size     Size
	how      Gentleness
	now      time.Time
	stations map[int]*station
	degree   []int  // open connections by worker
	inRange  []bool // by worker, while a relay follows
	// Opened counts the connections opened; the caller may set it back.
	Opened int
}

// station is a relay that runs. Far ends are the numbers of workers.
type station struct {
	id     int
	table  *peering.Table[int]
	open   map[int]bool
	linked []int // in the range or within slack of it
}

// View is what some relays know, and what they plan with it.
type View struct {
	grace struct {
		relays, workers *peering.Grace[int]
	}
	plan  *affinity.Plan
	there []bool // by worker
}

// newcomers is how many workers may join a mesh.
const newcomers = 1000

// NewMesh returns a mesh without relays.
func NewMesh(s Size, how Gentleness) *Mesh {
	numbers := s.Workers + newcomers
	return &Mesh{size: s, how: how, now: time.Unix(0, 0), stations: map[int]*station{}, degree: make([]int, numbers), inRange: make([]bool, numbers)}
}

// NewView returns what relays know that start now.
func (m *Mesh) NewView() *View {
	v := &View{}
	v.grace.relays = peering.NewGrace(m.how.Grace, RelayID)
	v.grace.workers = peering.NewGrace(m.how.Grace, WorkerID)
	return v
}

// Start begins a relay without connections.
func (m *Mesh) Start(relay int) error {
	table, err := peering.NewTable[int](peering.Config{DrainDelay: m.how.Drain, MaxOpening: m.size.Workers})
	m.stations[relay] = &station{id: relay, table: table, open: map[int]bool{}}
	return err
}

// Kill ends a relay.
func (m *Mesh) Kill(relay int) {
	for w := range m.stations[relay].open {
		m.degree[w]--
	}
	delete(m.stations, relay)
}

// KillWorker ends a worker: its connections break.
func (m *Mesh) KillWorker(worker int) {
	for _, st := range m.stations {
		if st.open[worker] {
			m.close(st, worker)
			st.table.Lost(worker, m.now)
		}
	}
}

func (m *Mesh) close(st *station, worker int) {
	delete(st.open, worker)
	m.degree[worker]--
}

// Learn gives a view the members that are there now, and plans.
func (m *Mesh) Learn(v *View, f Fleet) error {
	var absent peering.Absent
	gone, _ := v.grace.relays.Update(f.Relays, m.now)
	absent.Relays = affinity.Relays(ids(gone, RelayID))
	gone, _ = v.grace.workers.Update(f.Workers, m.now)
	absent.Workers = affinity.Workers(ids(gone, WorkerID))
	v.there = make([]bool, m.size.Workers+newcomers)
	for _, w := range f.Workers {
		v.there[w] = true
	}
	var err error
	v.plan, err = peering.Plan(affinity.PlanConfig{
		Service: "bench", Relays: affinity.Relays(ids(f.Relays, RelayID)), Workers: affinity.Workers(ids(f.Workers, WorkerID)),
		RelaysPerService: m.size.Relays, IndexSource: m.how.Index, Strategy: m.how.Strategy,
		Minimums: affinity.Minimums{PeersPerWorker: m.size.PerWorker, PeersPerRelay: m.size.PerRelay},
	}, absent)
	return err
}

// Follow makes relays connect as a view says.
func (m *Mesh) Follow(v *View, relays []int) error {
	index := make(map[int]int, m.size.Relays)
	for i, relay := range v.plan.Affine() {
		index[number(relay)] = i
	}
	var row []affinity.Assignment
	for _, relay := range relays {
		st := m.stations[relay]
		var in, near []int
		if i, serves := index[relay]; serves {
			var err error
			if row, err = v.plan.AppendAssignments(row[:0], i); err != nil {
				return err
			}
			for _, a := range row {
				if w := number(a.Worker); v.there[w] {
					in = append(in, w)
					m.inRange[w] = true
				}
			}
			for _, w := range st.linked {
				if m.how.Slack == 0 || m.inRange[w] || !v.there[w] {
					continue
				}
				if d := v.plan.Distance(i, WorkerID(w)); d > 0 && d <= m.how.Slack {
					near = append(near, w)
				}
			}
			for _, w := range in {
				m.inRange[w] = false
			}
		}
		st.linked = append(in[:len(in):len(in)], near...)
		st.table.Want("bench", in, near, m.now)
		m.act(st)
	}
	return nil
}

// act does what a relay's table says. Every opening succeeds at once.
func (m *Mesh) act(st *station) {
	actions := st.table.Step(m.now)
	for _, w := range actions.Close {
		if st.open[w] {
			m.close(st, w)
		}
	}
	for _, w := range actions.Open {
		st.table.Opened(w, m.now)
		st.open[w] = true
		m.degree[w]++
		m.Opened++
	}
}

// Pass lets time go by.
func (m *Mesh) Pass(d time.Duration) {
	m.now = m.now.Add(d)
	for _, st := range m.stations {
		m.act(st)
	}
}

// All brings every relay of a fleet to one view of it.
func (m *Mesh) All(v *View, f Fleet) error {
	if err := m.Learn(v, f); err != nil {
		return err
	}
	return m.Follow(v, f.Relays)
}

// Begin starts a fleet and connects it.
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

// Connections counts those that are open.
func (m *Mesh) Connections() (n int) {
	for _, st := range m.stations {
		n += len(st.open)
	}
	return n
}

// Coverage is the fewest relays of a worker of a fleet, and how many workers have
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

// Affine are the relays that serve as a view sees it, by index.
func (v *View) Affine() []int { return numbers(v.plan.Affine()) }

// Runs reports whether a relay runs.
func (m *Mesh) Runs(relay int) bool { return m.stations[relay] != nil }
