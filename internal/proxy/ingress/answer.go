package ingress

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// unknown returns the code of the answer to a request for a service that this relay does not
// know.
func (h *Handler) unknown() wire.Code {
	switch {
	case !h.cfg.Informed():
		return wire.CodeNotReady
	case h.cfg.Empty():
		return wire.CodeNoEndpoint
	}
	return wire.CodeUnknownService
}

// refuseUnknown answers a request for a service that this relay does not know, with the code of
// unknown.
func (t *request) refuseUnknown(name string, code wire.Code) {
	h := t.handler
	if h.cfg.FromRelay && name != "" {
		// The forwarding relay knows the service, so other relays may know it as well.
		h.cfg.Metrics.unnamed(codeMisdirected)
		f := failure{Code: codeMisdirected, Service: name}
		h.traceRefusal(t.r, f)
		misdirect(t.w)
		t.record.refused(&f, http.StatusMisdirectedRequest, 0)
		return
	}
	f := failure{Text: fmt.Sprintf("no worker offers or recently offered the service %.80q: compare its name with those of `relay services`", name), Code: code, Service: name}
	switch {
	case name == "":
		f = failure{Text: "the request names no service: set the " + wire.ServiceHeader + " header, or use a host or path that the relay has a route for", Code: wire.CodeBadRequest}
	case code == wire.CodeNotReady:
		f.Text, f.retryAfter = "this relay does not know yet which services there are", retryAfter
	case code == wire.CodeNoEndpoint:
		f.Text, f.retryAfter = "this relay knows no service yet, because no worker offers one: start one, or see `relay check`", retryAfter
	}
	h.cfg.Metrics.unnamed(f.Code)
	t.answerRefusal(f)
}

// exceeds answers a request that exceeds a limit of the service.
func (t *request) exceeds(service *routing.Service, code wire.Code, text string) {
	f := failure{Text: text, Code: code, Service: service.Name, retryAfter: retryAfter}
	if code == wire.CodeOverloaded && t.handler.blameRelay(&f) {
		f.Code = wire.CodeNotReady
	}
	metrics := t.handler.cfg.Metrics.forService(service)
	metrics.rejected(f.Code)
	metrics.refused.Add(1)
	if t.handler.cfg.FromRelay {
		metrics.forwardedEnded(true)
	}
	t.answerRefusal(f)
}

// blameRelay makes f name this relay, in place of the service, while this relay reaches too
// few members. It reports whether that is so.
func (h *Handler) blameRelay(f *failure) bool {
	reason := h.cfg.Unreached()
	if reason == "" {
		return false
	}
	f.detail = f.details() + "; this relay " + reason
	f.Text = "this relay reaches too few of the members that it should, and is not ready: ask another relay"
	return true
}

func (t *request) answerRefusal(f failure) {
	t.handler.traceRefusal(t.r, f)
	t.writeFailure(f)
}

// refuse answers a request that the circuit did not allow.
func (t *request) refuse(err error) {
	f := failure{Text: err.Error(), Code: wire.CodeCircuitOpen, Service: t.service.Name, retryAfter: retryAfter}
	var open *circuit.NotHealthyError
	if errors.As(err, &open) {
		f.Text = fmt.Sprintf("too many requests of caller %.128q to this service failed lately: it is not asked again before the time in Retry-After", open.Caller)
		f.retryAfter = max(f.retryAfter, open.RetryAfter)
	}
	t.answer(f, time.Since(t.handler.cfg.Epoch))
}

// answerNoEndpoint answers a request that no endpoint can take, or for which all attempts
// failed.
func (t *request) answerNoEndpoint(err error) {
	if t.spent {
		t.budget.Refund()
	}
	now := time.Since(t.handler.cfg.Epoch)
	f := failure{Text: "no worker offers this service at the moment", Code: wire.CodeNoEndpoint, Service: t.service.Name, Attempts: t.failures}
	switch {
	case t.r.Context().Err() != nil: // the client left while the request waited for a connection to a relay
		t.abandon(now)
		return
	case t.at.ranOut(), t.late(now): // perhaps while it waited for a connection to a relay
		f.Text, f.Code = t.outOfTime(), wire.CodeTimeout
	case t.at.exhausted() != "":
		t.markLocal(&f)
	case t.full || errors.Is(err, selection.ErrFull):
		f.overCapacity()
	case t.allMisdirected():
		f.Text, f.Code, f.retryAfter = textMisdirected, wire.CodeNotReady, retryAfter
	case len(t.failures) > 0:
		f.Text, f.Code = "every endpoint that this relay can reach failed", wire.CodeUpstreamFailed
	case t.toRelay && !errors.Is(err, relaypool.ErrNoPeers):
		f.Text, f.detail = "this relay is not connected to any relay that serves this service", err.Error()
	case !t.toRelay && !errors.Is(err, selection.ErrNoEndpoint):
		f.Text, f.detail = "no endpoint can be picked", strings.TrimPrefix(err.Error(), "selection: ")
	}
	t.answer(f, now)
}

func (t *request) answerFailed(now time.Duration) {
	a := &t.at
	f := failure{Text: "the request could not be carried", detail: a.fault.Error(), Code: wire.CodeUpstreamFailed, Service: t.service.Name, Attempts: t.failures}
	switch {
	case a.timedOut():
		f.Text, f.Code, f.detail = t.outOfTime(), wire.CodeTimeout, ""
	case a.fault.Cancelled():
		f.Text, f.callStatus = textCancelled, cancelled
	case a.fault.Full():
		f.overCapacity()
	case a.exhausted() != "":
		t.markLocal(&f)
	case t.allMisdirected():
		f.Text, f.Code, f.detail, f.retryAfter = textMisdirected, wire.CodeNotReady, "", retryAfter
	}
	t.answer(f, now)
}

