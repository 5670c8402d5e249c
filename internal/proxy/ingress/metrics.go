package ingress

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// Metrics counts requests. The series of a service begin with its first request and end
// with the service, so that a service without requests costs nothing. Requests for names
// that only a client knows are counted without the name.
type Metrics struct {
	vectors
	silent [upstream.SilentBoth + 1]prometheus.Counter // by side

	services sync.Map       // *routing.Service to *ServiceMetrics, so that a request needs no label lookup
	making   sync.Mutex     // held while series of a service are created or deleted
	nowhere  ServiceMetrics // counts requests that outlive their service; not registered
}

// vectors hold the series of all services.
type vectors struct {
	requests   *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	attempts   prometheus.Histogram
	retries    *prometheus.CounterVec
	rejections *prometheus.CounterVec
	overloads  *prometheus.CounterVec

	sessionDurations *prometheus.HistogramVec
	sessionEnds      *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{vectors: newVectors(reg), nowhere: *newVectors(nil).forService("")}
	reg.MustRegister(limits{m}, openSessions{m})
	for _, code := range []wire.Code{wire.CodeUnknownService, wire.CodeBadRequest, wire.CodeMethodNotAllowed, wire.CodeNotReady, wire.CodeNoEndpoint, codeMisdirected} {
		m.rejections.WithLabelValues("", string(code))
	}
	silent := metric.With(reg).CounterVec("ringway_relay_silent_requests_total", "Requests and tunnels ended because no byte moved for --progress-timeout, by the side that was silent: client, endpoint, or both (an idle tunnel, a stream both ways).", "side")
	for side := upstream.SilentClient; side <= upstream.SilentBoth; side++ {
		m.silent[side] = silent.WithLabelValues(side.String())
	}
	return m
}

func newVectors(reg prometheus.Registerer) vectors {
	f := metric.With(reg)
	return vectors{
		requests: f.CounterVec("ringway_relay_requests_total", "Requests carried or refused, by service and outcome: the class of the status, or cancelled, aborted (the answer broke off), failed (answered by the relay itself).", "service", "outcome"),
		durations: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ringway_relay_request_duration_seconds", Help: "Time until the answer to a request began, all attempts together.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"service"}),
		// Of all services together: ringway_relay_retries_total has those of each, at fewer series.
		attempts:   f.Histogram("ringway_relay_request_attempts", "Attempts that a request took, answered or not, of all services; 0 if there was no endpoint to try.", []float64{0, 1, 2, 3, 5, 8}),
		retries:    f.CounterVec("ringway_relay_retries_total", "Attempts after a failed one, by the stage in which it failed, or attempt_timeout (it ran out of --attempt-timeout), declared_dead (gossip found its endpoint dead), full (all slots of the worker were taken), refused (over HTTP/2 the endpoint did not act on the request and said so) or local (this relay could open no connection); no_budget counts retries that were not made.", "service", "reason"),
		rejections: f.CounterVec("ringway_relay_rejections_total", "Requests that the relay answered itself, by code; service is empty when it is unknown.", "service", "code"),
		overloads:  f.CounterVec("ringway_relay_overload_refusals_total", "Requests refused because too many of their service were in flight, by the limit that was reached: fixed (--max-in-flight), adaptive (--adaptive-in-flight) or memory (the relay is near its memory limit, whatever the service).", "service", "limit"),
		sessionDurations: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ringway_relay_tcp_session_duration_seconds", Help: "Time from the open connection to the endpoint until the end of a TCP session.",
			Buckets: []float64{.01, .1, 1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600},
		}, []string{"service"}),
		sessionEnds: f.CounterVec("ringway_relay_tcp_sessions_ended_total", "TCP sessions that ended, by how: closed (by both sides), client_reset or endpoint_reset (the connection of that side broke), idle (no byte for --progress-timeout), stopped (this relay stops, or a rebalance with --cut). Those that did not begin are in ringway_relay_rejections_total.", "service", "end"),
	}
}

// The limits on the requests in flight of a service.
const (
	limitFixed = iota
	limitAdaptive
	limitMemory
)

var limitNames = [...]string{limitFixed: "fixed", limitAdaptive: "adaptive", limitMemory: "memory"}

// limits collects the adaptive limits at the time of a scrape.
type limits struct{ metrics *Metrics }

var limitDesc = prometheus.NewDesc("ringway_relay_adaptive_limit_requests",
	"Requests that may wait for the beginning of their answers, by --adaptive-in-flight; 0 while the endpoints keep up and nothing is limited.", []string{"service"}, nil)

