package peering_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/memnet"
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

// process is one machine and the life of it that runs.
type process struct {
	id    string
	role  membership.Role
	host  *memnet.Host
	life  int
	known bool // to every relay, in this life, for settle at least once

	node    *membership.Node
	cancel  context.CancelFunc
	running bool
	staying bool // runs and has not said that it goes
}

// pair is a relay and a worker, lives those that a connection is between.
type (
	pair  struct{ relay, worker string }
	lives struct{ relay, worker int }
)

// cluster is a fleet of real members on a network in memory. Each relay plans and
// connects by what it knows itself, once for every variant.
type cluster struct {
	network   *memnet.Network
	variants  []*variant
	perMember int // workers that come and go with one member
	began     time.Time
	tasks     sync.WaitGroup

	mu        sync.Mutex // guards what follows, the fields of processes and the variants
	processes map[string]*process
	unsettled time.Time // when the relays last disagreed with the truth
	agreement time.Duration
	violated  []string
	history   []string
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

// closing is when a connection was closed because nobody needed it.
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
	return &cluster{
		perMember: perMember,
		network:   memnet.New(memnet.Config{Seed: 1, Latency: 500 * time.Microsecond, Jitter: 500 * time.Microsecond}),
		variants:  variants, began: time.Now(), processes: map[string]*process{},
	}
}

// close ends everything and waits until memberlist's goroutines are gone, too: they
// end some time after its Shutdown.
func (c *cluster) close() {
	for _, p := range c.processes {
		c.kill(p)
	}
	c.tasks.Wait()
	_ = c.network.Close()
	time.Sleep(10 * time.Minute)
}

// note writes the history. The caller holds mu.
func (c *cluster) note(format string, args ...any) {
	c.history = append(c.history, fmt.Sprintf("%8.1fs  %s", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...)))
}

// broken notes that an invariant does not hold. The caller holds mu.
func (c *cluster) broken(format string, args ...any) {
	c.note("BROKEN: "+format, args...)
	if len(c.violated) < 20 {
		c.violated = append(c.violated, c.history[len(c.history)-1])
	}
}

// add makes a process and starts it.
func (c *cluster) add(id string, role membership.Role) error {
	c.mu.Lock()
	n := len(c.processes)
	p := &process{id: id, role: role, host: c.network.Host(fmt.Sprintf("10.0.%d.%d", n/250, 1+n%250))}
	c.processes[id] = p
	c.mu.Unlock()
	return c.start(p)
}

