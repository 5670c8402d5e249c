package ingress

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// try is one request with its attempts. Times are since the epoch.
//
// Tries are pooled and hold the parts of the exchange, so that a successful request
// costs the handler no allocation.
type try struct {
	handler *Handler
	service *routing.Service // nil unless the request counts among those of the service
	client  netip.Addr       // counted by Config.Clients, unless it is the zero value
	metrics *ServiceMetrics
	w       http.ResponseWriter
	r       *http.Request
	began   time.Duration
	policy  advertise.Policy
	timeout time.Duration // counts from began
	latest  time.Duration // the client's own deadline, if limited
	limited bool

	deadline time.Duration // of all attempts
	attempts int           // so far

	route    *routing.Route // at the time of decideWay
	hop      bool           // forwarded to another relay
	key      string         // see findKey
	tried    routing.Tried
	relays   []string // relays that were tried
	failures []Attempt
	// misdirected counts the attempts that a relay refused because, in its view, it does not
	// serve the service.
	misdirected    int
	refusedViews   int               // misdirected of the rounds before the last awaitView
	pause          time.Duration     // of the last awaitView
	relayed        wire.Code         // of the answer of a relay to a call of gRPC, if that is the relay's own
	full           bool              // a worker refused because all its slots are in use
	spent          bool              // the budget paid for the next attempt
	unopened       int               // workers that were not there to take a connection
	sentAgain      bool              // an endpoint has got it once more
	ticket         circuit.Ticket    // of the caller's circuit
	circuitOutcome selection.Outcome // for it
	body           upstream.Replay   // used if the body may have to be sent again
	session        session           // by the session cookie
	spans          *spans            // nil if requests are not traced
	record         *record           // nil if the request has no record
	from           origin
	tcp            *sessionMetrics // nil unless the request is for a TCP session
	opened         bool            // the session has begun
	exposed        bool            // the answer may show where the request went
	waits          bool            // counted among the requests of the service that wait for an answer
	lostAfter      time.Duration   // how long the client waited before it left, or until an attempt had no answer in time
	connecting     time.Duration   // how long failed attempts waited for a connection

	at            attempt // the current one
	exchange      upstream.Exchange
	headers       [13]wire.Field
	answerHeaders [3]wire.Field
	onHead        func(upstream.Result) bool // t.headArrived, bound once to avoid an allocation per attempt
	onField       func(string) bool          // t.drops, bound once
	onCookie      func(bool)                 // t.cookieSent, bound once
}

var tries = sync.Pool{New: func() any {
	t := new(try)
	t.onHead, t.onField, t.onCookie = t.headArrived, t.drops, t.cookieSent
	return t
}}

// free ends what has begun of the request, at last its record, and returns the try to the
// pool. One call for all, because a deferred call takes room on the stack of each request.
func (t *try) free() {
	if t.spans != nil {
		t.endSpans()
	}
	switch {
	case !t.waits:
	case t.lostAfter > 0:
		t.service.Waiting.GaveUp(t.lostAfter)
	default:
		t.service.Waiting.Left()
	}
	t.body.End(t.r)
	if t.client.IsValid() {
		t.handler.cfg.Clients.Leave(t.client)
	}
	if t.service != nil {
		if t.handler.cfg.Hop {
			t.service.Forwarded.Add(-1)
		}
		t.service.InFlight.Add(-1)
	}
	t.record.end()
	onHead, onField, onCookie, body := t.onHead, t.onField, t.onCookie, t.body
	*t = try{} // in place; with fields a second one would be made on the stack
	t.onHead, t.onField, t.onCookie, t.body = onHead, onField, onCookie, body
	tries.Put(t)
}

func (t *try) run() {
	if !t.checkRequest() || !t.takeDeadline() || !t.decideWay() {
		return
	}
	t.deadline = t.began + t.timeout
	retry := "" // why this is not the first attempt
	for now := t.began; ; {
		if err := t.choose(now, t.deadline); err != nil {
			if t.wayChanged() {
				if !t.decideWay() {
					return
				}
				continue
			}
			if t.awaitView() {
				now = time.Since(t.handler.cfg.Epoch)
				continue
			}
			if t.spent {
				t.handler.budget.Refund()
			}
			t.answerNoEndpoint(err)
			return
		}
		carrier := t.beginAttempt(now, retry)
		result, fault := carrier.Carry(t.w, t.r, t.changes())
		if t.tcp != nil {
			t.sessionEnded(result, fault)
		}
		if result.Silent != upstream.SilentNone {
			t.handler.cfg.Metrics.silent[result.Silent].Inc()
		}
		t.record.carried(&result)
		if fault == nil && (!result.Dropped || t.relayed != "") {
			t.succeeded(&result)
			if t.relayed != "" {
				t.answerRelayed()
			}
			return
		}
		if fault == nil {
			fault = faultMisdirected
		}
		now = time.Since(t.handler.cfg.Epoch)
		if retry = t.attemptFailed(&result, fault, now); retry == "" {
			return
		}
	}
}

