package demo

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringway/ringway/internal/wire"
)

// target answers like a relay and stops the load after a number of requests.
func target(t *testing.T, requests int64, answer http.HandlerFunc) (url string, ctx context.Context) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) >= requests {
			stop()
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(stop)
	return server.URL, ctx
}

func TestEveryAnsweredRequestCountsForItsWorker(t *testing.T) {
	url, ctx := target(t, 50, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(wire.ServiceHeader) != service {
			t.Errorf("a request for the service %q", r.Header.Get(wire.ServiceHeader))
		}
		w.Header().Set(wire.EndpointHeader, "worker-01")
	})
	l := newLoad(loadConfig{Targets: []string{url}, Rate: 5000, Seed: 1})
	l.run(ctx)
	got := l.totals()
	if got.Requests < 50 || got.Errors != 0 || got.Worker["worker-01"] != got.Requests {
		t.Errorf("%+v", got)
	}
	if n := got.Latency.TotalCount(); n != int64(got.Requests) {
		t.Errorf("%d latencies of %d requests", n, got.Requests)
	}
	if w := l.snapshot(); w.Requests != got.Requests || w.Worker["worker-01"] != got.Requests {
		t.Errorf("the first window has %+v of %d requests", w, got.Requests)
	}
	if w := l.snapshot(); w.Requests != 0 || w.Worker["worker-01"] != 0 {
		t.Errorf("the second window counts again: %+v", w)
	}
}

func TestAFailedRequestIsCountedAndQuoted(t *testing.T) {
	url, ctx := target(t, 10, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"code":"no_endpoint"}`, http.StatusServiceUnavailable)
	})
	l := newLoad(loadConfig{Targets: []string{url}, Rate: 5000, Seed: 1})
	l.run(ctx)
	got := l.totals()
	if got.Errors != got.Requests || len(got.Worker) != 0 {
		t.Errorf("%d requests, %d errors, answered by %v", got.Requests, got.Errors, got.Worker)
	}
	if len(got.Failures) != keptFailures || !strings.Contains(got.Failures[0], "no_endpoint") {
		t.Errorf("failures %q", got.Failures)
	}
}
