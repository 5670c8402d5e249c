//go:build linux

package hostile

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// TestKeysNeverTravelThroughAProxyOrInClearText has an environment with proxies, as
// machines of operators have, while a gossip key is installed.
func TestKeysNeverTravelThroughAProxyOrInClearText(t *testing.T) {
	t.Parallel()
	proxy := listenBait(t, "127.0.9.3")
	environment := []string{"NO_PROXY=", "no_proxy="}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		environment = append(environment, name+"=http://"+proxy.addr, strings.ToLower(name)+"=http://"+proxy.addr)
	}
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1})
	token := f.Security.Path("token")
	if err := os.WriteFile(token, []byte("0123456789abcdefghij-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Security.Generate("next.key"); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) procs.Ran {
		return procs.Run(procs.Config{Binary: "relay", Dir: binaries, Env: environment, Args: args})
	}
	// 192.0.2.1 is of a network for examples: nothing answers there.
	for _, args := range [][]string{
		{"keys", "install", f.Security.Path("next.key"), "--admin-addr", "192.0.2.1:7430", "--admin-token-file", token},
		{"keys", "install", f.Security.Path("next.key"), "--admin-addr", "192.0.2.1:7430"},
		{"keys", "install", f.Security.Path("next.key"), "--admin-addr", "relay.example:7430"},
		{"members", "--admin-addr", "192.0.2.1:7430", "--admin-token-file", token},
	} {
		if r := run(args...); r.Code != 1 || !strings.Contains(r.Stderr, "clear text") || !strings.Contains(r.Stderr, "--admin-tls") {
			t.Errorf("want a refusal that says clear text and --admin-tls: %v", r)
		}
	}
	// On this host the same command works, without the proxy.
	admin := f.Relays[0].Admin
	if r := run("keys", "install", f.Security.Path("next.key"), "--admin-addr", admin); r.Code != 0 {
		t.Errorf("%v", r)
	}
	if status, body := f.get(admin, "/api/v1/keys"); status != http.StatusOK || strings.Count(body, `"fingerprints"`) < 2 {
		t.Errorf("%d %s", status, body)
	}
	proxy.untouched(t, "the proxy")
}

// TestASecretThatOtherUsersCanReadStartsNoMember gives a relay each of its secrets in a way that
// shows them to every user of the host.
func TestASecretThatOtherUsersCanReadStartsNoMember(t *testing.T) {
	t.Parallel()
	security, err := procs.NewSecurity(procs.SecurityConfig{Dir: t.TempDir(), Binaries: binaries, Cluster: cluster, Environment: environment})
	if err == nil {
		err = security.Issue(procs.Claims{Role: "relay", Node: "r1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.Repeat("5ea1", 16)
	readable := func(name, text string) string {
		file := security.Path(name)
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	key, err := os.ReadFile(security.Path("r1.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args   []string
		remedy string
	}{
		"the shared key in the list of processes": {[]string{"--shared-key", secret}, "--shared-key-file"},
		"the shared key in a file":                {[]string{"--shared-key-file", readable("shared.key", secret)}, "chmod 600"},
		"the token of the admin API":              {[]string{"--admin-token-file", readable("token", "0123456789abcdefghij-token")}, "chmod 600"},
		"the private key":                         {[]string{"--tls-key", readable("readable.key", string(key))}, "chmod 600"},
	} {
		args := append([]string{"run", "--cluster", cluster, "--environment", environment, "--id", "r1", "--admin-addr", "127.0.1.1:0", "--ingress-addr", "127.0.1.1:0",
			"--peer-addr", "127.0.1.1:0", "--gossip-addr", "127.0.1.1:0"}, security.Flags("r1", "r1")...)
		if r := procs.Run(procs.Config{Binary: "relay", Dir: binaries, Args: append(args, c.args...)}); r.Code <= 0 || !strings.Contains(r.Stderr, c.remedy) || strings.Contains(r.Stderr, secret) {
			t.Errorf("%s: want a refusal that says %q and not the secret: %v", name, c.remedy, r)
		}
	}
}
