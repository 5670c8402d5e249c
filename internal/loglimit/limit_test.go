package loglimit

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAFloodIsTenLinesAndOneWithTheNumberOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&out, nil)))
		lines := func() []string {
			l.mu.Lock() // also the limiter's timer writes
			defer l.mu.Unlock()
			defer out.Reset()
			return strings.Split(strings.TrimSpace(out.String()), "\n")
		}
		for n := range 200 {
			l.Log(slog.LevelInfo, "member joined", "member", fmt.Sprint("w", n))
		}
		l.Log(slog.LevelWarn, "member failed", "member", "w0")
		l.Log(slog.LevelDebug, "not shown")
		if got := lines(); len(got) != 10 || !strings.Contains(got[9], "member=w9") {
			t.Fatalf("%d lines in the first second: %q", len(got), got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		got := lines()
		if len(got) != 2 || !strings.Contains(got[0], `level=INFO msg="member joined: more of them in this second" count=190`) ||
			!strings.Contains(got[1], `level=WARN msg="member failed" member=w0`) {
			t.Fatalf("behind the first second: %q", got)
		}
		l.Log(slog.LevelInfo, "member joined", "member", "late")
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "member=late") {
			t.Fatalf("in the next second: %q", got)
		}
		for range 11 {
			l.Log(slog.LevelInfo, "member left")
		}
		lines()
		l.Stop()
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "count=2") {
			t.Fatalf("at the stop: %q", got)
		}
		l.Log(slog.LevelInfo, "member left")
		if out.Len() > 0 {
			t.Fatalf("behind the stop: %q", &out)
		}
	})
}

func TestMembersThatVanishTogetherAreOneLineAfterTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := New(slog.New(slog.NewTextHandler(&out, nil)))
		written := func() string {
			l.mu.Lock() // also the limiter's timer writes
			defer l.mu.Unlock()
			defer out.Reset()
			return out.String()
		}
		failed := func(id string) { l.Gather(slog.LevelWarn, "member failed", id, "member", id) }
		for i := range 31 { // detection takes a moment for each
			failed(fmt.Sprintf("w%d", i))
			time.Sleep(300 * time.Millisecond)
		}
		if got := written(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `msg="member failed" member=w0`) {
			t.Errorf("the first is not written immediately: %s", got)
		}
		time.Sleep(window)
		synctest.Wait()
		if got := written(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `count=30 subjects="w1 w2 w3 w4 w5 w6 w7 w8 and 22 more"`) {
			t.Errorf("30 members: %s", got)
		}
		time.Sleep(quiet)
		failed("x1")
		failed("x2")
		l.Stop() // it writes what is held
		if got := written(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `msg="member failed" member=x2`) {
			t.Errorf("two members after a rest: %s", got)
		}
	})
}
