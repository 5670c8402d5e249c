package advertise

import (
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

func TestAPolicySurvivesItsText(t *testing.T) {
	for _, p := range []Policy{
		{},
		{RequestTimeout: 90 * time.Second},
		{RequestTimeout: 5 * time.Second, AttemptTimeout: 500 * time.Millisecond, ProgressTimeout: time.Hour, Retry: RetryConnect},
		{SessionCookie: "__Host-cart.1"},
	} {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%q: got %+v, %v, want %+v", p.String(), got, err, p)
		}
	}
	if got, err := ParsePolicy(" retry = never ;; request-timeout=1500ms; "); err != nil || got.String() != "request-timeout=1.5s;retry=never" {
		t.Errorf("with spaces: %q, %v", got.String(), err)
	}
}

func TestAPolicyKeepsItsValidParts(t *testing.T) {
	for text, reason := range map[string]string{
		"retry=never;colour=blue":                                                 `"colour" is no part of a policy: want request-timeout, attempt-timeout, progress-timeout, retry, session-cookie`,
		"retry=never;request-timeout=0s":                                          `request-timeout "0s": want a duration from 1ms to 24h0m0s`,
		"request-timeout=25h;retry=never":                                         `request-timeout "25h"`,
		"attempt-timeout=fast;retry=never":                                        `attempt-timeout "fast"`,
		"retry=never;retry=always":                                                `"retry" is given twice`,
		"retry=never;request-timeout":                                             `request-timeout ""`,
		"retry=never;session-cookie=":                                             `session-cookie: "" is not the name of a cookie`,
		"retry=never;session-cookie=a b":                                          `"a b" is not the name of a cookie`,
		"retry=never;session-cookie=a=b":                                          `"a=b" is not the name of a cookie`,
		"retry=never;session-cookie=\"a\"":                                        `is not the name of a cookie`,
		"retry=never;session-cookie=a\r\nSet-Cookie: b":                           `is not the name of a cookie`,
		"retry=never;session-cookie=" + strings.Repeat("x", wire.MaxCookieName+1): `is not the name of a cookie`,
	} {
		p, err := ParsePolicy(text)
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v, want the reason %q", text, err, reason)
		}
		if p != (Policy{Retry: RetryNever}) {
			t.Errorf("%q: the valid part was not kept: %+v", text, p)
		}
	}
	if p, err := ParsePolicy("retry=often"); err == nil || p.Retry != "" {
		t.Errorf("retry=often: %+v, %v", p, err)
	}
}

func TestAPolicyHasPrecedenceFieldByField(t *testing.T) {
	own := Policy{RequestTimeout: time.Second, Retry: RetryNever}
	other := Policy{RequestTimeout: time.Minute, AttemptTimeout: 2 * time.Second, ProgressTimeout: 3 * time.Second, Retry: RetryConnect, SessionCookie: "sid"}
	want := Policy{RequestTimeout: time.Second, AttemptTimeout: 2 * time.Second, ProgressTimeout: 3 * time.Second, Retry: RetryNever, SessionCookie: "sid"}
	if got := own.Or(other); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, key := range PolicyKeys() {
		if other.Get(key) == "" {
			t.Errorf("%s: the field has no text", key)
		}
		if got := (Policy{}).Or(other).Get(key); got != other.Get(key) {
			t.Errorf("%s: got %q from the other policy, want %q", key, got, other.Get(key))
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add("request-timeout=5s;attempt-timeout=1s;progress-timeout=1m;retry=connect")
	f.Add("retry=;;=;retry")
	f.Add("session-cookie=sid;retry=never")
	f.Fuzz(func(t *testing.T, text string) {
		p, _ := ParsePolicy(text)
		if again, err := ParsePolicy(p.String()); err != nil || again != p {
			t.Fatalf("%q: %q reads as %+v, %v, want %+v", text, p.String(), again, err, p)
		}
		for _, d := range []time.Duration{p.RequestTimeout, p.AttemptTimeout, p.ProgressTimeout} {
			if d != 0 && (d < minPolicyTime || d > maxPolicyTime) {
				t.Fatalf("%q: %v is outside the limits", text, d)
			}
		}
	})
}
