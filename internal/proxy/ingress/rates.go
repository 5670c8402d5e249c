package ingress

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/ratelimit"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// RateLimit bounds the requests per second to a service that all relays together let pass. The relay
// that picks the worker counts, because the plan states how large its share is: a relay that
// forwards does not know its own.
type RateLimit struct {
	// Service may be anyOne: then each service has this limit.
	Service string `yaml:"service"`
	// Caller is as in Block; anyOne is each caller. Default: the requests of all callers together.
	Caller string `yaml:"caller,omitempty"`
	// Rate and Burst are those of ratelimit.Rate.
	Rate  string `yaml:"rate"`
	Burst int    `yaml:"burst,omitempty"`
}

const (
	maxRateLimits = 1000
	maxRateBurst  = 1_000_000
)

// What a limit on requests per second counts.
const (
	RateOfCaller  = "caller"
	RateOfRoute   = "route"
	RateOfService = "service"
)

// Rates is the state of all limits on requests per second. It belongs to the relay and not to a
// handler: both listeners count together, and a reload must not fill the buckets.
type Rates struct {
	callers   *ratelimit.Callers
	refused   *prometheus.CounterVec
	untracked prometheus.Counter

	mu     sync.Mutex
	states map[string]*rateState // of limits, by what they count
}

// rateState is what a reload keeps of a limit.
type rateState struct {
	bucket  ratelimit.Bucket // of a route, or of the callers that have none of their own
	refused atomic.Uint64
}

// NewRates returns the state of a relay.
func NewRates(reg prometheus.Registerer) *Rates {
	f := metric.With(reg)
	r := &Rates{
		callers: ratelimit.NewCallers(), states: map[string]*rateState{},
		refused:   f.CounterVec("ringway_relay_rate_limited_requests_total", "Requests refused because more arrived per second than a limit allows, by what the limit counts: caller, route (rate of routes) or service (rate-limits).", "limit"),
		untracked: f.Counter("ringway_relay_rate_limit_untracked_total", "Requests of callers that shared one bucket, because 65,536 pairs of caller and service had buckets of their own."),
	}
	metric.StartAtZero(r.refused, RateOfCaller, RateOfRoute, RateOfService)
	f.GaugeFunc("ringway_relay_rate_limit_callers", "Pairs of caller and service with a bucket of a limit on requests per second, at most 65,536.", func() float64 { return float64(r.callers.Len()) })
	return r
}

// state returns that of a limit, the same after a reload.
func (r *Rates) state(key string) *rateState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.states[key]
	if s == nil {
		s = new(rateState)
		r.states[key] = s
	}
	return s
}

// rateLimit is a limit in the form in which requests are compared with it.
type rateLimit struct {
	ratelimit.Rate
	*rateState
	of      string // what it counts
	id      string // of a route, between relays
	counter prometheus.Counter
}

// rateLimits are the limits of a handler.
type rateLimits struct {
	of     *Rates
	limits map[[2]string]*rateLimit // by caller, empty for all together, and service
	routes *routeTable              // nil unless a route has a rate
	// perRoute are the limits by the place of the route, and by their ID.
	perRoute map[int]*rateLimit
	byID     map[string]*rateLimit
	callers  bool // one of limits has a caller
}

// newRateLimits returns nil without any limit. CheckRateLimits and CheckRoutes have reported those
// that cannot be used.
func newRateLimits(requests *Requests, of *Rates) *rateLimits {
	l := &rateLimits{of: of, limits: map[[2]string]*rateLimit{}, perRoute: map[int]*rateLimit{}, byID: map[string]*rateLimit{}}
	add := func(kind, key string, rate ratelimit.Rate) *rateLimit {
		return &rateLimit{Rate: rate, rateState: of.state(key), of: kind, counter: of.refused.WithLabelValues(kind)}
	}
	for _, one := range requests.RateLimits {
		rate, err := one.rate()
		if err != nil {
			continue
		}
		l.callers = l.callers || one.Caller != ""
		one.Caller = sameCaller(one.Caller)
		l.limits[[2]string{one.Caller, one.Service}] = add(one.of(), one.key(), rate)
	}
	for i, route := range requests.Routes {
		if rate, err := route.rate(); err == nil && rate.Requests > 0 {
			limit := add(RateOfRoute, route.rateKey(), rate)
			limit.id = strconv.FormatUint(xxhash.Sum64String(route.rateKey()), 36)
			l.perRoute[i], l.byID[limit.id] = limit, limit
		}
	}
	if len(l.perRoute) > 0 {
		l.routes = newRouteTable(requests.Routes)
	}
	if len(l.limits) == 0 && l.routes == nil {
		return nil
	}
	return l
}

// of returns what the limit counts.
func (l RateLimit) of() string {
	if l.Caller == "" {
		return RateOfService
	}
	return RateOfCaller
}

