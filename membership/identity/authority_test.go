package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/keyfile"
)

func TestAnAuthoritySurvivesItsFiles(t *testing.T) {
	a := newAuthority(t)
	key, err := a.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadAuthority(a.CertificatePEM(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	one, two := sourceOf(t, a, claimsOf(RoleRelay, "a")), sourceOf(t, again, claimsOf(RoleWorker, "b"))
	if m := meet(t, one.ClientConfig(one.Policy(DataPlane), Expected{}), two.ServerConfig(two.Policy(DataPlane))); !m.succeeded() {
		t.Errorf("%v, %v", m.client, m.server)
	}
}

func TestAnAuthorityMayHaveAnEd25519Key(t *testing.T) {
	now := time.Now()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, &x509.Certificate{}, public, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := encodeKey(private)
	if err != nil {
		t.Fatal(err)
	}
	a, err := LoadAuthority(pem.EncodeToMemory(&pem.Block{Type: keyfile.CertificateBlock, Bytes: der}), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	bothKeys(t, func(t *testing.T, keys KeyType) {
		one, two := sourceWith(t, a, keys, claimsOf(RoleRelay, "a")), sourceWith(t, a, keys, claimsOf(RoleWorker, "b"))
		if m := meet(t, one.ClientConfig(one.Policy(DataPlane), Expected{}), two.ServerConfig(two.Policy(DataPlane))); !m.succeeded() {
			t.Errorf("%v, %v", m.client, m.server)
		}
		if _, err := one.Certify(two.Chain()); err != nil {
			t.Error(err)
		}
	})
}

func TestAnAuthorityThatCannotIssueIsNotLoaded(t *testing.T) {
	a := newAuthority(t)
	key, err := a.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	member := issued(t, a, claimsOf(RoleRelay, "a"))
	for name, test := range map[string]struct {
		cert, key []byte
		now       func() time.Time
		want      string
	}{
		"no authority":  {member.Certificate, member.Key, nil, "is no authority"},
		"other key":     {a.CertificatePEM(), member.Key, nil, "does not match"},
		"nothing":       {nil, key, nil, "load authority"},
		"already ended": {a.CertificatePEM(), key, func() time.Time { return time.Now().Add(48 * time.Hour) }, "make a new one"},
	} {
		if _, err := LoadAuthority(test.cert, test.key, test.now); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v does not say %q", name, err, test.want)
		}
	}
}

func TestNoCertificateOutlivesItsAuthority(t *testing.T) {
	a := newAuthority(t)
	for validity, want := range map[time.Duration]string{25 * time.Hour: "after its authority", 0: "more than 0", -time.Hour: "more than 0"} {
		if _, _, err := a.Issue(claimsOf(RoleRelay, "a"), validity); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not say %q", validity, err, want)
		}
	}
	if _, err := NewAuthority(AuthorityConfig{}); err == nil {
		t.Error("an authority without a life")
	}
}

func TestInfoReportsTheContentOfACertificate(t *testing.T) {
	a := newAuthority(t)
	s := sourceOf(t, a, claimsOf(RoleRelay, "relay-1"))
	info := s.Info()
	if info.Claims == nil || *info.Claims != s.Claims() || info.Validity != Valid || info.Authority || info.Key != "Ed25519" ||
		info.Issuer != "CN=test" || info.Subject != "CN=relay-1" || len(info.Fingerprint) != 64 || info.Problem != "" {
		t.Errorf("%+v", info)
	}
	if r := info.RemainingSeconds; r <= 0 || r > 3600 {
		t.Errorf("remaining %d s", r)
	}
	if early := describe(a.cert, a.cert.NotBefore.Add(-time.Second), nil); early.Validity != NotYetValid || !early.Authority || early.Problem != "" || early.Claims != nil {
		t.Errorf("%+v", early)
	}
	if late := describe(a.cert, a.cert.NotAfter.Add(1500*time.Millisecond), nil); late.Validity != Expired || late.RemainingSeconds != -1 {
		t.Errorf("%+v", late)
	}
	bad := a.forge(t, Claims{Role: "boss"}, nil)
	if d := describe(bad.Leaf, time.Now(), nil); d.Claims != nil || !strings.Contains(d.Problem, "unknown role") {
		t.Errorf("%+v", d)
	}
}
