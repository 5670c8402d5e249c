//go:build unix

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// security is an authority, a gossip key and what was made of them, all by the
// command line.
type security struct {
	dir string // ca/, gossip.key, <id>.crt, <id>.key, <id>.keys
}

// claims is who a certificate is for.
type claims struct {
	role, node string
	cluster    string // default: cluster
}

func newSecurity(t *testing.T, dir string) *security {
	t.Helper()
	s := &security{dir: dir}
	s.authority(t, "ca")
	s.generate(t, "gossip.key")
	return s
}

func (s *security) path(name string) string { return filepath.Join(s.dir, name) }

// authority makes another authority.
func (s *security) authority(t *testing.T, name string) {
	t.Helper()
	if r := ringway(t, "tls", "ca", "create", "--out", s.path(name), "--days", "60"); r.code != 0 {
		t.Fatalf("%v", r)
	}
}

// generate writes a new gossip key to a file and returns it.
func (s *security) generate(t *testing.T, name string) string {
	t.Helper()
	r := ringway(t, "keys", "generate")
	if r.code != 0 {
		t.Fatalf("%v", r)
	}
	if err := os.WriteFile(s.path(name), []byte(r.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(r.stdout)
}

// certificate issues prefix.crt and prefix.key.
func (s *security) certificate(t *testing.T, c claims, authority, prefix string) error {
	r := ringway(t, "tls", "cert", "create", "--ca", s.path(authority), "--role", c.role, "--node", c.node,
		"--cluster", cmp.Or(c.cluster, cluster), "--environment", environment, "--days", "30", "--out", s.path(prefix))
	if r.code != 0 {
		return fmt.Errorf("%v", r)
	}
	return nil
}

// issue gives a member what it needs, unless it has it.
func (s *security) issue(t *testing.T, c claims) error {
	if _, err := os.Stat(s.path(c.node + ".keys")); err == nil {
		return nil
	}
	key, err := os.ReadFile(s.path("gossip.key"))
	if err != nil {
		return err
	}
	return errors.Join(s.certificate(t, c, "ca", c.node), os.WriteFile(s.path(c.node+".keys"), key, 0o600))
}

// issueAll does it for a whole fleet, several at a time.
func (s *security) issueAll(t *testing.T, relays, workers int) {
	t.Helper()
	var group sync.WaitGroup
	place := make(chan struct{}, 4)
	issue := func(c claims) {
		group.Go(func() {
			place <- struct{}{}
			defer func() { <-place }()
			if err := s.issue(t, c); err != nil {
				t.Error(err)
			}
		})
	}
	for n := range relays {
		issue(claims{role: "relay", node: fmt.Sprintf("r%d", n+1)})
	}
	for n := range workers {
		issue(claims{role: "worker", node: fmt.Sprintf("w%d", n+1)})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// flags are those of a member, with the certificate of a holder.
func (s *security) flags(id, holder string) []string {
	return []string{"--tls-cert", s.path(holder + ".crt"), "--tls-key", s.path(holder + ".key"), "--tls-ca", s.path("ca/ca.crt"),
		"--gossip-key-file", s.path(id + ".keys")}
}

// secure returns the flags of one member; none in a fleet without security.
func (f *fleet) secure(t *testing.T, c claims) []string {
	t.Helper()
	if f.security == nil {
		return nil
	}
	if err := f.security.issue(t, c); err != nil {
		t.Fatal(err)
	}
	return f.security.flags(c.node, c.node)
}

// tlsConfig is that of a client which trusts everybody and shows the certificate
// at the prefix, or none.
func (s *security) tlsConfig(t *testing.T, prefix string, protocols ...string) *tls.Config {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: protocols} // it is judged, it does not judge
	if prefix != "" {
		pair, err := tls.LoadX509KeyPair(s.path(prefix+".crt"), s.path(prefix+".key"))
		if err != nil {
			t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config
}

// serial is that of a certificate file.
func (s *security) serial(t *testing.T, prefix string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(s.path(prefix+".crt"), s.path(prefix+".key"))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf.SerialNumber.String()
}

// ran is what a command did.
type ran struct {
	args           []string
	code           int
	stdout, stderr string
}

func (r ran) String() string {
	return fmt.Sprintf("relay %s: exit code %d\n%s%s", strings.Join(r.args, " "), r.code, r.stdout, r.stderr)
}

// ringway runs a command of relay to its end.
func ringway(t *testing.T, args ...string) ran { return commandOf(t, "relay", args...) }

// commandOf runs a command of a binary to its end.
func commandOf(t *testing.T, binary string, args ...string) ran {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(plain(t), binary), args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RINGWAY_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit code tells
	return ran{args: args, code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// plain is where the binaries without race detector are.
func plain(t *testing.T) string {
	dir, err := plainBinaries()
	if err != nil {
		t.Error(err)
	}
	return dir
}
