package ingress

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// The attributes of spans. Attributes without the prefix ringway are those of
// OpenTelemetry.
const (
	attrRelay      = "ringway.relay"
	attrService    = "ringway.service"
	attrStrategy   = "ringway.strategy"
	attrCandidates = "ringway.candidates"
	attrReason     = "ringway.reason"
	attrChosen     = "ringway.chosen"
	attrAttempt    = "ringway.attempt"
	attrAttempts   = "ringway.attempts"
	attrOutcome    = "ringway.outcome"
	attrStage      = "ringway.stage"
	attrHop        = "ringway.hop"
	attrCaller     = "ringway.caller"
	attrMethod     = "http.request.method"
	attrStatus     = "http.response.status_code"
	attrPeer       = "network.peer.address"
	attrErrorType  = "error.type"
)

const (
	// maxSpanCandidates bounds the candidates in a span.
	maxSpanCandidates = 8
	// maxSpanService bounds a service's name that only a client knows, in bytes.
	maxSpanService = 80
)

// tracestateHeader is sent only together with a Traceparent. The Baggage header passes
// unchanged.
const tracestateHeader = "Tracestate"

var propagator propagation.TraceContext

// spans are the spans of one request that is traced: one for the request, and one for each
// attempt below it.
type spans struct {
	handler  *Handler
	service  *routing.Service
	ctx      context.Context // contains the request's span
	request  trace.Span
	attempt  trace.Span    // of the current attempt
	decision *api.Decision // how its worker was chosen; nil unless it is logged or recorded
	attempts int
	status   int
	outcome  outcome
	code     wire.Code // of an answer of this relay itself
}

// beginRequest starts the span of a request, below its caller's.
func (h *Handler) beginRequest(r *http.Request, service string) (context.Context, trace.Span) {
	ctx := propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := h.cfg.Tracer.Start(ctx, "relay "+service, trace.WithSpanKind(trace.SpanKindServer))
	if span.IsRecording() {
		span.SetAttributes(attribute.String(attrRelay, h.cfg.Self), attribute.String(attrService, service),
			attribute.String(attrMethod, r.Method), attribute.Bool(attrHop, h.cfg.Hop))
		if name := certifiedName(r); name != "" {
			span.SetAttributes(attribute.String(attrCaller, name))
		}
	}
	return ctx, span
}

// traceRefusal makes the whole trace of a request that is refused.
func (h *Handler) traceRefusal(r *http.Request, f failure) {
	if h.cfg.Tracer == nil {
		return
	}
	_, span := h.beginRequest(r, f.Service[:min(len(f.Service), maxSpanService)])
	endRequest(span, statusOf[f.Code], outcomeFailed, f.Code)
	span.End()
}

func (t *try) beginSpans() {
	ctx, span := t.handler.beginRequest(t.r, t.service.Name)
	t.spans = &spans{handler: t.handler, service: t.service, ctx: ctx, request: span}
	if t.record != nil {
		t.record.traced = span.SpanContext().TraceID()
	}
}

// end ends the span of the request, at the end of every request.
func (s *spans) end() {
	if s.attempt != nil { // a panic ended the attempt
		s.attempt.End()
	}
	if s.request.IsRecording() {
		s.request.SetAttributes(attribute.Int(attrAttempts, s.attempts))
		endRequest(s.request, s.status, s.outcome, s.code)
	}
	s.request.End()
}

func endRequest(span trace.Span, status int, o outcome, code wire.Code) {
	span.SetAttributes(attribute.String(attrOutcome, outcomes[o]))
	if status != 0 {
		span.SetAttributes(attribute.Int(attrStatus, status))
	}
	failed := status >= http.StatusInternalServerError || o == outcomeAborted
	switch {
	case code != "":
		span.SetAttributes(attribute.String(attrErrorType, string(code)))
		if failed {
			span.SetStatus(codes.Error, string(code))
		}
	case failed:
		span.SetStatus(codes.Error, outcomes[o])
	}
}

// explaining reports whether a span records how a worker was chosen.
func (s *spans) explaining() bool { return s != nil && s.request.IsRecording() }

// beginAttempt starts the span of the next attempt, whose destination is chosen.
func (s *spans) beginAttempt(at *attempt) {
	target, name := at.target, "upstream "
	s.attempts++
	if at.relay != nil {
		name = "forward "
	}
	_, s.attempt = s.handler.cfg.Tracer.Start(s.ctx, name+s.service.Name, trace.WithSpanKind(trace.SpanKindClient))
	if !s.attempt.IsRecording() {
		return
	}
	chosen := []attribute.KeyValue{attribute.String(attrChosen, target.Node)}
	if d := s.decision; d != nil && at.relay == nil {
		chosen = append(chosen, attribute.String(attrStrategy, d.Strategy), attribute.String(attrReason, d.Reason), attribute.StringSlice(attrCandidates, candidateTexts(d.Candidates)))
	}
	s.request.SetAttributes(chosen...) // the attributes of the last attempt remain
	s.attempt.SetAttributes(append(chosen, attribute.String(attrRelay, s.handler.cfg.Self), attribute.String(attrService, s.service.Name),
		attribute.Int(attrAttempt, s.attempts), attribute.String(attrPeer, target.Address))...)
}

// candidateTexts returns the candidates with their scores, as many as a span holds.
func candidateTexts(candidates []api.Candidate) []string {
	texts := make([]string, 0, min(len(candidates), maxSpanCandidates))
	for _, c := range candidates[:min(len(candidates), maxSpanCandidates)] {
		text := c.Node + " " + strconv.FormatFloat(c.Score, 'g', 4, 64)
		if c.Note != "" {
			text += " (" + c.Note + ")"
		}
		texts = append(texts, text)
	}
	return texts
}

// endAttempt ends the span of an attempt that was answered.
func (s *spans) endAttempt(status int) {
	if s.attempt.IsRecording() {
		s.attempt.SetAttributes(attribute.Int(attrStatus, status))
		if status >= http.StatusInternalServerError {
			s.attempt.SetStatus(codes.Error, strconv.Itoa(status))
		}
	}
	s.attempt.End()
	s.attempt = nil
}

// failAttempt ends the span of a failed attempt and adds an event to the request's span.
func (s *spans) failAttempt(a *attempt) {
	if s.attempt.IsRecording() {
		s.attempt.RecordError(a.fault)
		s.attempt.SetAttributes(attribute.String(attrStage, a.reason))
		s.attempt.SetStatus(codes.Error, a.reason)
		s.request.AddEvent("attempt failed", trace.WithAttributes(attribute.Int(attrAttempt, s.attempts),
			attribute.String(attrChosen, a.target.Node), attribute.String(attrStage, a.reason), attribute.String("exception.message", a.fault.Error())))
	}
	s.attempt.End()
	s.attempt = nil
}

// headers adds the trace headers of the attempt, which becomes the parent of the spans at
// its destination. The client's own trace headers are dropped.
func (s *spans) headers(fields []wire.Field) []wire.Field {
	propagator.Inject(trace.ContextWithSpan(s.ctx, s.attempt), fieldCarrier{&fields})
	return fields
}

// fieldCarrier collects the injected fields.
type fieldCarrier struct{ fields *[]wire.Field }

// Get implements propagation.TextMapCarrier; it is not used.
func (c fieldCarrier) Get(string) string { return "" }

// Keys implements propagation.TextMapCarrier; it is not used.
func (c fieldCarrier) Keys() []string { return nil }

// Set adds a field.
func (c fieldCarrier) Set(name, value string) {
	*c.fields = append(*c.fields, wire.Field{Name: http.CanonicalHeaderKey(name), Value: value})
}
