package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const page = "../../docs/concepts/affinity.md"

// The tables at rest are cheap to compute; those of churn take a minute.
func TestThePageShowsWhatTheProgramMeasures(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := balance(&r, sizes); err != nil {
		t.Fatal(err)
	}
	if len(r.violations) > 0 {
		t.Errorf("does not hold: %q", r.violations)
	}
	fresh, err := replaceSection(string(text), "balance", r.String())
	if err != nil {
		t.Fatal(err)
	}
	if fresh != string(text) {
		t.Errorf("%s is stale: run make bench-affinity, or go run ./sims/affinity --update docs/concepts/affinity.md", page)
	}
}

func TestSlotsMoveFewConnectionsWhenRelaysComeAndGo(t *testing.T) {
	for _, s := range []size{{50, 1000, 3}, {300, 10000, 3}} {
		for _, e := range events[2:] {
			i := slices.IndexFunc(strategies, func(st strategy) bool { return st.name == "projection, slot" })
			got, err := movedBy(e, strategies[i], s)
			if err != nil {
				t.Fatal(err)
			}
			var r report
			checkChurn(&r, s, strategies[i], e, got)
			if len(r.violations) > 0 || got.n != trials {
				t.Errorf("%d trials, %q", got.n, r.violations)
			}
		}
	}
}

func TestRendezvousMovesTheLeastPossible(t *testing.T) {
	i := slices.IndexFunc(strategies, func(st strategy) bool { return st.name == "rendezvous" })
	s := size{50, 1000, 3}
	for _, e := range events {
		got, err := movedBy(e, strategies[i], s)
		if err != nil {
			t.Fatal(err)
		}
		var r report
		if checkChurn(&r, s, strategies[i], e, got); len(r.violations) > 0 {
			t.Errorf("%s: %q", e.name, r.violations)
		}
	}
}

func TestWhatDoesNotHoldIsNamed(t *testing.T) {
	s, slot := size{50, 1000, 3}, strategies[1]
	good := figures{perWorker: span{3, 3}, perRelay: span{60, 60}, peak: 1, connections: 3000}
	for _, c := range []struct {
		spoil func(*figures)
		says  string
	}{
		{func(*figures) {}, ""},
		{func(f *figures) { f.perWorker.min = 2 }, "fewer than m"},
		{func(f *figures) { f.perWorker.max = 4 }, "more than m"},
		{func(f *figures) { f.perRelay.min = 2 }, "fewer than p"},
		{func(f *figures) { f.peak = 1.001 }, "load of a worker"},
		{func(f *figures) { f.connections = 3001 }, "3001 connections"},
	} {
		f := good
		c.spoil(&f)
		var r report
		checkBalance(&r, s, slot, f)
		if got := strings.Join(r.violations, "\n"); got == "" != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%+v: %q, want %q", f, got, c.says)
		}
	}
	var r report
	checkChurn(&r, s, slot, events[3], moves{sum: 158 * trials, n: trials})
	if len(r.violations) != 1 || !strings.Contains(r.violations[0], "1.3 times") {
		t.Errorf("158 connections moved, bound 120: %q", r.violations)
	}
}

func TestOnlyTheMarkedPartOfAPageChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	before := "a\n<!-- begin balance -->\nold\n<!-- end balance -->\nb\n"
	got, err := replaceSection(before, "balance", "new\n")
	if want := "a\n<!-- begin balance -->\nnew\n<!-- end balance -->\nb\n"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if err := os.WriteFile(path, []byte("no markers"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(false, path, "balance"); err == nil || !strings.Contains(err.Error(), "begin balance") {
		t.Errorf("a page without markers: %v", err)
	}
	if err := run(false, "", "nothing"); err == nil {
		t.Error("an unknown section is no error")
	}
}
