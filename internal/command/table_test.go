package command

import (
	"strings"
	"testing"
	"time"
)

func TestATableAlignsColumnsAndNumbers(t *testing.T) {
	tab := newTable(false, "NAME", ">N", "LAST")
	tab.add("a", "1", "x")
	tab.add("longer", "1000", "")
	tab.add("größe", "20", cell{"z", bad})
	var b strings.Builder
	if err := tab.writeTo(&b); err != nil {
		t.Fatal(err)
	}
	want := "NAME       N  LAST\n" +
		"a          1  x\n" +
		"longer  1000  -\n" +
		"größe     20  z\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestColoursTakeNoRoomAndAreOnlyThereWhenAsked(t *testing.T) {
	text := func(colour bool) string {
		tab := newTable(colour, "STATE", "NEXT")
		tab.add(stateCell("alive"), "n")
		tab.add(stateCell("failed"), "n")
		var b strings.Builder
		if err := tab.writeTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	coloured := text(true)
	if !strings.Contains(coloured, string(good)+"alive"+reset+"   n") || !strings.Contains(coloured, string(bad)+"failed"+reset+"  n") {
		t.Errorf("got %q", coloured)
	}
	if without := text(false); strings.Contains(without, "\x1b") || without != strings.NewReplacer(string(good), "", string(bad), "", string(bold), "", reset, "").Replace(coloured) {
		t.Errorf("got %q", without)
	}
}

func TestNothingButATerminalIsColoured(t *testing.T) {
	if coloured(&strings.Builder{}) {
		t.Error("a buffer is coloured")
	}
}

func TestUnitsAreHuman(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 9999: "9999", 10_000: "10.0k", 999_949: "999.9k", 999_950: "1.0M", 1_234_567: "1.2M", 5_000_000_000: "5.0G", 7e15: "7000.0T"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s", time.Hour: "1h", 26*time.Hour + 30*time.Minute: "1d2h", 49 * time.Hour: "2d1h", 48*time.Hour + time.Second: "2d"} {
		if got := age(d); got != want {
			t.Errorf("age(%s) = %q, want %q", d, got, want)
		}
	}
	for ms, want := range map[float64]string{0: "", 0.25: "250µs", 1.25: "1.2ms", 99.94: "99.9ms", 250: "250ms", 12_500: "12.5s"} {
		if got := latency(ms); got != want {
			t.Errorf("latency(%g) = %q, want %q", ms, got, want)
		}
	}
	if got := percent(0.0425); got != "4.2%" && got != "4.3%" {
		t.Errorf("percent: %q", got)
	}
}
