package queueing

import (
	"time"

	"github.com/ringway/ringway/selection"
)

// What all runs have in common.
const (
	Slots       = 4
	QueueBound  = 128
	MeanService = 25 * time.Millisecond
	OneWay      = 250 * time.Microsecond
	// Warmup is not measured.
	Warmup = selection.Instant(6 * time.Second)
	// RefreshEvery is also the grid of what happens to workers.
	RefreshEvery = selection.Instant(250 * time.Millisecond)
	// A joining worker is ColdBy times slower at first, and warm after WarmAfter.
	ColdBy    = 4
	WarmAfter = selection.Instant(3 * time.Second)
)

// Scenario is what is wrong with the workers.
type Scenario struct {
	Name string
	// SlowShare of the workers are SlowBy times slower.
	SlowShare, SlowBy float64
	// Bimodal work in place of log-normal.
	Bimodal bool
	// Background is the share of requests that fail at any worker, at once.
	Background float64
	// Turns are what happens to the victim, a worker that is not one of the slow.
	Turns []Turn
	// Join is when a new, cold worker arrives, 0 for never. It is the victim then.
	Join selection.Instant
	// Watch is when the victim's traffic is counted, from and to.
	Watch [2]selection.Instant
	// Rush is a time with more arrivals.
	Rush Rush
	// End is when arrivals end.
	End selection.Instant
}

// Rush is a time in which there are Factor times the usual arrivals.
type Rush struct {
	From, To selection.Instant
	Factor   float64
	// Every is after how long it begins again, 0 for never.
	Every selection.Instant
}

// at reports whether an instant is in the rush.
func (r Rush) at(i selection.Instant) bool {
	if r.Every > 0 && i >= r.From {
		i = r.From + (i-r.From)%r.Every
	}
	return i >= r.From && i < r.To
}

// Turn changes the victim from a time on.
type Turn struct {
	At      selection.Instant
	Slow    float64 // times slower; 1 is well
	Failing bool    // every request fails at once
}

func at(seconds float64) selection.Instant { return selection.Instant(seconds * float64(time.Second)) }

// The scenarios of the grid, and the special ones after them.
var (
	Equal   = Scenario{Name: "equal", End: at(20)}
	Hetero  = Scenario{Name: "hetero", SlowShare: 0.2, SlowBy: 3, End: at(20)}
	Bimodal = Scenario{Name: "bimodal", SlowShare: 0.2, SlowBy: 3, Bimodal: true, End: at(20)}
	// FailFast: the victim fails every request at once from 8 s on.
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
	// Recovery: the victim is 10 times slower for 3 s, then well; its traffic is counted in
	// the 10 s after.
	Recovery = Scenario{
		Name: "recovery", SlowShare: 0.2, SlowBy: 3, End: at(21),
		Turns: []Turn{{At: at(8), Slow: 10}, {At: at(11), Slow: 1}}, Watch: [2]selection.Instant{at(11), at(21)},
	}
	// Overload is hetero at more than the capacity, LowRate at next to nothing per pair.
	Overload = Scenario{Name: "overload", SlowShare: 0.2, SlowBy: 3, End: at(20)}
	LowRate  = Scenario{Name: "low rate", SlowShare: 0.2, SlowBy: 3, End: at(20)}
)

// Compared are the scenarios whose latencies are compared.
func Compared() []Scenario { return []Scenario{Equal, Hetero, Bimodal, FailFast, Degrade, Join} }