// key returns the key of the limit's state.
func (l RateLimit) key() string { return l.of() + " " + sameCaller(l.Caller) + " " + l.Service }

func (r Route) rateKey() string {
	return fmt.Sprintf("%s %q %q %v %s", RateOfRoute, r.Host, r.PathPrefix, r.Headers, r.Service)
}

func (l RateLimit) rate() (ratelimit.Rate, error) { return parseRate(l.Rate, l.Burst) }

// rate returns the zero value for a route without a limit.
func (r Route) rate() (ratelimit.Rate, error) {
	if r.Rate == "" && r.Burst == 0 {
		return ratelimit.Rate{}, nil
	}
	return parseRate(r.Rate, r.Burst)
}

func parseRate(text string, burst int) (ratelimit.Rate, error) {
	rate, err := ratelimit.Parse(text)
	switch {
	case err != nil:
		return ratelimit.Rate{}, err
	case burst < 0 || burst > maxRateBurst:
		return ratelimit.Rate{}, fmt.Errorf("burst %d: want 1 to %d requests, or none for half a second of the rate or five at each relay", burst, maxRateBurst)
	}
	rate.Burst = burst
	return rate, nil
}

// CheckRateLimits reports every limit that limits nothing.
func CheckRateLimits(list []RateLimit) error {
	if len(list) > maxRateLimits {
		return fmt.Errorf("%d limits: at most %d are compared; * stands for each caller or service", len(list), maxRateLimits)
	}
	var errs []error
	first := map[[2]string]int{}
	for i, l := range list {
		at := [2]string{sameCaller(l.Caller), l.Service}
		err := l.check()
		if before, again := first[at]; again && err == nil {
			err = fmt.Errorf("has the caller and the service of limit %d: leave one of them out", before)
		}
		if first[at] == 0 {
			first[at] = i + 1
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("limit %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

func (l RateLimit) check() error {
	if l.Service == "" {
		return errors.New("needs a service; * is each service")
	}
	if l.Service != anyOne {
		if err := affinity.ValidateService(l.Service); err != nil {
			return err
		}
	}
	if l.Caller != "" {
		if err := checkCaller(l.Caller); err != nil {
			return err
		}
	}
	_, err := l.rate()
	return err
}

// ofCaller returns the limit of a caller, nil if there is none. One that names the caller comes before
// one that names the service.
func (l *rateLimits) ofCaller(caller, service string) *rateLimit {
	for _, at := range [...][2]string{{caller, service}, {caller, anyOne}, {anyOne, service}, {anyOne, anyOne}} {
		if one := l.limits[at]; one != nil {
			return one
		}
	}
	return nil
}

func (l *rateLimits) ofService(service string) *rateLimit {
	if one := l.limits[[2]string{"", service}]; one != nil {
		return one
	}
	return l.limits[[2]string{"", anyOne}]
}

// noRoute is the ID of no route with a rate.
const noRoute = "-"

// ofRoute returns the limit of the route that matches the request, also if a header has named its
// service. The relay that has the client names it to the one that counts, unless it is of an older
// release or has other routes.
func (l *rateLimits) ofRoute(t *request) *rateLimit {
	if l.routes == nil {
		return nil
	}
	if named := t.r.Header[wire.CountedRouteHeader]; t.from == fromRelay && len(named) == 1 {
		if limit := l.byID[named[0]]; limit != nil || named[0] == noRoute {
			return limit
		}
	}
	found := l.routes.find(hostName(t.r.Host), t.r)
	if found == nil || found.service != t.service.Name {
		return nil
	}
	return l.perRoute[found.place]
}

// counted adds what the relay that gets the request must know to count it.
func (l *rateLimits) counted(t *request, headers []wire.Field) []wire.Field {
	if l == nil {
		return headers
	}
	if l.callers {
		if caller := t.countedCaller(); caller != "" {
			headers = append(headers, wire.Field{Name: wire.CountedCallerHeader, Value: caller})
		}
	}
	if l.routes != nil {
		id := noRoute
		if limit := l.ofRoute(t); limit != nil {
			id = limit.id
		}
		headers = append(headers, wire.Field{Name: wire.CountedRouteHeader, Value: id})
	}
	return headers
}

// withinRates counts the request for the limits of its caller, its route and its service. It returns
// false if it has answered because one of them is exceeded; then none counts the request. Only the
// relay that picks the worker counts, and once, however many attempts there are.
func (t *request) withinRates() bool {
	limits := t.handler.rates
	if t.toRelay || t.counted {
		return true
	}
	t.counted = true
	share := t.route.Share()
	var all [3]struct {
		limit  *rateLimit
		bucket *ratelimit.Bucket
	}
	all[0].limit, all[0].bucket = limits.callerBucket(t)
	if limit := limits.ofRoute(t); limit != nil {
		all[1].limit, all[1].bucket = limit, &limit.bucket
	}
	all[2].limit, all[2].bucket = limits.ofService(t.service.Name), &t.service.Rate
	for i, one := range all {
		if one.limit == nil {
			continue
		}
		wait := one.bucket.Take(t.began, one.limit.For(share))
		if wait == 0 {
			continue
		}
		for _, before := range all[:i] {
			if before.limit != nil {
				before.bucket.Return(before.limit.For(share))
			}
		}
		t.exceedsRate(one.limit, wait)
		return false
	}
	return true
}

// callerBucket returns the limit of the caller of a request and the bucket that counts it, nil if
// there is no limit.
func (l *rateLimits) callerBucket(t *request) (*rateLimit, *ratelimit.Bucket) {
	if !l.callers {
		return nil, nil
	}
	of := ratelimit.Caller{Name: t.countedCaller(), Service: t.service.Name}
	if of.Name == "" {
		return nil, nil
	}
	limit := l.ofCaller(of.Name, of.Service)
	if limit == nil {
		return nil, nil
	}
	if b := l.of.callers.Bucket(of, t.began); b != nil {
		return limit, b
	}
	l.of.untracked.Inc()
	return limit, &limit.bucket
}

// countedCaller returns the caller that the request counts for, empty if none is known. The relay
// that has the client names it to the one that counts.
func (t *request) countedCaller() string {
	if t.from != fromRelay {
		return t.caller()
	}
	values := t.r.Header[wire.CountedCallerHeader]
	if len(values) != 1 || len(values[0]) > wire.MaxCaller {
		return ""
	}
	return values[0]
}

// exceedsRate answers a request that exceeds a limit. As with other limits, the refusal has no outcome
// and no duration: it is no request that the service has got.
func (t *request) exceedsRate(limit *rateLimit, wait time.Duration) {
	if limit.of == RateOfService {
		t.service.Limited.Add(1)
	}
	limit.counter.Inc()
	limit.refused.Add(1)
	share := t.route.Share()
	f := failure{
		Text: fmt.Sprintf("more requests of this %s arrive than this relay's part of its limit of %s: send fewer, and wait for the time in Retry-After", limit.of, limit.Rate),
		Code: wire.CodeRateLimited, Service: t.service.Name, retryAfter: max(wait, time.Second), rate: limit,
	}
	f.detail = fmt.Sprintf("this relay lets %.4g/s pass, %.3g %% of the limit", limit.PerSecond()*share, 100*share)
	t.record.explainRefusal(f.Text + ": " + f.detail)
	t.metrics.rejected(f.Code)
	t.metrics.refused.Add(1)
	if t.handler.cfg.FromRelay {
		t.metrics.forwardedEnded(true)
	}
	t.circuitOutcome = circuitOutcomeOfCode(f.Code)
	status, n := t.handler.writeFailure(t.w, t.r, f)
	t.endTrace(outcomeOfStatus(status), status, f.Code)
	t.record.refused(&f, status, n)
}

// fields sets the fields of draft-ietf-httpapi-ratelimit-headers: the limit of the whole fleet, and
// the seconds until the next request passes.
func (l *rateLimit) fields(h http.Header, retryAfter string) {
	quoted := `"` + l.of + `"`
	h.Set("RateLimit-Policy", quoted+";q="+strconv.Itoa(l.Requests)+";w="+strconv.Itoa(int(l.Per/time.Second)))
	h.Set("RateLimit", quoted+";r=0;t="+retryAfter)
}

// RateState is a limit that applies to a service.
type RateState struct {
	// Of is RateOfService, RateOfCaller or RateOfRoute.
	Of string
	// Caller is set for a limit of a caller, as in BlockState, Route for that of a route.
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
		own[sameCaller(l.Caller)] = own[sameCaller(l.Caller)] || l.Service == s.Name
	}
	for _, l := range requests.RateLimits {
		rate, err := l.rate()
		if err != nil || l.Service != s.Name && (l.Service != anyOne || own[sameCaller(l.Caller)]) {
			continue
		}
		refused := r.state(l.key()).refused.Load()
		if l.Caller == "" {
			refused = s.Limited.Load()
		}
		list = append(list, RateState{Of: l.of(), Caller: shownCaller(sameCaller(l.Caller)), Rate: rate, Refused: refused})
	}
	for _, one := range requests.Routes {
		if rate, err := one.rate(); err == nil && rate.Requests > 0 && one.Service == s.Name {
			list = append(list, RateState{Of: RateOfRoute, Route: one, Rate: rate, Refused: r.state(one.rateKey()).refused.Load()})
		}
	}
	return list
}
