// Package capacity plans a fleet: connections and descriptors of a process, gossip traffic,
// memory, the time to detect a crash, and whether the settings are consistent.
//
// Package affinity plans the connections, service by service. Gossip traffic and memory follow
// the formulas in the table, with measured constants (constants.go gives the origin of each).
//
//	capacity.go  plans of all services, added up by process, and the gossip of N members
//	cost.go      measured values, and the formulas for other packages
package capacity

import (
	"fmt"
	"math"
	"time"

	"github.com/ringway/ringway/affinity"
	model "github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	relayFiles  = "descriptors of the fullest relay ÷ limit"
	workerFiles = "descriptors of the fullest worker ÷ limit"
	relayMemory = "memory of the fullest relay"
	bandwidth   = "gossip of one member, sent and received"
	packets     = "gossip packets that changes take"
	detection   = "time until every member knows of a crash"
	draining    = "drain delay ÷ time until every member knows of a change"
	busy        = "slots of workers in use"
	redundancy  = "relays of a service beyond m"
)

// New returns the scenario.
func New() scenario.Scenario {
	whole := func(name, help, unit string, standard, least, most int) scenario.Setting {
		return scenario.Setting{Name: name, Help: help, Unit: unit, Default: standard, Min: least, Max: most}
	}
	return scenario.Scenario{
		Name: "capacity",
		Asks: "What does a fleet of this size cost each process, and do the settings fit each other?",
		Settings: []scenario.Setting{
			whole("relays", "relays of the fleet", "relays", 300, 1, 10_000),
			whole("workers", "workers of the fleet", "workers", 10_000, 1, 100_000),
			whole("services", "services", "services", 50, 1, 5_000),
			whole("services-per-worker", "services that a worker offers", "services", 1, 1, 100),
			whole("relays-per-service", "relays that serve a service (k), 0 for the automatic number", "relays", 0, 0, 1000),
			whole("m", "relays per worker, at least", "relays", affinity.DefaultMinimums.PeersPerWorker, affinity.LeastPeersPerWorker, 100),
			whole("p", "workers per relay, at least", "workers", affinity.DefaultMinimums.PeersPerRelay, affinity.LeastPeersPerRelay, 1000),
			{Name: "strategy", Help: "how ranges are cut", Default: string(affinity.Projection), OneOf: []string{string(affinity.Projection), string(affinity.Rendezvous)}},
			{Name: "index", Help: "where the index of a relay comes from", Default: string(affinity.IndexSlot), OneOf: []string{string(affinity.IndexSlot), string(affinity.IndexRank)}},
			whole("slack", "places outside the range at which a connection is kept", "places", slack, 0, 1000),
			{Name: "requests", Help: "requests of the whole fleet", Unit: "requests/s", Default: 50_000.0, Min: 0.0, Max: 1e9},
			{Name: "latency", Help: "mean time that a worker needs for a request", Default: 25 * time.Millisecond, Min: time.Microsecond, Max: time.Hour},
			whole("slots", "requests that a worker serves at a time", "requests", 4, 1, 100_000),
			{Name: "peak", Help: "the busiest moment ÷ the mean", Default: 3.0, Min: 1.0, Max: 100.0},
			whole("clients", "client connections of the whole fleet", "connections", 60_000, 0, 100_000_000),
			{Name: "changes", Help: "records that change in the whole fleet", Unit: "changes/min", Default: 30.0, Min: 0.0, Max: 1e6},
			whole("record", "size of a record as gossip carries it", "bytes", recordBytes, 50, 1200),
			{Name: "tls", Help: "whether gossip streams run over mutual TLS", Default: true},
			{Name: "drain", Help: "how long a connection that is not needed stays", Default: 30 * time.Second, Min: time.Millisecond, Max: time.Hour},
			whole("descriptors", "descriptors that a process may have", "descriptors", 65_536, 64, 10_000_000),
			whole("memory", "memory that a relay may take", "MiB", 1024, 1, 1_000_000),
			{Name: "bandwidth", Help: "gossip that one member may send and receive", Unit: "kB/s", Default: 64.0, Min: 0.1, Max: 1e6},
			{Name: "detect", Help: "how long a crash may go unnoticed by gossip", Default: 30 * time.Second, Min: time.Second, Max: time.Hour},
		},
		Promises: []scenario.Promise{
			{Name: relayFiles, Relation: scenario.AtMost, Bound: MostDescriptors, Why: "the rest is for a relay that takes over; raise LimitNOFILE or add relays"},
			{Name: workerFiles, Relation: scenario.AtMost, Bound: MostDescriptors, Why: "as for relays"},
			{Name: relayMemory, Relation: scenario.AtMost, Unit: "MiB", Why: "the setting memory"},
			{Name: bandwidth, Relation: scenario.AtMost, Unit: "kB/s", Why: "the setting bandwidth; fewer members in one cluster, or fewer changes"},
			{Name: packets, Relation: scenario.AtMost, Bound: 0.5, Why: "gossip carries membership first, and loses records where it is full"},
			{Name: detection, Relation: scenario.AtMost, Unit: "s", Why: "the setting detect; until then, eviction keeps requests off the dead"},
			{Name: draining, Relation: scenario.AtLeast, Bound: 5, Why: "or a worker waits without relays for the slowest of them"},
			{Name: busy, Relation: scenario.AtMost, Bound: 0.8, Why: "requests · latency ÷ (workers · slots): beyond it queues grow without end"},
			{Name: redundancy, Relation: scenario.AtLeast, Bound: 1, Unit: "relays", Why: "with only m relays each of them is connected to all workers"},
		},
		Takes: 2 * time.Second, TakesQuick: 2 * time.Second,
		Run: run,
	}
}

