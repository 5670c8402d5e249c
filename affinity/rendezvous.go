package affinity

import "slices"

// rendezvous links every worker to the relays with which its pair score is highest (highest
// random weight; Thaler and Ravishankar, 1998). Then it links every relay that has too few
// workers to the workers of its highest scores. The arguments are the hashes of the set's
// relays and of the group's workers, in that order. It uses integers only, because all
// relays must compute the same links.
//
// The least number of workers per relay is 0.6 of the mean: a relay with few workers would
// have to send each of them more traffic than their other relays can give up, and no
// weights could balance the load. With 0.6 none of 4,020 simulated fleets failed, at the
// cost of 0.7 % more connections.
func (b *relaySet) rendezvous(relays, workers []uint64) {
	s := b.shape
	if s.everything() {
		return
	}
	mean := s.PeersPerWorker * s.Workers / s.Relays
	b.links = make([][]int32, s.Relays)
	for i := range b.links {
		b.links[i] = make([]int32, 0, mean+mean/2+2)
	}
	best := make([]scored, 0, s.PeersPerWorker)
	for w, worker := range workers {
		if cap(best) == 0 {
			break // the least number of workers decides
		}
		best = best[:0]
		var worst uint64 // the score to beat, once the list is full
		for i, relay := range relays {
			score := pairHash(relay, worker)
			if score <= worst && len(best) == cap(best) {
				continue
			}
			best = keepBest(best, cap(best), scored{score, i})
			worst = best[len(best)-1].score
		}
		for _, relay := range best {
			b.links[relay.index] = append(b.links[relay.index], int32(w))
		}
	}
	if b.part.standby() {
		return
	}
	least := min(s.Workers, max(s.PeersPerRelay, (3*s.PeersPerWorker*s.Workers+5*s.Relays-1)/(5*s.Relays)))
	for i, links := range b.links {
		if missing := least - len(links); missing > 0 {
			b.links[i] = fillUp(links, missing, relays[i], workers)
		}
	}
}

// fillUp adds the missing highest-scoring workers to the links of a relay.
func fillUp(links []int32, missing int, relay uint64, workers []uint64) []int32 {
	best := make([]scored, 0, missing)
	next := 0 // index in links, which are ascending
	for w, worker := range workers {
		if next < len(links) && int(links[next]) == w {
			next++
			continue
		}
		best = keepBest(best, missing, scored{pairHash(relay, worker), w})
	}
	for _, worker := range best {
		links = append(links, int32(worker.index))
	}
	slices.Sort(links)
	return links
}

// pairHash combines the hashes of two members into the score of the pair: the finalizer of
// SplitMix64 (Steele, Lea and Flood, 2014) over their xor. Each member's id is hashed only
// once, so ranking 300 relays for each of 10,000 workers takes milliseconds; hashing the
// text of every pair takes ten times as long.
func pairHash(a, b uint64) uint64 {
	z := a ^ b
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// scored is a candidate and its score. index refers to a list that all relays order alike.
type scored struct {
	score uint64
	index int
}

// ahead reports whether a wins over b: the higher score wins, then the lower index.
func (a scored) ahead(b scored) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	return a.index < b.index
}

// keepBest inserts a candidate into best, which is sorted best first and keeps at most limit
// candidates.
func keepBest(best []scored, limit int, candidate scored) []scored {
	if len(best) == limit {
		if limit == 0 || !candidate.ahead(best[limit-1]) {
			return best
		}
		best = best[:limit-1]
	}
	at := len(best)
	best = append(best, candidate)
	for ; at > 0 && candidate.ahead(best[at-1]); at-- {
		best[at] = best[at-1]
	}
	best[at] = candidate
	return best
}
