package command_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/worker"
)

// startWorker is a worker alone in its cluster, with the services a and b.
func startWorker(t *testing.T) (admin, servicesFile string) {
	t.Helper()
	servicesFile = filepath.Join(t.TempDir(), "services.yaml")
	write(t, servicesFile, "services: [{name: b, address: '127.0.0.1:2'}]\n")
	f := fleet.New(fleet.Config{Cluster: "test", Environment: "ci", Insecure: true})
	if err := f.StartWorker(fleet.WorkerConfig{ID: "w1", Change: func(s *worker.Settings) {
		s.Services, s.ServicesFile = []string{"a=127.0.0.1:1"}, servicesFile
	}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Kill("w1"); err != nil {
			t.Error(err)
		}
	})
	return f.Worker("w1").AdminAddr(), servicesFile
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, c *cobra.Command, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&errs)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestDrainAndUndrainShowWhatBecameOfEveryService(t *testing.T) {
	admin, _ := startWorker(t)
	for _, step := range []struct {
		verb  *cobra.Command
		names []string
		a, b  string
	}{
		{command.DrainCommand(), []string{"a"}, "draining", "offered"},
		{command.DrainCommand(), nil, "draining", "draining"},
		{command.UndrainCommand(), []string{"b"}, "draining", "offered"},
		{command.UndrainCommand(), nil, "offered", "offered"},
	} {
		out, errs, err := execute(t, step.verb, append(step.names, "--admin-addr", admin)...)
		if err != nil || errs != "" {
			t.Fatalf("%v %s", err, errs)
		}
		lines := strings.Split(out, "\n")
		if len(lines) != 4 || !strings.HasPrefix(lines[0], "SERVICE") ||
			!strings.HasPrefix(lines[1], "a ") || !strings.Contains(lines[1], step.a) || !strings.HasPrefix(lines[2], "b ") || !strings.Contains(lines[2], step.b) {
			t.Errorf("%s %v:\n%s", step.verb.Name(), step.names, out)
		}
	}
	out, _, err := execute(t, command.DrainCommand(), "b", "--admin-addr", admin, "-o", "json")
	var answer api.WorkerServices
	if json.Unmarshal([]byte(out), &answer) != nil || err != nil || len(answer.Services) != 2 || answer.Services[1].State != string(worker.Draining) {
		t.Errorf("%s, %v", out, err)
	}
}

func TestADrainOfUnknownServicesIsReported(t *testing.T) {
	admin, _ := startWorker(t)
	_, _, err := execute(t, command.DrainCommand(), "a", "c", "--admin-addr", admin)
	if !errors.Is(err, command.ErrNothingMatched) || !strings.Contains(err.Error(), `no such service: ["c"]; this worker has a, b`) {
		t.Errorf("%v", err)
	}
	out, _, err := execute(t, command.UndrainCommand(), "-o", "json", "--admin-addr", admin)
	if err != nil || strings.Contains(out, `"drained": true`) {
		t.Errorf("a was drained next to what is not there: %s %v", out, err)
	}
}

func TestReloadReportsTheChanges(t *testing.T) {
	admin, file := startWorker(t)
	write(t, file, "services: [{name: c, address: '127.0.0.1:2'}]\n")
	out, _, err := execute(t, command.ReloadCommand(), "--admin-addr", admin)
	if err != nil || out != "added: c\nremoved: b\n" {
		t.Errorf("%q, %v", out, err)
	}
	out, _, err = execute(t, command.ReloadCommand(), "--admin-addr", admin)
	if err != nil || out != "no service has changed\n" {
		t.Errorf("%q, %v", out, err)
	}
	write(t, file, "services: [{name: a, address: '127.0.0.1:2'}]\n")
	out, _, err = execute(t, command.ReloadCommand(), "--admin-addr", admin)
	if err == nil || !strings.Contains(err.Error(), "by flag and by file") || errors.Is(err, command.ErrNothingMatched) || out != "" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestWhatIsNoWorkerIsAnErrorThatNamesTheReason(t *testing.T) {
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	addr := stranger.Listener.Addr().String()
	for want, args := range map[string][]string{
		"is this the admin address of a worker?": {"--admin-addr", addr},
		"is it running":                          {"--admin-addr", "127.0.0.1:1"},
		"allowed are table, json":                {"--admin-addr", addr, "-o", "xml"},
	} {
		for _, c := range []*cobra.Command{command.DrainCommand(), command.UndrainCommand(), command.ReloadCommand()} {
			if _, _, err := execute(t, c, args...); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, command.ErrNothingMatched) {
				t.Errorf("%s: %v, want %q", c.Name(), err, want)
			}
		}
	}
}
