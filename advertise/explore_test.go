package advertise

import (
	"container/list"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/clusterscript"
	"github.com/ringway/ringway/internal/explore"
	"github.com/ringway/ringway/membership"
)

// The model below has one worker with two lives and a few records of each, and two members that hear its
// records in any order, again, from each other or never, see it alive or gone when they like, and
// drop what they keep of it when time passes.

const (
	exploredLives   = 2
	exploredRecords = 2 // of a life, at most
)

// observer is a member of the model: a store of production, and the newest record of each life that
// it has shown.
type observer struct {
	store *store
	alive uint64 // the life that it sees; 0: none
	last  uint64 // the highest that it saw: membership never goes back to a lower one
	shown map[uint64]stamp
}

type recordWorld struct {
	life      uint64 // the worker's; 0 before its first
	up        bool
	published [exploredLives + 1]uint64 // the highest sequence by life
	waits     int
	observers [2]observer
}

// recordRules are the functions of the store that the model calls, in which a test plants a fault,
// and the size of the model.
type recordRules struct {
	take   func(*store, *entry, time.Time)
	second uint64 // records of the second life
	waits  int    // how often orphanAge passes
}

var realRecordRules = recordRules{take: func(s *store, e *entry, now time.Time) { _, _, _ = s.take(e, now) }, second: 1, waits: 1}

func (w recordWorld) now() time.Time { return start.Add(time.Duration(w.waits) * orphanAge) }

// clone copies a store: entries never change, the rest does.
func (s *store) clone() *store {
	c := *s
	c.entries = maps.Clone(s.entries)
	c.orphans, c.orphanAt = list.New(), map[instance]*list.Element{}
	for at := s.orphans.Front(); at != nil; at = at.Next() {
		c.orphanAt[at.Value.(orphan).instance] = c.orphans.PushBack(at.Value)
	}
	c.floors, c.floorAt = list.New(), map[instance]*list.Element{}
	for at := s.floors.Front(); at != nil; at = at.Next() {
		c.floorAt[at.Value.(floor).instance] = c.floors.PushBack(at.Value)
	}
	return &c
}

// change returns the world after f has changed a copy of an observer, and what it shows then.
func (w recordWorld) change(i int, f func(*observer)) recordWorld {
	o := &w.observers[i]
	o.store, o.shown = o.store.clone(), maps.Clone(o.shown)
	f(o)
	if e, _ := o.store.visible("w"); e != nil && e.stamp.compare(o.shown[e.record.Epoch]) > 0 {
		o.shown[e.record.Epoch] = e.stamp
	}
	return w
}

func (o *observer) see(life uint64, now time.Time) {
	o.alive, o.last = life, max(o.last, life)
	o.store.setMembers(exploredSnapshots[life], now)
}

// exploredSnapshots and exploredEntries are immutable, and made once.
var exploredSnapshots, exploredEntries = func() (snapshots [exploredLives + 1]*membership.Snapshot, entries [exploredLives + 1][exploredRecords + 1]*entry) {
	snapshots[0] = snapshotOf(nil)
	for life := uint64(1); life <= exploredLives; life++ {
		snapshots[life] = snapshotOf(map[string]uint64{"w": life})
		for sequence := uint64(1); sequence <= exploredRecords; sequence++ {
			raw, err := Record{NodeID: "w", Epoch: life, Sequence: sequence}.Encode()
			if err != nil {
				panic(err)
			}
			record, signed, err := decodeRecord(raw)
			if err != nil {
				panic(err)
			}
			entries[life][sequence] = newEntry(record, raw, signed)
		}
	}
	return snapshots, entries
}()

func (r recordRules) steps(w recordWorld) (steps []explore.Step[recordWorld]) {
	step := func(next func() recordWorld, format string, args ...any) {
		steps = append(steps, explore.Step[recordWorld]{Name: fmt.Sprintf(format, args...), Next: next})
	}
	if !w.up && w.life < exploredLives {
		step(func() recordWorld { w := w; w.life++; w.up = true; return w }, "w starts")
	}
	if most := [...]uint64{0, exploredRecords, r.second}; w.up && w.published[w.life] < most[w.life] {
		step(func() recordWorld { w := w; w.published[w.life]++; return w }, "w publishes")
	}
	if w.up {
		step(func() recordWorld { w := w; w.up = false; return w }, "w crashes")
	}
	if w.waits < r.waits {
		step(func() recordWorld {
			w := w
			w.waits++
			for i := range w.observers {
				w = w.change(i, func(o *observer) { o.store.expire(w.now()) })
			}
			return w
		}, "time passes")
	}
	for i, o := range w.observers {
		for life := uint64(1); life <= w.life; life++ {
			for sequence := uint64(1); sequence <= w.published[life]; sequence++ {
				step(func() recordWorld {
					return w.change(i, func(o *observer) { r.take(o.store, exploredEntries[life][sequence], w.now()) })
				}, "m%d hears record %d of life %d", i+1, sequence, life)
			}
			if life >= o.last && life != o.alive {
				step(func() recordWorld { return w.change(i, func(o *observer) { o.see(life, w.now()) }) }, "m%d sees life %d", i+1, life)
			}
		}
		if o.alive > 0 {
			step(func() recordWorld { return w.change(i, func(o *observer) { o.see(0, w.now()) }) }, "m%d sees it fail", i+1)
		}
		other := w.observers[1-i]
		if e, _ := other.store.visible("w"); e != nil {
			step(func() recordWorld {
				return w.change(i, func(o *observer) { r.take(o.store, e, w.now()) })
			}, "m%d compares with m%d", i+1, 2-i)
		}
	}
	return steps
}