// Describe implements prometheus.Collector.
func (limits) Describe(descs chan<- *prometheus.Desc) { descs <- limitDesc }

// Collect reads the limit of each service that has had requests.
func (l limits) Collect(metrics chan<- prometheus.Metric) {
	l.metrics.services.Range(func(service, _ any) bool {
		s := service.(*routing.Service)
		metrics <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(s.Waiting.Limit()), s.Name)
		return true
	})
}

// outcome is how a request ended: the class of its status, or one of the outcomes that
// follow the classes. It is an index, so that counting needs no label lookup.
type outcome int

const (
	outcomeCancelled outcome = iota + 6 // follows 0xx to 5xx
	outcomeAborted
	outcomeFailed
)

var outcomes = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx", "cancelled", "aborted", "failed"}

// Reasons of retries in addition to the stages of upstream.
const (
	stageMisdirected = "misdirected"
	stageOther       = "other"
	stageNoBudget    = "no_budget"

	stageAttemptTimeout = "attempt_timeout"
	stageDeclaredDead   = "declared_dead"
	stageFull           = "full"
	stageLocal          = "local"
	stageRefused        = "refused"
)

// codeMisdirected is used only between relays: 421, and the sender asks another relay.
const codeMisdirected wire.Code = "misdirected"

func outcomeOfStatus(status int) outcome {
	return outcome(min(max(status/100, 0), 5)) // 6xx and above are not valid
}

// unnamed counts a request for a service that does not exist.
func (m *Metrics) unnamed(code wire.Code) { m.rejections.WithLabelValues("", string(code)).Inc() }

// forService returns the counters of one service. All are created together, at 0, because a rate
// does not include the first event of a series that begins with it.
func (m *Metrics) forService(service *routing.Service) *ServiceMetrics {
	if s, ok := m.services.Load(service); ok {
		return s.(*ServiceMetrics)
	}
	m.making.Lock()
	defer m.making.Unlock()
	if s, ok := m.services.Load(service); ok {
		return s.(*ServiceMetrics)
	}
	if service.Gone() {
		return &m.nowhere // Vanished has deleted the series, or will and must find none
	}
	s := m.vectors.forService(service.Name)
	m.services.Store(service, s)
	return s
}

// Requests returns how many requests of a service have ended, on all handlers that share m.
func (m *Metrics) Requests(service *routing.Service) uint64 {
	known, ok := m.services.Load(service)
	if !ok {
		return 0
	}
	sum := uint64(0)
	for _, c := range known.(*ServiceMetrics).byOutcome {
		sum += counted(c)
	}
	return sum
}

// Counts are the requests of a service since it appeared, and those that run now.
type Counts struct {
	// Requests counts those that ended, Errors those of them that failed.
	Requests, Errors uint64
	// InFlight counts those that run, Sessions the TCP sessions among them.
	InFlight, Sessions int64
}

// Traffic returns the counters of a service, on all handlers that share m: all, those of them that
// another relay forwarded, and the histogram of the time until an answer began, nil before the first
// request. Refused requests count as requests and errors, and have no answer in the histogram.
func (m *Metrics) Traffic(service *routing.Service) (all, forwarded Counts, latency *dto.Histogram) {
	// The forwarded ones first: a request that begins or ends meanwhile must not make a part
	// greater than the whole.
	forwarded.InFlight = service.Forwarded.Load()
	all.InFlight = service.InFlight.Load()
	known, ok := m.services.Load(service)
	if !ok {
		return all, forwarded, nil
	}
	s := known.(*ServiceMetrics)
	forwarded.Errors = s.forwarded.errors.Load()
	forwarded.Requests = s.forwarded.requests.Load()
	refused := s.refused.Load()
	all.Errors, all.Requests = refused, refused
	for o, c := range s.byOutcome {
		n := counted(c)
		all.Requests += n
		if outcome(o).failed() {
			all.Errors += n
		}
	}
	latency = read(s.duration.(prometheus.Metric)).GetHistogram()
	m.making.Lock()
	sessions := s.sessions
	m.making.Unlock()
	if sessions != nil {
		forwarded.Sessions = sessions.forwarded.Load()
		all.Sessions = sessions.open.Load()
	}
	return all, forwarded, latency
}

// failed reports whether operators count the outcome as an error.
func (o outcome) failed() bool { return o == 5 || o == outcomeAborted || o == outcomeFailed }

