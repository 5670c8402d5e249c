package relaypool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/selection"
)

// A table under arbitrary histories, compared with a model that knows only what the table
// was notified of and what it returned.
func TestUnderAnyHistoryThePromisesHold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := DefaultConfig()
		cfg.Selector, cfg.Region = "gate-1", "eu"
		cfg.Primaries = rapid.IntRange(1, 3).Draw(rt, "primaries")
		cfg.Backups = rapid.IntRange(0, 2).Draw(rt, "backups")
		cfg.Candidates = rapid.IntRange(1, 8).Draw(rt, "candidates")
		cfg.Streams = rapid.IntRange(1, 3).Draw(rt, "streams")
		cfg.MaxPerPeer = rapid.IntRange(2, 3).Draw(rt, "per peer")
		cfg.MaxTotal = mostPrimaries + cfg.Backups + rapid.IntRange(1, 4).Draw(rt, "total")
		cfg.MaxBindings = 3
		cfg.MaxAge = 5 * time.Minute
		cfg.Rand = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0)).Uint64
		table, err := newTable(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		m := &model{
			rt: rt, cfg: cfg, least: cfg, table: table, now: start,
			peers: map[string]Peer{}, conns: map[linkID]*modelConn{}, out: map[string]time.Time{},
		}
		rt.Repeat(map[string]func(*rapid.T){
			"update":  m.update,
			"resize":  m.resize,
			"opened":  m.opened,
			"refused": m.refused,
			"lost":    m.lost,
			"acquire": m.acquire,
			"end":     m.end,
			"full":    m.full,
			"room":    m.room,
			"pass":    m.pass,
			// After every action, as a caller does.
			"": func(*rapid.T) { m.promoted(); m.step(); m.check() },
		})
		m.quiet()
	})
}

const mostPrimaries = 6 // after a resize

type model struct {
	rt    *rapid.T
	cfg   Config
	least Config // before any resize
	held  int    // primaries at the last check
	table *table
	now   time.Time
	next  time.Time

	peers   map[string]Peer
	conns   map[linkID]*modelConn
	out     map[string]time.Time // evicted until
	tickets []ticket
}

type modelConn struct {
	peer     string
	open     bool
	full     bool
	inFlight int
}

func (m *model) update(rt *rapid.T) {
	m.peers = map[string]Peer{}
	var list []Peer
	for i, place := range rapid.SliceOfN(rapid.SampledFrom([]string{"-", "eu", "us"}), 0, 9).Draw(rt, "places") {
		if p := (Peer{ID: fmt.Sprint("r", i), Region: place}); place != "-" {
			list = append(list, p)
			m.peers[p.ID] = p
		}
	}
	if err := m.table.Update(list, m.now); err != nil {
		rt.Fatal(err)
	}
}

func (m *model) resize(rt *rapid.T) {
	n := rapid.IntRange(0, mostPrimaries).Draw(rt, "primaries")
	m.cfg.Primaries = max(n, m.least.Primaries)
	m.cfg.Candidates = m.least.Candidates + m.cfg.Primaries - m.least.Primaries
	m.table.Resize(n, m.now)
}

