package wirefixture

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// When the members of the fixtures booted, in Unix milliseconds, and their time since then, in
// microseconds, when they send. Their keys come from their names and all times are fixed, so
// that each build writes the same bytes.
const (
	Epoch = 1_800_000_000_000
	Tick  = 7_000_000
)

// Clock returns the time at the members, a minute after they booted.
func Clock() time.Time { return time.UnixMilli(Epoch).Add(time.Minute) }

// Member is a member of the cluster prod/eu with a certificate.
type Member struct {
	ID   string
	Role identity.Role
	// Addr is its gossip address.
	Addr string
	keys identity.KeyType
}

// The members.
var (
	Relay      = Member{"relay-1", identity.RoleRelay, "10.0.0.1:7400", identity.Ed25519}
	Gate       = Member{"gate-1", identity.RoleGate, "10.0.0.2:7400", identity.Ed25519}
	Worker     = Member{"worker-1", identity.RoleWorker, "10.0.0.3:7401", identity.Ed25519}
	WorkerP256 = Member{"worker-2", identity.RoleWorker, "10.0.0.4:7401", identity.ECDSAP256}
)

// Source returns the certificate of the member, with the URI names that release 0.1.0 issues.
func (m Member) Source(t testing.TB) *identity.Source {
	t.Helper()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	end := begin.AddDate(100, 0, 0)
	root := ed25519.NewKeyFromSeed(seedOf("authority"))
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ringway"}, NotBefore: begin, NotAfter: end,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	above, err := x509.CreateCertificate(nil, authority, authority, root.Public(), root)
	if err != nil {
		t.Fatal(err)
	}
	var private any = ed25519.NewKeyFromSeed(seedOf(m.ID))
	var public any = private.(ed25519.PrivateKey).Public()
	if m.keys == identity.ECDSAP256 {
		key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seedOf(m.ID))
		if err != nil {
			t.Fatal(err)
		}
		private, public = key, key.Public()
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: m.ID}, NotBefore: begin, NotAfter: end,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range []string{"ringway://role/" + string(m.Role), "ringway://cluster/prod", "ringway://env/eu", "ringway://dc/ams1", "ringway://node/" + m.ID} {
		u, err := url.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		leaf.URIs = append(leaf.URIs, u)
	}
	der, err := x509.CreateCertificate(nil, leaf, authority, public, root)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	s, err := identity.NewStaticSource(identity.PEM{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		Authorities: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: above}),
	}, identity.SourceConfig{Now: Clock})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func seedOf(name string) []byte {
	sum := sha256.Sum256([]byte("ringway fixtures, " + name))
	return sum[:]
}

// RandomSignature reports whether the signatures of the member differ each time.
func (m Member) RandomSignature() bool { return m.keys == identity.ECDSAP256 }

// Raise returns a change of one byte at a place from the front, or from the back.
func Raise(at int) func([]byte) []byte {
	return func(raw []byte) []byte { raw[(at+len(raw))%len(raw)]++; return raw }
}

// Extend adds bytes at the end.
func Extend(raw []byte) []byte { return append(raw, "\x05later"...) }
