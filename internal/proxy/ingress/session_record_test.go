package ingress

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
)

func TestTheClientOfASessionIsTheOneThatTheFirstRelayHasSeen(t *testing.T) {
	for value, want := range map[string]string{
		"203.0.113.9:1000 192.0.2.1:6379":           "203.0.113.9",
		"[2001:db8::7]:1000 [2001:db8::1]:6379":     "2001:db8::7",
		"":                                          "192.0.2.66",
		"web\n:1000 192.0.2.1:6379":                 "192.0.2.66",
		"203.0.113.9 192.0.2.1:6379":                "192.0.2.66",
		"203.0.113.9:1000":                          "203.0.113.9",
		"  203.0.113.9:1000 192.0.2.1:6379 and web": "192.0.2.66",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "192.0.2.66:7" // of the relay
		r.Header["X-Forwarded-For"] = []string{"198.51.100.1"}
		r.Header[wire.ConnectionHeader] = []string{value}
		rec := &record{r: r, from: fromRelay}
		rec.Session = true
		if got := rec.client(); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

// lateBody is a body that takes a buffer when bytes have arrived, as those of package downstream do.
type lateBody struct {
	io.ReadCloser
	arrived bool
}

func (b *lateBody) ReadLate(take func() []byte, _ func()) ([]byte, error) {
	if !b.arrived {
		return nil, nil
	}
	return append(take()[:0], "bytes"...), io.EOF
}

type knownBody struct{ *lateBody }

func (knownBody) Buffered() (n int, end bool) { return 5, true }

func TestABodyThatIsCountedHoldsNoBufferBeforeItMoves(t *testing.T) {
	late := &lateBody{}
	for name, body := range map[string]io.ReadCloser{"late": late, "and knows what has arrived": knownBody{late}} {
		var counted meteredBody
		r := httptest.NewRequest("POST", "/", nil)
		r.Body, r.ContentLength, late.arrived = body, -1, false
		counted.begin(r)
		taken := 0
		take := func() []byte { taken++; return make([]byte, 16) }
		if _, err := upstream.ReadLate(r.Body, take, func() {}); err != nil || taken != 0 {
			t.Errorf("%s: %d buffers are held, %v", name, taken, err)
		}
		late.arrived = true
		if p, err := upstream.ReadLate(r.Body, take, func() {}); string(p) != "bytes" || err != io.EOF || counted.read != 5 || taken != 1 {
			t.Errorf("%s: %q, %v, %d counted, %d buffers", name, p, err, counted.read, taken)
		}
	}
}

func TestAnAnswerOfAnotherRelayCountsForTheCircuitAsOneOfThisRelay(t *testing.T) {
	for failed, spared := range map[string]bool{
		"": false, string(wire.CodeNoEndpoint): true, string(wire.CodeNotReady): true, string(wire.CodeOverloaded): true,
		string(wire.CodeUpstreamFailed): false, string(wire.CodeTimeout): false, wire.FailedCancelled: false,
	} {
		if got := sparedAtRelay(failed); got != spared {
			t.Errorf("%q is spared: %v", failed, got)
		}
	}
}

func TestOnlyARealUpgradeIsNoMeasureOfTheService(t *testing.T) {
	for _, c := range []struct {
		upgrade, connection string
		soon                bool
	}{
		{"", "", true}, {"websocket", "Upgrade", false}, {"x", "", true}, {"h2c", "Upgrade, HTTP2-Settings", true},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.upgrade != "" {
			r.Header.Set("Upgrade", c.upgrade)
			r.Header.Set("Connection", c.connection)
		}
		if got := answersSoon(r); got != c.soon {
			t.Errorf("upgrade %q with %q: %v", c.upgrade, c.connection, got)
		}
	}
}
