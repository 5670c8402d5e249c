package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/worker"
)

// rig is an agent at work, an observer of what it offers, and the files that it
// reads.
type rig struct {
	t                  *testing.T
	agent              *worker.Agent
	views              <-chan *advertise.View
	log                *logtest.Log
	registry           *prometheus.Registry
	settings, services string // paths
	level              slog.LevelVar
}

func startRig(t *testing.T, settingsText, servicesText string) *rig {
	t.Helper()
	relay, catalogue := observer(t, nil)
	dir := t.TempDir()
	r := &rig{t: t, log: &logtest.Log{}, registry: prometheus.NewRegistry(), settings: filepath.Join(dir, "settings.yaml"), services: filepath.Join(dir, "services.yaml")}
	r.write(r.settings, settingsText)
	r.write(r.services, servicesText)
	s := worker.DefaultSettings()
	set := settings.New("worker", "RINGWAY")
	s.Declare(set)
	load := func() error {
		return set.Load(settings.Sources{File: r.settings, Environ: []string{
			"RINGWAY_CLUSTER=test", "RINGWAY_ENVIRONMENT=ci", "RINGWAY_ID=w1", "RINGWAY_JOIN=" + relay.Addr(), "RINGWAY_SERVICES_FILE=" + r.services,
			"RINGWAY_GOSSIP_ADDR=127.0.0.1:0", "RINGWAY_ADMIN_ADDR=127.0.0.1:0"}})
	}
	if err := load(); err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Config(slog.New(slog.NewTextHandler(r.log, nil)), r.registry)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Running = process.NewRunning(process.RunningConfig{Set: set, Load: load, Level: &r.level})
	cfg.ReadSettings, cfg.DrainDelay = s.Reader(cfg.Running), 0
	if r.agent, err = worker.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.agent.Run(ctx) }()
	t.Cleanup(func() {
		r.agent.Kill() // what an orderly stop does is another test's
		if err := <-ended; !errors.Is(err, worker.ErrKilled) {
			t.Error(err)
		}
		stop()
	})
	watching, done := context.WithCancel(context.Background())
	t.Cleanup(done)
	r.views = catalogue.Watch(watching)
	return r
}

// write replaces a file as a scheduler should: in one step.
func (r *rig) write(path, text string) {
	r.t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
}

// await waits until the observer sees exactly these services, a draining one with
// a tilde.
func (r *rig) await(want ...string) {
	r.t.Helper()
	var got []string
	for late := time.After(patience); ; {
		select {
		case view, more := <-r.views:
			if !more {
				r.t.Fatal("the catalogue has ended")
			}
			got = nil
			for name := range view.Services() {
				for e := range view.Endpoints(name).All() {
					if e.State == advertise.Draining {
						name += "~"
					}
					got = append(got, name)
				}
			}
			if slices.Equal(got, want) {
				return
			}
		case <-late:
			r.t.Fatalf("the relay sees %v, want %v", got, want)
		}
	}
}

func (r *rig) reloads(result string) float64 {
	r.t.Helper()
	n, there := logtest.Series(r.t, r.registry, "ringway_worker_reloads_total")[result]
	if !there {
		r.t.Fatalf("no reloads %s", result)
	}
	return n
}

