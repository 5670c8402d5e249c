package presence

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/ringway/ringway/membership"
)

// threeList returns the view of r4: r1, r2 and r3 list w1, in its life 7 with record 5, and r0 lies.
func threeList(lie func(*listed)) *Fleet {
	f := &Fleet{
		cfg: membership.Config{ID: "r4"}, own: log{list: *newList()}, lists: map[string]*foreign{},
		records: map[instance]uint64{{"w1", 7}: 5}, asked: map[instance]time.Time{},
	}
	for _, relay := range []string{"r0", "r1", "r2", "r3"} {
		w := worker("w1", 7, 5)
		w.draining = false
		if relay == "r0" {
			lie(&w)
		}
		f.lists[relay] = &foreign{list: *newList()}
		f.lists[relay].put(w)
	}
	return f
}

func TestALyingRelayMovesDrainsAndRemovesNoWorkerOfOthers(t *testing.T) {
	elsewhere := netip.MustParseAddr("10.9.9.9")
	for name, lie := range map[string]func(*listed){
		"a host":                  func(w *listed) { w.host = elsewhere },
		"a host and any sequence": func(w *listed) { w.host, w.sequence = elsewhere, math.MaxUint64 },
		"a drain":                 func(w *listed) { w.draining = true },
		"a drain, any sequence":   func(w *listed) { w.draining, w.sequence = true, math.MaxUint64 },
		"a later life":            func(w *listed) { w.epoch = math.MaxUint64 },
		"an earlier life":         func(w *listed) { w.epoch = 1 },
		"a sequence":              func(w *listed) { w.sequence = math.MaxUint64 },
	} {
		best, _ := threeList(lie).choose(time.Now())
		w, there := best["w1"]
		if !there || w.epoch != 7 || w.host != netip.MustParseAddr("10.0.0.5") || w.draining {
			t.Errorf("%s: there %t, %+v", name, there, w)
		}
	}
}

func TestAWorkerOfWhichNoRecordIsHereIsAskedForAndNotChosen(t *testing.T) {
	f := threeList(func(*listed) {})
	clear(f.records)
	best, wants := f.choose(time.Now())
	if len(best) != 0 || len(wants) != 1 || f.missing != 1 {
		t.Errorf("chosen %v, wanted %v, missing %d", best, wants, f.missing)
	}
}

func TestALifeThatALyingRelayInventsHidesNoNewOne(t *testing.T) {
	f := threeList(func(w *listed) { w.epoch = math.MaxUint64 })
	for _, relay := range []string{"r1", "r2", "r3"} {
		w := f.lists[relay].workers["w1"]
		w.epoch = 8
		f.lists[relay].put(w)
	}
	_, wants := f.choose(time.Now())
	asked := map[instance]bool{}
	for _, wanted := range wants {
		for _, i := range wanted {
			asked[i] = true
		}
	}
	if !asked[instance{"w1", 8}] {
		t.Errorf("wanted are %v: the new life is never proven", wants)
	}
	f.records[instance{"w1", 8}] = 1
	if best, _ := f.choose(time.Now()); best["w1"].epoch != 8 {
		t.Errorf("%+v", best["w1"])
	}
}

func TestADrainThatMostRelaysStateCounts(t *testing.T) {
	f := threeList(func(*listed) {})
	for _, relay := range []string{"r1", "r2", "r3"} {
		w := f.lists[relay].workers["w1"]
		w.draining = true
		f.lists[relay].put(w)
	}
	if best, _ := f.choose(time.Now()); !best["w1"].draining {
		t.Errorf("%+v", best["w1"])
	}
}