// key is the same for worlds in which the two members have changed places.
func (w recordWorld) key() string {
	var members []string
	for _, o := range w.observers {
		var b strings.Builder
		fmt.Fprint(&b, o.alive, o.last)
		for life := uint64(1); life <= exploredLives; life++ {
			at := instance{"w", life}
			fmt.Fprint(&b, " ", o.shown[life].sequence)
			if e := o.store.entries[at]; e != nil {
				fmt.Fprint(&b, "e", e.stamp.sequence)
			}
			if x := o.store.orphanAt[at]; x != nil {
				fmt.Fprint(&b, "o", x.Value.(orphan).seen, x.Value.(orphan).since.Sub(start)/orphanAge)
			}
			if x := o.store.floorAt[at]; x != nil {
				fmt.Fprint(&b, "f", x.Value.(floor).stamp.sequence)
			}
		}
		members = append(members, b.String())
	}
	slices.Sort(members)
	return fmt.Sprint(w.life, w.up, w.published, w.waits, members)
}

// check is what must hold in each state: no member shows an older record of a life than it has shown
// before, or one of a life that it does not see; the summary is that of what it shows; and with the
// newest record it shows the newest.
func (r recordRules) check(w recordWorld) error {
	for i, o := range w.observers {
		e, m := o.store.visible("w")
		var root uint64
		if e != nil {
			root = e.mix()
			if e.record.Epoch != o.alive || m.Epoch != o.alive {
				return fmt.Errorf("m%d shows life %d and sees life %d", i+1, e.record.Epoch, o.alive)
			}
			if e.stamp.compare(o.shown[e.record.Epoch]) < 0 {
				return fmt.Errorf("m%d shows record %d of life %d again, after a newer one", i+1, e.stamp.sequence, e.record.Epoch)
			}
		}
		if o.store.root != root {
			return fmt.Errorf("the summary of m%d is not that of what it shows", i+1)
		}
		if newest := w.published[w.life]; w.up && newest > 0 {
			after := w.change(i, func(o *observer) {
				o.see(w.life, w.now())
				r.take(o.store, exploredEntries[w.life][newest], w.now())
			})
			if e, _ := after.observers[i].store.visible("w"); e == nil || e.stamp.sequence != newest || e.record.Epoch != w.life {
				return fmt.Errorf("m%d does not show the newest record when it hears it", i+1)
			}
		}
	}
	return nil
}

func (r recordRules) model() explore.Model[recordWorld] {
	var w recordWorld
	for i := range w.observers {
		w.observers[i] = observer{store: newStore(storeConfig{}), shown: map[uint64]stamp{}}
	}
	return explore.Model[recordWorld]{Start: w, Steps: r.steps, Key: recordWorld.key, Check: r.check, Most: 3_000_000}
}

// With LONG_TESTS=1 both lives have two records and time passes twice: 132,939 states.
func TestNoOrderOfEventsShowsAnOldRecordOrHidesTheNewest(t *testing.T) {
	r, least := realRecordRules, 10_000
	switch {
	case clusterscript.Raced: // the states have no goroutines
		r.waits, least = 0, 1_000
	case os.Getenv("LONG_TESTS") != "":
		r.second, r.waits, least = exploredRecords, 2, 100_000
	}
	result, err := r.model().Explore()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d steps, depth %d", result.States, result.Steps, result.Depth)
	if result.States < least {
		t.Errorf("only %d states: the model has lost events", result.States)
	}
}

func TestTheExplorerFindsFaultsOfTheStore(t *testing.T) {
	for name, test := range map[string]struct {
		take  func(*store, *entry, time.Time)
		steps int
	}{
		"a store that forgets its floors": {func(s *store, e *entry, now time.Time) {
			if at, ok := s.floorAt[e.instance()]; ok {
				s.dropFloor(at)
			}
			_, _, _ = s.take(e, now)
		}, 9},
		"a store that takes what it hears last": {func(s *store, e *entry, now time.Time) {
			if known := s.entries[e.instance()]; known != nil && known.stamp.compare(e.stamp) > 0 {
				s.forget(known)
				delete(s.entries, e.instance())
			}
			_, _, _ = s.take(e, now)
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			explore.Planted(t, recordRules{test.take, 1, 1}.model(), realRecordRules.model(), test.steps)
		})
	}
}
