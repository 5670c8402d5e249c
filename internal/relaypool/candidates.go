package relaypool

import (
	"container/list"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/ring"
)

// rank recomputes the candidates and records an event per reason if the set changed.
func (t *table) rank(reasons ...Reason) {
	before, reach := t.candidates, t.reach
	if t.candidates, t.reach, t.nearer = t.choose(); t.reach > reach && len(before) > 0 {
		t.narrowEnd = t.now.Add(narrowTime)
	}
	t.narrow = t.nearer > 0 && t.now.Before(t.narrowEnd)
	defer t.adjust()
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
		return // only the order changed
	}
	for _, r := range reasons {
		t.record(Event{Kind: CandidatesChanged, Reason: r, Detail: fmt.Sprintf("%d candidates", len(t.candidates))})
	}
}

// choose applies the locality filter and then weighted rendezvous hashing. It returns the
// candidates, best first, the farthest tier that was needed, and the number of usable peers nearer
// than that.
func (t *table) choose() (_ []*peer, reach affinity.Tier, nearer int) {
	var near []*peer
	for reach = affinity.SameDatacenter; ; reach++ {
		nearer = len(near)
		for _, p := range t.peers {
			if !p.evicted() && p.tier(t.cfg.Datacenter, t.cfg.Region) == reach {
				near = append(near, p)
			}
		}
		if len(near) >= t.cfg.MinPeersPerTier || reach == affinity.Global {
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
		panic(err) // cannot happen: ids were checked and weights are at least 0.1
	}
	best := ranking.Top(t.cfg.Selector, t.cfg.Candidates)
	candidates := make([]*peer, len(best))
	for i, id := range best {
		candidates[i] = t.peers[id]
	}
	return candidates, reach, nearer
}

// latencies holds the latencies of all peers at one time, for comparisons.
type latencies struct {
	cfg         *Config
	now         time.Time
	typical     time.Duration   // median of the averages
	percentiles []time.Duration // sorted 99th percentiles of the peers that have one
}

func (t *table) latencies() latencies {
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

// baseline returns the median of the other peers' 99th percentiles, false if no other peer
// has one. The peer itself does not count, because a slow peer would raise its own
// baseline.
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

// weight returns max(0.1, 1 − 2·error rate − 0.5·latency factor). The factor rises from 0
// at the baseline to 1 at the latency at which the peer would be evicted.
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

// draw draws two different peers at random and returns the one with the lower estimate,
// with a description of the draw. Ties are broken at random.
func (t *table) draw(from []*peer) (*peer, string) {
	if len(from) == 1 {
		return from[0], "the only one available"
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

// bindings store the peer of each sticky key. The list is in order of use, most recently
// used first.
type bindings struct {
	max       int
	ttl, idle time.Duration
	byKey     map[string]*list.Element
	order     list.List
}

type binding struct {
	key           string
	peer          *peer
	boundAt, used time.Time
}

func newBindings(cfg *Config) bindings {
	return bindings{max: cfg.MaxBindings, ttl: cfg.BindingTTL, idle: cfg.BindingIdle, byKey: map[string]*list.Element{}}
}

// find returns the peer of a key, or nil. The call counts as use of the key.
func (b *bindings) find(key string, now time.Time) *peer {
	e := b.byKey[key]
	if e == nil {
		return nil
	}
	found := e.Value.(*binding)
	if b.expired(found, now) {
		b.remove(e)
		return nil
	}
	found.used = now
	b.order.MoveToFront(e)
	return found.peer
}

// peek is find, but does not count as use of the key.
func (b *bindings) peek(key string, now time.Time) *peer {
	if e := b.byKey[key]; e != nil && !b.expired(e.Value.(*binding), now) {
		return e.Value.(*binding).peer
	}
	return nil
}

func (b *bindings) expired(x *binding, now time.Time) bool {
	return now.Sub(x.boundAt) >= b.ttl || now.Sub(x.used) >= b.idle
}

// bind stores a key that find does not know. It first removes expired bindings and, if
// the table is still full, the least recently used one.
func (b *bindings) bind(key string, p *peer, now time.Time) {
	if b.max == 0 {
		return
	}
	for e := b.order.Back(); e != nil && b.expired(e.Value.(*binding), now); e = b.order.Back() {
		b.remove(e)
	}
	if b.order.Len() >= b.max {
		b.remove(b.order.Back())
	}
	key = strings.Clone(key) // it may be a part of a whole request
	b.byKey[key] = b.order.PushFront(&binding{key: key, peer: p, boundAt: now, used: now})
}

// forget removes the bindings to a peer that lost its place.
func (b *bindings) forget(p *peer) {
	for e := b.order.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*binding).peer == p {
			b.remove(e)
		}
		e = next
	}
}

func (b *bindings) remove(e *list.Element) {
	delete(b.byKey, e.Value.(*binding).key)
	b.order.Remove(e)
}