func run(r *scenario.Run) error {
	f := fleetOf(r)
	// The size of the fleet, and smaller and larger sizes.
	factors := []float64{0.25, 0.5, 1, 2, 4}
	const own = 2
	sizes := make([]connections, len(factors))
	if err := r.Parallel(len(factors), func(i int) (err error) {
		sizes[i], err = f.scaled(factors[i]).connect()
		return err
	}); err != nil {
		return err
	}
	c := sizes[own]
	g := gossipOf(f)
	relay, worker := c.relay(f), c.worker(f)
	memory := relayBytes(f, relay) / (1 << 20)

	t := r.Table(scenario.Table{
		Name: "process", Title: fmt.Sprintf("%d relays, %d workers, %d services: one process", f.relays, f.workers, f.services),
		Columns: []scenario.Column{{Name: "what", Key: true}, {Name: "fewest", Digits: 1}, {Name: "mean", Digits: 1}, {Name: "most", Digits: 1}, {Name: "unit"}, {Name: "formula"}},
	})
	t.Add("relays of a service", c.ofService.least, c.ofService.mean(), c.ofService.most, "relays", "affinity.PlanConfig.Serving, or the setting")
	t.Add("services that a relay serves", c.served.least, c.served.mean(), c.served.most, "services", "affinity.Slots, k slots for each service")
	t.Add("workers of a relay", c.ofRelay.least, c.ofRelay.mean(), c.ofRelay.most, "connections", "affinity.Plan, added up over services")
	t.Add("full mesh", nil, float64(f.workers), nil, "connections", "W")
	t.Add("relays of a worker", c.ofWorker.least, c.ofWorker.mean(), c.ofWorker.most, "connections", "affinity.Plan, added up over services")
	t.Add("connections to workers, at peak", nil, nil, relay.upstream, "descriptors", "max(workers + 2·slack·services, requests · peak · latency · relay's share)")
	t.Add("connections to and from other relays", nil, nil, relay.peers, "descriptors", "2 · min(R − 1, (3 primaries + 2 backups) · services not served)")
	t.Add("client connections", nil, nil, relay.clients, "descriptors", "clients ÷ R")
	t.Add("descriptors of a relay", nil, nil, relay.sum(), "descriptors", fmt.Sprintf("sum + %d for listeners, gossip and logs", fixedDescriptors))
	t.Add("descriptors of a worker", nil, nil, worker.sum(), "descriptors", fmt.Sprintf("2 · max(relays, requests · peak · latency ÷ W) + %d", fixedDescriptors))
	t.Add("memory of a relay", nil, nil, memory, "MiB", fmt.Sprintf("%d MiB + N · (%d + %d) B + descriptors · %d KiB", baseMemory/(1<<20), perMember, perRecord, perConnection>>10))

	cluster := r.Table(scenario.Table{
		Name: "gossip", Title: fmt.Sprintf("N = %d members: gossip of one member", f.members()),
		Columns: []scenario.Column{{Name: "what", Key: true}, {Name: "value", Digits: 2}, {Name: "unit"}, {Name: "formula"}},
	})
	cluster.Add("probes and acknowledgements", g.probes/1000, "kB/min", fmt.Sprintf("%d B/s, measured at 50 to 500 members", probeBytes))
	cluster.Add("list of members", g.members/1000, "kB/min", fmt.Sprintf("4 · N · %d B every 60 s · (⌈log₂ N − 5⌉ + 1)", memberBytes))
	cluster.Add("changes of records", g.changes/1000, "kB/min", "2 · changes · record · 8 · ⌈log₁₀(N+1)⌉")
	cluster.Add("anti-entropy, nothing to do", g.repair/1000, "kB/min", fmt.Sprintf("%d B, and %d exchanges of %d B in clear or %d B with TLS", idleRepair, exchangesAMinute, greeting, handshake))
	cluster.Add("all of it", g.sum()/60/1000, "kB/s", "sum ÷ 60")
	cluster.Add("gossip packets that changes take", 100*g.packets, "%", "changes/s · 8 · ⌈log₁₀(N+1)⌉ ÷ (20 packets/s · records in a packet)")
	cluster.Add("a change is known to all", g.spread.Seconds(), "s", "200 ms · ⌈log₅ N⌉")
	cluster.Add("a crash is known to the first", g.suspect.Seconds(), "s", "1 s + 4 · log₁₀ N · 1 s")
	cluster.Add("a crash is known to all", g.detect.Seconds(), "s", "3 s + 4 · log₁₀ N · 1 s + spread")

	inUse := f.requests * f.latency.Seconds() / float64(f.workers*f.slots)
	perPair := f.requests / float64(max(1, c.ofRelay.sum))
	advice := r.Table(scenario.Table{
		Name: "traffic", Title: "Traffic",
		Columns: []scenario.Column{{Name: "what", Key: true}, {Name: "value", Digits: 2}, {Name: "unit"}, {Name: "what it means"}},
	})
	advice.Add("slots of workers in use", 100*inUse, "%", "requests · latency ÷ (workers · slots)")
	advice.Add("requests of a relay", f.requests/float64(f.relays), "requests/s", "requests ÷ relays")
	advice.Add("forwarded to an affine relay", 100*(1-c.served.mean()/float64(f.services)), "%", "1 − services served ÷ services: one more hop")
	pair := "enough for steady latency estimates"
	if perPair < 1 {
		pair = "below one, estimates grow stale: a relay uses a prefix of its range; fewer relays per service, or a smaller m, make them better"
	}
	advice.Add("requests of a relay to one worker", perPair, "requests/s", pair)

	r.Check(relayFiles, relay.sum()/float64(r.Int("descriptors")), fmt.Sprintf("%.0f descriptors", relay.sum()))
	r.Check(workerFiles, worker.sum()/float64(r.Int("descriptors")), fmt.Sprintf("%.0f descriptors", worker.sum()))
	r.Require(scenario.Measurement{Promise: relayMemory, Value: memory, Bound: float64(r.Int("memory"))})
	r.Require(scenario.Measurement{Promise: bandwidth, Value: g.sum() / 60 / 1000, Bound: r.Float("bandwidth"), Where: fmt.Sprintf("N = %d", f.members())})
	r.Check(packets, g.packets, fmt.Sprintf("%g changes/min", f.changes))
	r.Require(scenario.Measurement{Promise: detection, Value: g.detect.Seconds(), Bound: r.Duration("detect").Seconds(), Where: fmt.Sprintf("N = %d", f.members())})
	r.Check(draining, r.Duration("drain").Seconds()/g.spread.Seconds(), fmt.Sprintf("drain %v, a change needs %v", r.Duration("drain"), g.spread))
	r.Check(busy, inUse, "")
	r.Check(redundancy, c.ofService.least-float64(f.m), fmt.Sprintf("k = %.0f, R = %d, m = %d", c.ofService.least, f.relays, f.m))
	draw(r, f, factors, sizes)
	return nil
}

