package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/keyfile"
)

// shopTemplate is the template of the tests: fixed text before, between and behind placeholders.
const shopTemplate = "spiffe://shop.test/ns/{environment}/{cluster}/ringway/{role}/{node}"

// foreign issues a certificate as another issuer would, with the change for what that issuer does
// otherwise.
func foreign(t testing.TB, a *Authority, key crypto.Signer, ids []string, change func(*x509.Certificate)) PEM {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: a.cert.SerialNumber, URIs: uris(t, ids...), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return PEM{Certificate: pem.EncodeToMemory(&pem.Block{Type: keyfile.CertificateBlock, Bytes: der}), Key: keyPEM, Authorities: a.CertificatePEM()}
}

// spelled replaces the names of a certificate by URIs that package url would not write.
func spelled(ids ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		var names []asn1.RawValue
		for _, id := range ids {
			names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: uriTag, Bytes: []byte(id)})
		}
		value, err := asn1.Marshal(names)
		if err != nil {
			panic(err)
		}
		c.URIs, c.ExtraExtensions = nil, []pkix.Extension{{Id: subjectAltName, Value: value}}
	}
}

func p256(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func shopID(role Role, node string) string {
	return fmt.Sprintf("spiffe://shop.test/ns/eu/prod/ringway/%s/%s", role, node)
}

// shopSource is a Source with the template and a certificate that SPIRE would issue.
func shopSource(t testing.TB, a *Authority, role Role, node string) *Source {
	t.Helper()
	s, err := NewStaticSource(foreign(t, a, p256(t), []string{shopID(role, node)}, nil), SourceConfig{Template: shopTemplate})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pairOf(t testing.TB, p PEM) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestATemplateReadsTheClaimsFromASPIFFEID(t *testing.T) {
	for text, id := range map[string]string{
		shopTemplate: shopID(RoleWorker, "echo-7"),
		"spiffe://shop.test/{environment}/{cluster}/{role}/{node}":     "spiffe://shop.test/eu/prod/worker/echo-7",
		"spiffe://shop.test/{node}/{role}/{cluster}/{environment}/svc": "spiffe://shop.test/echo-7/worker/prod/eu/svc",
		"spiffe://10.0.0.1/{role}/_.-/{node}/{environment}/{cluster}":  "spiffe://10.0.0.1/worker/_.-/echo-7/eu/prod",
	} {
		parsed, err := parseTemplate(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want := Claims{Role: RoleWorker, Cluster: "prod", Environment: "eu", Node: "echo-7"}
		if got, err := parsed.match(id); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestATemplateThatCouldBeReadInTwoWaysIsRefused(t *testing.T) {
	const rest = "{environment}/{cluster}/{role}/{node}"
	for text, want := range map[string]string{
		"shop.test/" + rest:                                        "begin with spiffe://",
		"SPIFFE://shop.test/" + rest:                               "begin with spiffe://",
		"ringway://shop.test/" + rest:                              "begin with spiffe://",
		"spiffe:/shop.test/" + rest:                                "begin with spiffe://",
		"spiffe:///" + rest:                                        "trust domain",
		"spiffe://Shop.test/" + rest:                               "trust domain",
		"spiffe://shop.test:443/" + rest:                           "trust domain",
		"spiffe://user@shop.test/" + rest:                          "trust domain",
		"spiffe://*/" + rest:                                       "trust domain",
		"spiffe://{environment}/{cluster}/{role}/{node}":           "trust domain",
		"spiffe://" + strings.Repeat("a", 256) + "/" + rest:        "trust domain",
		"spiffe://shop.test":                                       "no path",
		"spiffe://shop.test/":                                      "element 1",
		"spiffe://shop.test/" + rest + "/":                         "element 5",
		"spiffe://shop.test//" + rest:                              "element 1",
		"spiffe://shop.test/../" + rest:                            "element 1",
		"spiffe://shop.test/./" + rest:                             "element 1",
		"spiffe://shop.test/a%2Fb/" + rest:                         "element 1",
		"spiffe://shop.test/*/" + rest:                             "element 1",
		"spiffe://shop.test/" + rest + "?a=b":                      "exactly one known placeholder",
		"spiffe://shop.test/" + rest + "#a":                        "exactly one known placeholder",
		"spiffe://shop.test/{environment}{cluster}/{role}/{node}":  "exactly one known placeholder",
		"spiffe://shop.test/{environment}-{cluster}/{role}/{node}": "exactly one known placeholder",
		"spiffe://shop.test/a-{environment}/{cluster}/{role}/n":    "exactly one known placeholder",
		"spiffe://shop.test/{service}/" + rest:                     "exactly one known placeholder",
		"spiffe://shop.test/{Node}/" + rest:                        "exactly one known placeholder",
		"spiffe://shop.test/{}/" + rest:                            "exactly one known placeholder",
		"spiffe://shop.test/{node/" + rest:                         "exactly one known placeholder",
		"spiffe://shop.test/node}/" + rest:                         "exactly one known placeholder",
		"spiffe://shop.test/{node}/" + rest:                        "{node} is in it twice",
		"spiffe://shop.test/{environment}/{cluster}/{role}/x":      "{node} is missing",
		"spiffe://shop.test/{environment}/{cluster}/x/{node}":      "{role} is missing",
		"spiffe://shop.test/{environment}/x/{role}/{node}":         "{cluster} is missing",
		"spiffe://shop.test/x/{cluster}/{role}/{node}":             "{environment} is missing",
		"spiffe://shop.test/" + strings.Repeat("a/", 40) + rest:    "more than",
		" spiffe://shop.test/" + rest:                              "begin with spiffe://",
		"spiffe://shop.test/" + rest + " ":                         "exactly one known placeholder",
	} {
		if err := CheckTemplate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := CheckTemplate(""); err != nil {
		t.Errorf("no template: %v", err)
	}
	a := newAuthority(t)
	_, err := NewStaticSource(foreign(t, a, p256(t), []string{shopID(RoleRelay, "r1")}, nil), SourceConfig{Template: "spiffe://shop.test/{node}"})
	if err == nil || !strings.Contains(err.Error(), `identity template "spiffe://shop.test/{node}": {environment} is missing: it must be spiffe://`) {
		t.Errorf("a Source takes it, or without the remedy: %v", err)
	}
}

// hostileIDs are IDs for which a member without the name of a relay might ask an issuer.
var hostileIDs = map[string]string{
	"an escaped letter":         "spiffe://shop.test/ns/eu/prod/ringway/r%65lay/r1",
	"an escaped slash":          "spiffe://shop.test/ns/eu/prod/ringway/relay/a%2Fr1",
	"an escaped dot":            "spiffe://shop.test/ns/eu/prod/ringway/relay/%2E%2E",
	"an empty element":          "spiffe://shop.test/ns/eu//prod/ringway/relay/r1",
	"an empty node":             "spiffe://shop.test/ns/eu/prod/ringway/relay/",
	"an empty cluster":          "spiffe://shop.test/ns/eu//ringway/relay/r1",
	"a slash behind":            "spiffe://shop.test/ns/eu/prod/ringway/relay/r1/",
	"a slash in the node":       "spiffe://shop.test/ns/eu/prod/ringway/relay/a/r1",
	"a node of dots":            "spiffe://shop.test/ns/eu/prod/ringway/relay/..",
	"a cluster of a dot":        "spiffe://shop.test/ns/eu/./ringway/relay/r1",
	"a way back":                "spiffe://shop.test/ns/eu/prod/ringway/worker/../relay/r1",
	"a scheme in capitals":      "SPIFFE://shop.test/ns/eu/prod/ringway/relay/r1",
	"another scheme":            "https://shop.test/ns/eu/prod/ringway/relay/r1",
	"no scheme":                 "//shop.test/ns/eu/prod/ringway/relay/r1",
	"one slash":                 "spiffe:/shop.test/ns/eu/prod/ringway/relay/r1",
	"another trust domain":      "spiffe://evil.test/ns/eu/prod/ringway/relay/r1",
	"a longer trust domain":     "spiffe://shop.test.evil.test/ns/eu/prod/ringway/relay/r1",
	"a trust domain below":      "spiffe://a.shop.test/ns/eu/prod/ringway/relay/r1",
	"a trust domain in capital": "spiffe://SHOP.test/ns/eu/prod/ringway/relay/r1",
	"a trust domain and a dot":  "spiffe://shop.test./ns/eu/prod/ringway/relay/r1",
	"a port":                    "spiffe://shop.test:443/ns/eu/prod/ringway/relay/r1",
	"an empty port":             "spiffe://shop.test:/ns/eu/prod/ringway/relay/r1",
	"a user":                    "spiffe://shop.test@evil.test/ns/eu/prod/ringway/relay/r1",
	"an empty user":             "spiffe://@shop.test/ns/eu/prod/ringway/relay/r1",
	"a query":                   "spiffe://shop.test/ns/eu/prod/ringway/relay/r1?x=y",
	"an empty query":            "spiffe://shop.test/ns/eu/prod/ringway/relay/r1?",
	"a fragment":                "spiffe://shop.test/ns/eu/prod/ringway/relay/r1#x",
	"an empty fragment":         "spiffe://shop.test/ns/eu/prod/ringway/relay/r1#",
	"a parameter":               "spiffe://shop.test/ns/eu/prod/ringway/relay/r1;x=y",
	"too many elements":         "spiffe://shop.test/ns/eu/prod/ringway/relay/r1/r2",
	"too few elements":          "spiffe://shop.test/ns/eu/prod/ringway/relay",
	"a trust domain alone":      "spiffe://shop.test",
	"other fixed text":          "spiffe://shop.test/ns/eu/prod/other/relay/r1",
	"fixed text in capitals":    "spiffe://shop.test/ns/eu/prod/Ringway/relay/r1",
	"an unknown role":           "spiffe://shop.test/ns/eu/prod/ringway/boss/r1",
	"a role in capitals":        "spiffe://shop.test/ns/eu/prod/ringway/Relay/r1",
	"a placeholder":             "spiffe://shop.test/ns/eu/prod/ringway/relay/{node}",
	"the template":              shopTemplate,
	"a wildcard":                "spiffe://shop.test/ns/eu/prod/ringway/relay/*",
	"a comma":                   "spiffe://shop.test/ns/eu/prod/ringway/relay/r1,r2",
	"a node that is too long":   "spiffe://shop.test/ns/eu/prod/ringway/relay/" + strings.Repeat("r", 64),
	"an element of megabytes":   "spiffe://shop.test/ns/eu/prod/ringway/relay/" + strings.Repeat("r", 1<<20),
	"many elements":             "spiffe://shop.test/ns/eu/prod/ringway/relay" + strings.Repeat("/", 1<<16),
	"a blank":                   "spiffe://shop.test/ns/eu/prod/ringway/relay/r1 ",
	"a line":                    "spiffe://shop.test/ns/eu/prod/ringway/relay/r1\n",
	"a zero byte":               "spiffe://shop.test/ns/eu/prod/ringway/relay/r1\x00",
	"a backslash":               `spiffe://shop.test/ns/eu/prod/ringway\relay\r1`,
	"another alphabet":          "spiffe://shop.test/ns/eu/prod/ringway/relay/r\u0456",
	"a native name":             "ringway://role/relay",
	"nothing":                   "",
}

func TestASPIFFEIDThatIsNotExactlyOfTheTemplateNamesNobody(t *testing.T) {
	shop, err := parseTemplate(shopTemplate)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthority(t)
	self := shopSource(t, a, RoleWorker, "w1")
	for name, id := range hostileIDs {
		c, err := shop.match(id)
		if err == nil || c != (Claims{}) {
			t.Errorf("%s: %q is %+v", name, id, c)
			continue
		}
		if len(err.Error()) > 4096 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		cert := &x509.Certificate{} // package x509 would not sign some of them
		spelled(id)(cert)
		cert.Extensions = cert.ExtraExtensions
		if c, err := self.FromCertificate(cert); err == nil || !strings.Contains(err.Error(), "(wanted is one URI name, as in the identity template "+shopTemplate) {
			t.Errorf("%s, in a certificate: %+v, %v", name, c, err)
		}
	}
}

func TestNoCertificateSaysTwiceWhoItsHolderIs(t *testing.T) {
	a := newAuthority(t)
	id, native := shopID(RoleRelay, "r1"), claimsOf(RoleRelay, "r1")
	native.Datacenter = ""
	var names []string
	for _, u := range native.uris() {
		names = append(names, u.String())
	}
	self := shopSource(t, a, RoleRelay, "self")
	server := self.ServerConfig(self.Policy(gossip))
	for name, ids := range map[string][]string{
		"no name":                    nil,
		"names of Ringway":           names,
		"both":                       append([]string{id}, names...),
		"both, in the other order":   append(names[:len(names):len(names)], id),
		"a service of Ringway":       {id, "ringway://service/*"},
		"two IDs":                    {id, shopID(RoleWorker, "w1")},
		"twice the same":             {id, id},
		"an address of a page":       {id, "https://shop.test/"},
		"an ID of another trust":     {"spiffe://other.test/x", id},
		"an ID of no path and an ID": {"spiffe://shop.test", id},
	} {
		content := foreign(t, a, p256(t), ids, nil)
		if _, err := NewStaticSource(content, SourceConfig{Template: shopTemplate}); err == nil || !strings.Contains(err.Error(), "identity template") {
			t.Errorf("%s: loaded: %v", name, err)
		}
		m := meet(t, stranger(pairOf(t, content)), server)
		if r, _ := reasonOf(m.server); r != reasonMalformed {
			t.Errorf("%s: %v", name, m.server)
		}
		if _, err := self.Certify(pairOf(t, content).Certificate); err == nil {
			t.Errorf("%s: certified", name)
		}
	}
	// Without a template it is the other way round: an ID in addition to the names does not count.
	plain := sourceOf(t, a, claimsOf(RoleRelay, "self"))
	if c, err := plain.FromCertificate(pairOf(t, foreign(t, a, p256(t), append([]string{shopID(RoleGate, "g")}, names...), nil)).Leaf); err != nil || c != native {
		t.Errorf("%+v, %v", c, err)
	}
	m := meet(t, stranger(pairOf(t, foreign(t, a, p256(t), []string{id}, nil))), plain.ServerConfig(plain.Policy(gossip)))
	if r, _ := reasonOf(m.server); r != reasonMalformed || !strings.Contains(m.server.Error(), "identity template") {
		t.Errorf("an ID without a template: %v", m.server)
	}
}

// issuers are the shapes of certificates that others issue, with what a member makes of them.
func issuers(t *testing.T) map[string]struct {
	key    crypto.Signer
	change func(*x509.Certificate)
	remedy string // empty: it works
} {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsa2048, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	const allUses = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageKeyAgreement
	const rsaRemedy = "its key is RSA 2048; members sign statements with Ed25519 or ECDSA P-256, whose signatures fit into a packet: create the certificate again with such a key (`tls cert create` creates a suitable one; at other issuers set the type of the key)"
	spire := func(c *x509.Certificate) {
		c.Subject, c.KeyUsage = pkix.Name{Country: []string{"US"}, Organization: []string{"SPIRE"}}, allUses
	}
	vault := func(c *x509.Certificate) { // adds the common name to the DNS names
		c.Subject, c.DNSNames, c.KeyUsage = pkix.Name{CommonName: "relay-1.shop.test"}, []string{"relay-1.shop.test"}, allUses
	}
	step := func(c *x509.Certificate) {
		c.Subject, c.DNSNames = pkix.Name{CommonName: "relay-1"}, []string{"relay-1", "relay-1.shop.test"}
		provisioner, err := asn1.Marshal([]string{"acme", "ops@shop.test"})
		if err != nil {
			t.Error(err)
		}
		c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 37476, 9000, 64, 1}, Value: provisioner}}
	}
	certManager := func(c *x509.Certificate) { // neither a subject, nor extended usages unless they are asked for
		c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment, nil
	}
	with := func(changes ...func(*x509.Certificate)) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for _, change := range changes {
				change(c)
			}
		}
	}
	uses := func(uses ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = uses }
	}
	return map[string]struct {
		key    crypto.Signer
		change func(*x509.Certificate)
		remedy string
	}{
		"SPIRE":                          {p256(t), spire, ""},
		"SPIRE with DNS names":           {p256(t), with(spire, func(c *x509.Certificate) { c.DNSNames = []string{"relay-1.shop.test"} }), ""},
		"SPIRE with RSA":                 {rsa2048, spire, rsaRemedy},
		"Vault as it is set up":          {rsa2048, vault, rsaRemedy},
		"Vault with EC":                  {p256(t), vault, ""},
		"Vault with Ed25519":             {ed, vault, ""},
		"Vault without the client flag":  {p256(t), with(vault, uses(x509.ExtKeyUsageServerAuth)), "not issued for client authentication"},
		"Vault without the server flag":  {p256(t), with(vault, uses(x509.ExtKeyUsageClientAuth)), "not issued for server authentication"},
		"step-ca":                        {p256(t), step, ""},
		"step-ca with OKP":               {ed, step, ""},
		"step-ca with RSA":               {rsa2048, step, rsaRemedy},
		"cert-manager, no usages":        {p256(t), certManager, ""},
		"cert-manager as it is set up":   {rsa2048, certManager, rsaRemedy},
		"cert-manager, both usages":      {ed, with(certManager, uses(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)), ""},
		"cert-manager, CSI of SPIFFE":    {p256(t), with(certManager, uses(x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth)), ""},
		"cert-manager, code signing too": {p256(t), with(certManager, uses(x509.ExtKeyUsageCodeSigning, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)), ""},
	}
}

