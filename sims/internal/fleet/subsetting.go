package fleet

import (
	"math/rand/v2"
	"slices"

	"github.com/ringway/ringway/ring"
)

// sreBook is deterministic subsetting of the SRE book, chapter 20: clients in rounds, the
// backends shuffled anew for each round, and every client of the round a slice.
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

// random is gRFC A68: every client hashes the addresses of all servers with a seed of its
// own and keeps those with the lowest hashes.
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

// mix stands for the seeded XXH64 of the original: the finalizer of SplitMix64, which is as
// random and ten times as fast.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
