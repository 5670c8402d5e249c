package ingress

import (
	"net/http"

	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// Tracer makes the spans of requests. Package tracing implements it with OpenTelemetry, which a
// program that embeds a router does not link.
type Tracer interface {
	// Begin starts the span of a request, below that of its caller.
	Begin(r *http.Request, of TracedRequest) Trace
}

// TracedRequest is what a span shows of a request.
type TracedRequest struct {
	Relay, Service string
	Caller         string // named by its certificate, otherwise empty
	FromRelay      bool   // another relay forwarded the request
}

// Trace is the span of one request with those of its attempts, one after the other. One goroutine
// uses it.
type Trace interface {
	// ID of the trace.
	ID() string
	// Recording reports whether anything is kept of the request.
	Recording() bool
	// Attempt starts the span of an attempt. Answered or Failed ends it.
	Attempt(a TracedAttempt)
	Answered(status int)
	Failed(stage string, err error)
	// Fields adds the fields that make the attempt the parent of the spans at its destination.
	Fields(fields []wire.Field) []wire.Field
	// End ends the span of the request, and that of an attempt that a panic ended.
	End(e TracedEnd)
}

// TracedAttempt is what a span shows of an attempt.
type TracedAttempt struct {
	Node, Address string
	Forwarded     bool              // to another relay
	Decision      *routing.Decision // how the endpoint was chosen; nil unless it is explained
}

// TracedEnd is what a span shows of the end of a request.
type TracedEnd struct {
	Outcome string
	Failed  bool
	Status  int       // of the answer, 0 if there is none
	Code    wire.Code // of an answer of this relay itself
}

// maxTracedService bounds a service's name that only a client knows, in bytes.
const maxTracedService = 80

// tracestateHeader is sent only together with a Traceparent. The Baggage header passes
// unchanged.
const tracestateHeader = "Tracestate"

func (h *Handler) beginTrace(r *http.Request, service string) Trace {
	return h.cfg.Tracer.Begin(r, TracedRequest{Relay: h.cfg.Self, Service: service, Caller: certifiedName(r), FromRelay: h.cfg.FromRelay})
}

// traceRefusal makes the whole trace of a request that is refused.
func (h *Handler) traceRefusal(r *http.Request, f failure) {
	if h.cfg.Tracer != nil {
		h.beginTrace(r, f.Service[:min(len(f.Service), maxTracedService)]).End(tracedEnd(outcomeFailed, statusOf[f.Code], f.Code))
	}
}

func tracedEnd(o outcome, status int, code wire.Code) TracedEnd {
	return TracedEnd{Outcome: outcomes[o], Failed: status >= http.StatusInternalServerError || o == outcomeAborted, Status: status, Code: code}
}

func (t *request) beginTrace() {
	t.trace = t.handler.beginTrace(t.r, t.service.Name)
	t.traced = tracedEnd(outcomeAborted, 0, "") // unless the request reports an end, a panic ended it
	if t.record != nil {
		t.record.traced = t.trace
	}
}

// endTrace records how the span of the request ends, with close.
func (o *observer) endTrace(of outcome, status int, code wire.Code) {
	if o.trace != nil {
		o.traced = tracedEnd(of, status, code)
	}
}
