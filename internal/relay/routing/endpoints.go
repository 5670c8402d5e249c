package routing

import (
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
)

// Endpoints returns the endpoints among which Service.Pick chooses, in the order of the range,
// and a channel that is closed when they may have changed. For a service that is not known
// there are none, and the channel is closed when any service appears: a channel for each
// unknown name would let callers fill the memory with names.
func (r *Router) Endpoints(service string) ([]*advertise.Endpoint, <-chan struct{}) {
	appeared := r.appeared.next() // before the lookup, so that no change after the lookup is missed
	if s, known := r.Service(service); known {
		changed := s.changed.next()
		if !s.Gone() { // Retire fires after it has set this
			return s.Route().endpoints(), changed
		}
	}
	return nil, appeared
}

// endpoints returns the endpoints of the range.
func (r *Route) endpoints() []*advertise.Endpoint {
	out := make([]*advertise.Endpoint, len(r.Range))
	for i, t := range r.Range {
		out[i] = t.Endpoint
	}
	return out
}

// sameEndpoints reports whether two routes have the same endpoints in their ranges.
func sameEndpoints(a, b *Route) bool {
	return slices.EqualFunc(a.Range, b.Range, func(s, t *Target) bool { return s.Endpoint == t.Endpoint })
}

// signal is a change that others wait for. The zero value is ready. All methods may be called
// from any goroutine.
type signal struct{ waiting atomic.Pointer[chan struct{}] }

// next returns a channel that the next fire closes.
func (s *signal) next() <-chan struct{} {
	for {
		if ch := s.waiting.Load(); ch != nil {
			return *ch
		}
		ch := make(chan struct{})
		if s.waiting.CompareAndSwap(nil, &ch) {
			return ch
		}
	}
}

// fire is called after the change.
func (s *signal) fire() {
	if ch := s.waiting.Swap(nil); ch != nil {
		close(*ch)
	}
}

// PlanVersion returns a hash of the plan, 0 without a plan. Relays with the same plan of a
// service have the same version. It is computed at the first call, because only records of
// requests need it.
func (r *Route) PlanVersion() uint64 {
	if r == nil || r.Plan == nil {
		return 0
	}
	if v := r.version.Load(); v != 0 {
		return v
	}
	v := max(r.hashPlan(), 1)
	r.version.Store(v) // a concurrent call computes the same
	return v
}

// hashPlan hashes what the connections of all relays follow from.
func (r *Route) hashPlan() uint64 {
	h := xxhash.New()
	text := func(s string) {
		_, _ = h.WriteString(s) // a hash returns no error
		_, _ = h.Write([]byte{0})
	}
	number := func(n int) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(n))
		_, _ = h.Write(b[:])
	}
	text(r.Plan.Service())
	text(string(r.Plan.Strategy()))
	minimums := r.Plan.Minimums()
	number(minimums.PeersPerWorker)
	number(minimums.PeersPerRelay)
	for _, worker := range r.Plan.Workers() {
		text(worker)
	}
	for i, relay := range r.Plan.Affine() {
		text(relay)
		ranges, _ := r.Plan.Ranges(i) // i is an index of the plan
		for _, each := range ranges {
			number(each.Start())
			number(each.Len())
		}
	}
	return h.Sum64()
}

// KeySlots is the key of the slots in the policy of a service.
const KeySlots = "slots"

// Slots are the operator's slots of each worker by service, under "" those of all others.
// They replace what workers advertise; 0 is no limit.
type Slots map[string]int

// slotsSet is what a Slots has for one service.
type slotsSet struct {
	n   int
	set bool
}

func (s Slots) of(service string) slotsSet {
	n, set := s[service]
	if !set {
		n, set = s[""]
	}
	return slotsSet{n, set}
}

// Effective returns the fewest and the most slots of the endpoints of a service that take
// requests, and where they come from. 0 is no limit, which is more than any number.
func (s Slots) Effective(service string, endpoints []*advertise.Endpoint) (least, most int, origin api.Origin) {
	if of := s.of(service); of.set {
		if _, own := s[service]; own {
			return of.n, of.n, api.FromServiceSetting
		}
		return of.n, of.n, api.FromSetting
	}
	first := true
	for _, e := range endpoints {
		if e.State != advertise.Ready {
			continue
		}
		n := int(e.Slots)
		if first || n > 0 && (least == 0 || n < least) {
			least = n
		}
		if first || n == 0 || most > 0 && n > most {
			most = n
		}
		first = false
	}
	if least == 0 {
		return 0, 0, api.FromDefault
	}
	return least, most, api.FromAdvertisement
}

// SetSlots replaces the operator's slots. Services whose slots change get another route soon.
// It may be called from any goroutine, before Run too.
func (r *Router) SetSlots(slots Slots) {
	r.slots.Store(&slots)
	select {
	case r.reslot <- struct{}{}:
	default:
	}
}

// slotsOf returns the slots of an endpoint, 0 without a limit.
func (r *Router) slotsOf(e *advertise.Endpoint) int {
	if of := r.slots.Load().of(e.Name); of.set {
		return of.n
	}
	return int(e.Slots)
}
