package sidecar

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/relay/ingress"
	"github.com/ringway/ringway/internal/relay/upstream"
)

// exchange is one request on its way. Exchanges are pooled: one that succeeds
// costs nothing beyond the carrying.
type exchange struct {
	service *service
	load    [1]upstream.Field
	left    [2]upstream.Field          // of the client's time
	onHead  func(upstream.Result) bool // headArrived, bound once
}

var exchanges = sync.Pool{New: func() any {
	x := &exchange{load: [1]upstream.Field{{Name: upstream.LoadHeader}}}
	x.onHead = x.headArrived
	return x
}}

// serve carries one request of an admitted relay.
func (s *Sidecar) serve(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get(ingress.ServiceHeader)
	service, ok := (*s.services.Load())[name]
	if !ok {
		s.metrics.refused.WithLabelValues(reasonUnknownService).Inc()
		s.refuse(w, r, failure{
			Text: "this worker does not offer the service " + strconv.Quote(name), Code: ingress.CodeUnknownService, Service: name,
		}, upstream.FailedUnsent)
		return
	}
	if !service.enter() {
		service.results[resultFull].Add(1)
		w.Header().Set(upstream.LoadHeader, strconv.FormatInt(service.inFlight.Load(), 10))
		s.refuse(w, r, failure{
			Text: "this worker has as many requests of this service in flight as it has slots", Code: ingress.CodeOverloaded, Service: name,
		}, upstream.FailedFull)
		return
	}
	x := exchanges.Get().(*exchange)
	x.service = service
	pool := service.pool
	if service.upgrades != nil && r.Header["Upgrade"] != nil {
		pool = service.upgrades
	}
	exchange := upstream.Exchange{Drop: ingress.Reserved, ResponseHeader: x.load[:], OnHead: x.onHead, Progress: s.cfg.ProgressTimeout}
	if left, given, err := ingress.TimeLeft(r.Header); given && err == nil {
		exchange.Deadline = time.Now().Add(left)
		exchange.Header = ingress.PassTimeLeft(x.left[:0], r.Header, left)
	}
	carried, err := pool.Carry(w, r, exchange)
	if carried.Silent != upstream.SilentNone {
		s.metrics.silent.WithLabelValues(carried.Silent.String()).Inc()
	}
	x.service = nil
	exchanges.Put(x)
	service.inFlight.Add(-1)
	if err == nil {
		service.results[resultOfStatus(carried.Status)].Add(1)
		return
	}
	s.failed(w, r, service, err)
}

// headArrived fills in the load at the moment the answer begins: the other
// requests that the service has then.
func (x *exchange) headArrived(r upstream.Result) bool {
	x.load[0].Value = strconv.FormatInt(max(x.service.inFlight.Load()-1, 0), 10)
	if r.Status == http.StatusServiceUnavailable && !r.Shed {
		// With a load, a relay would take it for busy. It did not say so.
		x.load[0].Value = ""
	}
	return true
}

// failed answers for a service that did not. Only what the relay has to know for
// the decision about a retry is told there; the log has the rest.
func (s *Sidecar) failed(w http.ResponseWriter, r *http.Request, service *service, err error) {
	var e *upstream.Error
	errors.As(err, &e) // Carry fails with nothing else
	end, sent := resultUnsent, upstream.FailedUnsent
	f := failure{Text: err.Error(), Code: ingress.CodeUpstreamFailed, Service: service.name}
	switch {
	case e.Committed() && !e.Client():
		end = resultAborted
	case e.Committed():
		end = resultCancelled
	case e.Client() && r.Context().Err() != nil:
		end = resultCancelled
	case e.Client():
		end, f.Code, sent = resultRejected, ingress.CodeBadRequest, ""
		f.Text = "the request cannot be carried: " + e.Fault() // relays pass it on
	case e.Sent():
		end, sent = resultSent, upstream.FailedSent
	}
	service.results[end].Add(1)
	s.cfg.Logger.Debug("request failed", "service", service.name, "result", results[end], "err", err)
	if end == resultAborted || end == resultCancelled {
		panic(http.ErrAbortHandler) // only a broken connection can tell
	}
	s.refuse(w, r, f, sent)
}
