package advertise

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
	"testing"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/memnet"
)

const (
	homeCluster, homeEnvironment = "home", "test"
	// historyLines is how much of what happened is kept for the report of a failure.
	historyLines = 400
)

// process is one machine of a history and what runs on it.
type process struct {
	name                 string
	role                 membership.Role
	cluster, environment string
	seeds                []string
	services             []string // the names of what it offers
	host                 *memnet.Host
	saved                *boot // for a later life

	node       *membership.Node
	catalogue  *Catalogue
	cancel     context.CancelFunc
	running    bool
	publisher  *publisher
	generation int   // of its offer; grows with every one, over all its lives
	sees       sight // what the monitor knows of its views
}

func (p *process) home() bool     { return p.world() == homeCluster+"/"+homeEnvironment }
func (p *process) world() string  { return p.cluster + "/" + p.environment }
func (p *process) self() instance { return instance{p.name, p.node.Epoch()} }

// boot is a process that has read its clock and bound its sockets, and no more.
type boot struct {
	node *membership.Node
	host *memnet.Host
	at   time.Time
}

// cluster runs real members and their catalogues on a network in memory and checks
// every view of every one of them for what must never be in one.
type cluster struct {
	t         *testing.T
	network   *memnet.Network
	began     time.Time
	hosts     int
	random    *rand.Rand
	packetLog packetLog
	tasks     sync.WaitGroup

	mu        sync.Mutex // guards what follows, and the fields of processes
	processes []*process
	offersLog map[instance]*life
	forged    map[instance]bool // who may be believed to offer what was forged
	broken    []string          // invariants that did not hold
	views     int               // checked
	history   []string
}

func newCluster(t *testing.T, seed uint64) *cluster {
	return &cluster{
		t:         t,
		network:   memnet.New(memnet.Config{Seed: seed, Latency: 500 * time.Microsecond, Jitter: 500 * time.Microsecond}),
		began:     time.Now(),
		random:    rand.New(rand.NewPCG(seed, 0)),
		offersLog: map[instance]*life{},
		forged:    map[instance]bool{},
	}
}

// close ends everything and waits until memberlist's goroutines are gone, too:
// they end some time after its Shutdown.
func (f *cluster) close() {
	for _, p := range f.list(func(*process) bool { return true }) {
		f.kill(p)
		if p.saved != nil {
			_ = p.saved.node.Close()
		}
	}
	f.tasks.Wait()
	_ = f.network.Close()
	time.Sleep(10 * time.Minute)
}

func (f *cluster) logf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note(format, args...)
}

