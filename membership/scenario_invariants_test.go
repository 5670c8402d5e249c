package membership_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/clusterscript"
	"github.com/ringway/ringway/membership"
)

// quiet is how long an agreement must last to be called converged.
const quiet = 2 * time.Minute

type process = clusterscript.Process[state]

// state is what these histories keep of a process.
type state struct {
	byName    bool                           // its seed is a name in DNS instead
	skew      time.Duration                  // of the clock of its next life
	keyring   *membership.Keyring            // kept over restarts, as its file is
	configure func(*membership.Config) error // what is special about it
	prepare   func(*membership.Node)         // before it starts
	unseen    bool                           // no other may see it now
	view      *membership.Snapshot           // the last that the monitor saw
}

// cluster watches every snapshot of every member for what must never be in one.
type cluster struct {
	*clusterscript.Cluster[state]
	security security
	names    *membership.NameServer // nil where no history asks for one

	instances map[string]bool // every instance that ever ran, by world and name
	changed   time.Time       // when a member's view last gained or lost one
	deaths    []string        // false deaths, excused or not
}

func newCluster(seed uint64) *cluster {
	c := &cluster{Cluster: clusterscript.NewCluster[state](seed), instances: make(map[string]bool)}
	c.Configure, c.Prepare, c.Started = c.configure, c.prepare, c.watch
	return c
}

func (c *cluster) configure(p *process, cfg *membership.Config) error {
	skew := p.State.skew // of this life: the next may have another
	p.State.skew = 0
	cfg.SetClock(func() time.Time { return time.Now().Add(skew) })
	cfg.Registerer = prometheus.NewRegistry()
	if p.Liar {
		cfg.Datacenter = "here"
	}
	if err := c.security.arm(p, cfg); err != nil {
		return err
	}
	if p.State.byName {
		if err := c.names.Through(cfg); err != nil {
			return err
		}
	}
	if p.State.configure != nil {
		return p.State.configure(cfg)
	}
	return nil
}

func (c *cluster) prepare(p *process, node *membership.Node) error {
	if p.State.prepare != nil {
		p.State.prepare(node)
	}
	c.Lock()
	defer c.Unlock()
	c.instances[p.World()+"/"+membership.Member{ID: p.Name, Epoch: node.Epoch()}.Instance()] = true
	p.State.view = nil
	return nil
}

func (c *cluster) watch(p *process) error {
	node, views := p.Node, p.Node.Watch(p.Life)
	c.Tasks.Go(func() {
		for s := range views {
			c.inspect(p, node, s)
		}
	})
	return nil
}

// inspect checks one snapshot against what must always hold: no stranger in it, no
// instance that never ran, no live member that vanishes (unless a fault, or one that
// ended less than three minutes ago, or a loss of more than 5 % explains it), no leave
// taken for a crash or the reverse.
func (c *cluster) inspect(p *process, node *membership.Node, s *membership.Snapshot) {
	c.Lock()
	defer c.Unlock()
	if p.Node != node || !p.Running {
		return // of an earlier life
	}
	view := p.State.view
	if view != nil && s.Version() <= view.Version() {
		c.Breach("%s: snapshot %d follows %d", p.Name, s.Version(), view.Version())
	}
	others := make(map[string]*process)
	for _, other := range c.Processes {
		others[other.Name] = other
	}
	for _, m := range s.Members() {
		if m.Cluster != p.Cluster || m.Environment != p.Environment {
			c.Breach("%s sees %s of %s/%s", p.Name, m.ID, m.Cluster, m.Environment)
		}
		if !c.instances[p.World()+"/"+m.Instance()] {
			c.Breach("%s sees %s, which never ran here", p.Name, m.Instance())
		}
		if other := others[m.ID]; other != nil && other != p && other.State.unseen {
			c.Breach("%s sees %s, which no member may see now", p.Name, m.ID)
		}
	}
	changes := membership.Diff(view, s)
	p.State.view = s
	if text := describe(changes); text != "" {
		if p.Home() {
			c.changed = time.Now()
		}
		c.Note("%s: %s", p.Name, text)
	}
	if p.Leaving {
		return // what it thinks of the others is of no interest any more
	}
	for _, m := range changes.Failed {
		other := others[m.ID]
		switch {
		case other == nil || other.Node.Epoch() != m.Epoch || other.Liar: // it was found out
		case other.Running && !other.Leaving:
			c.deaths = append(c.deaths, fmt.Sprintf("after %v: %s took %s for dead", time.Since(c.Began), p.Name, m.ID))
			if !c.Excused() {
				c.Breach("%s took %s for dead, which is alive", p.Name, m.ID)
			}
		case other.Leaving && !c.Excused():
			c.Breach("%s took the leave of %s for a failure", p.Name, m.ID)
		}
	}
	for _, m := range changes.Left {
		if other := others[m.ID]; other != nil && other.Node.Epoch() == m.Epoch && !other.Leaving {
			c.Breach("%s says that %s left, which it did not", p.Name, m.ID)
		}
	}
}

func describe(c membership.Changes) string {
	var out []string
	for what, names := range map[string][]string{
		"joined": membership.IDs(c.Joined), "left": membership.IDs(c.Left),
		"failed": membership.IDs(c.Failed), "superseded": clusterscript.Replaced(c),
	} {
		if len(names) > 0 {
			out = append(out, what+" "+strings.Join(names, " "))
		}
	}
	return strings.Join(out, ", ")
}

// converged is agreement that lasts: after two quiet minutes all views still are
// what they were, and their checksums are equal.
// An agreement that does not last counts for nothing, as long as one that does
// begins in time.
func (c *cluster) converged(within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		if err := clusterscript.Eventually(time.Until(deadline), c.Agreement); err != nil {
			return err
		}
		since := time.Now()
		c.Logf("agreed")
		time.Sleep(quiet)
		c.Lock()
		changed := c.changed
		c.Unlock()
		switch {
		case !changed.After(since.Add(time.Second)): // the monitor may be a little late
			return c.Agreement()
		case changed.After(deadline):
			return fmt.Errorf("agreed at %v, but a view changed at %v", since.Sub(c.Began), changed.Sub(c.Began))
		}
	}
}
