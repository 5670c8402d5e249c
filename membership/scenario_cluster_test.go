package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/membership/memnet"
)

const (
	homeCluster, homeEnvironment = "home", "test"
	// lossIsFault is the packet loss above which a death may be false.
	lossIsFault = 0.05
	// healing is how long after the end of a fault its consequences are excused.
	healing = 3 * time.Minute
	// quiet is how long an agreement must last to be called converged.
	quiet = 2 * time.Minute
)

// process is one machine of a history and what runs on it.
type process struct {
	name                 string
	role                 Role
	cluster, environment string
	datacenter           string
	seeds                []string
	byName               bool          // its seed is a name in DNS instead
	skew                 time.Duration // of its clock
	host                 *memnet.Host
	keyring              *Keyring // kept over restarts, as its file is

	// outsider is set for who does not belong here, whatever its configuration
	// says, and liar for who belongs here and gossips what its certificate denies:
	// nobody may see the one, and the other until it is found out.
	outsider, liar bool
	configure      func(*Config) error // what is special about it
	prepare        func(*Node)         // before it starts

	node    *Node
	cancel  context.CancelFunc
	running bool
	leaving bool
	unseen  bool      // nobody else may see it now
	view    *Snapshot // the last that the monitor saw
}

func (p *process) home() bool { return p.world() == homeCluster+"/"+homeEnvironment && !p.liar }

// world names those who may see each other.
func (p *process) world() string {
	if p.outsider {
		return "outside/" + p.name
	}
	return p.cluster + "/" + p.environment
}

// cluster runs real nodes on a network in memory and watches every snapshot of
// every node for what must never be in one.
type cluster struct {
	network  *memnet.Network
	began    time.Time
	hosts    int
	security security
	names    *nameServer // nil where no history asks for one

	mu        sync.Mutex // guards what follows, and the fields of processes
	processes []*process
	instances map[string]bool // every instance that ever ran, by world and name
	fault     bool
	loss      float64
	healed    time.Time
	changed   time.Time // when a member's view last gained or lost one
	broken    []string  // invariants that did not hold
	deaths    []string  // false deaths, excused or not
	history   bytes.Buffer
	tasks     sync.WaitGroup
}

func newCluster(seed uint64) *cluster {
	return &cluster{
		network:   memnet.New(memnet.Config{Seed: seed, Latency: 500 * time.Microsecond, Jitter: 500 * time.Microsecond}),
		began:     time.Now(),
		instances: make(map[string]bool),
	}
}

// close ends everything and waits until memberlist's goroutines are gone, too:
// they end some time after its Shutdown.
func (c *cluster) close() {
	for _, p := range c.running() {
		c.kill(p)
	}
	c.tasks.Wait()
	_ = c.network.Close()
	time.Sleep(10 * time.Minute)
}

func (c *cluster) logf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(format, args...)
}

func (c *cluster) note(format string, args ...any) {
	fmt.Fprintf(&c.history, "%10v  %s\n", time.Since(c.began).Round(time.Millisecond), fmt.Sprintf(format, args...))
}