func TestTheFileOfServicesIsAppliedWhenItChangesAndOnlyWhenItIsRight(t *testing.T) {
	t.Parallel()
	r := startRig(t, "service: a=127.0.0.1:1\n", "services: []\n")
	r.await("a")
	r.write(r.services, "services: [{name: b, address: '127.0.0.1:2'}]\n")
	r.await("a", "b")

	r.write(r.services, "services: [{name: c, address: '127.0.0.1:2'}, {name: d, adress: '127.0.0.1:2'}]\n")
	procs.Await(r.t, "a mistake is counted", func() bool { return r.reloads("refused") == 1 })
	// It is not read again and again. The next change shows when a check has passed.
	r.write(r.services, "services: [{name: a, address: '127.0.0.1:2'}]\n")
	procs.Await(r.t, "a name that the settings have is refused", func() bool {
		return r.reloads("refused") == 2 && r.log.Lines("reload refused") == 2 // it is counted before it is logged
	})
	for text, times := range map[string]int{"reload refused, nothing has changed": 2, "did you mean address?": 1, "by flag and by file": 1} {
		if got := r.log.Lines(text); got != times {
			t.Errorf("%q is logged %d times, want %d", text, got, times)
		}
	}
	var got api.WorkerServices
	ask(t, r.agent, "GET", "/api/v1/services", "", &got)
	if len(got.Services) != 2 || got.Services[0].Name != "a" || got.Services[1].Name != "b" || got.Services[1].Source != string(worker.FromFile) {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(r.services); err != nil {
		t.Fatal(err)
	}
	procs.Await(r.t, "a file that is gone is refused", func() bool { return r.reloads("refused") == 3 })
	if refused := logtest.Series(t, r.registry, "ringway_worker_reload_refused")[""]; refused != 1 {
		t.Errorf("the last reload was refused, and the gauge is %v", refused)
	}
	r.write(r.services, "services: [{name: c, address: '127.0.0.1:3'}]\n")
	r.await("a", "c")
	r.write(r.services, "services: []\n")
	r.await("a")
	procs.Await(r.t, "the last change is counted", func() bool { return r.reloads("applied") >= 3 })
	if r.reloads("applied") != 3 || r.reloads("unchanged") != 0 || logtest.Series(t, r.registry, "ringway_worker_reload_refused")[""] != 0 {
		t.Errorf("%v applied, %v unchanged", r.reloads("applied"), r.reloads("unchanged"))
	}
}

func TestAReloadReadsSettingsAndFileTogether(t *testing.T) {
	t.Parallel()
	r := startRig(t, "service: [a=127.0.0.1:1]\n", "services: [{name: b, address: '127.0.0.1:2'}]\n")
	r.await("a", "b")
	reload := func(want int, into any) {
		t.Helper()
		if status := ask(t, r.agent, "POST", "/api/v1/reload", "", into); status != want {
			t.Errorf("%d, want %d: %v", status, want, into)
		}
	}
	var change api.WorkerReload
	// b moves from one to the other, which only both together can mean.
	r.write(r.settings, "service: [b=127.0.0.1:2, c=127.0.0.1:3]\ndrain-delay: 7s\nlog-level: debug\nregion: eu\n")
	r.write(r.services, "services: [{name: a, address: '127.0.0.1:1'}]\n")
	reload(200, &change)
	refused := r.reloads("refused") // once more if a check has read the new file before
	if got := fmt.Sprint(change); got != `{[c] [a b] [] [log-level: "info" is now "debug"] [region drain-delay]}` {
		t.Errorf("%s", got)
	}
	r.await("a", "b", "c")
	if r.log.Lines("take effect at the next start") != 1 {
		t.Error("what needs a restart is not logged")
	}

	var failure struct{ Error string }
	r.write(r.settings, "service: [b=127.0.0.1:2, d=nowhere]\ncolour: blue\n")
	reload(422, &failure)
	for _, want := range []string{"d=nowhere", `"colour"`} {
		if !strings.Contains(failure.Error, want) {
			t.Errorf("lacks %q: %s", want, failure.Error)
		}
	}
	// The file goes on while the settings are broken, also if a reload has seen its change.
	r.write(r.services, "services: [{name: e, address: '127.0.0.1:5'}]\n")
	reload(422, &failure)
	r.await("b", "c", "e")
	gauge := func() float64 { return logtest.Series(t, r.registry, "ringway_worker_reload_refused")[""] }
	if gauge() != 1 {
		t.Error("the settings on disk are refused, and a good file of services has set the gauge back")
	}

	r.write(r.settings, "service: [b=127.0.0.1:2]\n")
	r.agent.Reload() // what a signal does
	r.await("b", "e")
	if gauge() != 0 {
		t.Error("the settings are in use, and the gauge says that they are refused")
	}
	reload(200, &change)
	if !change.Empty() || r.reloads("unchanged") != 1 || r.reloads("refused") != refused+2 {
		t.Errorf("%+v, %v refused, want %v", change, r.reloads("refused"), refused+2)
	}
}

func TestDrainsThroughTheAdminAPIReachTheRelays(t *testing.T) {
	t.Parallel()
	r := startRig(t, "service: [a=127.0.0.1:1, b=127.0.0.1:2]\n", "services: []\n")
	r.await("a", "b")
	var got api.WorkerServices
	drain := func(verb, query, body string) {
		t.Helper()
		got = api.WorkerServices{}
		if status := ask(t, r.agent, "POST", "/api/v1/"+verb+query, body, &got); status != 200 || got.Announced == nil || !*got.Announced {
			t.Errorf("%d %+v", status, got)
		}
	}
	drain("drain", "", `{"services": ["a"]}`)
	r.await("a~", "b")
	if got.Services[0].State != string(worker.Draining) || got.Services[1].State != string(worker.Offered) {
		t.Errorf("%+v", got.Services)
	}
	drain("undrain", "?service=a", "")
	r.await("a", "b")
	drain("drain", "", "")
	r.await("a~", "b~")
	var ready struct{ Reasons []string }
	if status := ask(t, r.agent, "GET", "/readyz", "", &ready); status != 503 || !slices.Equal(ready.Reasons, []string{"service a is drained", "service b is drained"}) {
		t.Errorf("%d %q", status, ready.Reasons)
	}
	var failure struct{ Error string }
	for body, want := range map[string]int{`{"services": ["x"]}`: 404, `{"service": "a"}`: 400, `[`: 400} {
		if status := ask(t, r.agent, "POST", "/api/v1/undrain", body, &failure); status != want || failure.Error == "" {
			t.Errorf("%s: %d %q, want %d", body, status, failure.Error, want)
		}
	}
	drain("undrain", "", "{}")
	r.await("a", "b")
	if status := ask(t, r.agent, "GET", "/readyz", "", &ready); status != 200 {
		t.Errorf("%d %q", status, ready.Reasons)
	}
	if n, err := testutil.GatherAndCount(r.registry, "ringway_worker_services"); err != nil || n != 3 {
		t.Errorf("%d series, %v", n, err)
	}
}

func TestSettingsOfServicesAreJudgedTogether(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "services.yaml")
	if err := os.WriteFile(file, []byte("services: [{name: a, address: '127.0.0.1:2'}, {name: b, address: '127.0.0.1:2'}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("services: [{name: a, colour: 1}]\nsize: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		service, file string
		want          []string // of the problems; none: it is valid
	}{
		"neither":           {"", "", []string{"a worker without a service", "or --services-file"}},
		"only a flag":       {"c=127.0.0.1:1", "", nil},
		"only a file":       {"", file, nil},
		"both":              {"c=127.0.0.1:1", file, nil},
		"one name in both":  {"a=127.0.0.1:1", file, []string{`--services-file "` + file + `"`, `"a" is given twice, by flag and by file`}},
		"a file with flaws": {"", bad, []string{"--services-file", "bad.yaml:1", "no such field: colour", "bad.yaml:2", `"size"`}},
		"no file":           {"x", filepath.Join(dir, "none"), []string{"--service ", "--services-file", "no such file"}},
	} {
		s := worker.DefaultSettings()
		set := settings.New("worker", "RINGWAY")
		s.Declare(set)
		err := set.Load(settings.Sources{Environ: []string{"RINGWAY_CLUSTER=c", "RINGWAY_ENVIRONMENT=e", "RINGWAY_SERVICE=" + c.service, "RINGWAY_SERVICES_FILE=" + c.file}})
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: lacks %q: %v", name, want, err)
			}
		}
	}
}