// beginAttempt begins an attempt on the destination that was chosen, and returns the connections that
// carry it. Retry is why it is not the first.
func (t *try) beginAttempt(now time.Duration, retry string) *upstream.Pool {
	t.attempts++
	if retry != "" {
		t.metrics.retried(retry)
	}
	target := t.at.target
	carrier := target.Pool
	if target.Upgrades != nil && t.r.Header["Upgrade"] != nil {
		carrier = target.Upgrades
	}
	if t.hop || target.Secured || carrier.OverHTTP2() || t.policy.Retry == advertise.RetryAlways {
		t.body.Begin(t.r)
	}
	t.at.sent, t.at.fault, t.at.late, t.at.clientDeadline = now, nil, false, false
	if t.at.limit, t.at.cut = t.attemptLimit(t.attempts, t.deadline-now); !t.at.cut || now+t.at.limit >= t.deadline {
		t.at.limit, t.at.cut = t.deadline-now, false
	}
	if t.spans != nil {
		t.beginSpan(t.attempts)
	}
	if t.record != nil {
		waited := time.Duration(0)
		if t.hop { // a worker is picked without waiting
			waited = time.Since(t.handler.cfg.Epoch) - now
		}
		t.record.beginAttempt(&t.at, waited)
	}
	return carrier
}

// attemptFailed records the failure of the current attempt. It returns the reason of the next
// attempt, or nothing if the request has its answer. It is no part of run, so that the stack of a
// request that waits for its answer is small.
func (t *try) attemptFailed(result *upstream.Result, fault *upstream.Fault, now time.Duration) (retry string) {
	t.failed(fault, result.Load, now)
	t.full = t.full || fault.Full()
	t.connecting += result.Waited
	if fault.Unanswered() {
		t.lostAfter = now - t.began
	}
	t.releaseFailed(now)
	if fault.Committed() {
		t.record.answered(result.Status, &t.at)
	}
	t.record.failed(&t.at, now-t.at.sent)
	if t.spans != nil {
		t.spans.failAttempt(&t.at)
	}
	switch {
	case fault.Committed():
		if fault.Stopped() || fault.Client() && result.Silent != upstream.SilentNone { // no failure of the service
			t.finished(outcomeCancelled, now-t.began)
		} else {
			t.finished(outcomeAborted, now-t.began)
			t.circuitOutcome = selection.Failure
		}
		if t.endCall(result) {
			return ""
		}
		// The status line is already sent: only a broken connection shows the client that
		// the rest is missing.
		fault.PassCancel(t.w)
		panic(http.ErrAbortHandler)
	case fault.Stopped():
		t.answer(failure{Text: "this relay stops, and --drain-timeout was over before an answer began", Code: wire.CodeTimeout, callStatus: unavailable, Service: t.service.Name}, now)
		return ""
	case result.Silent == upstream.SilentBoth:
		t.answer(failure{Text: "neither the client nor the service sent anything for the progress timeout, and no answer had begun", Code: wire.CodeTimeout, callStatus: unavailable, Service: t.service.Name}, now)
		t.circuitOutcome, t.lostAfter = selection.Cancelled, 0 // a stream that is idle, no service that is slow
		return ""
	case fault.Client():
		if t.r.Context().Err() == nil { // the client is still there and waits for an answer
			t.answerBadRequest(now)
			return ""
		}
		t.abandon(now)
	}
	t.failures = append(t.failures, Attempt{Endpoint: t.at.target.Node, Error: fault.Error()})
	if !t.mayRetry(now) {
		t.answerFailed(now)
		return ""
	}
	return t.at.reason
}

// callEndTime is how long a client may take to read the rest of a call that this relay ends.
const callEndTime = time.Second

