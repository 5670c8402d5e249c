package affinity

// pairHash scores a pair by the hashes of its two sides: the finalizer of SplitMix64
// (Steele, Lea and Flood, 2014) over their xor. With one hash per member and this per pair,
// ranking 300 relays for each of 10,000 workers takes milliseconds; hashing the text of
// every pair takes ten times as long.
func pairHash(a, b uint64) uint64 {
	z := a ^ b
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// bid is a candidate, by its index in a list that all relays order alike.
type bid struct {
	score uint64
	index int
}

// ahead reports whether a wins over b: the higher score, of equal ones the lower index.
func (a bid) ahead(b bid) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	return a.index < b.index
}

// keepBest inserts a bid into best, which is sorted from the best down and keeps at most
// limit bids.
func keepBest(best []bid, limit int, candidate bid) []bid {
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
