package pool

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/ring"
)

// rank finds the candidates anew and says what changed, and why.
func (t *Table) rank(reasons ...Reason) {
	before := t.candidates
	t.candidates, t.reach = t.choose()
	if slices.Equal(before, t.candidates) {
		return
	}
	was := make(map[*peer]bool, len(before))
	for _, p := range before {
		was[p] = true
	}
	for _, p := range t.candidates {
		delete(was, p)
	}
	if len(was) == 0 && len(before) == len(t.candidates) {
		return // another order only
	}
	for _, r := range reasons {
		t.note(Event{Kind: CandidatesChanged, Reason: r, Detail: fmt.Sprintf("%d candidates", len(t.candidates))})
	}
}

// choose applies the locality filter and then weighted rendezvous hashing. It
// returns the candidates, best first, and how far they may be.
func (t *Table) choose() ([]*peer, Tier) {
	var near []*peer
	reach := SameDC
	for ; ; reach++ {
		for _, p := range t.peers {
			if !p.barred() && p.tier(t.cfg.Datacenter, t.cfg.Region) == reach {
				near = append(near, p)
			}
		}
		if len(near) >= t.cfg.MinPeersPerTier || reach == Global {
			break
		}
	}
	latencies := t.latencies()
	nodes := make([]ring.Node, len(near))
	for i, p := range near {
		nodes[i] = ring.Node{ID: p.ID, Weight: latencies.weight(p)}
	}
	ranking, err := ring.NewRendezvous(nodes)
	if err != nil {
		panic(err) // ids were checked, weights are at least 0.1
	}
	best := ranking.Top(t.cfg.Selector, t.cfg.Candidates)
	candidates := make([]*peer, len(best))
	for i, id := range best {
		candidates[i] = t.peers[id]
	}
	return candidates, reach
}

// latencies are the latencies of all peers at one time, for comparisons.
type latencies struct {
	cfg         *Config
	now         time.Time
	typical     time.Duration   // median of the averages
	percentiles []time.Duration // sorted 99th percentiles of the peers that have one
}

func (t *Table) latencies() latencies {
	l := latencies{cfg: &t.cfg, now: t.now, typical: t.cfg.BaselineLatency}
	var averages []time.Duration
	for _, p := range t.peers {
		if p.health.latency > 0 {
			averages = append(averages, p.health.latency)
		}
		if p.health.p99 > 0 {
			l.percentiles = append(l.percentiles, p.health.p99)
		}
	}
	slices.Sort(l.percentiles)
	if slices.Sort(averages); len(averages) > 0 {
		l.typical = averages[len(averages)/2]
	}
	return l
}

// baseline is the median of the others' 99th percentiles, false if no other has
// one. Counting the peer itself would let a slow one excuse itself.
func (l *latencies) baseline(p *peer) (time.Duration, bool) {
	n := len(l.percentiles)
	own, found := slices.BinarySearch(l.percentiles, p.health.p99)
	if found {
		n--
	}
	if n == 0 {
		return l.cfg.BaselineLatency, false
	}
	i := n / 2
	if found && i >= own {
		i++
	}
	return max(l.percentiles[i], l.cfg.BaselineLatency), true
}

// weight is max(0.1, 1 − 2·error rate − 0.5·latency factor). The factor goes from 0
// at the baseline to 1 where the peer would be evicted.
func (l *latencies) weight(p *peer) float64 {
	factor := 0.0
	if baseline, known := l.baseline(p); known {
		above := float64(p.health.relaxed(l.typical, l.now)-baseline) / float64(baseline)
		factor = min(1, max(0, above/(l.cfg.LatencyMultiplier-1)))
	}
	return max(0.1, 1-2*p.health.errorRate(l.now)-0.5*factor)
}

func (l *latencies) estimate(p *peer) time.Duration {
	return p.health.estimate(l.typical, l.cfg.BaselineLatency, l.now)
}

// draw takes two different ones at random and returns the one with the lower
// estimate, and how it came about. Equal ones win alike.
func (t *Table) draw(from []*peer) (*peer, string) {
	if len(from) == 1 {
		return from[0], "the only one to be had"
	}
	l := t.latencies()
	i, j := t.random(len(from)), t.random(len(from)-1)
	if j >= i {
		j++
	}
	winner, loser := from[i], from[j]
	if l.estimate(loser) < l.estimate(winner) {
		winner, loser = loser, winner
	}
	return winner, fmt.Sprintf("drawn with %v against %s with %v, out of %d",
		l.estimate(winner).Round(time.Microsecond), loser.ID, l.estimate(loser).Round(time.Microsecond), len(from))
}
