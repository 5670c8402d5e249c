package ingress

import (
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

// Local is a request that a program in this process makes. A refusal is a value in place of an answer.
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

// refuse records a refusal.
func (l *Local) refuse(f failure) {
	l.Refused, l.Text, l.RetryAfter, l.Attempts = f.Code, f.details(), f.retryAfter, f.Attempts
}

// Answer is the answer of an endpoint to a request of this process, whose body the program reads. It
// ends with Deliver or End. One goroutine at a time uses it.
type Answer struct{ request *request }

// Begin is ServeHTTP for a request of this process, and returns when the answer of an endpoint has
// begun and w has its head. Without an answer l has the refusal, or the request's context has ended.
func (h *Handler) Begin(w http.ResponseWriter, r *http.Request, l *Local) (_ Answer, begun bool) {
	if r.Context().Err() != nil {
		return Answer{}, false // a kept connection would send it before it sees that
	}
	t := requestPool.Get().(*request)
	defer func() {
		if !begun {
			t.free()
		}
	}()
	t.handler, t.w, t.r, t.local = h, w, r, l
	t.begin(l.Service)
	return Answer{t}, t.begun != nil
}

// Read reads from the body, as upstream.Answer does.
func (a Answer) Read(p []byte) (int, error) { return a.request.begun.Read(p) }

// End ends the request.
func (a Answer) End() {
	defer a.request.free()
	result, fault := a.request.begun.End()
	a.request.end(&result, fault)
}

// Deliver ends the request with the end of the tunnel that its answer opens, for which w is hijacked.
func (a Answer) Deliver() {
	defer a.request.free()
	a.request.deliver()
}