func (f *cluster) note(format string, args ...any) {
	if len(f.history) == 2*historyLines {
		f.history = append(f.history[:0], f.history[historyLines:]...)
	}
	f.history = append(f.history, fmt.Sprintf("%10v  %s", time.Since(f.began).Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

// tail is the end of the history.
func (f *cluster) tail(lines int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.history[max(0, len(f.history)-lines):], "\n")
}

// processLog writes what a process logs into the history.
type processLog struct {
	f    *cluster
	name string
}

func (l processLog) Write(b []byte) (int, error) {
	l.f.logf("%s: %s", l.name, bytes.TrimSpace(b))
	return len(b), nil
}

func (f *cluster) logger(name string) *slog.Logger {
	return slog.New(slog.NewTextHandler(processLog{f, name}, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

func (f *cluster) freshHost() *memnet.Host {
	f.hosts++
	return f.network.Host(fmt.Sprintf("10.0.%d.%d", f.hosts/250, 1+f.hosts%250))
}

// add makes a process and starts it.
func (f *cluster) add(p *process) error {
	p.host = f.freshHost()
	f.mu.Lock()
	f.processes = append(f.processes, p)
	f.mu.Unlock()
	return f.start(p)
}

// boot makes the member of a process, which fixes its epoch.
func (f *cluster) boot(p *process, host *memnet.Host) (*boot, error) {
	var seeds []string
	for _, name := range p.seeds {
		seed, err := f.find(name)
		if err != nil {
			return nil, err
		}
		seeds = append(seeds, netip.AddrPortFrom(seed.host.IP(), membership.DefaultGossipPort).String())
	}
	node, err := membership.New(membership.Config{
		Cluster: p.cluster, Environment: p.environment, ID: p.name, Role: p.role,
		BindAddr: netip.AddrPortFrom(host.IP(), membership.DefaultGossipPort).String(),
		Seeds:    seeds, Network: recordedNetwork{host, &f.packetLog}, Logger: f.logger(p.name),
	})
	return &boot{node, host, time.Now()}, err
}

func (f *cluster) start(p *process) error {
	b, err := f.boot(p, p.host)
	if err != nil {
		return err
	}
	return f.run(p, b)
}

// run begins a life of a process. A boot that was saved keeps its clock: it is
// as far behind as the boot is old.
func (f *cluster) run(p *process, b *boot) error {
	skew := time.Until(b.at)
	publisher := &publisher{Node: b.node, f: f}
	c, err := New(Config{
		Gossip: publisher, Logger: f.logger(p.name), Seed: f.random.Uint64(),
		Rules: Rules{MaxServicesPerRecord: MaxServices}, // large records are part of the scenarios
		Now:   func() time.Time { return time.Now().Add(skew) },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.mu.Lock()
	p.host, p.node = b.host, b.node
	p.catalogue, p.publisher, p.cancel, p.running, p.sees = c, publisher, cancel, true, newSight()
	f.offersLog[p.self()] = &life{world: p.world(), offers: map[int][]Service{}}
	f.note("start %s at %s, epoch %d, clock %v", p.name, b.node.Addr(), b.node.Epoch(), skew)
	f.mu.Unlock()
	if err := b.node.Start(ctx); err != nil {
		return err
	}
	f.tasks.Go(func() { _ = c.Run(ctx) })
	views := c.Watch(ctx)
	f.tasks.Go(func() {
		for v := range views {
			f.inspect(p, c, v)
		}
	})
	if p.role == membership.RoleWorker {
		return f.offer(p)
	}
	return nil
}

// kill ends a process as SIGKILL would.
func (f *cluster) kill(p *process) {
	f.mu.Lock()
	running := p.running
	p.running = false
	f.note("kill %s", p.name)
	f.mu.Unlock()
	if !running {
		return
	}
	p.host.Crash()
	p.cancel()
	node := p.node
	f.tasks.Go(func() { _ = node.Close() })
}

// leave ends a process as SIGTERM would.
func (f *cluster) leave(p *process) error {
	f.logf("leave %s", p.name)
	err := p.node.Leave(context.Background())
	time.Sleep(time.Second)
	f.kill(p)
	return err
}

func (f *cluster) restart(p *process) error {
	f.kill(p)
	time.Sleep(5 * time.Millisecond) // no process starts in no time
	return f.start(p)
}

func (f *cluster) saveBoot(p *process) (err error) {
	p.saved, err = f.boot(p, f.freshHost())
	return err
}

func (f *cluster) restartSaved(p *process) error {
	if p.saved == nil {
		return fmt.Errorf("no boot of %s was saved", p.name)
	}
	f.kill(p)
	b := p.saved
	p.saved = nil
	return f.run(p, b)
}

// offer makes a worker offer what it has, under a generation of its own.
func (f *cluster) offer(p *process) error {
	f.mu.Lock()
	p.generation++
	services := make([]Service, len(p.services))
	for i, name := range p.services {
		services[i] = Service{
			Name: name, Address: netip.AddrPortFrom(p.host.IP(), 8080).String(),
			Weight: 1 + p.generation%affinity.MaxWeight, Version: fmt.Sprint(p.generation),
		}
	}
	f.offersLog[p.self()].offers[p.generation] = services
	c := p.catalogue
	f.mu.Unlock()
	return c.Offer(services)
}

func (f *cluster) withdraw(p *process) error {
	p.services = nil
	f.mu.Lock()
	p.generation++
	f.offersLog[p.self()].offers[p.generation] = nil
	f.mu.Unlock()
	p.catalogue.Withdraw()
	return nil
}

func (f *cluster) find(name string) (*process, error) {
	if all := f.list(func(p *process) bool { return p.name == name }); len(all) > 0 {
		return all[0], nil
	}
	return nil, fmt.Errorf("there is no %q", name)
}

func (f *cluster) list(which func(*process) bool) (out []*process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.processes {
		if which(p) {
			out = append(out, p)
		}
	}
	return out
}

// live lists the members of our cluster that run.
func (f *cluster) live() []*process {
	return f.list(func(p *process) bool { return p.running && p.home() })
}

// agreement is nil when all live members see each other, each in its present life.
func (f *cluster) agreement() error {
	live := f.live()
	var members []membership.Member
	for _, p := range live {
		members = append(members, membership.Member{ID: p.name, Epoch: p.node.Epoch()})
	}
	want := membership.NewSnapshot(0, "", members)
	for _, p := range live {
		if got := p.node.Snapshot(); got.Checksum() != want.Checksum() {
			d := membership.Diff(want, got)
			return fmt.Errorf("%s sees %d of %d members: misses %v, has too many %v", p.name, len(got.Members()), len(members),
				membership.IDs(append(d.Failed, d.Left...)), membership.IDs(d.Joined))
		}
	}
	return nil
}

// truth is nil when a process sees just what the live workers offer now.
func (f *cluster) truth(p *process) error {
	v := p.catalogue.View()
	got, _ := generations(v)
	want, count := map[instance]int{}, 0
	for _, w := range f.live() {
		if w.role == membership.RoleWorker && len(w.services) > 0 {
			want[w.self()] = w.generation
			count += len(w.services)
		}
	}
	for key, generation := range want {
		if got[key] != generation {
			return fmt.Errorf("%s sees offer %d of %s.%d, which is at %d", p.name, got[key], key.id, key.epoch, generation)
		}
	}
	if len(got) != len(want) || v.EndpointCount() != count {
		return fmt.Errorf("%s sees %d endpoints of %d workers, want %d of %d", p.name, v.EndpointCount(), len(got), count, len(want))
	}
	return nil
}

// converged is nil when all live members see each other and the truth, under one
// checksum. From then on none of them may ever go back behind it.
func (f *cluster) converged() error {
	if err := f.agreement(); err != nil {
		return err
	}
	live := f.live()
	for _, p := range live {
		if err := f.truth(p); err != nil {
			return err
		}
		if a, b := p.catalogue.View().Checksum(), live[0].catalogue.View().Checksum(); a != b {
			return fmt.Errorf("%s has checksum %x, %s has %x", p.name, a, live[0].name, b)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range live {
		for _, w := range live {
			if w.role == membership.RoleWorker {
				p.sees.newest[w.self()] = w.generation
			}
		}
	}
	return nil
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

// each runs something for every process and joins the errors.
func each(all []*process, do func(*process) error) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, do(p))
	}
	return errors.Join(errs...)
}

func names(all []*process) (out []string) {
	for _, p := range all {
		out = append(out, p.name)
	}
	slices.Sort(out)
	return out
}

// publisher is a member whose publications of its own record are counted and timed.
type publisher struct {
	*membership.Node
	f     *cluster
	last  time.Time
	count int
}

func (p *publisher) Broadcast(topic byte, key string, payload []byte) error {
	if m, err := decodeMail(payload); err == nil && m.from == (instance{p.ID(), p.Epoch()}) {
		p.f.mu.Lock()
		if since := time.Since(p.last); since < time.Second {
			p.f.breach("%s published %v after its last publication", key, since)
		}
		p.last = time.Now()
		p.count++
		p.f.mu.Unlock()
	}
	return p.Node.Broadcast(topic, key, payload)
}
