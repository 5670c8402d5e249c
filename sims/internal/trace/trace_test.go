package trace_test

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/sims/internal/trace"
)

func read(text string, service string) (*trace.Trace, error) {
	return trace.Read(strings.NewReader(text), trace.Config{Service: service})
}

func TestCSVGivesServiceTimesAndGapsInAnyUnitAndColumnOrder(t *testing.T) {
	for _, text := range []string{
		"service_ms,arrival_s\n10,0\n20,3\n30.5,1\n",
		"# measured on Monday\narrival_ms, who, Service_S\n0, a, 0.01\n3000, b, 0.02\n1000, \"c,d\", 0.0305\n",
	} {
		got, err := read(text, "")
		if err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 30500 * time.Microsecond}
		// The arrivals are 0, 1 and 3 s: gaps of 1 and 2 s with a mean of 1.5 s.
		if !slices.Equal(got.Service, want) || len(got.Gaps) != 2 || math.Abs(got.Gaps[0]-2.0/3) > 1e-9 || math.Abs(got.Gaps[1]-4.0/3) > 1e-9 {
			t.Errorf("%q: %+v", text, got)
		}
		if got.Mean() != 60500*time.Microsecond/3 {
			t.Errorf("the mean is %v", got.Mean())
		}
	}
	if got, err := read("service_ms\n1\n", ""); err != nil || got.Gaps != nil {
		t.Errorf("without arrivals: %+v, %v", got, err)
	}
}

func TestAnErrorNamesLineCauseAndRemedy(t *testing.T) {
	for says, text := range map[string]string{
		"the file is empty":                  "",
		"has no column service_ms":           "latency\n12\n",
		"line 3, service time: \"slow\"":     "service_ms\n1\nslow\n",
		"line 2, arrival":                    "service_ms,arrival_s\n1,NaN\n",
		"line 2: a service time of 0s":       "service_ms\n0\n",
		"line 2: a service time of -1ms":     "service_ms\n-1\n",
		"line 2: a service time of 2h0m0s":   "service_s\n7200\n",
		"no number of 1ms":                   "service_ms\n1e300\n",
		"record on line 3":                   "service_ms,arrival_s\n1,2\n1\n",
		"line 2 is longer than":              "service_ms\n" + strings.Repeat("1", 2<<20),
		"no service times":                   "service_ms\n",
		"all arrivals are within 0s":         "service_ms,arrival_s\n1,5\n1,5\n",
		"line 1 is no line of a request log": "{\"a\":1}\n",
		"line 2 is no line":                  logOf(record("a", 5)) + "{\n",
		"line 2 is longer than 1048576":      logOf(record("a", 5)) + "{" + strings.Repeat(" ", 2<<20),
		"of the service \"b\"":               logOf(record("a", 5)),
	} {
		if _, err := read(text, "b"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q in it", text, err, says)
		}
	}
	if _, err := trace.ReadFile(filepath.Join(t.TempDir(), "none.csv"), trace.Config{}); err == nil || !strings.Contains(err.Error(), "none.csv") {
		t.Errorf("%v", err)
	}
}

func TestMoreThanAMillionRowsAreRefused(t *testing.T) {
	_, err := read("service_ms\n"+strings.Repeat("1\n", 1_000_001), "")
	if err == nil || !strings.Contains(err.Error(), "line 1000002: more than 1000000 rows") {
		t.Errorf("%v", err)
	}
}

// record is a request that a worker answered after some milliseconds; it began as many
// milliseconds after the epoch.
func record(service string, ms int) requestlog.Record {
	return requestlog.Record{
		Time: time.UnixMilli(int64(ms)), Sampled: true, Service: service, Status: 200, Outcome: "2xx",
		Attempts: []requestlog.Attempt{{Endpoint: "w1", Chosen: "p2c", Status: 200, Took: time.Duration(ms) * time.Millisecond}},
	}
}

func logOf(records ...requestlog.Record) string {
	var out []byte
	for i := range records {
		out = requestlog.Append(out, &records[i])
	}
	return string(out)
}

// The lines come from the encoder of the relay, so that the two cannot grow apart.
func TestARequestLogGivesTheTimesOfWorkersAlone(t *testing.T) {
	spoilt := func(spoil func(*requestlog.Record)) requestlog.Record {
		r := record("a", 99)
		spoil(&r)
		return r
	}
	retried := record("a", 30)
	retried.Attempts = append([]requestlog.Attempt{{Endpoint: "w2", Failure: "dial", Took: time.Second}}, retried.Attempts...)
	retried.Attempts[1].Connect = 20 * time.Millisecond
	got, err := read(logOf(
		record("a", 40), record("a", 10), retried,
		record("b", 99),
		spoilt(func(r *requestlog.Record) { r.Sampled = false }),
		spoilt(func(r *requestlog.Record) { r.Session = true }),
		spoilt(func(r *requestlog.Record) { r.Tunnel = true }),
		spoilt(func(r *requestlog.Record) { r.Attempts = nil }),
		spoilt(func(r *requestlog.Record) { r.Attempts[0].Chosen = "relay_pool" }),
		spoilt(func(r *requestlog.Record) { r.Attempts[0].Status = 503 }),
		spoilt(func(r *requestlog.Record) { r.Attempts[0].Failure = "body" }),
	), "a")
	if err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{40 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond}
	if !slices.Equal(got.Service, want) || got.Skipped != 8 || len(got.Gaps) != 2 {
		t.Errorf("%+v", got)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{"service_ms,arrival_s\n10,0\n20,3\n", "service_s\n\"1\n", logOf(record("a", 5), record("a", 7)), "{", "\ufeffservice_ms\n1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := trace.Read(bytes.NewReader(text), trace.Config{})
		if err != nil {
			return
		}
		for _, s := range got.Service {
			if s <= 0 || s > time.Hour {
				t.Fatalf("a service time of %v", s)
			}
		}
		sum := 0.0
		for _, g := range got.Gaps {
			if g < 0 || math.IsNaN(g) {
				t.Fatalf("a gap of %v", g)
			}
			sum += g
		}
		if n := float64(len(got.Gaps)); len(got.Service) == 0 || math.Abs(sum-n) > 1e-6*n {
			t.Fatalf("%d service times, %v gaps with the sum %v", len(got.Service), n, sum)
		}
	})
}

func ExampleRead() {
	t, err := trace.Read(strings.NewReader("service_ms,arrival_s\n8,0\n12,0.5\n10,2\n"), trace.Config{})
	fmt.Println(t.Mean(), t.Gaps, err)
	// Output: 10ms [0.5 1.5] <nil>
}
