package process_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/ringway/ringway/internal/process"
)

func logger(t *testing.T, level, format string) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	l, err := process.NewLogger(&out, level, format)
	if err != nil {
		t.Fatal(err)
	}
	return l, &out
}

func TestJSONLinesCarryLevelTimeMessageAndAttributes(t *testing.T) {
	for _, format := range []string{"json", "auto"} { // a buffer is no terminal
		l, out := logger(t, "debug", format)
		l.Warn("peer lost", "peer", "relay-7", "after", 1500*time.Millisecond, "n", 3, "err", errors.New("refused"))
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v in %q", format, err, out)
		}
		at, _ := got["time"].(string)
		if _, err := time.Parse("2006-01-02T15:04:05.000Z", at); err != nil {
			t.Errorf("time %q is not UTC with milliseconds: %v", at, err)
		}
		for key, want := range map[string]any{
			"level": "warn", "message": "peer lost", "peer": "relay-7", "after": "1.5s", "n": 3.0, "err": "refused",
		} {
			if got[key] != want {
				t.Errorf("%s: %s is %v, want %v", format, key, got[key], want)
			}
		}
	}
}

// Names and reasons of other members are in the log.
func TestTextForPeopleHasNoControlCharactersOfOthers(t *testing.T) {
	const evil = "w1\x1b[2J\u009b2K\x07\u202e\nrelay started"
	l, out := logger(t, "info", "text")
	l.Info("refused "+evil, "member", evil, evil, "name of an attribute", "list", []string{evil, "w2"}, "err", errors.New(evil), "map", map[string]string{evil: evil})
	for _, r := range strings.TrimSuffix(out.String(), "\n") {
		if !unicode.IsPrint(r) {
			t.Errorf("%q in %q", r, out)
		}
	}
	if !strings.Contains(out.String(), `w1\x1b[2J`) || !strings.Contains(out.String(), "w2") {
		t.Errorf("what was logged is not there: %q", out)
	}
	l, out = logger(t, "info", "text")
	l.Info("größer als vorher — 3 µs", "member", "wörk")
	if !strings.Contains(out.String(), "größer als vorher — 3 µs") || strings.Contains(out.String(), `\u`) {
		t.Errorf("letters are escaped: %q", out)
	}
}

func TestAGroupPrefixesOnlyWhatIsAddedAfterIt(t *testing.T) {
	l, out := logger(t, "info", "json")
	l.With("a", 1).WithGroup("g").With("b", 2).WithGroup("").Info("x", "c", 3, slog.Group("h", "d", 4), slog.Group("", "e", 5))
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]float64{"a": 1, "g.b": 2, "g.c": 3, "g.h.d": 4, "g.e": 5} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v in %s", key, got[key], want, out)
		}
	}
}

func TestRecordsBelowTheLevelAreDropped(t *testing.T) {
	all := process.LogLevels()
	for i, level := range all {
		l, out := logger(t, level, "json")
		l.Debug("debug")
		l.Info("info")
		l.Warn("warn")
		l.Error("error")
		if got := strings.Count(out.String(), "\n"); got != len(all)-i {
			t.Errorf("%s: %d lines, want %d:\n%s", level, got, len(all)-i, out)
		}
	}
}

func TestConsoleIsTextWithoutColoursOffATerminal(t *testing.T) {
	for _, format := range []string{"console", "text"} {
		l, out := logger(t, "info", format)
		l.Info("listening", "addr", ":7410")
		if got := out.String(); !strings.Contains(got, " INF listening addr=:7410\n") || strings.Contains(got, "\x1b") || strings.Contains(got, "<nil>") {
			t.Errorf("%s: got %q", format, got)
		}
	}
}

func TestUnknownLevelsAndFormatsAreRefusedWithWhatIsAllowed(t *testing.T) {
	for _, test := range []struct{ level, format, want string }{
		{"loud", "json", `log level "loud" is unknown; allowed: debug, info, warn, error`},
		{"", "json", `log level "" is unknown`},
		{"info", "xml", `log format "xml" is unknown; allowed: auto, json, console, text`},
	} {
		if _, err := process.NewLogger(&bytes.Buffer{}, test.level, test.format); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
	for _, format := range process.LogFormats() {
		if _, err := process.NewLogger(&bytes.Buffer{}, "info", format); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}

func TestLinesOfManyGoroutinesAreNotMixed(t *testing.T) {
	l, out := logger(t, "info", "json")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				l.With("k", "v").Info("x", "long", strings.Repeat("y", 200))
			}
		})
	}
	wg.Wait()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 400 {
		t.Fatalf("%d lines, want 400", len(lines))
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Fatalf("not JSON: %q", line)
		}
	}
}
