package peering_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/clusterscript"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// perWorker is m, and serving the relays that serve the service of the test.
	perWorker, serving = 3, 10
	slack              = 2
	// settle is how soon after a change has become known to all the connections
	// must be there.
	settle          = 5 * time.Second
	inspectInterval = 100 * time.Millisecond
	// flapWithin is how soon a closed connection must not be opened again.
	flapWithin = time.Minute
)

type process = clusterscript.Process[state]

// state is what this test keeps of a process.
type state struct {
	life  int
	known bool // to every relay, in this life, for settle at least once
}

// pair is a relay and a worker, lives those that a connection is between.
type (
	pair  struct{ relay, worker string }
	lives struct{ relay, worker int }
)

// cluster is a fleet of which each relay plans and connects by what it knows itself,
// once for every variant.
type cluster struct {
	*clusterscript.Cluster[state]
	variants  []*variant // guarded by the lock, as what follows
	perMember int        // workers that come and go with one member
	unsettled time.Time  // when the relays last disagreed with the truth
	agreement time.Duration
}

// variant is one way to keep connections, and the connections there are by it.
type variant struct {
	name  string
	grace time.Duration
	index affinity.IndexSource

	open   map[pair]lives
	degree map[string]int // open connections by worker
	closed map[pair]closing
	// relaysGone are relays that ended or began anew, until the others have made up for it.
	relaysGone int

	opened, flaps, lowest, most int
}

// closing is when a connection was closed because no service needed it.
type closing struct {
	at   time.Time
	ends lives
}

// workersOf lists the workers that a member has, and memberOf undoes it.
func (c *cluster) workersOf(member string) []string {
	out := make([]string, c.perMember)
	for i := range out {
		out[i] = fmt.Sprintf("%s.%d", member, i)
	}
	return out
}

func memberOf(worker string) string { return worker[:strings.LastIndexByte(worker, '.')] }

func newCluster(perMember int, variants ...*variant) *cluster {
	for _, v := range variants {
		v.open, v.degree, v.closed, v.lowest = map[pair]lives{}, map[string]int{}, map[pair]closing{}, perWorker
	}
	c := &cluster{Cluster: clusterscript.NewCluster[state](1), perMember: perMember, variants: variants}
	c.Level = slog.LevelError
	c.Configure, c.Prepare, c.Started, c.Ending = configure, c.prepare, c.started, c.ending
	return c
}

// configure gives every member the first three hosts for seeds.
func configure(_ *process, cfg *membership.Config) error {
	cfg.Seeds = []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}
	return nil
}

func (c *cluster) prepare(p *process, _ *membership.Node) error {
	c.Lock()
	defer c.Unlock()
	p.State = state{life: p.State.life + 1}
	c.unsettled = time.Now()
	return nil
}

func (c *cluster) started(p *process) error {
	if p.Role != identity.RoleRelay {
		return nil
	}
	life := p.Life
	for _, v := range c.variants {
		d, err := newDriver(c, v, p)
		if err != nil {
			return err
		}
		c.Tasks.Go(func() { d.run(life) })
	}
	return nil
}

// ending notes that the truth is another one, and breaks the connections of a process
// that is killed.
func (c *cluster) ending(p *process, how string) {
	if !p.Leaving {
		c.unsettled = time.Now()
	}
	for _, v := range c.variants {
		if !p.Leaving && p.Role == identity.RoleRelay {
			v.relaysGone++
		}
		for k := range v.open {
			if how == "kill" && (k.relay == p.Name || memberOf(k.worker) == p.Name) {
				v.remove(k)
			}
		}
	}
}

func (v *variant) remove(k pair) {
	if _, there := v.open[k]; there {
		delete(v.open, k)
		v.degree[k.worker]--
	}
}

// staying lists the members of a role, or all, that run and have not announced that they leave.
// The lock is held.
func (c *cluster) staying(role identity.Role) []*process {
	return slices.DeleteFunc(slices.Clone(c.Processes), func(p *process) bool {
		return !p.Running || p.Leaving || role != "" && p.Role != role
	})
}

// agreed reports whether every relay knows just who is there, in which life. The lock is
// held.
func (c *cluster) agreed(relays []*process) bool {
	var members []membership.Member
	for _, p := range c.staying("") {
		members = append(members, membership.Member{ID: p.Name, Epoch: p.Node.Epoch()})
	}
	truth := membership.NewSnapshot(0, "", members).Checksum()
	return !slices.ContainsFunc(relays, func(p *process) bool { return p.Node.Snapshot().Checksum() != truth })
}

