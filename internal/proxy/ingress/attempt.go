package ingress

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/selection"
)

// attempt holds the facts about a failed attempt.
type attempt struct {
	err                                            error
	reason                                         string         // for metrics: the stage, or the reason if there is no stage
	stage                                          upstream.Stage // 0 if it failed in none
	sent, committed, bodyConsumed, client, timeout bool
	stale                                          bool
	unprocessed                                    bool   // the endpoint did not act on the request, and another connection may reach it
	shed                                           bool   // it refused because of load
	cancelled                                      bool   // it has reset the stream with CANCEL
	clientDeadline                                 bool   // the client's own deadline ended it
	repeated                                       bool   // another attempt blames the endpoint for the same failure
	unanswered                                     bool   // the endpoint sent nothing
	full                                           bool   // all slots of the worker are in use
	load                                           int    // the load that the endpoint reported, negative if none
	local                                          bool   // this relay is the cause
	stopped                                        bool   // it ended because this relay stops
	exhausted                                      string // the exhausted resource
}

func (a attempt) Error() string { return a.err.Error() }

var errMisdirected = errors.New("the relay does not serve this service; it sees other members")

// attemptFailure returns the facts of the fault of an attempt. Nil stands for an answer that
// headArrived refused.
func attemptFailure(u *upstream.Fault) attempt {
	if u == nil {
		return attempt{err: errMisdirected, reason: stageMisdirected}
	}
	a := attempt{err: u, stage: u.Stage, reason: u.Stage.String()}
	a.stopped = errors.Is(u, upstream.ErrStopped)
	a.sent, a.committed, a.bodyConsumed = u.Sent(), u.Committed(), u.BodyConsumed()
	a.client, a.timeout, a.stale = u.Client(), u.Timeout(), u.Stale()
	a.repeated, a.unanswered = u.Repeated(), u.Unanswered()
	a.cancelled = u.Cancelled()
	if a.unprocessed, a.shed = u.Unprocessed(), u.Shed(); a.unprocessed {
		a.reason = stageRefused
	}
	a.unprocessed = a.unprocessed || u.DialLate()
	if a.full = errors.Is(u.Err, upstream.ErrFull); a.full {
		a.reason = stageFull
	}
	if a.local, a.exhausted = u.Local(), u.Exhausted(); a.local {
		a.reason = stageLocal
	}
	return a
}

// passCancel cancels the answer if the endpoint has cancelled it.
func (a attempt) passCancel(w http.ResponseWriter) {
	var u *upstream.Fault
	if errors.As(a.err, &u) {
		u.PassCancel(w)
	}
}

// notCounted reports whether the endpoint is not the cause of the failure.
func (a attempt) notCounted() bool {
	return a.client || a.stale || a.clientDeadline || a.repeated || a.local || a.stopped || errors.Is(a.err, context.Canceled) || errors.Is(a.err, errMisdirected)
}

// unopened reports whether the endpoint was not there to take a connection.
func (a attempt) unopened() bool { return a.stage == upstream.StageDial && advertise.Refused(a.err) }

// result returns what the balancer learns from the failure.
func (a attempt) result() selection.Result {
	switch {
	case a.notCounted():
		return selection.Result{Outcome: selection.Cancelled}
	case a.full:
		return selection.Result{Outcome: selection.Full, Load: a.load, HasLoad: a.load >= 0}
	case a.shed:
		return selection.Result{Outcome: selection.Shed}
	case a.unanswered:
		return selection.Result{Outcome: selection.NoAnswer}
	}
	return selection.Result{Outcome: selection.Failure}
}

// mayRetry decides whether another endpoint may get the request.
func (t *try) mayRetry(f attempt, now time.Duration) bool {
	t.spent = false
	switch {
	case t.attempts-t.misdirected-t.refusedViews >= t.handler.cfg.MaxAttempts || now >= t.deadline || t.late(now):
		return false
	case !t.repeats(f) || !t.bodyWhole(f):
		return false
	case f.err == errMisdirected, f.unopened() && !f.timeout && t.handler.cfg.RetryBudget > 0: // it has cost no endpoint anything
		return true
	}
	if t.spent = t.handler.budget.Spend(); !t.spent {
		t.metrics.retried(stageNoBudget)
	}
	return t.spent
}

// repeats reports whether the policy of the service and the method of the request allow
// another attempt. A misdirected request has reached no endpoint. Of a session nothing is
// sent until it begins, and after that no attempt follows.
func (t *try) repeats(f attempt) bool {
	switch t.policy.Retry {
	case advertise.RetryNever:
		return f.err == errMisdirected
	case advertise.RetryConnect:
		return !f.sent || t.tcp != nil
	case advertise.RetryAlways:
		return !f.sent || bodyKept(t.r)
	}
	return !f.sent || repeatable(t.r)
}

// bodyWhole reports whether the next attempt can send the whole body, and rewinds the
// body.
func (t *try) bodyWhole(f attempt) bool {
	if t.body.Begun() {
		return t.body.Rewind(t.w)
	}
	return !f.bodyConsumed
}

// repeatable reports whether a request may be sent again, whole, to an endpoint after
// another may have acted on it.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return bodyKept(r)
	}
	return false
}

// bodyKept reports whether the body of a request, if there is one, is kept to be sent again.
func bodyKept(r *http.Request) bool {
	_, kept := r.Body.(interface {
		Rewind(http.ResponseWriter) bool
	})
	return kept || r.Body == nil || r.Body == http.NoBody
}
