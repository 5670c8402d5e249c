package latency

import (
	"math"
	"slices"

	"github.com/ringway/ringway/sims/internal/queueing"
)

// row is what one policy did in one cell.
type row struct {
	*cell
	policy   string
	requests int64

	// Latencies of successful requests in ms, and as multiples of the omniscient policy's.
	p50, p99, p999                float64
	p50Ratio, p99Ratio, p999Ratio float64
	p99Of                         []float64 // by run
	noise                         float64   // standard error of p99Ratio, relative; NaN of one run
	curve                         []float64 // ms, by curveAt

	// errorShare is the share of requests that failed or were shed; excessErrors, how much
	// more it is than the omniscient policy's, which could not be avoided.
	errorShare, excessErrors float64

	// The traffic of the worker that the scenario is about ÷ fair, over runs. 0 without one.
	victimMean, victimMax float64

	evictions int
}

// curveAt are the places of the curves: one request in so many takes longer.
var curveAt = []float64{2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 3000, 5000, 10_000}

func milliseconds(r *queueing.Result, percentile float64) float64 {
	return float64(r.Percentile(percentile).Microseconds()) / 1000
}

func newRow(c *cell, policy string, r *queueing.Result) row {
	out := row{
		cell: c, policy: policy, requests: r.Requests,
		p50: milliseconds(r, 50), p99: milliseconds(r, 99), p999: milliseconds(r, 99.9),
		errorShare: r.ErrorShare(), evictions: r.Evictions,
	}
	for _, n := range curveAt {
		if served := float64(r.Requests) * (1 - out.errorShare); served >= 10*n { // fewer would draw chance
			out.curve = append(out.curve, milliseconds(r, 100*(1-1/n)))
		}
	}
	if shares := r.VictimShares; len(shares) > 0 {
		out.victimMax = slices.Max(shares)
		for _, s := range shares {
			out.victimMean += s / float64(len(shares))
		}
	}
	return out
}

func (r *row) compare(reference *row) {
	r.p50Ratio, r.p99Ratio, r.p999Ratio = r.p50/reference.p50, r.p99/reference.p99, r.p999/reference.p999
	r.excessErrors = r.errorShare - reference.errorShare
	ratios := make([]float64, len(r.p99Of))
	for i := range ratios {
		ratios[i] = r.p99Of[i] / reference.p99Of[i]
	}
	r.noise = standardError(ratios)
}

// standardError is that of the mean, in parts of the mean.
func standardError(values []float64) float64 {
	n := float64(len(values))
	mean, square := 0.0, 0.0
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		square += (v - mean) * (v - mean)
	}
	return math.Sqrt(square/(n-1)/n) / mean // NaN of one
}

// geometricMean of the values of the rows that count; NaN without any.
func geometricMean(rows []row, counts func(*row) bool, value func(*row) float64) float64 {
	sum, n := 0.0, 0
	for i := range rows {
		if counts(&rows[i]) {
			sum += math.Log(value(&rows[i]))
			n++
		}
	}
	return math.Exp(sum / float64(n))
}
