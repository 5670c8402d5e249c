package trust

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/membership/internal/gossip"
)

func TestStreamsAndExchangesOfANodeAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newExchanges(t.Context(), 0, func() int { return 0 })
		var open []*place
		for range 20 {
			if p := x.open("thief"); p != nil {
				open = append(open, p)
			}
		}
		if len(open) != streamsPerNode {
			t.Fatalf("%d streams are open, want %d", len(open), streamsPerNode)
		}
		if !open[0].take(10) {
			t.Fatal("the first exchange is refused")
		}
		begun := time.Now()
		if open[1].take(10) || time.Since(begun) != exchangeWait {
			t.Errorf("a second exchange next to the first, after %v", time.Since(begun))
		}
		if p := x.open("honest"); p == nil || !p.take(10) {
			t.Error("the exchange of another node is refused")
		}
		go func() { time.Sleep(time.Second); open[0].close(); open[0].close() }()
		if begun = time.Now(); !open[2].take(10) || time.Since(begun) != time.Second {
			t.Errorf("the turn of a closed stream is not given on, after %v", time.Since(begun))
		}
		for _, p := range open {
			p.close()
		}
		// What was announced counts for a minute.
		p := x.open("thief")
		if p.take(x.announced()) {
			t.Error("more states than one minute allows")
		}
		p.close()
		time.Sleep(time.Minute)
		if p = x.open("thief"); !p.take(x.announced()) {
			t.Error("refused a minute later")
		}
		x.sweep()
		if p.close(); len(x.nodes) != 2 {
			t.Errorf("%d nodes are kept, want 2", len(x.nodes))
		}
		time.Sleep(time.Minute)
		if x.sweep(); len(x.nodes) != 1 {
			t.Errorf("%d nodes are kept, want the one with a stream", len(x.nodes))
		}
	})
}

func TestFourFullExchangesHaveRoomTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members = 20_000
		x := newExchanges(t.Context(), members, func() int { return members })
		var taken []*place
		for n := range 5 {
			p := x.open(fmt.Sprint("n", n))
			if p.take(members) {
				taken = append(taken, p)
			}
		}
		if len(taken) != fullExchanges {
			t.Fatalf("%d exchanges together, want %d", len(taken), fullExchanges)
		}
		go func() { time.Sleep(time.Second); taken[0].close() }()
		if !x.open("n5").take(members) {
			t.Error("the room of a closed exchange is not given on")
		}
		// A small fleet is not limited by it.
		x = newExchanges(t.Context(), members, func() int { return 1000 })
		for n := range 100 {
			if !x.open(fmt.Sprint("n", n)).take(1) {
				t.Fatalf("joiner %d of a fleet of 1,000 is refused", n)
			}
		}
		// An end of the node ends the waits.
		ctx, stop := context.WithCancel(t.Context())
		x = newExchanges(ctx, 0, func() int { return 0 })
		a, b := x.open("n"), x.open("n")
		a.take(1)
		stop()
		if begun := time.Now(); b.take(1) || time.Since(begun) > 0 {
			t.Errorf("waited %v after the end", time.Since(begun))
		}
	})
}

