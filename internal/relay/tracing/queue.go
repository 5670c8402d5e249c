package tracing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// queue bounds the spans that wait and counts those that it drops. The queue of OpenTelemetry
// below it does not count them. It is never full, because this one counts the spans of an export
// as well.
type queue struct {
	sdk.SpanProcessor // the one of OpenTelemetry
	waiting           *waiting
	dropped           prometheus.Counter
	logger            *slog.Logger

	mu     sync.RWMutex // held by those that add a span, so that Shutdown sends what was added
	closed bool
}

// waiting counts the spans that have ended and are neither sent nor lost.
type waiting struct {
	spans atomic.Int64
	full  atomic.Bool // logged until half of the queue is free
}

// add reports whether there is room for a span.
func (w *waiting) add() bool {
	if w.spans.Add(1) > queueSize {
		w.spans.Add(-1)
		return false
	}
	return true
}

func (w *waiting) remove(n int) {
	if w.spans.Add(-int64(n)) <= queueSize/2 {
		w.full.Store(false)
	}
}

// OnEnd implements sdk.SpanProcessor.
func (q *queue) OnEnd(span sdk.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	if !q.closed && q.waiting.add() {
		q.SpanProcessor.OnEnd(span)
		return
	}
	q.dropped.Inc()
	if !q.closed && q.waiting.full.CompareAndSwap(false, true) {
		q.logger.Warn("spans are dropped because the collector takes them too slowly: give it more capacity, or lower --trace-sample-ratio", "waiting", queueSize)
	}
}

// Shutdown implements sdk.SpanProcessor.
func (q *queue) Shutdown(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	return q.SpanProcessor.Shutdown(ctx)
}
