package membership

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// Every file in testdata is the history of a cluster; the language is described
// in scenario_grammar_test.go. Real nodes play it, on unmodified memberlist, under
// a virtual clock.
func TestEveryHistoryEndsAsItPromises(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	// Under the race detector these take half of the time of all; without it they are short.
	slow := []string{"clock_ahead_signed", "crash_loop", "keys_rotated_without_a_relay", "keys_rotated_without_a_worker", "strangers_with_certificates"}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if raceEnabled && slices.Contains(slow, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play(t, file, string(text))
		})
	}
}

// What members promise they promise with certificates as well, where every packet
// is signed. Under the race detector a few short ones are played, in which members come,
// go and vanish; without it, all.
func TestEveryHistoryEndsTheSameWithCertificates(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	raced := []string{"blackhole_and_back", "restart_new_address", "rolling_restart"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		switch name := strings.TrimSuffix(filepath.Base(file), ".txt"); {
		case strings.Contains("\n"+string(text), "\nsecure with"): // it says itself how
		case name == "clock_ahead": // clock_ahead_signed ends otherwise, and says why
		case raceEnabled && !slices.Contains(raced, name):
		default:
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				play(t, file, "secure with keys and certificates\n"+string(text))
			})
		}
	}
}

func TestManySimultaneousJoinsConvergeThroughThreeSeeds(t *testing.T) { storm(t, "") }

func TestManySimultaneousJoinsConvergeWithCertificates(t *testing.T) {
	storm(t, "secure with keys and certificates")
}

// 200 members with LONG_TESTS, 50 without: 200 take minutes.
func storm(t *testing.T, secured string) {
	t.Parallel()
	workers := 47
	switch {
	case raceEnabled:
		workers = 27
	case os.Getenv("LONG_TESTS") != "":
		workers = 197
	}
	play(t, "storm", fmt.Sprintf(`
		%s
		join 3 relays through r1
		join %d workers through r1, r2, r3 in 2s
		expect agreement within 60s
		wait 30s
		expect agreement
		expect no false deaths
	`, secured, workers))
}

// play runs one history in a bubble of its own.
func play(t *testing.T, file, text string) {
	t.Helper()
	history, err := parseHistory(file, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var server *nameServer
	if strings.Contains(text, "\ndns ") {
		server = startNameServer(t) // real, so outside of the bubble
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(1)
		c.names = server
		defer c.close()
		for _, s := range history {
			c.logf("──── %s: %s", s.where, s.text)
			if err := s.do(c); err != nil {
				t.Errorf("%s: %s: %v\n%s", s.where, s.text, err, c.tail(60))
				return
			}
			c.mu.Lock()
			broken := c.broken
			c.mu.Unlock()
			if len(broken) > 0 {
				t.Errorf("%s: while %q ran:\n  %s\n%s", s.where, s.text, strings.Join(broken, "\n  "), c.tail(60))
				return
			}
		}
		t.Logf("%v virtual; %d false deaths excused; %v", c.elapsed(), len(c.deaths), c.network.Counters())
	})
}

func TestAWrongHistoryIsRefusedWithFileAndLine(t *testing.T) {
	_, err := parseHistory("h.txt", strings.NewReader("join 1 relay\nwiat 3s\n\nwait soon\nexpect happiness within 3s\nloss 101%\n"))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`h.txt:2: "wiat 3s": unknown statement "wiat"`,
		`h.txt:4: "wait soon": not a form of "wait"`,
		`h.txt:5: "expect happiness within 3s": unknown expectation "happiness"`,
		`h.txt:6: "loss 101%": loss 101%: allowed are 0 to 100`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %s in:\n%v", want, err)
		}
	}
}
