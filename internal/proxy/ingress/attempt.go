package ingress

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// attempt is the current attempt of a request. Times are since the epoch.
type attempt struct {
	destination
	sent     time.Duration     // when it began
	limit    time.Duration     // how long it may take
	cut      bool              // limit is less than the rest of the request's time
	answered time.Duration     // when the answer began
	graded   selection.Outcome // of the head of the answer

	// fault is why it failed, nil until then. What follows is what this relay adds to it.
	fault          *upstream.Fault
	reason         string // for metrics, spans and records: the stage, or a better reason
	late           bool   // the client's time was over, whatever has failed
	clientDeadline bool   // the client's own deadline ended it
	load           int    // that the endpoint reported, negative if none
}

// faultMisdirected is the fault of an attempt whose answer headArrived refused.
var faultMisdirected = &upstream.Fault{Err: errors.New("the relay does not serve this service; it sees other members")}

// classify gives the current attempt its fault, with the reason and whether the client's deadline is
// the cause. The endpoint is not blamed for that if the client gave less time than this relay does.
func (t *request) classify(fault *upstream.Fault, load int, now time.Duration) {
	a := &t.at
	a.fault, a.reason, a.load = fault, reasonOf(fault), load
	switch timeout, local := fault.Timeout(), a.local(); {
	case !timeout && !fault.Client() && !fault.Stopped() && !local && t.late(now):
		// Whatever has failed: an endpoint may end the request at the deadline, before this relay
		// does.
		a.late, a.clientDeadline = true, t.timeout < t.policy.RequestTimeout
	case errors.Is(fault, upstream.ErrAbandoned):
		a.reason = stageDeclaredDead
	case !timeout, local:
	case a.cut:
		a.reason = stageAttemptTimeout
		a.clientDeadline = t.timeout < t.policy.RequestTimeout && now-a.sent < t.policy.AttemptTimeout
	default:
		a.clientDeadline = t.limited && t.timeout < t.policy.RequestTimeout || fault.Committed() && t.late(now)
	}
}

// late reports whether the time is over that the client itself has allowed.
func (t *request) late(now time.Duration) bool { return t.limited && now >= t.latest-lateBy }

// lateBy is by how much the deadline of an endpoint may be earlier than that of the client,
// because of the units of the fields.
const lateBy = time.Millisecond

// reasonOf returns why an attempt failed, for operators.
func reasonOf(fault *upstream.Fault) string {
	switch {
	case fault == faultMisdirected:
		return stageMisdirected
	case fault.Local():
		return stageLocal
	case fault.Full():
		return stageFull
	case fault.Unprocessed():
		return stageRefused
	}
	return fault.Stage.String()
}

// local reports whether this relay is the cause.
func (a *attempt) local() bool { return a.reason == stageLocal }

// timedOut reports whether the time of the attempt or of the request was over.
func (a *attempt) timedOut() bool { return a.late || a.fault.Timeout() }

// ranOut reports whether the attempt has used up its limit, and not the time of the request.
func (a *attempt) ranOut() bool { return a.fault != nil && a.cut && a.fault.Timeout() }

// unprocessed reports whether the endpoint did not act on the request, and another connection may
// reach it.
func (a *attempt) unprocessed() bool {
	return a.fault != nil && (a.fault.Unprocessed() || a.fault.DialLate())
}

// exhausted returns the resource of this relay that the attempt lacked.
func (a *attempt) exhausted() string {
	if a.fault == nil {
		return ""
	}
	return a.fault.Exhausted()
}

// notCounted reports whether the endpoint is not the cause of the failure.
func (a *attempt) notCounted() bool {
	f := a.fault
	return f == faultMisdirected || a.local() || a.clientDeadline || f.Client() || f.Stale() || f.Repeated() || f.Stopped() || errors.Is(f, context.Canceled)
}

// unopened reports whether the endpoint was not there to take a connection. The fault of a late dial
// wraps no error of a deadline, because the deadline of the request did not pass.
func (a *attempt) unopened() bool {
	return a.fault.Stage == upstream.StageDial && (a.fault.DialLate() || advertise.Refused(a.fault))
}

// result returns what the balancer learns from the failure.
func (a *attempt) result() selection.Result {
	switch {
	case a.notCounted():
		return selection.Result{Outcome: selection.Cancelled}
	case a.fault.Full():
		return selection.Result{Outcome: selection.Full, Load: a.load, HasLoad: a.load >= 0}
	case a.fault.Shed():
		return selection.Result{Outcome: selection.Shed}
	case a.fault.Unanswered():
		return selection.Result{Outcome: selection.NoAnswer}
	}
	return selection.Result{Outcome: selection.Failure}
}

// mayRetry decides whether another endpoint may get the request.
func (t *request) mayRetry(now time.Duration) bool {
	t.spent = false
	switch a := &t.at; {
	case t.attempts-t.misdirected-t.refusedViews >= t.handler.cfg.MaxAttempts || now >= t.deadline || t.late(now) || t.r.Context().Err() != nil:
		return false
	case !t.repeats() || !t.bodyWhole():
		return false
	case a.fault == faultMisdirected, a.unopened() && !a.timedOut() && t.handler.cfg.RetryBudget > 0: // it has cost no endpoint anything
		return true
	}
	if t.spent = t.budget.Spend(); !t.spent {
		t.metrics.retried(stageNoBudget)
	}
	return t.spent
}

// repeats reports whether the policy of the service and the method of the request allow
// another attempt. A misdirected request has reached no endpoint. Of a session nothing is
// sent until it begins, and after that no attempt follows.
func (t *request) repeats() bool {
	sent := t.at.fault.Sent()
	switch t.policy.Retry {
	case advertise.RetryNever:
		return t.at.fault == faultMisdirected
	case advertise.RetryConnect:
		return !sent || t.tcp != nil
	case advertise.RetryAlways:
		return !sent || bodyKept(t.r)
	}
	return !sent || repeatable(t.r)
}

// bodyWhole reports whether the next attempt can send the whole body, and rewinds the
// body.
func (t *request) bodyWhole() bool {
	if t.body.Begun() {
		return t.body.Rewind(t.w)
	}
	return !t.at.fault.BodyConsumed()
}

// repeatable reports whether a request may be sent again, whole, to an endpoint after
// another may have acted on it.
func repeatable(r *http.Request) bool { return wire.Idempotent(r.Method) && bodyKept(r) }

// bodyKept reports whether the body of a request, if there is one, is kept to be sent again.
func bodyKept(r *http.Request) bool {
	_, kept := r.Body.(interface {
		Rewind(http.ResponseWriter) bool
	})
	return kept || r.Body == nil || r.Body == http.NoBody
}
