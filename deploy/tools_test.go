//go:build unix

package deploy_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/procs"
)

// These tests need more programs than Go: make test-deploy.
func needTools(t *testing.T) {
	t.Helper()
	if os.Getenv("DEPLOY_TOOLS") == "" {
		t.Skip("needs promtool and systemd-analyze: make test-deploy")
	}
}

// tool runs a program that must succeed.
func tool(t *testing.T, stdin io.Reader, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Stdin = stdin
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestToolsTakeTheQueriesOfTheDashboard(t *testing.T) {
	needTools(t)
	var d dashboard
	if err := json.Unmarshal(read(t, "grafana/ringway.json"), &d); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, []byte(d.rules()), 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, nil, "promtool", "check", "rules", file)
}

// exposure is ten times the highest accepted exposure of systemd-analyze: 0 is the best,
// 100 the worst.
const exposure = "15"

func TestToolsTakeTheUnitsAndFindThemHardened(t *testing.T) {
	needTools(t)
	dir := t.TempDir()
	for _, binary := range []string{"relay", "worker"} {
		// The program of a verified unit must exist; its content does not matter.
		name := "ringway-" + binary + ".service"
		text := bytes.ReplaceAll(read(t, "systemd/"+name), []byte("ExecStart=ringway-"+binary), []byte("ExecStart=/bin/true"))
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", file)
		if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 { // it exits with 0 after warnings
			t.Errorf("verify %s: %v\n%s", name, err, out)
		}
		tool(t, nil, "systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold="+exposure, file)
	}
}

// The binaries run as under a service manager. Their notifications decide when the test
// reads their metrics, and show that they stop in order.
func TestToolsTakeTheMetricsOfRunningDaemons(t *testing.T) {
	needTools(t)
	dir := t.TempDir()
	if err := procs.Build("..", dir, false, "./cmd/relay", "./cmd/worker", "./deploy/echo"); err != nil {
		t.Fatal(err)
	}
	gossip, ingress, service, relayAdmin, workerAdmin := procs.FreeAddr(t), procs.FreeAddr(t), procs.FreeAddr(t), procs.FreeAddr(t), procs.FreeAddr(t)
	echo := start(t, dir, "echo", "-addr", service)
	relay := start(t, dir, "relay", "run", "--cluster", "tools", "--environment", "test", "--id", "r1",
		"--gossip-addr", gossip, "--ingress-addr", ingress, "--peer-addr", procs.FreeAddr(t), "--admin-addr", relayAdmin)
	relay.hears(t, "READY=1")
	worker := start(t, dir, "worker", "run", "--cluster", "tools", "--environment", "test", "--id", "w1", "--join", gossip,
		"--gossip-addr", procs.FreeAddr(t), "--admin-addr", workerAdmin, "--service", "echo="+service+";check=tcp", "--drain-delay", "10ms")
	worker.hears(t, "READY=1")

	// Metrics of requests exist after the first request.
	procs.Await(t, "a request is answered", func() bool {
		_, err := loadgen.Send(http.DefaultClient, "http://"+ingress, http.Header{"Ringway-Service": {"echo"}})
		return err == nil
	})
	for name, admin := range map[string]string{"relay": relayAdmin, "worker": workerAdmin} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, text, err := procs.Ask(http.DefaultClient, req)
		if err != nil || !bytes.Contains(text, []byte("\nringway_membership_members{")) {
			t.Errorf("metrics of %s: %v\n%.300s", name, err, text)
		}
		tool(t, bytes.NewReader(text), "promtool", "check", "metrics")
	}
	http.DefaultClient.CloseIdleConnections()
	for _, d := range []*daemon{worker, relay, echo} {
		d.Signal(t, syscall.SIGTERM)
		if d != echo {
			d.hears(t, "STOPPING=1")
		}
		if code := d.Exit(t); code != 0 {
			t.Errorf("%s exited with %d", d.Name(), code)
		}
	}
}

// daemon is a process and the socket for its notifications.
type daemon struct {
	*procs.Process
	socket *net.UnixConn
}

func start(t *testing.T, dir, name string, args ...string) *daemon {
	t.Helper()
	sockets, err := os.MkdirTemp("", "notify") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	path := filepath.Join(sockets, "socket")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return &daemon{procs.Start(t, procs.Config{Binary: name, Dir: dir, Args: args, Env: []string{"NOTIFY_SOCKET=" + path}}), socket}
}

// hears waits until the daemon sends this line.
func (d *daemon) hears(t *testing.T, line string) {
	t.Helper()
	if err := d.socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		n, err := d.socket.Read(buf)
		if err != nil {
			t.Fatalf("%s never said %s: %v", d.Name(), line, err)
		}
		if strings.HasPrefix(string(buf[:n])+"\n", line+"\n") {
			return
		}
	}
}
