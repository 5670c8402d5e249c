package main

import (
	"os"
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
	want := wrkReport{requests: 229665, rate: 45933, p99: 3010 * time.Microsecond}
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

func TestCPUTimeOfThisProcessIsKnown(t *testing.T) {
	if _, err := cpuTime(os.Getpid()); err != nil {
		t.Error(err)
	}
}

func TestMedianIsTheMiddle(t *testing.T) {
	for _, tc := range []struct {
		v    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 9, 2}, 3}} {
		if got := median(tc.v); got != tc.want {
			t.Errorf("median(%v) = %v, want %v", tc.v, got, tc.want)
		}
	}
}
