package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// toy measures a coin: it takes no time, and breaks when a test asks for it.
func toy(name string) scenario.Scenario {
	return scenario.Scenario{
		Name: name, Asks: "Is the coin fair?",
		Settings: []scenario.Setting{
			{Name: "throws", Help: "how often", Default: 100, Quick: 10, Min: 1, Max: 1000},
			{Name: "bound", Help: "what is promised", Default: 0.9, Min: 0.0, Max: 1.0},
		},
		Promises: []scenario.Promise{{Name: "share of heads", Relation: scenario.AtMost}},
		Run: func(r *scenario.Run) error {
			random, heads := r.Rand("coin"), 0
			t := r.Table(scenario.Table{Name: "throws", Title: "throws", Section: "throws", Columns: []scenario.Column{{Name: "throws", Key: true}, {Name: "heads"}}})
			p := r.Plot(scenario.Plot{Name: "heads", Title: "Heads", Conclusion: "About half.", X: scenario.Axis{Label: "throws", Unit: "throws"}, Y: scenario.Axis{Label: "heads", Unit: "throws"}})
			line := p.Line("heads")
			r.Steps(r.Int("throws"))
			for i := range r.Int("throws") {
				heads += random.IntN(2)
				line.At(float64(i), float64(heads))
				r.Step()
			}
			t.Add(r.Int("throws"), heads)
			r.Require(scenario.Measurement{Promise: "share of heads", Value: float64(heads) / float64(r.Int("throws")), Bound: r.Float("bound"), Where: "a toy"})
			return nil
		},
	}
}

// sims runs the command over two toys.
func sims(args ...string) (stdout, stderr string, err error) {
	var out, failed bytes.Buffer
	a := &app{scenarios: []scenario.Scenario{toy("coin"), toy("token")}, stdout: &out, stderr: &failed}
	err = a.run(context.Background(), args)
	return out.String(), failed.String(), err
}

func TestTheSameSeedPrintsTheSameBytes(t *testing.T) {
	for _, format := range []string{"table", "json", "csv"} {
		a, _, err := sims("run", "all", "--quick", "--seed", "7", "-o", format)
		if err != nil {
			t.Fatal(err)
		}
		b, _, _ := sims("run", "all", "--quick", "--seed", "7", "-o", format)
		other, _, _ := sims("run", "all", "--quick", "--seed", "8", "-o", format)
		if a != b || a == other {
			t.Errorf("%s: equal seeds equal %v, other seeds equal %v", format, a == b, a == other)
		}
	}
}

func TestABrokenPromiseIsTheLastLineAndTheExitCode(t *testing.T) {
	out, _, err := sims("run", "all", "--set", "bound=0.1")
	var broken *brokenError
	if !errors.As(err, &broken) {
		t.Fatalf("%v", err)
	}
	lines := strings.Split(err.Error(), "\n")
	if last := lines[len(lines)-1]; len(lines) != 2 || !strings.HasPrefix(last, "does not hold: token: share of heads: 0.") || !strings.HasSuffix(last, "promised ≤ 0.1 (a toy)") {
		t.Errorf("%q", lines)
	}
	if !strings.Contains(out, "NO") {
		t.Error("the tables are not printed")
	}
}

func TestWhatIsNotKnownIsRefusedBeforeAnythingRuns(t *testing.T) {
	for says, args := range map[string][]string{
		"it has throws and bound": {"run", "coin", "--set", "colour=red"},
		"from 1 to 1000":          {"run", "coin", "--set", "throws=0"},
		"coin and token, or all":  {"run", "dice"},
		"table, json, csv":        {"run", "coin", "-o", "xml"},
		"requires at least 1":     {"run"},
		"write key=value":         {"compare", "coin", "throws", "throws=3"},
		"one scenario":            {"compare", "all", "throws=2", "throws=3"},
		"unknown command":         {"dice"},
		"unknown flag: --colour":  {"coin", "--colour", "red"},
		"no such file":            {"run", "token", "--set", "bound=0.95", "--update", "nothing"},
	} {
		out, _, err := sims(args...)
		if err == nil || !strings.Contains(err.Error(), says) || out != "" {
			t.Errorf("%v: %v, want %q in it; printed %q", args, err, says, out)
		}
	}
}

