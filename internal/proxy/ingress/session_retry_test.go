package ingress

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ringway/ringway/advertise"
)

// The request for a session is the relays' own: until the session begins, nothing of the
// client was sent.
func TestASessionThatDidNotBeginWasNotSent(t *testing.T) {
	sent, misdirected := attempt{sent: true}, attempt{err: errMisdirected}
	for _, c := range []struct {
		retry                advertise.Retry
		f                    attempt
		asRequest, asSession bool
	}{
		{advertise.RetryNever, sent, false, false},
		{advertise.RetryNever, misdirected, true, true},
		{advertise.RetryConnect, sent, false, true},
		{advertise.RetryConnect, misdirected, true, true},
		{advertise.RetryIdempotent, sent, true, true},
	} {
		t.Run(string(c.retry), func(t *testing.T) {
			tr := &try{r: httptest.NewRequest(http.MethodGet, "/", http.NoBody), policy: advertise.Policy{Retry: c.retry}}
			if got := tr.repeats(c.f); got != c.asRequest {
				t.Errorf("a request is repeated after sent %t, misdirected %t: %t", c.f.sent, c.f.err == errMisdirected, got)
			}
			tr.tcp = &sessionMetrics{}
			if got := tr.repeats(c.f); got != c.asSession {
				t.Errorf("a session is tried again after sent %t, misdirected %t: %t", c.f.sent, c.f.err == errMisdirected, got)
			}
			if got := tr.mayRepeat(); c.f.sent && got != c.asSession { // then --attempt-timeout holds
				t.Errorf("an attempt to open a session has a limit of its own: %t", got)
			}
		})
	}
}
