package advertise

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// filled is a store of these records, merged in their order; two of the workers
// live, in different epochs.
func filled(records ...[]byte) *store {
	s := newStore(storeConfig{})
	s.setMembers(snapshotOf(map[string]uint64{"a": 1, "b": 2}), start)
	for _, raw := range records {
		_, _, _ = s.merge(raw, start)
	}
	return s
}

// plus is what a store becomes that hears all another one holds.
func (s *store) plus(o *store) *store {
	sum := filled(s.held()...)
	for _, raw := range o.held() {
		_, _, _ = sum.merge(raw, start)
	}
	return sum
}

func (s *store) held() (raws [][]byte) {
	for e := range maps.Values(s.entries) {
		raws = append(raws, e.raw)
	}
	return raws
}

func same(a, b *store) bool {
	return maps.Equal(contents(a), contents(b)) && a.root == b.root && a.buckets == b.buckets
}

func TestStoresMergeLikeSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := filled(drawRecords(t)...), filled(drawRecords(t)...), filled(drawRecords(t)...)
		if !same(a.plus(a), a) {
			t.Fatal("not idempotent: a store that hears its own records is another")
		}
		if !same(a.plus(b), b.plus(a)) {
			t.Fatal("not commutative: the order of merges matters")
		}
		if !same(a.plus(b).plus(c), a.plus(b.plus(c))) {
			t.Fatal("not associative: the order of meetings matters")
		}
		if sum := a.plus(b); !same(sum.plus(a), sum) || !same(sum.plus(b), sum) {
			t.Fatal("the sum does not hold what was added")
		}
	})
}

// The reference keeps every record it ever heard and looks for the largest.
func TestTheStoreHoldsTheLargestRecordOfEachInstance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, model := filled(), map[instance][]stamp{}
		for _, raw := range drawRecords(t) {
			record, _, err := decodeRecord(raw)
			if err != nil {
				t.Fatal(err)
			}
			at := instance{record.NodeID, record.Epoch}
			before := contents(s)[at]
			heard := newEntry(record, raw, signedPart{}).stamp
			_, result, _ := s.merge(raw, start)
			if newer := heard.compare(before) > 0; newer != (result == applied) || !newer && result != old {
				t.Fatalf("%v after %v is %s", heard, before, result)
			}
			model[at] = append(model[at], heard)
		}
		want := map[instance]stamp{}
		for at, heard := range model {
			want[at] = slices.MaxFunc(heard, stamp.compare)
		}
		if got := contents(s); !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// recount computes from scratch what the store keeps up step by step.
func recount(t *rapid.T, s *store) {
	t.Helper()
	var root uint64
	var parts [buckets]uint64
	orphans, orphanBytes := map[instance]bool{}, 0
	for at, e := range s.entries {
		if at != e.instance() {
			t.Fatalf("the record of %v is filed under %v", e.instance(), at)
		}
		if m, ok := s.members.Get(at.id); ok && m.Epoch == at.epoch {
			root ^= e.mix()
			parts[bucketOf(at.id)] ^= e.mix()
		} else {
			orphans[at] = true
			orphanBytes += len(e.raw)
		}
	}
	var all uint64
	for _, part := range s.buckets {
		all ^= part
	}
	if s.root != root || s.buckets != parts || all != root {
		t.Fatalf("root %x of buckets %x, the live records make %x", s.root, all, root)
	}
	if s.orphanBytes != orphanBytes || s.orphans.Len() != len(orphans) || len(s.orphanAt) != len(orphans) {
		t.Fatalf("%d orphans of %d bytes, %d and %d are counted", len(orphans), orphanBytes, s.orphans.Len(), s.orphanBytes)
	}
	for at, element := range s.orphanAt {
		if o := element.Value.(orphan); o.instance != at || !orphans[at] {
			t.Fatalf("%v is an orphan and filed under %v", o.instance, at)
		}
	}
	for at, element := range s.floorAt {
		if f := element.Value.(floor); f.instance != at || s.entries[at] != nil {
			t.Fatalf("the floor of %v is filed under %v, or there is a record, too", f.instance, at)
		}
	}
	if len(s.floorAt) != s.floors.Len() {
		t.Fatalf("%d floors are listed, %d filed", s.floors.Len(), len(s.floorAt))
	}
	if s.orphans.Len() > s.cfg.maxOrphans || s.orphanBytes > s.cfg.maxOrphanBytes || s.floors.Len() > s.cfg.maxFloors {
		t.Fatalf("%d orphans of %d bytes and %d floors, more than %+v", s.orphans.Len(), s.orphanBytes, s.floors.Len(), s.cfg)
	}
}

// drawMembers decides who lives and in which life.
func drawMembers(t *rapid.T) map[string]uint64 {
	epochs := map[string]uint64{}
	for _, id := range []string{"a", "b", "c", "d"} {
		if e := rapid.Uint64Range(0, 2).Draw(t, id); e > 0 {
			epochs[id] = e
		}
	}
	return epochs
}

func TestEverySumAndBoundAlwaysHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStore(storeConfig{
			maxOrphans: rapid.IntRange(1, 4).Draw(t, "orphans"), maxOrphanBytes: rapid.IntRange(20, 150).Draw(t, "orphan bytes"),
			maxFloors: rapid.IntRange(1, 3).Draw(t, "floors"),
		})
		now := start
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for _, raw := range drawRecords(t) {
				switch rapid.IntRange(0, 3).Draw(t, "first") {
				case 0:
					s.setMembers(snapshotOf(drawMembers(t)), now)
				case 1:
					now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "hours")) * time.Hour / 2)
					s.expire(now)
				}
				_, _, _ = s.merge(raw, now)
				recount(t, s)
			}
		}
		s.setMembers(snapshotOf(nil), now)
		recount(t, s)
		s.expire(now.Add(orphanAge))
		recount(t, s)
		s.expire(now.Add(orphanAge + floorAge))
		if recount(t, s); len(s.entries)+s.floors.Len() != 0 || s.root != 0 {
			t.Fatalf("of a cluster that is gone %d records and %d floors are left", len(s.entries), s.floors.Len())
		}
	})
}

// Whatever is replayed, and whichever members leave, fail and return within the 24 hours
// of a floor: what a worker has shown once is never followed by something older.
func TestNothingWithdrawnReturnsWithinADay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStore(storeConfig{maxOrphans: rapid.IntRange(2, 8).Draw(t, "orphans")})
		records := drawRecords(t)
		if len(records) == 0 {
			return
		}
		now, shown := start, map[instance]stamp{}
		for range 40 {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				s.setMembers(snapshotOf(drawMembers(t)), now)
			case 1: // 40 steps are less than a day
				now = now.Add(time.Duration(rapid.IntRange(1, 35).Draw(t, "minutes")) * time.Minute)
				s.expire(now)
			default:
				_, _, _ = s.merge(rapid.SampledFrom(records).Draw(t, "replayed"), now)
			}
			for _, m := range s.members.Members() {
				at := instance{m.ID, m.Epoch}
				if e, _ := s.visible(m.ID); e != nil {
					if e.stamp.compare(shown[at]) < 0 {
						t.Fatalf("%v shows %v after %v", at, e.stamp, shown[at])
					}
					shown[at] = e.stamp
				}
			}
		}
	})
}

// A worker that falls silent is gone when membership reports it; its record stays for
// ten minutes, its floor for a day from then, neither longer.
func TestASilentWorkersRecordStaysTenMinutesAndItsFloorADay(t *testing.T) {
	encoded := func(sequence uint64) []byte {
		raw, err := Record{NodeID: "a", Epoch: 1, Sequence: sequence}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	newest, stale := encoded(2), encoded(1)
	s := filled(stale, newest)
	s.setMembers(snapshotOf(nil), start)
	if e, _ := s.visible("a"); e != nil || s.root != 0 {
		t.Error("the record of a worker that is gone is visible")
	}
	for _, step := range []struct {
		after           time.Duration
		records, floors int
		stale           outcome
	}{
		{orphanAge - 1, 1, 0, old},
		{orphanAge, 0, 1, old},
		{orphanAge + floorAge - 1, 0, 1, old},
		{orphanAge + floorAge, 0, 0, applied}, // of a life that ended a day ago
	} {
		now := start.Add(step.after)
		s.expire(now)
		if len(s.entries) != step.records || s.floors.Len() != step.floors {
			t.Errorf("after %v %d records and %d floors, want %d and %d", step.after, len(s.entries), s.floors.Len(), step.records, step.floors)
		}
		if _, result, _ := s.merge(stale, now); result != step.stale {
			t.Errorf("after %v the stale record is %s, want %s", step.after, result, step.stale)
		}
	}
}

// A record in this node's name that it did not write changes nothing here.
func TestNoOtherMemberWritesInOurName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := filled(drawRecords(t)...)
		ours := Record{NodeID: "a", Epoch: 1, Sequence: 2}
		raw, err := ours.Encode()
		if err != nil {
			t.Fatal(err)
		}
		s.write(newEntry(ours, raw, signedPart{}), start)
		before, written := contents(s), s.written
		for _, raw := range drawRecords(t) {
			record, _, err := decodeRecord(raw)
			if err != nil {
				t.Fatal(err)
			}
			e, result, _ := s.merge(raw, start)
			if record.NodeID == "a" && record.Epoch == 1 {
				if forged := newEntry(record, raw, signedPart{}).stamp.compare(written) > 0; forged != (result == foreign) || !forged && result != old {
					t.Fatalf("%v after ours of %v is %s", e, written, result)
				}
			}
		}
		self := instance{"a", 1}
		if got := contents(s)[self]; got != before[self] {
			t.Fatalf("our record is %v, want %v", got, before[self])
		}
	})
}

func TestAMergeKeepsACopy(t *testing.T) {
	raw, err := Record{NodeID: "a", Epoch: 1, Sequence: 1, Services: echo(1)}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	frame := slices.Clone(raw)
	s := filled(frame)
	clear(frame) // its reader reuses it
	if e, _ := s.visible("a"); !slices.Equal(e.raw, raw) || len(e.services()) != 1 {
		t.Errorf("the store holds %q, want %q", e.raw, raw)
	}
}