// tail is the end of the history, for the report of a failure.
func (c *cluster) tail(lines int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := strings.Split(strings.TrimSpace(c.history.String()), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// nodeLog writes what a node logs into the history.
type nodeLog struct {
	c    *cluster
	name string
}

func (l nodeLog) Write(b []byte) (int, error) {
	l.c.logf("%s: %s", l.name, bytes.TrimSpace(b))
	return len(b), nil
}

func (c *cluster) freshHost() string {
	c.hosts++
	return fmt.Sprintf("10.0.%d.%d", c.hosts/250, 1+c.hosts%250)
}

// add makes a process that does not run yet.
func (c *cluster) add(p *process) {
	p.host = c.network.Host(c.freshHost())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes = append(c.processes, p)
}

func (c *cluster) start(p *process) error {
	var seeds []string
	for _, name := range p.seeds {
		seed, err := c.find(name)
		if err != nil {
			return err
		}
		seeds = append(seeds, netip.AddrPortFrom(seed.host.IP(), DefaultGossipPort).String())
	}
	skew := p.skew // of this life: the next may have another
	cfg := Config{
		Cluster: p.cluster, Environment: p.environment, ID: p.name, Role: p.role, Datacenter: p.datacenter,
		BindAddr: netip.AddrPortFrom(p.host.IP(), DefaultGossipPort).String(),
		Seeds:    seeds, Network: p.host, Registerer: prometheus.NewRegistry(),
		Logger: slog.New(slog.NewTextHandler(nodeLog{c, p.name}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})),
		clock: func() time.Time { return time.Now().Add(skew) },
	}
	if err := c.security.arm(p, &cfg); err != nil {
		return err
	}
	if p.byName {
		if err := c.names.through(&cfg); err != nil {
			return err
		}
	}
	if p.configure != nil {
		if err := p.configure(&cfg); err != nil {
			return err
		}
	}
	node, err := New(cfg)
	if err != nil {
		return err
	}
	if p.prepare != nil {
		p.prepare(node)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	c.instances[p.world()+"/"+instanceName(p.name, node.Epoch())] = true
	p.node, p.cancel, p.running, p.leaving, p.view = node, cancel, true, false, nil
	c.note("start %s at %s, epoch %d", p.name, node.Addr(), node.Epoch())
	c.mu.Unlock()
	if err := node.Start(ctx); err != nil {
		return err
	}
	views := node.Watch(ctx)
	c.tasks.Go(func() {
		for s := range views {
			c.inspect(p, node, s)
		}
	})
	return nil
}

// kill ends a process as SIGKILL would.
func (c *cluster) kill(p *process) {
	c.mu.Lock()
	running := p.running
	p.running = false
	c.note("kill %s", p.name)
	c.mu.Unlock()
	if running {
		c.stop(p)
	}
}

func (c *cluster) stop(p *process) {
	node, cancel := p.node, p.cancel
	p.host.Crash()
	cancel()
	c.tasks.Go(func() { _ = node.Close() })
}

// leave ends a process as SIGTERM would: it says goodbye, stays for a second of
// probes, and goes.
func (c *cluster) leave(p *process) error {
	c.mu.Lock()
	p.leaving = true
	c.note("leave %s", p.name)
	c.mu.Unlock()
	err := p.node.Leave(context.Background())
	time.Sleep(time.Second)
	c.mu.Lock()
	p.running = false
	c.mu.Unlock()
	c.stop(p)
	return err
}

func (c *cluster) find(name string) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		if p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no %q", name)
}

// running lists the processes that run, of any cluster.
func (c *cluster) running() []*process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.processes), func(p *process) bool { return !p.running })
}

// live lists the members of our cluster that run.
func (c *cluster) live() []*process {
	return slices.DeleteFunc(c.running(), func(p *process) bool { return !p.home() })
}

// setFault notes that deaths may be false from now on, or were until now.
func (c *cluster) setFault(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault && !on {
		c.healed = time.Now()
	}
	c.fault = on
}

// excused reports whether a fault can explain what happens now.
func (c *cluster) excused() bool {
	return c.fault || c.loss > lossIsFault || (!c.healed.IsZero() && time.Since(c.healed) < healing)
}

