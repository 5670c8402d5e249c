package upstream_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

func TestWhatASidecarReportsIsTheExchangesOwnFailure(t *testing.T) {
	endpoint := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // as a sidecar does with a small one
		w.Header().Set("Ringway-Failed", r.Header.Get("X-Failed"))
		w.Header().Set("X-Private", "of the sidecar")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("of no interest"))
	})
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		pool := newPool(t, upstream.Config{Address: endpoint, Protocol: protocol})
		in := startIngress(t, pool, func(r *http.Request) upstream.Options {
			return upstream.Options{Sidecar: r.Header.Get("X-Direct") == "", OnHead: func(upstream.Result) bool {
				if r.Header.Get("X-Direct") == "" {
					t.Error("the head of a failure was shown")
				}
				return true
			}}
		})
		call := func(failed, direct string) (*http.Response, outcome) {
			req, err := http.NewRequestWithContext(t.Context(), "POST", in.url, strings.NewReader("small"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Failed", failed)
			if direct != "" {
				req.Header.Set("X-Direct", direct)
			}
			resp, err := in.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			return resp, within(t, in.outcomes, "the outcome")
		}
		for failed, sent := range map[string]bool{"unsent": false, "full": false, "sent": true, "?": true} {
			resp, got := call(failed, "")
			if errors.Is(got.err, upstream.ErrFull) != (failed == "full") {
				t.Errorf("%s: %q: %v", protocol, failed, got.err)
			}
			if got.err == nil || got.err.Stage != upstream.StageService || got.err.Sent() != sent || !got.err.BodyConsumed() ||
				got.err.Committed() || got.err.Client() || got.err.Stale() || got.err.Timeout() {
				t.Errorf("%s: %q: %+v", protocol, failed, got.err)
			}
			if resp.Header.Get("X-Private") != "" || resp.Header.Get("Ringway-Failed") != "" {
				t.Errorf("%s: %q: a part of the answer was passed on: %v", protocol, failed, resp.Header)
			}
		}
		if got := pool.Stats(); got.Dials != 1 {
			t.Errorf("%s: %d connections: the sidecar itself did well", protocol, got.Dials)
		}
		if resp, got := call("unsent", "yes"); got.err != nil || resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Ringway-Failed") != "" || resp.Header.Get("X-Private") == "" {
			t.Errorf("%s: an endpoint that is no sidecar: %s %v, %v", protocol, resp.Status, resp.Header, got.err)
		}
	}
}