// draw plots connections and gossip by the size of the fleet.
func draw(r *scenario.Run, f fleet, factors []float64, sizes []connections) {
	p := r.Plot(scenario.Plot{
		Name: "connections", Title: "Workers that a relay connects to, as the fleet grows",
		X: scenario.Axis{Label: "workers of the fleet", Unit: "workers", Log: true}, Y: scenario.Axis{Label: "connections of a relay", Unit: "connections", Log: true},
	})
	most, mean, all := p.Line("fullest relay"), p.Line("mean"), p.Dashed("full mesh")
	traffic := r.Plot(scenario.Plot{
		Name: "gossip", Title: "Gossip of one member, as the fleet grows",
		X: scenario.Axis{Label: "members of the cluster", Unit: "members", Log: true}, Y: scenario.Axis{Label: "sent and received", Unit: "kB/s"},
	})
	parts := []*scenario.Series{traffic.Line("all of it"), traffic.Line("list of members"), traffic.Line("changes of records"), traffic.Line("anti-entropy"), traffic.Line("probes")}
	for i, factor := range factors {
		g := f.scaled(factor)
		x := float64(g.workers)
		most.At(x, max(1, sizes[i].ofRelay.most))
		mean.At(x, max(1, sizes[i].ofRelay.mean()))
		all.At(x, x)
		cost := gossipOf(g)
		for j, v := range []float64{cost.sum(), cost.members, cost.changes, cost.repair, cost.probes} {
			parts[j].At(float64(g.members()), v/60/1000)
		}
	}
	p.Conclusion = fmt.Sprintf("The fullest relay connects to %.0f workers of %d; with four times the workers, to %.0f.", sizes[2].ofRelay.most, f.workers, sizes[len(sizes)-1].ofRelay.most)
	now, later := gossipOf(f), gossipOf(f.scaled(4))
	traffic.Conclusion = fmt.Sprintf("One member sends and receives %.1f kB/s of gossip, and %.1f kB/s in a fleet four times as large.", now.sum()/60000, later.sum()/60000)
}

