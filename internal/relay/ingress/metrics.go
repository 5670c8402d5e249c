package ingress

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	return &Metrics{
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
}

// The outcomes of a request besides the classes of status.
const (
	outcomeCancelled = "cancelled"
	outcomeAborted   = "aborted"
	outcomeFailed    = "failed"
)

// Reasons of retries besides the stages of upstream.
const (
	stageMisdirected = "misdirected"
	stageOther       = "other"
	stageNoBudget    = "no_budget"
)

// codeMisdirected is only between relays: 421, and the sender asks another.
const codeMisdirected Code = "misdirected"

var statusClasses = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"}

func outcomeOfStatus(status int) string {
	if class := status / 100; class > 0 && class < len(statusClasses) {
		return statusClasses[class]
	}
	return statusClasses[http.StatusInternalServerError/100] // 6xx and above are no statuses
}

func (m *Metrics) rejected(service string, code Code) {
	m.rejections.WithLabelValues(service, string(code)).Inc()
}

// of returns the counters of one service.
func (m *Metrics) of(service string) *ServiceMetrics {
	if s, ok := m.services.Load(service); ok {
		return s.(*ServiceMetrics)
	}
	s := &ServiceMetrics{metrics: m, service: service, duration: m.durations.WithLabelValues(service)}
	for i, class := range statusClasses {
		s.byClass[i] = m.requests.WithLabelValues(service, class)
	}
	stored, _ := m.services.LoadOrStore(service, s)
	return stored.(*ServiceMetrics)
}

// ServiceMetrics are the counters of one service.
type ServiceMetrics struct {
	metrics  *Metrics
	service  string
	duration prometheus.Observer
	byClass  [len(statusClasses)]prometheus.Counter
}

func (s *ServiceMetrics) finished(outcome string, took time.Duration) {
	s.duration.Observe(took.Seconds())
	for i, class := range statusClasses {
		if class == outcome {
			s.byClass[i].Inc()
			return
		}
	}
	s.metrics.requests.WithLabelValues(s.service, outcome).Inc()
}

func (s *ServiceMetrics) retried(reason string) {
	s.metrics.retries.WithLabelValues(s.service, reason).Inc()
}
