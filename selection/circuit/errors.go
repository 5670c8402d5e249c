package circuit

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotHealthy is wrapped by every refusal.
var ErrNotHealthy = errors.New("circuit: service is not healthy")

// NotHealthyError refuses a request because others like it failed.
type NotHealthyError struct {
	// Endpoint is empty for the circuit of a service as a whole.
	Caller, Service, Endpoint string
	// RetryAfter is when the next probe is allowed; 0 while one is out.
	RetryAfter time.Duration
}

func (e *NotHealthyError) Error() string {
	when := "while a probe is under way"
	if e.RetryAfter > 0 {
		when = fmt.Sprintf("the next probe in %v", e.RetryAfter.Round(time.Millisecond))
	}
	if e.Endpoint == "" {
		return fmt.Sprintf("%v: %q failed too often for caller %q, %s: try again later", ErrNotHealthy, e.Service, e.Caller, when)
	}
	return fmt.Sprintf("%v: %q at %s failed too often for caller %q, %s: use another endpoint, or try again later",
		ErrNotHealthy, e.Service, e.Endpoint, e.Caller, when)
}

func (e *NotHealthyError) Unwrap() error { return ErrNotHealthy }
