package sidecar

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
)

// exchange is one request in flight. Exchanges are pooled, so that a successful request
// needs no further allocation here.
type exchange struct {
	changes upstream.Options
	service *service
	load    [1]wire.Field
	left    [2]wire.Field              // of the client's time
	onHead  func(upstream.Result) bool // headArrived, bound once
	body    upstream.Replay            // for a service over HTTP/2
}

var exchanges = sync.Pool{New: func() any {
	x := &exchange{load: [1]wire.Field{{Name: wire.LoadHeader}}}
	x.onHead = x.headArrived
	return x
}}

// serve carries one request of an accepted relay.
func (s *Sidecar) serve(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get(wire.ServiceHeader)
	service, ok := (*s.services.Load())[name]
	if !ok {
		s.metrics.refused.WithLabelValues(reasonUnknownService).Inc()
		s.refuse(w, r, wire.Failure{
			Text: "this worker does not offer the service " + strconv.Quote(name), Code: wire.CodeUnknownService, Service: name,
		}, wire.FailedUnsent)
		return
	}
	if upstream.ForTCP(r) != (service.protocol == advertise.TCP) {
		// Relays know what a service takes. A session that is opened to a service of HTTP would
		// pass all rules for requests.
		service.results[resultRejected].Add(1)
		s.refuse(w, r, wire.Failure{
			Text: "the service " + strconv.Quote(name) + " takes TCP sessions and no requests, or the other way round", Code: wire.CodeBadRequest, Service: name,
		}, "")
		return
	}
	if !service.enter() {
		service.results[resultFull].Add(1)
		s.awaitBody(w, r)
		wire.RefuseFull(w, r, wire.Failure{Service: name}, service.inFlight.Load())
		return
	}
	carried, fault := s.carry(w, r, service)
	if fault == nil {
		service.results[resultOfStatus(carried.Status)].Add(1)
		return
	}
	s.failed(w, r, service, fault)
}

// carry carries a request that has entered the service. It frees the slot also when it panics, because the
// server logs a panic and goes on.
func (s *Sidecar) carry(w http.ResponseWriter, r *http.Request, service *service) (upstream.Result, *upstream.Fault) {
	defer service.inFlight.Add(-1)
	x := exchanges.Get().(*exchange)
	x.service = service
	x.changes = upstream.Options{
		Drop: drops, ResponseHeader: x.load[:], OnHead: x.onHead, ProxyProtocol: service.proxyProtocol,
		Progress: time.Duration(service.progress.Load()), Once: service.once.Load(),
	}
	if left, given, err := wire.TimeLeft(r.Header); given && err == nil {
		x.changes.Deadline = time.Now().Add(left)
		x.changes.Header = wire.PassTimeLeft(x.left[:0], r.Header, left)
	}
	if service.pool.OverHTTP2() {
		x.body.Begin(r)
	}
	carried, fault := service.pool.Carry(w, r, &x.changes)
	if x.again(w, r, fault) {
		carried, fault = service.pool.Carry(w, r, &x.changes)
	}
	if service.upgrades != nil && fault != nil && errors.Is(fault, upstream.ErrNoWebSockets) {
		refused := fault
		if carried, fault = service.upgrades.Carry(w, r, &x.changes); service.lacksHTTP1(fault) {
			fault = refused
		}
	}
	x.body.End(r)
	if carried.Silent != upstream.SilentNone {
		s.metrics.silent.WithLabelValues(carried.Silent.String()).Inc()
	}
	x.service = nil
	exchanges.Put(x)
	return carried, fault
}

// again reports whether the service did not act on the request, so that it may get the request
// once more, over another connection (RFC 9113 §8.7): the worker has no other endpoint.
func (x *exchange) again(w http.ResponseWriter, r *http.Request, e *upstream.Fault) bool {
	if e == nil || !e.Unprocessed() || x.service.never.Load() || r.Context().Err() != nil {
		return false
	}
	if x.body.Begun() {
		return x.body.Rewind(w)
	}
	return !e.BodyConsumed()
}

