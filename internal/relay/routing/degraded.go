package routing

import (
	"slices"
	"strings"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/ring"
)

// While a snapshot is degraded, this relay may be the one that is cut off from
// the gossip of the others, and its connections may be fine. So what failed stays
// in the routes until the snapshot is trusted again; what left is gone, and what
// is new comes in. Endpoints that are really dead are evicted by their failures.

// failed reports whether the member vanished without leaving.
func failed(s *membership.Snapshot, id string) bool {
	d, gone := s.Departed(id)
	return gone && d.Reason == membership.Failed
}

// keepFailedRelays returns now and those of before that failed, sorted by id.
func keepFailedRelays(before, now []membership.Member, s *membership.Snapshot) []membership.Member {
	for _, m := range before {
		if !hasMember(now, m.ID) && failed(s, m.ID) {
			now = append(now, m)
		}
	}
	slices.SortFunc(now, func(a, b membership.Member) int { return strings.Compare(a.ID, b.ID) })
	return now
}

// failedEndpoints are those of before that failed and are not in now.
func failedEndpoints(before []*advertise.Endpoint, now *advertise.Endpoints, s *membership.Snapshot) (out []*advertise.Endpoint) {
	for _, e := range before {
		if now.Of(e.NodeID) == nil && failed(s, e.NodeID) {
			out = append(out, e)
		}
	}
	return out
}

// inRingOrder sorts the endpoints of a service, one for each worker.
func inRingOrder(service string, endpoints []*advertise.Endpoint) []*advertise.Endpoint {
	byID := make(map[string]*advertise.Endpoint, len(endpoints))
	ids := make([]string, len(endpoints))
	for i, e := range endpoints {
		byID[e.NodeID], ids[i] = e, e.NodeID
	}
	out := make([]*advertise.Endpoint, 0, len(ids))
	for _, id := range ring.Order(service, ids) {
		out = append(out, byID[id])
	}
	return out
}
