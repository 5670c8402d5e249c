package command_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/command/workercmd"
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
	// In one step: the worker reads its file of services by itself, too.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
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
	const unchanged = "no service has changed\n"
	was, now, out := "b", "", unchanged
	var err error
	for n := 0; n < 10 && out == unchanged; n++ { // the worker may have read the file itself
		if n > 0 {
			was = now
		}
		now = fmt.Sprint("c", n)
		write(t, file, "services: [{name: "+now+", address: '127.0.0.1:2'}]\n")
		if out, _, err = execute(t, command.ReloadCommand(), "--admin-addr", admin); err != nil {
			t.Fatal(err)
		}
	}
	if out != "added: "+now+"\nremoved: "+was+"\n" {
		t.Errorf("%q", out)
	}
	out, _, err = execute(t, command.ReloadCommand(), "--admin-addr", admin)
	if err != nil || out != unchanged {
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

// Operators reload or start a worker only after this check. No interface has most of these addresses,
// so a check that binds one fails.
func TestAWorkerWithACertificateIsValidatedAtTheAddressesOfItsSettings(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	printed(t, workercmd.Command(), "tls", "ca", "create", "--out", file("ca"))
	printed(t, workercmd.Command(), "tls", "cert", "create", "--ca", file("ca"), "--role", "worker", "--node", "w1", "--cluster", "shop", "--environment", "prod", "--out", file("w1"))
	write(t, file("gossip.key"), base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n")
	for flags, want := range map[string]string{
		"--gossip-addr=10.0.0.5:7401":                                                                  "",
		"--gossip-addr=10.0.0.5:7401 --sidecar-addr=10.0.0.5:7421":                                     "",
		"--gossip-addr=[fd00::5]:7401":                                                                 "",
		"--gossip-addr=[::1]:7401":                                                                     "",
		"--gossip-addr=0.0.0.0:7401 --advertise-addr=10.0.0.5":                                         "",
		"--gossip-addr=:7401 --advertise-addr=10.0.0.5:7501":                                           "",
		"--gossip-addr=10.0.0.5:7401 --sidecar-addr=:7421":                                             "",
		"--gossip-addr=localhost:7401":                                                                 "",
		"--gossip-addr=10.0.0.5:7401 --sidecar-addr=127.0.0.1:7421":                                    `service "hello": address "127.0.0.1:7421": only this host can connect to it`,
		"--gossip-addr=10.0.0.5:7401 --sidecar-addr=10.0.0.6:7421":                                     `service "hello": address "10.0.0.6:7421": it is not on the worker's host 10.0.0.5`,
		"--gossip-addr=10.0.0.5:7401 --sidecar-addr=worker-1.shop.test:7421":                           `address "worker-1.shop.test:7421": members prove their identity, so it must be an IP address`,
		"--gossip-addr=10.0.0.5:7401 --endpoint-allowed-cidr=10.0.0.6/32 --sidecar-addr=10.0.0.6:7421": "",
	} {
		args := append([]string{"config", "validate", "--cluster=shop", "--environment=prod", "--id=w1", "--service=hello=127.0.0.1:9001",
			"--tls-cert=" + file("w1.crt"), "--tls-key=" + file("w1.key"), "--tls-ca=" + file("ca/ca.crt"), "--gossip-key-file=" + file("gossip.key")}, strings.Fields(flags)...)
		if err := quietly(t, workercmd.Command(), args); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", flags, err, want)
		}
	}
}
