package ingress

import (
	"context"
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

// Local is the mark of a request that a program in this process makes. Its service is in the
// mark, and a refusal is a value in place of an answer.
type Local struct {
	// Service is the name of the service.
	Service string
	// Refused is why this relay itself ended the request; empty if an endpoint answered.
	Refused wire.Code
	// Text has the details. RetryAfter is when the request may be tried again, 0 if that is not
	// known.
	Text       string
	RetryAfter time.Duration
	// Attempts are those that failed.
	Attempts []Attempt
}

type localKey struct{}

// WithLocal marks a request for a handler whose Config.Local is set.
func WithLocal(ctx context.Context, l *Local) context.Context {
	return context.WithValue(ctx, localKey{}, l)
}

// localOf returns the mark of a request, nil if it has none.
func (h *Handler) localOf(r *http.Request) *Local {
	if !h.cfg.Local {
		return nil // costs other requests nothing
	}
	l, _ := r.Context().Value(localKey{}).(*Local)
	return l
}

// refuse records a refusal.
func (l *Local) refuse(f failure) {
	l.Refused, l.Text, l.RetryAfter, l.Attempts = f.Code, f.details(), f.retryAfter, f.Attempts
}
