package ingress

import (
	"strconv"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
)

// changes returns the changes to a request and its answer for the current attempt.
func (t *request) changes() *upstream.Options {
	cfg, target := &t.handler.cfg, t.at.target
	x := &t.exchange
	*x = upstream.Options{
		Deadline:  cfg.Epoch.Add(t.at.sent + t.at.limit),
		AfterBody: t.policy.RequestTimeout,
		Progress:  t.policy.ProgressTimeout,
		Once:      t.policy.Retry == advertise.RetryNever || t.policy.Retry == advertise.RetryConnect && t.tcp == nil,
		Drop:      t.onField,
		PassRoute: t.toRelay && t.exposed,
		Verbatim:  t.toRelay || target.Secured,
		OnHead:    t.onHead,
		OnBody:    t.beginUpload(),
	}
	if t.at.cut {
		x.AfterBody = t.at.limit
	}
	headers, answer := t.headers[:0], t.answerHeaders[:0]
	if t.tcp != nil {
		x.Moved, headers = &t.tcp.moved, t.sessionFields(headers)
		// A sidecar sends the header itself.
		x.ProxyProtocol = !target.Secured && target.Endpoint != nil && target.Endpoint.ProxyProtocol
	} else {
		headers = t.forwarded(x, headers)
	}
	if t.limited {
		x.Latest = cfg.Epoch.Add(t.latest)
		headers = wire.PassTimeLeft(headers, t.r.Header, t.latest-t.at.sent)
	}
	if target.Secured {
		x.Sidecar = true
		headers = append(headers, wire.Field{Name: wire.ServiceHeader, Value: t.service.Name})
	}
	if t.session.cookie != nil && !t.toRelay {
		x.SetCookie, x.OnCookie = t.setCookie(target), t.onCookie
	}
	if t.tried.Session && !t.toRelay {
		x.Session = upstream.Session{
			Service: t.service.Name, Worker: target.Node,
			Key: t.key != "", Cookie: t.session.set || t.session.cookie != nil && t.session.node == target.Node,
		}
	}
	if t.toRelay {
		headers = append(headers, wire.Field{Name: wire.ServiceHeader, Value: t.service.Name}, wire.Field{Name: wire.HopHeader, Value: cfg.Self})
		if t.key != "" {
			headers = append(headers, wire.Field{Name: wire.KeyHeader, Value: t.key})
		}
		headers = t.handler.rates.counted(t, headers)
		if t.exposed {
			headers = append(headers, wire.Field{Name: wire.ExposeHeader, Value: "1"})
		}
	}
	if t.exposed {
		// The relay that picked the worker names it; the relay that forwarded keeps that and
		// adds its own number of attempts.
		if !t.toRelay {
			answer = append(answer, wire.Field{Name: wire.EndpointHeader, Value: target.Node})
		}
		if !cfg.FromRelay {
			answer = append(answer, wire.Field{Name: wire.RelayHeader, Value: cfg.Self}, wire.Field{Name: wire.AttemptsHeader, Value: strconv.Itoa(t.attempts)})
		}
	}
	if t.trace != nil {
		headers = t.trace.Fields(headers)
	}
	if t.record != nil && t.record.passes {
		headers = append(headers, wire.Field{Name: wire.RequestIDHeader, Value: t.record.ID})
	}
	x.Header, x.ResponseHeader = headers, answer
	return x
}
