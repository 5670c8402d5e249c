package advertise

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/clusterscript"
	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

type process = clusterscript.Process[state]

// state is what these histories keep of a process.
type state struct {
	services   []string      // the names of what it offers
	generation int           // of its offer; grows with every one, over all its lives
	saved      *boot         // for a later life
	skew       time.Duration // of the clock of its next life
	catalogue  *Catalogue
	publisher  *publisher
	sees       sight // what the monitor knows of its views
}

func instanceOf(p *process) instance { return instance{p.Name, p.Node.Epoch()} }

// boot is a process that has read its clock and bound its sockets, and no more.
type boot struct {
	node *membership.Node
	host *memnet.Host
	at   time.Time
}

// cluster runs a catalogue next to every member and checks every view of every one of
// them for what must never be in one.
type cluster struct {
	*clusterscript.Cluster[state]
	packetLog packetLog

	offersLog map[instance]*life
	forged    map[instance]bool // who may be believed to offer what was forged
	views     int               // checked
}

func newCluster(seed uint64) *cluster {
	f := &cluster{Cluster: clusterscript.NewCluster[state](seed), offersLog: map[instance]*life{}, forged: map[instance]bool{}}
	f.Level = slog.LevelWarn
	f.Made, f.Configure, f.Prepare, f.Started = made, f.configure, f.prepare, f.started
	return f
}

// made gives a worker two services, so that an offer shown by halves is noticed.
func made(p *process) {
	if n, _ := strconv.Atoi(p.Name[1:]); p.Role == identity.RoleWorker {
		p.State.services = []string{"echo", fmt.Sprintf("shard-%d", n%5)}
	}
}

func (f *cluster) configure(_ *process, cfg *membership.Config) error {
	cfg.Network = recordedNetwork{cfg.Network.(*memnet.Host), &f.packetLog}
	return nil
}

func (f *cluster) prepare(p *process, node *membership.Node) error {
	skew, publisher := p.State.skew, &publisher{Node: node, f: f}
	p.State.skew = 0
	c, err := New(Config{
		Gossip: publisher, Logger: f.Logger(p.Name), Seed: f.Random.Uint64(),
		Rules: Rules{MaxServicesPerRecord: MaxServices}, // large records are part of the scenarios
		Now:   func() time.Time { return time.Now().Add(skew) },
	})
	f.Lock()
	defer f.Unlock()
	p.State.catalogue, p.State.publisher, p.State.sees = c, publisher, newSight()
	f.offersLog[instance{p.Name, node.Epoch()}] = &life{world: p.World(), offers: map[int]map[string]Service{}}
	return err
}

func (f *cluster) started(p *process) error {
	c, node, life := p.State.catalogue, p.Node, p.Life
	f.Tasks.Go(func() { _ = c.Run(life) })
	views := c.Watch(life)
	f.Tasks.Go(func() {
		for v := range views {
			f.inspect(p, node, v)
		}
	})
	if p.Role == identity.RoleWorker {
		return f.offer(p)
	}
	return nil
}

func (f *cluster) close() {
	for _, p := range f.Processes {
		if p.State.saved != nil {
			_ = p.State.saved.node.Close()
		}
	}
	f.Close()
}

func (f *cluster) saveBoot(p *process, _ clusterscript.Args) error {
	host := f.FreshHost()
	node, err := f.Boot(p, host)
	p.State.saved = &boot{node, host, time.Now()}
	return err
}

// restartSaved begins a life in the process that was saved: it keeps its clock, which is
// as far behind as the boot is old.
func (f *cluster) restartSaved(p *process, _ clusterscript.Args) error {
	b := p.State.saved
	if b == nil {
		return fmt.Errorf("no boot of %s was saved", p.Name)
	}
	f.Kill(p)
	p.State.saved, p.State.skew = nil, time.Until(b.at)
	return f.Begin(p, b.node, b.host)
}

// offer makes a worker offer what it has, under a generation of its own.
func (f *cluster) offer(p *process) error {
	f.Lock()
	p.State.generation++
	generation := p.State.generation
	services, byName := make([]Service, len(p.State.services)), map[string]Service{}
	for i, name := range p.State.services {
		services[i] = Service{
			Name: name, Address: netip.AddrPortFrom(p.Host.IP(), 8080).String(),
			Weight: int32(1 + generation%affinity.MaxWeight), Version: fmt.Sprint(generation),
		}
		byName[name] = services[i]
	}
	f.offersLog[instanceOf(p)].offers[generation] = byName
	f.Unlock()
	return p.State.catalogue.Offer(services)
}

func (f *cluster) withdraw(p *process, _ clusterscript.Args) error {
	p.State.services = nil
	f.Lock()
	p.State.generation++
	f.offersLog[instanceOf(p)].offers[p.State.generation] = nil
	f.Unlock()
	p.State.catalogue.Offer(nil)
	return nil
}

// truth is nil when a process sees just what the live workers offer now.
func (f *cluster) truth(p *process) error {
	v := p.State.catalogue.View()
	got, _ := generations(v)
	want, count := map[instance]int{}, 0
	for _, w := range f.Live() {
		if w.Role == identity.RoleWorker && len(w.State.services) > 0 {
			want[instanceOf(w)] = w.State.generation
			count += len(w.State.services)
		}
	}
	for key, generation := range want {
		if got[key] != generation {
			return fmt.Errorf("%s sees offer %d of %s.%d, which is at %d", p.Name, got[key], key.id, key.epoch, generation)
		}
	}
	if len(got) != len(want) || v.EndpointCount() != count {
		return fmt.Errorf("%s sees %d endpoints of %d workers, want %d of %d", p.Name, v.EndpointCount(), len(got), count, len(want))
	}
	return nil
}

// converged is nil when all live members see each other and the truth, under one
// checksum. From then on none of them may ever go back behind it.
func (f *cluster) converged(clusterscript.Args) error {
	if err := f.Agreement(); err != nil {
		return err
	}
	live := f.Live()
	for _, p := range live {
		if err := f.truth(p); err != nil {
			return err
		}
		if a, b := p.State.catalogue.View().Checksum(), live[0].State.catalogue.View().Checksum(); a != b {
			return fmt.Errorf("%s has checksum %x, %s has %x", p.Name, a, live[0].Name, b)
		}
	}
	f.Lock()
	defer f.Unlock()
	for _, p := range live {
		for _, w := range live {
			if w.Role == identity.RoleWorker {
				p.State.sees.newest[instanceOf(w)] = w.State.generation
			}
		}
	}
	return nil
}

// publisher is a member whose publications of its own record are counted and timed.
type publisher struct {
	*membership.Node
	f     *cluster
	last  time.Time
	count int
}

func (p *publisher) Broadcast(topic byte, key string, payload []byte) error {
	if m, err := decodeMail(payload); err == nil && m.from == (instance{p.Config().ID, p.Epoch()}) {
		p.f.Lock()
		if since := time.Since(p.last); since < time.Second {
			p.f.Breach("%s published %v after its last publication", key, since)
		}
		p.last = time.Now()
		p.count++
		p.f.Unlock()
	}
	return p.Node.Broadcast(topic, key, payload)
}
