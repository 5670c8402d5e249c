package relay

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/statuspage"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/ring"
	"github.com/ringway/ringway/selection"
)

func (r *Relay) handleStatusPage(mux *http.ServeMux) {
	source := &statusSource{Relay: r}
	statuspage.Handle(mux, statuspage.Config{Document: source.document, Registerer: r.cfg.Registry})
}

// statusSource describes a relay for its status page.
type statusSource struct {
	*Relay
	rings ringCache
}

func (s *statusSource) document(_ context.Context, service string) statuspage.Document {
	now := time.Now()
	d := statuspage.Document{
		ID: s.cfg.Membership.ID, Role: string(s.cfg.Membership.Role), Cluster: s.cfg.Membership.Cluster, Environment: s.cfg.Membership.Environment,
		Datacenter: s.cfg.Membership.Datacenter, Region: s.cfg.Membership.Region, Build: process.Version(), Now: now, Uptime: now.Sub(s.Epoch()),
		ServicesChecksum: fmt.Sprintf("%016x", s.Catalogue.View().Checksum()), InFlight: s.InFlight(),
	}
	snapshot := s.Fleet.Snapshot()
	if snapshot != nil {
		d.MembersChecksum = fmt.Sprintf("%016x", snapshot.Checksum())
		d.Members = api.ListMembers(api.Members{Members: snapshot.Members()}, snapshot.Departures())
	}
	services := s.Routes.Services()
	for _, each := range services {
		d.Services = append(d.Services, statusRow(each))
	}
	if service == "" && len(services) > 0 {
		service = services[0].Name
	}
	var focused *routing.Service
	if found, ok := s.Routes.Service(service); ok {
		focused = found
		d.Focus = s.focus(found)
	}
	if seen := s.surveyor.watch(); seen != nil {
		d.Fleet, d.Traffic = seen.fleet, seen.traffic(service)
	}
	reasons := s.Reasons()
	d.Ready = len(reasons) == 0
	d.Notices = s.notices(snapshot, focused, d.Focus, reasons)
	return d
}

func statusRow(s *routing.Service) statuspage.Row {
	row := statuspage.Row{ListedService: list(s), Index: s.Route().Index, Strategy: s.Choice().Spec.Name}
	row.RangeText = rangeInWords(s.Route())
	return row
}

// rangeInWords returns what rangeText does, for readers that do not know the notation of intervals.
func rangeInWords(route *routing.Route) string {
	if route.Plan == nil {
		return ""
	}
	ranges, _ := route.Plan.Ranges(route.Index)
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		switch texts[i] = fmt.Sprintf("%d of %d workers, from position %d", r.Len(), r.Size(), r.Start()); {
		case r.Size() == 1:
			texts[i] = "the only worker"
		case r.Len() == r.Size():
			texts[i] = fmt.Sprintf("all %d workers", r.Size())
		}
	}
	return strings.Join(texts, "; ")
}

// focus describes one service in detail.
func (s *statusSource) focus(service *routing.Service) *statuspage.Focus {
	route := service.Route()
	f := &statuspage.Focus{Row: statusRow(service), Forwarding: !route.Affine()}
	described := s.describe(service)
	place := affinity.Place{Datacenter: s.cfg.Membership.Datacenter, Region: s.cfg.Membership.Region}
	states := map[string]statuspage.PeerState{}
	targets := map[string]*routing.Target{}
	for _, t := range route.Range {
		targets[t.Node] = t
	}
	for _, p := range described.Peers {
		peer := statuspage.Peer{Peer: p, State: peerState(p, targets[p.Node])}
		if t := targets[p.Node]; t != nil && t.Endpoint != nil {
			peer.Tier = place.Tier(affinity.Place{Datacenter: t.Endpoint.Datacenter, Region: t.Endpoint.Region}).String()
			states[p.Node] = peer.State
		}
		f.Peers = append(f.Peers, peer)
	}
	if f.Forwarding && described.Forwarding != nil {
		joining := map[string]bool{}
		for _, id := range described.Forwarding.Joining {
			joining[id] = true
		}
		for i := range f.Peers {
			if joining[f.Peers[i].Node] && f.Peers[i].State == statuspage.Candidate {
				f.Peers[i].State = statuspage.Connecting
			}
		}
	}
	f.Ring = s.rings.of(service.Name, route, s.cfg.Membership.ID)
	f.Ring.Minimum = s.Routes.Agreed().Minimums.PeersPerWorker
	for i, w := range f.Ring.Workers {
		if state := states[w.ID]; state != "" && w.State == statuspage.Active {
			f.Ring.Workers[i].State = state
		}
	}
	f.Role = roleSentence(service, route)
	return f
}

func roleSentence(s *routing.Service, route *routing.Route) string {
	switch {
	case route.Plan == nil:
		return "No worker takes requests at the moment."
	case route.Affine():
		text := fmt.Sprintf("Served by %d relays. This one has the index %d", len(route.Plan.Affine()), route.Index)
		if ranges := rangeInWords(route); ranges != "" {
			return text + ", and its range is " + ranges + "."
		}
		return text + "."
	}
	return fmt.Sprintf("Served by %d relays. This process is none of them, and forwards.", len(route.Plan.Affine()))
}

// peerState returns the state that is most important for an operator. A peer without a
// target is a relay.
func peerState(p api.Peer, t *routing.Target) statuspage.PeerState {
	if t == nil {
		switch p.State {
		case relaypool.Primary.String():
			return statuspage.Active
		case relaypool.Backup.String():
			return statuspage.Backup
		case string(relaypool.Out):
			return statuspage.Evicted
		}
		return statuspage.Candidate
	}
	switch {
	case t.Endpoint != nil && t.Endpoint.Unreachable:
		return statuspage.Unreachable
	case p.State == string(selection.Evicted):
		return statuspage.Evicted
	case p.State == string(selection.HalfOpen):
		return statuspage.HalfOpen
	case !p.Connected:
		return statuspage.Connecting
	}
	return statuspage.Active
}

// alone reports whether the snapshot has no member except this one.
func alone(s *membership.Snapshot) bool { return s == nil || len(s.Members()) <= 1 }

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
