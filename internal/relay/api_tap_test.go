package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/wire"
)

// openTap opens a tap of echo; it is there when the answer has begun.
func (r *runningRelay) openTap(t *testing.T, where string) (next func() map[string]any, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.AdminAddr()+"/api/v1/services/echo/tap?where="+url.QueryEscape(where), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get(wire.RelayHeader) != r.id {
		t.Fatal(resp, err)
	}
	end = func() {
		cancel()
		_ = resp.Body.Close()
	}
	t.Cleanup(end)
	lines := bufio.NewScanner(resp.Body)
	return func() (record map[string]any) {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("the stream has ended: ", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			t.Fatal(err)
		}
		return record
	}, end
}

func TestATapShowsTheRequestsOfItsServiceWithoutALog(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	f.worker("w2", service("other", other))
	r.settled(t, "echo", 1)
	r.settled(t, "other", 1)
	all, end := r.openTap(t, "")
	errors, endErrors := r.openTap(t, "status>=500")
	r.call(t, http.MethodGet, "/of-another", nil, "Ringway-Service: other")
	r.call(t, http.MethodGet, "/first", nil, "Ringway-Service: echo")
	r.call(t, http.MethodGet, "/second", nil, "Ringway-Service: echo", "Ringway-Timeout: 0") // the relay's own 504
	for _, want := range []string{"/first", "/second"} {
		if got := all(); got["url.path"] != want || got["ringway.relay"] != r.id {
			t.Errorf("%v, want %s", got, want)
		}
	}
	if got := errors(); got["url.path"] != "/second" || got["error.type"] != "timeout" {
		t.Errorf("%v", got)
	}
	end()
	endErrors()
	r.await(t, "the end of both taps", func() bool { return !r.records.Wants("echo") })

	for path, want := range map[string]int{
		"/api/v1/services/absent/tap":                 http.StatusNotFound,
		"/api/v1/services/echo/tap?where=status%3E5x": http.StatusBadRequest,
	} {
		if status, body := r.api(t, path, nil); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for {
		tap, ok := r.records.Tap("echo", requestlog.Filter{})
		if !ok {
			break
		}
		defer tap.Close()
	}
	if status, body := r.api(t, "/api/v1/services/echo/tap", nil); status != http.StatusServiceUnavailable || !strings.Contains(body, "end one of them") {
		t.Errorf("%d %s", status, body)
	}
}

// stuck is a reader that takes nothing until it is released.
type stuck struct {
	*httptest.ResponseRecorder
	text    *logtest.Log
	writes  chan struct{}
	release chan struct{}
}

func (s stuck) Write(p []byte) (int, error) {
	select {
	case s.writes <- struct{}{}:
	default:
	}
	<-s.release
	return s.text.Write(p)
}

func TestASlowReaderOfATapLosesRecordsAndDelaysNoRequest(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	r.settled(t, "echo", 1)
	w := stuck{httptest.NewRecorder(), &logtest.Log{}, make(chan struct{}, 1), make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.tap(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), "echo")
	}()
	r.await(t, "the tap", func() bool { return r.records.Wants("echo") })
	r.records.Add(&requestlog.Record{Service: "echo", ID: "first"}, false)
	<-w.writes // the reader holds the first record
	const more = 5000
	for i := range more {
		r.records.Add(&requestlog.Record{Service: "echo", ID: fmt.Sprint(i)}, false) // an Add that waited would hang
	}
	close(w.release)
	r.await(t, "all records that were not dropped, and the report of the others", func() bool {
		return w.text.Lines("ringway.tap.dropped") > 0 && w.text.Lines("ringway.request.id") > 2048
	})
	cancel()
	<-done
	records, dropped := 0, 0
	for line := range strings.Lines(w.text.String()) {
		var got struct {
			Dropped int `json:"ringway.tap.dropped"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if dropped += got.Dropped; got.Dropped == 0 {
			records++
		}
	}
	if _, text := r.api(t, "/metrics", nil); dropped == 0 || records+dropped != more+1 || !strings.Contains(text, fmt.Sprintf("ringway_relay_request_log_dropped_total{reason=\"tap_slow\"} %d\n", dropped)) {
		t.Errorf("%d records and %d dropped, of %d", records, dropped, more+1)
	}
}
