package clusterscript

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// HomeCluster and HomeEnvironment are of the cluster that a history is about.
	HomeCluster, HomeEnvironment = "home", "test"
	// lossIsFault is the packet loss above which a death may be false.
	lossIsFault = 0.05
	// healing is how long after the end of a fault its consequences are excused.
	healing = 3 * time.Minute
)

// Process is one machine of a history and what runs on it. State is the data that a
// package keeps of it in addition.
type Process[S any] struct {
	Name                 string
	Role                 identity.Role
	Cluster, Environment string
	Seeds                []string // by name
	Host                 *memnet.Host
	State                S

	// Outsider is set for one that does not belong here, whatever its configuration
	// states, and Liar for one that belongs here and lies about itself: no member may
	// see the one, and the other until it is found out.
	Outsider, Liar bool

	Node             *membership.Node
	Life             context.Context // ends with the life
	Running, Leaving bool
	end              context.CancelFunc
}

// Home reports whether the process is a member that the others should see.
func (p *Process[S]) Home() bool {
	return p.World() == HomeCluster+"/"+HomeEnvironment && !p.Liar
}

// World names those who may see each other.
func (p *Process[S]) World() string {
	if p.Outsider {
		return "outside/" + p.Name
	}
	return p.Cluster + "/" + p.Environment
}

// Cluster runs real members on a network in memory. A package sets the hooks that it
// needs before the first process.
type Cluster[S any] struct {
	Network *memnet.Network
	Random  *rand.Rand
	Began   time.Time
	Tasks   sync.WaitGroup // Close waits for them
	Level   slog.Level     // of what is kept of the members' logs

	Made      func(*Process[S])                           // it has its name and role
	Configure func(*Process[S], *membership.Config) error // for its next life
	Prepare   func(*Process[S], *membership.Node) error   // before the member starts
	Started   func(*Process[S]) error
	Ending    func(p *Process[S], how string) // "kill" or "leave"; the lock is held

	sync.Mutex // guards what follows, and the fields of processes
	Processes  []*Process[S]
	fault      bool
	loss       float64
	healed     time.Time
	broken     []string // what must always hold and did not
	log        []string
	hosts      int // that were ever there
}

func NewCluster[S any](seed uint64) *Cluster[S] {
	return &Cluster[S]{
		Network: memnet.New(memnet.Config{Seed: seed, Latency: 500 * time.Microsecond, Jitter: 500 * time.Microsecond}),
		Random:  rand.New(rand.NewPCG(seed, 0)),
		Began:   time.Now(),
	}
}

// Close ends everything and waits until memberlist's goroutines are gone, too: they
// end some time after its Shutdown.
func (c *Cluster[S]) Close() {
	for _, p := range c.List(func(p *Process[S]) bool { return p.Running }) {
		c.Kill(p)
	}
	c.Tasks.Wait()
	_ = c.Network.Close()
	time.Sleep(10 * time.Minute)
}

// Play plays a history to its end, to the first statement that fails or to the first
// after which something does not hold that always must.
func (c *Cluster[S]) Play(h *History, size int, forms []Form) error {
	steps, err := h.Steps(size, forms)
	if err != nil {
		return err
	}
	for _, s := range steps {
		c.Logf("──── %s: %s", s.Where, s.Text)
		if err := s.Do(); err != nil {
			return fmt.Errorf("%s: %s: %w\n%s", s.Where, s.Text, err, c.Tail(60))
		}
		if broken := c.Broken(); len(broken) > 0 {
			return fmt.Errorf("%s: while %q ran:\n  %s\n%s", s.Where, s.Text, strings.Join(broken, "\n  "), c.Tail(60))
		}
	}
	return nil
}

