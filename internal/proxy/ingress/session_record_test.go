package ingress

import (
	"net/http"
	"net/http/httptest"
	"testing"

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
