package relay

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/statuspage"
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