func TestAReloadSetsTheLogLevelUnlessItIsRefused(t *testing.T) {
	t.Parallel()
	r := startRig(t, "service: a=127.0.0.1:1\n", "services: []\n")
	r.await("a")
	reload := func(want int, into any) {
		t.Helper()
		if status := ask(t, r.agent, "POST", "/api/v1/reload", "", into); status != want {
			t.Fatalf("status %d, want %d", status, want)
		}
	}
	// A service that cannot be offered with those of the file refuses all of it.
	r.write(r.services, "services: [{name: b, address: '127.0.0.1:2'}]\n")
	r.await("a", "b")
	r.write(r.settings, "service: b=127.0.0.1:1\nlog-level: debug\n")
	var failed struct{ Error string }
	if reload(422, &failed); r.level.Level() != slog.LevelInfo || !strings.Contains(failed.Error, "by flag and by file") {
		t.Errorf("level %s, %q", r.level.Level(), failed.Error)
	}
	r.write(r.settings, "service: a=127.0.0.1:1\nlog-level: debug\ndatacenter: fra\n")
	var change api.WorkerReload
	reload(200, &change)
	if r.level.Level() != slog.LevelDebug || len(change.Settings) != 1 || change.Settings[0].Name != "log-level" || !slices.Equal(change.NeedsRestart, []string{"datacenter"}) || !change.Empty() {
		t.Errorf("level %s, %+v", r.level.Level(), change)
	}
	var config struct {
		Settings []struct{ Name, Value string }
	}
	ask(t, r.agent, "GET", "/api/v1/config", "", &config)
	for _, s := range config.Settings {
		if want, known := map[string]string{"log-level": "debug", "datacenter": "", "service": "a=127.0.0.1:1"}[s.Name]; known && s.Value != want {
			t.Errorf("%s is %q, want %q", s.Name, s.Value, want)
		}
	}
}
