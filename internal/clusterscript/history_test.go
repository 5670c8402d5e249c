package clusterscript

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type nothing struct{}

// noted are forms that note their arguments.
func noted(out *[]string) []Form {
	note := func(a Args) error { *out = append(*out, strings.Join(a, "|")); return nil }
	return []Form{
		{"move NAMES[ far][ every DURATION]", note},
		{"split SIDES", note},
		{"add JOINERS[ through NAMES]", note},
		{"lose PERCENT of COUNT, fails TEXT", note},
	}
}

func TestAStatementGivesItsArgumentsInTheOrderOfItsForm(t *testing.T) {
	h, err := Read("dir/h.txt", `
		seeds 3 4   # a comment
		sizes 5 50
		move r1, w3..wN, 1/3 of workers far every 1m30s
		move all
		split  r1, 2 of workers |   others
		add 3 relays, 1 gate, N workers through r1..r3
		lose 100% of 7, fails "he said "no""
	`)
	if err != nil || h.Name != "h" || !slices.Equal(h.Seeds, []uint64{3, 4}) || !slices.Equal(h.Sizes, []int{5, 50}) || !slices.Equal(h.Raced, []int{5}) {
		t.Fatalf("%+v, %v", h, err)
	}
	var got []string
	steps, err := h.Steps(50, noted(&got))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		_ = s.Do()
	}
	want := []string{
		"r1, w3..w50, 1/3 of workers| far|1m30s", "all||",
		"r1, 2 of workers | others",
		"3 relays, 1 gate, 50 workers|r1..r3",
		`100|7|he said "no"`,
	}
	if !slices.Equal(got, want) || steps[2].Where != "dir/h.txt:6" {
		t.Errorf("%s: got  %q\nwant %q", steps[2].Where, got, want)
	}
	if h.Has("move") != true || h.Has("mov") || len(h.After("move all").lines) != 6 || len(h.lines) != 5 {
		t.Errorf("has %v", h.lines)
	}
}

