package ingress

import (
	"maps"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// Policies are the operator's policies by service, under "" those of all services. A field
// that is set has precedence over what the workers of a service advertise.
type Policies struct {
	ByService map[string]advertise.Policy
	Slots     routing.Slots
	Canaries  routing.Canaries
	Cookies   map[string]CookieAttributes
}

// Or returns the policies with what is not set replaced by that of other.
func (p Policies) Or(other Policies) Policies {
	out := Policies{ByService: maps.Clone(other.ByService), Slots: maps.Clone(other.Slots), Canaries: maps.Clone(other.Canaries), Cookies: maps.Clone(other.Cookies)}
	for service, own := range p.ByService {
		out.ByService[service] = own.Or(other.ByService[service])
	}
	maps.Copy(out.Slots, p.Slots)
	maps.Copy(out.Canaries, p.Canaries)
	for service, own := range p.Cookies {
		out.Cookies[service] = own.Or(other.Cookies[service])
	}
	return out
}

// Origin returns where the field of a key comes from, for a service whose workers advertise
// this policy.
func (p Policies) Origin(service string, advertised advertise.Policy, key string) routing.Origin {
	switch {
	case p.ByService[service].Get(key) != "":
		return routing.FromServiceSetting
	case p.ByService[""].Get(key) != "":
		return routing.FromSetting
	case advertised.Get(key) != "":
		return routing.FromAdvertisement
	}
	return routing.FromDefault
}

// Policy returns the policy in effect for the requests to a service whose workers advertise
// another one. Fields that neither the operator nor the workers set have the values of these
// settings; progress is the value of Config.Progress. An AttemptTimeout of 0 is no limit.
func (r *Requests) Policy(service string, advertised advertise.Policy, progress time.Duration) advertise.Policy {
	p := r.Policies.ByService[""].Or(advertised)
	if own, found := r.Policies.ByService[service]; found {
		p = own.Or(p)
	}
	if p.AttemptTimeout == 0 && p.RequestTimeout > 0 && r.AttemptShare > 0 {
		p.AttemptTimeout = time.Duration(float64(p.RequestTimeout) * r.AttemptShare)
	}
	return p.Or(advertise.Policy{RequestTimeout: r.Timeout, AttemptTimeout: r.AttemptTimeout, ProgressTimeout: progress, Retry: advertise.RetryIdempotent})
}

func (h *Handler) policyOf(s *routing.Service) advertise.Policy {
	p := h.cfg.Requests.Policy(s.Name, s.Route().Policy, h.cfg.Progress)
	if h.cfg.FromRelay {
		p.ProgressTimeout = upstream.BehindRelay(p.ProgressTimeout)
	}
	return p
}

// budgetOf returns the budget for retries of the requests to a service that this handler gets. Each
// service has its own, so that one that fails does not take the retries of the others.
func (h *Handler) budgetOf(s *routing.Service) *routing.RetryBudget {
	if h.cfg.FromRelay {
		return s.PeerRetries.Budget(h.cfg.RetryBudget)
	}
	return s.Retries.Budget(h.cfg.RetryBudget)
}

// leastAttempt is the minimum time of an attempt, however short the client's deadline,
// unless the deadline itself is shorter.
const leastAttempt = 100 * time.Millisecond

// takeDeadline sets how long the request may take. It returns false if it has answered,
// because the request's own deadline is malformed or has passed.
func (t *request) takeDeadline() bool {
	t.timeout = t.policy.RequestTimeout
	left, given, err := wire.TimeLeft(t.r.Header)
	if t.local != nil {
		// A deadline may have no monotonic clock, so it is measured from now.
		if at, set := t.r.Context().Deadline(); set {
			if until := max(0, time.Until(at)); !given || until < left {
				left, given = until, true
				if until > 0 {
					left += time.Since(t.handler.cfg.Epoch) - t.began
				}
			}
		}
	}
	switch {
	case err != nil:
		t.answer(failure{Text: "the request cannot be carried: " + err.Error(), Code: wire.CodeBadRequest, Service: t.service.Name}, t.began)
		return false
	case given && left == 0:
		t.answer(failure{Text: "the deadline that the request came with was over", Code: wire.CodeTimeout, Service: t.service.Name, spared: true}, t.began)
		return false
	case given:
		t.limited, t.latest = true, t.began+left
		t.timeout = min(t.timeout, left)
	}
	return true
}

// attemptLimit returns how long the n-th attempt may take, if so much time is left. An attempt
// that another could follow leaves time for that one: each but the first takes at most half of
// what is left, so that all attempts find time however many endpoints hang. The last possible
// attempt, and one after which the budget pays for no retry, gets all the time left, because
// cutting it would gain nothing.
func (t *request) attemptLimit(n int, left time.Duration) (limit time.Duration, cut bool) {
	cfg := &t.handler.cfg
	others := len(t.route.Range)
	if t.toRelay {
		others = len(t.route.Forward)
	}
	if t.policy.AttemptTimeout <= 0 || t.policy.AttemptTimeout >= t.policy.RequestTimeout || cfg.RetryBudget <= 0 || n >= cfg.MaxAttempts || n >= others || !t.mayRepeat() || !t.budget.Affords() {
		return t.timeout, false
	}
	limit = t.policy.AttemptTimeout
	if t.timeout < t.policy.RequestTimeout { // the client's deadline shortens attempts in proportion
		scaled := time.Duration(float64(limit) * (float64(t.timeout) / float64(t.policy.RequestTimeout)))
		limit = max(scaled, min(limit, leastAttempt))
	}
	if n > 1 {
		limit = min(limit, left/2)
	}
	if t.toRelay {
		limit = upstream.BehindRelay(limit) // the attempts of that relay end first
	}
	return limit, true
}

// mayRepeat reports whether a request may be sent again after it was sent, as far as that
// is known before the attempt.
func (t *request) mayRepeat() bool {
	if t.tcp != nil {
		return t.policy.Retry != advertise.RetryNever
	}
	if t.body.Begun() && !t.body.Fits() && !t.callMayRepeat() {
		return false
	}
	switch t.policy.Retry {
	case advertise.RetryAlways:
		return bodyKept(t.r)
	case advertise.RetryIdempotent:
		return repeatable(t.r)
	}
	return false
}

// callMayRepeat reports whether a body without a declared length is that of a gRPC call to a
// service whose calls may all be repeated. The message of a call has no declared length, and
// is small in most cases.
func (t *request) callMayRepeat() bool {
	return t.policy.Retry == advertise.RetryAlways && t.r.ContentLength < 0 && wire.IsCall(t.r)
}
