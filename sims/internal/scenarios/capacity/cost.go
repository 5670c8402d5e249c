package capacity

import (
	"time"

	"github.com/ringway/ringway/affinity"
)

// MostDescriptors is the share of the descriptors of a process that may be in use; the rest is
// for a relay that takes over.
const MostDescriptors = 0.8

// Fleet is a fleet in which every worker offers one service. The settings of the scenario of
// the same names have the units and meanings.
type Fleet struct {
	Relays, Workers, Services int
	RelaysPerService          int
	Minimums                  affinity.Minimums
	Strategy                  affinity.Strategy
	IndexSource               affinity.IndexSource
	Requests                  float64 // of the whole fleet in a second, at the busiest moment
	Latency                   time.Duration
	Clients                   int
	Changes                   float64 // of records in a minute
	TLS                       bool
}

// Cost is the cost of a fleet by the formulas of the scenario. Plain numbers are those of the
// fullest process.
type Cost struct {
	Connections       int     // of the fleet, from relays to workers
	Workers           float64 // that a relay connects to
	MeanWorkers       float64
	Relays            float64 // that connect to a worker
	Uneven            float64 // services of the relay with the most ÷ mean
	RelayDescriptors  float64
	WorkerDescriptors float64
	Memory            float64 // of a relay, in MiB
	Gossip            float64 // of a member, sent and received, in kB/s
	Detect            time.Duration
}

// Cost plans every service and adds up.
func (f Fleet) Cost() (Cost, error) {
	inner := fleet{
		relays: f.Relays, workers: f.Workers, services: f.Services, perWorker: 1, perService: f.RelaysPerService,
		m: f.Minimums.PeersPerWorker, p: f.Minimums.PeersPerRelay, slack: slack, record: recordBytes, strategy: f.Strategy, index: f.IndexSource,
		requests: f.Requests, peak: 1, clients: float64(f.Clients), changes: f.Changes, latency: f.Latency, tls: f.TLS,
	}
	c, err := inner.connect()
	if err != nil {
		return Cost{}, err
	}
	relay, worker, g := c.relay(inner), c.worker(inner), gossipOf(inner)
	return Cost{
		Connections: c.ofRelay.sum, Workers: c.ofRelay.most, MeanWorkers: c.ofRelay.mean(), Relays: c.ofWorker.most,
		Uneven: c.served.most / c.served.mean(), RelayDescriptors: relay.sum(), WorkerDescriptors: worker.sum(),
		Memory: relayBytes(inner, relay) / (1 << 20), Gossip: g.sum() / 60 / 1000, Detect: g.detect,
	}, nil
}