// pick returns a connection in the given state.
func (m *model) pick(rt *rapid.T, open bool) (linkID, *modelConn) {
	var ids []linkID
	for id, c := range m.conns {
		if c.open == open {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	slices.Sort(ids)
	id := rapid.SampledFrom(ids).Draw(rt, "connection")
	return id, m.conns[id]
}

func (m *model) opened(rt *rapid.T) {
	if id, c := m.pick(rt, false); c != nil {
		c.open = true
		m.table.Opened(id, m.now)
	}
}

func (m *model) refused(rt *rapid.T) {
	if id, c := m.pick(rt, false); c != nil {
		delete(m.conns, id)
		m.tickets = slices.DeleteFunc(m.tickets, func(tk ticket) bool { return tk.Link == id })
		m.table.OpenFailed(id, errRefused, m.now)
	}
}

func (m *model) lost(rt *rapid.T) {
	if id, c := m.pick(rt, true); c != nil {
		m.table.Lost(id, errRefused, m.now)
	}
}

func (m *model) acquire(rt *rapid.T) {
	q := Request{
		Key:     rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(rt, "key"),
		Exclude: rapid.SliceOfN(rapid.SampledFrom([]string{"r0", "r1", "r2", "r3"}), 0, 2).Draw(rt, "exclude"),
	}
	tk, err := m.table.Acquire(q, m.now)
	if err != nil {
		if !slices.ContainsFunc([]error{ErrNoPeers, ErrExhausted, ErrUnavailable, ErrExcluded, errNotYet}, func(e error) bool { return errors.Is(err, e) }) {
			rt.Fatal(err)
		}
		if errors.Is(err, ErrNoPeers) != (len(m.peers) == 0) {
			rt.Fatalf("%d peers: %v", len(m.peers), err)
		}
		return
	}
	if slices.Contains(q.Exclude, tk.Peer.ID) {
		rt.Fatalf("%s was excluded", tk.Peer.ID)
	}
	if _, out := m.out[tk.Peer.ID]; out {
		rt.Fatalf("%s is evicted and was given a request", tk.Peer.ID)
	}
	if m.peers[tk.Peer.ID].ID == "" {
		rt.Fatalf("%s is no peer and was given a request", tk.Peer.ID)
	}
	m.step() // the connection may be new
	c := m.conns[tk.Link]
	if c == nil || c.open != tk.Ready {
		rt.Fatalf("ticket %+v for connection %+v", tk, c)
	}
	if c.full {
		rt.Fatalf("a connection to %s is full and was given a request", c.peer)
	}
	if c.inFlight++; c.inFlight > m.cfg.Streams {
		rt.Fatalf("%d requests on one connection", c.inFlight)
	}
	m.tickets = append(m.tickets, tk)
}

func (m *model) end(rt *rapid.T) {
	if len(m.tickets) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.tickets)-1).Draw(rt, "ticket")
	tk := m.tickets[i]
	m.tickets = slices.Delete(m.tickets, i, i+1)
	for range rapid.SampledFrom([]int{1, 1, 30}).Draw(rt, "times") { // as if many had gone before
		m.table.Report(tk, selection.Outcome(rapid.IntRange(0, 3).Draw(rt, "outcome")), time.Duration(rapid.SampledFrom([]int{1, 5, 500}).Draw(rt, "ms"))*time.Millisecond, m.now)
	}
	m.conns[tk.Link].inFlight--
	m.table.Release(tk, m.now)
}

func (m *model) full(rt *rapid.T) {
	i := slices.IndexFunc(m.tickets, func(tk ticket) bool { return m.conns[tk.Link].open })
	if i < 0 {
		return
	}
	tk := m.tickets[i]
	m.tickets = slices.Delete(m.tickets, i, i+1)
	c := m.conns[tk.Link]
	c.full = true
	c.inFlight--
	m.table.Full(tk, rapid.IntRange(1, 3).Draw(rt, "carries"), m.now)
}

func (m *model) room(rt *rapid.T) {
	if id, c := m.pick(rt, true); c != nil {
		c.full = false
		m.table.Room(id)
	}
}

func (m *model) pass(rt *rapid.T) {
	d := time.Duration(rapid.SampledFrom([]int{1, 50, 500, 5_000, 70_000}).Draw(rt, "ms")) * time.Millisecond
	for end := m.now.Add(d); ; {
		if m.next.After(end) {
			m.now = end
			break
		}
		m.now = m.next
		m.step()
	}
}

func (m *model) step() {
	a := m.table.Step(m.now)
	if !a.Next.After(m.now) {
		m.rt.Fatalf("Next is %v, and it is %v", a.Next, m.now)
	}
	m.next = a.Next
	for _, e := range a.Events {
		switch e.Kind {
		case Chosen:
			if _, out := m.out[e.Peer]; out {
				m.rt.Fatalf("%s is evicted and was chosen", e.Peer)
			}
		case Readmitted, PeerRemoved:
			delete(m.out, e.Peer)
		}
	}
	for _, o := range a.Open {
		m.conns[o.Link] = &modelConn{peer: o.Peer.ID}
	}
	for _, id := range a.Close {
		c := m.conns[id]
		switch {
		case c == nil:
			continue // given up before it was notified
		case c.open && c.inFlight > 0:
			m.rt.Fatalf("a connection to %s was closed under %d requests", c.peer, c.inFlight)
		case !c.open:
			m.tickets = slices.DeleteFunc(m.tickets, func(tk ticket) bool { return tk.Link == id })
		}
		delete(m.conns, id)
	}
	m.out = map[string]time.Time{}
	for _, p := range m.table.evicted {
		m.out[p.ID] = p.evictedUntil
		if p.evictedUntil.Sub(m.now) > m.cfg.MaxEviction {
			m.rt.Fatalf("%s is out for %v", p.ID, p.evictedUntil.Sub(m.now))
		}
	}
}