// inspect checks one snapshot against what must always hold.
func (c *cluster) inspect(p *process, node *Node, s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.node != node || !p.running {
		return // of an earlier life
	}
	wrong := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		c.note("BROKEN: %s", text)
		if len(c.broken) < 20 {
			c.broken = append(c.broken, fmt.Sprintf("at %v: %s", time.Since(c.began).Round(time.Millisecond), text))
		}
	}
	if p.view != nil && s.Version() <= p.view.Version() {
		wrong("%s: snapshot %d follows %d", p.name, s.Version(), p.view.Version())
	}
	for _, m := range s.Members() {
		if m.Cluster != p.cluster || m.Environment != p.environment {
			wrong("%s sees %s of %s/%s", p.name, m.ID, m.Cluster, m.Environment)
		}
		if !c.instances[p.world()+"/"+m.Instance()] {
			wrong("%s sees %s, which never ran here", p.name, m.Instance())
		}
		if other := c.byName(m.ID); other != nil && other != p && other.unseen {
			wrong("%s sees %s, which no member may see now", p.name, m.ID)
		}
	}
	changes := Diff(p.view, s)
	p.view = s
	if len(changes.Joined)+len(changes.Left)+len(changes.Failed)+len(changes.Superseded) > 0 {
		if p.home() {
			c.changed = time.Now()
		}
		c.note("%s: %s", p.name, describe(changes))
	}
	if p.leaving {
		return // what it thinks of the others is of no interest any more
	}
	for _, m := range changes.Failed {
		other := c.byName(m.ID)
		switch {
		case other == nil || other.node.Epoch() != m.Epoch || other.liar: // it was found out
		case other.running && !other.leaving:
			c.deaths = append(c.deaths, fmt.Sprintf("at %v: %s took %s for dead", time.Since(c.began).Round(time.Millisecond), p.name, m.ID))
			if !c.excused() {
				wrong("%s took %s for dead, which is alive", p.name, m.ID)
			}
		case other.leaving && !c.excused():
			wrong("%s took the leave of %s for a failure", p.name, m.ID)
		}
	}
	for _, m := range changes.Left {
		if other := c.byName(m.ID); other != nil && other.node.Epoch() == m.Epoch && !other.leaving {
			wrong("%s says that %s left, which it did not", p.name, m.ID)
		}
	}
}

func (c *cluster) byName(name string) *process {
	for _, p := range c.processes {
		if p.name == name {
			return p
		}
	}
	return nil
}

func describe(c Changes) string {
	var out []string
	part := func(what string, ids []string) {
		if len(ids) > 0 {
			out = append(out, what+" "+strings.Join(ids, " "))
		}
	}
	part("joined", idsOf(c.Joined))
	part("left", idsOf(c.Left))
	part("failed", idsOf(c.Failed))
	part("superseded", instancesOf(c.Superseded))
	return strings.Join(out, ", ")
}

func idsOf(members []Member) (ids []string) {
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

func instancesOf(replaced []Replacement) (names []string) {
	for _, r := range replaced {
		names = append(names, r.Old.Instance()+" by "+r.New.Instance())
	}
	return names
}

// agreement is nil when every live member sees exactly the live members, each in
// its present life.
func (c *cluster) agreement() error {
	live := c.live()
	var members []Member
	for _, p := range live {
		members = append(members, Member{ID: p.name, Epoch: p.node.Epoch()})
	}
	want := NewSnapshot(0, "", members)
	var errs []error
	for _, p := range live {
		got := p.node.Snapshot()
		if got.Checksum() == want.Checksum() {
			continue
		}
		d := Diff(want, got)
		missing := idsOf(append(d.Failed, d.Left...))
		errs = append(errs, fmt.Errorf("%s sees %d of %d: misses %v, has too many %v, in another life %v",
			p.name, len(got.Members()), len(members), missing, idsOf(d.Joined), instancesOf(d.Superseded)))
		if len(errs) == 4 {
			break
		}
	}
	return errors.Join(errs...)
}

// converged is agreement that lasts: after two quiet minutes all views still are
// what they were, and their checksums are equal.
// An agreement that does not last counts for nothing, as long as one that does
// begins in time.
func (c *cluster) converged(within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		if err := eventually(time.Until(deadline), c.agreement); err != nil {
			return err
		}
		since := time.Now()
		c.logf("agreed")
		time.Sleep(quiet)
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		switch {
		case !changed.After(since.Add(time.Second)): // the monitor may be a little late
			return c.agreement()
		case changed.After(deadline):
			return fmt.Errorf("agreed at %v, but a view changed at %v", since.Sub(c.began), changed.Sub(c.began))
		}
	}
}

// eventually asks until the answer is nil or the time is up.
func eventually(within time.Duration, ask func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := ask()
		if err == nil || !time.Now().Before(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *cluster) elapsed() time.Duration { return time.Since(c.began).Round(time.Second) }
