package advertise

import (
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/ringway/ringway/membership"
)

// View is what is on offer at one moment. It is immutable: hold it as long as
// you like, share it between goroutines, never write to it. Finding a service or
// an endpoint takes no lock and allocates nothing.
type View struct {
	version  uint64
	checksum uint64
	services *iradix.Tree[*Endpoints] // known services; empty where all endpoints are gone
	count    int
	members  *membership.Snapshot
	refused  []Refusal
	settled  bool
}

// Version grows by one with every view a node publishes. Versions of two nodes
// are not comparable; use Checksum for that.
func (v *View) Version() uint64 { return v.version }

// Checksum is equal on all members that agree on which workers live and what
// they offer.
func (v *View) Checksum() uint64 { return v.checksum }

// Members is the snapshot that the records were joined with, so that relays and
// endpoints of one moment can be read together. It is nil until the first
// snapshot has arrived.
func (v *View) Members() *membership.Snapshot { return v.members }

// Settled reports whether the view can be trusted to be whole: its records were
// compared with those of another member, or there is no other member. Before that, a
// service that is missing may only not have been heard of yet. The first worker that
// appears unsettles the views until records were compared again.
func (v *View) Settled() bool { return v.settled }

// Services goes through the known services in the sense of [View.Known], sorted.
func (v *View) Services() iter.Seq[string] {
	return func(yield func(string) bool) {
		if v.services != nil {
			v.services.Root().Walk(func(_ []byte, e *Endpoints) bool { return !yield(e.service) })
		}
	}
}

// ServiceCount is the number of known services.
func (v *View) ServiceCount() int {
	if v.services == nil {
		return 0
	}
	return v.services.Len()
}

// Endpoints are a service's, never nil. They are empty for a service whose
// workers are all gone and for one nobody ever offered; Known tells them apart.
func (v *View) Endpoints(service string) *Endpoints {
	if e, known := v.find(service); known {
		return e
	}
	return noEndpoints
}

// Known reports whether the service has an endpoint, or had one here within the
// last 24 hours (as far as the newest 4,096 vanished names go).
func (v *View) Known(service string) bool {
	_, known := v.find(service)
	return known
}

func (v *View) find(service string) (*Endpoints, bool) {
	if v.services == nil || len(service) > MaxNameBytes {
		return nil, false
	}
	var key [MaxNameBytes]byte // on the stack
	return v.services.Get(key[:copy(key[:], service)])
}

// EndpointCount is the number of endpoints of all services.
func (v *View) EndpointCount() int { return v.count }

// Endpoint finds what one worker offers of a service, in O(log endpoints).
func (v *View) Endpoint(service, worker string) (*Endpoint, bool) {
	e := v.Endpoints(service).Of(worker)
	return e, e != nil
}

// Workers are the node ids of the endpoints of a service that take new work, in
// ring order: what a plan is made of.
func (v *View) Workers(service string) []string {
	var ids []string
	for e := range v.Endpoints(service).All() {
		if e.State == Ready {
			ids = append(ids, e.NodeID)
		}
	}
	return ids
}

// Refused lists offers that are no endpoints because of this node's [Rules], by
// worker, the first 100. It is empty in a healthy fleet. Do not change it.
func (v *View) Refused() []Refusal { return v.refused }

// Relays are the ids of the relays that are alive and stay, sorted: the other
// half of a plan.
func (v *View) Relays() []string {
	if v.members == nil {
		return nil
	}
	var ids []string
	for _, m := range v.members.WithRole(membership.RoleRelay) {
		if !m.Leaving {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
