package presence

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership"
)

// A reader that applies the frames from any point on has the list of the writer, and its hash.
func TestAReaderThatAppliesTheChangesHasTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		writer := &log{list: *newList()}
		reader := newList()
		catchUp := func() {
			frames, ok := writer.after(reader.sequence)
			if !ok {
				t.Fatalf("the changes after %d are forgotten", reader.sequence)
			}
			for _, c := range frames {
				for _, g := range c.gone {
					reader.drop(g.instance)
				}
				for _, w := range c.listed {
					reader.put(w)
				}
				reader.sequence = c.sequence
			}
			if reader.sequence != writer.sequence || reader.hash != writer.hash || !maps.Equal(reader.workers, writer.workers) {
				t.Fatalf("reader %d %v\nwriter %d %v", reader.sequence, reader.workers, writer.sequence, writer.workers)
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w := worker(fmt.Sprintf("w%d", rapid.IntRange(1, 4).Draw(t, "id")), uint64(rapid.IntRange(1, 3).Draw(t, "epoch")), uint64(rapid.IntRange(1, 3).Draw(t, "sequence")))
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				writer.drop(w.instance, false)
			case 1:
				catchUp()
			default:
				writer.put(w)
			}
		}
		catchUp()
	})
}

func TestAReaderThatIsTooFarBehindGetsTheWholeList(t *testing.T) {
	l := &log{list: *newList()}
	for i := range 3 * keptChanges {
		l.put(worker("w1", 1, uint64(i+1)))
	}
	if len(l.changes) > 2*keptChanges {
		t.Errorf("%d changes are kept", len(l.changes))
	}
	if _, ok := l.after(1); ok {
		t.Error("the first change is still known")
	}
	if _, ok := l.after(l.sequence + 1); ok {
		t.Error("a sequence of the future is taken: it is that of another life")
	}
	for i := range 2*listedPerFrame + 1 {
		l.put(worker(fmt.Sprintf("v%d", i), 1, 1))
	}
	got, frames := newList(), l.whole()
	for i, c := range frames {
		if c.more != (i < len(frames)-1) {
			t.Errorf("frame %d of %d: more is %v", i, len(frames), c.more)
		}
		for _, w := range c.listed {
			got.put(w)
		}
	}
	if got.hash != l.hash || len(got.workers) != len(l.workers) {
		t.Errorf("%d workers, want %d", len(got.workers), len(l.workers))
	}
}

func relays(n int) (out []membership.Member) {
	for i := range n {
		out = append(out, membership.Member{ID: fmt.Sprintf("r%02d", i), Epoch: 1, Role: "relay", ForwardAddr: fmt.Sprintf("10.0.0.%d:7420", i)})
	}
	return out
}

// 2,000 workers and 20 relays: each has 300 sessions, give or take. One relay less moves its own.
func TestRowsAreEvenAndARelayThatGoesMovesOnlyItsOwn(t *testing.T) {
	const workers, size = 2000, 3
	all := relays(20)
	count := map[string]int{}
	moved := 0
	for i := range workers {
		id := fmt.Sprintf("w%d", i)
		before, after := rowOf(id, all, size), rowOf(id, all[1:], size)
		if len(before) != size {
			t.Fatalf("%s has %v", id, before)
		}
		had := false
		for _, relay := range before {
			count[relay.ID]++
			had = had || relay.ID == all[0].ID
		}
		kept := 0
		for _, a := range before {
			for _, b := range after {
				if a == b {
					kept++
				}
			}
		}
		if had {
			moved++
			kept++
		}
		if kept != size {
			t.Errorf("%s had %v and has %v", id, before, after)
		}
	}
	for id, n := range count {
		if n < 240 || n > 360 {
			t.Errorf("%s has %d sessions, the mean is 300", id, n)
		}
	}
	if moved != count[all[0].ID] {
		t.Errorf("%d sessions moved, the relay had %d", moved, count[all[0].ID])
	}
}

func TestRelaysThatDrainOrLeaveAreInNoRowWhileThereAreOthers(t *testing.T) {
	all := relays(3)
	all[0].Draining, all[1].Leaving = true, true
	if row := rowOf("w1", all, 3); len(row) != 1 || row[0].ID != all[2].ID {
		t.Errorf("%v", row)
	}
	all[2].Draining = true
	if row := rowOf("w1", all, 3); len(row) != 3 {
		t.Errorf("all drain, and the row is %v: it should be as if none did", row)
	}
}
