//go:build unix

package procs

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Security is an authority, a gossip key and the certificates of members, all created with
// the command line.
type Security struct {
	dir                  string // ca/, gossip.key, denied, <id>.crt, <id>.key, <id>.keys
	binaries             string
	cluster, environment string
}

// Claims are the claims of a certificate.
type Claims struct {
	Role, Node string
	Cluster    string // default: that of the Security
}

// SecurityConfig configures NewSecurity.
type SecurityConfig struct {
	// Dir gets the files; Binaries contains the relay binary, which creates the files.
	Dir, Binaries string
	// Cluster and Environment are those of the certificates; Claims can name another
	// cluster.
	Cluster, Environment string
}

// NewSecurity creates an authority and a gossip key.
func NewSecurity(t testing.TB, cfg SecurityConfig) *Security {
	t.Helper()
	s := &Security{dir: cfg.Dir, binaries: cfg.Binaries, cluster: cfg.Cluster, environment: cfg.Environment}
	s.Authority(t, "ca")
	s.Generate(t, "gossip.key")
	s.Deny(t, "# nothing yet")
	return s
}

// Deny replaces the deny list that all members read.
func (s *Security) Deny(t testing.TB, line string) {
	t.Helper()
	next := s.Path("denied.next")
	if err := os.WriteFile(next, []byte(line+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, s.Path("denied")); err != nil {
		t.Fatal(err)
	}
}

// Path returns the path of a file in Dir.
func (s *Security) Path(name string) string { return filepath.Join(s.dir, name) }

func (s *Security) relay(args ...string) Ran {
	return Run(Config{Binary: "relay", Dir: s.binaries, Args: args})
}

// Authority creates another authority.
func (s *Security) Authority(t testing.TB, name string) {
	t.Helper()
	if r := s.relay("tls", "ca", "create", "--out", s.Path(name), "--days", "60"); r.Code != 0 {
		t.Fatalf("%v", r)
	}
}

// Generate writes a new gossip key to a file and returns it.
func (s *Security) Generate(t testing.TB, name string) string {
	t.Helper()
	r := s.relay("keys", "generate")
	if r.Code != 0 {
		t.Fatalf("%v", r)
	}
	if err := os.WriteFile(s.Path(name), []byte(r.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(r.Stdout)
}

// Certificate creates prefix.crt and prefix.key.
func (s *Security) Certificate(c Claims, authority, prefix string) error {
	r := s.relay("tls", "cert", "create", "--ca", s.Path(authority), "--role", c.Role, "--node", c.Node,
		"--cluster", cmp.Or(c.Cluster, s.cluster), "--environment", s.environment, "--days", "30", "--out", s.Path(prefix))
	if r.Code != 0 {
		return fmt.Errorf("%v", r)
	}
	return nil
}

// Issue creates the certificate and the key file of a member unless they exist.
func (s *Security) Issue(c Claims) error {
	if _, err := os.Stat(s.Path(c.Node + ".keys")); err == nil {
		return nil
	}
	key, err := os.ReadFile(s.Path("gossip.key"))
	if err != nil {
		return err
	}
	return errors.Join(s.Certificate(c, "ca", c.Node), os.WriteFile(s.Path(c.Node+".keys"), key, 0o600))
}

// IssueAll calls Issue for relays r1, r2, … and workers w1, w2, …, several concurrently.
func (s *Security) IssueAll(t testing.TB, relays, workers int) {
	t.Helper()
	var group sync.WaitGroup
	place := make(chan struct{}, 4)
	issue := func(c Claims) {
		group.Go(func() {
			place <- struct{}{}
			defer func() { <-place }()
			if err := s.Issue(c); err != nil {
				t.Error(err)
			}
		})
	}
	for n := range relays {
		issue(Claims{Role: "relay", Node: fmt.Sprintf("r%d", n+1)})
	}
	for n := range workers {
		issue(Claims{Role: "worker", Node: fmt.Sprintf("w%d", n+1)})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// Flags returns the security flags of a member that uses the certificate of a holder.
func (s *Security) Flags(id, holder string) []string {
	return []string{"--tls-cert", s.Path(holder + ".crt"), "--tls-key", s.Path(holder + ".key"), "--tls-ca", s.Path("ca/ca.crt"),
		"--tls-deny-file", s.Path("denied"), "--gossip-key-file", s.Path(id + ".keys")}
}

// TLSConfig returns the configuration of a client that accepts any server and presents the
// certificate at the prefix, or none if the prefix is empty.
func (s *Security) TLSConfig(t testing.TB, prefix string, protocols ...string) *tls.Config {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: protocols} // the server verifies the client; the client does not verify the server
	if prefix != "" {
		pair, err := tls.LoadX509KeyPair(s.Path(prefix+".crt"), s.Path(prefix+".key"))
		if err != nil {
			t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config
}

// Serial returns the serial number of a certificate file.
func (s *Security) Serial(t testing.TB, prefix string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(s.Path(prefix+".crt"), s.Path(prefix+".key"))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf.SerialNumber.String()
}
