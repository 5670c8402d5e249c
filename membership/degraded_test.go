package membership

import (
	"strconv"
	"testing"
	"time"
)

// lose has n of ten members fail, one every gap, and returns the time after.
func lose(b *burst, n int, answered bool, gap time.Duration) time.Time {
	now := time.Unix(0, 0)
	for i := range n {
		now = now.Add(gap)
		b.failure(strconv.Itoa(i), census{10 - i, 10 - i}, answered, now)
	}
	return now
}

func TestTheViewIsDegradedWhenManyMembersVanishTogether(t *testing.T) {
	window := suspicionWindow(10)
	for name, tc := range map[string]struct {
		lost     int
		answered bool
		gap      time.Duration
		want     bool
	}{
		"four of ten are not more than 40 %":    {4, true, time.Second, false},
		"five of ten are":                       {5, true, time.Second, true},
		"one after the other within the window": {5, true, window, true},
		"slower than that is ordinary loss":     {5, true, window + time.Second, false},
		"one, while our probes get no answer":   {1, false, time.Second, true},
		"one, while they are answered":          {1, true, time.Second, false},
	} {
		var b burst
		lose(&b, tc.lost, tc.answered, tc.gap)
		if b.on != tc.want {
			t.Errorf("%s: degraded is %v", name, b.on)
		}
	}
}

func TestMembersThatCrashOneAfterTheOtherAndAreReplacedAreNoBurst(t *testing.T) {
	var b burst
	for now := range 30 {
		b.failure(strconv.Itoa(now), census{10, 10}, true, time.Unix(int64(now)*20, 0)) // within a window
		if b.on {
			t.Fatalf("degraded at failure %d, with ten members alive all the time", now)
		}
	}
	if len(b.failed) > 5 {
		t.Errorf("%d failures are kept", len(b.failed))
	}
	now := time.Unix(30*20, 0)
	for i := range 5 {
		b.failure("together"+strconv.Itoa(i), census{10 - i, 10 - i}, true, now)
	}
	if !b.on {
		t.Error("five of ten that fail together count no more")
	}
}

func TestMembersThatLeaveInOrderAreNoPartOfTheWhole(t *testing.T) {
	var b burst
	now := time.Unix(0, 0)
	b.failure("first", census{20, 20}, true, now)
	for range 10 {
		b.left(true)
	}
	for i := range 4 {
		b.failure(strconv.Itoa(i), census{9 - i, 9 - i}, true, now)
	}
	if !b.on {
		t.Error("five of the ten that are left failed together")
	}
}

func TestTheViewIsTrustedAgain(t *testing.T) {
	window := suspicionWindow(10)
	for name, tc := range map[string]struct {
		lost, back, members int
		answered            bool
		after               time.Duration
		degraded            bool
	}{
		"not at once":                         {5, 0, 5, true, 0, true},
		"when all are back":                   {5, 5, 10, false, 0, false},
		"not when most are back but just now": {5, 2, 7, true, 0, true},
		"when most are back for a window":     {5, 2, 7, true, window, false},
		"after two windows in company":        {5, 0, 5, true, 2 * window, false},
		"not while our own probes fail":       {5, 0, 5, false, 2 * window, true},
		"never alone":                         {9, 0, 1, true, 24 * time.Hour, true},
	} {
		var b burst
		now := lose(&b, tc.lost, true, time.Second)
		for i := range tc.back {
			b.returned(strconv.Itoa(i))
		}
		if got := b.check(tc.members, tc.answered, now.Add(tc.after)); got != tc.degraded {
			t.Errorf("%s: degraded is %v", name, got)
		}
	}
}

func TestFailuresAfterAnAlarmThatPassedStillCountWithThoseBefore(t *testing.T) {
	var b burst
	now := lose(&b, 2, false, time.Second)
	now = now.Add(suspicionWindow(10))
	if b.check(8, true, now) {
		t.Fatal("two of ten are missing, all else is well")
	}
	for i := range 3 {
		b.failure("later"+strconv.Itoa(i), census{8 - i, 8 - i}, true, now)
	}
	if !b.on {
		t.Fatal("five of ten failed within one window")
	}
}

func TestANodeThatWasAnsweredALittleWhileAgoIsNotCutOff(t *testing.T) {
	window := suspicionWindow(12)
	answeredAt := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		score   int
		silence time.Duration
		want    bool
	}{
		"helpers are dead, too":              {unhealthyScore, window/2 - 1, true},
		"no answer while suspicion ran out":  {unhealthyScore, window / 2, false},
		"answered over TCP only, score good": {unhealthyScore - 1, time.Hour, true},
	} {
		var p probeMonitor
		p.answeredAt.Store(&answeredAt)
		if got := p.answered(12, tc.score, answeredAt.Add(tc.silence)); got != tc.want {
			t.Errorf("%s: answered is %v", name, got)
		}
	}
}
