//go:build unix

package e2e

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// TestTheAdminAPIAuthenticatesRequestsOfOtherHosts starts processes whose admin address
// other hosts can reach.
func TestTheAdminAPIAuthenticatesRequestsOfOtherHosts(t *testing.T) {
	t.Parallel()
	everywhere := func(t *testing.T) (bound, addr string) {
		addr = freeAddr(t)
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		return ":" + port, addr
	}
	const token = "0123456789abcdefghij-token"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, binary := range []string{"relay", "worker"} {
		t.Run(binary+" without protection does not start, and says what to do", func(t *testing.T) {
			t.Parallel()
			bound, _ := everywhere(t)
			p := start(t, processConfig{Name: binary, Binary: binary, Args: adminArgs(t, binary, bound)})
			checkRefusal(t, p, "--admin-addr", "--admin-token-file", "--admin-tls", "--insecure")
		})
		t.Run(binary+" with a token", func(t *testing.T) {
			t.Parallel()
			bound, addr := everywhere(t)
			p := start(t, processConfig{Name: binary, Binary: binary, Args: append(adminArgs(t, binary, bound), "--admin-token-file", file)})
			c := newClient(t)
			procs.Await(t, "it answers a probe", func() bool { return c.get(addr, "/healthz").status == 200 })
			for _, path := range []string{"/api/v1/members", "/metrics", "/debug/pprof/", "/"} {
				if got := c.get(addr, path).status; got != 401 {
					t.Errorf("%s without the token: %d", path, got)
				}
			}
			verb := func(more ...string) ran {
				return commandOf(t, binary, append([]string{"members", "--admin-addr", addr}, more...)...)
			}
			if r := verb(); r.Code != 1 || !strings.Contains(r.Stderr, "a token is needed: --admin-token-file") {
				t.Errorf("without the token: %v", r)
			}
			if r := verb("--admin-token-file", file); r.Code != 0 || !strings.Contains(r.Stdout, "x1") {
				t.Errorf("with the token: %v", r)
			}
			// Here --admin-token-file is the setting of the process.
			if r := commandOf(t, binary, "config", "show", "id", "--running", "--admin-addr", addr, "--admin-token-file", file); r.Code != 0 || !strings.Contains(r.Stdout, "x1") {
				t.Errorf("config show --running with the token: %v", r)
			}
			if r := commandOf(t, binary, "health", "--admin-addr", addr); r.Code != 0 {
				t.Errorf("a probe: %v", r)
			}
			if strings.Contains(p.Output(), token) {
				t.Error("the token is in the log")
			}
			p.Signal(t, syscall.SIGTERM)
			p.Exit(t)
		})
		t.Run(binary+" over TLS", func(t *testing.T) {
			t.Parallel()
			s := newSecurity(t, t.TempDir())
			for name, c := range map[string]claims{
				"x1": {Role: binary, Node: "x1"}, "operator": {Role: "client", Node: "operator"}, "caller": {Role: "client", Node: "caller"},
			} {
				if err := s.Certificate(c, "ca", name); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(s.Path("gossip.key"), s.Path("x1.keys")); err != nil {
				t.Fatal(err)
			}
			bound, addr := everywhere(t)
			p := start(t, processConfig{Name: binary, Binary: binary, Args: append(adminArgs(t, binary, bound), append(s.Flags("x1", "x1"), "--admin-tls", "--pprof")...)})
			command := func(holder string, args ...string) ran {
				return commandOf(t, binary, append(args, "--admin-addr", addr, "--admin-tls-cert", s.Path(holder+".crt"), "--admin-tls-key", s.Path(holder+".key"), "--admin-tls-ca", s.Path("ca/ca.crt"))...)
			}
			as := func(holder string) ran { return command(holder, "members") }
			procs.Await(t, "it answers a probe over TLS", func() bool { return commandOf(t, binary, "health", "--admin-tls", "--admin-addr", addr).Code == 0 })
			for holder, want := range map[string]int{"operator": 0, "x1": 0, "caller": 1} {
				if r := as(holder); r.Code != want {
					t.Errorf("as %s: %v", holder, r)
				}
			}
			if r := command("operator", "config", "show", "id", "--running"); r.Code != 0 || !strings.Contains(r.Stdout, "x1") {
				t.Errorf("config show --running: %v", r)
			}
			if r := as("caller"); !strings.Contains(r.Stderr, "--admin-operator") {
				t.Errorf("it does not say who may: %v", r)
			}
			p.Signal(t, syscall.SIGTERM)
			p.Exit(t)
		})
	}
}

// adminArgs run x1, whose admin API is at an address.
func adminArgs(t *testing.T, binary, admin string) []string {
	a := []string{"run", "--cluster", cluster, "--environment", environment, "--id", "x1", "--log-format", "json", "--gossip-addr", freeAddr(t), "--admin-addr", admin}
	if binary == "relay" {
		return append(a, "--ingress-addr", freeAddr(t), "--peer-addr", freeAddr(t))
	}
	return append(a, "--service", "echo=127.0.0.1:1", "--sidecar-addr", "127.0.0.1:0")
}

// TestTheCommandAsksNoProxyOfTheEnvironment: the token and the keys of the fleet would
// be in its log.
func TestTheCommandAsksNoProxyOfTheEnvironment(t *testing.T) {
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(proxy.Close)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	key := filepath.Join(t.TempDir(), "next.key")
	if err := os.WriteFile(key, []byte(ringway(t, "keys", "generate").Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	// A label of 64 characters is no name: no name server is asked.
	unresolvable := strings.Repeat("x", 64) + ":7430"
	for _, verb := range [][]string{{"members"}, {"monitor"}, {"tap", "echo"}, {"check"}, {"health"}, {"health", "--admin-tls"}, {"keys", "list"}, {"keys", "install", key, "--admin-clear-text"}} {
		if r := ringway(t, append(verb, "--admin-addr", unresolvable)...); r.Code != 1 || !strings.Contains(r.Stderr, "no such host") {
			t.Errorf("%v", r)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the proxy was asked %d times", n)
	}
}

// TestNoTokenAndNoKeyCrossesTheNetworkInClearText asks addresses of 192.0.2.0/24, which
// are for documentation: nothing is sent there.
func TestNoTokenAndNoKeyCrossesTheNetworkInClearText(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, key := filepath.Join(dir, "token"), filepath.Join(dir, "next.key")
	for file, text := range map[string]string{token: "0123456789abcdefghij-token\n", key: ringway(t, "keys", "generate").Stdout} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, addr := range []string{"192.0.2.1:7430", "[2001:db8::1]:7430", strings.Repeat("x", 64) + ":7430"} {
		for _, verb := range [][]string{
			{"members", "--admin-token-file", token}, {"monitor", "--admin-token-file", token}, {"tap", "echo", "--admin-token-file", token}, {"drain", "--admin-token-file", token},
			{"keys", "install", key}, {"keys", "install", key, "--admin-token-file", token},
		} {
			if r := ringway(t, append(verb, "--admin-addr", addr)...); r.Code != 1 || !strings.Contains(r.Stderr, "clear text") || !strings.Contains(r.Stderr, "--admin-tls-cert") || !strings.Contains(r.Stderr, "--admin-clear-text") {
				t.Errorf("%v", r)
			}
		}
	}
	addr := strings.Repeat("x", 64) + ":7430"
	if r := ringway(t, "members", "--admin-token-file", token, "--admin-addr", addr, "--admin-clear-text"); strings.Contains(r.Stderr, "clear text") {
		t.Errorf("allowed, and yet: %v", r)
	}
}

// TestTheAdminAPIOnASocket starts, asks, kills and stops both binaries.
func TestTheAdminAPIOnASocket(t *testing.T) {
	t.Parallel()
	for _, binary := range []string{"relay", "worker"} {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "ringway") // short, as the path of a socket must be
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			path := filepath.Join(dir, binary+".sock")
			config := processConfig{Name: binary, Binary: binary, Args: adminArgs(t, binary, "unix:"+path)}
			alive := func() bool { return commandOf(t, binary, "health", "--admin-addr", "unix:"+path).Code == 0 }
			p := start(t, config)
			procs.Await(t, "it answers a probe", alive)
			if stat, err := os.Lstat(path); err != nil || stat.Mode() != os.ModeSocket|0o600 {
				t.Errorf("%v, %v", stat.Mode(), err)
			}
			if r := commandOf(t, binary, "members", "-o", "json", "--admin-addr", "unix:"+path); r.Code != 0 || !strings.Contains(r.Stdout, `"x1"`) || strings.Contains(r.Stdout, "admin_addr") {
				t.Errorf("%v", r)
			}
			second := start(t, processConfig{Name: "second " + binary, Binary: binary, Args: adminArgs(t, binary, "unix:"+path)})
			if code := second.Exit(t); code != 1 || !strings.Contains(second.Output(), "another process serves") {
				t.Errorf("a second process: %d\n%s", code, second.Output())
			}
			p.Kill()
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("killed, it leaves its socket: %v", err)
			}
			p = start(t, config)
			procs.Await(t, "it answers a probe after it was killed", alive)
			p.Signal(t, syscall.SIGTERM)
			if code := p.Exit(t); code != 0 {
				t.Errorf("it ended with %d", code)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("stopped, it leaves %v", left)
			}
		})
	}
}
