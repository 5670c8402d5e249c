package capacity

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/affinity"
	model "github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

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
}

// connect plans every service and adds up the connections.
func (f fleet) connect() (connections, error) {
	relays := model.New(f.relays, 0).RelayIDs()
	served, ofRelay, ofWorker := make([]int, f.relays), make([]int, f.relays), make([]int, f.workers)
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
	return connections{spreadOf(served), spreadOf(ofRelay), spreadOf(ofWorker)}, nil
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
