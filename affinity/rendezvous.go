package affinity

import "slices"

// rendezvous links every worker to the relays that hash best with it (highest random
// weight; Thaler and Ravishankar, 1998) and then every relay that came out short to its
// own best workers. The order of the hashes is that of the band's relays and of the
// group's workers. Integers only: all relays must come to the same links.
//
// A relay of few workers would have to send each of them more than their other relays can
// make room for, and no weights would even out the load. With at least 0.6 of the mean
// none of 4,020 simulated fleets failed, for 0.7 % more connections.
func (b *band) rendezvous(relays, workers []uint64) {
	s := b.shape
	if s.everything() {
		return
	}
	mean := s.PeersPerWorker * s.Workers / s.Relays
	b.links = make([][]int32, s.Relays)
	for i := range b.links {
		b.links[i] = make([]int32, 0, mean+mean/2+2)
	}
	best := make([]bid, 0, s.PeersPerWorker)
	for w, worker := range workers {
		best = best[:0]
		var worst uint64 // the score to beat, once the list is full
		for i, relay := range relays {
			score := pairHash(relay, worker)
			if score <= worst && len(best) == cap(best) {
				continue
			}
			best = keepBest(best, cap(best), bid{score, i})
			worst = best[len(best)-1].score
		}
		for _, relay := range best {
			b.links[relay.index] = append(b.links[relay.index], int32(w))
		}
	}
	if !b.home {
		return
	}
	least := min(s.Workers, max(s.PeersPerRelay, (3*s.PeersPerWorker*s.Workers+5*s.Relays-1)/(5*s.Relays)))
	for i, links := range b.links {
		if missing := least - len(links); missing > 0 {
			b.links[i] = fillUp(links, missing, relays[i], workers)
		}
	}
}

// fillUp adds the best workers that are not linked yet.
func fillUp(links []int32, missing int, relay uint64, workers []uint64) []int32 {
	best := make([]bid, 0, missing)
	next := 0 // in links, which are ascending
	for w, worker := range workers {
		if next < len(links) && int(links[next]) == w {
			next++
			continue
		}
		best = keepBest(best, missing, bid{pairHash(relay, worker), w})
	}
	for _, worker := range best {
		links = append(links, int32(worker.index))
	}
	slices.Sort(links)
	return links
}
