package health

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A history has a letter for each probe: s success, f failure, g failure that is
// still forgiven. The verdict after each is H healthy, u unhealthy, - none yet.
func TestVerdictsFollowRiseAndFall(t *testing.T) {
	for _, test := range []struct {
		promise            string
		rise, fall         int
		history, verdicts  string
		changesAfterProbes []int
	}{
		{"the first success makes healthy at once", 3, 3, "s", "H", []int{1}},
		{"also after failures that were forgiven", 3, 3, "ggs", "--H", []int{3}},
		{"also after those that were not, which give one verdict", 3, 3, "gfffs", "-uuuH", []int{2, 5}},
		{"fewer than fall failures change nothing", 2, 3, "sffsffs", "HHHHHHH", []int{1}},
		{"fall failures in a row make unhealthy", 2, 3, "sfffff", "HHHuuu", []int{1, 4}},
		{"rise successes in a row make healthy again", 2, 3, "sfffsfss", "HHHuuuuH", []int{1, 4, 8}},
		{"one and one follow every probe", 1, 1, "sfsf", "HuHu", []int{1, 2, 3, 4}},
		{"nothing is forgiven any more after the first success", 1, 2, "sgg", "HHu", []int{1, 3}},
	} {
		v := healthState{rise: test.rise, fall: test.fall}
		verdicts, changes := "", []int(nil)
		for i, letter := range test.history {
			if v.observe(letter == 's', letter == 'g') {
				changes = append(changes, i+1)
			}
			verdicts += letterOf(v)
		}
		if verdicts != test.verdicts || !slices.Equal(changes, test.changesAfterProbes) {
			t.Errorf("%s: %s gave %s with changes after %v, want %s and %v", test.promise, test.history, verdicts, changes, test.verdicts, test.changesAfterProbes)
		}
	}
}

func letterOf(v healthState) string {
	switch {
	case v.healthy:
		return "H"
	case v.decided:
		return "u"
	}
	return "-"
}

// reference reads the verdict off the whole history: the newest run that was long
// enough to decide.
func reference(history string, rise, fall int) string {
	first := strings.IndexByte(history, 's')
	if first < 0 {
		if strings.Contains(history, "f") {
			return "u"
		}
		return "-"
	}
	failures := strings.ReplaceAll(history, "g", "f")
	for end := len(history); end > first+1; end-- {
		if strings.HasSuffix(failures[:end], strings.Repeat("f", fall)) {
			return "u"
		}
		if strings.HasSuffix(failures[:end], strings.Repeat("s", rise)) {
			return "H"
		}
	}
	return "H"
}

func TestEveryVerdictIsThatOfTheNewestDecisiveRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rise, fall := rapid.IntRange(1, 5).Draw(t, "rise"), rapid.IntRange(1, 5).Draw(t, "fall")
		history := rapid.StringOfN(rapid.SampledFrom([]rune("sssfffg")), 0, 40, -1).Draw(t, "history")
		v := healthState{rise: rise, fall: fall}
		before := letterOf(v)
		for i := range history {
			changed := v.observe(history[i] == 's', history[i] == 'g')
			now := letterOf(v)
			if want := reference(history[:i+1], rise, fall); now != want {
				t.Fatalf("after %s: %s, want %s", history[:i+1], now, want)
			}
			if changed != (now != before) {
				t.Fatalf("after %s: changed is %v, and it went from %s to %s", history[:i+1], changed, before, now)
			}
			before = now
		}
	})
}
