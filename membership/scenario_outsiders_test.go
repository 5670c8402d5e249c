package membership_test

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// impostors are configured as members of ours, even with our gossip key where
// nothing else is stated, and do not belong here.
var impostors = map[string]func(*cluster, *process) error{
	"a certificate of another authority": func(_ *cluster, p *process) error {
		other, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 10 * certificateLife, Now: time.Now})
		p.State.configure = func(cfg *membership.Config) (err error) {
			cfg.Identity, err = other.Source(membership.ClaimsOf(cfg), certificateLife)
			return err
		}
		return err
	},
	// A machine whose clock stands still does not notice that its own
	// certificate has ended.
	"an expired certificate":               misdated(-2 * time.Hour),
	"a certificate of tomorrow":            misdated(24 * time.Hour),
	"the certificate of a relay":           borrowed(func(c *identity.Claims) { c.Role = identity.RoleRelay }),
	"the certificate of another node":      borrowed(func(c *identity.Claims) { c.Node = "r1" }),
	"a certificate of another cluster":     borrowed(func(c *identity.Claims) { c.Cluster = "prod" }),
	"a certificate of another environment": borrowed(func(c *identity.Claims) { c.Environment = "live" }),
	"no certificate": func(_ *cluster, p *process) error {
		p.State.configure = func(cfg *membership.Config) error { cfg.Identity = nil; return nil }
		return nil
	},
	"another key": func(_ *cluster, p *process) (err error) {
		p.State.keyring, err = membership.NewKeyring(membership.TestKey(99))
		return err
	},
	"no key": func(_ *cluster, p *process) error {
		p.State.configure = func(cfg *membership.Config) error { cfg.Keyring = nil; return nil }
		return nil
	},
}

// misdated gives a certificate for an hour that was issued, and is used, on a
// machine whose clock is wrong.
func misdated(skew time.Duration) func(*cluster, *process) error {
	return func(c *cluster, p *process) error {
		a, err := c.security.authorityWithClock(skew)
		p.State.configure = func(cfg *membership.Config) (err error) {
			cfg.Identity, err = a.Source(membership.ClaimsOf(cfg), time.Hour)
			return err
		}
		return err
	}
}

// borrowed gives a good certificate that was issued to another node. New refuses
// such a configuration, so it is put in behind its back, as another build might.
func borrowed(change func(*identity.Claims)) func(*cluster, *process) error {
	return func(c *cluster, p *process) error {
		var source *identity.Source
		p.State.configure = func(cfg *membership.Config) (err error) {
			claims := membership.ClaimsOf(cfg)
			change(&claims)
			source, err = c.security.certificate(claims)
			cfg.Identity = nil
			return err
		}
		p.State.prepare = func(n *membership.Node) { n.Borrow(source) }
		return nil
	}
}

func (c *cluster) joinImpostor(a args) error {
	p := c.NewProcess("x", identity.RoleWorker)
	p.Outsider = true
	if err := impostors[a[0]](c, p); err != nil {
		return err
	}
	return c.Join(p, a[1])
}

func (c *cluster) joinLiar(a args) error {
	p := c.NewProcess("l", identity.RoleWorker)
	p.Liar = true
	p.State.prepare = func(n *membership.Node) { _ = n.LieAbout(a[0]) } // it fits: the values are short
	return c.Join(p, a[1])
}

func (c *cluster) expectLeftOut(a args) error {
	members, err := c.Resolve(a[0])
	if err != nil {
		return err
	}
	return c.eachSeen(a[1], members, func(p, liar *process) error {
		said := c.Logged(p, "member left out", "member="+liar.Name+" ")
		if _, seen := p.Node.Snapshot().Get(liar.Name); seen || !said {
			return fmt.Errorf("%s: it sees %s: %v; it said that it caught it: %v", p.Name, liar.Name, seen, said)
		}
		return nil
	})
}
