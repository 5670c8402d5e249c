package relay

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/keyfile"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// issued returns what the holder of a certificate of an authority of fleets presents.
func issued(t *testing.T, a *identity.Authority, claims identity.Claims) (tls.Certificate, []*x509.Certificate) {
	t.Helper()
	cert, key, err := a.Issue(claims, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, _, err := keyfile.Pair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair, []*x509.Certificate{pair.Leaf}
}

func newFleetAuthority(t *testing.T) *identity.Authority {
	t.Helper()
	a, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTheRowOfClientsInTheConnectionMatrixHoldsAtTheIngress(t *testing.T) {
	ours, others := newFleetAuthority(t), newFleetAuthority(t)
	matrix := identity.ConnectionMatrix()
	for _, self := range []identity.Role{identity.RoleRelay, identity.RoleGate} {
		member := identity.Claims{Role: self, Cluster: "shop", Environment: "prod", Node: "r1"}
		source, err := ours.Source(member, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{IngressClientClaims: followAuto}
		cfg.Membership.Role, cfg.Membership.Cluster, cfg.Membership.Environment, cfg.Membership.ID = self, "shop", "prod", "r1"
		cfg.Membership.Identity = source
		for _, c := range []struct {
			name   string
			claims identity.Claims
			cause  string
		}{
			{"another cluster", identity.Claims{Role: identity.RoleClient, Cluster: "bank", Environment: "prod", Node: "c"}, "cluster"},
			{"another environment", identity.Claims{Role: identity.RoleClient, Cluster: "shop", Environment: "test", Node: "c"}, "environment"},
		} {
			_, presented := issued(t, ours, c.claims)
			var refusal *identity.RefusalError
			if err := admitClients(&cfg)(presented); !errors.As(err, &refusal) || string(refusal.Field) != c.cause {
				t.Errorf("%s at a %s: %v", c.name, self, err)
			}
		}
		for _, role := range identity.Roles() {
			claims := identity.Claims{Role: role, Cluster: "shop", Environment: "prod", Node: "n1"}
			_, presented := issued(t, ours, claims)
			_, foreign := issued(t, others, claims)
			submits := matrix[role][self] == "submit"
			for _, want := range []struct {
				mode            following
				ofFleet, others bool // are admitted
			}{{followAuto, submits, true}, {"", submits, true}, {followYes, submits, submits}, {followNo, true, true}} {
				cfg.IngressClientClaims = want.mode
				if err := admitClients(&cfg)(presented); (err == nil) != want.ofFleet {
					t.Errorf("%s at a %s, claims %s: %v", role, self, want.mode, err)
				}
				if err := admitClients(&cfg)(foreign); (err == nil) != want.others {
					t.Errorf("%s of another authority at a %s, claims %s: %v", role, self, want.mode, err)
				}
			}
			cfg.IngressClientClaims = followAuto
		}
	}
}

func TestACertificateOfTheFleetThatIsNoClientsSendsNoRequest(t *testing.T) {
	t.Parallel()
	f, ca, fleet := newFleet(t), clienttlstest.New(t), newFleetAuthority(t)
	with, file := withTLS(t, ca), filepath.Join(t.TempDir(), "fleet.crt")
	if err := os.WriteFile(file, fleet.CertificatePEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	r := f.relay(func(s *Settings) {
		with(s)
		s.IngressClientCA, s.IngressClientClaims = file, followYes // this fleet is without certificates
	})
	mirror(t, f)
	r.settled(t, "echo", 1)
	ask := func(claims identity.Claims) (string, error) {
		pair, _ := issued(t, fleet, claims)
		client := overTLS(t, r.IngressAddrs()[1], true, &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}})
		_, body, err := ask(t, client, "https://a.test/", http.Header{})
		return body, err
	}
	member := identity.Claims{Role: identity.RoleClient, Cluster: r.cfg.Membership.Cluster, Environment: r.cfg.Membership.Environment, Node: "cart-7"}
	if body, err := ask(member); err != nil || !strings.Contains(body, "Ringway-Caller: ringway://node/cart-7\r\n") {
		t.Errorf("a client: %v\n%s", err, body)
	}
	member.Role = identity.RoleWorker
	if _, err := ask(member); err == nil {
		t.Error("a worker is answered")
	}
	r.await(t, "the refusal in the metrics", func() bool {
		return r.metric(t, `ringway_relay_ingress_refused_total{reason="not_a_client"}`) == "1"
	})
	r.await(t, "the refusal in the log", func() bool {
		return strings.Contains(r.log.String(), `level=WARN msg="client refused: its certificate is not that of a client of this fleet: issue one with the role client" client=127.0.0.1 err=`)
	})
}

// issuer is an authority of members that is not Ringway's own, with the kind of names it writes.
type issuer struct {
	*clienttlstest.Authority
	template string // of identities; empty: names of Ringway
}

const shopTemplate = "spiffe://shop.test/{environment}/{cluster}/{role}/{node}"

func (i issuer) names(role identity.Role, node string) clienttlstest.Certificate {
	if i.template != "" {
		return clienttlstest.Certificate{URI: "spiffe://shop.test/ci/test/" + string(role) + "/" + node}
	}
	return clienttlstest.Certificate{URIs: []string{"ringway://role/" + string(role), "ringway://cluster/test", "ringway://env/ci", "ringway://node/" + node}}
}

// secure gives every member of a fleet a certificate.
func (i issuer) secure(t *testing.T) func(*membership.Config) {
	return func(c *membership.Config) {
		t.Helper()
		cert, key := i.Issue(i.names(c.Role, c.ID))
		var err error
		if c.Identity, err = identity.NewStaticSource(identity.PEM{Certificate: cert, Key: key, Authorities: i.PEM()}, identity.SourceConfig{Template: i.template}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnAuthorityOfClientsMakesNoMembersAndThatOfMembersNoClients(t *testing.T) {
	t.Parallel()
	for name, template := range map[string]string{"names of Ringway": "", "SPIFFE IDs": shopTemplate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, servers := newFleet(t), clienttlstest.New(t)
			members, clients := issuer{clienttlstest.New(t), template}, issuer{clienttlstest.New(t), template}
			f.secure = members.secure(t)
			with, file := withTLS(t, servers), clients.WriteTo(filepath.Join(t.TempDir(), "clients.crt"))
			r := f.relay(func(s *Settings) {
				with(s)
				s.IngressClientCA = file
				s.IngressAddrs = append(s.IngressAddrs, tlsScheme+anyPort+";client-ca="+file)
			})
			mirror(t, f)
			r.settled(t, "echo", 1) // from then on the ingress listens
			answered := func(addr string, pair tls.Certificate) bool {
				_, _, err := ask(t, overTLS(t, addr, false, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}), "https://a.test/", nil)
				return err == nil
			}
			ingress := r.IngressAddrs()[1:]
			for _, role := range identity.Roles() {
				ofClients, ofMembers := clients.Pair(clients.names(role, "x")), members.Pair(members.names(role, "x"))
				if answered(r.PeerAddr(), ofClients) {
					t.Errorf("the peer listener answers a %s of the authority of clients", role)
				}
				conn, err := tls.Dial("tcp", r.GossipAddr(), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{ofClients}})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					t.Errorf("gossip answers a %s of the authority of clients", role)
				}
				_ = conn.Close()
				for _, addr := range ingress {
					if !answered(addr, ofClients) {
						t.Errorf("a client whose certificate says %s is not answered", role)
					}
					if answered(addr, ofMembers) {
						t.Errorf("the ingress answers a %s of the authority of members", role)
					}
				}
			}
			if !answered(r.PeerAddr(), members.Pair(members.names(identity.RoleRelay, "x"))) {
				t.Error("the peer listener answers no relay at all")
			}
			r.await(t, "the refusals of gossip in the metrics", func() bool {
				return r.metric(t, `ringway_membership_refusals_total{direction="inbound",reason="unknown_authority"}`) == strconv.Itoa(len(identity.Roles()))
			})
		})
	}
}

