package identity

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/keyfile"
)

// sourceWith is a member with a key of the given type.
func sourceWith(t testing.TB, a *Authority, keys KeyType, c Claims) *Source {
	t.Helper()
	cert, key, err := a.IssueKey(keys, c, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStaticSource(PEM{Certificate: cert, Key: key, Authorities: a.CertificatePEM()}, SourceConfig{Now: a.now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func bothKeys(t *testing.T, test func(t *testing.T, keys KeyType)) {
	for _, keys := range []KeyType{Ed25519, ECDSAP256} {
		t.Run(string(keys), func(t *testing.T) { test(t, keys) })
	}
}

func TestAStatementCountsOnlyAsItWasSignedAndForItsAuthor(t *testing.T) {
	bothKeys(t, func(t *testing.T, keys KeyType) {
		a := newAuthority(t)
		us := sourceOf(t, a, claimsOf(RoleRelay, "relay-1"))
		author, other := sourceWith(t, a, keys, claimsOf(RoleWorker, "worker-1")), sourceWith(t, a, keys, claimsOf(RoleWorker, "worker-2"))
		c, err := us.Certify(author.Chain())
		if err != nil {
			t.Fatal(err)
		}
		if c.Claims != author.Claims() || c.Serial != author.Info().Serial || c.KeyID != KeyID(author.Chain()[0]) ||
			!strings.HasPrefix(author.Info().Fingerprint, hexOf(c.KeyID)) || !c.NotAfter.Equal(author.Info().NotAfter) {
			t.Errorf("certified %+v", c)
		}
		message := []byte("worker-1 leaves")
		_, signature, err := author.Sign(message)
		if err != nil || len(signature) != signatureSize {
			t.Fatalf("%d bytes, %v", len(signature), err)
		}
		if err := c.Verify(message, signature); err != nil {
			t.Errorf("refused: %v", err)
		}
		for i := range signature {
			forged := slices.Clone(signature)
			forged[i] ^= 1
			if c.Verify(message, forged) == nil {
				t.Errorf("a signature with byte %d changed counts", i)
			}
		}
		_, theirs, _ := other.Sign(message)
		for what, forged := range map[string][]byte{"another's": theirs, "none": nil, "short": signature[:63], "long": append(signature, 0), "zeros": make([]byte, 64)} {
			if c.Verify(message, forged) == nil {
				t.Errorf("signature %s counts", what)
			}
		}
		if c.Verify([]byte("worker-2 leaves"), signature) == nil {
			t.Error("the signature counts for another message")
		}
	})
}

func hexOf(id [8]byte) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, v := range id {
		b.WriteByte(digits[v>>4])
		b.WriteByte(digits[v&15])
	}
	return b.String()
}

func TestNothingIsSignedThatCouldPassForAHandshake(t *testing.T) {
	s := sourceOf(t, newAuthority(t), claimsOf(RoleRelay, "relay-1"))
	for _, message := range []string{"", strings.Repeat(" ", 64) + "TLS 1.3, client CertificateVerify\x00" + strings.Repeat("h", 32)} {
		if _, signature, err := s.Sign([]byte(message)); err == nil {
			t.Errorf("signed %q: %x", message, signature)
		}
	}
}

func TestOnlyAMemberOfOursWithAGoodCertificateIsCertified(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	us := sourceOf(t, a, claimsOf(RoleRelay, "relay-1"))
	worker := claimsOf(RoleWorker, "worker-1")
	set := func(change func(*Claims)) Claims { c := worker; change(&c); return c }
	good := a.forge(t, worker, nil).Certificate
	many := slices.Repeat(good, 5)
	large := a.forge(t, worker, func(c *x509.Certificate) {
		c.DNSNames = slices.Repeat([]string{strings.Repeat("a", 200) + ".example"}, 90)
	}).Certificate
	for name, test := range map[string]struct {
		chain [][]byte
		want  Reason
	}{
		"good":              {good, ""},
		"with its root":     {append(slices.Clone(good), a.cert.Raw), ""},
		"nothing":           {nil, reasonMalformed},
		"five":              {many, reasonMalformed},
		"too large":         {large, reasonMalformed},
		"no certificate":    {[][]byte{[]byte("hello")}, reasonMalformed},
		"cut short":         {[][]byte{good[0][:100]}, reasonMalformed},
		"other authority":   {other.forge(t, worker, nil).Certificate, reasonUnknownAuthority},
		"ended":             {a.forge(t, worker, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }).Certificate, reasonExpired},
		"not begun":         {a.forge(t, worker, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }).Certificate, reasonNotYetValid},
		"only for servers":  {a.forge(t, worker, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }).Certificate, reasonKeyUsage},
		"only for clients":  {a.forge(t, worker, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }).Certificate, reasonKeyUsage},
		"other cluster":     {a.forge(t, set(func(c *Claims) { c.Cluster = "staging" }), nil).Certificate, reasonCluster},
		"other environment": {a.forge(t, set(func(c *Claims) { c.Environment = "us" }), nil).Certificate, reasonEnvironment},
		"a client":          {a.forge(t, set(func(c *Claims) { c.Role = RoleClient }), nil).Certificate, reasonRole},
		"no claims":         {a.forge(t, worker, func(c *x509.Certificate) { c.URIs = nil }).Certificate, reasonMalformed},
		"the authority":     {[][]byte{a.cert.Raw}, reasonMalformed},
	} {
		c, err := us.Certify(test.chain)
		if got, _ := reasonOf(err); got != test.want || (err == nil) != (c != nil) || (err == nil) != (test.want == "") {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestAKeyThatCannotSignStatementsIsRefusedAtLoadWithTheRemedy(t *testing.T) {
	for name, key := range weakKeys(t) {
		a := newAuthority(t)
		content := func(c Claims) PEM {
			der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
				SerialNumber: a.cert.SerialNumber, URIs: c.uris(), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			}, a.cert, key.Public(), a.key)
			if err != nil {
				t.Fatal(err)
			}
			keyPEM, err := encodeKey(key)
			if err != nil {
				t.Fatal(err)
			}
			return PEM{Certificate: pem.EncodeToMemory(&pem.Block{Type: keyfile.CertificateBlock, Bytes: der}), Key: keyPEM, Authorities: a.CertificatePEM()}
		}
		member := content(claimsOf(RoleWorker, "worker-1"))
		if _, err := NewStaticSource(member, SourceConfig{}); err == nil || !strings.Contains(err.Error(), "`tls cert create` creates a suitable one") {
			t.Errorf("%s: loaded, or without the remedy: %v", name, err)
		}
		// Of another member's it is found when it is checked.
		pair, err := tls.X509KeyPair(member.Certificate, member.Key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = sourceOf(t, a, claimsOf(RoleRelay, "relay-1")).Certify(pair.Certificate)
		if r, _ := reasonOf(err); r != reasonKeyUsage {
			t.Errorf("%s: %v", name, err)
		}
		// A client sends nothing in gossip: any key will do.
		client, err := NewStaticSource(content(claimsOf(RoleClient, "client-1")), SourceConfig{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, _, err := client.Sign([]byte("hello")); err == nil {
			t.Errorf("%s signs", name)
		}
	}
}

func TestACertifiedMemberCountsUntilItEndsIsDeniedOrItsAuthorityGoes(t *testing.T) {
	older, newer := newAuthority(t), newAuthority(t)
	both := append(older.CertificatePEM(), newer.CertificatePEM()...)
	now := time.Now()
	f := filesIn(t.TempDir())
	f.Denied = f.Key + ".denied"
	first := issued(t, older, claimsOf(RoleRelay, "relay-1"))
	first.Authorities = both
	write(t, f, first)
	us, err := NewSource(f, SourceConfig{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	certified := func(a *Authority, node string) *Certified {
		t.Helper()
		c, err := us.Certify(sourceOf(t, a, claimsOf(RoleWorker, node)).Chain())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	byOlder, byNewer, denied, bySerial := certified(older, "a"), certified(newer, "b"), certified(newer, "c"), certified(newer, "d")
	expect := func(step string, c *Certified, want Reason) {
		t.Helper()
		for range 2 { // judged, and remembered
			if got, _ := reasonOf(us.Recheck(c)); got != want {
				t.Errorf("%s: %s is refused as %q, want %q", step, c.Claims.Node, got, want)
			}
		}
	}
	for _, c := range []*Certified{byOlder, byNewer, denied, bySerial} {
		expect("at first", c, "")
	}
	deny(t, f, "node c\nserial "+bySerial.Serial)
	mustReload(t, us, true)
	expect("with a deny list", byOlder, "")
	expect("with a deny list", denied, reasonDenied)
	expect("with a deny list", bySerial, reasonDenied)
	deny(t, f, "")
	mustReload(t, us, true)
	expect("with an empty list", denied, "")

	second := issued(t, newer, claimsOf(RoleRelay, "relay-1"))
	write(t, f, second)
	mustReload(t, us, true)
	expect("without the older authority", byOlder, reasonUnknownAuthority)
	expect("without the older authority", byNewer, "")
	now = now.Add(2 * time.Hour)
	expect("two hours later", byNewer, reasonExpired)
}

func TestACertificateCountsNoLongerThanItsAuthority(t *testing.T) {
	now := time.Now()
	a, err := NewAuthority(AuthorityConfig{Validity: 61 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	us, err := NewStaticSource(issued(t, a, claimsOf(RoleRelay, "relay-1")), SourceConfig{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	c, err := us.Certify(a.forge(t, claimsOf(RoleWorker, "w"), func(c *x509.Certificate) { c.NotAfter = now.Add(9 * time.Hour) }).Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if !c.NotAfter.Equal(a.cert.NotAfter) {
		t.Errorf("it ends at %s, its authority at %s", c.NotAfter, a.cert.NotAfter)
	}
	now = now.Add(2 * time.Hour)
	if r, _ := reasonOf(us.Recheck(c)); r != reasonExpired {
		t.Errorf("after the end of its authority it is refused as %q", r)
	}
}

func FuzzCertify(f *testing.F) {
	a := newAuthority(f)
	us := sourceOf(f, a, claimsOf(RoleRelay, "relay-1"))
	good := a.forge(f, claimsOf(RoleWorker, "w"), nil).Certificate[0]
	f.Add(good, a.cert.Raw)
	f.Add(a.cert.Raw, good)
	f.Add([]byte{0x30, 0x82}, []byte(nil))
	f.Fuzz(func(t *testing.T, leaf, above []byte) {
		c, err := us.Certify([][]byte{leaf, above})
		if err == nil {
			checkAccepted(t, c.Claims)
		} else if _, ok := reasonOf(err); !ok {
			t.Fatalf("a refusal without a reason: %v", err)
		}
	})
}

func BenchmarkProof(b *testing.B) {
	message := []byte(strings.Repeat("m", 1200)) // a full packet
	for _, keys := range []KeyType{Ed25519, ECDSAP256} {
		a := newAuthority(b)
		us := sourceWith(b, a, keys, claimsOf(RoleRelay, "relay-1"))
		c, err := us.Certify(us.Chain())
		if err != nil {
			b.Fatal(err)
		}
		_, signature, err := us.Sign(message)
		if err != nil {
			b.Fatal(err)
		}
		for name, step := range map[string]func() error{
			"sign":    func() error { _, _, err := us.Sign(message); return err },
			"verify":  func() error { return c.Verify(message, signature) },
			"certify": func() error { _, err := us.Certify(us.Chain()); return err },
			"recheck": func() error { return us.Recheck(c) },
		} {
			b.Run(name+"/"+string(keys), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := step(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
