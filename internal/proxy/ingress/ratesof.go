package ingress

import (
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/ratelimit"
	"github.com/ringway/ringway/internal/routing"
)

// Of returns the limits of requests that apply to a service, with the part of this relay. A limit is
// left out if another one replaces it for all requests to the service. Text is how a route is written.
func (r *Rates) Of(s *routing.Service, requests *Requests, text func(Route) string) (list []api.RateLimit) {
	route := s.Route()
	add := func(of, subject string, rate ratelimit.Rate, refused uint64) {
		l := api.RateLimit{Of: of, Subject: subject, Rate: rate.String(), Burst: rate.Burst, Refused: refused}
		if route.Affine() {
			l.Share = route.Share()
			l.PerSecond = rate.PerSecond() * l.Share
		}
		list = append(list, l)
	}
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
		add(l.of(), l.Caller, rate, refused)
	}
	for _, one := range requests.Routes {
		if rate, err := one.rate(); err == nil && rate.Requests > 0 && one.Service == s.Name {
			add(RateOfRoute, text(one), rate, r.state(one.rateKey()).refused.Load())
		}
	}
	return list
}