// markLocal makes f the answer of a relay that could open no connection.
func (t *request) markLocal(f *failure) {
	f.Text, f.Code, f.retryAfter = "this relay is out of "+t.at.exhausted()+" and could open no connection", wire.CodeExhausted, retryAfter
}

const textCancelled = "the service has cancelled the request"

const textMisdirected = "the relays that serve this service do not know yet that they do"

// allMisdirected reports whether relays were asked and all refused the request as
// misdirected. No relay has acted on it, and soon they will see the same members as this
// relay.
func (t *request) allMisdirected() bool { return t.misdirected > 0 && t.misdirected == len(t.failures) }

// outOfTime returns the text for a request to which no answer began in time.
func (t *request) outOfTime() string {
	switch {
	case t.at.ranOut():
		return "no endpoint answered within " + t.at.limit.String() + ", which is the limit of one attempt"
	case t.limited && t.timeout < t.policy.RequestTimeout:
		return "no endpoint answered within " + t.timeout.String() + ", which is all that the client allowed"
	}
	return "no endpoint answered within " + t.timeout.String()
}

// answerBadRequest answers a request that no endpoint could carry: an upgrade over HTTP/2,
// a body that ended too early.
func (t *request) answerBadRequest(now time.Duration) {
	t.answer(failure{Text: "the request cannot be carried: " + t.at.fault.ForClient(), Code: wire.CodeBadRequest, Service: t.service.Name}, now)
}

func (t *request) answer(f failure, now time.Duration) {
	switch f.Code {
	case wire.CodeUpstreamFailed, wire.CodeTimeout, wire.CodeNoEndpoint:
		t.handler.blameRelay(&f)
	}
	t.handler.cfg.Logger.Debug("request failed", "service", f.Service, "code", f.Code, "caller", t.caller(), "err", f.details(), "attempts", f.Attempts)
	t.observer.end(ending{outcome: outcomeFailed, took: now - t.began, status: statusOf[f.Code], code: f.Code, spared: f.spared})
	t.writeFailure(f)
}

// answerEnded answers a request that this relay has ended before an answer began.
func (t *request) answerEnded(now time.Duration) {
	f := failure{Text: "this relay stops, and --drain-timeout was over before an answer began", Code: wire.CodeTimeout, callStatus: unavailable, Service: t.service.Name}
	if !t.at.fault.Stopped() {
		f.Text = "neither the client nor the service sent anything for the progress timeout, and no answer had begun"
		f.spared = true // a stream that is idle, no service that is slow
	}
	t.answer(f, now)
}

// breakOff ends an answer that has broken off after its head, a call of gRPC with a status in
// trailers.
func (t *request) breakOff(result *upstream.Result, now time.Duration) {
	fault, outcome := t.at.fault, outcomeAborted
	if fault.Stopped() || fault.Client() && result.Silent != upstream.SilentNone { // no failure of the service
		outcome = outcomeCancelled
	}
	t.observer.end(ending{outcome: outcome, took: now - t.began})
	if t.endCall(result) {
		return
	}
	// The status line is already sent: only a broken connection shows the client that the rest is
	// missing.
	fault.PassCancel(t.w)
	t.aborted = true
}

// callEndTime is how long a client may take to read the rest of a call that this relay ends.
const callEndTime = time.Second

// endCall ends the answer to a call of gRPC that has broken off with a status in its trailers:
// clients repeat what is UNAVAILABLE, and take a reset for INTERNAL. It returns false if the
// answer is no such answer, has its status already, or has no reader. As with errors, the
// relay that has the client does this: the others see a failure of their endpoint in a reset.
func (t *request) endCall(result *upstream.Result) bool {
	cfg, fault := &t.handler.cfg, t.at.fault
	if cfg.FromRelay || cfg.Local || !result.Call || result.CallStatus != "" || !wire.IsCall(t.r) || fault.Client() && result.Silent == upstream.SilentNone {
		return false
	}
	f := failure{Text: "the answer broke off before its end", detail: fault.Error(), callStatus: unavailable}
	switch {
	case fault.Stopped():
		f.Text, f.detail = "this relay stops, and the answer had not ended", ""
	case t.late(time.Since(cfg.Epoch)):
		f.Text, f.callStatus = "the answer had not ended within the time that the client allowed", callStatus[wire.CodeTimeout]
	case fault.Cancelled():
		f.Text, f.callStatus = textCancelled, cancelled
	case result.Silent != upstream.SilentNone:
		f.Text = "the answer was ended because nothing moved for the progress timeout"
	}
	_ = http.NewResponseController(t.w).SetWriteDeadline(time.Now().Add(callEndTime)) // without it the server waits longer
	f.setCallStatus(t.w.Header(), http.TrailerPrefix, t.exposed)
	return true
}

// answerRelayed answers a call of gRPC in place of the relay that could not carry it.
func (t *request) answerRelayed() {
	f := failure{Text: "the relay that serves this service could not carry the request", detail: t.at.target.Node + " says " + string(t.relayed), Code: t.relayed, again: t.again}
	if f.Code == wire.CodeRateLimited {
		f.Text = "more requests arrive than a limit of this service, its callers or its routes allows: send fewer, and wait for the time in Retry-After"
	}
	if t.late(t.at.answered) {
		f.Code, f.again = wire.CodeTimeout, nil
	}
	t.writeFailure(f)
}
