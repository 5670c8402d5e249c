package ingress

import (
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/selection"
)

// CallOutcome grades a status of gRPC. The statuses that count as failures are those of the request log
// without UNIMPLEMENTED: as with a 404, one client that names an absent method would take the endpoints
// from all. A client of gRPC takes a number that it does not know for UNKNOWN.
func CallOutcome(status int) selection.Outcome {
	switch name := callStatusName(status); {
	case name == "CANCELLED", name == "UNIMPLEMENTED":
		return selection.Cancelled
	case name == "RESOURCE_EXHAUSTED":
		return selection.Shed
	case requestlog.CallFailed(name):
		return selection.Failure
	}
	return selection.Success
}

// deadlineExceeded is the status of gRPC for a call that has run out of its time.
const deadlineExceeded = "4"

// outcomeOf grades an answer so far. An answer to a call of gRPC has the status 200 whatever the call
// has come to, and its own status in the head or, at its end, in the trailers.
func outcomeOf(r *upstream.Result) selection.Outcome {
	switch {
	case r.Shed:
		return selection.Shed
	case r.Status >= http.StatusInternalServerError:
		return selection.Failure
	case r.Call:
		if status, ok := parseCallStatus(r.CallStatus); ok {
			return CallOutcome(status)
		}
	}
	return selection.Success
}

// callOutOfTime reports whether the endpoint has ended a call of gRPC because its time was over.
func callOutOfTime(r *upstream.Result) bool { return r.Call && r.CallStatus == deadlineExceeded }

// headOutcome grades the head of an answer for the balancer. The rule for the client's own deadline is
// that of classify.
func (t *request) headOutcome(r *upstream.Result) selection.Outcome {
	if callOutOfTime(r) && t.late(t.at.answered) && t.timeout < t.policy.RequestTimeout {
		return selection.Cancelled
	}
	return outcomeOf(r)
}

// endOutcome grades a whole answer, and returns when this was known.
func (t *request) endOutcome(r *upstream.Result) (outcome selection.Outcome, now time.Duration) {
	outcome, now = outcomeOf(r), t.at.answered
	if outcome == selection.Failure && t.at.graded == selection.Success { // in the trailers
		now = time.Since(t.handler.cfg.Epoch)
		if callOutOfTime(r) && t.late(now) { // many streams last until their deadline
			outcome = selection.Cancelled
		}
	}
	return outcome, now
}
