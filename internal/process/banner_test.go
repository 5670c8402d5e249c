package process_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/process"
)

var banner = process.Banner{
	Title: "relay v1.2.3",
	Rows:  []slog.Attr{slog.String("cluster", "prod"), slog.String("gossip", "10.0.0.1:7400"), slog.String("region", "")},
}

func TestTheBannerIsOneLogLineWhereTheLogIsJSON(t *testing.T) {
	l, out := logger(t, "info", "json")
	var text bytes.Buffer
	if err := banner.Show(&text, l, "json"); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if _, empty := got["region"]; empty || text.Len() > 0 || got["message"] != "relay v1.2.3" || got["gossip"] != "10.0.0.1:7400" {
		t.Errorf("log %v, text %q", got, text.String())
	}
}

func TestTheBannerIsATableWhereTheLogIsText(t *testing.T) {
	l, out := logger(t, "info", "console")
	var text bytes.Buffer
	if err := banner.Show(&text, l, "console"); err != nil {
		t.Fatal(err)
	}
	if want := "relay v1.2.3\n\n  cluster  prod\n   gossip  10.0.0.1:7400\n\n"; text.String() != want || out.Len() > 0 {
		t.Errorf("got %q and the log %q, want %q", text.String(), out, want)
	}
}

func TestAQuietLogHasNoBanner(t *testing.T) {
	l, out := logger(t, "warn", "console")
	var text bytes.Buffer
	if err := banner.Show(&text, l, "console"); err != nil || text.Len()+out.Len() > 0 {
		t.Errorf("error %v, text %q, log %q", err, text.String(), out)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestABannerThatCannotBeWrittenIsAnError(t *testing.T) {
	if _, err := banner.WriteTo(brokenWriter{}); err == nil || !strings.Contains(err.Error(), "start banner: closed") {
		t.Errorf("got %v", err)
	}
}

func TestIDsAreInTheOrderInWhichPeopleCount(t *testing.T) {
	want := []string{"relay-1", "w", "w01", "w1", "w2", "w2a", "w2b", "w10", "w10.3", "w10.20", "w99999999999999999999999", "worker"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, process.Natural)
	if slices.Equal(got, want) {
		return
	}
	t.Errorf("%v", got)
}
