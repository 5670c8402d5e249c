package ingress

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// The request for a session is the relays' own: until the session begins, nothing of the
// client was sent.
func TestASessionThatDidNotBeginWasNotSent(t *testing.T) {
	newRequest := func() *http.Request { return httptest.NewRequest(http.MethodGet, "/", http.NoBody) }
	pool, err := upstream.NewPool(upstream.Config{Address: "192.0.2.1:80", Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Read(make([]byte, 1<<10))
			_ = far.Close()
		}()
		return near, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	_, sent := pool.Carry(httptest.NewRecorder(), newRequest(), &upstream.Options{})
	if sent == nil || !sent.Sent() {
		t.Fatal(sent)
	}
	for _, c := range []struct {
		retry                advertise.Retry
		fault                *upstream.Fault
		asRequest, asSession bool
	}{
		{advertise.RetryNever, sent, false, false},
		{advertise.RetryNever, faultMisdirected, true, true},
		{advertise.RetryConnect, sent, false, true},
		{advertise.RetryConnect, faultMisdirected, true, true},
		{advertise.RetryIdempotent, sent, true, true},
	} {
		t.Run(string(c.retry), func(t *testing.T) {
			tr := &request{r: newRequest(), policy: advertise.Policy{Retry: c.retry}, at: attempt{fault: c.fault}}
			if got := tr.repeats(); got != c.asRequest {
				t.Errorf("a request is repeated after sent %t, misdirected %t: %t", c.fault.Sent(), c.fault == faultMisdirected, got)
			}
			tr.tcp = &sessionMetrics{}
			if got := tr.repeats(); got != c.asSession {
				t.Errorf("a session is tried again after sent %t, misdirected %t: %t", c.fault.Sent(), c.fault == faultMisdirected, got)
			}
			if got := tr.mayRepeat(); c.fault.Sent() && got != c.asSession { // then --attempt-timeout holds
				t.Errorf("an attempt to open a session has a limit of its own: %t", got)
			}
		})
	}
}
