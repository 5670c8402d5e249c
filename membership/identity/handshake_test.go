package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// wantAlert checks what an end sees that the other end refused: the alert, and
// nothing of the reason.
func wantAlert(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "remote error: tls: bad certificate") {
		t.Errorf("the refused end sees %v, want the alert \"bad certificate\"", err)
	}
	if reason, ok := reasonOf(err); ok {
		t.Errorf("the refused end knows the reason %s", reason)
	}
}

func TestEveryCellOfTheMatrixHoldsOverTLS(t *testing.T) {
	a := newAuthority(t)
	initiators, targets := map[Role]*Source{}, map[Role]*Source{}
	for _, r := range Roles() {
		initiators[r] = sourceOf(t, a, claimsOf(r, string(r)+"-i"))
		targets[r] = sourceOf(t, a, claimsOf(r, string(r)+"-t"))
	}
	for _, i := range Roles() {
		for _, target := range Roles() {
			t.Run(string(i)+" to "+string(target), func(t *testing.T) {
				from, to := initiators[i], targets[target]
				server := to.ServerConfig(to.Policy(DataPlane))
				client := from.ClientConfig(from.Policy(DataPlane), Expected{})
				if _, ok := allowed(i, target); ok {
					m := meet(t, client, server)
					if !m.succeeded() {
						t.Fatalf("refused: %+v", m)
					}
					if got, err := from.PeerClaims(m.clientPeer); err != nil || got != to.Claims() {
						t.Errorf("the initiator sees %+v, %v", got, err)
					}
					if got, err := to.PeerClaims(m.serverPeer); err != nil || got != from.Claims() {
						t.Errorf("the target sees %+v, %v", got, err)
					}
					return
				}
				// An honest initiator refuses by itself, before it shows its certificate.
				m := meet(t, client, server)
				if r := refusalOf(t, m.client); r.Field != reasonMatrix || r.Ours != string(i) || r.Theirs != string(target) || r.Node != string(target)+"-t" {
					t.Errorf("the initiator says %v", r)
				}
				wantAlert(t, m.server)
				// One without scruples is refused by the target. Its own handshake
				// succeeds: in TLS 1.3 it hears of the refusal at its first read.
				m = meet(t, stranger(from.current.Load().pair), server)
				if m.client != nil {
					t.Errorf("the initiator's handshake fails: %v", m.client)
				}
				wantAlert(t, m.clientRead)
				if r := refusalOf(t, m.server); r.Field != reasonMatrix || r.Ours != string(target) || r.Theirs != string(i) ||
					r.Node != string(i)+"-i" || r.Addr != m.clientLocal {
					t.Errorf("the target says %v", r)
				}
			})
		}
	}
}

