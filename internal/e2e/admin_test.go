//go:build unix

package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTheAdminAPIAsksWhoeverIsElsewhereWhoTheyAre starts processes whose admin address
// other hosts can reach.
func TestTheAdminAPIAsksWhoeverIsElsewhereWhoTheyAre(t *testing.T) {
	t.Parallel()
	everywhere := func(t *testing.T) (bound, addr string) {
		addr = freeAddr(t)
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		return ":" + port, addr
	}
	args := func(t *testing.T, binary, admin string, more ...string) []string {
		a := []string{"run", "--cluster", cluster, "--environment", environment, "--id", "x1", "--log-format", "json", "--gossip-addr", freeAddr(t), "--admin-addr", admin}
		if binary == "relay" {
			a = append(a, "--ingress-addr", freeAddr(t), "--peer-addr", freeAddr(t))
		} else {
			a = append(a, "--service", "echo=127.0.0.1:1", "--sidecar-addr", "127.0.0.1:0")
		}
		return append(a, more...)
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
			p := start(t, processConfig{Name: binary, Binary: binary, Args: args(t, binary, bound)})
			checkRefusal(t, p, "--admin-addr", "--admin-token-file", "--admin-tls", "--insecure")
		})
		t.Run(binary+" with a token", func(t *testing.T) {
			t.Parallel()
			bound, addr := everywhere(t)
			p := start(t, processConfig{Name: binary, Binary: binary, Args: args(t, binary, bound, "--admin-token-file", file)})
			c := newClient(t)
			await(t, "it answers a probe", func() bool { return c.get(addr, "/healthz").status == 200 })
			for _, path := range []string{"/api/v1/members", "/metrics", "/debug/pprof/", "/"} {
				if got := c.get(addr, path).status; got != 401 {
					t.Errorf("%s without the token: %d", path, got)
				}
			}
			verb := func(more ...string) ran {
				return commandOf(t, binary, append([]string{"members", "--admin-addr", addr}, more...)...)
			}
			if r := verb(); r.code != 1 || !strings.Contains(r.stderr, "a token is needed: --admin-token-file") {
				t.Errorf("without the token: %v", r)
			}
			if r := verb("--admin-token-file", file); r.code != 0 || !strings.Contains(r.stdout, "x1") {
				t.Errorf("with the token: %v", r)
			}
			if r := commandOf(t, binary, "health", "--admin-addr", addr); r.code != 0 {
				t.Errorf("a probe: %v", r)
			}
			if strings.Contains(p.log.String(), token) {
				t.Error("the token is in the log")
			}
			p.signal(t, syscall.SIGTERM)
			p.exit(t)
		})
		t.Run(binary+" over TLS", func(t *testing.T) {
			t.Parallel()
			s := newSecurity(t, t.TempDir())
			for name, c := range map[string]claims{
				"x1": {role: binary, node: "x1"}, "operator": {role: "client", node: "operator"}, "caller": {role: "client", node: "caller"},
			} {
				if err := s.certificate(t, c, "ca", name); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(s.path("gossip.key"), s.path("x1.keys")); err != nil {
				t.Fatal(err)
			}
			bound, addr := everywhere(t)
			p := start(t, processConfig{Name: binary, Binary: binary, Args: args(t, binary, bound, append(s.flags("x1", "x1"), "--admin-tls", "--pprof")...)})
			as := func(holder string) ran {
				return commandOf(t, binary, "members", "--admin-addr", addr, "--admin-tls-cert", s.path(holder+".crt"), "--admin-tls-key", s.path(holder+".key"), "--admin-tls-ca", s.path("ca/ca.crt"))
			}
			await(t, "it answers a probe over TLS", func() bool { return commandOf(t, binary, "health", "--admin-tls", "--admin-addr", addr).code == 0 })
			for holder, want := range map[string]int{"operator": 0, "x1": 0, "caller": 1} {
				if r := as(holder); r.code != want {
					t.Errorf("as %s: %v", holder, r)
				}
			}
			if r := as("caller"); !strings.Contains(r.stderr, "--admin-operator") {
				t.Errorf("it does not say who may: %v", r)
			}
			p.signal(t, syscall.SIGTERM)
			p.exit(t)
		})
	}
}
