package advertise

import (
	"github.com/ringway/ringway/membership"
)

// Endpoint is one live worker's offer of one service.
type Endpoint struct {
	Service string `json:"service"`
	// NodeID and Epoch name the worker and the life it is in.
	NodeID   string   `json:"node_id"`
	Epoch    uint64   `json:"epoch"` // Unix milliseconds
	Address  string   `json:"address"`
	Protocol Protocol `json:"protocol"`
	Weight   int      `json:"weight"`
	Slots    int      `json:"slots"` // 0 is unlimited
	// State is draining as well when the worker itself has said that it leaves.
	State   State    `json:"state"`
	Version string   `json:"version,omitempty"`
	Tags    []string `json:"tags,omitempty"`
	// Datacenter and Region are the worker's, as membership knows them.
	Datacenter string `json:"datacenter,omitempty"`
	Region     string `json:"region,omitempty"`
}

// View is what is on offer at one moment. It is immutable: hold it as long as
// you like, share it between goroutines, never write to it.
type View struct {
	version  uint64
	checksum uint64
	services map[string][]Endpoint // known services; no endpoints where all are gone
	names    []string              // the keys of services, sorted
	count    int
	members  *membership.Snapshot
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

// Services lists the known services in the sense of [View.Known], sorted. The
// slice belongs to the view: do not change it.
func (v *View) Services() []string { return v.names }

// Endpoints lists a service's endpoints in ring order, that of [ring.Order]
// keyed by the service over node ids, draining ones included. It is empty for a
// service whose workers are all gone and for one nobody ever offered; Known
// tells them apart. The slice belongs to the view: do not change it.
//
// [ring.Order]: https://pkg.go.dev/github.com/ringway/ringway/ring#Order
func (v *View) Endpoints(service string) []Endpoint { return v.services[service] }

// Known reports whether the service has an endpoint, or had one here within the
// last 24 hours (as far as the newest 4,096 vanished names go).
func (v *View) Known(service string) bool {
	_, ok := v.services[service]
	return ok
}

// EndpointCount is the number of endpoints of all services.
func (v *View) EndpointCount() int { return v.count }

// Endpoint finds what one worker offers of a service, in O(endpoints).
func (v *View) Endpoint(service, worker string) (Endpoint, bool) {
	for _, e := range v.services[service] {
		if e.NodeID == worker {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Workers are the node ids of the endpoints of a service that take new work, in
// ring order: what a plan is made of.
func (v *View) Workers(service string) []string {
	var ids []string
	for _, e := range v.services[service] {
		if e.State == Ready {
			ids = append(ids, e.NodeID)
		}
	}
	return ids
}

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
