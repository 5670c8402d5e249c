package membership_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/clusterscript"
)

type args = clusterscript.Args

// forms are the statements of membership's histories, in addition to those of every history. The
// keys of a fleet are called k1, k2, …; {k1} in a text is the fingerprint of a key. The
// checks of inspect go on with every history.
func (c *cluster) forms() []clusterscript.Form {
	each, expect := c.ForEach, clusterscript.Expect
	return append([]clusterscript.Form{
		// with the gossip key k1, and an authority
		{Form: "secure with keys[ and certificates]", Do: c.secure},
		// through what the name leads to
		{Form: "join JOINERS by name", Do: func(a args) error {
			return c.JoinAll(a[0], "", 0, func(p *process) { p.State.byName = true })
		}},
		// configured as one of ours
		{Form: "join stranger with (" + strings.Join(slices.Sorted(maps.Keys(impostors)), "|") + ") through NAMES", Do: c.joinImpostor},
		// a worker, l1, l2, …, that gossips what its certificate denies
		{Form: "join liar about (role|datacenter) through NAMES", Do: c.joinLiar},
		{Form: `restart NAMES with clock (\+|-)DURATION`, Do: each(func(p *process, a args) error {
			if p.State.skew = a.Duration(2); a[1] == "-" {
				p.State.skew = -p.State.skew
			}
			return c.Restart(p, false)
		})},
		// a consumer watches it and never reads
		{Form: "ignore NAMES", Do: each(func(p *process, _ args) error { _ = p.Node.Watch(p.Life); return nil })},
		// what "by name" finds from now on: where they are now; SERVFAIL; no answer at all
		{Form: "dns leads to NAMES", Do: c.leadTo},
		{Form: "dns (fails|is silent)", Do: func(a args) error { c.names.Set(a[0], nil); return nil }},
		// through one member, for the whole fleet
		{Form: `keys (install|use|remove) k(\d+) at NAMES[ fails TEXT]`, Do: c.changeKeys},
		// there alone, and use it
		{Form: `install k(\d+) on NAMES by hand`, Do: c.installByHand},
		{Form: "expect no member sees NAMES for DURATION", Do: c.unseen},
		// agreement that lasts, as converged defines it
		{Form: "expect converged[ within DURATION]", Do: func(a args) error { return c.converged(a.Duration(0)) }},
		// not even such as a fault would excuse
		expect("no false deaths", c.noFalseDeaths),
		expect("NAMES sees? COUNT members?", each(func(p *process, a args) error {
			if got := p.Node.Snapshot().Members(); len(got) != a.Int(1) {
				return fmt.Errorf("%s sees %d members: %v", p.Name, len(got), got)
			}
			return nil
		})),
		expect("NAMES (do not see|does not see|sees?) NAMES", c.expectSees),
		// all live members saw it
		expect("NAMES (left|failed)", func(a args) error {
			return c.eachSeen(a[0], c.Live(), func(p, gone *process) error {
				if d, known := p.Node.Snapshot().Departed(gone.Name); p != gone && (!known || string(d.Reason) != a[1]) {
					return fmt.Errorf("%s says that %s %q", p.Name, gone.Name, d.Reason)
				}
				return nil
			})
		}),
		expect("NAMES (?:are|is)[ not] degraded", each(func(p *process, a args) error {
			if s := p.Node.Snapshot(); s.Degraded() != (a[1] == "") {
				return fmt.Errorf("degraded is %v at %s, which sees %d members", s.Degraded(), p.Name, len(s.Members()))
			}
			return nil
		})),
		// why it is not joined
		expect("NAMES is refused TEXT", each(func(p *process, a args) error {
			if err := p.Node.Status().Err; err == nil || !strings.Contains(err.Error(), withFingerprints(a[1])) {
				return fmt.Errorf("%s says %v", p.Name, err)
			}
			return nil
		})),
		expect("NAMES logged TEXT", each(func(p *process, a args) error {
			if !c.Logged(p, withFingerprints(a[1])) {
				return fmt.Errorf("%s did not", p.Name)
			}
			return nil
		})),
		// counted so, of those who came to it
		expect("NAMES refused a peer for TEXT", each(func(p *process, a args) error {
			if p.Node.Refusals(a[1]) == 0 {
				return fmt.Errorf("%s counted no refusal for %q", p.Name, a[1])
			}
			return nil
		})),
		// the one in use first
		expect(`NAMES (?:have|has) keys? (k\d+(?:, k\d+)*)`, c.expectKeys),
		// saw that nothing proves what they gossip
		expect("NAMES leave out NAMES", c.expectLeftOut),
	}, c.Forms()...)
}

// eachSeen asks each of some members about each of the names.
func (c *cluster) eachSeen(names string, members []*process, ask func(p, seen *process) error) error {
	return c.Each(names, func(seen *process) error {
		for _, p := range members {
			if err := ask(p, seen); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *cluster) unseen(a args) error {
	mark := func(on bool) error {
		return c.Each(a[0], func(p *process) error {
			c.Lock()
			defer c.Unlock()
			p.State.unseen = on
			return nil
		})
	}
	if err := mark(true); err != nil {
		return err
	}
	// The monitor checks new snapshots; here those that stay as they are.
	if err := c.eachSeen(a[0], c.Live(), func(p, unseen *process) error {
		if _, seen := p.Node.Snapshot().Get(unseen.Name); seen && p != unseen {
			return fmt.Errorf("%s sees %s", p.Name, unseen.Name)
		}
		return nil
	}); err != nil {
		return err
	}
	time.Sleep(a.Duration(1))
	return mark(false)
}

func (c *cluster) noFalseDeaths(args) error {
	c.Lock()
	defer c.Unlock()
	if len(c.deaths) > 0 {
		return fmt.Errorf("%d false deaths, first %s", len(c.deaths), c.deaths[0])
	}
	return nil
}

func (c *cluster) expectSees(a args) error {
	want := !strings.Contains(a[1], "not")
	members, err := c.Resolve(a[0])
	if err != nil {
		return err
	}
	return c.eachSeen(a[2], members, func(p, target *process) error {
		got, seen := p.Node.Snapshot().Get(target.Name)
		if seen = seen && got.Epoch == target.Node.Epoch(); seen != want {
			return fmt.Errorf("%s sees %s in its present life: %v", p.Name, target.Name, seen)
		}
		return nil
	})
}

func (c *cluster) leadTo(a args) error {
	var hosts []netip.Addr
	err := c.Each(a[0], func(p *process) error { hosts = append(hosts, p.Host.IP()); return nil })
	c.names.Set("", hosts)
	return err
}
