package latency

import (
	"math"
	"slices"

	"github.com/ringway/ringway/sims/internal/queueing"
)

// Row is what one policy did in one cell.
type Row struct {
	queueing.Topology
	Load     float64 `json:"load"`
	Scenario string  `json:"scenario"`
	Compared bool    `json:"compared"`
	Policy   string  `json:"policy"`
	Runs     int     `json:"runs"`
	Requests int64   `json:"requests"`

	// Latencies of successful requests, and as multiples of the omniscient policy's.
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	P999      float64 `json:"p999_ms"`
	P50Ratio  float64 `json:"p50_ratio"`
	P99Ratio  float64 `json:"p99_ratio"`
	P999Ratio float64 `json:"p999_ratio"`

	// ErrorShare is the share of requests that failed or were shed; ExcessErrors, how much
	// more it is than the omniscient policy's, which could not be avoided.
	ErrorShare   float64 `json:"error_share"`
	ExcessErrors float64 `json:"excess_errors"`

	// VictimMin, VictimMean and VictimMax are over runs: the traffic of the worker that the
	// scenario is about, as a multiple of the fair share. 0 in scenarios without one.
	VictimMin  float64 `json:"victim_min"`
	VictimMean float64 `json:"victim_mean"`
	VictimMax  float64 `json:"victim_max"`

	Evictions int `json:"evictions"`
}

func newRow(c Cell, policy string, r *queueing.Result) Row {
	ms := func(p float64) float64 { return float64(r.Percentile(p).Microseconds()) / 1000 }
	row := Row{
		Topology: c.Topology, Load: c.Load, Scenario: c.Scenario.Name, Compared: c.Compared,
		Policy: policy, Runs: c.Seeds, Requests: r.Requests,
		P50: ms(50), P99: ms(99), P999: ms(99.9),
		ErrorShare: r.ErrorShare(), Evictions: r.Evictions,
	}
	if shares := r.VictimShares; len(shares) > 0 {
		row.VictimMin, row.VictimMax = slices.Min(shares), slices.Max(shares)
		for _, s := range shares {
			row.VictimMean += s / float64(len(shares))
		}
	}
	return row
}

func (r *Row) compare(reference *Row) {
	r.P50Ratio, r.P99Ratio, r.P999Ratio = r.P50/reference.P50, r.P99/reference.P99, r.P999/reference.P999
	r.ExcessErrors = r.ErrorShare - reference.ErrorShare
}

func (r *Row) cell() Cell {
	return Cell{Topology: r.Topology, Load: r.Load, Scenario: queueing.Scenario{Name: r.Scenario}}
}

// geometricMean of the values of the rows that count.
func geometricMean(rows []Row, counts func(*Row) bool, value func(*Row) float64) float64 {
	sum, n := 0.0, 0
	for i := range rows {
		if counts(&rows[i]) {
			sum += math.Log(value(&rows[i]))
			n++
		}
	}
	return math.Exp(sum / float64(n)) // NaN without any
}
