package routing

import (
	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/publish"
)

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

func (s Slots) forService(service string) slotsSet {
	n, set := s[service]
	if !set {
		n, set = s[""]
	}
	return slotsSet{n, set}
}

// Effective returns the fewest and the most slots of the endpoints of a service that take
// requests, and where they come from. 0 is no limit, which is more than any number.
func (s Slots) Effective(service string, endpoints []*advertise.Endpoint) (least, most int, origin Origin) {
	if of := s.forService(service); of.set {
		if _, own := s[service]; own {
			return of.n, of.n, FromServiceSetting
		}
		return of.n, of.n, FromSetting
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
		return 0, 0, FromDefault
	}
	return least, most, FromAdvertisement
}

// SetSlots replaces the operator's slots. Services whose slots change get another route soon.
// It may be called from any goroutine, before Run too.
func (r *Router) SetSlots(slots Slots) {
	r.slots.Store(&slots)
	publish.Notify(r.replan)
}

// slotsOf returns the slots of an endpoint, 0 without a limit.
func (r *Router) slotsOf(e *advertise.Endpoint) int {
	if of := r.slots.Load().forService(e.Name); of.set {
		return of.n
	}
	return int(e.Slots)
}

// slotShare returns how many requests this relay may have in flight at an endpoint whose slots the
// given number of relays share, 0 without a bound.
func (r *Router) slotShare(e *advertise.Endpoint, relays int) int {
	slots := r.slotsOf(e)
	if slots == 0 {
		return 0
	}
	return (slots-1)/max(relays, 1) + 1
}