// received is what memberlist reads from a stream, by its own steps: a header, then as many states.
func received(passed []byte) (states []gossip.State, err error) {
	if len(passed) == 0 || passed[0] != gossip.KindExchange {
		return nil, errors.New("no state exchange")
	}
	decoder := codec.NewDecoder(bytes.NewReader(passed[1:]), &codec.MsgpackHandle{})
	var header gossip.ExchangeHeader
	if err := decoder.Decode(&header); err != nil {
		return nil, err
	}
	for range header.Nodes {
		var s gossip.State
		if err := decoder.Decode(&s); err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	return states, nil
}

// full makes the metadata of a member as long as it may be.
func full(d *gossip.Metadata, _ *gossip.Alive) {
	d.Version = "1"
	body, _ := d.Encode(MaxSignature)
	d.Version = strings.Repeat("1", memberlist.MetaMaxSize-MaxSignature-len(body)-2)
}

func (m *guarded) fullState(t testing.TB) gossip.State {
	t.Helper()
	var a gossip.Alive
	if err := gossip.Decode(m.alive(t, full)[1:], &a); err != nil {
		t.Fatal(err)
	}
	return gossip.State{Name: a.Node, Addr: a.Addr, Port: a.Port, Meta: a.Meta, Incarnation: 1, Vsn: a.Vsn}
}

// A relay that joins a fleet at the limit gets all members. Of those that have just died it needs
// only the ones that it knows.
func TestAnExchangeOfTheLargestFleetPasses(t *testing.T) {
	w := newWire(t)
	const members = 1500 // more than the least M
	by, to := w.member("by", nil), w.member("to", func(s *setup) { s.MaxMembers = members })
	w.acquainted(by, to)
	var states, living []gossip.State
	for i := range members {
		m := w.member(fmt.Sprintf("m%d", i), nil)
		m.addr = fmt.Sprintf("10.1.%d.%d:7400", i/256, i%256)
		if _, err := to.proofs.learn(m.cfg.Identity.Chain()); err != nil {
			t.Fatal(err)
		}
		s := m.fullState(t)
		if len(s.Meta) < memberlist.MetaMaxSize-2 {
			t.Fatalf("metadata of %d bytes is not full", len(s.Meta))
		}
		dead := gossip.State{Name: fmt.Sprintf("d%d.1", i), Addr: s.Addr, Port: s.Port, Incarnation: 1, State: 2, Vsn: s.Vsn}
		states, living = append(states, s, dead), append(living, s)
	}
	raw := exchanged(t, to.header, states...)
	place := to.exchanges.open("by")
	passed, err := io.ReadAll(&inspected{Conn: stream{in: bytes.NewReader(raw)}, guard: to.Guard, by: announcer{"by", by.addr}, labelled: true, place: place})
	if want := exchanged(t, to.header, living...); err != nil || !bytes.Equal(passed, want) {
		t.Errorf("%d bytes, want %d: %v", len(passed), len(want), err)
	}
	if n := testutil.CollectAndCount(to.cfg.Dropped); n == 0 || to.dropped(dropTooMany)+to.dropped(dropUnproven)+to.dropped(DropMetadata) > 0 {
		t.Error("states of an honest member are dropped")
	}
}

func TestAnExchangeKeepsNoMoreThanThereIs(t *testing.T) {
	w := newWire(t)
	by, to := w.member("by", nil), w.member("to", nil)
	w.acquainted(by, to)
	own := by.fullState(t)
	long, longer := own, own
	long.Meta = make([]byte, memberlist.MetaMaxSize+1)
	longer.Meta = make([]byte, maxState)
	dead := func(n int, meta int) gossip.State {
		return gossip.State{Name: fmt.Sprintf("x%d.1", n), Addr: own.Addr, Port: 1, Meta: make([]byte, meta), Incarnation: 1, State: 2, Vsn: own.Vsn}
	}
	longName, longAddr, longVersions, longVersionsDead := dead(1, 0), dead(1, 0), own, dead(1, 0)
	longName.Name = "x." + strings.Repeat("0", 100) + "1"
	longAddr.Addr = make([]byte, 17)
	longVersions.Name, longVersions.Vsn = "x.1", make([]uint8, 7)
	longVersionsDead.Vsn = longVersions.Vsn
	var repeated, many []gossip.State
	for n := range 3000 {
		repeated = append(repeated, own)
		gone := dead(n, 400)
		gone.Name = own.Name // others are unknown
		many = append(many, gone)
	}
	for _, c := range []struct {
		name   string
		states []gossip.State
		kept   int
		reason string
		count  int
	}{
		{"one instance again and again", repeated, 1, dropTooMany, 2999},
		{"more than M that do not live", many, leastStates, dropTooMany, 3000 - leastStates},
		{"a living one with long metadata", []gossip.State{own, long}, 1, DropMetadata, 1},
		{"a dead one with long metadata", []gossip.State{own, dead(1, memberlist.MetaMaxSize+1)}, 1, DropMetadata, 1},
		{"names, addresses and versions that are too long", []gossip.State{own, longName, longAddr, longVersions, longVersionsDead}, 1, DropMessageFormat, 4},
		{"a state that no member sends", []gossip.State{own, longer}, -1, DropMessageFormat, 1},
		{"more than an exchange may announce", slices.Repeat([]gossip.State{dead(1, 0)}, 4*leastStates+1), -1, dropTooMany, 1},
	} {
		before := to.dropped(c.reason)
		passed, err := io.ReadAll(&inspected{Conn: stream{in: bytes.NewReader(exchanged(t, nil, c.states...))}, guard: to.Guard, by: announcer{"by", by.addr}})
		if got := to.dropped(c.reason) - before; got != c.count {
			t.Errorf("%s: %d counted as %s, want %d", c.name, got, c.reason, c.count)
		}
		if c.kept < 0 {
			if err == nil {
				t.Errorf("%s: the exchange passes", c.name)
			}
			continue
		}
		states, err := received(passed)
		if err != nil || len(states) != c.kept {
			t.Errorf("%s: memberlist reads %d states, want %d: %v", c.name, len(states), c.kept, err)
		}
		for _, s := range states {
			if s.State != gossip.StateAlive && len(s.Meta) > 0 {
				t.Errorf("%s: memberlist reads metadata of %d bytes, which it does not use", c.name, len(s.Meta))
			}
		}
	}
}
