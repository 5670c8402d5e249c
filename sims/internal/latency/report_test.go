package latency

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ringway/ringway/sims/internal/queueing"
)

func sampleReport() *Report {
	row := func(policy, scenario string, compared bool, ratio float64) Row {
		return Row{Topology: Small, Load: 0.5, Scenario: scenario, Compared: compared, Policy: policy, Runs: 2, Requests: 10,
			P50: 1, P99: 2, P999: 3, P50Ratio: ratio, P99Ratio: ratio, P999Ratio: ratio, VictimMean: 0.25, ErrorShare: 0.125, Evictions: 7}
	}
	return &Report{Subject: "b", Properties: []Property{{Name: "thing", Value: 2, Bound: 1, Where: "there"}, {Name: "other", Value: 2, Bound: 1, AtLeast: true}},
		Rows: []Row{
			row("a", "equal", true, 1), row("b", "equal", true, 2),
			row("a", "hetero", true, 1), row("b", "hetero", true, 8),
			row("a", "recovery", false, 1), row("b", "recovery", false, 1.5),
		}}
}

func TestTablesHaveALinePerCellAndAColumnPerPolicy(t *testing.T) {
	var out strings.Builder
	if err := sampleReport().Write(&out, "markdown"); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| policy | 5 × 20, range 20, 50 % | all |\n|---|---|---|\n| a | 1.00 / 1.00 / 1.00 |",
		"| b | 4.00 / 4.00 / 4.00 | 4.00 / 4.00 / 4.00 |", // the geometric mean of 2 and 8
		"| cell | a | b |\n|---|---|---|\n| 5 × 20, range 20, 50 %, equal | 1.00 | 2.00 |\n| 5 × 20, range 20, 50 %, hetero | 1.00 | 8.00 |\n",
		"| 5 × 20, range 20, 50 %, recovery | 0.250 | 0.250 |",
		"| 5 × 20, range 20, 50 %, recovery | 1.00, 12.50 (7) | 1.50, 12.50 (7) |",
		"| thing | ≤ 1 | 2 | NO | there |\n| other | ≥ 1 | 2 | yes |  |",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
	var text strings.Builder
	if err := sampleReport().Write(&text, "table"); err != nil || strings.Contains(text.String(), "|") || !strings.Contains(text.String(), "NO") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestMachinesCanReadTheReport(t *testing.T) {
	var out strings.Builder
	if err := sampleReport().Write(&out, "json"); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || len(back.Rows) != 6 || back.Rows[3] != sampleReport().Rows[3] || back.Properties[1] != sampleReport().Properties[1] {
		t.Errorf("%v, read back %+v", err, back)
	}
	out.Reset()
	if err := sampleReport().Write(&out, "csv"); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil || len(lines) != 7 || lines[4][6] != "b" || lines[4][10] != "2" || lines[4][13] != "8" {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestAnUnknownFormatIsRefused(t *testing.T) {
	if err := sampleReport().Write(&strings.Builder{}, "xml"); err == nil || !strings.Contains(err.Error(), "table, markdown, json, csv") {
		t.Error(err)
	}
}

func TestSmallTopologiesGetMoreSeeds(t *testing.T) {
	for want, topology := range map[int]queueing.Topology{10: Small, 3: Medium, 1: Large} {
		if got := Seeds(topology); got != want {
			t.Errorf("%v: %d seeds, want %d", topology, got, want)
		}
	}
}
