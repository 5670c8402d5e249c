package membership

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

func authority(t *testing.T) *identity.Authority {
	t.Helper()
	a, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func claimsOf(cfg *Config) identity.Claims {
	return identity.Claims{Role: cfg.Role, Cluster: cfg.Cluster, Environment: cfg.Environment, Datacenter: cfg.Datacenter, Node: cfg.ID}
}

// certified gives the configuration a certificate with the same claims,
// but for what change makes of it.
func certified(t *testing.T, a *identity.Authority, c *Config, change func(*identity.Claims)) {
	t.Helper()
	claims := claimsOf(c)
	if change != nil {
		change(&claims)
	}
	source, err := a.Source(claims, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c.Identity = source
}

func keyring(t *testing.T, keys ...int) *Keyring {
	t.Helper()
	var material [][]byte
	for _, n := range keys {
		material = append(material, testKey(n))
	}
	k, err := NewKeyring(material...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestMembersWithCertificatesAndKeysFindEachOther(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) })
	w := start(t, func(c *Config) {
		c.ID, c.Role, c.Seeds, c.Keyring = "w1", identity.RoleWorker, []string{seed.Addr()}, keyring(t, 1)
		certified(t, a, c, nil)
	})
	seed.await(t, "w1", sees("r1", "w1"))
	w.await(t, "r1", sees("r1", "w1"))
	if n := len(seed.Unproven()); n != 0 {
		t.Errorf("%v honest members were left out: %v", n, seed.Unproven())
	}
}

// refusedFor waits until the joiner has given a reason and returns it.
func (n *testNode) refusedFor(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n.Status().Err == nil && ctx.Err() == nil {
		n.waitForAttempt(ctx)
	}
	if n.Status().Err == nil {
		t.Fatalf("%s was not refused; it sees %v", n.ID(), n.Snapshot().Members())
	}
	return n.Status().Err.Error()
}

func TestWhoIsRefusedForItsCertificateOrKeyLearnsWhy(t *testing.T) {
	a, stranger := authority(t), authority(t)
	for _, c := range []struct {
		name    string
		change  func(*Config)
		joiner  string
		seedLog string
	}{
		{"of another cluster with our authority", func(c *Config) { c.Cluster = "prod"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) },
			`cluster mismatch: ours "prod", theirs "test"`, `cluster mismatch: ours \"test\", theirs \"prod\"`},
		{"of another environment", func(c *Config) { c.Environment = "us"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) },
			`environment mismatch: ours "us", theirs "ci"`, `environment mismatch: ours \"ci\", theirs \"us\"`},
		{"of another authority", func(c *Config) { certified(t, stranger, c, nil); c.Keyring = keyring(t, 1) },
			"unknown authority", "certificate refused by the other end"},
		{"without a gossip key", func(c *Config) { certified(t, a, c, nil) }, `gossip key mismatch`, `gossip key mismatch`},
		{"without a certificate", func(c *Config) { c.Keyring = keyring(t, 1) },
			"takes members with certificates only: give this one --tls-cert, --tls-key and --tls-ca", "shows no certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// One for each: of one host it logs one refusal a minute.
			seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) })
			id := strings.ReplaceAll(c.name, " ", "-")
			joiner := start(t, func(cfg *Config) { cfg.ID, cfg.Seeds = id, []string{seed.Addr()}; c.change(cfg) })
			if got := joiner.refusedFor(t); !strings.Contains(got, c.joiner) {
				t.Errorf("the joiner was told %q, want %q", got, c.joiner)
			}
			if s := seed.Snapshot(); !sees("r1")(s) {
				t.Errorf("the seed sees %v", s.Members())
			}
			_ = seed.Close() // it logs after it has answered
			if !strings.Contains(seed.log.String(), c.seedLog) {
				t.Errorf("the seed does not say %q:\n%s", c.seedLog, seed.log)
			}
		})
	}
}

// Only one of the two has certificates, in either direction: both report which setting is
// missing, and count it apart from strangers that send anything.
func TestAMemberWithoutACertificateLearnsWhatIsMissingAndIsCountedApart(t *testing.T) {
	a := authority(t)
	secured := func(c *Config) { certified(t, a, c, nil); c.Keyring = keyring(t, 1) }
	plain := func(*Config) {}
	for _, c := range []struct {
		name           string
		seed, joiner   func(*Config)
		told           string
		reason, logged string
	}{
		{"clear text to a secured fleet", secured, plain, "takes members with certificates only: give this one --tls-cert", "no_certificate", "shows no certificate: give it --tls-cert"},
		{"a certificate to a fleet without", plain, secured, "does the member there have a certificate?", "unexpected_tls", "this member has no certificate: give both"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := start(t, func(cfg *Config) { cfg.ID = "seed"; c.seed(cfg) })
			joiner := start(t, func(cfg *Config) { cfg.ID, cfg.Seeds = "joiner", []string{seed.Addr()}; c.joiner(cfg) })
			if got := joiner.refusedFor(t); !strings.Contains(got, c.told) || strings.Contains(got, "\n") {
				t.Errorf("the joiner was told %q, want %q on one line", got, c.told)
			}
			_ = seed.Close() // it logs after it has answered
			if !strings.Contains(seed.log.String(), c.logged) {
				t.Errorf("the seed does not say %q:\n%s", c.logged, seed.log)
			}
			if testutil.ToFloat64(seed.metrics.refusals.WithLabelValues(inbound, c.reason)) == 0 {
				t.Errorf("nothing counted under %s", c.reason)
			}
			if n := testutil.ToFloat64(seed.metrics.refusals.WithLabelValues(inbound, fieldMalformed)); n != 0 {
				t.Errorf("%v counted as malformed", n)
			}
		})
	}
}