// members returns the number of members in the cluster.
func (f fleet) members() int { return f.relays + f.workers }

// scaled returns the fleet with members, traffic, changes and clients multiplied by factor.
// Services and relays per service stay the same.
func (f fleet) scaled(factor float64) fleet {
	times := func(n int) int { return max(1, int(math.Round(float64(n)*factor))) }
	f.relays, f.workers = times(f.relays), times(f.workers)
	f.requests, f.changes = f.requests*factor, f.changes*factor
	f.clients *= factor
	return f
}

// fleet holds the sizes and settings of the planned fleet.
type fleet struct {
	relays, workers, services, perWorker, perService int
	m, p, slack, slots, record                       int
	strategy                                         affinity.Strategy
	index                                            affinity.IndexSource
	requests, peak, clients, changes                 float64
	latency                                          time.Duration
	tls                                              bool
}

func fleetOf(r *scenario.Run) fleet {
	return fleet{
		relays: r.Int("relays"), workers: r.Int("workers"), services: r.Int("services"),
		perWorker: min(r.Int("services-per-worker"), r.Int("services")), perService: r.Int("relays-per-service"),
		m: r.Int("m"), p: r.Int("p"), slack: r.Int("slack"), slots: r.Int("slots"), record: r.Int("record"),
		strategy: affinity.Strategy(r.Text("strategy")), index: affinity.IndexSource(r.Text("index")),
		requests: r.Float("requests"), peak: r.Float("peak"), clients: float64(r.Int("clients")), changes: r.Float("changes"),
		latency: r.Duration("latency"), tls: r.Bool("tls"),
	}
}

// spread summarizes a count over processes.
type spread struct {
	least, most float64
	sum, n      int
}

func spreadOf(counts []int) spread {
	s := spread{least: float64(counts[0]), n: len(counts)}
	for _, c := range counts {
		s.least, s.most = min(s.least, float64(c)), max(s.most, float64(c))
		s.sum += c
	}
	return s
}

func (s spread) mean() float64 { return float64(s.sum) / float64(s.n) }

// connections holds the connections of all services together.
type connections struct {
	served, ofRelay, ofWorker spread
	ofService                 spread // relays that serve it
}

