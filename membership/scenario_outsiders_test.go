package membership

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/membership/identity"
)

// impostors are configured as members of ours, even with our gossip key where
// nothing else is said, and do not belong here.
var impostors = []struct {
	with string
	make func(*cluster, *process) error
}{
	{"a certificate of another authority", func(_ *cluster, p *process) error {
		other, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 10 * certificateLife, Now: time.Now})
		p.configure = func(cfg *Config) (err error) {
			cfg.Identity, err = other.Source(claimsOf(cfg), certificateLife)
			return err
		}
		return err
	}},
	// A machine whose clock stands still does not notice that its own
	// certificate has ended.
	{"an expired certificate", misdated(-2 * time.Hour)},
	{"a certificate of tomorrow", misdated(24 * time.Hour)},
	{"the certificate of a relay", borrowed(func(c *identity.Claims) { c.Role = identity.RoleRelay })},
	{"the certificate of another node", borrowed(func(c *identity.Claims) { c.Node = "r1" })},
	{"a certificate of another cluster", borrowed(func(c *identity.Claims) { c.Cluster = "prod" })},
	{"a certificate of another environment", borrowed(func(c *identity.Claims) { c.Environment = "live" })},
	{"no certificate", func(_ *cluster, p *process) error {
		p.configure = func(cfg *Config) error { cfg.Identity = nil; return nil }
		return nil
	}},
	{"another key", func(_ *cluster, p *process) (err error) {
		p.keyring, err = NewKeyring(testKey(99))
		return err
	}},
	{"no key", func(_ *cluster, p *process) error {
		p.configure = func(cfg *Config) error { cfg.Keyring = nil; return nil }
		return nil
	}},
}

// misdated gives a certificate for an hour that was issued, and is used, on a
// machine whose clock is wrong.
func misdated(skew time.Duration) func(*cluster, *process) error {
	return func(c *cluster, p *process) error {
		a, err := c.security.authorityWithClock(skew)
		p.configure = func(cfg *Config) (err error) {
			cfg.Identity, err = a.Source(claimsOf(cfg), time.Hour)
			return err
		}
		return err
	}
}

// borrowed gives a good certificate that was issued to somebody else. New refuses
// such a configuration, so it is put in behind its back, as another build might.
func borrowed(change func(*identity.Claims)) func(*cluster, *process) error {
	return func(c *cluster, p *process) error {
		var source *identity.Source
		p.configure = func(cfg *Config) (err error) {
			claims := claimsOf(cfg)
			change(&claims)
			source, err = c.security.certificate(claims)
			cfg.Identity = nil
			return err
		}
		p.prepare = func(n *Node) {
			n.cfg.Identity, n.transport.identity = source, source
			n.secure()
			_ = n.describe() // it fitted before
		}
		return nil
	}
}

func makeImpostor(m []string) (step, error) {
	for _, kind := range impostors {
		if kind.with == m[0] {
			return func(c *cluster) error {
				p := &process{name: c.nextName("x"), role: RoleWorker, cluster: homeCluster, environment: homeEnvironment, outsider: true}
				if err := kind.make(c, p); err != nil {
					return err
				}
				return c.join(p, names(m[1]))
			}, nil
		}
	}
	return nil, fmt.Errorf("a stranger with %q is unknown; they are listed in scenario_outsiders_test.go", m[0])
}

func makeLiar(m []string) (step, error) {
	changes := map[string]func(*metadata){
		"role":       func(m *metadata) { m.Role = string(RoleRelay) },
		"datacenter": func(m *metadata) { m.Datacenter = "elsewhere" },
	}
	return func(c *cluster) error {
		p := &process{name: c.nextName("l"), role: RoleWorker, cluster: homeCluster, environment: homeEnvironment, datacenter: "here", liar: true}
		p.prepare = func(n *Node) { _ = gossipAs(n, changes[m[0]]) } // it fits: the values are short
		return c.join(p, names(m[1]))
	}, nil
}

func expectCounted(m []string) (check, error) {
	return func(c *cluster) error {
		return names(m[0]).each(c, func(p *process) error {
			if testutil.ToFloat64(p.node.metrics.refusals.WithLabelValues(inbound, m[1])) == 0 {
				return fmt.Errorf("%s counted no refusal for %q", p.name, m[1])
			}
			return nil
		})
	}, nil
}

func expectLeftOut(m []string) (check, error) {
	return func(c *cluster) error {
		liars, err := names(m[1]).resolve(c)
		if err != nil {
			return err
		}
		return names(m[0]).each(c, func(p *process) error {
			for _, liar := range liars {
				c.mu.Lock()
				said := slices.ContainsFunc(strings.Split(c.history.String(), "\n"), func(line string) bool {
					return strings.Contains(line, "  "+p.name+": ") && strings.Contains(line, "member left out") && strings.Contains(line, "member="+liar.name+" ")
				})
				c.mu.Unlock()
				if _, seen := p.node.Snapshot().Get(liar.name); seen || !said {
					return fmt.Errorf("%s: it sees %s: %v; it said that it caught it: %v", p.name, liar.name, seen, said)
				}
			}
			return nil
		})
	}, nil
}
