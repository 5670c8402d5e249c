package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"
)

// report is the final result of a demo.
type report struct {
	// Requests were answered or failed; Errors is the number of those that failed.
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
	// Retries are attempts that the relays made after a failed one.
	Retries uint64 `json:"retries"`
	// P50 and P99 are latencies in ms, from the time at which a request was due.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	// RequestsPerWorker are the requests answered by a worker and its replacements.
	RequestsPerWorker minMax `json:"requests_per_worker"`
	// RelaysPerWorker are the relays connected to a worker at the end, WorkersPerRelay the
	// workers that an affine relay is connected to.
	RelaysPerWorker minMax `json:"relays_per_worker"`
	WorkersPerRelay minMax `json:"workers_per_relay"`
}

type minMax struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// extent returns the minimum and maximum of some numbers, zero for none.
func extent(numbers []int) (m minMax) {
	for i, n := range numbers {
		if i == 0 {
			m = minMax{n, n}
		}
		m = minMax{min(m.Min, n), max(m.Max, n)}
	}
	return m
}

// newReport combines the counts of the clients with the views of the relays.
func newReport(workers []string, seen counts, views []relayView) report {
	r := report{Requests: seen.Requests, Errors: seen.Errors,
		P50: milliseconds(quantile(seen.Latency, 50)), P99: milliseconds(quantile(seen.Latency, 99))}
	connected := map[string]int{}
	var perRelay, perWorker, answered []int
	for _, v := range views {
		r.Retries += v.Retries
		if !v.affine() {
			continue
		}
		n := 0
		for _, p := range v.Peers {
			if p.Connected {
				connected[p.Node]++
				n++
			}
		}
		perRelay = append(perRelay, n)
	}
	for _, id := range workers {
		perWorker = append(perWorker, connected[id])
		answered = append(answered, int(seen.Worker[id]))
	}
	r.RequestsPerWorker, r.RelaysPerWorker, r.WorkersPerRelay = extent(answered), extent(perWorker), extent(perRelay)
	return r
}

// milliseconds rounds a duration to the precision of the histogram.
func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

// check returns nil if requests were sent and none failed.
func (r report) check() error {
	switch {
	case r.Requests == 0:
		return fmt.Errorf("no request was sent: give it more time with --for, or a higher --rate")
	case r.Errors > 0:
		return fmt.Errorf("%d of %d requests failed", r.Errors, r.Requests)
	}
	return nil
}

func (r report) writeJSON(w io.Writer) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	_, err = w.Write(append(body, '\n'))
	return err
}

func (r report) writeText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d requests, %d errors, %d retries, p50 %.1f ms, p99 %.1f ms\n"+
		"requests per worker %s, relays per worker %s, workers per relay %s\n",
		r.Requests, r.Errors, r.Retries, r.P50, r.P99,
		r.RequestsPerWorker, r.RelaysPerWorker, r.WorkersPerRelay)
	return err
}

func (m minMax) String() string {
	if m.Min == m.Max {
		return fmt.Sprint(m.Min)
	}
	return fmt.Sprintf("%d to %d", m.Min, m.Max)
}