// connect plans every service and adds up the connections.
func (f fleet) connect() (connections, error) {
	relays := model.New(f.relays, 0).RelayIDs()
	served, ofRelay, ofWorker := make([]int, f.relays), make([]int, f.relays), make([]int, f.workers)
	var ofService []int
	// Workers offer the services in turn, so that all services have about equally many
	// workers.
	offered := make([][]int, f.services)
	for w := range f.workers {
		for i := range f.perWorker {
			s := (w*f.perWorker + i) % f.services
			offered[s] = append(offered[s], w)
		}
	}
	for s, workers := range offered {
		if len(workers) == 0 {
			continue
		}
		plan, err := affinity.NewPlan(affinity.PlanConfig{
			Service: fmt.Sprintf("service-%d", s), Relays: affinity.Relays(relays), Workers: affinity.Workers(model.Fleet{Workers: workers}.WorkerIDs()),
			RelaysPerService: f.perService, Minimums: affinity.Minimums{PeersPerWorker: f.m, PeersPerRelay: f.p},
			Strategy: f.strategy, IndexSource: f.index,
		})
		if err != nil {
			return connections{}, err
		}
		ofService = append(ofService, len(plan.Affine()))
		for _, relay := range plan.Affine() {
			served[model.Number(relay)]++
		}
		if err := model.EachConnection(plan, func(relay, worker int, _ float64) {
			ofRelay[relay]++
			ofWorker[worker]++
		}); err != nil {
			return connections{}, err
		}
	}
	return connections{spreadOf(served), spreadOf(ofRelay), spreadOf(ofWorker), spreadOf(ofService)}, nil
}

// descriptors counts the descriptors of one process, by purpose.
type descriptors struct{ upstream, peers, clients float64 }

func (d descriptors) sum() float64 { return d.upstream + d.peers + d.clients + fixedDescriptors }

// relay returns the descriptors of the relay with the most connections.
func (c connections) relay(f fleet) descriptors {
	inFlight := f.requests * f.peak * f.latency.Seconds() * c.ofRelay.most / float64(max(1, c.ofRelay.sum))
	held := c.ofRelay.most + 2*float64(f.slack)*c.served.most
	others := min(float64(f.relays-1), peersOfService*(float64(f.services)-c.served.least))
	return descriptors{upstream: max(held, inFlight), peers: 2 * others, clients: f.clients / float64(f.relays)}
}

// worker returns the descriptors of the worker with the most connections. Each connection of a
// relay needs another one to the service.
func (c connections) worker(f fleet) descriptors {
	inFlight := f.requests * f.peak * f.latency.Seconds() / float64(f.workers)
	return descriptors{upstream: 2 * max(c.ofWorker.most, inFlight)}
}

// relayBytes returns the memory of a relay.
func relayBytes(f fleet, d descriptors) float64 {
	return baseMemory + float64(f.members()*perMember) + float64(f.workers*perRecord) + d.sum()*perConnection
}

// gossip is the gossip traffic of one member, in bytes per minute, sent and received.
type gossip struct {
	probes, members, changes, repair float64

	packets         float64       // share of the gossip packets that changes use
	spread          time.Duration // until every member knows of a change
	suspect, detect time.Duration // until the first and the last know of a crash
}

func (g gossip) sum() float64 { return g.probes + g.members + g.changes + g.repair }

func gossipOf(f fleet) gossip {
	n := float64(f.members())
	g := gossip{probes: 60 * probeBytes, repair: idleRepair}
	// Each member starts one exchange per interval and answers one; an exchange sends the
	// whole list in both directions.
	interval := pushPullInterval.Minutes()
	if n > pushPullScale {
		interval *= math.Ceil(math.Log2(n)-math.Log2(pushPullScale)) + 1
	}
	g.members = 4 * n * memberBytes / interval
	sends := math.Ceil(math.Log(max(10, n)) + certainty) // of a record; see membership/queue.go
	g.changes = 2 * f.changes * float64(f.record) * sends
	before := greeting
	if f.tls {
		before = handshake
	}
	g.repair += float64(exchangesAMinute * before)
	room := math.Floor(packetBytes / float64(f.record+recordOverhead))
	g.packets = f.changes / 60 * sends / (gossipNodes / gossipInterval.Seconds() * room)
	seconds := func(s float64) time.Duration {
		return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
	}
	g.spread = seconds(gossipInterval.Seconds() * max(1, math.Ceil(math.Log(n)/math.Log(1+gossipNodes))))
	suspicion := suspicionMult * max(1, math.Log10(max(1, n))) * probeInterval.Seconds()
	g.suspect = seconds(1 + suspicion)
	g.detect = seconds(3+suspicion) + g.spread
	return g
}