// The authorities of clients may be intermediates of that of the fleet. Then TLS does not need what a
// client leaves out, and its judge does.
func TestAMemberThatShowsNoIntermediateIsNoClient(t *testing.T) {
	t.Parallel()
	f, servers, root := newFleet(t), clienttlstest.New(t), clienttlstest.New(t)
	f.secure = issuer{root, ""}.secure(t)
	below := root.Intermediate()
	with, file := withTLS(t, servers), below.WriteTo(filepath.Join(t.TempDir(), "clients.crt"))
	r := f.relay(func(s *Settings) { with(s); s.IngressClientCA = file })
	mirror(t, f)
	r.settled(t, "echo", 1)
	for _, role := range identity.Roles() {
		alone := below.Pair(issuer{}.names(role, "x"))
		whole := alone
		whole.Certificate = append(slices.Clip(alone.Certificate), below.Raw())
		for shown, pair := range map[string]tls.Certificate{"alone": alone, "with the intermediate": whole} {
			_, _, err := ask(t, overTLS(t, r.IngressAddrs()[1], false, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}), "https://a.test/", nil)
			if submits := role == identity.RoleClient || role == identity.RoleObserver; (err == nil) != submits {
				t.Errorf("the certificate of a %s, %s: %v", role, shown, err)
			}
		}
	}
}

