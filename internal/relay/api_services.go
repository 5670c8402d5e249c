package relay

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/internal/relay/routing"
)

// ServicesAnswer is what GET /api/v1/services answers with.
type ServicesAnswer struct {
	Relay    string          `json:"relay"`
	Services []ListedService `json:"services"` // by name
}

// ListedService is a service in the list of all.
type ListedService struct {
	serviceSummary
	// Ready of the endpoints take requests: they are not draining.
	Ready int `json:"ready"`
	// Relays serve the service.
	Relays    int    `json:"relays"`
	RangeText string `json:"range_text,omitempty"`
	// Requests were answered or given up by this relay since it started.
	Requests uint64 `json:"requests"`
}

// ServiceAnswer is what GET /api/v1/services/{name} answers with.
type ServiceAnswer = serviceDescription

func (r *Relay) listServices(w http.ResponseWriter, _ *http.Request) {
	answer := ServicesAnswer{Relay: r.cfg.Membership.ID, Services: []ListedService{}}
	requests := requestsByService(r.cfg.Registry)
	for _, s := range r.router.Services() {
		listed := list(s)
		listed.Requests = requests[s.Name]
		answer.Services = append(answer.Services, listed)
	}
	admin.WriteJSON(w, http.StatusOK, answer)
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
// says what the metrics say.
func requestsByService(g prometheus.Gatherer) map[string]uint64 {
	families, _ := g.Gather() // those that could be gathered are there beside an error
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