// Refute is nil if each of the statements fails, and every form of an expectation is
// among them: it shows that histories can fail.
func (c *Cluster[S]) Refute(h *History, forms []Form) error {
	steps, err := h.Steps(0, forms)
	tried := map[string]bool{}
	for _, s := range steps {
		tried[s.form] = true
		if s.Do() == nil {
			err = errors.Join(err, fmt.Errorf("%s: %s: it holds", s.Where, s.Text))
		}
	}
	for _, f := range forms {
		if strings.HasPrefix(f.Form, "expect ") && !tried[f.Form] {
			err = errors.Join(err, fmt.Errorf("%q is not tried", f.Form))
		}
	}
	return err
}

func (c *Cluster[S]) Logf(format string, args ...any) {
	c.Lock()
	defer c.Unlock()
	c.Note(format, args...)
}

// Note is Logf where the lock is held.
func (c *Cluster[S]) Note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf("%10v  %s", time.Since(c.Began).Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

// Breach notes that something does not hold which always must. The lock is held.
func (c *Cluster[S]) Breach(format string, args ...any) {
	c.Note("BROKEN: "+format, args...)
	if len(c.broken) < 20 {
		c.broken = append(c.broken, c.log[len(c.log)-1])
	}
}

func (c *Cluster[S]) Broken() []string {
	c.Lock()
	defer c.Unlock()
	return c.broken
}

// Tail is the end of what happened, for the report of a failure.
func (c *Cluster[S]) Tail(lines int) string {
	c.Lock()
	defer c.Unlock()
	return strings.Join(c.log[max(0, len(c.log)-lines):], "\n")
}

// Logged reports whether a process logged a line with all the texts.
func (c *Cluster[S]) Logged(p *Process[S], texts ...string) bool {
	c.Lock()
	defer c.Unlock()
	return slices.ContainsFunc(c.log, func(line string) bool {
		line = strings.ReplaceAll(line, `\"`, `"`)
		return strings.Contains(line, "  "+p.Name+": ") && !slices.ContainsFunc(texts, func(t string) bool { return !strings.Contains(line, t) })
	})
}

type logWriter func(string)

func (w logWriter) Write(b []byte) (int, error) {
	w(string(bytes.TrimSpace(b)))
	return len(b), nil
}

// Logger writes what a process logs into what happened.
func (c *Cluster[S]) Logger(name string) *slog.Logger {
	return slog.New(slog.NewTextHandler(logWriter(func(line string) { c.Logf("%s: %s", name, line) }), &slog.HandlerOptions{
		Level: c.Level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// FreshHost is a machine that was not there yet; the first is 10.0.0.2.
func (c *Cluster[S]) FreshHost() *memnet.Host { return c.Network.Host(c.freshIP()) }

// NewProcess names a process of the home cluster that joins later.
func (c *Cluster[S]) NewProcess(prefix string, role identity.Role) *Process[S] {
	n := len(c.List(func(p *Process[S]) bool { return strings.TrimRight(p.Name, "0123456789") == prefix }))
	p := &Process[S]{Name: fmt.Sprintf("%s%d", prefix, n+1), Role: role, Cluster: HomeCluster, Environment: HomeEnvironment}
	if c.Made != nil {
		c.Made(p)
	}
	return p
}

// Join starts a process on a machine of its own.
func (c *Cluster[S]) Join(p *Process[S], through string) error {
	seeds, err := c.Resolve(through)
	if err != nil {
		return err
	}
	p.Seeds, p.Host = append(p.Seeds, Names(seeds)...), c.FreshHost()
	c.Lock()
	c.Processes = append(c.Processes, p)
	c.Unlock()
	return c.Start(p)
}

func (c *Cluster[S]) Start(p *Process[S]) error {
	node, err := c.Boot(p, p.Host)
	if err != nil {
		return err
	}
	return c.Begin(p, node, p.Host)
}

// Boot makes the member of a process, which fixes its epoch.
func (c *Cluster[S]) Boot(p *Process[S], host *memnet.Host) (*membership.Node, error) {
	cfg := membership.Config{
		Cluster: p.Cluster, Environment: p.Environment, ID: p.Name, Role: p.Role,
		BindAddr: GossipAddr(host.IP()), Network: host, Logger: c.Logger(p.Name),
	}
	for _, name := range p.Seeds {
		seed, err := c.Find(name)
		if err != nil {
			return nil, err
		}
		cfg.Seeds = append(cfg.Seeds, GossipAddr(seed.Host.IP()))
	}
	if c.Configure != nil {
		if err := c.Configure(p, &cfg); err != nil {
			return nil, err
		}
	}
	return membership.New(cfg)
}

func GossipAddr(ip netip.Addr) string {
	return netip.AddrPortFrom(ip, membership.DefaultGossipPort).String()
}

// Begin starts the life of a process that Boot has made.
func (c *Cluster[S]) Begin(p *Process[S], node *membership.Node, host *memnet.Host) error {
	if c.Prepare != nil {
		if err := c.Prepare(p, node); err != nil {
			return err
		}
	}
	life, end := context.WithCancel(context.Background())
	c.Lock()
	p.Node, p.Host, p.Life, p.end, p.Running, p.Leaving = node, host, life, end, true, false
	c.Note("start %s at %s, epoch %d", p.Name, node.Addr(), node.Epoch())
	c.Unlock()
	if err := node.Start(life); err != nil || c.Started == nil {
		return err
	}
	return c.Started(p)
}

// Kill ends a process as SIGKILL would.
func (c *Cluster[S]) Kill(p *Process[S]) {
	c.Lock()
	running := p.Running
	c.ending(p, "kill")
	p.Running = false
	c.Unlock()
	if running {
		p.Host.Crash()
		p.end()
		node := p.Node
		c.Tasks.Go(func() { _ = node.Close() })
	}
}

// Leave ends a process as SIGTERM would: it announces its departure, stays for a second of
// probes, and goes.
func (c *Cluster[S]) Leave(p *Process[S]) error {
	c.Lock()
	c.ending(p, "leave")
	p.Leaving = true
	c.Unlock()
	err := p.Node.Leave(context.Background())
	time.Sleep(time.Second)
	c.Kill(p)
	return err
}

func (c *Cluster[S]) ending(p *Process[S], how string) {
	c.Note("%s %s", how, p.Name)
	if p.Running && c.Ending != nil {
		c.Ending(p, how)
	}
}

// Restart kills a process and starts it under the same id.
func (c *Cluster[S]) Restart(p *Process[S], move bool) error {
	c.Kill(p)
	if move {
		p.Host.Move(c.freshIP())
	}
	time.Sleep(5 * time.Millisecond) // no process starts in no time
	return c.Start(p)
}

// faults changes what the network does to packets: a death may be false from then on, or
// was until then.
func (c *Cluster[S]) faults(change func()) {
	c.Lock()
	defer c.Unlock()
	if c.fault || c.loss > lossIsFault {
		c.healed = time.Now()
	}
	change()
}

// Excused reports whether a fault can explain what happens now. The lock is held.
func (c *Cluster[S]) Excused() bool {
	return c.fault || c.loss > lossIsFault || !c.healed.IsZero() && time.Since(c.healed) < healing
}

// Agreement is nil when every live member sees exactly the live members, each in its
// present life.
func (c *Cluster[S]) Agreement() error {
	live := c.Live()
	var members []membership.Member
	for _, p := range live {
		members = append(members, membership.Member{ID: p.Name, Epoch: p.Node.Epoch()})
	}
	want := membership.NewSnapshot(0, "", members)
	var errs []error
	for _, p := range live {
		if got := p.Node.Snapshot(); got.Checksum() != want.Checksum() && len(errs) < 4 {
			d := membership.Diff(want, got)
			errs = append(errs, fmt.Errorf("%s sees %d of %d: misses %v, has too many %v, in another life %v",
				p.Name, len(got.Members()), len(members), membership.IDs(append(d.Failed, d.Left...)), membership.IDs(d.Joined), Replaced(d)))
		}
	}
	return errors.Join(errs...)
}

// Replaced names the lives that follow each other.
func Replaced(d membership.Changes) (names []string) {
	for _, r := range d.Superseded {
		names = append(names, r.Old.Instance()+" by "+r.New.Instance())
	}
	return names
}
