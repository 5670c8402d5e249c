package ingress

import (
	"net/http"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// request is one request with its attempts. Times are since the epoch.
//
// Requests are pooled and hold the parts of the exchange, so that a successful request
// costs the handler no allocation.
type request struct {
	observer
	handler *Handler
	service *routing.Service // nil unless the request counts among those of the service
	client  *client          // counted by Config.Clients; nil if it is not
	w       http.ResponseWriter
	r       *http.Request
	local   *Local // of a request that Begin got
	from    origin
	exposed bool // the answer may show where the request went
	policy  advertise.Policy
	timeout time.Duration // counts from began
	latest  time.Duration // the client's own deadline, if limited
	limited bool

	route   *routing.Route  // at the time of decideWay
	toRelay bool            // forwarded to another relay
	key     string          // see findKey
	session session         // by the session cookie
	body    upstream.Replay // used if the body may have to be sent again
	tcp     *sessionMetrics // nil unless the request is for a TCP session
	opened  bool            // the session has begun

	// What the attempts so far have shown.
	deadline time.Duration // of all attempts
	tried    routing.Tried
	relays   []string // relays that were tried
	failures []Attempt
	// misdirected counts the attempts that a relay refused because, in its view, it does not
	// serve the service.
	misdirected  int
	refusedViews int                  // misdirected of the rounds before the last awaitView
	pause        time.Duration        // of the last awaitView
	unopened     int                  // workers that were not there to take a connection
	full         bool                 // a worker refused because all its slots are in use
	counted      bool                 // for the limits on requests per second
	sentAgain    bool                 // an endpoint has got it once more
	budget       *routing.RetryBudget // that pays for attempts after the first
	spent        bool                 // the budget paid for the next attempt
	relayed      wire.Code            // of the answer of a relay to a call of gRPC, if that is the relay's own
	again        []wire.Field         // of that answer: when the request may be sent again

	at            attempt         // the current one
	upload        upload          // its body
	begun         upstream.Answer // of an endpoint, nil until then
	aborted       bool            // the answer breaks off, or the client is gone
	exchange      upstream.Options
	headers       [15]wire.Field
	answerHeaders [3]wire.Field
	onHead        func(upstream.Result) bool // t.headArrived, bound once to avoid an allocation per attempt
	onField       func(string) bool          // t.drops, bound once
	onCookie      func(bool)                 // t.cookieSent, bound once
	onUpload      func(bool)                 // t.uploads, bound once
}

var requestPool = sync.Pool{New: func() any {
	t := new(request)
	t.onHead, t.onField, t.onCookie, t.onUpload = t.headArrived, t.drops, t.cookieSent, t.uploads
	return t
}}

// free ends what has begun of the request, at last its record, and returns it to the
// pool. One call for all, because a deferred call takes room on the stack of each request.
func (t *request) free() {
	t.observer.close()
	t.body.End(t.r)
	if t.client != nil {
		t.handler.cfg.Clients.Leave(t.client)
	}
	if t.service != nil {
		if t.handler.cfg.FromRelay {
			t.service.Forwarded.Add(-1)
		}
		t.service.InFlight.Add(-1)
	}
	t.record.end()
	onHead, onField, onCookie, onUpload, body := t.onHead, t.onField, t.onCookie, t.onUpload, t.body
	*t = request{} // in place; with fields a second one would be made on the stack
	t.onHead, t.onField, t.onCookie, t.onUpload, t.body = onHead, onField, onCookie, onUpload, body
	requestPool.Put(t)
}

// run lets endpoints carry the request, one after the other, until the answer of one has begun, or
// this relay has answered.
func (t *request) run() {
	if !t.checkRequest() || !t.takeDeadline() || !t.decideWay() {
		return
	}
	t.deadline = t.began + t.timeout
	retry := "" // why this is not the first attempt
	for now := t.began; ; {
		if err := t.choose(now, t.deadline); err != nil {
			switch {
			case t.wayChanged():
				if !t.decideWay() {
					return
				}
			case t.awaitView():
				now = time.Since(t.handler.cfg.Epoch)
			default:
				t.answerNoEndpoint(err)
				return
			}
			continue
		}
		carrier := t.beginAttempt(now, retry)
		begun, result, fault := carrier.Begin(t.w, t.r, t.changes())
		if begun != nil {
			t.begun = begun
			return
		}
		if fault == nil && result.Dropped && t.relayed == "" {
			fault = faultMisdirected
		}
		if fault == nil {
			t.succeeded(&result)
			return
		}
		now = time.Since(t.handler.cfg.Epoch)
		if retry = t.attemptFailed(&result, fault, now); retry == "" {
			return
		}
	}
}

// deliver passes the answer that has begun to the client.
func (t *request) deliver() {
	result, fault := t.begun.Deliver()
	t.end(&result, fault)
}

// end ends the request with what became of the answer that had begun. No attempt follows.
func (t *request) end(result *upstream.Result, fault *upstream.Fault) {
	if t.tcp != nil {
		t.sessionEnded(result, fault)
	}
	if fault == nil {
		t.succeeded(result)
		return
	}
	t.attemptFailed(result, fault, time.Since(t.handler.cfg.Epoch))
}

// beginAttempt begins an attempt on the destination that was chosen, and returns the connections that
// carry it. Retry is why it is not the first.
func (t *request) beginAttempt(now time.Duration, retry string) *upstream.Pool {
	target := t.at.target
	carrier := target.Pool
	if target.Upgrades != nil && upstream.Upgrades(t.r) {
		carrier = target.Upgrades
	}
	if t.toRelay || target.Secured || carrier.OverHTTP2() || t.policy.Retry == advertise.RetryAlways {
		t.body.Begin(t.r)
	}
	if t.attempts++; t.attempts == 1 { // one that this relay refuses pays for no retry
		t.budget.Earn()
	}
	t.at.sent, t.at.fault, t.at.late, t.at.clientDeadline = now, nil, false, false
	if t.at.limit, t.at.cut = t.attemptLimit(t.attempts, t.deadline-now); !t.at.cut || now+t.at.limit >= t.deadline {
		t.at.limit, t.at.cut = t.deadline-now, false
	}
	waited := time.Duration(0)
	if t.toRelay && t.record != nil { // a worker is picked without waiting
		waited = time.Since(t.handler.cfg.Epoch) - now
	}
	t.observer.attempt(&t.at, retry, waited)
	return carrier
}

// attemptFailed ends the current attempt with its fault. It returns the reason of the next attempt, or
// nothing if the request has its answer. It is no part of run, so that the stack of a request that
// waits for its answer is small.
func (t *request) attemptFailed(result *upstream.Result, fault *upstream.Fault, now time.Duration) (retry string) {
	t.classify(fault, result.Load, now)
	t.full = t.full || fault.Full()
	t.releaseFailed(now)
	t.observer.attemptEnded(&t.at, result, now)
	switch {
	case fault.Committed():
		t.breakOff(result, now)
		return ""
	case fault.Stopped() || result.Silent == upstream.SilentBoth:
		t.answerEnded(now)
		return ""
	case fault.Client() && t.r.Context().Err() == nil: // the client is still there and waits for an answer
		t.answerBadRequest(now)
		return ""
	case fault.Client():
		t.abandon(now)
		return ""
	}
	t.failures = append(t.failures, Attempt{Endpoint: t.at.target.Node, Error: fault.Error()})
	if !t.mayRetry(now) {
		t.answerFailed(now)
		return ""
	}
	return t.at.reason
}

// checkRequest returns false if it has answered, because the request cannot be sent to any
// endpoint.
func (t *request) checkRequest() bool {
	err := upstream.CheckRequest(t.r)
	if err == nil && t.from == fromProgram {
		err = upstream.CheckFields(t.r.Header)
	}
	if err != nil {
		t.answer(failure{Text: "the request cannot be carried: " + err.Error(), Code: wire.CodeBadRequest, Service: t.service.Name}, t.began)
	}
	return err == nil
}

// abandon ends a request whose client is gone or has closed its side of the connection;
// the server does not distinguish the two. After a return without an answer the server would
// send an empty 200, which the client would take for success.
func (t *request) abandon(now time.Duration) {
	t.observer.end(ending{outcome: outcomeCancelled, took: now - t.began})
	t.aborted = true
}

// headArrived runs when the answer begins. This time counts as the latency, because the
// length of a stream does not depend on the endpoint's speed.
func (t *request) headArrived(r upstream.Result) bool {
	if t.toRelay && r.Failed == string(codeMisdirected) {
		return false // the relay did nothing; ask another
	}
	t.at.answered = time.Since(t.handler.cfg.Epoch)
	if t.session.noKey {
		t.session.cookie.count(cookieNoKey)
	}
	t.at.graded = t.headOutcome(&r)
	if t.toRelay {
		t.relayAnswered(r)
	} else {
		t.workerAnswered(r)
	}
	t.observer.head(&t.at, &r, t.upload.byClient())
	if t.tcp != nil {
		return t.sessionBegan(r)
	}
	// This relay answers a call itself, in the form of gRPC, and a program whose deadline has passed,
	// of which either relay may be the first to know.
	if t.toRelay && r.Failed != "" && (wire.IsCall(t.r) || t.local != nil && t.late(t.at.answered)) {
		t.relayed, t.again = wire.Code(r.Failed), r.Again
		return false
	}
	return true
}

// succeeded ends the current attempt and the request with the answer of the endpoint.
func (t *request) succeeded(r *upstream.Result) {
	outcome, now := t.endOutcome(r)
	if t.toRelay {
		t.at.relay.Release()
	} else {
		t.workerEnded(outcome, now)
	}
	t.observer.attemptEnded(&t.at, r, t.at.answered)
	t.observer.end(ending{
		outcome: outcomeOfStatus(r.Status), took: t.at.answered - t.began, status: r.Status, failed: outcome == selection.Failure,
		spared: outcome == selection.Shed || outcome == selection.Cancelled || t.toRelay && sparedAtRelay(r.Failed),
	})
	if t.relayed != "" {
		t.answerRelayed()
	}
}
