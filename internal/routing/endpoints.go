package routing

import (
	"slices"
	"sync/atomic"

	"github.com/ringway/ringway/advertise"
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

// changeNotifier is a change that others wait for. The zero value is ready. All methods may be called
// from any goroutine.
type changeNotifier struct{ waiting atomic.Pointer[chan struct{}] }

// next returns a channel that the next fire closes.
func (s *changeNotifier) next() <-chan struct{} {
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
func (s *changeNotifier) fire() {
	if ch := s.waiting.Swap(nil); ch != nil {
		close(*ch)
	}
}
