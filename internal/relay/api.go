package relay

import (
	"fmt"
	"net/http"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/selection"
)

func (r *Relay) adminMux() *http.ServeMux {
	mux := admin.NewMux(admin.Config{
		Snapshot: r.members.Snapshot, Reasons: r.Reasons, Gatherer: r.cfg.Registry,
		Catalogue: func() uint64 { return r.catalogue.View().Checksum() },
	})
	mux.HandleFunc("GET /api/v1/services", func(w http.ResponseWriter, _ *http.Request) {
		services := []serviceSummary{}
		for _, s := range r.router.Services() {
			services = append(services, summarize(s))
		}
		admin.WriteJSON(w, http.StatusOK, map[string]any{"relay": r.cfg.Membership.ID, "services": services})
	})
	mux.HandleFunc("GET /api/v1/services/{name}", r.withService(func(w http.ResponseWriter, s *routing.Service) {
		admin.WriteJSON(w, http.StatusOK, r.describe(s))
	}))
	mux.HandleFunc("GET /api/v1/services/{name}/plan", r.withService(func(w http.ResponseWriter, s *routing.Service) {
		plan, err := describePlan(s)
		if err != nil {
			admin.WriteError(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		admin.WriteJSON(w, http.StatusOK, plan)
	}))
	mux.HandleFunc("GET /api/v1/shared-key", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteJSON(w, http.StatusOK, r.keeper.Status())
	})
	mux.HandleFunc("GET /api/v1/keys", r.listKeys)
	mux.HandleFunc("POST /api/v1/keys", r.changeKeys)
	return mux
}

func (r *Relay) withService(serve func(http.ResponseWriter, *routing.Service)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		name := req.PathValue("name")
		s, ok := r.router.Service(name)
		if !ok {
			admin.WriteError(w, http.StatusNotFound, fmt.Sprintf("no worker offers or recently offered the service %.80q", name))
			return
		}
		serve(w, s)
	}
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
	if route.Affine() {
		return "affine"
	}
	return "forwarding"
}

// serviceDescription is one service as this relay serves it.
type serviceDescription struct {
	serviceSummary
	Relay        string               `json:"relay"`
	Index        int                  `json:"index"` // -1 when forwarding
	AffineRelays []string             `json:"affine_relays"`
	RangeText    string               `json:"range_text,omitempty"`
	Peers        []peerDescription    `json:"peers"`
	Catalogue    []advertise.Endpoint `json:"catalogue"`
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
	Requests   uint64  `json:"requests"`
	Failures   uint64  `json:"failures"`
	ErrorRate  float64 `json:"error_rate"`
	Score      float64 `json:"score"`
	LastReason string  `json:"last_reason,omitempty"`
}

func (r *Relay) describe(s *routing.Service) serviceDescription {
	route := s.Route()
	d := serviceDescription{
		serviceSummary: summarize(s), Relay: r.cfg.Membership.ID, Index: route.Index,
		Peers: []peerDescription{}, Catalogue: route.Endpoints,
	}
	balancer, targets := s.Endpoints, route.Range
	if !route.Affine() {
		balancer, targets = s.Relays, route.Forward
	}
	if route.Plan != nil {
		d.AffineRelays = route.Plan.Affine()
		if r, err := route.Plan.Range(route.Index); err == nil {
			d.RangeText = r.String()
		}
	}
	stats := make(map[string]selection.EndpointStats)
	for _, st := range balancer.Stats(selection.Instant(time.Since(r.epoch))) {
		stats[st.ID] = st
	}
	for _, t := range targets {
		st := stats[t.ID]
		d.Peers = append(d.Peers, peerDescription{
			Node: t.Node, Address: t.Address, Connected: t.Pool.Stats().Open > 0, Weight: t.Weight, State: st.State,
			EWMAms: float64(st.Latency) / float64(time.Millisecond), InFlight: st.InFlight, Requests: st.Picks,
			Failures: st.Failures, ErrorRate: st.ErrorRate, Score: st.Score, LastReason: st.LastReason,
		})
	}
	return d
}

// planDescription is the whole plan of a service, as every relay computes it.
type planDescription struct {
	Service         string            `json:"service"`
	Relays          []relayPlan       `json:"relays"`
	RelaysPerWorker map[string]int    `json:"relays_per_worker"`
	Coverage        map[string]minMax `json:"coverage"`
	Connections     int               `json:"connections"`
}

type relayPlan struct {
	Relay   string       `json:"relay"`
	Index   int          `json:"index"`
	Range   string       `json:"range"`
	Workers []workerPlan `json:"workers"`
}

type workerPlan struct {
	Worker string  `json:"worker"`
	Weight float64 `json:"weight"`
}

type minMax struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

func describePlan(s *routing.Service) (planDescription, error) {
	plan := s.Route().Plan
	if plan == nil {
		return planDescription{}, fmt.Errorf("service %q has no endpoint that takes requests, so there is nothing to plan", s.Name)
	}
	d := planDescription{Service: s.Name, RelaysPerWorker: map[string]int{}}
	perRelay := minMax{Min: int(^uint(0) >> 1)}
	for i, relay := range plan.Affine() {
		r, err := plan.Range(i)
		if err != nil {
			return planDescription{}, err
		}
		assignments, err := plan.Assignments(i)
		if err != nil {
			return planDescription{}, err
		}
		p := relayPlan{Relay: relay, Index: i, Range: r.String()}
		for _, a := range assignments {
			p.Workers = append(p.Workers, workerPlan{a.Worker, a.Weight})
		}
		perRelay = minMax{min(perRelay.Min, len(assignments)), max(perRelay.Max, len(assignments))}
		d.Relays = append(d.Relays, p)
	}
	coverage := plan.Coverage()
	for i, worker := range plan.Workers() {
		d.RelaysPerWorker[worker] = coverage.PerWorker[i]
	}
	d.Connections = coverage.Connections
	d.Coverage = map[string]minMax{"relays_per_worker": {coverage.Min, coverage.Max}, "workers_per_relay": perRelay}
	return d, nil
}
