package relay

import (
	"slices"
	"sync"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/statuspage"
	"github.com/ringway/ringway/ring"
)

// mostRings is how many rings are cached: one for each service that a page shows.
const mostRings = 32

// ringCache keeps the ring of a service while its route stays, because a plan has too many
// connections to count them twice a second.
type ringCache struct {
	mu    sync.Mutex
	rings map[string]cachedRing // by service
}

type cachedRing struct {
	route *routing.Route
	ring  statuspage.Ring
}

// of returns the ring of a route. The caller may change its workers.
func (c *ringCache) of(service string, route *routing.Route, self string) statuspage.Ring {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached, ok := c.rings[service]
	if !ok || cached.route != route {
		if c.rings == nil || len(c.rings) >= mostRings {
			c.rings = map[string]cachedRing{}
		}
		cached = cachedRing{route, newRing(route, self)}
		c.rings[service] = cached
	}
	out := cached.ring
	out.Workers = slices.Clone(out.Workers)
	return out
}

// newRing makes the ring of a route: the workers of the plan and the draining ones in ring
// order, and the connections of each relay.
func newRing(route *routing.Route, self string) statuspage.Ring {
	inPlan := map[string]bool{}
	if route.Plan != nil {
		for _, id := range route.Plan.Workers() {
			inPlan[id] = true
		}
	}
	offers := make(map[string]*advertise.Endpoint, len(route.Endpoints))
	ids := make([]string, 0, len(route.Endpoints))
	for _, e := range route.Endpoints {
		if e.State == advertise.Ready && route.Plan != nil && !inPlan[e.NodeID] {
			continue // of an older version than the one that the strategy uses
		}
		offers[e.NodeID] = e
		ids = append(ids, e.NodeID)
	}
	if route.Plan != nil {
		vanished := false
		for _, id := range route.Plan.Workers() {
			if offers[id] == nil { // vanished, with its place kept
				ids, vanished = append(ids, id), true
			}
		}
		if vanished {
			ids = ring.Order(route.Plan.Service(), ids)
		}
	}
	out := statuspage.Ring{Workers: make([]statuspage.RingWorker, len(ids))}
	at := make(map[string]int, len(ids))
	for i, id := range ids {
		at[id] = i
		out.Workers[i] = statuspage.RingWorker{ID: id, State: offerState(offers[id], route.WorkerAbsent(id))}
	}
	if route.Plan == nil {
		return out
	}
	for index, relay := range route.Plan.Affine() {
		assignments, err := route.Plan.Assignments(index)
		if err != nil {
			continue // cannot fail: the index comes from the plan
		}
		arc := statuspage.Arc{Relay: relay, Self: relay == self, Absent: route.RelayAbsent(relay)}
		connects := make([]bool, len(ids))
		for _, a := range assignments {
			w := at[a.Worker]
			connects[w] = true
			if arc.Absent {
				continue
			}
			out.Workers[w].Relays++
			out.Workers[w].Mine = out.Workers[w].Mine || arc.Self
		}
		arc.Runs = runs(connects, func(i int) bool { return planned(out.Workers[i]) })
		out.Arcs = append(out.Arcs, arc)
	}
	return out
}

func offerState(e *advertise.Endpoint, absent bool) statuspage.PeerState {
	switch {
	case e == nil:
		return statuspage.Absent
	case e.State == advertise.Draining:
		return statuspage.Draining
	case e.Unreachable:
		return statuspage.Unreachable
	case absent:
		return statuspage.Absent
	}
	return statuspage.Active
}

// planned reports whether plans count a worker on the ring.
func planned(w statuspage.RingWorker) bool { return w.State != statuspage.Draining }

// runs returns the runs of connected workers around the ring. A worker that plans do not
// count does not end a run.
func runs(connects []bool, counts func(int) bool) (out []statuspage.Run) {
	n := len(connects)
	first := slices.Index(connects, true)
	if first < 0 {
		return nil
	}
	start := 0 // of a run: a connected worker after an unconnected one
	for i := range n {
		if !connects[i] && counts(i) {
			start = i
			break
		}
		if i == n-1 {
			return []statuspage.Run{{Start: 0, Len: n}}
		}
	}
	from, last := -1, -1 // of the current run, counted from start
	end := func() {
		if from >= 0 {
			out = append(out, statuspage.Run{Start: (start + from) % n, Len: last - from + 1})
			from = -1
		}
	}
	for k := range n {
		switch i := (start + k) % n; {
		case connects[i]:
			if from < 0 {
				from = k
			}
			last = k
		case counts(i):
			end()
		}
	}
	end()
	return out
}
