package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership/identity"
)

// runTLS runs the command in the tree of a relay.
func runTLS(t *testing.T, args ...string) (string, error) {
	t.Helper()
	set := settings.New("relay", "RINGWAY")
	settings.String(set, new(string), settings.Spec{Name: "gossip-addr", Usage: "a setting of run, which these commands refuse"})
	root := RelayTree(&Daemon{Name: "relay", Settings: set})
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"tls"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func mustRunTLS(t *testing.T, args ...string) string {
	t.Helper()
	out, err := runTLS(t, args...)
	if err != nil {
		t.Fatalf("tls %q: %v", args, err)
	}
	return out
}

func certArgs(ca, out string, more ...string) []string {
	return append([]string{"cert", "create", "--ca", ca, "--role", "relay", "--node", "relay-1",
		"--cluster", "shop", "--environment", "prod", "--out", out}, more...)
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	stat, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := stat.Mode().Perm(); got != want {
		t.Errorf("%s has mode %04o, want %04o", path, got, want)
	}
}

func TestCertificatesFromTheCommandsServeAMember(t *testing.T) {
	dir := t.TempDir()
	ca, certs := filepath.Join(dir, "ca"), filepath.Join(dir, "certs")
	if out := mustRunTLS(t, "ca", "create", "--out", ca, "--days", "30", "--name", "shop"); !strings.Contains(out, filepath.Join(ca, "ca.key")) {
		t.Errorf("the output does not say where the key is:\n%s", out)
	}
	wantMode(t, filepath.Join(ca, "ca.key"), 0o600)
	out := mustRunTLS(t, certArgs(ca, certs+"/", "--datacenter", "fra", "--days", "7")...)
	cert, key := filepath.Join(certs, "relay-1.crt"), filepath.Join(certs, "relay-1.key")
	wantMode(t, key, 0o600)
	if !strings.Contains(out, cert) || !strings.Contains(out, "relay relay-1 of shop/prod, datacenter fra") {
		t.Errorf("got\n%s", out)
	}
	if info := mustRunTLS(t, "info", cert); !strings.Contains(info, "Ed25519") {
		t.Errorf("not an Ed25519 key:\n%s", info)
	}
	mustRunTLS(t, certArgs(ca, certs+"/browser", "--days", "7", "--key-type", "ecdsa-p256")...)
	if info := mustRunTLS(t, "info", certs+"/browser.crt"); !strings.Contains(info, "ECDSA P-256") {
		t.Errorf("not an ECDSA key:\n%s", info)
	}
	source, err := identity.NewSource(identity.Files{Certificate: cert, Key: key, Authorities: filepath.Join(ca, "ca.crt")}, identity.SourceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	want := identity.Claims{Role: identity.RoleRelay, Cluster: "shop", Environment: "prod", Datacenter: "fra", Node: "relay-1"}
	if got := source.Claims(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOutIsAPrefixOrADirectory(t *testing.T) {
	dir := t.TempDir()
	mustRunTLS(t, "ca", "create", "--out", dir)
	for out, want := range map[string]string{
		filepath.Join(dir, "edge"):   filepath.Join(dir, "edge"),         // a prefix
		filepath.Join(dir) + "/x/":   filepath.Join(dir, "x", "relay-1"), // a directory to make
		dir:                          filepath.Join(dir, "relay-1"),      // one that is there
		filepath.Join(dir, "a", "b"): filepath.Join(dir, "a", "b"),       // a prefix in one to make
	} {
		mustRunTLS(t, certArgs(dir, out, "--days", "1")...)
		wantMode(t, want+".key", 0o600)
		wantMode(t, want+".crt", 0o644)
	}
}

func TestNothingIsEverOverwritten(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca")
	mustRunTLS(t, "ca", "create", "--out", ca)
	mustRunTLS(t, certArgs(ca, filepath.Join(dir, "one"))...)
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	files := []string{filepath.Join(ca, "ca.crt"), filepath.Join(ca, "ca.key"), filepath.Join(dir, "one.crt"), filepath.Join(dir, "one.key")}
	var before []string
	for _, f := range files {
		before = append(before, read(f))
	}
	for _, args := range [][]string{{"ca", "create", "--out", ca}, certArgs(ca, filepath.Join(dir, "one"))} {
		if _, err := runTLS(t, args...); err == nil || !strings.Contains(err.Error(), "nothing is overwritten") || !strings.Contains(err.Error(), ".key") {
			t.Errorf("%q: %v", args, err)
		}
	}
	// A key without its certificate counts, and no half is left behind.
	if err := os.Remove(filepath.Join(dir, "one.key")); err != nil {
		t.Fatal(err)
	}
	before[3] = ""
	if _, err := runTLS(t, certArgs(ca, filepath.Join(dir, "one"))...); err == nil {
		t.Error("wrote next to an old certificate")
	}
	// The same, when the file appears between the check and the write.
	if err := (pair{cert: files[2], key: files[3]}).write([]byte("x"), []byte("y")); err == nil {
		t.Error("wrote over an old certificate")
	}
	if _, err := os.Stat(files[3]); err == nil {
		t.Error("a key without its certificate was left behind")
	}
	for i, f := range files {
		if before[i] != "" && read(f) != before[i] {
			t.Errorf("%s changed", f)
		}
	}
}

func TestAllBadFlagsOfACertificateAreReportedInOneError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := runTLS(t, "cert", "create", "--ca", filepath.Join(dir, "none"), "--role", "boss", "--node", "a", "--cluster", "",
		"--datacenter", "ü", "--days", "0", "--out", filepath.Join(dir, "old"))
	for _, want := range []string{
		"--ca", "tls ca create", `--role "boss"`, "client, gate, relay, worker, observer", "--cluster", "--environment: required",
		`--datacenter "ü"`, `--days "0"`, "1 to 36500", "nothing is overwritten",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if _, err := runTLS(t, "ca", "create", "--gossip-addr", "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "--gossip-addr: this command does not know it") {
		t.Errorf("got %v", err)
	}
	if _, err := runTLS(t, "ca", "create", "--days", "-1", "--name", "ä"); err == nil || !strings.Contains(err.Error(), "3 settings are invalid") {
		t.Errorf("got %v", err)
	}
}

func TestACertificateMayNotOutliveItsAuthority(t *testing.T) {
	dir := t.TempDir()
	mustRunTLS(t, "ca", "create", "--out", dir, "--days", "10")
	if _, err := runTLS(t, certArgs(dir, dir, "--days", "11")...); err == nil || !strings.Contains(err.Error(), "outlive its authority; allowed: 1 to 9") {
		t.Errorf("got %v", err)
	}
	mustRunTLS(t, certArgs(dir, dir, "--days", "9")...)
}

func TestInfoShowsEveryCertificateOfEveryFile(t *testing.T) {
	dir := t.TempDir()
	mustRunTLS(t, "ca", "create", "--out", dir, "--name", "shop")
	mustRunTLS(t, certArgs(dir, dir)...)
	cert, ca := filepath.Join(dir, "relay-1.crt"), filepath.Join(dir, "ca.crt")
	table := mustRunTLS(t, "info", cert, ca)
	for _, want := range []string{"relay relay-1 of shop/prod", `authority "CN=shop"`, "valid, 29 days left", "Ed25519", "ECDSA P-256", cert, ca} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not say %q:\n%s", want, table)
		}
	}
	var infos []struct {
		File        string
		Claims      *identity.Claims
		Authority   bool
		Validity    string
		Fingerprint string
		Remaining   int64 `json:"remaining_seconds"`
	}
	if err := json.Unmarshal([]byte(mustRunTLS(t, "info", "-o", "json", cert, ca)), &infos); err != nil {
		t.Fatal(err)
	}
	if len(infos) != 2 || infos[0].Claims == nil || infos[0].Claims.Node != "relay-1" || infos[0].File != cert || infos[0].Remaining < 29*86400 ||
		!infos[1].Authority || infos[1].Claims != nil || infos[1].Validity != "valid" || len(infos[1].Fingerprint) != 64 {
		t.Errorf("got %+v", infos)
	}
}

func TestInfoReadsASPIFFEIDWithTheTemplateOfTheMembers(t *testing.T) {
	cert, _ := clienttlstest.New(t).Files(filepath.Join(t.TempDir(), "r1"), clienttlstest.Certificate{URI: "spiffe://shop.test/prod/shop/relay/r1"})
	if out := mustRunTLS(t, "info", "--identity-template", "spiffe://shop.test/{environment}/{cluster}/{role}/{node}", cert); !strings.Contains(out, "relay r1 of shop/prod") {
		t.Errorf("got\n%s", out)
	}
	if out := mustRunTLS(t, "info", cert); !strings.Contains(out, "only with an identity template") {
		t.Errorf("without it:\n%s", out)
	}
	if _, err := runTLS(t, "info", "--identity-template", "spiffe://shop.test/{node}", cert); err == nil || !strings.Contains(err.Error(), "{environment} is missing: it must be spiffe://") {
		t.Errorf("a template that cannot be used: %v", err)
	}
}

func TestInfoShowsTheGoodFilesAndFailsForTheBad(t *testing.T) {
	dir := t.TempDir()
	mustRunTLS(t, "ca", "create", "--out", dir)
	out, err := runTLS(t, "info", filepath.Join(dir, "none"), filepath.Join(dir, "ca.key"), filepath.Join(dir, "ca.crt"))
	if !strings.Contains(out, `authority "CN=ringway"`) {
		t.Errorf("got\n%s", out)
	}
	for _, want := range []string{"none", "ca.key: no certificate in it", "PRIVATE KEY"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if _, err := runTLS(t, "info"); err == nil {
		t.Error("no file, no error")
	}
	if _, err := runTLS(t, "info", "-o", "xml", filepath.Join(dir, "ca.crt")); err == nil || !strings.Contains(err.Error(), "table, json") {
		t.Errorf("got %v", err)
	}
}

func TestHelpListsTheCommandsAndNotTheDaemonsFlags(t *testing.T) {
	if out := mustRunTLS(t, "--help"); !strings.Contains(out, "info") || !strings.Contains(out, "cert") || strings.Contains(out, "gossip-addr") {
		t.Errorf("got\n%s", out)
	}
	if out := mustRunTLS(t, "cert", "create", "--help"); !strings.Contains(out, "--datacenter") || strings.Contains(out, "gossip-addr") || strings.Contains(out, "--config") {
		t.Errorf("got\n%s", out)
	}
}

// HS-B5 and the design: all pairs.
func TestRolesShowsTheConnectionMatrix(t *testing.T) {
	const want = `initiator \ target  client  gate    relay     worker    observer
client              no      submit  submit    no        no
gate                push    peer    forward   no        no
relay               push    report  peer      dispatch  no
worker              no      no      progress  no        no
observer            no      submit  submit    dispatch  no
`
	if got := mustRunTLS(t, "roles"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
