package membership

import (
	"strconv"
	"testing"
	"time"
)

// lose has n of ten members fail, one every gap, and returns the time after.
func lose(b *burst, n, score int, gap time.Duration) time.Time {
	now := time.Unix(0, 0)
	for i := range n {
		now = now.Add(gap)
		b.failure(strconv.Itoa(i), 10-i, score, now)
	}
	return now
}

func TestTheViewIsDegradedWhenMuchVanishesAtOnce(t *testing.T) {
	window := suspicionWindow(10)
	for name, tc := range map[string]struct {
		lost, score int
		gap         time.Duration
		want        bool
	}{
		"four of ten are not more than 40 %":    {4, 0, time.Second, false},
		"five of ten are":                       {5, 0, time.Second, true},
		"one after the other within the window": {5, 0, window, true},
		"slower than that is ordinary loss":     {5, 0, window + time.Second, false},
		"one, while nobody answers our probes":  {1, unhealthyScore, time.Second, true},
		"one, while few do not":                 {1, unhealthyScore - 1, time.Second, false},
	} {
		var b burst
		lose(&b, tc.lost, tc.score, tc.gap)
		if b.on != tc.want {
			t.Errorf("%s: degraded is %v", name, b.on)
		}
	}
}

func TestTheViewIsTrustedAgain(t *testing.T) {
	window := suspicionWindow(10)
	for name, tc := range map[string]struct {
		lost, back, members, score int
		after                      time.Duration
		degraded                   bool
	}{
		"not at once":                         {5, 0, 5, 0, 0, true},
		"when all are back":                   {5, 5, 10, 7, 0, false},
		"not when most are back but just now": {5, 2, 7, 0, 0, true},
		"when most are back for a window":     {5, 2, 7, 0, window, false},
		"after two windows in company":        {5, 0, 5, 0, 2 * window, false},
		"not while our own probes fail":       {5, 0, 5, unhealthyScore, 2 * window, true},
		"never alone":                         {9, 0, 1, 0, 24 * time.Hour, true},
	} {
		var b burst
		now := lose(&b, tc.lost, 0, time.Second)
		for i := range tc.back {
			b.returned(strconv.Itoa(i))
		}
		if got := b.check(tc.members, tc.score, now.Add(tc.after)); got != tc.degraded {
			t.Errorf("%s: degraded is %v", name, got)
		}
	}
}

func TestFailuresAfterAnAlarmThatPassedStillCountWithThoseBefore(t *testing.T) {
	var b burst
	now := lose(&b, 2, unhealthyScore, time.Second)
	now = now.Add(suspicionWindow(10))
	if b.check(8, 0, now) {
		t.Fatal("two of ten are missing, all else is well")
	}
	for i := range 3 {
		b.failure("later"+strconv.Itoa(i), 8-i, 0, now)
	}
	if !b.on {
		t.Fatal("five of ten failed within one window")
	}
}
