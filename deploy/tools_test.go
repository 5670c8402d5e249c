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
		text := bytes.ReplaceAll(read(t, "systemd/"+name), []byte("/usr/local/bin/"+binary), []byte("/bin/true"))
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
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./cmd/relay", "./cmd/worker", "./deploy/echo")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	gossip, ingress, service := free(t), free(t), free(t)
	echo := start(t, dir, "echo", "-addr", service)
	relay := start(t, dir, "relay", "run", "--cluster", "tools", "--environment", "test", "--id", "r1",
		"--gossip-addr", gossip, "--ingress-addr", ingress, "--peer-addr", free(t), "--admin-addr", free(t))
	relay.hears(t, "READY=1")
	worker := start(t, dir, "worker", "run", "--cluster", "tools", "--environment", "test", "--id", "w1", "--join", gossip,
		"--gossip-addr", free(t), "--admin-addr", free(t), "--service", "echo="+service+";check=tcp", "--drain-delay", "10ms")
	worker.hears(t, "READY=1")

	// Metrics of requests exist after the first request.
	deadline := time.Now().Add(time.Minute)
	for status := 0; status != http.StatusOK; {
		if time.Now().After(deadline) {
			t.Fatalf("no request is answered: %d", status)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ingress+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Ringway-Service", "echo")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			status = resp.StatusCode
			_ = resp.Body.Close()
		}
		time.Sleep(20 * time.Millisecond) // between two tries
	}
	for _, d := range []*process{relay, worker} {
		resp, err := http.Get("http://" + d.admin + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !bytes.Contains(text, []byte("\nringway_membership_members{")) {
			t.Errorf("metrics of %s: %v\n%.300s", d.name, err, text)
		}
		tool(t, bytes.NewReader(text), "promtool", "check", "metrics")
	}
	http.DefaultClient.CloseIdleConnections()
	worker.stop(t)
	relay.stop(t)
	echo.stop(t)
}

// process is a daemon and the socket for its notifications.
type process struct {
	name, admin string
	cmd         *exec.Cmd
	socket      *net.UnixConn
	log         bytes.Buffer
}

func start(t *testing.T, dir, name string, args ...string) *process {
	t.Helper()
	d := &process{name: name}
	for i, arg := range args {
		if arg == "--admin-addr" {
			d.admin = args[i+1]
		}
	}
	sockets, err := os.MkdirTemp("", "notify") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	path := filepath.Join(sockets, "socket")
	if d.socket, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.socket.Close() })
	d.cmd = exec.Command(filepath.Join(dir, name), args...)
	d.cmd.Env = []string{"NOTIFY_SOCKET=" + path}
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%s:\n%s", d.name, d.log.String())
		}
	})
	return d
}

// hears waits until the daemon sends this line.
func (d *process) hears(t *testing.T, line string) {
	t.Helper()
	if err := d.socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		n, err := d.socket.Read(buf)
		if err != nil {
			t.Fatalf("%s never said %s: %v", d.name, line, err)
		}
		if strings.HasPrefix(string(buf[:n])+"\n", line+"\n") {
			return
		}
	}
}

// stop sends a signal and waits for an orderly end.
func (d *process) stop(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if d.admin != "" {
		d.hears(t, "STOPPING=1")
	}
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("%s: %v", d.name, err)
	}
}

// free is an address without a listener.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
