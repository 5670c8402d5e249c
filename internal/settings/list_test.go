package settings_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/settings"
)

// counted parses SERVICE=N pairs into a sum, and counts its calls.
func counted(calls *int) func([]string) (int, []settings.Problem) {
	return func(items []string) (sum int, problems []settings.Problem) {
		*calls++
		for _, text := range items {
			if _, n, ok := strings.Cut(text, "="); ok {
				sum += len(n)
			} else {
				problems = append(problems, settings.Problem{Setting: "pairs", Value: text, Reason: "no pair", Allowed: "SERVICE=N"})
			}
		}
		return sum, problems
	}
}

func TestAListIsParsedOnceAndReportsEachItemThatIsWrong(t *testing.T) {
	calls := 0
	pairs := settings.NewList(counted(&calls), "a=1")
	set := settings.New("test", "TEST")
	settings.Parsed(set, &pairs, settings.Spec{Name: "pairs", Usage: "pairs"}, settings.Rule[string]{Allowed: "no spaces", Holds: func(text string) bool { return !strings.Contains(text, " ") }})
	before := calls
	if err := set.Load(settings.Sources{Environ: []string{"TEST_PAIRS=b=22,c=333"}}); err != nil {
		t.Fatal(err)
	}
	if pairs.Value != 5 || !slices.Equal(pairs.Items(), []string{"b=22", "c=333"}) || calls != before+1 {
		t.Errorf("%d of %q after %d calls", pairs.Value, pairs.Items(), calls-before)
	}
	if values := set.Values(); values[len(values)-1].Value != "b=22,c=333" {
		t.Errorf("shown as %+v", values[len(values)-1])
	}
	err := set.Load(settings.Sources{Environ: []string{"TEST_PAIRS=b,c=1,d"}})
	if err == nil || !strings.Contains(err.Error(), `"b"`) || !strings.Contains(err.Error(), `"d"`) || strings.Contains(err.Error(), `"c=1"`) {
		t.Errorf("two wrong items: %v", err)
	}
	if pairs.Value != 5 {
		t.Errorf("a list that was refused is in effect: %d", pairs.Value)
	}
	if err = set.Load(settings.Sources{Environ: []string{"TEST_PAIRS=a a=1"}}); err == nil || !strings.Contains(err.Error(), "no spaces") {
		t.Errorf("an item against the rule: %v", err)
	}
	if err := set.Load(settings.Sources{}); err != nil || pairs.Value != 1 {
		t.Errorf("the default: %d, %v", pairs.Value, err)
	}
}
