package relay

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/statuspage"
	"github.com/ringway/ringway/membership"
)

func (r *Relay) handleStatusPage(mux *http.ServeMux) {
	source := &statusSource{Relay: r}
	statuspage.Handle(mux, statuspage.Config{Document: source.document, Registerer: r.cfg.Registry})
}

// statusSource describes a relay for its page.
type statusSource struct {
	*Relay
	rings   ringCache
	signals signals
}

func (s *statusSource) document(_ context.Context, service string) statuspage.Document {
	now := time.Now()
	d := statuspage.Document{
		ID: s.cfg.Membership.ID, Role: string(s.cfg.Membership.Role), Cluster: s.cfg.Membership.Cluster, Environment: s.cfg.Membership.Environment,
		Datacenter: s.cfg.Membership.Datacenter, Region: s.cfg.Membership.Region, Build: daemon.Version(), Uptime: now.Sub(s.epoch),
		ServicesChecksum: fmt.Sprintf("%016x", s.catalogue.View().Checksum()), InFlight: s.inFlight(),
	}
	snapshot := s.members.Snapshot()
	if snapshot != nil {
		d.MembersChecksum = fmt.Sprintf("%016x", snapshot.Checksum())
		d.Members = statuspage.Members(snapshot, now)
	}
	services := s.router.Services()
	for _, each := range services {
		d.Services = append(d.Services, statusService(each))
	}
	if service == "" && len(services) > 0 {
		service = services[0].Name
	}
	var focused *routing.Service
	if found, ok := s.router.Service(service); ok {
		focused = found
		d.Focus = s.focus(found)
	}
	reasons := s.Reasons()
	d.Ready = len(reasons) == 0
	d.Notices = s.notices(snapshot, focused, d.Focus, reasons)
	return d
}

func statusService(s *routing.Service) statuspage.Service {
	l := list(s)
	return statuspage.Service{
		Name: s.Name, Index: s.Route().Index, Ready: l.Ready, Endpoints: l.Endpoints, Range: l.RangeText,
		Connects: l.Range, InFlight: l.InFlight, Strategy: s.Choice().Spec.Name,
	}
}

// focus looks at one service closely.
func (s *statusSource) focus(service *routing.Service) *statuspage.Focus {
	route := service.Route()
	f := &statuspage.Focus{Service: statusService(service), Forwarding: !route.Affine()}
	described := s.describe(service)
	place := affinity.Place{Datacenter: s.cfg.Membership.Datacenter, Region: s.cfg.Membership.Region}
	states := map[string]statuspage.PeerState{}
	targets := map[string]*routing.Target{}
	for _, t := range route.Range {
		targets[t.Node] = t
	}
	for _, p := range described.Peers {
		peer := statuspage.Peer{
			ID: p.Node, Address: p.Address, State: peerState(p, targets[p.Node]), Tier: p.Tier, Weight: p.Weight, InFlight: p.InFlight,
			Latency: time.Duration(p.EWMAms * float64(time.Millisecond)), Requests: p.Requests, ErrorRate: p.ErrorRate, Score: p.Score, LastReason: p.LastReason,
		}
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
			if joining[f.Peers[i].ID] && f.Peers[i].State == statuspage.Candidate {
				f.Peers[i].State = statuspage.Connecting
			}
		}
	}
	f.Ring = s.rings.of(service.Name, route, s.cfg.Membership.ID)
	f.Ring.Minimum = cmp.Or(s.cfg.Plans.Minimums.PeersPerWorker, affinity.DefaultMinimums.PeersPerWorker)
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
		if ranges := rangeText(route.Plan, route.Index); ranges != "" {
			return text + " and the range " + ranges + "."
		}
		return text + "."
	}
	return fmt.Sprintf("Served by %d relays. This process is none of them, and forwards.", len(route.Plan.Affine()))
}

// peerState is the state that an operator should see first. A peer without a target is
// a relay.
func peerState(p peerDescription, t *routing.Target) statuspage.PeerState {
	if t == nil {
		switch p.State {
		case "primary":
			return statuspage.Active
		case "backup":
			return statuspage.Backup
		case "out":
			return statuspage.Evicted
		}
		return statuspage.Candidate
	}
	switch {
	case t.Endpoint != nil && t.Endpoint.Unreachable:
		return statuspage.Unreachable
	case p.State == "evicted":
		return statuspage.Evicted
	case p.State == "half_open":
		return statuspage.HalfOpen
	case !p.Connected:
		return statuspage.Connecting
	}
	return statuspage.Active
}

// alone reports whether the snapshot has nobody but this member, or not even it.
func alone(s *membership.Snapshot) bool { return s == nil || len(s.Members()) <= 1 }
