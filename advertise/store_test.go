package advertise

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/ring"
)

var start = time.UnixMilli(1_800_000_000_000)

// drawRecords makes few instances and sequences, so that records collide.
func drawRecords(t *rapid.T) [][]byte {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []byte {
		r := Record{
			NodeID:   rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id"),
			Epoch:    rapid.Uint64Range(1, 2).Draw(t, "epoch"),
			Sequence: rapid.Uint64Range(1, 3).Draw(t, "sequence"),
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "services") {
			r.Services = append(r.Services, Service{Name: fmt.Sprint("s", i), Address: fmt.Sprint("h:", rapid.IntRange(1, 2).Draw(t, "port"))})
		}
		raw, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}), 0, 12).Draw(t, "records")
}

func workers(epochs map[string]uint64) (out []membership.Member) {
	for id, epoch := range epochs {
		out = append(out, membership.Member{ID: id, Epoch: epoch, Role: identity.RoleWorker})
	}
	return out
}

func snapshotOf(epochs map[string]uint64) *membership.Snapshot {
	return membership.NewSnapshot(1, "", workers(epochs))
}

func contents(s *store) map[instance]stamp {
	out := map[instance]stamp{}
	for key, e := range s.entries {
		out[key] = e.stamp
	}
	return out
}

func TestMergingIsIdempotentCommutativeAndAssociative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		alive := snapshotOf(map[string]uint64{"a": 1, "b": 2})
		one, other := newStore(storeConfig{}), newStore(storeConfig{})
		one.setMembers(alive, start)
		for _, raw := range records {
			_, _, _ = one.merge(raw, start)
		}
		shuffled := rapid.Permutation(slices.Concat(records, records)).Draw(t, "order")
		when := rapid.IntRange(0, len(shuffled)).Draw(t, "when the members are known")
		for i, raw := range shuffled {
			if i == when {
				other.setMembers(alive, start)
			}
			_, _, _ = other.merge(raw, start)
		}
		other.setMembers(alive, start)
		if got, want := contents(other), contents(one); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("one order gives %v, another %v", want, got)
		}
		if one.root != other.root || one.buckets != other.buckets {
			t.Fatalf("roots %x and %x of the same records", one.root, other.root)
		}
	})
}

func TestARecordOfAMemberThatIsNoWorkerIsRefusedWithItsReason(t *testing.T) {
	raw, err := Record{NodeID: "a", Epoch: 1, Sequence: 1, Services: []Service{{Name: "echo", Address: "h:1"}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []identity.Role{identity.RoleRelay, identity.RoleGate, identity.RoleObserver, identity.RoleWorker} {
		s := newStore(storeConfig{})
		s.setMembers(membership.NewSnapshot(1, "", []membership.Member{{ID: "a", Epoch: 1, Role: role}}), start)
		_, result, err := s.merge(raw, start)
		if worker := role == identity.RoleWorker; (result == applied) != worker || (result == wrongRole) == worker || (err == nil) != worker {
			t.Errorf("%s: %s, %v", role, result, err)
		}
	}
}

func TestTheRootIsAlwaysThatOfTheLiveRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := newStore(storeConfig{maxOrphans: 3, maxFloors: 2}), start
		for _, raw := range drawRecords(t) {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "minutes")) * time.Minute)
			epochs := map[string]uint64{}
			for _, id := range []string{"a", "b", "c"} {
				if e := rapid.Uint64Range(0, 2).Draw(t, id); e > 0 {
					epochs[id] = e
				}
			}
			s.setMembers(snapshotOf(epochs), now)
			_, _, _ = s.merge(raw, now)
			s.expire(now)
			var root uint64
			live := 0
			for id, epoch := range epochs {
				if e := s.entries[instance{id, epoch}]; e != nil {
					root ^= e.mix()
					live++
				}
			}
			if s.root != root {
				t.Fatalf("root %x, the live records make %x", s.root, root)
			}
			if s.orphans.Len() != len(s.entries)-live || s.orphans.Len() > 3 || s.floors.Len() > 2 || len(s.floorAt) != s.floors.Len() || len(s.orphanAt) != s.orphans.Len() {
				t.Fatalf("%d orphans and %d floors next to %d records, %d of them live", s.orphans.Len(), s.floors.Len(), len(s.entries), live)
			}
		}
	})
}

func TestViewsMadeInStepsEqualViewsMadeInOneStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStore(storeConfig{})
		b := newViewBuilder(s, anything())
		for _, raw := range drawRecords(t) {
			epochs := map[string]uint64{}
			for _, id := range []string{"a", "b", "c", "d"} {
				if e := rapid.Uint64Range(0, 2).Draw(t, id); e > 0 {
					epochs[id] = e
				}
			}
			for _, id := range s.setMembers(snapshotOf(epochs), start) {
				b.touch(id)
			}
			if e, result, _ := s.merge(raw, start); result == applied {
				b.touch(e.record.NodeID)
			}
			if rapid.Bool().Draw(t, "publish") {
				b.build(nil, start)
			}
		}
		last := b.build(nil, start)
		want, count := map[string][]string{}, 0
		for _, m := range s.members.Members() {
			if e, _ := s.visible(m.ID); e != nil {
				for _, service := range e.services() {
					want[service.Name] = append(want[service.Name], m.ID+" "+service.Address)
					count++
				}
			}
		}
		for name := range last.Services() {
			var ids, got []string
			for e := range last.Endpoints(name).All() {
				ids, got = append(ids, e.NodeID), append(got, e.NodeID+" "+e.Address)
			}
			if !ring.IsOrdered(name, ids) {
				t.Fatalf("%s: %v is not in ring order", name, ids)
			}
			slices.Sort(got)
			slices.Sort(want[name])
			if !slices.Equal(got, want[name]) {
				t.Fatalf("%s: %v, want %v", name, got, want[name])
			}
			delete(want, name)
		}
		if len(want) > 0 || last.EndpointCount() != count {
			t.Fatalf("missing %v; %d endpoints counted, want %d", want, last.EndpointCount(), count)
		}
	})
}

// merge decodes a record and takes it; nothing is signed here.
func (s *store) merge(raw []byte, now time.Time) (*entry, outcome, error) {
	record, signed, err := decodeRecord(raw)
	if err != nil {
		return nil, outcomeOf(err), err
	}
	return s.take(newEntry(record, raw, signed), now)
}
