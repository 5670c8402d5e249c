package main

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/affinity/peering"
)

// gentleness is how little connections move when plans do.
type gentleness struct {
	index affinity.IndexSource
	slack int
	grace time.Duration
	drain time.Duration // negative closes at once
}

// mesh is the relays of one service and their connections, under a clock that the
// program moves: each relay has a table of package peering, relays that know the same
// share a view.
type mesh struct {
	size     size
	how      gentleness
	now      time.Time
	stations map[int]*station
	degree   []int  // open connections by worker
	inRange  []bool // by worker, while a relay follows
	opened   int
}

// station is a relay that runs. Far ends are the numbers of workers.
type station struct {
	id     int
	table  *peering.Table[int]
	open   map[int]bool
	linked []int // in the range or within slack of it
}

// view is what some relays know, and what they plan with it.
type view struct {
	grace struct {
		relays, workers *peering.Grace[int]
	}
	plan  *affinity.Plan
	there []bool // by worker
}

// newcomers is how many workers may join a mesh.
const newcomers = 1000

func newMesh(s size, how gentleness) *mesh {
	numbers := s.workers + newcomers
	return &mesh{size: s, how: how, now: time.Unix(0, 0), stations: map[int]*station{}, degree: make([]int, numbers), inRange: make([]bool, numbers)}
}

func (m *mesh) newView() *view {
	v := &view{}
	v.grace.relays = peering.NewGrace(m.how.grace, relayID)
	v.grace.workers = peering.NewGrace(m.how.grace, workerID)
	return v
}

// start begins a relay without connections.
func (m *mesh) start(relay int) error {
	table, err := peering.NewTable[int](peering.Config{DrainDelay: m.how.drain, MaxOpening: m.size.workers})
	m.stations[relay] = &station{id: relay, table: table, open: map[int]bool{}}
	return err
}

// kill ends a relay.
func (m *mesh) kill(relay int) {
	for w := range m.stations[relay].open {
		m.degree[w]--
	}
	delete(m.stations, relay)
}

// killWorker ends a worker: its connections break.
func (m *mesh) killWorker(worker int) {
	for _, st := range m.stations {
		if st.open[worker] {
			m.close(st, worker)
			st.table.Lost(worker, m.now)
		}
	}
}

func (m *mesh) close(st *station, worker int) {
	delete(st.open, worker)
	m.degree[worker]--
}

// learn gives a view the members that are there now, and plans.
func (m *mesh) learn(v *view, f fleet) error {
	var absent peering.Absent
	gone, _ := v.grace.relays.Update(f.relays, m.now)
	absent.Relays = affinity.Relays(ids(gone, relayID))
	gone, _ = v.grace.workers.Update(f.workers, m.now)
	absent.Workers = affinity.Workers(ids(gone, workerID))
	v.there = make([]bool, m.size.workers+newcomers)
	for _, w := range f.workers {
		v.there[w] = true
	}
	var err error
	v.plan, err = peering.Plan(affinity.PlanConfig{
		Service: "bench", Relays: affinity.Relays(ids(f.relays, relayID)), Workers: affinity.Workers(ids(f.workers, workerID)),
		RelaysPerService: m.size.relays, IndexSource: m.how.index,
		Minimums: affinity.Minimums{PeersPerWorker: m.size.perWorker, PeersPerRelay: perRelay},
	}, absent)
	return err
}

// follow makes relays connect as a view says.
func (m *mesh) follow(v *view, relays []int) error {
	index := make(map[int]int, m.size.relays)
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
				if m.how.slack == 0 || m.inRange[w] || !v.there[w] {
					continue
				}
				if d := v.plan.Distance(i, workerID(w)); d > 0 && d <= m.how.slack {
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
func (m *mesh) act(st *station) {
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
		m.opened++
	}
}

// pass lets time go by.
func (m *mesh) pass(d time.Duration) {
	m.now = m.now.Add(d)
	for _, st := range m.stations {
		m.act(st)
	}
}

// all brings every relay of a fleet to one view of it.
func (m *mesh) all(v *view, f fleet) error {
	if err := m.learn(v, f); err != nil {
		return err
	}
	return m.follow(v, f.relays)
}

// begin starts a fleet and connects it.
func (m *mesh) begin(v *view, f fleet) error {
	for _, relay := range f.relays {
		if err := m.start(relay); err != nil {
			return err
		}
	}
	if err := m.all(v, f); err != nil {
		return fmt.Errorf("%v: %w", m.size, err)
	}
	return nil
}

// connections counts those that are open.
func (m *mesh) connections() (n int) {
	for _, st := range m.stations {
		n += len(st.open)
	}
	return n
}

// coverage is the fewest relays of a worker of a fleet, and how many workers have
// fewer than m.
func (m *mesh) coverage(workers []int) (lowest, short int) {
	lowest = m.size.relays
	for _, w := range workers {
		lowest = min(lowest, m.degree[w])
		if m.degree[w] < m.size.perWorker {
			short++
		}
	}
	return lowest, short
}
