package advertise

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/ring"
)

// joined is a store and a view of it, without network or clock.
type joined struct {
	t       tester
	store   *store
	builder *viewBuilder
	epochs  map[string]uint64
	leaving map[string]bool
	now     time.Time
}

func newJoined(t tester) *joined {
	s := newStore(storeConfig{})
	return &joined{t: t, store: s, builder: newViewBuilder(s, anything()), epochs: map[string]uint64{}, leaving: map[string]bool{}, now: start}
}

// lives sets the life that a worker is in, 0 when it is gone, and publishes.
func (j *joined) lives(id string, epoch uint64) *View {
	if j.epochs[id] = epoch; epoch == 0 {
		delete(j.epochs, id)
	}
	return j.members()
}

func (j *joined) members() *View {
	all := workers(j.epochs)
	for i := range all {
		all[i].Leaving = j.leaving[all[i].ID]
	}
	for _, id := range j.store.setMembers(membership.NewSnapshot(1, "", all), j.now) {
		j.builder.touch(id)
	}
	return j.publish()
}

// hears merges a record and publishes.
func (j *joined) hears(id string, epoch, sequence uint64, services ...Service) *View {
	j.t.Helper()
	raw, err := Record{NodeID: id, Epoch: epoch, Sequence: sequence, Services: services}.Encode()
	if err != nil {
		j.t.Fatal(err)
	}
	if _, result, _ := j.store.merge(raw, j.now); result == applied {
		j.builder.touch(id)
	}
	return j.publish()
}

func (j *joined) publish() (v *View) {
	v = j.builder.build(j.store.members, j.now)
	return v
}

func offered(name string, port int) Service {
	return Service{Name: name, Address: fmt.Sprint("h:", port)}
}

// The reference is a map from worker to endpoint, sorted when it is read.
func TestEndpointsAreWhatAPlainMapWouldHoldInRingOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, model := newEndpoints("echo"), map[string]*Endpoint{}
		type published struct {
			endpoints *Endpoints
			held      map[string]*Endpoint
		}
		var history []published
		// Batches of very different sizes, so that the ring is cut up and down.
		for range rapid.IntRange(1, 8).Draw(t, "batches") {
			size := rapid.SampledFrom([]int{0, 1, 2, 20, 300}).Draw(t, "size")
			first := rapid.IntRange(0, 400).Draw(t, "first")
			gone := rapid.IntRange(0, 3).Draw(t, "kept of three") // of those in the batch
			var changes []change
			for i := range size {
				c := change{worker: fmt.Sprint("w", first+i)}
				if c.was = model[c.worker]; i%3 < gone {
					c.is = &Endpoint{offered("echo", 1+i), &Worker{NodeID: c.worker}}
					model[c.worker] = c.is
				} else if delete(model, c.worker); c.was == nil {
					continue
				}
				changes = append(changes, c)
			}
			e = e.with(changes)
			history = append(history, published{e, maps.Clone(model)})
		}
		for _, p := range history { // the older ones, too, are what they were
			want := make([]*Endpoint, 0, len(p.held))
			for _, id := range ring.Order("echo", slices.Collect(maps.Keys(p.held))) {
				want = append(want, p.held[id])
			}
			if got := slices.Collect(p.endpoints.All()); !slices.Equal(got, want) || p.endpoints.count != len(want) {
				t.Fatalf("%d endpoints %v, want %v", p.endpoints.count, got, want)
			}
			for i := range 90 {
				id := fmt.Sprint("w", 8*i)
				if p.endpoints.Of(id) != p.held[id] {
					t.Fatalf("%s has %v, want %v", id, p.endpoints.Of(id), p.held[id])
				}
			}
		}
	})
}

// What a change copies is the list of arcs and one arc: neither may be long.
func TestAChangeCopiesAboutTheSquareRootOfAService(t *testing.T) {
	e, workers := newEndpoints("echo"), 0
	for workers < 5000 {
		var changes []change
		for range 1 + workers/8 { // small steps at first, then larger ones
			id := fmt.Sprint("w", workers)
			changes = append(changes, change{worker: id, is: &Endpoint{Worker: &Worker{NodeID: id}}})
			workers++
		}
		e = e.with(changes)
		longest := 0
		for _, arc := range e.arcs {
			longest = max(longest, len(arc))
		}
		if n := float64(e.count); float64(longest*longest) > 80*n+400 || float64(len(e.arcs)*len(e.arcs)) > 16*n+16 {
			t.Fatalf("%d endpoints in %d arcs of up to %d", e.count, len(e.arcs), longest)
		}
	}
	var all []change
	for endpoint := range e.All() {
		all = append(all, change{worker: endpoint.NodeID, was: endpoint})
	}
	if e = e.with(all[7:]); len(e.arcs) > 4 || e.count != 7 {
		t.Errorf("%d endpoints of %d are left in %d arcs", e.count, workers, len(e.arcs))
	}
}

