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
	Services   string // that a worker may offer, separated by commas; default: it names none
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
func NewSecurity(cfg SecurityConfig) (*Security, error) {
	s := &Security{dir: cfg.Dir, binaries: cfg.Binaries, cluster: cfg.Cluster, environment: cfg.Environment}
	_, err := s.Generate("gossip.key")
	return s, errors.Join(err, s.Authority("ca"), s.Deny("# nothing yet"))
}

// Deny replaces the deny list that all members read.
func (s *Security) Deny(line string) error {
	next := s.Path("denied.next")
	if err := os.WriteFile(next, []byte(line+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(next, s.Path("denied"))
}

// Path returns the path of a file in Dir.
func (s *Security) Path(name string) string { return filepath.Join(s.dir, name) }

// relay runs a command of relay and returns its output.
func (s *Security) relay(args ...string) (string, error) {
	r := Run(Config{Binary: "relay", Dir: s.binaries, Args: args})
	if r.Code != 0 {
		return "", fmt.Errorf("%v", r)
	}
	return r.Stdout, nil
}

// Authority creates another authority.
func (s *Security) Authority(name string) error {
	_, err := s.relay("tls", "ca", "create", "--out", s.Path(name), "--days", "60")
	return err
}

// Generate writes a new gossip key to a file and returns it.
func (s *Security) Generate(name string) (string, error) {
	key, err := s.relay("keys", "generate")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(key), os.WriteFile(s.Path(name), []byte(key), 0o600)
}

// Certificate creates prefix.crt and prefix.key.
func (s *Security) Certificate(c Claims, authority, prefix string) error {
	args := []string{"tls", "cert", "create", "--ca", s.Path(authority), "--role", c.Role, "--node", c.Node,
		"--cluster", cmp.Or(c.Cluster, s.cluster), "--environment", s.environment, "--days", "30", "--out", s.Path(prefix)}
	if c.Services != "" {
		args = append(args, "--service", c.Services)
	}
	_, err := s.relay(args...)
	return err
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
