package command_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/command/relaycmd"
	"github.com/ringway/ringway/internal/command/workercmd"
)

// TestWhatRunRefusesValidateRefuses calls both verbs: they must agree, whatever a
// setting contains.
func TestWhatRunRefusesValidateRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	broken := write("broken", "no PEM, no key\n", 0o600)
	open := write("open", strings.Repeat("7", 64)+"\n", 0o644)
	keys := write("keys", strings.Repeat("7a", 32)+"\n", 0o600)
	ca, certs := filepath.Join(dir, "ca"), filepath.Join(dir, "certs")
	for _, args := range [][]string{{"tls", "ca", "create", "--out", ca}, {"tls", "cert", "create", "--ca", ca, "--role", "relay",
		"--node", "relay-1", "--cluster", "shop", "--environment", "prod", "--out", certs + "/"}} {
		if err := quietly(t, relaycmd.Command(), args); err != nil {
			t.Fatal(err)
		}
	}
	certificates := []string{"--tls-cert=" + filepath.Join(certs, "relay-1.crt"), "--tls-key=" + filepath.Join(certs, "relay-1.key"), "--tls-ca=" + filepath.Join(ca, "ca.crt")}

	relay := []string{"--ingress-addr=127.0.0.1:0", "--peer-addr=127.0.0.1:0"}
	worker := []string{"--service=hello=127.0.0.1:9000"}
	for name, c := range map[string]struct {
		binary string // empty: both
		args   []string
		want   string // in both errors; empty: valid
	}{
		"cluster":          {"", []string{"--cluster=Bad Name!"}, `--cluster "Bad Name!"`},
		"environment":      {"", []string{"--environment=a/b"}, `--environment "a/b"`},
		"id":               {"", []string{"--id=" + strings.Repeat("x", 64)}, "1 to 63 letters"},
		"datacenter":       {"", []string{"--datacenter=a b"}, `--datacenter "a b"`},
		"region":           {"", []string{"--region=ü"}, `--region "ü"`},
		"no certificates":  {"", []string{"--tls-cert=" + dir + "/none", "--tls-key=" + dir + "/none", "--tls-ca=" + dir + "/none"}, dir + "/none"},
		"bad certificates": {"", []string{"--tls-cert=" + broken, "--tls-key=" + broken, "--tls-ca=" + broken}, broken},
		"another's":        {"", append([]string{"--id=relay-2"}, certificates...), `the certificate has "relay-1"`},
		"our own":          {"relay", append([]string{"--id=relay-1"}, certificates...), ""},
		"no gossip keys":   {"", []string{"--gossip-key-file=" + dir + "/none"}, dir + "/none"},
		"bad gossip keys":  {"", []string{"--gossip-key-file=" + broken}, broken},
		"open gossip keys": {"", []string{"--gossip-key-file=" + open}, open},
		"gossip keys":      {"", []string{"--gossip-key-file=" + keys}, ""},
		"no tokens":        {"", []string{"--admin-token-file=" + dir + "/none"}, dir + "/none"},
		"a name server":    {"", []string{"--dns-server=nowhere"}, "nowhere"},
		"shared key":       {"relay", []string{"--shared-key=" + strings.Repeat("ab", 32)}, "give --shared-key-file, RINGWAY_SHARED_KEY or the file key"},
		"session cookie":   {"relay", []string{"--session-cookie=echo=s;d"}, "not the name of a cookie"},
		"cookie of policy": {"relay", []string{"--service-policy=echo=session-cookie=sid"}, "session-cookie has a setting of its own"},
		"worker's cookie":  {"worker", []string{"--service=a=127.0.0.1:1;session-cookie=a b"}, "not the name of a cookie"},
		"cookie over TCP":  {"worker", []string{"--service=a=127.0.0.1:1;protocol=tcp;session-cookie=sid"}, "a TCP session has no cookies"},
		"good cookies":     {"worker", []string{"--service=a=127.0.0.1:1;session-cookie=sid"}, ""},
		"no cookie":        {"relay", []string{"--session-cookie=echo="}, ""},
		"weight":           {"worker", []string{"--service=a=127.0.0.1:1;weight=0"}, "weight 0: want 1 to 100"},
		"selection":        {"worker", []string{"--service=a=127.0.0.1:1;selection=bogus"}, `invalid strategy: "bogus"`},
		"half a selection": {"worker", []string{"--service=a=127.0.0.1:1;selection=manual"}, "at least one node in preferred"},
		"relays":           {"worker", []string{"--service=a=127.0.0.1:1;relays=-1"}, "relays -1"},
		"address":          {"worker", []string{"--service=a=0.0.0.0:9000"}, "0.0.0.0"},
		"parameters":       {"worker", []string{"--service=a=127.0.0.1:1;selection=manual:preferred=w1+w2"}, ""},
		"sessions":         {"", []string{"--session-drain-timeout=1s"}, "at least --drain-timeout, 30s"},
		"no service CA":    {"", []string{"--service-ca=" + dir + "/none"}, dir + "/none"},
		"bad service CA":   {"", []string{"--service-ca=" + broken}, broken},
		"a service CA":     {"", []string{"--service-ca=" + filepath.Join(ca, "ca.crt")}, ""},
		"server name":      {"worker", []string{"--service=a=127.0.0.1:1;protocol=h2;server-name=a b"}, "no host name"},
		"useless name":     {"worker", []string{"--service=a=127.0.0.1:1;server-name=a"}, "only a service with protocol h2"},
		"relay's name":     {"relay", []string{"--service-server-name=billing=a:1"}, "no host name"},
		"two names":        {"relay", []string{"--service-server-name=a,b"}, "a second name for all other services"},
		"name of a gate":   {"relay", []string{"--role=gate", "--service-server-name=a"}, "a gate (--role gate) has none"},
		"nothing special":  {"", nil, ""},
	} {
		for binary, d := range map[string]struct {
			command func() *cobra.Command
			args    []string
		}{"relay": {relaycmd.Command, relay}, "worker": {workercmd.Command, worker}} {
			if c.binary != "" && c.binary != binary {
				continue
			}
			args := append([]string{"--cluster=shop", "--environment=prod", "--gossip-addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0"}, d.args...)
			if c.want == "" {
				if err := quietly(t, d.command(), append([]string{"config", "validate"}, append(args, c.args...)...)); err != nil {
					t.Errorf("%s: %s: validate refuses: %v", name, binary, err)
				}
				continue
			}
			for _, verb := range [][]string{{"run"}, {"config", "validate"}} {
				err := quietly(t, d.command(), append(verb, append(args, c.args...)...))
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %s %s: %v, want %q", name, binary, verb, err, c.want)
				}
			}
		}
	}
}

func TestAnInvalidSharedKeyOfTheEnvironmentIsRefused(t *testing.T) {
	t.Setenv("RINGWAY_SHARED_KEY", "abc")
	for _, verb := range [][]string{{"run"}, {"config", "validate"}} {
		err := quietly(t, relaycmd.Command(), append(verb, "--cluster=shop", "--environment=prod", "--gossip-addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0", "--ingress-addr=127.0.0.1:0", "--peer-addr=127.0.0.1:0"))
		if err == nil || !strings.Contains(err.Error(), "3 hex digits") {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// quietly executes a command whose daemon, if it starts, stops immediately.
func quietly(t *testing.T, root *cobra.Command, args []string) error {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	return root.ExecuteContext(ctx)
}
