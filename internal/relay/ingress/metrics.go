package ingress

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/internal/relay/upstream"
)

// Metrics counts requests. Service names come from the catalogue, which bounds
// how many there are; a name that only a client knows is counted without it.
type Metrics struct {
	requests   *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	retries    *prometheus.CounterVec
	rejections *prometheus.CounterVec

	services sync.Map // name to *ServiceMetrics, so that a request looks up no labels
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_relay_requests_total", Help: "Requests carried or refused, by service and outcome: the class of the status, or cancelled, aborted (the answer broke off), failed (answered by the relay itself).",
		}, []string{"service", "outcome"}),
		durations: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ringway_relay_request_duration_seconds", Help: "Time until the answer to a request began, all attempts together.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"service"}),
		retries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_relay_retries_total", Help: "Attempts after a failed one, by the stage in which it failed; no_budget counts retries that were not made.",
		}, []string{"service", "reason"}),
		rejections: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_relay_rejections_total", Help: "Requests that the relay answered itself, by code; service is empty when it is unknown.",
		}, []string{"service", "code"}),
	}
	for _, code := range []Code{CodeUnknownService, CodeBadRequest} {
		m.rejections.WithLabelValues("", string(code))
	}
	return m
}

// outcome is how a request ended: the class of its status, or what stands behind
// the classes. It is an index, so that counting looks up no label.
type outcome int

const (
	outcomeCancelled outcome = iota + 6 // behind 0xx to 5xx
	outcomeAborted
	outcomeFailed
)

var outcomes = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx", "cancelled", "aborted", "failed"}

// Reasons of retries besides the stages of upstream.
const (
	stageMisdirected = "misdirected"
	stageOther       = "other"
	stageNoBudget    = "no_budget"
)

// codeMisdirected is only between relays: 421, and the sender asks another.
const codeMisdirected Code = "misdirected"

func outcomeOfStatus(status int) outcome {
	return outcome(min(max(status/100, 0), 5)) // 6xx and above are no statuses
}

// unnamed counts a request that is for no service that there is.
func (m *Metrics) unnamed(code Code) { m.rejections.WithLabelValues("", string(code)).Inc() }

// Expect makes the counters of a service, at 0: rates do not see the first event of a
// series that begins with it. The first request would make them as well.
func (m *Metrics) Expect(service string) { m.of(service) }

// of returns the counters of one service.
func (m *Metrics) of(service string) *ServiceMetrics {
	if s, ok := m.services.Load(service); ok {
		return s.(*ServiceMetrics)
	}
	s := &ServiceMetrics{
		duration: m.durations.WithLabelValues(service),
		retries:  map[string]prometheus.Counter{}, rejections: map[Code]prometheus.Counter{},
	}
	for i, name := range outcomes {
		s.byOutcome[i] = m.requests.WithLabelValues(service, name)
	}
	for _, stage := range upstream.Stages() {
		s.retries[stage.String()] = m.retries.WithLabelValues(service, stage.String())
	}
	for _, reason := range []string{stageMisdirected, stageOther, stageNoBudget} {
		s.retries[reason] = m.retries.WithLabelValues(service, reason)
	}
	for _, code := range codesOfAService {
		s.rejections[code] = m.rejections.WithLabelValues(service, string(code))
	}
	stored, _ := m.services.LoadOrStore(service, s)
	return stored.(*ServiceMetrics)
}

// codesOfAService are those of answers to requests for a service that there is.
var codesOfAService = [...]Code{
	CodeBadRequest, CodeUpstreamFailed, CodeNoEndpoint, CodeOverloaded, CodeTimeout, CodeCircuitOpen, codeMisdirected,
}

// ServiceMetrics are the counters of one service.
type ServiceMetrics struct {
	duration   prometheus.Observer
	byOutcome  [len(outcomes)]prometheus.Counter
	retries    map[string]prometheus.Counter // by reason
	rejections map[Code]prometheus.Counter
}

func (s *ServiceMetrics) finished(o outcome, took time.Duration) {
	s.duration.Observe(took.Seconds())
	s.byOutcome[o].Inc()
}

func (s *ServiceMetrics) retried(reason string) {
	c, known := s.retries[reason]
	if !known {
		c = s.retries[stageOther]
	}
	c.Inc()
}

func (s *ServiceMetrics) rejected(code Code) { s.rejections[code].Inc() }
