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

// Measured values, and settings of package membership and memberlist.
const (
	// Settings of memberlist in package membership (node.go).
	probeInterval    = time.Second
	suspicionMult    = 4
	gossipInterval   = 200 * time.Millisecond
	gossipNodes      = 6
	certainty        = 12
	pushPullInterval = time.Minute
	// pushPullScale is the number of members above which memberlist extends the push/pull
	// interval.
	pushPullScale = 32

	// probeBytes is the number of bytes per second that an idle member sends and receives
	// in addition to push/pull: 90 to 120 with 50 to 500 real members on a virtual network.
	probeBytes = 120
	// memberBytes is the size of an entry of the member list with 140 bytes of metadata.
	// The push/pull formula gives 158.2 kB/min at 200 members; the measured value is 158.2.
	memberBytes = 205
	// packetBytes is the space in a gossip packet in addition to membership messages.
	packetBytes = 1350
	// recordOverhead is the overhead of a record in a packet, in bytes.
	recordOverhead = 3

	// exchangesAMinute is the number of anti-entropy exchanges, started and answered. An
	// idle comparison takes 18 bytes, the connection setup before it 93 bytes without TLS
	// and 4.4 kB with mutual TLS.
	exchangesAMinute = 4
	idleRepair       = 72
	greeting         = 93
	handshake        = 4400

	// perRecord is the memory of a record of three services in the store and the view, in
	// bytes: 999 to 1002 at 10,000 workers.
	perRecord = 1002
	// perMember is the memory of a member in memberlist and the snapshot, in bytes. Measured
	// are 67 kB at 50 members and 605 kB at 2000; the growth is linear.
	perMember = 276
	// baseMemory is the memory of an idle process, in bytes.
	baseMemory = 30 << 20
	// perConnection is the estimated memory of a connection, in bytes: a goroutine, its
	// stack and two buffers.
	perConnection = 24 << 10

	// slack and recordBytes are the defaults of the settings slack and record.
	slack       = 2
	recordBytes = 200

	// fixedDescriptors is the number of descriptors for listeners, gossip sockets and
	// streams, logs and the Go runtime.
	fixedDescriptors = 40
	// peersOfService is how many relays a forwarding relay connects to for a service:
	// the primaries and backups of package internal/relaypool.
	peersOfService = 3 + 2
)
