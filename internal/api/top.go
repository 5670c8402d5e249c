package api

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// TopRow is a service, a worker or a caller in a window. What is not known is left out.
type TopRow struct {
	Name              string  `json:"name"`
	Requests          uint64  `json:"requests"`
	Errors            uint64  `json:"errors"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	ErrorsPerSecond   float64 `json:"errors_per_second"`
	InFlight          *int64  `json:"in_flight,omitempty"`
	Sessions          *int64  `json:"sessions,omitempty"`
	// P50Ms and P99Ms are estimated from a histogram of the time until answers began; EWMAMs
	// is the moving average of a worker. All are in milliseconds.
	P50Ms  float64 `json:"p50_ms,omitempty"`
	P99Ms  float64 `json:"p99_ms,omitempty"`
	EWMAMs float64 `json:"ewma_ms,omitempty"`
	State  string  `json:"state,omitempty"`
}

// RateRows sets the rates of rows that were counted in a window.
func RateRows(rows []TopRow, window time.Duration) {
	for i := range rows {
		r := &rows[i]
		r.RequestsPerSecond, r.ErrorsPerSecond = float64(r.Requests)/window.Seconds(), float64(r.Errors)/window.Seconds()
	}
}

// Find returns the counters of a service, nil if there are none.
func (t *Traffic) Find(service string) *ServiceTraffic {
	for i := range t.Services {
		if t.Services[i].Service == service {
			return &t.Services[i]
		}
	}
	return nil
}

// ServiceRows returns one row for each service: what was counted since before.
func ServiceRows(before, now *Traffic) []TopRow {
	rows := []TopRow{}
	for i := range now.Services {
		s := &now.Services[i]
		old := before.Find(s.Service)
		if old == nil {
			old = &ServiceTraffic{}
		}
		d := s.Since(old.Counts)
		h := histogram{buckets: slices.Clone(s.Latency)}
		for j := range h.buckets {
			if j < len(old.Latency) {
				h.buckets[j].Requests -= min(old.Latency[j].Requests, h.buckets[j].Requests)
			}
		}
		h.total = d.Requests
		if s.Answers != nil {
			h.total = *s.Answers
			if old.Answers != nil {
				h.total -= min(*old.Answers, h.total)
			}
		}
		row := TopRow{Name: s.Service, Requests: d.Requests, Errors: d.Errors, InFlight: &d.InFlight, Sessions: &d.Sessions, P50Ms: h.quantile(0.5), P99Ms: h.quantile(0.99)}
		if len(s.Evicted) > 0 {
			row.State = fmt.Sprintf("%d of %d workers evicted", len(s.Evicted), s.Workers)
		}
		rows = append(rows, row)
	}
	return rows
}

// WorkerRows returns one row for each worker: what was counted since before. It adds up the
// services of each worker, or takes only one service. Both need the peers.
func WorkerRows(before, now *Traffic, service string) []TopRow {
	rows := map[string]*TopRow{}
	for i := range now.Services {
		s := &now.Services[i]
		if service != "" && s.Service != service {
			continue
		}
		earlier := map[string]Peer{}
		if old := before.Find(s.Service); old != nil {
			for _, p := range old.Peers {
				earlier[p.Node] = p
			}
		}
		for _, p := range s.Peers {
			r := rows[p.Node]
			if r == nil {
				r = &TopRow{Name: p.Node, InFlight: new(int64), State: p.State}
				rows[p.Node] = r
			}
			requests, errs := p.Requests, p.Failures
			if old := earlier[p.Node]; old.Requests <= requests && old.Failures <= errs { // otherwise it left and came back
				requests, errs = requests-old.Requests, errs-old.Failures
			}
			r.Requests += requests
			r.Errors += errs
			*r.InFlight += int64(p.InFlight)
			r.EWMAMs = max(r.EWMAMs, p.EWMAms)
			if r.State == "active" {
				r.State = p.State
			}
		}
	}
	out := []TopRow{}
	for _, r := range rows {
		out = append(out, *r)
	}
	return out
}

// histogram has cumulative buckets of latencies and the number of all.
type histogram struct {
	buckets []LatencyBucket
	total   uint64
}

// quantile estimates a quantile in milliseconds by linear interpolation within its bucket,
// as histogram_quantile of Prometheus does. A quantile above the last bucket is the bound of
// the last bucket, and one of no requests is 0.
func (h histogram) quantile(q float64) float64 {
	rank := q * float64(h.total)
	low, below := 0.0, uint64(0)
	for _, b := range h.buckets {
		if in := b.Requests - min(below, b.Requests); float64(b.Requests) >= rank && in > 0 {
			return low + (b.UpToMs-low)*(rank-float64(below))/float64(in)
		}
		low, below = b.UpToMs, b.Requests
	}
	if h.total == 0 {
		return 0
	}
	return low
}

// mostCallers bounds the rows of a window: clients choose their addresses. The requests of
// more callers are counted together.
const (
	mostCallers  = 10_000
	otherCallers = "(others)"
)

// callerBounds are the bounds of the histogram of a caller, in milliseconds.
var callerBounds = [...]float64{.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000}

// Callers counts requests by caller. Its methods are safe for concurrent use.
type Callers struct {
	mu   sync.Mutex
	rows map[string]*callerRow
}

type callerRow struct {
	requests, errors uint64
	within           [len(callerBounds)]uint64
}

// Call is a request that has ended.
type Call struct {
	// Caller is its sender, From the relay that forwarded it.
	Caller, From string
	Failed       bool
	// FirstByteMs is the time until the answer of an endpoint began, 0 without one, TotalMs
	// until everything ended, both in milliseconds.
	FirstByteMs, TotalMs float64
}

// Add counts a request.
func (c *Callers) Add(call *Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := call.Caller
	switch {
	case name != "":
	case call.From != "":
		name = "(by " + call.From + ")"
	default:
		name = "(unknown)"
	}
	row := c.rows[name]
	if row == nil {
		if c.rows == nil {
			c.rows = map[string]*callerRow{}
		}
		if len(c.rows) >= mostCallers {
			name = otherCallers
		}
		if row = c.rows[name]; row == nil {
			row = &callerRow{}
			c.rows[name] = row
		}
	}
	row.requests++
	if call.Failed {
		row.errors++
	}
	took := call.FirstByteMs
	if took == 0 {
		took = call.TotalMs
	}
	for i, bound := range callerBounds {
		if took <= bound {
			row.within[i]++
		}
	}
}

// Next returns one row for each caller: what was counted since the last call of Next.
func (c *Callers) Next() []TopRow {
	c.mu.Lock()
	rows := c.rows
	c.rows = nil
	c.mu.Unlock()
	out := []TopRow{}
	for name, r := range rows {
		h := histogram{total: r.requests}
		for i, bound := range callerBounds {
			h.buckets = append(h.buckets, LatencyBucket{UpToMs: bound, Requests: r.within[i]})
		}
		out = append(out, TopRow{Name: name, Requests: r.requests, Errors: r.errors, P50Ms: h.quantile(0.5), P99Ms: h.quantile(0.99)})
	}
	return out
}
