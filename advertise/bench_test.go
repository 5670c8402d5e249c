package advertise

import (
	"fmt"
	"testing"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// crowd is a store and view of 10,000 workers with three services each.
type crowd struct {
	tb       testing.TB
	services int // of these workers together
	members  []membership.Member
	store    *store
	builder  *viewBuilder
}

const crowdSize = 10_000

func newCrowd(tb testing.TB, services int) *crowd {
	f := &crowd{tb: tb, services: services, store: newStore(storeConfig{})}
	f.builder = newViewBuilder(f.store, anything())
	for i := range crowdSize {
		f.members = append(f.members, f.member(i))
	}
	f.setMembers(f.members)
	return f
}

func (f *crowd) member(i int) membership.Member {
	return membership.Member{
		ID: fmt.Sprintf("worker-%05d", i), Epoch: 1_790_000_000_000, Role: identity.RoleWorker, Cluster: "prod", Environment: "eu",
		Datacenter: "dc-1", Region: "eu-west", GossipAddr: fmt.Sprintf("10.0.%d.%d:7401", i/256, i%256), Version: "v1.4.2",
	}
}

func (f *crowd) setMembers(members []membership.Member) {
	for _, id := range f.store.setMembers(membership.NewSnapshot(1, "", members), start) {
		f.builder.touch(id)
	}
}

// record is what a worker publishes. The weight changes with the sequence.
func (f *crowd) record(worker, sequence int) []byte {
	r := Record{NodeID: f.members[worker].ID, Epoch: f.members[worker].Epoch, Sequence: uint64(sequence)}
	for j := range 3 {
		r.Services = append(r.Services, Service{
			Name: fmt.Sprintf("service-%05d", (3*worker+j)%f.services), Address: fmt.Sprintf("10.0.%d.%d:%d", worker/256, worker%256, 8080+j),
			Weight: int32(1 + sequence%100), Version: "v1.4.2",
		})
	}
	raw, err := r.Encode()
	if err != nil {
		f.tb.Fatal(err)
	}
	return raw
}

func (f *crowd) apply(raw []byte) {
	e, result, err := f.store.merge(raw, start)
	if err != nil || result != applied {
		f.tb.Fatal(result, err)
	}
	f.builder.touch(e.record.NodeID)
}

func (f *crowd) publish() *View {
	v := f.builder.build(nil, start)
	return v
}

func (f *crowd) fill() *View {
	for i := range crowdSize {
		f.apply(f.record(i, 1))
	}
	return f.publish()
}

// offerOthers adds other services, all of one worker that never changes,
// or of as many workers as it takes.
func (f *crowd) offerOthers(n int) {
	members := f.members
	var raws [][]byte
	for i := 0; i < n; i += MaxServices {
		m := f.member(crowdSize + i/MaxServices)
		members = append(members, m)
		r := Record{NodeID: m.ID, Epoch: m.Epoch, Sequence: 1}
		for j := i; j < min(n, i+MaxServices); j++ {
			r.Services = append(r.Services, Service{Name: fmt.Sprintf("other-%05d", j), Address: "10.1.0.1:8080"})
		}
		raw, err := r.Encode()
		if err != nil {
			f.tb.Fatal(err)
		}
		raws = append(raws, raw)
	}
	f.setMembers(members)
	for _, raw := range raws {
		f.apply(raw)
	}
	f.publish()
}

// BenchmarkOneChange is one worker of 10,000 that changes its record, which names
// three services, to the published view.
func BenchmarkOneChange(b *testing.B) {
	for _, services := range []int{30, 3} {
		for _, others := range []int{30, 3_000, 30_000} {
			b.Run(fmt.Sprintf("services=%d/others=%d", services, others), func(b *testing.B) {
				f := newCrowd(b, services)
				f.fill()
				f.offerOthers(others)
				raws := make([][]byte, 4096)
				for i := range raws {
					raws[i] = f.record(i%1024, 2+i/1024)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if i%len(raws) == 0 && i > 0 {
						b.StopTimer() // sequences only grow
						for j := range raws {
							raws[j] = f.record(j%1024, 2+(i+j)/1024)
						}
						b.StartTimer()
					}
					f.apply(raws[i%len(raws)])
					f.publish()
				}
			})
		}
	}
}

// BenchmarkOneMember is one worker of 10,000 that fails or returns, to the
// published view. The snapshots are there already.
func BenchmarkOneMember(b *testing.B) {
	f := newCrowd(b, 30)
	f.fill()
	both := [2]*membership.Snapshot{membership.NewSnapshot(1, "", f.members[1:]), membership.NewSnapshot(1, "", f.members)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for _, id := range f.store.setMembers(both[i%2], start) {
			f.builder.touch(id)
		}
		f.publish()
	}
}

// BenchmarkAllRecords is what a joiner does with all it is sent.
func BenchmarkAllRecords(b *testing.B) {
	f := newCrowd(b, 3)
	raws := make([][]byte, crowdSize)
	for i := range raws {
		raws[i] = f.record(i, 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		f := &crowd{tb: b, store: newStore(storeConfig{}), members: f.members}
		f.builder = newViewBuilder(f.store, anything())
		f.setMembers(f.members)
		for _, raw := range raws {
			f.apply(raw)
		}
		f.publish()
	}
}

func BenchmarkLookup(b *testing.B) {
	f := newCrowd(b, 30)
	v := f.fill()
	b.Run("service", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if v.Endpoints("service-00017").count == 0 {
				b.Fatal("not found")
			}
		}
	})
	b.Run("endpoint", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := v.Endpoint("service-00000", "worker-00010"); !ok {
				b.Fatal("not found")
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			weight := 0
			for e := range v.Endpoints("service-00017").All() {
				weight += int(e.Weight)
			}
			if weight == 0 {
				b.Fatal("none")
			}
		}
	})
}
