package command_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/command/relaycmd"
	"github.com/ringway/ringway/internal/command/workercmd"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
)

// TestMain makes this binary be relay and worker for the scripts, and starts what all
// of them ask.
func TestMain(m *testing.M) {
	testscript.Main(withFleet{m}, map[string]func(){
		"relay":  func() { os.Exit(command.Run(relaycmd.Command())) },
		"worker": func() { os.Exit(command.Run(workercmd.Command())) },
		// The name in packages.
		"ringway-relay": func() { os.Exit(command.Run(relaycmd.Command())) },
	})
}

type withFleet struct{ m *testing.M }

// Run starts the fleet and runs the tests. The fleet ends with the process: an orderly
// stop takes seconds, and has tests of its own where relay and worker are.
func (w withFleet) Run() int {
	os.Unsetenv("RINGWAY_ADMIN_ADDR")
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else the race detector sleeps for a second after each command
	dir, err := os.MkdirTemp("", "command")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	if err := asked.start(dir); err != nil {
		return failed(err)
	}
	return w.m.Run()
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "the fleet of the tests:", err)
	return 1
}

// testFleet is what the tests ask: a relay r1 with a worker w1 that offers echo and is
// connected to it, which no test changes; and a relay r2, alone in a cluster of its
// own with gossip keys and a configuration file, which one script at a time changes.
type testFleet struct {
	relay, worker string // admin addresses
	lone          string
	loneConfig    string // path of the settings of r2
	ingress       string // of r2
}

var asked testFleet

const anyPort = "127.0.0.1:0"

func (f *testFleet) start(dir string) error {
	run := func(r command.Runner) {
		go func() { panic(r.Run(context.Background())) }() // none of them ends
	}
	r1, err := newRelay("cluster: test\nenvironment: ci\nid: r1\n", filepath.Join(dir, "r1.yaml"))
	if err != nil {
		return err
	}
	run(r1)
	keys := filepath.Join(dir, "gossip.key")
	if err := os.WriteFile(keys, []byte(membership.GenerateKey()+"\n"), 0o600); err != nil {
		return err
	}
	f.loneConfig = filepath.Join(dir, "r2.yaml")
	r2, err := newRelay("cluster: lone\nenvironment: ci\nid: r2\ngossip-key-file: "+keys+"\n", f.loneConfig)
	if err != nil {
		return err
	}
	run(r2)

	workers := fleet.New(fleet.Config{Cluster: "test", Environment: "ci", Insecure: true, Seeds: []string{r1.GossipAddr()}})
	if err := workers.StartWorker(fleet.WorkerConfig{ID: "w1", Handler: http.NotFoundHandler(), Services: []string{"echo"}}); err != nil {
		return err
	}

	f.relay, f.worker, f.lone, f.ingress = r1.AdminAddr(), workers.Worker("w1").AdminAddr(), r2.AdminAddr(), r2.IngressAddr()
	return f.await()
}

// await waits until r1 is connected to w1 and every relay is ready.
func (f *testFleet) await() error {
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) { // polls a state
		connected, err := get("http://" + f.relay + "/api/v1/services/echo/explain?worker=w1")
		// The link is open a moment before its connection counts.
		if err == nil && strings.Contains(connected, `"link": "open"`) && strings.Contains(connected, `"connected": true`) {
			if _, err = get("http://" + f.lone + "/readyz"); err == nil {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("never connected: %w\n%s", err, connected)
		}
	}
}

func get(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

// newRelay is a relay as the binary makes it from the file, on free ports.
func newRelay(text, file string) (*relay.Relay, error) {
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s := relay.DefaultSettings()
	set := settings.New("relay", "RINGWAY")
	s.Declare(set)
	flags := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	set.BindFlags(flags)
	if err := flags.Parse([]string{"--config", file, "--gossip-addr", anyPort, "--ingress-addr", anyPort, "--peer-addr", anyPort, "--admin-addr", anyPort}); err != nil {
		return nil, err
	}
	load := func() error { return set.Load(settings.Sources{}) }
	if err := load(); err != nil {
		return nil, err
	}
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	cfg.ProbeDelay, cfg.EmptyAfter = time.Millisecond, time.Nanosecond // the cluster of r2 stays empty
	cfg.Running = process.NewRunning(process.RunningConfig{Set: set, Load: load, Level: new(slog.LevelVar)})
	return relay.New(cfg)
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("RELAY", asked.relay)
			env.Setenv("WORKER", asked.worker)
			env.Setenv("LONE", asked.lone)
			env.Setenv("LONE_CONFIG", asked.loneConfig)
			env.Setenv("LONE_INGRESS", asked.ingress)
			env.Setenv("CLOSED", "127.0.0.1:1")
			for _, name := range []string{"FREE1", "FREE2", "FREE3", "FREE4"} {
				addr, err := procs.Free("127.0.0.1")
				if err != nil {
					return err
				}
				env.Setenv(name, addr)
			}
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": exitsWith, "await": await, "hangup": hangUp},
	})
}

// exitsWith is `code N command …`: the command ends with that very code.
func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command [arg...]")
	}
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("%v ended with %d, want %s", args[1:], code, args[0])
	}
}

// await is `await PATTERN command …`: the command succeeds in the end.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await pattern command [arg...]")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) { // polls a state
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("never: %v said %q and %q, %v", args[1:], ts.ReadFile("stdout"), ts.ReadFile("stderr"), err)
		}
	}
}

// hangUp is `hangup`: a SIGHUP for what runs in the background.
func hangUp(ts *testscript.TestScript, _ bool, _ []string) {
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(syscall.SIGHUP))
	}
}
