//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// TestCommandsForCertificatesAndKeysExplainWhatIsWrong asks for what cannot be
// done: exit code 1, the cause and the remedy.
func TestCommandsForCertificatesAndKeysExplainWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := newSecurity(t, t.TempDir())
	if err := s.Certificate(claims{Role: "relay", Node: "r1"}, "ca", "there"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path("garbage"), []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A relay without gossip keys.
	f := startFleet(t, fleetConfig{Relays: 1})
	keyless := f.relays[0]
	procs.Await(t, "the relay answers", func() bool { return f.client.get(keyless.Admin, "/healthz").status == 200 })
	closed := freeAddr(t)

	issue := []string{"tls", "cert", "create", "--ca", s.Path("ca"), "--role", "relay", "--node", "r1",
		"--cluster", cluster, "--environment", environment}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"no such command of tls", []string{"tls", "bogus"}, []string{`unknown command "bogus"`}},
		{"an authority nowhere", []string{"tls", "ca", "create"}, []string{"--out: required"}},
		{"an authority for no time", []string{"tls", "ca", "create", "--out", s.Path("new"), "--days", "0"}, []string{"--days", `"0"`, "1 to 36500"}},
		{"an authority over another", []string{"tls", "ca", "create", "--out", s.Path("ca")}, []string{"--out", "nothing is overwritten", "ca.crt"}},
		{"a flag of the daemon", []string{"tls", "ca", "create", "--out", s.Path("new"), "--gossip-addr", "127.0.0.1:1"}, []string{"--gossip-addr", "does not know it"}},
		{"a certificate of everything wrong", []string{"tls", "cert", "create", "--ca", s.Path("nowhere"), "--role", "boss", "--node", "a/b", "--days", "x"},
			[]string{"--ca", "no authority there", "--cluster: required", "--environment: required", "--out: required", "--node", `"a/b"`, "--role", `"boss"`, "client, gate, relay, worker, observer", "--days", "not a whole number"}},
		{"a certificate that outlives its authority", append(issue, "--out", s.Path("new"), "--days", "61"), []string{"--days", `"61"`, "outlive its authority"}},
		{"a certificate over another", append(issue, "--out", s.Path("there")), []string{"--out", "nothing is overwritten", "there.crt"}},
		{"info about nothing", []string{"tls", "info"}, []string{"want FILE..., got no argument"}},
		{"info about a file that is not there", []string{"tls", "info", s.Path("nowhere.crt")}, []string{"nowhere.crt", "no such file"}},
		{"info about a key", []string{"tls", "info", s.Path("there.key")}, []string{"there.key", "no certificate in it"}},
		{"info about garbage", []string{"tls", "info", s.Path("garbage")}, []string{"garbage", "no PEM block in it", "BEGIN CERTIFICATE"}},
		{"no such command of keys", []string{"keys", "bogus"}, []string{`unknown command "bogus"`}},
		{"use of nothing", []string{"keys", "use"}, []string{"want FINGERPRINT, got no argument"}},
		{"a form that there is not", []string{"keys", "list", "-o", "xml", "--admin-addr", keyless.Admin}, []string{`"xml"`, "table, json"}},
		{"a relay that does not run", []string{"keys", "list", "--admin-addr", closed}, []string{closed, "is it running"}},
		{"a relay without keys", []string{"keys", "list", "--admin-addr", keyless.Admin}, []string{"no gossip keys", "gossip key file"}},
		{"installing a key where there are none", []string{"keys", "install", s.Path("gossip.key"), "--admin-addr", keyless.Admin}, []string{"no gossip keys"}},
		{"installing a file that is not there", []string{"keys", "install", s.Path("nowhere.key"), "--admin-addr", keyless.Admin}, []string{"nowhere.key", "no such file"}},
		{"installing garbage", []string{"keys", "install", s.Path("garbage"), "--admin-addr", keyless.Admin}, []string{s.Path("garbage"), "relay keys generate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			refusedCommand(t, c.want, c.args...)
		})
	}
	t.Cleanup(func() { // after the commands, which run in parallel
		for _, name := range []string{"new", "new.crt", "new.key"} {
			if _, err := os.Stat(s.Path(name)); err == nil {
				t.Errorf("a command that was refused wrote %s", name)
			}
		}
	})
}

// TestAProcessWithoutUsableKeysDoesNotStart has key files that were made in a
// hurry.
func TestAProcessWithoutUsableKeysDoesNotStart(t *testing.T) {
	t.Parallel()
	s := newSecurity(t, t.TempDir())
	key, err := os.ReadFile(s.Path("gossip.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		text string
		mode os.FileMode
		want string
	}{
		{"readable for others", string(key), 0o644, "chmod 600"},
		{"empty", "", 0o600, "relay keys generate"},
		{"cut short", string(key[:len(key)/2]), 0o600, "keys:1"},
		{"garbage behind a key", string(key) + "garbage\n", 0o600, "keys:2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "keys")
			if err := os.WriteFile(file, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
			p := start(t, processConfig{Name: "worker", Binary: "worker", Args: []string{
				"--cluster", cluster, "--environment", environment, "--id", "w1", "--log-format", "json",
				"--gossip-addr", freeAddr(t), "--admin-addr", freeAddr(t), "--service", "echo=127.0.0.1:1", "--gossip-key-file", file}})
			checkRefusal(t, p, file, c.want)
		})
	}
}

func checkRefusal(t *testing.T, p *process, want ...string) {
	t.Helper()
	code, text := p.Exit(t), p.Output()
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	containsAll(t, text, want)
}