func TestCertificatesOfOtherIssuersWorkForMembersOrSayWhyNot(t *testing.T) {
	a := newAuthority(t)
	peer := shopSource(t, a, RoleWorker, "w1")
	for name, test := range issuers(t) {
		content := foreign(t, a, test.key, []string{shopID(RoleRelay, "relay-1")}, test.change)
		s, err := NewStaticSource(content, SourceConfig{Template: shopTemplate})
		if test.remedy != "" {
			if err == nil || !strings.Contains(err.Error(), test.remedy) {
				t.Errorf("%s: %v, want %q", name, err, test.remedy)
			}
			if _, err := peer.Certify(pairOf(t, content).Certificate); err == nil || !strings.Contains(err.Error(), test.remedy) {
				t.Errorf("%s, at a peer: %v, want %q", name, err, test.remedy)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := Claims{Role: RoleRelay, Cluster: "prod", Environment: "eu", Node: "relay-1"}
		if s.Claims() != want || s.Info().Claims == nil || *s.Info().Claims != want {
			t.Errorf("%s: %+v, described as %+v", name, s.Claims(), s.Info())
		}
		m := meet(t, s.ClientConfig(s.Policy(DataPlane), Expected{Node: "w1", Role: RoleWorker}), peer.ServerConfig(peer.Policy(DataPlane)))
		if !m.succeeded() {
			t.Errorf("%s: %v, %v, %v", name, m.client, m.server, m.clientRead)
			continue
		}
		if got, err := peer.PeerClaims(m.serverPeer); err != nil || got != want {
			t.Errorf("%s: the peer sees %+v, %v", name, got, err)
		}
		c, err := peer.Certify(s.Chain())
		if err != nil || c.Claims != want {
			t.Errorf("%s: certified as %+v, %v", name, c, err)
			continue
		}
		if _, signature, err := s.Sign([]byte("statement")); err != nil || c.Verify([]byte("statement"), signature) != nil {
			t.Errorf("%s: its signature does not count: %v", name, err)
		}
	}
}

func TestAClientWithASPIFFEIDMayHaveAnyKey(t *testing.T) {
	a := newAuthority(t)
	server := shopSource(t, a, RoleRelay, "r1")
	for name, key := range weakKeys(t) {
		s, err := NewStaticSource(foreign(t, a, key, []string{shopID(RoleClient, "cart")}, nil), SourceConfig{Template: shopTemplate})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m := meet(t, s.ClientConfig(s.Policy(DataPlane), Expected{}), server.ServerConfig(server.Policy(DataPlane))); !m.succeeded() {
			t.Errorf("%s: %v, %v", name, m.client, m.server)
		}
	}
}

func TestThePolicyHoldsForSPIFFEIDs(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	worker := shopSource(t, a, RoleWorker, "w1")
	server := worker.ServerConfig(worker.Policy(DataPlane))
	for _, c := range []struct {
		name string
		of   *Authority
		id   string
		want Reason
	}{
		{"a relay", a, shopID(RoleRelay, "r1"), ""},
		{"a worker", a, shopID(RoleWorker, "w2"), reasonMatrix},
		{"a client", a, shopID(RoleClient, "c1"), reasonMatrix},
		{"another cluster", a, "spiffe://shop.test/ns/eu/other/ringway/relay/r1", reasonCluster},
		{"another environment", a, "spiffe://shop.test/ns/us/prod/ringway/relay/r1", reasonEnvironment},
		{"another trust domain", a, "spiffe://evil.test/ns/eu/prod/ringway/relay/r1", reasonMalformed},
		{"another authority", other, shopID(RoleRelay, "r1"), reasonUnknownAuthority},
	} {
		m := meet(t, stranger(pairOf(t, foreign(t, c.of, p256(t), []string{c.id}, nil))), server)
		if got, _ := reasonOf(m.server); got != c.want {
			t.Errorf("%s: %v", c.name, m.server)
		}
	}
	relay := shopSource(t, a, RoleRelay, "r1")
	m := meet(t, relay.ClientConfig(relay.Policy(DataPlane), Expected{Node: "w2"}), server)
	if got, _ := reasonOf(m.client); got != reasonNode {
		t.Errorf("another node than expected: %v", m.client)
	}
}

func TestTheDenyListKnowsTheNodeOfASPIFFEID(t *testing.T) {
	a := newAuthority(t)
	content := foreign(t, a, p256(t), []string{shopID(RoleRelay, "r1")}, nil)
	content.Denied = []byte("node stolen")
	self, err := NewStaticSource(content, SourceConfig{Template: shopTemplate})
	if err != nil {
		t.Fatal(err)
	}
	stolen := foreign(t, a, p256(t), []string{shopID(RoleRelay, "stolen")}, nil)
	refused := map[string]error{}
	refused["handshake"] = meet(t, stranger(pairOf(t, stolen)), self.ServerConfig(self.Policy(gossip))).server
	_, refused["chain"] = self.Certify(pairOf(t, stolen).Certificate)
	_, refused["client"] = self.Issued([]*x509.Certificate{pairOf(t, stolen).Leaf})
	replaced := foreign(t, newAuthority(t), p256(t), []string{shopID(RoleRelay, "stolen")}, nil)
	_, refused["client of an authority that was replaced"] = self.Issued([]*x509.Certificate{pairOf(t, replaced).Leaf})
	for name, err := range refused {
		if r, _ := reasonOf(err); r != reasonDenied || !strings.Contains(err.Error(), "node stolen is on the deny list") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARefusalNamesTheNodeOfASPIFFEID(t *testing.T) {
	a := newAuthority(t)
	self := shopSource(t, a, RoleRelay, "self")
	w := &watched{direction: inbound, presented: []*x509.Certificate{pairOf(t, foreign(t, a, p256(t), []string{shopID(RoleWorker, "w1")}, nil)).Leaf}}
	now, later := trust{self.current.Load(), time.Now()}, trust{self.current.Load(), time.Now().Add(2 * time.Hour)}
	if _, err := later.check(w.presented, x509.ExtKeyUsageClientAuth); refusalOf(t, err).Node != "w1" {
		t.Errorf("a certificate that has ended: %v", err)
	}
	if refusal := now.judgeAgain(w); refusal != nil {
		t.Fatal(refusal)
	}
	if refusal := later.judgeAgain(w); refusal == nil || refusal.Field != reasonExpired || refusal.Node != "w1" {
		t.Errorf("an open connection: %v", refusal)
	}
}

func TestARenewedSPIFFECertificateIsTakenAndAnotherIDIsNot(t *testing.T) {
	a := newAuthority(t)
	f := filesIn(t.TempDir())
	write(t, f, foreign(t, a, p256(t), []string{shopID(RoleRelay, "r1")}, nil))
	s, err := NewSource(f, SourceConfig{Template: shopTemplate})
	if err != nil {
		t.Fatal(err)
	}
	write(t, f, foreign(t, a, p256(t), []string{shopID(RoleRelay, "r1")}, nil))
	mustReload(t, s, true)
	write(t, f, foreign(t, a, p256(t), []string{shopID(RoleRelay, "r2")}, nil))
	if _, err := s.Reload(); err == nil || !strings.Contains(err.Error(), "another identity") {
		t.Errorf("another node: %v", err)
	}
	write(t, f, foreign(t, a, p256(t), []string{"spiffe://evil.test/r1"}, nil))
	if _, err := s.Reload(); err == nil || !strings.Contains(err.Error(), "identity template") || s.Claims().Node != "r1" {
		t.Errorf("an ID that does not match: %v, now %s", err, s.Claims())
	}
}

func FuzzIdentityTemplate(f *testing.F) {
	f.Add(shopTemplate, shopID(RoleRelay, "r1"))
	f.Add("spiffe://a/{node}/{role}/{cluster}/{environment}", "spiffe://a/n/gate/c/e")
	f.Add("spiffe://a/{node}{role}/{cluster}/{environment}", "spiffe://a/ngate/c/e")
	f.Add("spiffe://a/../{node}/{role}/{cluster}/{environment}", "spiffe://a/../n/gate/c/%65")
	for _, id := range hostileIDs {
		f.Add(shopTemplate, id[:min(len(id), 512)])
	}
	f.Fuzz(func(t *testing.T, text, id string) {
		parsed, err := parseTemplate(text)
		if err != nil {
			if len(err.Error()) > 4096 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if parsed == nil {
			return
		}
		c, err := parsed.match(id)
		if err != nil {
			if c != (Claims{}) || len(err.Error()) > 4096 {
				t.Fatalf("%+v and an error of %d bytes", c, len(err.Error()))
			}
			return
		}
		checkAccepted(t, c)
		// The ID is the template with its values: nothing in it was left out, and there is no other
		// ID with these claims.
		again := strings.NewReplacer("{environment}", c.Environment, "{cluster}", c.Cluster, "{role}", string(c.Role), "{node}", c.Node).Replace(text)
		if again != id || c.Services != "" || c.Datacenter != "" {
			t.Fatalf("%q as %q is %+v", id, text, c)
		}
	})
}