// read returns the value of a metric.
func read(m prometheus.Metric) *dto.Metric {
	now := &dto.Metric{}
	_ = m.Write(now) // fails only for a metric with invalid labels, and such a metric is not created
	return now
}

func counted(c prometheus.Counter) uint64 { return uint64(read(c).GetCounter().GetValue()) }

// Vanished deletes the series of a service that is Gone. Requests that still hold its
// counters are no longer exported.
func (m *Metrics) Vanished(service *routing.Service) {
	m.making.Lock()
	defer m.making.Unlock()
	if _, made := m.services.LoadAndDelete(service); made {
		m.vectors.end(service.Name)
	}
}

func (v vectors) forService(service string) *ServiceMetrics {
	s := &ServiceMetrics{
		duration: v.durations.WithLabelValues(service), attempts: v.attempts,
		retries: map[string]prometheus.Counter{}, rejections: map[wire.Code]prometheus.Counter{},
	}
	for i, name := range outcomes {
		s.byOutcome[i] = v.requests.WithLabelValues(service, name)
	}
	for _, reason := range retryReasons() {
		s.retries[reason] = v.retries.WithLabelValues(service, reason)
	}
	for _, code := range codesOfAService {
		s.rejections[code] = v.rejections.WithLabelValues(service, string(code))
	}
	for limit, name := range limitNames {
		s.overloads[limit] = v.overloads.WithLabelValues(service, name)
	}
	return s
}

// end deletes the series that of creates, one by one: DeletePartialMatch would scan the
// series of every service.
func (v vectors) end(service string) {
	v.durations.DeleteLabelValues(service)
	for _, name := range outcomes {
		v.requests.DeleteLabelValues(service, name)
	}
	for _, reason := range retryReasons() {
		v.retries.DeleteLabelValues(service, reason)
	}
	for _, code := range codesOfAService {
		v.rejections.DeleteLabelValues(service, string(code))
	}
	for _, name := range limitNames {
		v.overloads.DeleteLabelValues(service, name)
	}
	v.sessionDurations.DeleteLabelValues(service)
	for _, name := range sessionEnds {
		v.sessionEnds.DeleteLabelValues(service, name)
	}
}

// retryReasons returns the stages and the other reasons of retries.
func retryReasons() []string {
	reasons := []string{stageMisdirected, stageOther, stageNoBudget, stageAttemptTimeout, stageDeclaredDead, stageFull, stageLocal, stageRefused}
	for _, stage := range upstream.Stages() {
		reasons = append(reasons, stage.String())
	}
	return reasons
}

// codesOfAService are the codes of answers to requests for an existing service.
var codesOfAService = [...]wire.Code{
	wire.CodeBadRequest, wire.CodeUpstreamFailed, wire.CodeNoEndpoint, wire.CodeNotReady, wire.CodeOverloaded, wire.CodeClientLimit, wire.CodeRateLimited, wire.CodeBlocked, wire.CodeTimeout, wire.CodeExhausted, wire.CodeCircuitOpen, codeMisdirected,
}

// ServiceMetrics are the counters of one service.
type ServiceMetrics struct {
	duration   prometheus.Observer
	attempts   prometheus.Observer
	byOutcome  [len(outcomes)]prometheus.Counter
	retries    map[string]prometheus.Counter // by reason
	rejections map[wire.Code]prometheus.Counter
	overloads  [len(limitNames)]prometheus.Counter

	// refused counts what a limit refused, which has no outcome. forwarded counts those of
	// all that another relay forwarded; both are for the admin API only.
	refused   atomic.Uint64
	forwarded struct{ requests, errors atomic.Uint64 }

	sessions *sessionMetrics // nil before the first session; guarded by Metrics.making
}

func (s *ServiceMetrics) finished(o outcome, attempts int, took time.Duration) {
	s.duration.Observe(took.Seconds())
	s.attempts.Observe(float64(attempts))
	s.byOutcome[o].Inc()
}

// forwardedEnded counts the end of a request that another relay forwarded.
func (s *ServiceMetrics) forwardedEnded(failed bool) {
	s.forwarded.requests.Add(1)
	if failed {
		s.forwarded.errors.Add(1)
	}
}

func (s *ServiceMetrics) retried(reason string) {
	c, known := s.retries[reason]
	if !known {
		c = s.retries[stageOther]
	}
	c.Inc()
}

// overloaded counts a request that one of the limits refused.
func (s *ServiceMetrics) overloaded(limit int) { s.overloads[limit].Inc() }

func (s *ServiceMetrics) rejected(code wire.Code) { s.rejections[code].Inc() }
