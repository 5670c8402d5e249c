package routing

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

// triedSize is how many endpoints a Tried can hold: those of at most eight attempts.
const triedSize = 8

// Tried holds the endpoints that one request must not be sent to again. The zero value is
// empty and ready. It is not for concurrent use, and allocates nothing.
type Tried struct {
	// Session is true if the request opens a session: then the balancer counts sessions and
	// does not compare latencies. Strategies pick as for every request.
	Session bool

	canary canaryGroup // of the request, if its service has a canary

	exclusion selection.Exclusion
	ids       [triedSize]string // the same for the canary
	n         int
	ordering  ordering // of the current pick
}

// Add records that the endpoint of p was tried.
func (t *Tried) Add(p selection.Pick[*Target]) {
	p.AddTo(&t.exclusion)
	if t.n < len(t.ids) {
		t.ids[t.n] = p.ID()
		t.n++
	}
}

// ordering is the selection.Chooser of one request: the strategy of its service, which orders the
// endpoints that the balancer does not exclude.
type ordering struct {
	choice   *Choice
	request  strategy.Request
	decision *strategy.Decision // gets the last choice; nil if nothing explains it
}

// Choose implements selection.Chooser.
func (o *ordering) Choose(x *selection.Exclusion) (id string, err error) {
	o.request.Balancer = x
	var e *strategy.Endpoint
	if o.decision == nil {
		e, err = o.choice.strategy.Pick(o.request)
	} else {
		*o.decision = o.choice.strategy.PickExplained(o.request)
		e, err = o.decision.Winner, o.decision.Err
	}
	switch {
	case errors.Is(err, strategy.ErrNoMeasurement):
		return o.unmeasured(x, err)
	case err != nil:
		return "", err
	}
	return e.ID, nil
}

// unmeasured chooses while nothing was measured yet, or nothing of the endpoints that are left: in
// the order of the preferred nodes, and without such nodes as the balancer does.
func (o *ordering) unmeasured(x *selection.Exclusion, err error) (string, error) {
	order := o.choice.preferred.Load()
	if order == nil || len(*order) == 0 {
		return "", nil
	}
	for _, id := range *order {
		if !x.Excludes(id) {
			return id, nil
		}
	}
	return "", err
}

// Pick chooses an endpoint for a request that begins now and counts the request as begun;
// the ticket must be returned to s.Endpoints. Only a strategy by key reads key. An
// endpoint that was evicted because of its failures is chosen only if the strategy has no
// other: in this way a deterministic strategy fails over. Likewise an endpoint that
// has this relay's share of its slots in flight is chosen only if no other has room, and
// before an evicted one. The error contains the reason that there is none. Pick allocates
// nothing unless the range has just changed.
func (s *Service) Pick(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], error) {
	if s.picks == nil || !sampled(now) {
		return s.pickOfGroup(key, now, tried)
	}
	began := time.Now()
	p, err := s.pickOfGroup(key, now, tried)
	s.picks.took(len(s.Route().Range), time.Since(began))
	return p, err
}

func (s *Service) pickOfGroup(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], error) {
	if canary := s.Route().canary; canary != nil {
		return canary.pick(s, key, now, tried)
	}
	return s.pick(key, now, tried)
}

func (s *Service) pick(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], error) {
	c := s.choice.Load()
	if c.strategy == nil {
		if tried.Session {
			return s.Endpoints.PickSession(now, &tried.exclusion, nil)
		}
		return s.Endpoints.Pick(now, &tried.exclusion)
	}
	tried.ordering = ordering{choice: c, request: strategy.Request{Key: key, Now: now}}
	return s.Endpoints.PickBy(now, &tried.exclusion, &tried.ordering)
}

// pickMetrics measure a sample of the picks of all services: two clock reads cost more than a pick.
type pickMetrics struct{ duration, endpoints prometheus.Histogram }

func newPickMetrics(reg prometheus.Registerer) *pickMetrics {
	f := metric.With(reg)
	return &pickMetrics{
		duration:  f.Histogram("ringway_relay_pick_duration_seconds", "Time to pick an endpoint, by whatever strategy; one of about 1024 picks is measured.", []float64{1e-7, 2.5e-7, 5e-7, 1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 1e-4, 1e-3}),
		endpoints: f.Histogram("ringway_relay_pick_endpoints", "Endpoints in the range of the service from which those picks chose, evicted ones included.", prometheus.ExponentialBuckets(1, 2, 13)), // to 4096
	}
}

func (m *pickMetrics) took(endpoints int, d time.Duration) {
	m.duration.Observe(d.Seconds())
	m.endpoints.Observe(float64(endpoints))
}

// sampled reports whether a pick at this instant is measured: one of about 1024. The product mixes
// the bits, because some clocks tick in microseconds.
func sampled(now selection.Instant) bool { return uint64(now)*0x9e3779b97f4a7c15>>54 == 0 }
