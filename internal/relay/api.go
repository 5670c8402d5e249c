package relay

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/pool"
)

func (r *Relay) adminMux() *http.ServeMux {
	mux := node.NewMux(node.Config{
		Snapshot: r.members.Snapshot, Unproven: r.members.Unproven, Reasons: r.Reasons, Gatherer: r.cfg.Registry,
		Catalogue: func() uint64 { return r.catalogue.View().Checksum() },
	})
	mux.HandleFunc("GET /api/v1/services", r.listServices)
	mux.HandleFunc("GET /api/v1/services/{name}", r.withService(func(w http.ResponseWriter, _ *http.Request, s *routing.Service) {
		node.WriteJSON(w, http.StatusOK, r.describe(s))
	}))
	mux.HandleFunc("GET /api/v1/services/{name}/plan", r.withService(r.showPlan))
	mux.HandleFunc("GET /api/v1/services/{name}/explain", r.withService(r.explain))
	mux.HandleFunc("GET /api/v1/services/{name}/route", r.withService(r.showRoute))
	mux.HandleFunc("GET /api/v1/shared-key", func(w http.ResponseWriter, _ *http.Request) {
		node.WriteJSON(w, http.StatusOK, r.keeper.Status())
	})
	mux.HandleFunc("GET /api/v1/check", r.handleCheck)
	mux.HandleFunc("GET /api/v1/keys", r.listKeys)
	mux.HandleFunc("POST /api/v1/keys", r.changeKeys)
	mux.HandleFunc("POST /api/v1/drain", r.handleDrain(true))
	mux.HandleFunc("POST /api/v1/undrain", r.handleDrain(false))
	mux.HandleFunc("POST /api/v1/reload", r.handleReload)
	r.handleStatusPage(mux)
	node.Handle(mux, node.APIConfig{ID: r.cfg.Membership.ID, Snapshot: r.members.Snapshot, Running: r.cfg.Running, Monitor: r.cfg.Monitor})
	return mux
}

func (r *Relay) withService(serve func(http.ResponseWriter, *http.Request, *routing.Service)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		name := req.PathValue("name")
		s, ok := r.router.Service(name)
		if !ok {
			node.WriteError(w, http.StatusNotFound, fmt.Sprintf("no worker offers or recently offered the service %.80q", name))
			return
		}
		serve(w, req, s)
	}
}

// ServicesAnswer is the answer to GET /api/v1/services.
type ServicesAnswer struct {
	Relay    string          `json:"relay"`
	Services []ListedService `json:"services"` // by name
}

// ListedService is one service in the list.
type ListedService struct {
	serviceSummary
	// Ready is how many of the endpoints take requests: they are not draining.
	Ready int `json:"ready"`
	// Relays is how many relays serve the service.
	Relays    int    `json:"relays"`
	RangeText string `json:"range_text,omitempty"`
	// Requests is how many requests this relay has finished since it started.
	Requests uint64 `json:"requests"`
}

// ServiceAnswer is the answer to GET /api/v1/services/{name}.
type ServiceAnswer = serviceDescription

func (r *Relay) listServices(w http.ResponseWriter, _ *http.Request) {
	answer := ServicesAnswer{Relay: r.cfg.Membership.ID, Services: []ListedService{}}
	requests := requestsByService(r.cfg.Registry)
	for _, s := range r.router.Services() {
		listed := list(s)
		listed.Requests = requests[s.Name]
		answer.Services = append(answer.Services, listed)
	}
	node.WriteJSON(w, http.StatusOK, answer)
}

func list(s *routing.Service) ListedService {
	route := s.Route()
	l := ListedService{serviceSummary: summarize(s)}
	for _, e := range route.Endpoints {
		if e.State == advertise.Ready && !e.Unreachable {
			l.Ready++
		}
	}
	if route.Plan != nil {
		l.Relays = len(route.Plan.Affine())
		l.RangeText = rangeText(route.Plan, route.Index)
	}
	return l
}

// requestsByService sums the counter of requests over its outcomes, so that the list
// agrees with the metrics.
func requestsByService(g prometheus.Gatherer) map[string]uint64 {
	families, _ := g.Gather() // with an error, Gather returns the families that it could gather
	sums := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "ringway_relay_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "service" {
					sums[label.GetValue()] += uint64(m.GetCounter().GetValue())
				}
			}
		}
	}
	return sums
}

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
		return "none" // no endpoint takes requests, so no relay could carry them
	}
	return "forwarding"
}

// serviceDescription is one service of this relay.
type serviceDescription struct {
	serviceSummary
	Relay        string                 `json:"relay"`
	Index        int                    `json:"index"` // -1 if this relay forwards
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
			Node: t.Node, Address: t.Address, Connected: t.Pool.Stats().Open > 0, Weight: t.Weight, State: string(st.State),
			EWMAms: float64(st.Latency) / float64(time.Millisecond), InFlight: st.InFlight, Limit: t.Limit, Requests: st.Picks,
			Failures: st.Failures, ErrorRate: st.ErrorRate, Score: st.Score / float64(time.Millisecond), LastReason: st.LastReason,
		})
	}
	return d
}

// forwardingDescription is how a service is forwarded.
type forwardingDescription struct {
	Primaries  []string `json:"primaries"`  // used in turn, in this order
	Backups    []string `json:"backups"`    // connected, promoted in this order
	Joining    []string `json:"joining"`    // being connected
	Candidates []string `json:"candidates"` // best first
	Reach      string   `json:"reach"`      // how far candidates may be
	Bindings   int      `json:"bindings"`   // keys bound to a relay
}

// relayDescription has the fields of a relay to forward to that a worker does not have.
type relayDescription struct {
	Role        string  `json:"role,omitempty"` // primary, backup, or none
	Tier        string  `json:"tier,omitempty"`
	Health      string  `json:"health,omitempty"`
	P99ms       float64 `json:"p99_ms,omitempty"`
	Consecutive int     `json:"consecutive_failures,omitempty"`
	OutForMs    int64   `json:"out_for_ms,omitempty"` // until it may be connected to again
}

// describeForwarding returns the relays that serve a service, and to which of them this
// relay is connected.
func describeForwarding(s *routing.Service) (*forwardingDescription, []peerDescription) {
	peers := []peerDescription{}
	relays := s.Relays()
	if relays == nil {
		return nil, peers
	}
	status := relays.Status()
	for _, p := range status.Peers {
		d := peerDescription{
			Node: p.ID, Address: p.Address, Connected: p.Role != pool.NoRole, Weight: p.Weight, State: p.Role.String(),
			EWMAms: milliseconds(p.Latency), InFlight: p.InFlight, Requests: p.Requests, Failures: p.Failures,
			ErrorRate: p.ErrorRate, Score: milliseconds(p.Estimate), LastReason: p.Reason,
			relayDescription: relayDescription{
				Role: p.Role.String(), Tier: p.Tier.String(), Health: string(p.Health),
				P99ms: milliseconds(p.Percentile), Consecutive: p.Consecutive,
			},
		}
		if p.Health == pool.Out {
			d.State = string(pool.Out)
			d.OutForMs = max(0, time.Until(p.OutUntil).Milliseconds())
		}
		peers = append(peers, d)
	}
	list := func(ids []string) []string { return append([]string{}, ids...) } // [], not null
	return &forwardingDescription{
		Primaries: list(status.Primaries), Backups: list(status.Backups), Joining: list(status.Joining),
		Candidates: list(status.Candidates), Reach: status.Reach.String(), Bindings: status.Bindings,
	}, peers
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