// lacksHTTP1 reports whether a service over HTTP/2 ended the connection of a WebSocket over HTTP/1.1
// as one that does not know HTTP/1.1. That is no failure of the service.
func (s *service) lacksHTTP1(e *upstream.Fault) bool {
	return e != nil && e.Sent() && !e.Committed() && !e.Client() && !e.Unanswered() && !e.Stopped() &&
		s.upgrades.Stats().Answers == 0
}

// drops reports whether a field of a request stays here. The caller passes: only relays and
// observers can connect, and they name only callers that presented a certificate.
func drops(name string) bool { return wire.Reserved(name) && name != wire.CallerHeader }

// headArrived sets the load when the answer begins: the number of the other requests in
// flight to the service.
func (x *exchange) headArrived(r upstream.Result) bool {
	x.load[0].Value = strconv.FormatInt(max(x.service.inFlight.Load()-1, 0), 10)
	if r.Status == http.StatusServiceUnavailable && !r.Shed {
		// The service did not report overload, but with a load the relay would take it for
		// overloaded.
		x.load[0].Value = ""
	}
	return true
}

// failed answers for a service that gave no answer. The answer has only the data that the
// relay needs to decide about a retry; the log has the rest.
func (s *Sidecar) failed(w http.ResponseWriter, r *http.Request, service *service, e *upstream.Fault) {
	end, sent := resultUnsent, wire.FailedUnsent
	f := wire.Failure{Text: e.Error(), Code: wire.CodeUpstreamFailed, Service: service.name}
	switch {
	case e.Stopped() && e.Committed():
		end = resultCancelled // not a failure of the service
	case e.Stopped() && e.Sent():
		end, sent = resultSent, wire.FailedSent
	case e.Stopped():
	case e.Committed() && !e.Client():
		end = resultAborted
	case e.Committed():
		end = resultCancelled
	case e.Client() && r.Context().Err() != nil:
		end = resultCancelled
	case e.Client():
		end, f.Code, sent = resultRejected, wire.CodeBadRequest, ""
		f.Text = "the request cannot be carried: " + e.ForClient() // relays pass the text on
	case e.Cancelled():
		end, sent = resultSent, wire.FailedCancelled
	case e.Sent():
		end, sent = resultSent, wire.FailedSent
	case errors.Is(e, upstream.ErrUntrusted) || errors.Is(e, upstream.ErrNotH2):
		end = resultUntrusted
		s.lines.Log(slog.LevelWarn, "cannot use a service over TLS", "service", service.name, "err", e)
	}
	service.results[end].Add(1)
	s.cfg.Logger.Debug("request failed", "service", service.name, "result", results[end], "err", e)
	if end == resultAborted || end == resultCancelled {
		e.PassCancel(w)
		panic(http.ErrAbortHandler) // after the head of an answer only a broken connection can signal it
	}
	s.refuse(w, r, f, sent)
}

var statusOf = map[wire.Code]int{
	wire.CodeBadRequest:     http.StatusBadRequest,
	wire.CodeUnknownService: http.StatusNotFound,
	wire.CodeUpstreamFailed: http.StatusBadGateway,
}

// refuse answers r with f. Failed is the value of wire.FailedHeader, empty if a retry
// would not help.
func (s *Sidecar) refuse(w http.ResponseWriter, r *http.Request, f wire.Failure, failed string) {
	s.awaitBody(w, r)
	if failed != "" {
		w.Header().Set(wire.FailedHeader, failed)
	}
	f.Write(w, statusOf[f.Code])
}

// awaitBody reads the rest of a small body. It does not wait for a body for which the
// client expects 100 Continue. For a larger body or a slow relay the deadline stays set, so
// that the server does not wait for the rest either and closes the connection.
func (s *Sidecar) awaitBody(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if r.Body == http.NoBody || r.Header.Get("Expect") != "" || control.SetReadDeadline(time.Now().Add(s.cfg.bodyPatience)) != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, r.Body, wire.ReplayLimit+1); err == io.EOF {
		_ = control.SetReadDeadline(time.Time{})
	}
}