// inspect checks every worker's connections against what was promised.
func (c *cluster) inspect() {
	c.Lock()
	defer c.Unlock()
	now := time.Now()
	workers, relays := c.staying(identity.RoleWorker), c.staying(identity.RoleRelay)
	if !c.agreed(relays) {
		c.unsettled = now
	}
	known := now.Sub(c.unsettled) // for how long all have known all changes
	if known >= settle {
		c.agreement += inspectInterval
	}
	for _, v := range c.variants {
		v.most = max(v.most, len(v.open))
		floor := 0
		switch {
		case known >= v.grace+settle:
			floor, v.relaysGone = perWorker, 0
		case known >= settle:
			floor = perWorker - 1
		}
		// Even while the relays disagree, a worker lacks only those who are really gone.
		atLeast := min(max(floor, perWorker-v.relaysGone), len(relays))
		for _, member := range workers {
			member.State.known = member.State.known || known >= settle
			if !member.State.known {
				continue
			}
			for _, w := range c.workersOf(member.Name) {
				v.lowest = min(v.lowest, v.degree[w])
				if v.degree[w] < atLeast {
					c.Breach("%s: worker %s has %d relays, want %d: all changes known for %v, %d relays gone lately", v.name, w, v.degree[w], atLeast, known, v.relaysGone)
				}
			}
		}
	}
}

// watch inspects until stop is closed.
func (c *cluster) watch(stop <-chan struct{}) {
	tick := time.NewTicker(inspectInterval)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			c.inspect()
		}
	}
}

// number names a process so that those that join later come last in the order of names: a
// relay that joins in the middle moves the ranks of those behind it.
func (c *cluster) number(p *process) {
	c.Lock()
	defer c.Unlock()
	p.Name = fmt.Sprintf("%s-%03d", p.Role, len(c.Processes))
}

// live is a time of random joins, leaves and crashes.
func (c *cluster) live(random *rand.Rand, duration, every time.Duration, relays, members int) (events int, err error) {
	type comeback struct {
		at time.Time
		p  *process
	}
	var away []comeback
	for end := time.Now().Add(duration); time.Now().Before(end); events++ {
		time.Sleep(time.Duration(random.ExpFloat64() * float64(every)))
		role, size := identity.RoleWorker, members
		if random.IntN(4) == 0 {
			role, size = identity.RoleRelay, relays
		}
		if len(away) > 0 && time.Now().After(away[0].at) {
			p := away[0].p
			away = away[1:]
			if err := c.Start(p); err != nil {
				return events, err
			}
			continue
		}
		c.Lock()
		there := c.staying(role)
		c.Unlock()
		switch victim := there[random.IntN(len(there))]; {
		case len(there) < size && random.IntN(2) == 0:
			err = c.JoinAll("1 "+string(role), "", 0, c.number)
		case random.IntN(3) == 0:
			err = c.Leave(victim)
			away = append(away, comeback{time.Now().Add(time.Duration(1+random.IntN(10)) * time.Minute), victim})
		case random.IntN(2) == 0: // a restart
			c.Kill(victim)
			time.Sleep(time.Duration(1000+random.IntN(9000)) * time.Millisecond)
			err = c.Start(victim)
		default:
			c.Kill(victim)
		}
		if err != nil {
			return events, err
		}
	}
	return events, nil
}

func (c *cluster) report(t *testing.T, events int) {
	t.Helper()
	if broken := c.Broken(); len(broken) > 0 {
		t.Errorf("does not hold:\n  %s\nthe end of what happened:\n%s", strings.Join(broken, "\n  "), c.Tail(60))
	}
	c.Lock()
	defer c.Unlock()
	if whole := time.Since(c.Began); c.agreement < whole/2 {
		t.Errorf("all changes were known for only %v of %v: the promises were hardly tried", c.agreement, whole)
	}
	t.Logf("%v virtual, %d events; all changes known for %v or longer: %v of it; %v", time.Since(c.Began).Round(time.Second), events, settle, c.agreement, c.Network.Counters())
	for _, v := range c.variants {
		// Ten that come and go at one time move ranges by more than slack, for cause.
		if v.flaps > 0 && c.perMember == 1 {
			t.Errorf("%s: %d connections of ends that stayed were closed and opened again within %v", v.name, v.flaps, flapWithin)
		}
		t.Logf("%-30s %5d opened, %d flaps, at worst %d relays for a worker, at most %d connections, in the end %d", v.name, v.opened, v.flaps, v.lowest, v.most, len(v.open))
	}
}
