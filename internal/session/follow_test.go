package session

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/membership"
)

// idleClient returns a client that is not started.
func idleClient(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(Config{
		Member: membership.Config{Cluster: "test", Environment: "ci", ID: "w1", Registerer: prometheus.NewRegistry()}, Seeds: []string{"127.0.0.1:1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// r1 is cut off from the other relays, so its row is itself alone. A worker that has found it from r3,
// and goes from r3 immediately, would stay with r1, and no other relay would see the worker.
func TestASessionOutsideOfTheRowEndsWhenAllOfTheRowHaveOne(t *testing.T) {
	c := idleClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is dialled fails
	relay := func(id string) RowRelay { return RowRelay{ID: id, Epoch: 1, Address: id + ".invalid:1"} }
	opened := func(id string, row ...RowRelay) *link {
		l := newLink(linkKey{address: id + ".invalid:1"}, id)
		l.began = time.Now().Add(-listTime)
		l.row = &Row{Version: 1, Self: id, Epoch: 1, Size: len(row), Relays: row}
		c.links[l.key] = l
		return l
	}
	third := opened("r3", relay("r1"), relay("r2"))
	first := opened("r1", relay("r1"))
	c.step(ctx)
	if third.moved.Load() || first.moved.Load() {
		t.Error("a session ends although r2 has none")
	}
	second := opened("r2", relay("r1"), relay("r2"))
	c.step(ctx)
	if !third.moved.Load() || first.moved.Load() || second.moved.Load() {
		t.Error("the session with r3 stays, or another ends")
	}
}

// The others see the death of a relay later than its workers, and a relay that they reach, and a worker
// does not, stays in the row.
func TestASessionOutsideOfTheRowEndsAlsoWhenASpareReplacesARelayOfTheRow(t *testing.T) {
	c := idleClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is dialled fails
	links := map[string]*link{}
	opened := func(size int, ids ...string) { // the relays of one row have the same
		row := &Row{Version: 1, Epoch: 1, Size: size}
		for _, id := range ids {
			row.Relays = append(row.Relays, RowRelay{ID: id, Epoch: 1, Address: id + ".invalid:1"})
		}
		for _, id := range []string{"a", "b", "c", "d"} {
			l := newLink(linkKey{address: id + ".invalid:1"}, id)
			l.began = time.Now().Add(-listTime)
			of := *row
			of.Self = id
			l.row, c.links[l.key], links[id] = &of, l, l
		}
	}
	moved := func() (ids string) {
		for _, id := range []string{"a", "b", "c", "d"} {
			if links[id].moved.Load() {
				ids += id
			}
		}
		return ids
	}
	opened(3, "x", "b", "c", "d") // a drains
	c.step(ctx)
	if got := moved(); got != "" {
		t.Errorf("moved from %q before x has failed", got)
	}
	c.running.Wait()
	for range 100 { // the order of maps
		if c.step(ctx); moved() != "a" {
			t.Fatalf("moved from %q, want only from a", moved())
		}
	}
	c.running.Wait()
	opened(3, "x", "b", "c")
	delete(c.links, links["d"].key)
	if c.step(ctx); moved() != "" {
		t.Errorf("moved from %q although no spare replaces x", moved())
	}
}

// Rows that are not of the same time have the same spares in another order.
func TestASpareThatIsOpenKeepsItsPlace(t *testing.T) {
	c := idleClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is dialled fails
	opened := func(id string, ids ...string) *link {
		l := newLink(linkKey{address: id + ".invalid:1"}, id)
		l.began = time.Now().Add(-listTime)
		l.row = &Row{Version: 1, Self: id, Epoch: 1, Size: 2}
		for _, id := range ids {
			l.row.Relays = append(l.row.Relays, RowRelay{ID: id, Epoch: 1, Address: id + ".invalid:1"})
		}
		c.links[l.key] = l
		return l
	}
	opened("a", "x", "a", "c", "d")
	spare := opened("d", "x", "a", "d", "c")
	c.tries["x.invalid:1"] = &tries{failures: 1, next: time.Now().Add(time.Hour)}
	for range 100 { // the order of maps
		if c.step(ctx); spare.moved.Load() || len(c.links) != 2 {
			t.Fatalf("moved from the spare: %t; %d sessions", spare.moved.Load(), len(c.links))
		}
	}
}

// A worker that is ready when it has as many relays as it sees must not be so with the first of three.
func TestAWorkerThatAttachesCountsTheRelaysThatItStillLacks(t *testing.T) {
	c := idleClient(t)
	relay := func(id string) RowRelay { return RowRelay{ID: id, Epoch: 1, Address: id + ".invalid:1"} }
	opened := func(id string) {
		l := newLink(linkKey{address: id + ".invalid:1"}, id)
		l.row = &Row{Version: 1, Self: id, Epoch: 1, Size: 3, Relays: []RowRelay{relay("r1"), relay("r2"), relay("r3"), relay("spare")}}
		c.links[l.key] = l
	}
	holds := func(joined bool, attaching int) {
		t.Helper()
		if s := c.Status(); s.Joined != joined || s.Attaching != attaching {
			t.Errorf("joined %v with %d relays to come, want %v and %d", s.Joined, s.Attaching, joined, attaching)
		}
	}
	holds(false, 0)
	opened("r1")
	holds(true, 2)
	opened("r2")
	holds(true, 1)
	c.tries[relay("r3").Address] = &tries{failures: 1}
	holds(true, 0)
}

// A program reports the error of a status to its user.
func TestAWorkerHasNoErrorBeforeAnAttemptToAttachHasFailed(t *testing.T) {
	c := idleClient(t)
	if s := c.Status(); s.Joined || s.Err != nil {
		t.Errorf("before the first attempt: %+v", s)
	}
	l := newLink(linkKey{address: "127.0.0.1:1"}, "")
	c.links[l.key] = l
	if s := c.Status(); s.Joined || s.Err != nil {
		t.Errorf("while the first attempt waits for an answer: %+v", s)
	}
	failed := errors.New("no answer")
	c.ends(l, failed)
	if s := c.Status(); s.Joined || !errors.Is(s.Err, failed) {
		t.Errorf("after it has failed: %+v", s)
	}
}

// l states of b what no other relay states, in the later epoch of a relay that has restarted.
func TestARowHidesNoAddressThatAnotherRowStates(t *testing.T) {
	c := idleClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is dialled fails
	opened := func(id string, row ...RowRelay) *link {
		l := newLink(linkKey{address: id + ".invalid:1"}, id)
		l.began = time.Now().Add(-listTime)
		l.row = &Row{Version: 1, Self: id, Epoch: 1, Size: len(row), Relays: row}
		c.links[l.key] = l
		return l
	}
	b := RowRelay{ID: "b", Epoch: 1, Address: "b.invalid:1"}
	lie := RowRelay{ID: "b", Epoch: 9, Address: "x.invalid:1"}
	dialled := func() map[string]bool {
		clear(c.tries)
		c.step(ctx)
		c.running.Wait()
		addresses := map[string]bool{}
		for address := range c.tries { // each dial that has ended leaves an entry
			addresses[address] = true
		}
		return addresses
	}
	opened("a", b)
	opened("l", lie)
	if !dialled()[b.Address] {
		t.Error("the address of one row is not dialled")
	}
	opened("d", b)
	self := opened("b", b)
	self.until = time.Now() // of an old certificate, so that another session is dialled
	if got := dialled(); !got[b.Address] || got[lie.Address] {
		t.Errorf("dialled %v, want what the relay states itself", got)
	}
}

// The rows of a fleet name a few relays. One that names sixty, which do not answer, delays no other.
func TestARowOfManyRelaysDelaysNoneOfTheOtherRows(t *testing.T) {
	c := idleClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is dialled fails
	opened := func(id string, relays ...string) {
		l := newLink(linkKey{address: id + ".invalid:1"}, id)
		l.began = time.Now().Add(-listTime)
		l.row = &Row{Version: 1, Self: id, Epoch: 1, Size: len(relays)}
		for _, id := range relays {
			l.row.Relays = append(l.row.Relays, RowRelay{ID: id, Epoch: 1, Address: id + ".invalid:1"})
		}
		c.links[l.key] = l
	}
	opened("a", "a", "l", "x", "y", "z")
	opened("d", "a", "l", "x", "y", "z")
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprint("n", i))
	}
	opened("l", many...)
	c.step(ctx)
	c.running.Wait() // each dial that has ended leaves an entry in tries
	for _, id := range []string{"x", "y", "z"} {
		if c.tries[id+".invalid:1"] == nil {
			t.Errorf("%s, which two rows name, is not dialled", id)
		}
	}
	if dials := len(c.tries); dials > 10 {
		t.Errorf("%d dials together, want 10: twice a row", dials)
	}
}