func TestEveryKindOfBadCertificateIsRefusedWithItsReason(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	relay := claimsOf(RoleRelay, "relay-7")
	set := func(change func(*Claims)) Claims { c := relay; change(&c); return c }
	names := func(texts ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.URIs = uris(t, texts...) }
	}
	usage := func(u ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = u }
	}
	validity := func(from, to time.Duration) func(*x509.Certificate) {
		now := time.Now()
		return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(from), now.Add(to) }
	}
	// A member's certificate used to sign another, shown with the whole chain.
	member := ours.forge(t, relay, nil)
	memberLeaf, err := x509.ParseCertificate(member.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	upstart := &Authority{cert: memberLeaf, key: member.PrivateKey.(crypto.Signer), now: time.Now}
	usurped := upstart.forge(t, relay, nil)
	usurped.Certificate = append(usurped.Certificate, member.Certificate[0], ours.cert.Raw)

	for name, c := range map[string]struct {
		show     tls.Certificate
		expected Expected
		inbound  Reason // as a client of ours; "" is admitted
		outbound Reason // as a server of ours
	}{
		"good":                       {show: ours.forge(t, relay, nil)},
		"other authority":            {show: other.forge(t, relay, nil), inbound: reasonUnknownAuthority, outbound: reasonUnknownAuthority},
		"signed by a member":         {show: usurped, inbound: reasonUnknownAuthority, outbound: reasonUnknownAuthority},
		"expired":                    {show: ours.forge(t, relay, validity(-2*time.Hour, -time.Hour)), inbound: reasonExpired, outbound: reasonExpired},
		"not yet valid":              {show: ours.forge(t, relay, validity(time.Hour, 2*time.Hour)), inbound: reasonNotYetValid, outbound: reasonNotYetValid},
		"only for servers":           {show: ours.forge(t, relay, usage(x509.ExtKeyUsageServerAuth)), inbound: reasonKeyUsage},
		"only for clients":           {show: ours.forge(t, relay, usage(x509.ExtKeyUsageClientAuth)), outbound: reasonKeyUsage},
		"for signing code":           {show: ours.forge(t, relay, usage(x509.ExtKeyUsageCodeSigning)), inbound: reasonKeyUsage, outbound: reasonKeyUsage},
		"no names":                   {show: ours.forge(t, relay, func(c *x509.Certificate) { c.URIs = nil; c.DNSNames = []string{"relay"} }), inbound: reasonMalformed, outbound: reasonMalformed},
		"no role":                    {show: ours.forge(t, relay, names("ringway://cluster/prod", "ringway://env/eu", "ringway://node/a")), inbound: reasonMalformed, outbound: reasonMalformed},
		"two roles":                  {show: ours.forge(t, relay, func(c *x509.Certificate) { c.URIs = append(c.URIs, uris(t, "ringway://role/worker")...) }), inbound: reasonMalformed, outbound: reasonMalformed},
		"unknown role":               {show: ours.forge(t, set(func(c *Claims) { c.Role = "manager" }), nil), inbound: reasonMalformed, outbound: reasonMalformed},
		"malformed name":             {show: ours.forge(t, relay, func(c *x509.Certificate) { c.URIs = append(c.URIs, &url.URL{Scheme: scheme, Host: "dc"}) }), inbound: reasonMalformed, outbound: reasonMalformed},
		"other cluster":              {show: ours.forge(t, set(func(c *Claims) { c.Cluster = "staging"; c.Environment = "us" }), nil), inbound: reasonCluster, outbound: reasonCluster},
		"other environment":          {show: ours.forge(t, set(func(c *Claims) { c.Environment = "us" }), nil), inbound: reasonEnvironment, outbound: reasonEnvironment},
		"not the node we dialled":    {show: ours.forge(t, relay, nil), expected: Expected{Node: "relay-8"}, outbound: reasonNode},
		"not the role it gossips":    {show: ours.forge(t, relay, nil), expected: Expected{Node: "relay-7", Role: RoleGate}, outbound: reasonRole},
		"not the place it gossips":   {show: ours.forge(t, relay, nil), expected: Expected{Datacenter: "ams"}, outbound: reasonDatacenter},
		"expired and of other names": {show: ours.forge(t, Claims{Role: "x"}, validity(-2*time.Hour, -time.Hour)), inbound: reasonExpired, outbound: reasonExpired},
	} {
		t.Run(name, func(t *testing.T) {
			self := sourceOf(t, ours, claimsOf(RoleRelay, "relay-1"))
			refusals := func(d direction, r Reason) float64 {
				return testutil.ToFloat64(self.metrics.refusals.WithLabelValues(string(d), string(r)))
			}

			m := meet(t, stranger(c.show), self.ServerConfig(self.Policy(DataPlane)))
			if m.client != nil {
				t.Errorf("the client's handshake fails: %v", m.client)
			}
			if c.inbound == "" {
				if !m.succeeded() {
					t.Errorf("refused as a client: %v", m.server)
				}
			} else {
				wantAlert(t, m.clientRead)
				if r := refusalOf(t, m.server); r.Field != c.inbound || r.Addr != m.clientLocal {
					t.Errorf("as a client: %v (%s, %s), want %s", r, r.Field, r.Addr, c.inbound)
				}
				if n := refusals(inbound, c.inbound); n != 1 {
					t.Errorf("counted %v inbound", n)
				}
			}

			server := stranger(c.show)
			server.ClientAuth = tls.RequireAnyClientCert
			c.expected.Addr = "10.0.1.5:7400"
			m = meet(t, self.ClientConfig(self.Policy(DataPlane), c.expected), server)
			if c.outbound == "" {
				if !m.succeeded() {
					t.Errorf("refused as a server: %v", m.client)
				}
				return
			}
			if r := refusalOf(t, m.client); r.Field != c.outbound || r.Addr != "10.0.1.5:7400" {
				t.Errorf("as a server: %v (%s, %s), want %s", r, r.Field, r.Addr, c.outbound)
			}
			wantAlert(t, m.server)
			if n := refusals(outbound, c.outbound); n != 1 {
				t.Errorf("counted %v outbound", n)
			}
		})
	}
}

func TestWhoShowsNoCertificateIsRefused(t *testing.T) {
	self := sourceOf(t, newAuthority(t), claimsOf(RoleRelay, "relay-1"))
	for _, mode := range []Mode{DataPlane, gossip} {
		m := meet(t, stranger(), self.ServerConfig(self.Policy(mode)))
		if m.client != nil {
			t.Errorf("the client's handshake fails: %v", m.client)
		}
		wantAlert(t, m.clientRead)
		if r := refusalOf(t, m.server); r.Field != reasonNoCertificate || r.Addr != m.clientLocal {
			t.Errorf("got %v", r)
		}
	}
	// A server cannot do without in TLS; the check holds nevertheless.
	err := self.admit(tls.ConnectionState{}, handshake{policy: self.Policy(DataPlane), direction: outbound})
	if r, ok := reasonOf(err); !ok || r != reasonNoCertificate {
		t.Errorf("got %v", err)
	}
}

func TestACertificateWithoutItsKeyIsRefused(t *testing.T) {
	a := newAuthority(t)
	self := sourceOf(t, a, claimsOf(RoleRelay, "relay-1"))
	stolen, own := a.forge(t, claimsOf(RoleRelay, "relay-7"), nil), a.forge(t, claimsOf(RoleRelay, "x"), nil)
	stolen.PrivateKey, stolen.Leaf = own.PrivateKey, nil
	if m := meet(t, stranger(stolen), self.ServerConfig(self.Policy(DataPlane))); m.server == nil {
		t.Error("admitted as a client")
	}
	if m := meet(t, self.ClientConfig(self.Policy(DataPlane), Expected{}), stranger(stolen)); m.client == nil {
		t.Error("admitted as a server")
	}
}

