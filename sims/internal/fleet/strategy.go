package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/ring"
)

// Strategy is one way to decide which relays connect to which workers. All relays know the
// same members.
type Strategy struct {
	Name string
	Ours bool
	// Exact strategies give every two relays the same number of workers or one more or less.
	Exact bool
	// Spares is the number of relays of the fleet per relay that serves: with slots, a
	// spare replaces a relay that leaves.
	Spares  int
	Connect func(g *Graph, s Size, f Fleet) error
}

// The names of Ringway's strategies.
const (
	ByRank     = "projection, rank"
	BySlot     = "projection, slot"
	Rendezvous = "rendezvous"
)

// Strategies returns Ringway's strategies and those of other systems.
func Strategies() []Strategy {
	return []Strategy{
		{ByRank, true, true, 1, Plan(affinity.PlanConfig{IndexSource: affinity.IndexRank})},
		{BySlot, true, true, 2, Plan(affinity.PlanConfig{IndexSource: affinity.IndexSlot})},
		{Rendezvous, true, false, 1, Plan(affinity.PlanConfig{Strategy: affinity.Rendezvous})},
		{"Hyperbahn, description", false, false, 1, hyperbahn(describedRange)},
		{"Hyperbahn, production", false, false, 1, hyperbahn(productionRange)},
		{"Finagle, same coverage", false, false, 1, finagle(0)},
		{"Finagle, aperture 12", false, false, 1, finagle(12)},
		{"SRE book", false, false, 1, sreBook},
		{"random (A68)", false, false, 1, random},
	}
}

// Ours returns the strategies of package affinity.
func Ours() []Strategy {
	return slices.DeleteFunc(Strategies(), func(s Strategy) bool { return !s.Ours })
}

// Plan connects a fleet by a plan of package affinity. With slots, Size.Relays relays serve;
// otherwise all relays of the fleet do.
func Plan(cfg affinity.PlanConfig) func(*Graph, Size, Fleet) error {
	return func(g *Graph, s Size, f Fleet) error {
		cfg := cfg
		cfg.Service = service
		cfg.Relays = affinity.Relays(f.RelayIDs())
		cfg.Workers = affinity.Workers(f.WorkerIDs())
		cfg.Minimums = affinity.Minimums{PeersPerWorker: s.PerWorker, PeersPerRelay: s.PerRelay}
		cfg.RelaysPerService = max(s.PerWorker, len(f.Relays))
		if cfg.IndexSource == affinity.IndexSlot {
			cfg.RelaysPerService = max(s.PerWorker, s.Relays)
		}
		p, err := affinity.NewPlan(cfg)
		if err != nil {
			return err
		}
		if p.Fallback() != "" {
			return fmt.Errorf("%v: %s", s, p.Fallback())
		}
		return EachConnection(p, g.Connect)
	}
}

// EachConnection calls do for each connection of a plan of numbered members, ordered by the
// relay's index. Share is the part of the relay's traffic that the connection carries.
func EachConnection(p *affinity.Plan, do func(relay, worker int, share float64)) error {
	var row []affinity.Assignment
	for i, relay := range p.Affine() {
		var err error
		if row, err = p.AppendAssignments(row[:0], i); err != nil {
			return err
		}
		r := Number(relay)
		for _, a := range row {
			do(r, Number(a.Worker), a.Weight)
		}
	}
	return nil
}

// finagle is Twitter's deterministic aperture (DeterministicAperture.scala): clients and
// servers each divide a circle into equal arcs, and a client with N arcs sends to the servers
// under its arcs, in proportion to the overlap. N is large enough for at least aperture
// servers. Without an aperture, N keeps the minimums of the size. The port uses exact
// integers in place of floating point: the circle has R·W points.
func finagle(aperture int) func(*Graph, Size, Fleet) error {
	return func(g *Graph, s Size, f Fleet) error {
		relays, workers := byAddress(f.Relays, RelayID), byAddress(f.Workers, WorkerID)
		r, w := len(relays), len(workers)
		turns := (aperture*r + w - 1) / w
		if aperture == 0 {
			turns = max(s.PerWorker, (s.PerRelay*r+w-1)/w)
		}
		width := min(r, turns) * w // in points; a server's arc has r points
		for i, relay := range relays {
			from := i * w
			for at := from; at < from+width; {
				next := min(from+width, (at/r+1)*r)
				g.Connect(relay, workers[at/r%w], float64(next-at)/float64(width))
				at = next
			}
		}
		return nil
	}
}

