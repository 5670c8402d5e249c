package main

import (
	"strings"
	"testing"
)

func TestFlagsChooseWhatRuns(t *testing.T) {
	var out, errs strings.Builder
	args := []string{"--topologies", "5x20", "--policies", "random", "--seeds", "1", "--subject", "random", "--format", "csv", "--check"}
	err := run(args, &out, &errs)
	if err == nil || !strings.HasPrefix(err.Error(), "random does not hold: geometric mean of p99") {
		t.Errorf("random holds what is promised of ours: %v", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the verdict is not one line: %v", err)
	}
	// 25 cells of two policies, and the head.
	if lines := strings.Count(out.String(), "\n"); lines != 51 || strings.Contains(out.String(), "ringway") {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
	if errs.Len() > 0 {
		t.Errorf("progress without a terminal: %s", errs.String())
	}
}

func TestRangesMayBeRendezvous(t *testing.T) {
	grid, err := gridOf("20x200", "ringway", "rendezvous", 0)
	if err != nil || !grid.Cells[0].Topology.Rendezvous || grid.Cells[0].Seeds != 3 || len(grid.Policies) != 2 {
		t.Errorf("%v, %+v", err, grid)
	}
}

func TestTheDefaultIsEverything(t *testing.T) {
	grid, err := gridOf("all", "all", "balanced", 0)
	if err != nil || len(grid.Cells) != 3*25+2 || len(grid.Policies) != 9 {
		t.Errorf("%v, %d cells, %d policies", err, len(grid.Cells), len(grid.Policies))
	}
}

func TestUnknownSettingsAreNamed(t *testing.T) {
	for want, args := range map[string][]string{
		`--format "xml"`:                         {"--format", "xml"},
		`--topologies: there is no "1x1"`:        {"--topologies", "5x20,1x1"},
		`--policies: there is no "best"`:         {"--policies", "ringway,best"},
		`--ranges "round"`:                       {"--ranges", "round"},
		`--seeds -1`:                             {"--seeds", "-1"},
		`--subject "random" is not among`:        {"--policies", "ringway", "--subject", "random"},
		"flag provided but not defined: -sudden": {"--sudden"},
	} {
		var out, errs strings.Builder
		if err := run(args, &out, &errs); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