// promoted holds before any Step: backups do not wait for one.
func (m *model) promoted() {
	s := m.table.Status(m.now)
	for _, b := range m.table.backups {
		if m.table.lacks(b.peer) {
			m.rt.Fatalf("primaries %v: a place is vacant next to backups %v", s.Primaries, s.Backups)
		}
	}
}

func (m *model) check() {
	m.promoted()
	s := m.table.Status(m.now)
	if len(s.Primaries) > max(m.cfg.Primaries, m.held) || len(s.Backups) > m.cfg.Backups {
		m.rt.Fatalf("primaries %v, backups %v: at most %d, or %d from before a resize, and %d", s.Primaries, s.Backups, m.cfg.Primaries, m.held, m.cfg.Backups)
	}
	m.held = len(s.Primaries)
	if len(s.Candidates) > m.cfg.Candidates {
		m.rt.Fatalf("candidates %v: at most %d", s.Candidates, m.cfg.Candidates)
	}
	seen := map[string]bool{}
	for _, id := range slices.Concat(s.Primaries, s.Backups, s.Joining) {
		if seen[id] {
			m.rt.Fatalf("%s has two places", id)
		}
		seen[id] = true
		if _, known := m.peers[id]; !known {
			m.rt.Fatalf("%s has a place and is no peer", id)
		}
		if _, out := m.out[id]; out {
			m.rt.Fatalf("%s has a place and is evicted", id)
		}
	}
	if s.Bindings > m.cfg.MaxBindings {
		m.rt.Fatalf("%d bindings", s.Bindings)
	}
	if s.Connections.Total() != len(m.conns) || len(m.conns) > m.cfg.MaxTotal {
		m.rt.Fatalf("the table counts %+v, there are %d: at most %d", s.Connections, len(m.conns), m.cfg.MaxTotal)
	}
	perPeer, open := map[string]int{}, map[string]bool{}
	for _, c := range m.conns {
		perPeer[c.peer]++
		open[c.peer] = open[c.peer] || c.open
		if perPeer[c.peer] > m.cfg.MaxPerPeer {
			m.rt.Fatalf("%d connections to %s", perPeer[c.peer], c.peer)
		}
	}
	for _, id := range slices.Concat(s.Primaries, s.Backups) {
		if !open[id] {
			m.rt.Fatalf("%s has a place and is not connected", id)
		}
	}
	for _, p := range s.Peers {
		if p.Weight < 0.1 || p.Weight > 1 || p.Estimate <= 0 || p.ErrorRate < 0 || p.ErrorRate > 1 {
			m.rt.Fatalf("out of range: %+v", p)
		}
	}
}

// quiet: every request ends, every opening succeeds, and in the end every place is
// held by a candidate that is near enough.
func (m *model) quiet() {
	for range 200 {
		m.now = m.now.Add(time.Second)
		m.step()
		for id, c := range m.conns {
			if !c.open {
				c.open = true
				m.table.Opened(id, m.now)
			}
		}
		for _, tk := range m.tickets {
			m.conns[tk.Link].inFlight--
			m.table.Release(tk, m.now)
		}
		m.tickets = nil
		m.step()
		m.check()
	}
	s := m.table.Status(m.now)
	places := min(m.table.wanted()+m.cfg.Backups, len(s.Candidates))
	if held := len(s.Primaries) + len(s.Backups); held < places {
		m.rt.Fatalf("after 200 s of quiet %d of %d places are held, candidates are %s", held, places, strings.Join(s.Candidates, " "))
	}
	if s.Connections.Draining > 0 || s.Connections.Total() < places {
		m.rt.Fatalf("connections after 200 s of quiet: %+v", s.Connections)
	}
	for _, p := range s.Peers {
		if p.Role != NoRole && p.Tier > s.Reach && len(s.Candidates) >= m.table.wanted()+m.cfg.Backups {
			m.rt.Fatalf("%s is %v, candidates are as near as %v", p.ID, p.Tier, s.Reach)
		}
	}
}
