package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"
)

// report is what a demo ends with.
type report struct {
	// Requests that were answered or failed, and those that failed.
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
	// Retries are attempts that the relays made after a failed one.
	Retries uint64 `json:"retries"`
	// P50 and P99 are latencies in ms, from when a request was due.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	// RequestsPerWorker are requests answered by a worker, its replacements
	// included.
	RequestsPerWorker minMax `json:"requests_per_worker"`
	// RelaysPerWorker are relays connected to a worker at the end, and
	// WorkersPerRelay workers that an affine relay is connected to.
	RelaysPerWorker minMax `json:"relays_per_worker"`
	WorkersPerRelay minMax `json:"workers_per_relay"`
}

type minMax struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// extent is the least and the greatest of some numbers, zero for none.
func extent(numbers []int) (m minMax) {
	for i, n := range numbers {
		if i == 0 {
			m = minMax{n, n}
		}
		m = minMax{min(m.Min, n), max(m.Max, n)}
	}
	return m
}

// newReport puts together what the clients counted and what the relays say.
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

// milliseconds with as many digits as the histogram is good for.
func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

// check is the verdict: nil when requests were sent and none was lost.
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
