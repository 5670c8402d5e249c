package ingress

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// Session is a TCP connection of a client. Package tcp makes a request of it, which the
// handler carries like every other: the answer begins when the connection to an endpoint
// is open. The mark is in the context of the request and not in a header, so that no
// client of HTTP can make one.
type Session struct {
	// Refused is why no session began; empty if one did.
	Refused wire.Code
	// Detail is the text of the refusal, for the log.
	Detail string
}

type sessionKey struct{}

// WithSession marks the request of a session.
func WithSession(ctx context.Context, s *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

func sessionOf(r *http.Request) *Session {
	s, _ := r.Context().Value(sessionKey{}).(*Session)
	return s
}

// isSession reports whether a request is one for a TCP session: of package tcp, or of another
// relay.
func isSession(r *http.Request, hop bool) bool {
	return sessionOf(r) != nil || hop && upstream.ForTCP(r)
}

// checkKind returns false if it has answered, because the service takes requests and not
// sessions, or the other way round, or because the client may not open a session.
func (t *request) checkKind() bool {
	f := failure{Code: wire.CodeBadRequest, Service: t.service.Name}
	switch {
	case t.tcp != nil && !t.handler.cfg.FromRelay && sessionOf(t.r) == nil:
		f.Text = "only relays may ask each other for " + wire.UpgradeTCP + ": connect to an address of --tcp-ingress"
	case len(t.route.Endpoints) == 0 || t.route.TCP == (t.tcp != nil):
		return true
	case t.route.TCP:
		f.Text = "this service takes TCP sessions and no requests: connect to an address of --tcp-ingress"
	default:
		f.Text = "this service takes requests of HTTP and no TCP sessions: its workers do not advertise protocol=tcp"
	}
	t.answer(f, t.began)
	return false
}

// sessionFields adds the field that shows the service where a session comes from.
func (t *request) sessionFields(headers []wire.Field) []wire.Field {
	if from := t.r.Header[wire.ConnectionHeader]; len(from) == 1 {
		headers = append(headers, wire.Field{Name: wire.ConnectionHeader, Value: from[0]})
	}
	return headers
}

// sessionBegan counts a session when its connection to the endpoint is open. It returns
// false for an answer that opens none: the relay or sidecar that was asked has refused.
func (t *request) sessionBegan(r upstream.Result) bool {
	if r.Status == http.StatusSwitchingProtocols {
		t.tcp.open.Add(1)
		if t.handler.cfg.FromRelay {
			t.tcp.forwarded.Add(1)
		}
		t.opened = true
		return true
	}
	t.relayed = wire.CodeUpstreamFailed
	if t.toRelay && r.Failed != "" {
		t.relayed = wire.Code(r.Failed)
	}
	return false
}

// sessionEnded counts the end of a session.
func (t *request) sessionEnded(r *upstream.Result, fault *upstream.Fault) {
	if !t.opened {
		return
	}
	t.opened = false
	if t.handler.cfg.FromRelay {
		t.tcp.forwarded.Add(-1)
	}
	t.tcp.open.Add(-1)
	t.tcp.duration.Observe((time.Since(t.handler.cfg.Epoch) - t.at.answered).Seconds())
	t.tcp.ends[sessionEndOf(r, fault)].Inc()
}

type sessionEnd int

// The ends of sessions.
const (
	endClosed sessionEnd = iota
	endClient
	endEndpoint
	endIdle
	endStopped
)

var sessionEnds = [...]string{endClosed: "closed", endClient: "client_reset", endEndpoint: "endpoint_reset", endIdle: "idle", endStopped: "stopped"}

func sessionEndOf(r *upstream.Result, fault *upstream.Fault) sessionEnd {
	switch {
	case r.Silent != upstream.SilentNone:
		return endIdle
	case r.Broke == upstream.BrokeEndpoint || fault != nil:
		return endEndpoint
	case r.Broke == upstream.BrokeClient:
		return endClient
	case r.Stopped:
		return endStopped
	}
	return endClosed
}

// sessionMetrics are the counters of the TCP sessions of one service.
type sessionMetrics struct {
	open atomic.Int64
	// forwarded counts the open ones that another relay forwarded.
	forwarded atomic.Int64
	moved     upstream.Moved
	duration  prometheus.Observer
	ends      [len(sessionEnds)]prometheus.Counter
}

// sessionsOf returns the counters of the sessions of a service. They begin with its first
// session.
func (m *Metrics) sessionsOf(service *routing.Service) *sessionMetrics {
	s := m.forService(service)
	m.making.Lock()
	defer m.making.Unlock()
	if s.sessions == nil {
		v := m.vectors
		if s == &m.nowhere || service.Gone() {
			v = newVectors(nil)
		}
		s.sessions = &sessionMetrics{duration: v.sessionDurations.WithLabelValues(service.Name)}
		for i, name := range sessionEnds {
			s.sessions.ends[i] = v.sessionEnds.WithLabelValues(service.Name, name)
		}
	}
	return s.sessions
}

// openSessions collects at the time of a scrape what the sessions count themselves.
type openSessions struct{ metrics *Metrics }

var (
	sessionsDesc = prometheus.NewDesc("ringway_relay_tcp_sessions", "TCP sessions that are open.", []string{"service"}, nil)
	bytesDesc    = prometheus.NewDesc("ringway_relay_tcp_bytes_total", "Bytes of TCP sessions, by direction: to_endpoint, to_client.", []string{"service", "direction"}, nil)
)

// Describe implements prometheus.Collector.
func (openSessions) Describe(descs chan<- *prometheus.Desc) {
	descs <- sessionsDesc
	descs <- bytesDesc
}

// Collect reads the counters of each service that has had sessions.
func (o openSessions) Collect(metrics chan<- prometheus.Metric) {
	o.metrics.making.Lock()
	defer o.metrics.making.Unlock()
	o.metrics.services.Range(func(service, counters any) bool {
		name, s := service.(*routing.Service).Name, counters.(*ServiceMetrics).sessions
		if s == nil {
			return true
		}
		metrics <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(s.open.Load()), name)
		metrics <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(s.moved.ToEndpoint.Load()), name, "to_endpoint")
		metrics <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(s.moved.ToClient.Load()), name, "to_client")
		return true
	})
}
