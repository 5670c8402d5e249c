package report_test

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/ringway/ringway/sims/internal/report"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// result has everything that can be written, and one promise that is broken.
func result() *scenario.Result {
	t := &scenario.Table{
		Name: "cells", Title: "All <cells>", Note: "The second is empty.", Group: 1, Section: "cells",
		Columns: []scenario.Column{{Name: "R", Key: true}, {Name: "name", Key: true}, {Name: "p99", Unit: "ms", Digits: 1}},
	}
	t.Add(10, "a", 1.25)
	t.Add(10, "b", nil)
	t.Add(20, "a", 3.0)
	p := &scenario.Plot{Name: "curve", Title: "Curve", Conclusion: "It <rises>.", X: scenario.Axis{Label: "load", Unit: "%"}, Y: scenario.Axis{Label: "p99", Unit: "ms"}}
	p.Line("a").At(1, 1).At(2, 3)
	p.Event(1.5, "a fault")
	p.Reference(2, "a bound")
	return &scenario.Result{
		Scenario: "test", Asks: "Does it hold?", Seed: 7, Settings: []scenario.Value{{Name: "relays", Value: "10", Unit: "relays", Help: "how many"}},
		Tables: []*scenario.Table{t}, Plots: []*scenario.Plot{p},
		Verdicts: []scenario.Verdict{
			{Promise: scenario.Promise{Name: "fast", Relation: scenario.AtMost, Unit: "ms"}, Value: 12.5, Bound: 10, Where: "R = 10", Checks: 2},
			{Promise: scenario.Promise{Name: "sound", Relation: scenario.AtLeast}, Value: math.NaN(), Bound: 1, Checks: 1},
			{Promise: scenario.Promise{Name: "late"}, Skipped: "no time"},
		},
	}
}

func written(t *testing.T, format string) string {
	t.Helper()
	var out bytes.Buffer
	if err := report.Write(&out, format, []*scenario.Result{result()}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTextShowsGroupsUnitsNotesAndVerdicts(t *testing.T) {
	text := written(t, "table")
	for _, want := range []string{
		"test: Does it hold?", "seed 7  relays=10", "All <cells>", "R = 10", "R = 20", "name  p99 (ms)", "a     1.2", "→ The second is empty.",
		"≤ 10 ms  12.5 ms  NO", "not checked",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

func TestCSVHasOneBlockForEachTable(t *testing.T) {
	want := "# test/cells\nR,name,p99 (ms)\n10,a,1.2\n10,b,\n20,a,3.0\n\n# test/promises\npromise,bound,value,holds,worst case\nfast,≤ 10 ms,12.5 ms,NO,R = 10\nsound,≥ 1,NaN,NO,\nlate,,,not checked,no time\n"
	if got := written(t, "csv"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestJSONHasNumbersAsTheyArePrintedAndNullForNone(t *testing.T) {
	var got struct {
		Results []struct {
			Holds    bool
			Promises []struct {
				Name         string
				Value, Bound *float64
				Holds        bool
			}
			Tables []struct{ Rows [][]any }
			Plots  []struct {
				Series []struct{ Points [][2]float64 }
			}
		}
	}
	if err := json.Unmarshal([]byte(written(t, "json")), &got); err != nil {
		t.Fatal(err)
	}
	r := got.Results[0]
	if r.Holds || r.Promises[0].Holds || *r.Promises[0].Value != 12.5 || r.Promises[1].Value != nil || r.Promises[1].Holds || !r.Promises[2].Holds {
		t.Errorf("%+v", r.Promises)
	}
	if rows := r.Tables[0].Rows; rows[0][2] != 1.2 || rows[1][2] != nil || rows[0][0] != 10.0 {
		t.Errorf("%v", rows)
	}
	if len(r.Plots[0].Series[0].Points) != 2 {
		t.Errorf("%+v", r.Plots)
	}
	// Lines that explain a picture are no results.
	if text := written(t, "json"); strings.Contains(text, "a fault") || strings.Contains(text, "a bound") {
		t.Error("the results have the events of pictures")
	}
}

func TestAnUnknownFormatIsRefused(t *testing.T) {
	if err := report.Write(&bytes.Buffer{}, "xml", nil); err == nil || !strings.Contains(err.Error(), "table, json, csv") {
		t.Errorf("%v", err)
	}
}

func TestThePageNeedsNothingButItself(t *testing.T) {
	var out bytes.Buffer
	if err := report.HTML(&out, []*scenario.Result{result()}); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	for _, want := range []string{
		"<svg role=", "<figcaption>It &lt;rises&gt;.</figcaption>", ">a fault<", ">a bound<", "All &lt;cells&gt;", "prefers-color-scheme: dark", "2 of 2 promises do not hold",
		"test: fast: 12.5 ms, promised ≤ 10 ms (R = 10)", `<td class="bad">NO</td>`, "Seed 7",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if found := regexp.MustCompile(`(?i)(https?:|<script|<link [^>]*stylesheet|@import|url\()`).FindString(page); found != "" {
		t.Errorf("it refers to something else: %s", found)
	}
	var again bytes.Buffer
	if err := report.HTML(&again, []*scenario.Result{result()}); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Errorf("two pages of one result differ: %v", err)
	}
}

func TestOnlyTheMarkedPartOfAPageChanges(t *testing.T) {
	page := "a\n<!-- begin cells -->\nold\n<!-- end cells -->\nb\n"
	got, err := report.UpdatePage(page, []*scenario.Result{result()})
	want := "a\n<!-- begin cells -->\n\n**R = 10**\n\n| name | p99 (ms) |\n|---|---|\n| a | 1.2 |\n| b |  |\n\n**R = 20**\n\n| name | p99 (ms) |\n|---|---|\n| a | 3.0 |\n<!-- end cells -->\nb\n"
	if err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if again, err := report.UpdatePage(got, []*scenario.Result{result()}); err != nil || again != got {
		t.Errorf("a second time it is another page: %v", err)
	}
	if _, err := report.UpdatePage("no markers", []*scenario.Result{result()}); err == nil || !strings.Contains(err.Error(), "begin cells") {
		t.Errorf("a page without markers: %v", err)
	}
	plain := result()
	plain.Tables[0].Section = ""
	if _, err := report.UpdatePage(page, []*scenario.Result{plain}); err == nil {
		t.Error("results without a section are no error")
	}
}
