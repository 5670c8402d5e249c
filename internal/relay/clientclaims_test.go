package relay

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/keyfile"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
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
}
