package relay

import (
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/selection"
)

type serviceSummary struct {
	Service   string `json:"service"`
	Role      string `json:"role"`
	Endpoints int    `json:"endpoints"`
	Range     int    `json:"range"`
	InFlight  int64  `json:"in_flight"`
}

func summarize(s *routing.Service) serviceSummary {
	route := s.Route()
	return serviceSummary{Service: s.Name, Role: role(route), Endpoints: len(route.Endpoints), Range: len(route.Range), InFlight: s.InFlight.Load()}
}

func role(route *routing.Route) string {
	switch {
	case route.Affine():
		return "affine"
	case route.Plan == nil:
		return "none" // no endpoint takes requests: there is nowhere to forward to
	}
	return "forwarding"
}

// serviceDescription is one service as this relay serves it.
type serviceDescription struct {
	serviceSummary
	Relay        string                 `json:"relay"`
	Index        int                    `json:"index"` // -1 when forwarding
	AffineRelays []string               `json:"affine_relays"`
	RangeText    string                 `json:"range_text,omitempty"`
	Selection    SelectionAnswer        `json:"selection"`
	Forwarding   *forwardingDescription `json:"forwarding,omitempty"`
	Peers        []peerDescription      `json:"peers"`
	Catalogue    []*advertise.Endpoint  `json:"catalogue"`
}

// peerDescription is one endpoint of the range, or one relay to forward to.
type peerDescription struct {
	Node       string  `json:"node"`
	Address    string  `json:"address"`
	Connected  bool    `json:"connected"`
	Weight     float64 `json:"weight"`
	State      string  `json:"state"`
	EWMAms     float64 `json:"ewma_ms"`
	InFlight   int     `json:"in_flight"`
	Limit      int     `json:"limit,omitempty"` // of in_flight: this relay's share of the slots
	Requests   uint64  `json:"requests"`
	Failures   uint64  `json:"failures"`
	ErrorRate  float64 `json:"error_rate"`
	Score      float64 `json:"score"` // milliseconds
	LastReason string  `json:"last_reason,omitempty"`
	relayDescription
}

func (r *Relay) describe(s *routing.Service) serviceDescription {
	route := s.Route()
	d := serviceDescription{
		serviceSummary: summarize(s), Relay: r.cfg.Membership.ID, Index: route.Index,
		Selection: describeSelection(s), Peers: []peerDescription{}, Catalogue: route.Endpoints,
	}
	if route.Plan != nil {
		d.AffineRelays = route.Plan.Affine()
		d.RangeText = rangeText(route.Plan, route.Index)
	}
	if !route.Affine() {
		d.Forwarding, d.Peers = describeForwarding(s)
		return d
	}
	stats := make(map[string]selection.EndpointStats)
	for _, st := range s.Endpoints.Stats(selection.Instant(time.Since(r.epoch))) {
		stats[st.ID] = st
	}
	for _, t := range route.Range {
		st := stats[t.ID]
		d.Peers = append(d.Peers, peerDescription{
			Node: t.Node, Address: t.Address, Connected: t.Pool.Stats().Open > 0, Weight: t.Weight, State: st.State,
			EWMAms: float64(st.Latency) / float64(time.Millisecond), InFlight: st.InFlight, Limit: t.Limit, Requests: st.Picks,
			Failures: st.Failures, ErrorRate: st.ErrorRate, Score: st.Score / float64(time.Millisecond), LastReason: st.LastReason,
		})
	}
	return d
}
