package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// Error is why the router itself ended a request. errors.Is finds in it, by Code:
// [ErrUnknownService], [ErrNotReady], [ErrElsewhere], [selection.ErrNoEndpoint],
// [selection.ErrFull] (overloaded) and [context.DeadlineExceeded] (timeout).
type Error struct {
	// Service is the name of the service.
	Service string
	// Code is one of the codes with which a relay answers, such as upstream_failed, or elsewhere.
	Code string
	// Text describes what happened, with each failed attempt.
	Text string
	// RetryAfter is when the request may be tried again, 0 if that is not known.
	RetryAfter time.Duration
}

var (
	// ErrUnknownService is found in the error of a request for a service that no worker offers or
	// has recently offered.
	ErrUnknownService = errors.New("no worker offers this service")
	// ErrNotReady is found in the error of a request that came before the router knew the services.
	ErrNotReady = errors.New("the router does not know the services yet")
	// ErrElsewhere is found in the error of a Pick of a service that other relays serve.
	ErrElsewhere = errors.New("other relays serve this service")
)

const codeElsewhere = "elsewhere"

var sentinels = map[string]error{
	string(wire.CodeUnknownService): ErrUnknownService, string(wire.CodeNotReady): ErrNotReady, codeElsewhere: ErrElsewhere,
	string(wire.CodeNoEndpoint): selection.ErrNoEndpoint, string(wire.CodeOverloaded): selection.ErrFull,
	string(wire.CodeTimeout): context.DeadlineExceeded,
}

// Error returns the service, the text and the code.
func (e *Error) Error() string {
	return fmt.Sprintf("service %s: %s (%s)", e.Service, e.Text, e.Code)
}

// Timeout reports whether the time for the request was over, as errors of net/http do.
func (e *Error) Timeout() bool { return e.Code == string(wire.CodeTimeout) }

// Unwrap returns the error that stands for the code, nil if there is none.
func (e *Error) Unwrap() error { return sentinels[e.Code] }

// refusal returns the error of a request that the handler has refused.
func refusal(l *ingress.Local) *Error {
	e := &Error{Service: l.Service, Code: string(l.Refused), Text: l.Text, RetryAfter: l.RetryAfter}
	if len(l.Attempts) > 0 {
		attempts := make([]string, len(l.Attempts))
		for i, a := range l.Attempts {
			attempts[i] = a.Endpoint + ": " + a.Error
		}
		e.Text += ": " + strings.Join(attempts, "; ")
	}
	return e
}

// ServeError answers a request that RoundTrip could not carry, with the status and Retry-After
// of the relay's binary. It is an ErrorHandler for httputil.ReverseProxy. The client gets the
// code and not the text, which may name endpoints.
func ServeError(w http.ResponseWriter, _ *http.Request, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: string(wire.CodeUpstreamFailed)}
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	http.Error(w, e.Code, ingress.StatusOf(wire.Code(e.Code)))
}