// A line of a log is one line: memberlist's errors are lists over several.
func TestAJoinThatFailsIsLoggedOnOneLine(t *testing.T) {
	n := start(t, func(c *Config) { c.ID, c.Seeds = "n", []string{procs.FreeAddr(t), procs.FreeAddr(t)} })
	got := n.refusedFor(t)
	if strings.ContainsAny(got, "\n\t") || strings.Contains(got, "occurred") || strings.Contains(got, "Failed to join") || !strings.Contains(got, "connection refused") {
		t.Errorf("%q", got)
	}
}

func TestACertificateOfAnotherHolderIsRefusedAtStart(t *testing.T) {
	c := Config{Cluster: "test", Environment: "ci", ID: "r1", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0"}
	certified(t, authority(t), &c, func(claims *identity.Claims) { claims.Node, claims.Role = "r2", "worker" })
	_, err := New(c)
	if err == nil || !strings.Contains(err.Error(), `id is "r1", the certificate has "r2"`) || !strings.Contains(err.Error(), `role is "relay", the certificate has "worker"`) {
		t.Errorf("%v", err)
	}
}

func TestAMemberThatGossipsAnotherRoleThanItsCertificateIsLeftOut(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil) })
	liar := startPrepared(t, func(c *Config) {
		c.ID, c.Role, c.Seeds = "w1", identity.RoleWorker, []string{seed.Addr()}
		certified(t, a, c, nil)
	}, func(n *Node) error {
		return gossipAs(n, func(m *gossip.Metadata) { m.Role = string(identity.RoleRelay) })
	})
	liar.await(t, "r1", sees("r1", "w1"))
	for deadline := time.Now().Add(patience); testutil.ToFloat64(seed.metrics.unproven.WithLabelValues("disagreement")) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never refused; the seed sees %v\n%s", seed.Snapshot().Members(), seed.log)
		}
	}
	if got := seed.Unproven(); len(got) != 1 || got[0].ID != "w1" || !strings.Contains(got[0].Reason, "role") {
		t.Errorf("listed: %+v", got)
	}
	seed.await(t, "itself only", sees("r1"))
	if !strings.Contains(seed.log.String(), `it gossips the role \"relay\", its certificate has \"worker\"`) {
		t.Errorf("the log does not say why:\n%s", seed.log)
	}
}

func TestKeysAreRotatedAcrossTheFleetWithoutARestart(t *testing.T) {
	for name, certificates := range map[string]bool{"with certificates": true, "with keys only": false} {
		t.Run(name, func(t *testing.T) {
			a := authority(t)
			fleet := make([]*testNode, 3)
			for i, id := range []string{"r1", "r2", "w1"} {
				fleet[i] = start(t, func(c *Config) {
					c.ID, c.Keyring = id, keyring(t, 1)
					if i > 0 {
						c.Seeds = []string{fleet[0].Addr()}
					}
					if id == "w1" {
						c.Role = identity.RoleWorker
					}
					if certificates {
						certified(t, a, c, nil)
					}
				})
			}
			for _, n := range fleet {
				n.await(t, "all", sees("r1", "r2", "w1"))
			}
			relay, worker := fleet[0], fleet[2]
			if _, err := relay.Keys(t.Context(), RemoveKey, prints(1)[0]); err == nil || !strings.Contains(err.Error(), "on 3 of 3 members") {
				t.Errorf("the key in use was removed: %v", err)
			}
			for _, step := range []struct {
				operation KeyOperation
				argument  string
				want      []string
			}{
				{ListKeys, "", prints(1)},
				{InstallKey, many2(2), prints(1, 2)},
				{UseKey, prints(2)[0], prints(2, 1)},
				{RemoveKey, prints(1)[0], prints(2)},
			} {
				results, err := relay.Keys(t.Context(), step.operation, step.argument)
				if err != nil || len(results) != 3 {
					t.Fatalf("%s: %v, %v", step.operation, results, err)
				}
				for _, r := range results {
					if !slices.Equal(r.Fingerprints, step.want) {
						t.Errorf("%s: %s has %v, want %v", step.operation, r.Member, r.Fingerprints, step.want)
					}
				}
			}
			results, err := worker.Keys(t.Context(), InstallKey, many2(3))
			if err == nil || !strings.Contains(results[0].Error, "only relays and gates may change gossip keys") {
				t.Errorf("a worker changed the fleet's keys: %v, %v", results, err)
			}
			// Gossip goes on under the new key.
			start(t, func(c *Config) {
				c.ID, c.Keyring, c.Seeds = "late", keyring(t, 2), []string{relay.Addr()}
				if certificates {
					certified(t, a, c, nil)
				}
			})
			relay.await(t, "the one that came late", sees("late", "r1", "r2", "w1"))
		})
	}
}

