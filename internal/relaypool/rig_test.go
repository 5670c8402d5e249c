package relaypool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
)

// rig drives a table with a clock of its own. Connections open immediately, unless the
// peer refuses or openings are held.
type rig struct {
	*table
	t      testing.TB
	now    time.Time
	refuse map[string]bool
	hold   bool

	opening []opening
	open    map[linkID]string
	events  []Event
	next    time.Time
}

func config() Config {
	cfg := DefaultConfig()
	cfg.Selector = "gate-1"
	cfg.Rand = rand.New(rand.NewPCG(1, 2)).Uint64
	return cfg
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	table, err := newTable(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{table: table, t: t, now: time.Unix(1_000_000, 0), refuse: map[string]bool{}, open: map[linkID]string{}}
}

// relays are n peers: r1, r2, …
func relays(n int) []Peer {
	peers := make([]Peer, n)
	for i := range peers {
		peers[i] = Peer{ID: fmt.Sprintf("r%d", i+1), Address: fmt.Sprintf("10.0.0.%d:7410", i+1)}
	}
	return peers
}

func (r *rig) update(peers []Peer) *rig {
	r.t.Helper()
	if err := r.Update(peers, r.now); err != nil {
		r.t.Fatal(err)
	}
	return r.step()
}

var errRefused = errors.New("connection refused")

// step does what the table asks for until it asks for nothing.
func (r *rig) step() *rig {
	for {
		a := r.Step(r.now)
		r.next = a.Next
		r.events = append(r.events, a.Events...)
		for _, id := range a.Close {
			delete(r.open, id)
			r.opening = slices.DeleteFunc(r.opening, func(o opening) bool { return o.Link == id })
		}
		r.opening = append(r.opening, a.Open...)
		if r.hold || len(r.opening) == 0 {
			if len(a.Open) == 0 && !r.pending() {
				return r
			}
			continue
		}
		r.finish(r.opening[0])
	}
}

// finish ends one opening.
func (r *rig) finish(o opening) {
	r.opening = slices.DeleteFunc(r.opening, func(p opening) bool { return p == o })
	if r.refuse[o.Peer.ID] {
		r.OpenFailed(o.Link, errRefused, r.now)
		return
	}
	r.open[o.Link] = o.Peer.ID
	r.Opened(o.Link, r.now)
}

// wait lets time pass, with a step whenever the table asked for one.
func (r *rig) wait(d time.Duration) *rig {
	end := r.now.Add(d)
	for r.step(); !r.next.After(end); r.step() {
		if !r.next.After(r.now) {
			r.t.Fatalf("Next is %v, and it is %v", r.next, r.now)
		}
		r.now = r.next
	}
	r.now = end
	return r.step()
}

// request asks for a connection, and expects one that is open.
func (r *rig) request(q Request) ticket {
	r.t.Helper()
	tk, err := r.Acquire(q, r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	if !tk.Ready {
		r.t.Fatalf("%s is not connected yet", tk.Peer.ID)
	}
	return tk
}

// end reports and releases.
func (r *rig) end(tk ticket, o selection.Outcome, took time.Duration) {
	r.Report(tk, o, took, r.now)
	r.Release(tk, r.now)
	r.step()
}

// traffic sends n requests, one after the other, answered as the function specifies; a
// nil function answers all in a millisecond.
func (r *rig) traffic(n int, answer func(id string) (selection.Outcome, time.Duration)) map[string]int {
	r.t.Helper()
	if answer == nil {
		answer = func(string) (selection.Outcome, time.Duration) { return selection.Success, time.Millisecond }
	}
	got := map[string]int{}
	for range n {
		tk := r.request(Request{})
		got[tk.Peer.ID]++
		o, took := answer(tk.Peer.ID)
		r.wait(took)
		r.end(tk, o, took)
	}
	return got
}

// to sends one request to the given primary, by excluding the others.
func (r *rig) to(id string, o selection.Outcome, took time.Duration) {
	r.t.Helper()
	s := r.Status(r.now)
	tk := r.request(Request{Exclude: slices.DeleteFunc(slices.Concat(s.Primaries, s.Backups), func(other string) bool { return other == id })})
	if tk.Peer.ID != id {
		r.t.Fatalf("asked for %s, got %s", id, tk.Peer.ID)
	}
	r.end(tk, o, took)
}

func (r *rig) status() Status { return r.Status(r.now) }

func (r *rig) peer(id string) PeerStatus {
	r.t.Helper()
	for _, p := range r.status().Peers {
		if p.ID == id {
			return p
		}
	}
	r.t.Fatalf("no peer %q", id)
	return PeerStatus{}
}

// told returns what happened since the last call, in words.
func (r *rig) told(kinds ...Kind) []string {
	var out []string
	for _, e := range r.events {
		if len(kinds) > 0 && !slices.Contains(kinds, e.Kind) {
			continue
		}
		words := []string{e.Kind.String(), e.Peer}
		if e.Reason != "" {
			words = append(words, string(e.Reason))
		}
		if e.Role != NoRole {
			words = append(words, e.Role.String())
		}
		out = append(out, strings.Join(words, " "))
	}
	r.events = nil
	return out
}

func want[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}