func TestAClientIsCalledByItsSPIFFEIDAndTheMatrixHoldsForIt(t *testing.T) {
	t.Parallel()
	f, servers, members := newFleet(t), clienttlstest.New(t), issuer{clienttlstest.New(t), shopTemplate}
	f.secure = members.secure(t)
	with, file := withTLS(t, servers), members.WriteTo(filepath.Join(t.TempDir(), "fleet.crt"))
	settings := func(s *Settings) {
		with(s)
		s.IngressClientCA = file
	}
	r := f.relay(settings)
	open := f.relay(func(s *Settings) { settings(s); s.IngressClientClaims = followNo })
	mirror(t, f)
	for _, one := range f.relays {
		one.settled(t, "echo", 1)
		one.await(t, "a way to the worker", func() bool {
			resp, _ := one.call(t, "GET", "/", nil, "Ringway-Service: echo")
			return resp.StatusCode == http.StatusOK
		})
	}
	both := members.names(identity.RoleClient, "cart")
	both.URIs = []string{"ringway://role/client", "ringway://cluster/test", "ringway://env/ci", "ringway://node/admin"}
	for name, c := range map[string]struct {
		certificate clienttlstest.Certificate
		caller      string // empty: refused, unless claims do not count
	}{
		"a client":             {members.names(identity.RoleClient, "cart"), "spiffe://shop.test/ci/test/client/cart"},
		"an observer":          {members.names(identity.RoleObserver, "cart"), "spiffe://shop.test/ci/test/observer/cart"},
		"a worker":             {members.names(identity.RoleWorker, "cart"), ""},
		"a relay":              {members.names(identity.RoleRelay, "cart"), ""},
		"of another cluster":   {clienttlstest.Certificate{URI: "spiffe://shop.test/ci/other/client/cart"}, ""},
		"of another domain":    {clienttlstest.Certificate{URI: "spiffe://other.test/ci/test/client/cart"}, ""},
		"a workload":           {clienttlstest.Certificate{URI: "spiffe://shop.test/ns/shop/sa/cart"}, ""},
		"names of Ringway":     {issuer{}.names(identity.RoleClient, "cart"), ""},
		"an ID and such names": {both, ""},
	} {
		pair := members.Pair(c.certificate)
		body := func(r *runningRelay) (string, error) {
			_, body, err := ask(t, overTLS(t, r.IngressAddrs()[1], true, &tls.Config{RootCAs: servers.Pool(), Certificates: []tls.Certificate{pair}}), "https://a.test/", nil)
			return body, err
		}
		if got, err := body(r); (err == nil) != (c.caller != "") || err == nil && !strings.Contains(got, "Ringway-Caller: "+c.caller+"\r\n") {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
		if got, err := body(open); err != nil || !strings.Contains(got, "Ringway-Caller: "+c.caller) {
			t.Errorf("%s, where claims do not count: %v\n%s", name, err, got)
		}
	}
}

func TestAClientWhoseCertificateIsDeniedLosesItsOpenConnections(t *testing.T) {
	t.Parallel()
	f, servers, dir := newFleet(t), clienttlstest.New(t), t.TempDir()
	members, denied := issuer{clienttlstest.New(t), ""}, filepath.Join(dir, "denied")
	if err := os.WriteFile(denied, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	authorities := members.WriteTo(filepath.Join(dir, "fleet.crt"))
	f.secure = func(c *membership.Config) {
		cert, key := members.Files(filepath.Join(dir, c.ID), members.names(c.Role, c.ID))
		var err error
		if c.Identity, err = identity.NewSource(identity.Files{Certificate: cert, Key: key, Authorities: authorities, Denied: denied}, identity.SourceConfig{Interval: 20 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	with := withTLS(t, servers)
	r := f.relay(func(s *Settings) { with(s); s.IngressClientCA = authorities })
	mirror(t, f)
	r.settled(t, "echo", 1)
	open := func(node string) *tls.Conn {
		pair := members.Pair(members.names(identity.RoleClient, node))
		conn, err := tls.Dial("tcp", r.IngressAddrs()[1], &tls.Config{RootCAs: servers.Pool(), ServerName: "a.test", Certificates: []tls.Certificate{pair}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	answered := func(conn *tls.Conn) bool {
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.test\r\nRingway-Service: echo\r\n\r\n") // the answer shows a failure
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return false
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK
	}
	stolen, other := open("stolen"), open("cart")
	r.await(t, "an answer", func() bool { return answered(stolen) && answered(other) })
	if err := os.WriteFile(denied, []byte("node stolen\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = stolen.SetReadDeadline(time.Now().Add(procs.Patience))
	if _, err := stolen.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of a denied client stays open: %v", err)
	}
	if !answered(other) {
		t.Error("the connection of another client ended")
	}
	r.await(t, "the count and the reason", func() bool {
		return r.metric(t, "ringway_relay_ingress_connections_expired_total") == "1" &&
			strings.Contains(r.log.String(), "open connections of clients closed: their certificates no longer count")
	})
}
