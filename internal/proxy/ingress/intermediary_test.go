package ingress

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/wire"
)

// What reaches a service must be what a proxy in front, or the operator, has judged.
func TestARequestThatNoServiceShouldGetIsRefusedWithItsReason(t *testing.T) {
	for _, c := range []struct {
		name, method string
		fields       [][2]string
		hop          bool
		status       int // 0: the service gets it
		code, text   string
	}{
		{"one of each field", "GET", [][2]string{{wire.KeyHeader, "k"}}, false, 0, "", ""},
		{"two services", "GET", [][2]string{{wire.ServiceHeader, "other"}}, false, 400, "bad_request", "2 fields Ringway-Service: send one"},
		{"one service twice", "POST", [][2]string{{wire.ServiceHeader, "echo"}, {wire.ServiceHeader, "echo"}}, false, 400, "bad_request", "3 fields Ringway-Service: send one"},
		{"two services of a relay", "GET", [][2]string{{wire.ServiceHeader, "other"}}, true, 400, "bad_request", "2 fields Ringway-Service: send one"},
		{"two keys", "GET", [][2]string{{wire.KeyHeader, "a"}, {wire.KeyHeader, "b"}}, false, 400, "bad_request", "2 fields Ringway-Key: send one"},
		{"two deadlines", "GET", [][2]string{{wire.TimeoutHeader, "500"}, {wire.TimeoutHeader, "900"}}, false, 400, "bad_request", "Ringway-Timeout"},
		{"two callers of a client, which are dropped", "GET", [][2]string{{wire.CallerHeader, "a"}, {wire.CallerHeader, "b"}}, false, 0, "", ""},
		{"TRACE", "TRACE", nil, false, 405, "method_not_allowed", "TRACE is not carried"},
		{"TRACE with steps left", "TRACE", [][2]string{{maxForwards, "3"}}, false, 405, "method_not_allowed", "TRACE is not carried"},
		{"TRACE of a relay of the release before", "TRACE", nil, true, 0, "", ""},
	} {
		for _, major := range []int{1, 2} {
			h, seen := hopOr(t, c.hop)
			r := httptest.NewRequest(c.method, "http://example.com/", http.NoBody)
			r.ProtoMajor = major
			r.Header.Set(wire.ServiceHeader, "echo")
			for _, f := range c.fields {
				r.Header.Add(f[0], f[1])
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if c.status == 0 {
				if w.Code != http.StatusOK {
					t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
					continue
				}
				seen()
				continue
			}
			if body := w.Body.String(); w.Code != c.status || !strings.Contains(body, `"code":"`+c.code+`"`) || !strings.Contains(body, c.text) {
				t.Errorf("%s: %d %s", c.name, w.Code, body)
			}
			if allow := w.Header().Get("Allow"); (c.status == http.StatusMethodNotAllowed) != strings.Contains(allow, "OPTIONS") {
				t.Errorf("%s: Allow is %q", c.name, allow)
			}
		}
	}
}
