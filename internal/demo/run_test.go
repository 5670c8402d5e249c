package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
)

// output is a writer that several goroutines may share, and that notifies once when
// a text has been written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	seen chan struct{}
}

func expecting(text string) *output { return &output{want: text, seen: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if o.want != "" && strings.Contains(o.text.String(), o.want) {
		o.want = ""
		close(o.seen)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// A real fleet, real sockets, and workers that die under load.
func TestNoRequestIsLostWhileWorkersDie(t *testing.T) {
	const relays, workers = 2, 4
	var stdout, stderr output
	cfg := Config{Stdout: &stdout, Stderr: &stderr, Settings: DefaultSettings()}
	cfg.Relays, cfg.Workers, cfg.Rate, cfg.Output = relays, workers, 100, outputJSON
	cfg.For, cfg.KillEvery = 3500*time.Millisecond, leastKill
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatalf("Run: %v\n%s", err, stderr.String())
	}

	var r report
	decoder := json.NewDecoder(strings.NewReader(stdout.String()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil || decoder.More() {
		t.Fatalf("stdout is not one report (%v): %s", err, stdout.String())
	}
	if r.Requests == 0 || r.Errors != 0 {
		t.Errorf("%d requests, %d errors; want some and none\n%s", r.Requests, r.Errors, stderr.String())
	}
	if least := workers * r.RequestsPerWorker.Max; least < int(r.Requests) {
		t.Errorf("%d requests, but no worker answered more than %d", r.Requests, r.RequestsPerWorker.Max)
	}
	if want := (minMax{relays, relays}); r.RelaysPerWorker != want {
		t.Errorf("relays per worker %v, want %v", r.RelaysPerWorker, want)
	}
	if want := (minMax{workers, workers}); r.WorkersPerRelay != want {
		t.Errorf("workers per relay %v, want %v", r.WorkersPerRelay, want)
	}
	if r.P50 <= 0 || r.P99 < r.P50 {
		t.Errorf("p50 %v ms, p99 %v ms", r.P50, r.P99)
	}
	for _, want := range []string{"ready in ", "status page of relay-1: http://127.0.0.1:", "killed worker-0", "replaced worker-0"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the progress does not say %q:\n%s", want, stderr.String())
		}
	}
}

// The time is over while a killed worker has yet to be replaced.
func TestTheReplacementOfTheLastKilledWorkerIsShown(t *testing.T) {
	var stdout, stderr output
	cfg := Config{Stdout: &stdout, Stderr: &stderr, Settings: DefaultSettings()}
	cfg.Relays, cfg.Workers, cfg.Rate, cfg.Output = 1, 2, 50, outputJSON
	cfg.For, cfg.KillEvery = leastKill+replaceAfter/2, leastKill
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatalf("Run: %v\n%s", err, stderr.String())
	}
	// A busy machine may kill none.
	if killed, replaced := strings.Count(stderr.String(), "killed worker-"), strings.Count(stderr.String(), "replaced worker-"); killed != replaced {
		t.Errorf("%d workers are killed and %d replaced:\n%s", killed, replaced, stderr.String())
	}
}

// frames is a display that passes each frame on.
type frames chan frame

func (f frames) show(one frame) error { f <- one; return nil }
func (frames) event(string) error     { return nil }

func TestTheRowOfAKilledWorkerShowsWhenItWasKilledAndItsReplacement(t *testing.T) {
	cfg := Config{Stdout: &output{}, Stderr: &output{}, Settings: DefaultSettings()}
	cfg.Relays, cfg.Workers, cfg.Rate, cfg.KillEvery = 1, 2, 50, leastKill
	shown := make(frames)
	d := newDemo(cfg)
	d.display = shown
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- d.play(ctx) }()
	for killed, replaced := false, false; !killed || !replaced; {
		select {
		case f := <-shown:
			for _, r := range f.Rows {
				var at string
				if text, found := strings.CutPrefix(r.State, "killed "); found {
					killed = true
					at, found = strings.CutSuffix(text, ", active again")
					replaced = replaced || found
					if _, err := time.Parse(time.TimeOnly, at); err != nil {
						t.Fatalf("%s is %q", r.Worker, r.State)
					}
				}
			}
		case err := <-ended:
			t.Fatalf("ended by itself: %v", err)
		}
	}
	cancel()
	for {
		select {
		case <-shown:
			continue
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		}
		break
	}
}

// A busy machine must not end a demo that an operator watches.
func TestARelayThatDoesNotAnswerKeepsItsRowAndTheDemoGoesOn(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	answers := http.NewServeMux()
	answers.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if silent.Swap(true) { // the second time
			panic(http.ErrAbortHandler)
		}
	})
	answers.HandleFunc("GET /api/v1/services/"+service, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Service{ServiceSummary: api.ServiceSummary{Role: "affine"}, Peers: []api.Peer{{Node: workerID(0), Connected: true, State: stateActive}}})
	})
	answers.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
	relay := httptest.NewServer(answers)
	defer relay.Close()

	cfg := Config{Stdout: &output{}, Stderr: &output{}, Settings: DefaultSettings()}
	cfg.Workers = 1
	shown := make(frames)
	d := newDemo(cfg)
	d.display, d.load = shown, newLoad(loadConfig{})
	d.observer = newObserver([]relayAddress{{ID: "relay-1", Ingress: relay.URL, Admin: relay.URL}})
	defer d.observer.close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- d.watch(ctx) }()
	for n := range 2 {
		select {
		case f := <-shown:
			if f.Rows[0].Relays != 1 || f.Relays[0].Silent != (n == 1) {
				t.Errorf("frame %d: %+v", n, f)
			}
		case err := <-ended:
			t.Fatalf("ended by itself: %v", err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestADemoWithoutAnEndEndsWithItsContext(t *testing.T) {
	stdout := expecting(" req/s")
	cfg := Config{Stdout: stdout, Stderr: &output{}, Settings: DefaultSettings()}
	cfg.Relays, cfg.Workers, cfg.Rate = 1, 2, 50
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg) }()
	select {
	case <-stdout.seen:
	case err := <-ended:
		t.Fatalf("ended by itself: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("Run: %v", err)
	}
	if !strings.Contains(stdout.String(), "relays per worker 1, workers per relay 2") {
		t.Errorf("no report at the end:\n%s", stdout.String())
	}
}

func TestADemoThatIsStoppedBeforeItIsReadyLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout output
	cfg := Config{Stdout: &stdout, Stderr: &output{}, Settings: DefaultSettings()}
	cfg.Relays, cfg.Workers = 1, 1
	if err := Run(ctx, cfg); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Other programs read the report: its keys are part of the contract.
func TestTheReportHasExactlyTheAgreedKeys(t *testing.T) {
	var out bytes.Buffer
	if err := (report{}).writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(out.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	want := []string{"errors", "p50_ms", "p99_ms", "relays_per_worker", "requests", "requests_per_worker", "retries", "workers_per_relay"}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
	for _, key := range []string{"requests_per_worker", "relays_per_worker", "workers_per_relay"} {
		inner, _ := fields[key].(map[string]any)
		if got := slices.Sorted(maps.Keys(inner)); !slices.Equal(got, []string{"max", "min"}) {
			t.Errorf("%s has the keys %q, want max and min", key, got)
		}
	}
}

// Ctrl-C is how a demo ends: it reports failures, and no error follows.
// A run with --for is a test, and its exit code is the verdict.
func TestAnInterruptedDemoEndsWellAndStillReportsFailures(t *testing.T) {
	for _, interrupted := range []bool{true, false} {
		var stdout, stderr output
		d := &demo{cfg: Config{Stdout: &stdout, Stderr: &stderr, Settings: DefaultSettings()}}
		err := d.finish(report{Requests: 3, Errors: 1}, []string{"503 of relay-1"}, interrupted)
		if (err == nil) != interrupted {
			t.Errorf("interrupted %v: %v", interrupted, err)
		}
		if told := strings.Contains(stderr.String(), "note: 1 of 3 requests failed"); told != interrupted || !strings.Contains(stderr.String(), "503 of relay-1") {
			t.Errorf("interrupted %v: %s", interrupted, &stderr)
		}
	}
}
