package ingress

import (
	"github.com/ringway/ringway/internal/ratelimit"
	"github.com/ringway/ringway/internal/routing"
)

// RateState is a limit that applies to a service.
type RateState struct {
	// Of is RateOfService, RateOfCaller or RateOfRoute.
	Of string
	// Caller is set for a limit of a caller, Route for that of a route.
	Caller string
	Route  Route
	Rate   ratelimit.Rate
	// Refused counts the requests that this relay has refused: of this service for a limit of the
	// service, otherwise of all services.
	Refused uint64
}

// Of returns the limits of requests that apply to a service. A limit is left out if another one
// replaces it for all requests to the service.
func (r *Rates) Of(s *routing.Service, requests *Requests) (list []RateState) {
	own := map[string]bool{} // callers with a limit at this service
	for _, l := range requests.RateLimits {
		own[l.Caller] = own[l.Caller] || l.Service == s.Name
	}
	for _, l := range requests.RateLimits {
		rate, err := l.rate()
		if err != nil || l.Service != s.Name && (l.Service != anyOne || own[l.Caller]) {
			continue
		}
		refused := r.state(l.key()).refused.Load()
		if l.Caller == "" {
			refused = s.Limited.Load()
		}
		list = append(list, RateState{Of: l.of(), Caller: l.Caller, Rate: rate, Refused: refused})
	}
	for _, one := range requests.Routes {
		if rate, err := one.rate(); err == nil && rate.Requests > 0 && one.Service == s.Name {
			list = append(list, RateState{Of: RateOfRoute, Route: one, Rate: rate, Refused: r.state(one.rateKey()).refused.Load()})
		}
	}
	return list
}
