package tracing

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ringway/ringway/internal/proxy/ingress"
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

// maxSpanCandidates bounds the candidates in a span.
const maxSpanCandidates = 8

var propagator propagation.TraceContext

// requests makes the spans of requests with a tracer.
type requests struct{ tracer trace.Tracer }

// Requests returns what makes the spans of requests and of their attempts with a tracer.
func Requests(tracer trace.Tracer) ingress.Tracer { return requests{tracer} }

// spans are the spans of one request: one for the request, and one for each attempt below it.
type spans struct {
	tracer   trace.Tracer
	of       ingress.TracedRequest
	ctx      context.Context // contains the request's span
	request  trace.Span
	attempt  trace.Span // the current one, nil between two
	chosen   string     // its endpoint
	attempts int
}

// Begin implements ingress.Tracer.
func (t requests) Begin(r *http.Request, of ingress.TracedRequest) ingress.Trace {
	of.Service = valid(of.Service)
	s := &spans{tracer: t.tracer, of: of}
	ctx := propagator.Extract(r.Context(), callerCarrier{r.Header})
	s.ctx, s.request = t.tracer.Start(ctx, "relay "+of.Service, trace.WithSpanKind(trace.SpanKindServer))
	if s.request.IsRecording() {
		s.request.SetAttributes(text(attrRelay, of.Relay), text(attrService, of.Service),
			text(attrMethod, r.Method), attribute.Bool(attrHop, of.FromRelay))
		if of.Caller != "" {
			s.request.SetAttributes(text(attrCaller, of.Caller))
		}
	}
	return s
}

func (s *spans) ID() string { return s.request.SpanContext().TraceID().String() }

func (s *spans) Recording() bool { return s.request.IsRecording() }

func (s *spans) Attempt(a ingress.TracedAttempt) {
	s.attempts++
	s.chosen = a.Node
	name := "upstream "
	if a.Forwarded {
		name = "forward "
	}
	_, s.attempt = s.tracer.Start(s.ctx, name+s.of.Service, trace.WithSpanKind(trace.SpanKindClient))
	if !s.attempt.IsRecording() {
		return
	}
	chosen := []attribute.KeyValue{text(attrChosen, a.Node)}
	if d := a.Decision; d != nil {
		chosen = append(chosen, text(attrStrategy, d.Strategy), text(attrReason, d.Reason), attribute.StringSlice(attrCandidates, candidateTexts(d.Candidates)))
	}
	s.request.SetAttributes(chosen...) // the attributes of the last attempt remain
	s.attempt.SetAttributes(append(chosen, text(attrRelay, s.of.Relay), text(attrService, s.of.Service),
		attribute.Int(attrAttempt, s.attempts), text(attrPeer, a.Address))...)
}

// candidateTexts returns the candidates with their scores, as many as a span holds.
func candidateTexts(candidates []routing.Candidate) []string {
	texts := make([]string, 0, min(len(candidates), maxSpanCandidates))
	for _, c := range candidates[:min(len(candidates), maxSpanCandidates)] {
		text := c.Node + " " + strconv.FormatFloat(c.Score, 'g', 4, 64)
		if c.Note != "" {
			text += " (" + c.Note + ")"
		}
		texts = append(texts, valid(text))
	}
	return texts
}

func (s *spans) Answered(status int) {
	if s.attempt.IsRecording() {
		s.attempt.SetAttributes(attribute.Int(attrStatus, status))
		if status >= http.StatusInternalServerError {
			s.attempt.SetStatus(codes.Error, strconv.Itoa(status))
		}
	}
	s.endAttempt()
}

// Failed adds an event to the request's span as well.
func (s *spans) Failed(stage string, err error) {
	if s.attempt.IsRecording() {
		if text := err.Error(); !utf8.ValidString(text) {
			err = errors.New(valid(text))
		}
		s.attempt.RecordError(err)
		s.attempt.SetAttributes(text(attrStage, stage))
		s.attempt.SetStatus(codes.Error, stage)
		s.request.AddEvent("attempt failed", trace.WithAttributes(attribute.Int(attrAttempt, s.attempts),
			text(attrChosen, s.chosen), text(attrStage, stage), text("exception.message", err.Error())))
	}
	s.endAttempt()
}

func (s *spans) endAttempt() {
	s.attempt.End()
	s.attempt = nil
}

// Fields drops the client's own trace headers.
func (s *spans) Fields(fields []wire.Field) []wire.Field {
	propagator.Inject(trace.ContextWithSpan(s.ctx, s.attempt), fieldCarrier{&fields})
	return fields
}

// valid replaces what is not UTF-8. A client can send such bytes, and the exporter drops a batch
// of all requests that has them.
func valid(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }

func text(key, value string) attribute.KeyValue { return attribute.String(key, valid(value)) }

// callerCarrier reads the fields of the caller: https://www.w3.org/TR/trace-context/.
type callerCarrier struct{ header http.Header }

// Get combines the fields of a list. A field of which there may be only one counts only if it is
// alone.
func (c callerCarrier) Get(name string) string {
	values := c.header.Values(name)
	if name != "tracestate" && len(values) > 1 {
		return ""
	}
	return strings.Join(values, ",")
}

// Keys implements propagation.TextMapCarrier; it is not used.
func (c callerCarrier) Keys() []string { return nil }

// Set implements propagation.TextMapCarrier; it is not used.
func (c callerCarrier) Set(string, string) {}

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

func (s *spans) End(e ingress.TracedEnd) {
	if s.attempt != nil {
		s.endAttempt()
	}
	if s.request.IsRecording() {
		s.request.SetAttributes(attribute.Int(attrAttempts, s.attempts), text(attrOutcome, e.Outcome))
		if e.Status != 0 {
			s.request.SetAttributes(attribute.Int(attrStatus, e.Status))
		}
		reason := e.Outcome
		if e.Code != "" {
			reason = string(e.Code)
			s.request.SetAttributes(text(attrErrorType, reason))
		}
		if e.Failed {
			s.request.SetStatus(codes.Error, reason)
		}
	}
	s.request.End()
}
