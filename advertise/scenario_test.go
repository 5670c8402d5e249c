package advertise

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// Every file in testdata is the history of a fleet; the language is described in
// scenario_grammar_test.go. Real members on unmodified memberlist play it, under a
// virtual clock.
func TestEveryHistoryKeepsThePromisesOfTheCatalogue(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	long := os.Getenv("LONG_TESTS") != ""
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		history, err := parseScenario(file, strings.NewReader(string(text)))
		if err != nil {
			t.Error(err)
			continue
		}
		for i, size := range history.sizes {
			if raceEnabled && !slices.Contains(history.raced, size) || size > 100 && !long { // minutes
				continue
			}
			for j, seed := range history.seeds {
				// Several seeds of the smallest size, and only where that takes long enough.
				if j > 0 && (i > 0 || !long) {
					break
				}
				t.Run(fmt.Sprintf("%s/N=%d/seed=%d", name, size, seed), func(t *testing.T) {
					t.Parallel()
					play(t, history, size, seed)
				})
			}
		}
	}
}

// play runs one history in a bubble of its own.
func play(t *testing.T, history *scenario, size int, seed uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newCluster(t, seed)
		defer f.close()
		for _, s := range history.statements {
			do, err := s.of(size)
			if err != nil {
				t.Fatal(err)
			}
			f.logf("──── %s: %s", s.where, s.text)
			if err := do(f); err != nil {
				t.Errorf("%s: %s: %v\n%s", s.where, s.text, err, f.tail(60))
				return
			}
			f.mu.Lock()
			broken := f.broken
			f.mu.Unlock()
			if len(broken) > 0 {
				t.Errorf("%s: while %q ran:\n  %s\n%s", s.where, s.text, strings.Join(broken, "\n  "), f.tail(60))
				return
			}
		}
		t.Logf("%d views checked; %v", f.views, f.network.Counters())
	})
}

func TestAWrongHistoryIsRefusedWithFileAndLine(t *testing.T) {
	_, err := parseScenario("h.txt", strings.NewReader("sizes five\nwiat 3s\n\nwait soon\nexpect happiness within 3s\nloss 101%\n"))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`h.txt:2: "wiat 3s": unknown statement`,
		`h.txt:4: "wait soon": unknown statement`,
		`h.txt:5: "expect happiness within 3s": unknown expectation "happiness"`,
		`h.txt:6: "loss 101%": loss 101%: allowed are 0 to 100`,
		`h.txt:1: "sizes five"`,
		`h.txt: seeds or sizes are missing`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %s in:\n%v", want, err)
		}
	}
}