func TestEveryWrongLineIsReportedWithFileAndLine(t *testing.T) {
	for text, want := range map[string]string{
		"sizes five":                      `h.txt:1: "sizes five": strconv.ParseUint: parsing "five": invalid syntax`,
		"\nseeds":                         `h.txt:2: "seeds": it names no number`,
		"raced 5 none":                    `h.txt:1: "raced 5 none"`,
		"wiat 3s":                         `h.txt:1: "wiat 3s": unknown statement "wiat"`,
		"# fine\n\nwait soon":             "h.txt:3: \"wait soon\": no form of \"wait\"; its forms are\n\twait DURATION",
		"loss 101%":                       "loss PERCENT",
		"join N workers":                  `no sizes are given for N`,
		"join 0 workers":                  "join JOINERS[ through NAMES][ in DURATION]",
		"kill r1,w2":                      "kill NAMES",
		"wait -3s":                        "wait DURATION",
		"expect bliss within 3s":          "expect agreement[ within DURATION]",
		"partition r1":                    "partition SIDES",
		"wait soon\nheal\nloss\nkill r1.": "h.txt:4",
	} {
		h, err := Read("h.txt", text)
		_, wrong := h.Steps(0, (*Cluster[nothing])(nil).Forms())
		if err = errors.Join(err, wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestADirectoryWithoutHistoriesIsAnError(t *testing.T) {
	if _, err := Files(t.TempDir()); err == nil {
		t.Error("no error")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "heal", "b.txt": "seeds none"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := Files(dir); len(all) != 2 || err == nil || !strings.Contains(err.Error(), "b.txt:1") {
		t.Errorf("%d, %v", len(all), err)
	}
}

func inBubble(t *testing.T, run func(*Cluster[nothing])) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		c := NewCluster[nothing](1)
		defer c.Close()
		run(c)
	})
}

// play is nil where all statements hold.
func play(c *Cluster[nothing], text string) error {
	h, err := Read("h.txt", text)
	if err != nil {
		return err
	}
	return c.Play(h, 0, c.Forms())
}

func TestSharedStatementsHaveTheirEffects(t *testing.T) {
	inBubble(t, func(c *Cluster[nothing]) {
		if err := play(c, `
			join 2 relays, 1 gate, 3 workers through r1 in 6s
			join stranger from away/test through r1
			expect agreement within 10s
			loss 20%
			latency 20ms jitter 10ms
			restart w1, r2 at new addresses every 1s
			crash 1 of workers 3 times every 2s
			loss 0%
			expect agreement within 2m
			partition r1, w1 | others
			wait 2m
			heal
			block r1 -> w2
			blackhole w3
			heal
			expect agreement within 10m
			leave w1
			kill w2, g1
			expect agreement within 2m
			start dead
			expect agreement within 1m
		`); err != nil {
			t.Fatal(err)
		}
		for list, want := range map[string]string{
			"all": "r1 r2 g1 w1 w2 w3", "relays": "r1 r2", "workers": "w1 w2 w3", "w1..w3, x1": "w1 w2 w3 x1", "r1, others": "r1 r2 g1 w1 w2 w3", "dead": "", "": "",
		} {
			if all, err := c.Resolve(list); err != nil || strings.Join(Names(all), " ") != want {
				t.Errorf("%q is %v, %v", list, Names(all), err)
			}
		}
		for list, want := range map[string]int{"2 of workers": 2, "9 of workers": 3, "1/3 of workers": 1, "2/3 of workers": 2, "w1, 9 of workers": 3} {
			if all, err := c.Resolve(list); err != nil || len(all) != want {
				t.Errorf("%q is %v, %v", list, Names(all), err)
			}
		}
		for _, list := range []string{"w4", "w2..w1", "w1..r2"} {
			if all, err := c.Resolve(list); err == nil {
				t.Errorf("%q is %v", list, Names(all))
			}
		}
	})
}

func TestAHistoryFailsAtTheStatementThatDoesNotHold(t *testing.T) {
	inBubble(t, func(c *Cluster[nothing]) {
		began := time.Now()
		err := play(c, "join 2 relays through r1\nwait 5s\nkill r2\nexpect agreement within 1s\nwait 24h")
		if err == nil || !strings.Contains(err.Error(), "h.txt:4: expect agreement within 1s: r1 sees 2 of 1") || time.Since(began) > time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		h, _ := Read("h.txt", "expect agreement\nwait 1s")
		if err := c.Refute(h, append(c.Forms(), Expect("bliss", nil))); err == nil || err.Error() != "h.txt:2: wait 1s: it holds\n\"expect bliss[ within DURATION]\" is not tried" {
			t.Errorf("refuted: %v", err)
		}
		c.Started = func(*Process[nothing]) error {
			c.Lock()
			defer c.Unlock()
			c.Breach("it started")
			return nil
		}
		if err := play(c, "start r2\nwait 1s"); err == nil || !strings.Contains(err.Error(), `h.txt:1: while "start r2" ran:`) || !strings.Contains(err.Error(), "it started") {
			t.Errorf("a breach: %v", err)
		}
	})
}

func FuzzRead(f *testing.F) {
	for _, files := range []string{"../../membership/testdata/*.txt", "../../advertise/testdata/*.txt"} {
		names, err := filepath.Glob(files)
		if err != nil || len(names) == 0 {
			f.Fatal(names, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text), 5)
		}
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		h, err := Read("h.txt", text)
		if err != nil && !strings.HasPrefix(err.Error(), "h.txt:") {
			t.Fatalf("no line: %v", err)
		}
		forms := (*Cluster[nothing])(nil).Forms()
		for i := range forms {
			forms[i].Do = func(a Args) error {
				for i := range a {
					if d, err := time.ParseDuration(a[i]); err != nil && a.Duration(i) != 0 || d < 0 {
						t.Fatalf("%q is %v, %v", a[i], d, err)
					}
				}
				return nil
			}
		}
		steps, err := h.Steps(size, forms)
		if wrong, both := err.(interface{ Unwrap() []error }); both && len(steps)+len(wrong.Unwrap()) != len(h.lines) || !both && len(steps) != len(h.lines) {
			t.Fatalf("%d steps of %d lines: %v", len(steps), len(h.lines), err)
		}
		for _, s := range steps {
			_ = s.Do()
		}
	})
}

// Two processors crash the race detector in a bubble: see oneProcessor of memnet.
func TestUnderTheRaceDetectorMembersRunOnOneProcessor(t *testing.T) {
	inBubble(t, func(*Cluster[nothing]) {})
	if n := runtime.GOMAXPROCS(0); Raced && n != 1 {
		t.Errorf("members run on %d processors", n)
	}
}