// hyperbahn is the affinity of Uber's Hyperbahn: relays and workers are sorted by address, and
// every relay connects to a range of workers with equal weights. Addresses are practically
// random, so this port sorts by a hash.
func hyperbahn(rangeOf func(s Size, i int, relays, workers float64) (start, end int)) func(*Graph, Size, Fleet) error {
	return func(g *Graph, s Size, f Fleet) error {
		relays, workers := byAddress(f.Relays, RelayID), byAddress(f.Workers, WorkerID)
		for i, relay := range relays {
			start, end := rangeOf(s, i, float64(len(relays)), float64(len(workers)))
			end = min(end, start+len(workers))
			for pos := start; pos < end; pos++ {
				g.Connect(relay, workers[pos%len(workers)], 1/float64(end-start))
			}
		}
		return nil
	}
}

// describedRange is the range in the description and simulation of Hyperbahn (docs/affinity.md
// and docs/sims/affinity.py of tchannel): the start is rounded down, the end to the nearest.
func describedRange(s Size, i int, relays, workers float64) (start, end int) {
	ratio := workers / relays
	length := max(float64(s.PerRelay), float64(s.PerWorker)*ratio)
	return int(float64(i) * ratio), int(float64(i)*ratio + length + 0.5)
}

// productionRange is the range in the code of Hyperbahn (partial_range.js): the start is
// rounded down, the end up.
func productionRange(s Size, i int, relays, workers float64) (start, end int) {
	ratio := workers / relays
	length := min(workers, max(float64(s.PerRelay), math.Ceil(float64(s.PerWorker)*ratio)))
	return int(float64(i) * ratio), int(math.Ceil(float64(i)*ratio + length))
}

func byAddress(members []int, name func(int) string) []int {
	return numbers(ring.Order("address", ids(members, name)))
}

// sreBook is the deterministic subsetting of the SRE book, chapter 20: the clients form
// rounds, each round shuffles the backends, and each client of a round gets one slice of
// them.
func sreBook(g *Graph, s Size, f Fleet) error {
	relays, workers := byAddress(f.Relays, RelayID), byAddress(f.Workers, WorkerID)
	reach := min(s.reach(), len(workers))
	subsets := len(workers) / reach
	var shuffled []int
	for client, relay := range relays {
		if client%subsets == 0 {
			shuffled = slices.Clone(workers)
			rand.New(rand.NewPCG(uint64(client/subsets), 0)).Shuffle(len(shuffled), func(i, j int) {
				shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
			})
		}
		from := client % subsets * reach
		for _, worker := range shuffled[from : from+reach] {
			g.Connect(relay, worker, 1/float64(reach))
		}
	}
	return nil
}

// random is the random subsetting of gRFC A68: every client hashes the addresses of all
// servers with a separate seed and keeps those with the lowest hashes.
func random(g *Graph, s Size, f Fleet) error {
	reach := min(s.reach(), len(f.Workers))
	type candidate struct {
		hash   uint64
		worker int
	}
	hashes := make([]uint64, len(f.Workers))
	for i, worker := range f.Workers {
		hashes[i] = ring.Hash(WorkerID(worker), 0)
	}
	lowest := make([]candidate, 0, reach+1)
	for _, relay := range f.Relays {
		seed := ring.Hash(RelayID(relay), 0)
		lowest = lowest[:0]
		for i, hash := range hashes {
			c := candidate{mix(hash ^ seed), f.Workers[i]}
			if len(lowest) == reach && c.hash >= lowest[reach-1].hash {
				continue
			}
			at, _ := slices.BinarySearchFunc(lowest, c, func(a, b candidate) int {
				if a.hash < b.hash {
					return -1
				}
				return 1
			})
			lowest = slices.Insert(lowest, at, c)
			lowest = lowest[:min(len(lowest), reach)]
		}
		for _, c := range lowest {
			g.Connect(relay, c.worker, 1/float64(reach))
		}
	}
	return nil
}

// mix replaces the seeded XXH64 of the original: the finalizer of SplitMix64, which is
// equally random and ten times as fast.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
