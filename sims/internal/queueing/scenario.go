package queueing

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringway/ringway/selection"
)

// The constants of all runs.
const (
	Slots       = 4
	QueueBound  = 128
	MeanService = 25 * time.Millisecond
	OneWay      = 250 * time.Microsecond
	// Warmup is the time from the start that is not measured.
	Warmup = selection.Instant(6 * time.Second)
	// RefreshEvery is the interval of Client.Refresh. Turns, steps and joins take effect at
	// these times only.
	RefreshEvery = selection.Instant(250 * time.Millisecond)
	// A joining worker is ColdBy times slower at first and reaches normal speed after
	// WarmAfter.
	ColdBy    = 4
	WarmAfter = selection.Instant(3 * time.Second)
)

// Scenario describes the workers and their faults.
type Scenario struct {
	Name string
	// SlowShare is the share of workers that are SlowBy times slower.
	SlowShare, SlowBy float64
	// Bimodal selects bimodal instead of log-normal work.
	Bimodal bool
	// Background is the share of requests that fail immediately, at any worker.
	Background float64
	// Turns lists the changes of the victim, one worker that is not slow.
	Turns []Turn
	// Join is the time at which a new, cold worker joins, 0 for never. The new worker then
	// is the victim.
	Join selection.Instant
	// Watch is the time, from and to, in which the victim's traffic is counted.
	Watch [2]selection.Instant
	// Rush is a time with more arrivals.
	Rush Rush
	// End is the time at which arrivals end.
	End selection.Instant
}

// Rush is a time with Factor times the usual arrivals.
type Rush struct {
	From, To selection.Instant
	Factor   float64
	// Every is the period after which the rush repeats, 0 for never.
	Every selection.Instant
}

// at reports whether an instant is in the rush.
func (r Rush) at(i selection.Instant) bool {
	if r.Every > 0 && i >= r.From {
		i = r.From + (i-r.From)%r.Every
	}
	return i >= r.From && i < r.To
}

// Turn changes a worker from a time on.
type Turn struct {
	At      selection.Instant
	Slow    float64 // times slower; 1 is normal speed
	Failing bool    // every request fails immediately
}

func at(seconds float64) selection.Instant { return selection.Instant(seconds * float64(time.Second)) }

// The scenarios of the grid, and the special ones after them.
var (
	Equal   = Scenario{Name: "equal", End: at(20)}
	Hetero  = Scenario{Name: "hetero", SlowShare: 0.2, SlowBy: 3, End: at(20)}
	Bimodal = Scenario{Name: "bimodal", SlowShare: 0.2, SlowBy: 3, Bimodal: true, End: at(20)}
	// FailFast: the victim fails every request immediately from 8 s on.
	FailFast = Scenario{
		Name: "failfast", SlowShare: 0.2, SlowBy: 3, End: at(20),
		Turns: []Turn{{At: at(8), Slow: 1, Failing: true}}, Watch: [2]selection.Instant{at(8), at(20)},
	}
	// Degrade: the victim is 10 times slower from 10 to 16 s.
	Degrade = Scenario{
		Name: "degrade", SlowShare: 0.2, SlowBy: 3, End: at(20),
		Turns: []Turn{{At: at(10), Slow: 10}, {At: at(16), Slow: 1}}, Watch: [2]selection.Instant{at(10), at(16)},
	}
	Join = Scenario{
		Name: "join", SlowShare: 0.2, SlowBy: 3, End: at(20),
		Join: at(10), Watch: [2]selection.Instant{at(10), at(13)},
	}

	// Background: 1 % of all requests fail, wherever they go.
	Background = Scenario{Name: "background", SlowShare: 0.2, SlowBy: 3, Background: 0.01, End: at(20)}
	// Recovery: the victim is 10 times slower for 3 s, then normal; its traffic is counted in
	// the following 10 s.
	Recovery = Scenario{
		Name: "recovery", SlowShare: 0.2, SlowBy: 3, End: at(21),
		Turns: []Turn{{At: at(8), Slow: 10}, {At: at(11), Slow: 1}}, Watch: [2]selection.Instant{at(11), at(21)},
	}
	// Overload is hetero above the capacity, LowRate is hetero with very few requests per
	// pair of client and worker.
	Overload = Scenario{Name: "overload", SlowShare: 0.2, SlowBy: 3, End: at(20)}
	LowRate  = Scenario{Name: "low rate", SlowShare: 0.2, SlowBy: 3, End: at(20)}
)

// Compared returns the scenarios whose latencies are compared.
func Compared() []Scenario { return []Scenario{Equal, Hetero, Bimodal, FailFast, Degrade, Join} }

// Result holds the measurements of one run, or of several runs merged.
type Result struct {
	latency *hdrhistogram.Histogram // of successes, in µs
	// Requests counts the requests after the warm-up; Failed and Shed count those of them
	// that were not served.
	Requests, Failed, Shed int64
	// Evictions by all clients.
	Evictions int
	// Seconds has one element per second of a run with Callers; nil without Callers.
	Seconds []Second
	// VictimShares lists, per run, the victim's requests as a multiple of the fair share.
	VictimShares []float64
}

func newResult() Result {
	// Three significant digits (0.1 %) up to ten minutes.
	return Result{latency: hdrhistogram.New(1, (10 * time.Minute).Microseconds(), 3)}
}

// Add merges another run of the same cell into r.
func (r *Result) Add(other Result) {
	if r.latency == nil {
		*r = newResult()
	}
	r.latency.Merge(other.latency)
	r.Requests += other.Requests
	r.Failed += other.Failed
	r.Shed += other.Shed
	r.Evictions += other.Evictions
	r.VictimShares = append(r.VictimShares, other.VictimShares...)
}

// Percentile returns a percentile of the latency of successful requests, p from 0 to 100.
func (r *Result) Percentile(p float64) time.Duration {
	return time.Duration(r.latency.ValueAtPercentile(p)) * time.Microsecond
}

// ErrorShare is the share of requests that failed or were shed.
func (r *Result) ErrorShare() float64 {
	return float64(r.Failed+r.Shed) / float64(max(r.Requests, 1))
}

func (r *Result) served(latency time.Duration) {
	// The histogram drops values beyond ten minutes, which would make a bad policy look
	// better.
	_ = r.latency.RecordValue(min(latency.Microseconds(), r.latency.HighestTrackableValue()))
}