func many2(n int) string { return strings.TrimSpace(strings.Split(many(n+1), "\n")[n]) }

func TestAMemberThatMissedARotationCatchesUp(t *testing.T) {
	a := authority(t)
	relay := start(t, func(c *Config) { c.ID, c.Keyring = "r1", keyring(t, 2); certified(t, a, c, nil) })
	lagging := start(t, func(c *Config) {
		c.ID, c.Role, c.Seeds, c.Keyring = "w1", identity.RoleWorker, []string{relay.Addr()}, keyring(t, 1)
		certified(t, a, c, nil)
	})
	relay.await(t, "the one that was away", sees("r1", "w1"))
	if got := lagging.cfg.Keyring.Fingerprints(); !slices.Equal(got, prints(2)) {
		t.Errorf("its keys are %v, want only the fleet's: the other one was removed", got)
	}
}

func TestASeedThatMissedARotationIsBroughtTheKeys(t *testing.T) {
	a := authority(t)
	used := func(since time.Time, keys ...int) *Keyring {
		k := keyring(t, keys...)
		k.since = since
		return k
	}
	seed := start(t, func(c *Config) { c.ID, c.Keyring = "r1", used(time.Time{}, 1); certified(t, a, c, nil) }) // looks for no member
	relay := start(t, func(c *Config) {
		c.ID, c.Seeds, c.Keyring = "r2", []string{seed.Addr()}, used(time.Now(), 2, 3)
		certified(t, a, c, nil)
	})
	seed.await(t, "the relay", sees("r1", "r2"))
	if got := seed.cfg.Keyring.Fingerprints(); !slices.Equal(got, prints(2, 3)) {
		t.Errorf("the seed's keys are %v", got)
	}
	// A worker must not do the same.
	start(t, func(c *Config) {
		c.ID, c.Role, c.Seeds, c.Keyring = "w1", identity.RoleWorker, []string{seed.Addr()}, used(time.Now().Add(time.Hour), 4)
		certified(t, a, c, nil)
	}).refusedFor(t)
	if got := relay.cfg.Keyring.Fingerprints(); !slices.Equal(got, prints(2, 3)) {
		t.Errorf("a worker changed the keys to %v", got)
	}
}

func TestWithoutCertificatesAnotherKeyIsRefusedOnBothSides(t *testing.T) {
	relay := start(t, func(c *Config) { c.ID, c.Keyring = "r1", keyring(t, 2) })
	lagging := start(t, func(c *Config) { c.ID, c.Seeds, c.Keyring = "r2", []string{relay.Addr()}, keyring(t, 1) })
	if got, want := lagging.refusedFor(t), `gossip key mismatch: ours "`+prints(1)[0]+`", theirs "`+prints(2)[0]; !strings.Contains(got, want) || !strings.Contains(got, "--gossip-key-file") {
		t.Errorf("told %q, want %q", got, want)
	}
	_ = relay.Close() // it logs after it has answered
	if !strings.Contains(relay.log.String(), "gossip key mismatch") {
		t.Errorf("the relay does not say so:\n%s", relay.log)
	}
}

func TestANodeWithoutKeysReportsIt(t *testing.T) {
	n := start(t, func(c *Config) { c.ID = "r1" })
	if _, err := n.Keys(t.Context(), ListKeys, ""); err != ErrNoKeyring {
		t.Errorf("%v", err)
	}
}

func TestTheProtocolOfAHelloIsTheOneThatTLSAgreedOn(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) })
	worker := start(t, func(c *Config) {
		c.ID, c.Role = "w1", identity.RoleWorker
		certified(t, a, c, nil)
		c.Keyring = keyring(t, 1)
	})
	ask := func(alpn, hello string) error {
		conn, err := net.Dial("tcp", seed.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		g, err := worker.transport.secureOutbound(t.Context(), conn, alpn)
		if err != nil {
			t.Fatal(err)
		}
		g.conn = struct{ net.Conn }{g.conn} // this end does not compare
		_, err = g.greet(t.Context(), hello)
		return err
	}
	if err := ask(protocolProbe, protocolProbe); err != nil {
		t.Fatalf("an honest hello: %v", err)
	}
	for _, alpn := range []string{protocolProbe, protocolMemberlist} {
		err := ask(alpn, protocolKeys)
		var refusal *RefusalError
		if !errors.As(err, &refusal) || refusal.Field != fieldProtocol {
			t.Errorf("%s agreed on in TLS, %s in the hello: %v", alpn, protocolKeys, err)
		}
	}
	_ = seed.Close() // it counts after it has answered
	if n := testutil.ToFloat64(seed.metrics.refusals.WithLabelValues(inbound, fieldProtocol)); n != 2 {
		t.Errorf("counted %v", n)
	}
}