func (c *cluster) start(p *process) error {
	at := func(ip string) string {
		return netip.AddrPortFrom(netip.MustParseAddr(ip), membership.DefaultGossipPort).String()
	}
	node, err := membership.New(membership.Config{
		Cluster: "home", Environment: "test", ID: p.id, Role: p.role, BindAddr: at(p.host.IP().String()),
		Seeds: []string{at("10.0.0.1"), at("10.0.0.2"), at("10.0.0.3")}, Network: p.host,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := node.Start(ctx); err != nil {
		cancel()
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.life++
	p.node, p.cancel, p.running, p.staying, p.known = node, cancel, true, true, false
	c.changed("start", p)
	if p.role == membership.RoleRelay {
		for _, v := range c.variants {
			d, err := newDriver(c, v, p)
			if err != nil {
				cancel()
				return err
			}
			c.tasks.Go(func() { d.run(ctx) })
		}
	}
	return nil
}

// changed notes that the truth is another one. The caller holds mu.
func (c *cluster) changed(what string, p *process) {
	c.note("%s %s, life %d", what, p.id, p.life)
	c.unsettled = time.Now()
	if p.role == membership.RoleRelay && what != "start" {
		for _, v := range c.variants {
			v.relaysGone++
		}
	}
}

// kill ends a process as SIGKILL would. Its connections break.
func (c *cluster) kill(p *process) {
	c.mu.Lock()
	if !p.running {
		c.mu.Unlock()
		return
	}
	if p.staying {
		c.changed("kill", p)
	}
	p.running, p.staying = false, false
	for _, v := range c.variants {
		for k := range v.open {
			if k.relay == p.id || memberOf(k.worker) == p.id {
				v.remove(k)
			}
		}
	}
	c.mu.Unlock()
	p.host.Crash()
	p.cancel()
	c.tasks.Go(func() { _ = p.node.Close() })
}

// leave ends a process as SIGTERM would.
func (c *cluster) leave(p *process) error {
	c.mu.Lock()
	c.changed("leave", p)
	p.staying = false
	c.mu.Unlock()
	err := p.node.Leave(context.Background())
	time.Sleep(time.Second)
	c.kill(p)
	return err
}

func (v *variant) remove(k pair) {
	if _, there := v.open[k]; there {
		delete(v.open, k)
		v.degree[k.worker]--
	}
}

// staying lists the processes of a role that are to stay, by id. The caller holds mu.
func (c *cluster) staying(role membership.Role) (out []*process) {
	for _, p := range c.processes {
		if p.staying && p.role == role {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *process) int { return strings.Compare(a.id, b.id) })
	return out
}

// agreed reports whether every relay knows just who is there, in which life.
func (c *cluster) agreed() bool {
	relays := c.staying(membership.RoleRelay)
	var members []membership.Member
	for _, p := range append(c.staying(membership.RoleWorker), relays...) {
		members = append(members, membership.Member{ID: p.id, Epoch: p.node.Epoch()})
	}
	truth := membership.NewSnapshot(0, "", members).Checksum()
	return !slices.ContainsFunc(relays, func(p *process) bool { return p.node.Snapshot().Checksum() != truth })
}

// inspect checks every worker's connections against what was promised.
func (c *cluster) inspect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.agreed() {
		c.unsettled = now
	}
	known := now.Sub(c.unsettled) // for how long all have known all changes
	workers, relays := c.staying(membership.RoleWorker), c.staying(membership.RoleRelay)
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
			member.known = member.known || known >= settle
			if !member.known {
				continue
			}
			for _, w := range c.workersOf(member.id) {
				v.lowest = min(v.lowest, v.degree[w])
				if v.degree[w] < atLeast {
					c.broken("%s: worker %s has %d relays, want %d: all changes known for %v, %d relays gone lately", v.name, w, v.degree[w], atLeast, known, v.relaysGone)
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

// live is a time of random joins, leaves and crashes.
func (c *cluster) live(random *rand.Rand, duration, every time.Duration, relays, members int) (events int, err error) {
	type comeback struct {
		at time.Time
		p  *process
	}
	var away []comeback
	for end := time.Now().Add(duration); time.Now().Before(end); events++ {
		time.Sleep(time.Duration(random.ExpFloat64() * float64(every)))
		role, size := membership.RoleWorker, members
		if random.IntN(4) == 0 {
			role, size = membership.RoleRelay, relays
		}
		if len(away) > 0 && time.Now().After(away[0].at) {
			p := away[0].p
			away = away[1:]
			if err := c.start(p); err != nil {
				return events, err
			}
			continue
		}
		c.mu.Lock()
		there := c.staying(role)
		fresh := len(c.processes)
		c.mu.Unlock()
		switch victim := there[random.IntN(len(there))]; {
		case len(there) < size && random.IntN(2) == 0:
			err = c.add(fmt.Sprintf("%s-%03d", role, fresh), role)
		case random.IntN(3) == 0:
			err = c.leave(victim)
			away = append(away, comeback{time.Now().Add(time.Duration(1+random.IntN(10)) * time.Minute), victim})
		case random.IntN(2) == 0: // a restart
			c.kill(victim)
			time.Sleep(time.Duration(1000+random.IntN(9000)) * time.Millisecond)
			err = c.start(victim)
		default:
			c.kill(victim)
		}
		if err != nil {
			return events, err
		}
	}
	return events, nil
}

func (c *cluster) report(t *testing.T, events int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.violated) > 0 {
		t.Errorf("does not hold:\n  %s\nthe end of what happened:\n%s", strings.Join(c.violated, "\n  "), strings.Join(c.history[max(0, len(c.history)-60):], "\n"))
	}
	if whole := time.Since(c.began); c.agreement < whole/2 {
		t.Errorf("all changes were known for only %v of %v: the promises were hardly tried", c.agreement, whole)
	}
	t.Logf("%v virtual, %d events; all changes known for %v or longer: %v of it; %v", time.Since(c.began).Round(time.Second), events, settle, c.agreement, c.network.Counters())
	for _, v := range c.variants {
		// Ten that come and go at one time move ranges by more than slack, for cause.
		if v.flaps > 0 && c.perMember == 1 {
			t.Errorf("%s: %d connections of ends that stayed were closed and opened again within %v", v.name, v.flaps, flapWithin)
		}
		t.Logf("%-30s %5d opened, %d flaps, at worst %d relays for a worker, at most %d connections, in the end %d", v.name, v.opened, v.flaps, v.lowest, v.most, len(v.open))
	}
}