func TestNothingOlderThanTLS13IsSpoken(t *testing.T) {
	a := newAuthority(t)
	self := sourceOf(t, a, claimsOf(RoleRelay, "relay-1"))
	old := stranger(a.forge(t, claimsOf(RoleRelay, "relay-7"), nil))
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if m := meet(t, old, self.ServerConfig(self.Policy(DataPlane))); m.server == nil || m.client == nil {
		t.Error("a TLS 1.2 client is admitted")
	}
	if m := meet(t, self.ClientConfig(self.Policy(DataPlane), Expected{}), old); m.server == nil || m.client == nil {
		t.Error("a TLS 1.2 server is accepted")
	}
}

func TestASessionIsNeverResumed(t *testing.T) {
	a := newAuthority(t)
	self := sourceOf(t, a, claimsOf(RoleRelay, "relay-1"))
	client := stranger(a.forge(t, claimsOf(RoleRelay, "relay-7"), nil))
	client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	client.ServerName = "relay-1"
	server := self.ServerConfig(self.Policy(DataPlane))
	for range 3 {
		m := meet(t, client, server)
		if !m.succeeded() || m.clientPeer.DidResume || m.serverPeer.DidResume {
			t.Fatalf("resumed or refused: %+v", m)
		}
	}
}

func TestTheProtocolIsNegotiated(t *testing.T) {
	a := newAuthority(t)
	s := sourceOf(t, a, claimsOf(RoleRelay, "relay-1"))
	c := sourceOf(t, a, claimsOf(RoleWorker, "worker-1"))
	server := s.ServerConfig(s.Policy(gossip), "ml/1", "adsync/1")
	m := meet(t, c.ClientConfig(c.Policy(gossip), Expected{}, "adsync/1"), server)
	if !m.succeeded() || m.serverPeer.NegotiatedProtocol != "adsync/1" || m.clientPeer.NegotiatedProtocol != "adsync/1" {
		t.Errorf("got %+v", m)
	}
	if m := meet(t, c.ClientConfig(c.Policy(gossip), Expected{}, "other/1"), server); m.client == nil || m.server == nil {
		t.Error("an unknown protocol is spoken")
	}
}

func TestIntermediatesThatThePeerShowsAreUsed(t *testing.T) {
	root, below := newAuthority(t), newAuthority(t)
	now := time.Now()
	certify := func(cert, parent *x509.Certificate, public any) *x509.Certificate {
		cert.SerialNumber, cert.NotBefore, cert.NotAfter = big.NewInt(1), now.Add(-time.Minute), now.Add(time.Hour)
		cert.IsCA, cert.BasicConstraintsValid, cert.KeyUsage = true, true, x509.KeyUsageCertSign
		der, err := x509.CreateCertificate(rand.Reader, cert, parent, public, root.key)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	top := &x509.Certificate{Subject: pkix.Name{CommonName: "top"}}
	root.cert = certify(top, top, root.key.Public()) // without the limit on the length of the path
	below.cert = certify(&x509.Certificate{Subject: pkix.Name{CommonName: "below"}}, root.cert, below.key.Public())
	pair := below.forge(t, claimsOf(RoleRelay, "relay-7"), nil)
	self, err := root.Source(claimsOf(RoleRelay, "relay-1"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	m := meet(t, stranger(pair), self.ServerConfig(self.Policy(DataPlane)))
	if r := refusalOf(t, m.server); r.Field != reasonUnknownAuthority {
		t.Errorf("without its intermediate: %v", r)
	}
	pair.Certificate = append(pair.Certificate, below.cert.Raw)
	if m := meet(t, stranger(pair), self.ServerConfig(self.Policy(DataPlane))); !m.succeeded() {
		t.Errorf("with its intermediate: %v", m.server)
	}
}

// An operator who reads the refusal must know whose certificate to replace.
func TestTheRefusalOfAnotherAuthorityNamesTheIssuerAndTheRemedy(t *testing.T) {
	named := func(name string) *Authority {
		a, err := NewAuthority(AuthorityConfig{Name: name, Validity: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	self, err := named("shop").Source(claimsOf(RoleRelay, "relay-1"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	const remedy = "give both certificates of one authority, let all members trust both"
	for name, again := range map[string]bool{"shop": true, "other": false} {
		m := meet(t, stranger(named(name).forge(t, claimsOf(RoleRelay, "relay-7"), nil)), self.ServerConfig(self.Policy(DataPlane)))
		text := refusalOf(t, m.server).Error()
		if !strings.Contains(text, `issued by "CN=`+name+`"`) || !strings.Contains(text, remedy) || strings.Contains(text, "that name here has another key") != again {
			t.Errorf("%s: %s", name, text)
		}
	}
}
