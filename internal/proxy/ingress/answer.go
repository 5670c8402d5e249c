package ingress

import (
	"errors"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// answerNoEndpoint answers a request that no endpoint can take, or for which all attempts
// failed.
func (t *try) answerNoEndpoint(err error) {
	now := time.Since(t.handler.cfg.Epoch)
	f := failure{Text: "no worker offers this service at the moment", Code: wire.CodeNoEndpoint, Service: t.service.Name, Attempts: t.failures}
	switch {
	case t.r.Context().Err() != nil: // the client left while the request waited for a connection to a relay
		t.abandon(now)
	case t.at.ranOut():
		f.Text, f.Code = t.outOfTime(), wire.CodeTimeout
	case t.at.exhausted() != "":
		t.markLocal(&f)
	case t.full || errors.Is(err, selection.ErrFull):
		f.overCapacity()
	case t.allMisdirected():
		f.Text, f.Code, f.retryAfter = textMisdirected, wire.CodeNotReady, retryAfter
	case len(t.failures) > 0:
		f.Text, f.Code = "every endpoint that this relay can reach failed", wire.CodeUpstreamFailed
	case t.hop && !errors.Is(err, relaypool.ErrNoPeers):
		f.Text, f.detail = "this relay is connected to none of those that serve this service", err.Error()
	case !t.hop && !errors.Is(err, selection.ErrNoEndpoint):
		f.Text, f.detail = "no endpoint can be picked", strings.TrimPrefix(err.Error(), "selection: ")
	}
	t.answer(f, now)
}

func (t *try) answerFailed(now time.Duration) {
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
func (t *try) markLocal(f *failure) {
	f.Text, f.Code, f.retryAfter = "this relay is out of "+t.at.exhausted()+" and could open no connection", wire.CodeExhausted, retryAfter
}

const textCancelled = "the service has cancelled the request"

const textMisdirected = "the relays that serve this service do not know yet that they do"

// allMisdirected reports whether relays were asked and all refused the request as
// misdirected. No relay has acted on it, and soon they will see the same members as this
// relay.
func (t *try) allMisdirected() bool { return t.misdirected > 0 && t.misdirected == len(t.failures) }

// outOfTime returns the text for a request to which no answer began in time.
func (t *try) outOfTime() string {
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
func (t *try) answerBadRequest(now time.Duration) {
	t.answer(failure{Text: "the request cannot be carried: " + t.at.fault.ForClient(), Code: wire.CodeBadRequest, Service: t.service.Name}, now)
}

func (t *try) answer(f failure, now time.Duration) {
	switch f.Code {
	case wire.CodeUpstreamFailed, wire.CodeTimeout, wire.CodeNoEndpoint:
		t.handler.blameRelay(&f)
	}
	t.handler.cfg.Logger.Debug("request failed", "service", f.Service, "code", f.Code, "caller", t.caller(), "err", f.details(), "attempts", f.Attempts)
	t.circuitOutcome = circuitOutcomeOfCode(f.Code)
	if f.Code == wire.CodeTimeout {
		t.lostAfter = now - t.began
	}
	t.metrics.rejected(f.Code)
	t.finished(outcomeFailed, now-t.began)
	if t.spans != nil {
		t.spans.status, t.spans.code = statusOf[f.Code], f.Code
	}
	status, n := t.handler.writeFailure(t.w, t.r, f)
	t.record.refused(&f, status, n)
}