func TestListDescribesSettingsAndPromises(t *testing.T) {
	out, _, err := sims("list")
	if err != nil || !strings.Contains(out, "coin   Is the coin fair?") {
		t.Errorf("%s, %v", out, err)
	}
	out, _, err = sims("list", "coin")
	if err != nil || !strings.Contains(out, "a whole number from 1 to 1000") || !strings.Contains(out, "share of heads") || strings.Contains(out, "token") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestAScenarioIsACommandWithItsSettingsAsFlags(t *testing.T) {
	a, _, err := sims("coin", "--throws", "33", "--quick")
	if err != nil {
		t.Fatal(err)
	}
	if b, _, _ := sims("run", "coin", "--set", "throws=33", "--quick"); a != b || !strings.Contains(a, "throws=33") {
		t.Errorf("flags and --set differ:\n%s\n%s", a, b)
	}
}

// A setting of one scenario among several is written with its name.
func TestASettingCanBeOfOneScenarioOnly(t *testing.T) {
	out, _, err := sims("run", "all", "--set", "token.throws=44", "--set", "bound=0.95")
	if err != nil || strings.Count(out, "throws=44") != 1 || strings.Count(out, "bound=0.95") != 2 {
		t.Errorf("%s, %v", out, err)
	}
	if _, _, err := sims("run", "coin", "--set", "token.throws=44"); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("a scenario that does not run: %v", err)
	}
}

func TestCompareShowsBothSides(t *testing.T) {
	out, _, err := sims("compare", "coin", "throws=10", "throws=1000", "-o", "csv")
	if err != nil || !strings.Contains(out, `"heads, A","heads, B","heads, change (%)"`) || !strings.Contains(out, "A: share of heads") {
		t.Errorf("%s, %v", out, err)
	}
	_, _, err = sims("compare", "coin", "", "bound=0.1")
	if err == nil || !strings.Contains(err.Error(), "coin B: share of heads") {
		t.Errorf("%v", err)
	}
}

func TestReportAndPlotsAreWritten(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.html")
	if _, _, err := sims("report", "--quick", "--out", page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil || strings.Count(string(text), "<figure") != 2 || !strings.Contains(string(text), "About half.") {
		t.Errorf("%.300s, %v", text, err)
	}
	if out, _, err := sims("report", "coin", "--quick", "--out", "-"); err != nil || !strings.HasPrefix(out, "<!doctype html>") {
		t.Errorf("%.100s, %v", out, err)
	}
	// The page is there even when a promise is broken.
	if err := os.Remove(page); err != nil {
		t.Fatal(err)
	}
	if _, _, err := sims("report", "--set", "bound=0.1", "--out", page); err == nil {
		t.Error("a broken promise is no error")
	}
	if _, err := os.Stat(page); err != nil {
		t.Error(err)
	}
	if _, _, err := sims("run", "coin", "--quick", "--plots", dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"coin-heads.svg", "coin-heads.png"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPageIsUpdatedInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("a\n<!-- begin throws -->\n<!-- end throws -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := sims("run", "coin", "--quick", "--update", path)
	text, _ := os.ReadFile(path)
	if err != nil || out != "" || !strings.Contains(string(text), "| throws | heads |") {
		t.Errorf("%q, %s, %v", out, text, err)
	}
}

func TestWithoutATerminalNoProgressIsReported(t *testing.T) {
	if _, stderr, err := sims("run", "all"); err != nil || stderr != "" {
		t.Errorf("%q, %v", stderr, err)
	}
}

func TestTheBarShowsShareNameAndTimeLeft(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	a, b := toy("coin"), toy("token")
	a.Takes, b.Takes = 10*time.Second, 30*time.Second
	p := newProgress(&out, []scenario.Scenario{a, b}, false)
	p.w, p.now, p.began = &out, func() time.Time { return now }, now
	p.of(0)
	now = now.Add(5 * time.Second)
	p.of(1)(0.2)
	// 10 of 40 s are over, and 0.2 of the other 30: 16 of 40, in 5 s.
	if got, want := out.String(), "\r\x1b[K["+strings.Repeat("█", 12)+strings.Repeat("·", 18)+"]  40 %  token (2 of 2)  8s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.clear()
	if !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Error("the line stays")
	}
}

// The scenarios themselves: declared well, and no name is that of a command.
func TestTheScenariosAreDeclaredWell(t *testing.T) {
	seen := map[string]bool{"list": true, "run": true, "compare": true, "report": true, "plan": true, "from-bundle": true, "help": true, "completion": true}
	for _, s := range scenarios() {
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
		if seen[s.Name] {
			t.Errorf("%s is taken", s.Name)
		}
		seen[s.Name] = true
		if s.Takes == 0 || s.TakesQuick == 0 {
			t.Errorf("%s does not say how long it takes", s.Name)
		}
		for _, setting := range s.Settings {
			switch setting.Name {
			case "seed", "quick", "output", "plots", "help":
				t.Errorf("%s: the setting %s is a flag of every command", s.Name, setting.Name)
			}
		}
	}
}

func Example() {
	a := &app{scenarios: []scenario.Scenario{toy("coin")}, stdout: os.Stdout, stderr: os.Stderr}
	if err := a.run(context.Background(), []string{"list"}); err != nil {
		fmt.Println(err)
	}
	// Output: coin  Is the coin fair?
}
