package scenario_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// every has a setting of each type.
func every() scenario.Scenario {
	return scenario.Scenario{
		Name: "every", Asks: "?", Run: func(*scenario.Run) error { return nil }, Promises: []scenario.Promise{{Name: "p"}},
		Settings: []scenario.Setting{
			{Name: "count", Help: "h", Default: 3, Quick: 2, Min: 1, Max: 9},
			{Name: "share", Help: "h", Default: 0.5, Min: 0.0, Max: 1.0},
			{Name: "on", Help: "h", Default: false},
			{Name: "word", Help: "h", Default: "a", OneOf: []string{"a", "b"}},
			{Name: "wait", Help: "h", Default: time.Second, Min: time.Duration(0)},
			{Name: "counts", Help: "h", Default: []int{1, 2}, Min: 1, Max: 9},
			{Name: "shares", Help: "h", Default: []float64{0.1}, Max: 1.0},
			{Name: "words", Help: "h", Default: []string{"a"}, OneOf: []string{"a", "b"}},
		},
	}
}

func TestASettingTakesWhatIsAllowedAndNothingElse(t *testing.T) {
	if err := every().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set  string
		says string // "" is allowed
	}{
		{"count=9", ""}, {"count=10", "from 1 to 9"}, {"count=0", "from 1 to 9"}, {"count=x", "whole number"}, {"count=1.5", "whole number"},
		{"share=1", ""}, {"share=1.1", "from 0 to 1"}, {"share=NaN", "a number"},
		{"on=true", ""}, {"on=maybe", "true or false"},
		{"word=b", ""}, {"word=c", "one of a, b"},
		{"wait=5s", ""}, {"wait=-1s", "0s or more"}, {"wait=5", "duration"},
		{"counts=1,9", ""}, {"counts=1,10", "from 1 to 9"}, {"counts=", "whole numbers"},
		{"shares=0.2,1", ""}, {"shares=2", "at most 1"},
		{"words=a,b", ""}, {"words=a,c", "any of a, b"},
		{"colour=red", "it has count, share"}, {"count", "key=value"},
	} {
		_, err := every().Values(false, []string{c.set})
		switch {
		case c.says == "" && err != nil:
			t.Errorf("--set %s: %v", c.set, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("--set %s: %v, want %q in it", c.set, err, c.says)
		}
	}
}

func TestTheLastAssignmentCountsAndQuickIsADefault(t *testing.T) {
	for _, c := range []struct {
		quick bool
		set   []string
		want  int
	}{
		{false, nil, 3}, {true, nil, 2}, {true, []string{"count=4"}, 4}, {false, []string{"count=4", "count=5"}, 5},
	} {
		values, err := every().Values(c.quick, c.set)
		if err != nil || values["count"] != c.want {
			t.Errorf("quick %v, %v: %v, %v; want %d", c.quick, c.set, values["count"], err, c.want)
		}
	}
}

func TestAllWrongAssignmentsAreReportedInOneError(t *testing.T) {
	_, err := every().Values(false, []string{"count=0", "word=c"})
	if err == nil || !strings.Contains(err.Error(), "count=") || !strings.Contains(err.Error(), "word=") {
		t.Errorf("%v", err)
	}
}

func TestAListGoesOnAfterItsCommas(t *testing.T) {
	for text, want := range map[string][]string{
		"a=1":         {"a=1"},
		"a=1,b=2":     {"a=1", "b=2"},
		"a=1,2,3,b=x": {"a=1,2,3", "b=x"},
	} {
		if got := scenario.SplitSettings(text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestABadDeclarationIsRefused(t *testing.T) {
	for says, spoil := range map[string]func(*scenario.Scenario){
		"name":           func(s *scenario.Scenario) { s.Name = "Every One" },
		"no question":    func(s *scenario.Scenario) { s.Asks = "" },
		"nothing to run": func(s *scenario.Scenario) { s.Run = nil },
		"no promise":     func(s *scenario.Scenario) { s.Promises = nil },
		"declared twice": func(s *scenario.Scenario) { s.Settings = append(s.Settings, s.Settings[0]) },
		"no help text":   func(s *scenario.Scenario) { s.Settings[0].Help = "" },
		"from 1 to 9":    func(s *scenario.Scenario) { s.Settings[0].Default = 10 },
		"quick is":       func(s *scenario.Scenario) { s.Settings[0].Quick = "x" },
		"read back":      func(s *scenario.Scenario) { s.Settings[7].Default = []string{" a"}; s.Settings[7].OneOf = nil },
	} {
		s := every()
		spoil(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q in it", err, says)
		}
	}
}
