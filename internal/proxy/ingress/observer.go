package ingress

import (
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/overload"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// observer passes what happens to a request to all that count or record it: the counters of the
// service, the spans, the record, the limit on the requests that wait, and the circuit of the caller.
// The request reports four events: attempt, head, attemptEnded and end.
type observer struct {
	began   time.Duration // since the epoch
	all     *Metrics
	metrics *ServiceMetrics
	peer    bool              // another relay forwarded the request
	trace   Trace             // nil if requests are not traced
	record  *record           // nil if the request has no record
	waiting *overload.Limiter // that of the service; nil unless it counts the request among those that wait

	decision *routing.Decision // how the endpoint of the next attempt was chosen; nil unless it is explained
	traced   TracedEnd         // how the request has ended

	ticket         circuit.Ticket // of the caller's circuit
	circuitOutcome selection.Outcome

	attempts   int           // so far
	connecting time.Duration // how long failed attempts waited for a connection
	lostAfter  time.Duration // how long the client waited before it left, or until an attempt had no answer in time
}

// ending is how a request ended.
type ending struct {
	outcome outcome
	took    time.Duration
	status  int       // of the answer, 0 if it broke off or there is none
	code    wire.Code // of an answer of this relay itself
	failed  bool      // the endpoint has failed, although a call of gRPC has the status 200
	spared  bool      // that the client waited is no sign of a slow or broken service
}

// attempt reports that an attempt begins. Retry is why it is not the first, and waited is how long it
// waited for its destination.
func (o *observer) attempt(at *attempt, retry string, waited time.Duration) {
	if retry != "" {
		o.metrics.retried(retry)
	}
	if o.trace != nil {
		decision := o.decision
		if at.relay != nil {
			decision = nil
		}
		o.trace.Attempt(TracedAttempt{Node: at.target.Node, Address: at.target.Address, Forwarded: at.relay != nil, Decision: decision})
	}
	o.record.beginAttempt(at, waited)
}

// head reports that the answer of an endpoint begins, after this time in which the client sent.
func (o *observer) head(at *attempt, r *upstream.Result, client time.Duration) {
	outcome := outcomeOf(r)
	if w := o.waiting; w != nil {
		o.waiting = nil
		switch {
		case callOutOfTime(r): // a service with too many calls ends them in this way
			w.GaveUp(at.answered - o.began)
		case outcome == selection.Success:
			w.Answered(at.answered-o.began-client, o.connecting+r.Waited)
		default:
			w.Left()
		}
	}
	switch {
	case r.Status == http.StatusSwitchingProtocols: // the end of a tunnel, days later, shows nothing about the service
		o.ticket.Done(selection.Success)
		o.ticket = circuit.Ticket{}
	case outcome == selection.Success:
		o.ticket = o.ticket.Answered()
	}
}

// attemptEnded reports that an attempt has its whole answer, or has failed.
func (o *observer) attemptEnded(at *attempt, r *upstream.Result, now time.Duration) {
	if r.Silent != upstream.SilentNone {
		o.all.silent[r.Silent].Inc()
	}
	o.record.carried(r)
	if at.fault == nil || at.fault.Committed() {
		o.record.answered(r.Status, at)
	}
	if at.fault == nil {
		if o.trace != nil {
			o.trace.Answered(r.Status)
		}
		return
	}
	o.connecting += r.Waited
	if at.fault.Unanswered() {
		o.lostAfter = now - o.began
	}
	o.record.failed(at, now-at.sent)
	if o.trace != nil {
		o.trace.Failed(at.reason, at.fault)
	}
}

// end reports that the request has its answer, or gets none.
func (o *observer) end(e ending) {
	if e.code != "" {
		o.metrics.rejected(e.code)
	}
	o.metrics.finished(e.outcome, o.attempts, e.took)
	if o.peer {
		o.metrics.forwardedEnded(e.outcome.failed())
	}
	o.record.finished(e.outcome)
	o.endTrace(e.outcome, e.status, e.code)
	o.circuitOutcome = e.forCircuit()
	switch {
	case e.spared:
		o.lostAfter = 0
	case e.outcome == outcomeCancelled || e.code == wire.CodeTimeout:
		o.lostAfter = e.took
	}
}

// forCircuit returns what the circuit of the caller learns.
func (e *ending) forCircuit() selection.Outcome {
	switch {
	case e.spared || e.outcome == outcomeCancelled:
		return selection.Cancelled
	case e.code != "":
		return circuitOutcomeOfCode(e.code)
	case e.outcome.failed() || e.failed:
		return selection.Failure
	}
	return selection.Success
}

// sparedAtRelay reports whether an answer that another relay gave itself is no failure for the circuit,
// as it is none where this relay gives it.
func sparedAtRelay(failed string) bool {
	return failed != "" && failed != wire.FailedCancelled && circuitOutcomeOfCode(wire.Code(failed)) == selection.Cancelled
}

// circuitOutcomeOfCode returns the outcome of an answer of this relay for the circuit.
func circuitOutcomeOfCode(c wire.Code) selection.Outcome {
	if c == wire.CodeUpstreamFailed || c == wire.CodeTimeout {
		return selection.Failure
	}
	return selection.Cancelled // no endpoint was asked, or the request was wrong
}

// close ends what has begun, in whatever way the request has ended. The record ends later.
func (o *observer) close() {
	if o.trace != nil {
		o.trace.End(o.traced)
	}
	switch {
	case o.waiting == nil:
	case o.lostAfter > 0:
		o.waiting.GaveUp(o.lostAfter)
	default:
		o.waiting.Left()
	}
	o.ticket.Done(o.circuitOutcome)
}

// explaining reports whether a span or the record has how an endpoint was chosen.
func (o *observer) explaining() bool {
	return o.trace != nil && o.trace.Recording() || o.record.explaining()
}

// explain adds how the endpoint of the next attempt was chosen.
func (o *observer) explain(decision *routing.Decision) {
	o.decision = decision
	o.record.explain(decision)
}
