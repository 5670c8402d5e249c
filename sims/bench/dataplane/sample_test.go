package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWrkReportsAreRead(t *testing.T) {
	r, err := parseWrk(`Running 5s test @ http://127.0.0.1:1/128
  1 threads and 32 connections
  Latency Distribution
     50%  581.00us
     99%    3.01ms
  229665 requests in 5.00s, 50.37MB read
Requests/sec:  45933.00
Transfer/sec:     10.07MB
`)
	want := report{requests: 229665, rate: 45933, p50: 581 * time.Microsecond, p99: 3010 * time.Microsecond}
	if err != nil || r != want {
		t.Errorf("%+v %v, want %+v", r, err, want)
	}
}

func TestFailedRequestsSpoilAMeasurement(t *testing.T) {
	for _, out := range []string{
		"  10 requests in 5.00s, 1MB read\n  Non-2xx or 3xx responses: 1\n",
		"  10 requests in 5.00s, 1MB read\n  Socket errors: connect 0, read 3, write 0, timeout 0\n",
		"", "  x requests in 5.00s, 1MB read\n",
	} {
		if r, err := parseWrk(out); err == nil {
			t.Errorf("%q was taken as %+v", out, r)
		}
	}
}

func TestLogsOfH2loadAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1000\t200\t300\n1001\t200\t100\n1002\t200\t200\n")
	if r, err := readH2loadLogs(path); err != nil || r != (report{requests: 3, p50: 200 * time.Microsecond, p99: 200 * time.Microsecond}) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, text := range []string{"", "1000\t503\t300\n", "1000\t200\n", "1\t200\tx\n"} {
		write(text)
		if r, err := readH2loadLogs(path); err == nil {
			t.Errorf("%q was taken as %+v", text, r)
		}
	}
}

func TestLogsOfSeveralH2loadAreOneSample(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := write("1\t200\t300\n2\t200\t500\n"), write("1\t200\t100\n")
	if r, err := readH2loadLogs(one, two); err != nil || r.requests != 3 || r.p50 != 300*time.Microsecond {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := readH2loadLogs(one, write("")); err == nil {
		t.Errorf("an address without an answer was taken as %+v", r)
	}
}

func TestUsageOfThisProcessIsKnown(t *testing.T) {
	if _, memory, err := usage(os.Getpid()); err != nil || memory < 1 || memory > 1000 {
		t.Error(memory, err)
	}
}

func TestMedianIsTheMiddle(t *testing.T) {
	for _, tc := range []struct {
		v    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 9, 2}, 3}} {
		if got := middle(tc.v); got != tc.want {
			t.Errorf("middle(%v) = %v, want %v", tc.v, got, tc.want)
		}
	}
}

// Within a round the machine is the same, so the ratio is that of the rounds and not that of the medians.
func TestRatiosAreThoseOfTheRounds(t *testing.T) {
	first := []sample{{cpu: 10}, {cpu: 20}, {cpu: 40}}
	f := summarise("relay", []sample{{cpu: 11, rate: 5}, {cpu: 24, rate: 7}, {cpu: 36, rate: 6}}, first)
	if f.Ratio != (spread{1.1, 0.9, 1.2}) || f.CPU != (spread{24, 11, 36}) || f.Rate.Median != 6 {
		t.Errorf("%+v", f)
	}
	var out strings.Builder
	c := comparison{Name: "calls", Unit: "request", Proxies: []figures{summarise("haproxy", first, first), f}}
	if err := c.writeTo(&out); err != nil || !strings.Contains(out.String(), "relay    24.0            1.100      (0.90-1.20)") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestARequestThatCostsATenthMoreThanBeforeIsNamed(t *testing.T) {
	now := func(cpu float64) comparison {
		return comparison{Name: fmt.Sprint(cpu), Proxies: []figures{{}, summarise("relay", []sample{{cpu: cpu}}, []sample{{cpu: 100}})}}
	}
	r := results{Traffic: []comparison{now(90), now(109), now(111)}}
	if grown := r.regressions(); !slices.Equal(grown, []string{"111: 1.11 times"}) {
		t.Errorf("%q", grown)
	}
}

func TestResultsAreWrittenAsJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	want := results{Programs: map[string]string{"go": "go1"}, CPUs: 2, Rounds: 3, Seconds: 5, Traffic: []comparison{{Name: "calls", Unit: "request", Proxies: []figures{{Name: "relay", CPU: spread{1, 2, 3}}}}}}
	if err := want.writeJSON(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	var got results
	if err := errors.Join(err, json.Unmarshal(text, &got)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%s", err, text)
	}
}
