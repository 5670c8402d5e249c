package process_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
)

// rereader is running settings whose file the test writes.
type rereader struct {
	*process.Running
	text  string
	level slog.LevelVar
}

func newRereader(t *testing.T, text string) *rereader {
	t.Helper()
	cfg := struct{ Level, Fixed, Free string }{Level: "info"}
	set := settings.New("daemon", "RINGWAY")
	settings.Enum(set, &cfg.Level, settings.Spec{Name: "log-level"}, process.LogLevels()...)
	settings.String(set, &cfg.Fixed, settings.Spec{Name: "fixed"})
	settings.String(set, &cfg.Free, settings.Spec{Name: "free", Reloadable: true})
	r := &rereader{text: text}
	load := func() error {
		return set.Load(settings.Sources{File: "daemon.yaml", ReadFile: func(string) ([]byte, error) { return []byte(r.text), nil }})
	}
	if err := load(); err != nil {
		t.Fatal(err)
	}
	r.Running = process.NewRunning(process.RunningConfig{Set: set, Load: load, Level: &r.level})
	return r
}

func (r *rereader) value(name string) string {
	values := r.Values()
	v := values[slices.IndexFunc(values, func(v settings.Value) bool { return v.Name == name })]
	return v.Value + " " + v.Origin.String()
}

func TestWhatNeedsARestartStaysInEffectUntilThen(t *testing.T) {
	r := newRereader(t, "fixed: a\nfree: a")
	r.text = "# a line more\nfixed: b\nfree: b\nlog-level: debug"
	for range 2 { // it still needs one the second time
		needRestart, err := r.Read()
		if err != nil || !slices.Equal(process.Names(needRestart), []string{"fixed"}) {
			t.Fatalf("%v, %v", needRestart, err)
		}
		r.Accept()
	}
	if fixed, free := r.value("fixed"), r.value("free"); fixed != "a file daemon.yaml:1" || free != "b file daemon.yaml:3" || r.level.Level() != slog.LevelDebug {
		t.Errorf("%s, %s, level %s", fixed, free, r.level.Level())
	}
	r.text = "fixed: a\nfree: b"
	needRestart, err := r.Read()
	if applied := r.Accept(); err != nil || len(needRestart) != 0 || !slices.Equal(process.Names(applied), []string{"log-level"}) || r.level.Level() != slog.LevelInfo {
		t.Errorf("%v, %v, %v, level %s", needRestart, applied, err, r.level.Level())
	}
}

func TestWithoutAcceptNothingChanges(t *testing.T) {
	r := newRereader(t, "free: a")
	r.text = "free: b\nlog-level: error"
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	if free := r.value("free"); free != "a file daemon.yaml:1" || r.level.Level() != slog.LevelInfo {
		t.Errorf("%s, level %s", free, r.level.Level())
	}
	r.text = "free: {}"
	var problems settings.Problems
	if _, err := r.Read(); !errors.As(err, &problems) {
		t.Errorf("%v", err)
	}
	// What was read before the failure is not accepted after it.
	if applied := r.Accept(); len(applied) != 0 || r.level.Level() != slog.LevelInfo {
		t.Errorf("%v, level %s", applied, r.level.Level())
	}
}

func TestTheLevelOfALoggerMayChangeWhileItLogs(t *testing.T) {
	var out bytes.Buffer
	var level slog.LevelVar
	l, err := process.NewLeveledLogger(&out, "json", &level)
	if err != nil {
		t.Fatal(err)
	}
	child := l.With("a", 1).WithGroup("g")
	child.Debug("one")
	level.Set(slog.LevelDebug)
	child.Debug("two")
	level.Set(slog.LevelError)
	child.Warn("three")
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "two") {
		t.Error(text)
	}
	if _, err := process.NewLeveledLogger(&out, "xml", &level); err == nil || !strings.Contains(err.Error(), "allowed: auto, json, console, text") {
		t.Error(err)
	}
	if _, err := process.ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), "debug, info, warn, error") {
		t.Error(err)
	}
}

func TestTheAPIShowsTheSettingsInEffectAndWhoWent(t *testing.T) {
	gone := membership.Departure{Member: membership.Member{ID: "w9"}, Reason: membership.Failed, At: time.Unix(7, 0).UTC()}
	snapshot := membership.NewSnapshot(1, "r1", []membership.Member{{ID: "r1"}}).WithDepartures([]membership.Departure{gone}, true)
	get := func(cfg process.APIConfig, path string) (int, string) {
		mux := http.NewServeMux()
		process.Handle(mux, cfg)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, strings.Join(strings.Fields(w.Body.String()), "")
	}
	none := func() *membership.Snapshot { return nil }
	r := newRereader(t, "free: a")
	for _, c := range []struct {
		cfg  process.APIConfig
		path string
		code int
		want string
	}{
		{process.APIConfig{ID: "r1", Running: r.Running}, "/api/v1/config", 200, `{"name":"free","group":"General","type":"string","value":"a","origin":"filedaemon.yaml:1"}`},
		{process.APIConfig{ID: "r1"}, "/api/v1/config", 409, "notstartedfromsettings"},
		{process.APIConfig{Snapshot: none}, "/api/v1/departures", 200, `{"degraded":false,"departed":[]}`},
		{process.APIConfig{Snapshot: func() *membership.Snapshot { return snapshot }}, "/api/v1/departures", 200, `"degraded":true,"departed":[{"member":{"id":"w9"`},
	} {
		if code, text := get(c.cfg, c.path); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.path, code, text, c.code, c.want)
		}
	}
}