func TestAServiceThatDidNotChangeKeepsItsEndpoints(t *testing.T) {
	j := newJoined(t)
	j.lives("w1", 1)
	j.lives("w2", 1)
	j.hears("w1", 1, 1, offered("echo", 1), offered("other", 1))
	before := j.hears("w2", 1, 1, offered("echo", 1), offered("other", 1))
	after := j.hears("w1", 1, 2, offered("echo", 1), offered("other", 2), offered("third", 3))
	if after.Endpoints("echo") != before.Endpoints("echo") {
		t.Error("echo has new endpoints although only other and third changed")
	}
	if after.Endpoints("other") == before.Endpoints("other") || after.Endpoints("other").Of("w2") != before.Endpoints("other").Of("w2") {
		t.Error("other has old endpoints, or a new one of w2, which changed nothing")
	}
	if e, _ := before.Endpoint("other", "w1"); e.Address != "h:1" {
		t.Errorf("the view of before shows %v", e)
	}
}

// The place on the ring is the id's alone: publishing again, as after a forged
// record or a reconnect, moves nothing and wakes no watcher.
func TestARepeatedOfferChangesNothing(t *testing.T) {
	j := newJoined(t)
	j.lives("w1", 1)
	before := j.hears("w1", 1, 1, offered("echo", 1), offered("other", 1))
	after := j.hears("w1", 1, 9, offered("other", 1), offered("echo", 1)) // in whatever order
	if after.Endpoints("echo") != before.Endpoints("echo") {
		t.Errorf("the same offer under a higher sequence changed the endpoints")
	}
}

func TestANewVersionTakesTheOldOnesPlaceInTheRing(t *testing.T) {
	j := newJoined(t)
	for _, id := range []string{"w1", "w2", "w3", "w4"} {
		j.lives(id, 1)
		j.hears(id, 1, 1, Service{Name: "echo", Address: "h:1", Version: "v1"})
	}
	before := j.publish().workers("echo")
	j.hears("w2", 1, 2, Service{Name: "echo", Address: "h:1", Version: "v2"}) // in the same life
	j.lives("w3", 2)                                                          // and in the next
	v := j.hears("w3", 2, 1, Service{Name: "echo", Address: "h:1", Version: "v2"})
	if got := v.workers("echo"); !slices.Equal(got, before) || v.EndpointCount() != 4 {
		t.Errorf("workers %v, want %v as before", got, before)
	}
	for id, want := range map[string]string{"w1": "v1", "w2": "v2", "w3": "v2"} {
		if e, _ := v.Endpoint("echo", id); e.Version != want {
			t.Errorf("%s shows version %q, want %q", id, e.Version, want)
		}
	}
}

func TestAWorkerThatLeavesIsDrainingBeforeItIsGone(t *testing.T) {
	j := newJoined(t)
	j.lives("w1", 1)
	j.lives("w2", 1)
	j.hears("w1", 1, 1, offered("echo", 1))
	before := j.hears("w2", 1, 1, offered("echo", 1))
	j.leaving["w1"] = true
	v := j.members()
	if e, ok := v.Endpoint("echo", "w1"); !ok || e.State != Draining || !slices.Equal(v.workers("echo"), []string{"w2"}) {
		t.Errorf("w1 leaves: it shows %v, and %v take new work; want it draining and w2 alone", e, v.workers("echo"))
	}
	if e, _ := before.Endpoint("echo", "w1"); e.State != Ready {
		t.Error("the view of before has changed")
	}
	if v = j.lives("w1", 0); v.Endpoints("echo").count != 1 {
		t.Errorf("w1 is gone, %v are left", v.Endpoints("echo"))
	}
}

// The record of a worker that was out of sight is kept: nothing is fetched again.
func TestAWorkerThatIsBackWithTheSameEpochOffersImmediately(t *testing.T) {
	j := newJoined(t)
	j.lives("w1", 1)
	before := j.hears("w1", 1, 3, offered("echo", 1))
	gone := j.lives("w1", 0)
	j.now = j.now.Add(orphanAge - time.Second)
	j.store.expire(j.now)
	back := j.lives("w1", 1)
	if gone.EndpointCount() != 0 || gone.Checksum() == before.Checksum() {
		t.Errorf("a view without the worker shows %v", gone.Endpoints("echo"))
	}
	if back.EndpointCount() != 1 || back.Checksum() != before.Checksum() {
		t.Errorf("the worker is back and offers %v", back.Endpoints("echo"))
	}
}