// endCall ends the answer to a call of gRPC that has broken off with a status in its trailers:
// clients repeat what is UNAVAILABLE, and take a reset for INTERNAL. It returns false if the
// answer is no such answer, has its status already, or has no reader. As with errors, the
// relay that has the client does this: the others see a failure of their endpoint in a reset.
func (t *try) endCall(result *upstream.Result) bool {
	cfg, fault := &t.handler.cfg, t.at.fault
	if cfg.Hop || cfg.Local || !result.Call || result.CallStatus != "" || !isCall(t.r) || fault.Client() && result.Silent == upstream.SilentNone {
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
func (t *try) answerRelayed() {
	f := failure{Text: "the relay that serves this service could not carry the request", detail: t.at.target.Node + " says " + string(t.relayed), Code: t.relayed}
	if t.late(t.at.answered) {
		f.Code = wire.CodeTimeout
	}
	status, n := t.handler.writeFailure(t.w, t.r, f)
	t.record.refused(&f, status, n)
}

// checkRequest returns false if it has answered, because the request cannot be sent to any
// endpoint.
func (t *try) checkRequest() bool {
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
func (t *try) abandon(now time.Duration) {
	t.lostAfter = now - t.began
	t.finished(outcomeCancelled, now-t.began)
	panic(http.ErrAbortHandler)
}

// choose picks the destination of the next attempt. If no other is left, the endpoint that did
// not act on the last attempt gets the request once more, over another connection (RFC 9113
// §8.7).
func (t *try) choose(now, deadline time.Duration) error {
	last := t.at.chosen
	err := t.chooseOther(now, deadline)
	if err == nil || t.sentAgain || !t.at.unprocessed() {
		return err
	}
	t.sentAgain = true
	if t.hop {
		t.relays = t.relays[:len(t.relays)-1]
		return t.chooseOther(now, deadline)
	}
	pick, takeErr := t.service.Endpoints.Take(last.target.ID, selection.Instant(now))
	if takeErr != nil {
		return err // it has left
	}
	t.at.chosen = chosen{target: pick.Value(), pick: pick, by: last.by}
	return nil
}

func (t *try) chooseOther(now, deadline time.Duration) (err error) {
	if !t.hop && t.unopened >= unopenedAtHome {
		t.hop = t.cross(deadline)
	}
	if !t.hop {
		if t.at.chosen, err = t.chooseWorker(now); err == nil || t.unopened == 0 {
			return err
		}
		if t.hop = t.cross(deadline); !t.hop {
			return err
		}
	}
	if t.at.chosen, err = t.chooseRelay(now, deadline); err == nil && t.logging() {
		t.logRelay()
	}
	if err != nil && t.route.Affine() {
		t.hop = false
		t.at.chosen, err = t.chooseWorker(now)
	}
	return err
}

// late reports whether the time is over that the client itself has allowed.
func (t *try) late(now time.Duration) bool { return t.limited && now >= t.latest-lateBy }

// lateBy is by how much the deadline of an endpoint may be earlier than that of the client,
// because of the units of the fields.
const lateBy = time.Millisecond

// releaseFailed releases the destination of a failed attempt.
func (t *try) releaseFailed(now time.Duration) {
	if t.hop {
		t.relayFailed()
		return
	}
	t.workerFailed(now)
}

// headArrived runs when the answer begins. This time counts as the latency, because the
// length of a stream does not depend on the endpoint's speed.
func (t *try) headArrived(r upstream.Result) bool {
	if t.hop && r.Status == http.StatusMisdirectedRequest {
		return false // the relay did nothing; ask another
	}
	t.at.answered = time.Since(t.handler.cfg.Epoch)
	if t.session.noKey {
		t.session.cookie.count(cookieNoKey)
	}
	if t.waits {
		t.waits = false
		if r.Shed || r.Status >= http.StatusInternalServerError {
			t.service.Waiting.Left()
		} else {
			t.service.Waiting.Answered(t.at.answered-t.began, t.connecting+r.Waited)
		}
	}
	if t.hop {
		t.relayAnswered(r)
	} else {
		t.workerAnswered(r)
	}
	if r.Status == http.StatusSwitchingProtocols {
		// A tunnel may stay open for days, and would be the only probe of a circuit until then.
		t.ticket.Done(selection.Success)
		t.ticket = circuit.Ticket{}
	}
	if t.tcp != nil {
		return t.sessionBegan(r)
	}
	if t.hop && r.Failed != "" && isCall(t.r) {
		t.relayed = wire.Code(r.Failed)
		return false // this relay answers in the form of gRPC
	}
	return true
}

func (t *try) succeeded(r *upstream.Result) {
	if t.hop {
		t.at.relay.Release()
	} else {
		t.workerEnded()
	}
	t.circuitOutcome = circuitOutcomeOf(*r)
	t.record.answered(r.Status, &t.at)
	if t.spans != nil {
		t.spans.endAttempt(*r)
		t.spans.status = r.Status
	}
	t.finished(outcomeOfStatus(r.Status), t.at.answered-t.began)
}

// finished counts how the request ended.
func (t *try) finished(o outcome, took time.Duration) {
	t.metrics.finished(o, took)
	if t.handler.cfg.Hop {
		t.metrics.forwardedEnded(o.failed())
	}
	t.record.finished(o)
	if t.spans != nil {
		t.spans.outcome = o
	}
}
