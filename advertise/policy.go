package advertise

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

// Retry is the class of requests that may be sent to another endpoint after a failure.
type Retry string

// The classes, from the strictest on. A relay of an earlier release knows no RetryAlways and
// uses its own setting.
const (
	// RetryNever sends every request to one endpoint.
	RetryNever Retry = "never"
	// RetryConnect allows it only if nothing of the request was sent.
	RetryConnect Retry = "connect"
	// RetryIdempotent also allows it after a request was sent if its method is idempotent
	// and its body can be sent again.
	RetryIdempotent Retry = "idempotent"
	// RetryAlways allows it for every method, if the body can be sent again. Only the owner of
	// a service knows that all of its requests may run more than once, so it is no default.
	RetryAlways Retry = "always"
)

// Policy is what a service requests for all requests to it. The zero value of a field
// leaves the decision to the relay. Its text is a list such as
// "request-timeout=5s;retry=connect", with the keys of [PolicyKeys].
type Policy struct {
	// RequestTimeout is the time until an answer begins, all attempts together.
	RequestTimeout time.Duration
	// AttemptTimeout is the time for one attempt that another may follow.
	AttemptTimeout time.Duration
	// ProgressTimeout ends a request or a tunnel that moves no byte for this time.
	ProgressTimeout time.Duration
	// Retry is the class of requests that may be repeated.
	Retry Retry
	// SessionCookie is the name of the cookie by which the requests of one client stay at one
	// worker: 1 to 64 characters of a token (RFC 9110).
	SessionCookie string
}

// The limits of the times of a Policy. A shorter time would fail every request; a longer one
// would hold the resources of relays without need.
const (
	minPolicyTime = time.Millisecond
	maxPolicyTime = 24 * time.Hour
)

// policyField is one field of a Policy, with its key in the text.
type policyField struct {
	key    string
	set    func(p *Policy, value string) error
	format func(p Policy) string // empty if the field is not set
}

// policyFields are the fields in the order of the text.
var policyFields = [...]policyField{
	policyTime("request-timeout", func(p *Policy) *time.Duration { return &p.RequestTimeout }),
	policyTime("attempt-timeout", func(p *Policy) *time.Duration { return &p.AttemptTimeout }),
	policyTime("progress-timeout", func(p *Policy) *time.Duration { return &p.ProgressTimeout }),
	{"retry", func(p *Policy, value string) error {
		switch p.Retry = Retry(value); p.Retry {
		case RetryNever, RetryConnect, RetryIdempotent, RetryAlways:
			return nil
		}
		p.Retry = ""
		return fmt.Errorf("retry %.20q: want never, connect, idempotent or always", value)
	}, func(p Policy) string { return string(p.Retry) }},
	{KeySessionCookie, func(p *Policy, value string) error {
		if err := wire.CheckCookieName(value); err != nil {
			return fmt.Errorf("%s: %w", KeySessionCookie, err)
		}
		p.SessionCookie = value
		return nil
	}, func(p Policy) string { return p.SessionCookie }},
}

// KeySessionCookie is the key of SessionCookie.
const KeySessionCookie = "session-cookie"

func policyTime(key string, field func(*Policy) *time.Duration) policyField {
	return policyField{key, func(p *Policy, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < minPolicyTime || d > maxPolicyTime {
			return fmt.Errorf("%s %.20q: want a duration from %v to %v, such as 500ms or 5s", key, value, minPolicyTime, maxPolicyTime)
		}
		*field(p) = d
		return nil
	}, func(p Policy) string {
		if d := *field(&p); d != 0 {
			return d.String()
		}
		return ""
	}}
}

// PolicyKeys returns the keys of the text of a Policy, in their order.
func PolicyKeys() []string {
	keys := make([]string, len(policyFields))
	for i, f := range policyFields {
		keys[i] = f.key
	}
	return keys
}

// ParsePolicy parses the text of a Policy. The error joins all problems; the policy then has
// the fields that are valid, so that a relay can use what an agent of a later release
// advertises.
func ParsePolicy(text string) (Policy, error) {
	var p Policy
	var problems []error
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ";") {
		key, value, _ := strings.Cut(part, "=")
		if key = strings.TrimSpace(key); key == "" && value == "" {
			continue
		}
		if seen[key] {
			problems = append(problems, fmt.Errorf("%.40q is given twice", key))
			continue
		}
		seen[key] = true
		if err := p.Set(key, strings.TrimSpace(value)); err != nil {
			problems = append(problems, err)
		}
	}
	return p, errors.Join(problems...)
}

// Set sets the field of a key.
func (p *Policy) Set(key, value string) error {
	for _, f := range policyFields {
		if f.key == key {
			return f.set(p, value)
		}
	}
	return fmt.Errorf("%.40q is no part of a policy: want %s", key, strings.Join(PolicyKeys(), ", "))
}

// Get returns the text of the field of a key, empty if it is not set.
func (p Policy) Get(key string) string {
	for _, f := range policyFields {
		if f.key == key {
			return f.format(p)
		}
	}
	return ""
}

// Or returns the policy with its unset fields replaced by those of other.
func (p Policy) Or(other Policy) Policy {
	return Policy{
		RequestTimeout:  cmp.Or(p.RequestTimeout, other.RequestTimeout),
		AttemptTimeout:  cmp.Or(p.AttemptTimeout, other.AttemptTimeout),
		ProgressTimeout: cmp.Or(p.ProgressTimeout, other.ProgressTimeout),
		Retry:           cmp.Or(p.Retry, other.Retry),
		SessionCookie:   cmp.Or(p.SessionCookie, other.SessionCookie),
	}
}

// String returns the text, which ParsePolicy reads. It is empty if no field is set.
func (p Policy) String() string {
	var parts []string
	for _, f := range policyFields {
		if value := f.format(p); value != "" {
			parts = append(parts, f.key+"="+value)
		}
	}
	return strings.Join(parts, ";")
}