// No position or other bookkeeping comes from the record, so there is nothing a
// record of another build could lack.
func TestAnOfferOfAnOlderBuildGoesAsCompletelyAsAnyOther(t *testing.T) {
	j := newJoined(t)
	empty := j.lives("w1", 1)
	// [1, "w1", 1, 1, [["echo", "h:1", 0, 10, 0, 0, "", []]]] as the first build wrote it
	raw := append([]byte{0x95, 1, 0xa2, 'w', '1', 1, 1, 0x91, 0x98, 0xa4}, "echo\xa3h:1\x00\x0a\x00\x00\xa0\x90"...)
	if e, _, err := j.store.merge(raw, j.now); err != nil {
		t.Fatal(err)
	} else {
		j.builder.touch(e.record.NodeID)
	}
	if v := j.publish(); v.EndpointCount() != 1 {
		t.Fatalf("%d endpoints, want 1", v.EndpointCount())
	}
	if v := j.hears("w1", 1, 2); v.EndpointCount() != 0 || v.Endpoints("echo").count != 0 || len(j.builder.offers) != 0 {
		t.Errorf("withdrawn and still there: %v", v.Endpoints("echo"))
	}
	j.lives("w1", 0)
	j.now = j.now.Add(orphanAge)
	j.store.expire(j.now)
	if v := j.publish(); v.Checksum() != empty.Checksum() || len(j.store.entries) != 0 {
		t.Errorf("checksum %x with %d records, want %x with none", v.Checksum(), len(j.store.entries), empty.Checksum())
	}
}

func TestOfVanishedServicesTheNewest4096AreKnownForADay(t *testing.T) {
	j := newJoined(t)
	j.lives("w1", 1)
	const names = maxVanished + 500
	for sequence, from := uint64(1), 0; from < names; from += MaxServices {
		var services []Service
		for i := from; i < min(names, from+MaxServices); i++ {
			services = append(services, offered(fmt.Sprintf("s%05d", i), 1))
		}
		j.hears("w1", 1, sequence, services...) // what it offered before vanishes
		sequence++
		j.now = j.now.Add(time.Minute)
	}
	v := j.hears("w1", 1, 100)
	for i := MaxServices; i < names; i++ { // of the first to vanish, all in one step, some are forgotten
		if !v.known(fmt.Sprintf("s%05d", i)) {
			t.Errorf("s%05d is forgotten before older ones", i)
		}
	}
	if v.serviceCount() != maxVanished {
		t.Errorf("%d services are known, want the newest %d", v.serviceCount(), maxVanished)
	}
	if got := slices.Collect(v.Services()); len(got) != maxVanished || !slices.IsSorted(got) {
		t.Errorf("%d services are listed, or not sorted", len(got))
	}
	j.hears("w1", 1, 101, offered("s04000", 1))
	j.now = j.now.Add(knownAge)
	if v = j.publish(); v.serviceCount() != 1 || !v.known("s04000") || len(j.builder.gone) != 0 || j.builder.vanished.Len() != 0 {
		t.Errorf("a day later %v are known, want s04000 alone, which is offered again", slices.Collect(v.Services()))
	}
}

// Removal is one step: all that a reader sees belongs to a worker that lives in
// that very view, in its place of the ring, and the counts agree.
func TestNoReaderEverSeesAnEndpointOfAWorkerThatIsGone(t *testing.T) {
	j := newJoined(t)
	var current atomic.Pointer[View]
	current.Store(j.publish())
	stop, met := make(chan struct{}), atomic.Int64{}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				v, count := current.Load(), 0
				for name := range v.Services() {
					var ids []string
					for e := range v.Endpoints(name).All() {
						if m, there := v.Members().Get(e.NodeID); !there || m.Epoch != e.Epoch {
							t.Errorf("view %d: %v, whose worker is gone", v.version, e)
							return
						}
						ids = append(ids, e.NodeID)
					}
					count += len(ids)
					if !ring.IsOrdered(name, ids) || len(ids) != v.Endpoints(name).count {
						t.Errorf("view %d: %v of %s are not in order", v.version, ids, name)
						return
					}
				}
				if count != v.EndpointCount() {
					t.Errorf("view %d: %d endpoints, %d counted", v.version, count, v.EndpointCount())
					return
				}
				met.Add(int64(count))
			}
		})
	}
	for i := 0; i < 400 || met.Load() < 2000; i++ {
		id, epoch := fmt.Sprint("w", i*7%23), uint64(1+i/100)
		current.Store(j.lives(id, epoch))
		current.Store(j.hears(id, epoch, uint64(i+1), offered("echo", 1+i), offered(fmt.Sprint("s", i%3), 1)))
		current.Store(j.lives(fmt.Sprint("w", i*11%23), 0))
	}
	close(stop)
	readers.Wait()
}

// String is what failures print, and what tests compare.
func (e Endpoint) String() string { return fmt.Sprintf("%+v %+v", e.Service, e.Worker) }

func (e *Endpoints) String() string { return fmt.Sprint(slices.Collect(e.All())) }

func (v *View) known(service string) bool {
	_, known := v.find(service)
	return known
}

// workers are the workers of a service that take new requests, in ring order.
func (v *View) workers(service string) (ids []string) {
	for e := range v.Endpoints(service).All() {
		if e.State == Ready {
			ids = append(ids, e.NodeID)
		}
	}
	return ids
}
