package policy

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// Prequal probes the load of three workers with every request and keeps the answers in a
// pool. Answers with a load above the given quantile of recent loads are hot: the fastest of
// the other answers is picked, or the least loaded one if all are hot. Prequal does not
// detect workers that fail fast.
func Prequal(quantile float64) queueing.Policy {
	return queueing.Policy{Name: fmt.Sprintf("prequal-%v", quantile), New: func(env queueing.Env) queueing.Client {
		return &prequal{peers: peers[struct{}]{rand: env.Rand}, env: env, quantile: quantile}
	}}
}

const (
	probesPerPick = 3.0
	removePerPick = 1.0
	poolSize      = 16 // at most half of the range, because answers would otherwise be reused without limit
	poolAge       = selection.Instant(time.Second)
	minPool       = 2
	reuseMargin   = 1.0 // delta in the paper
	recentLoads   = 64
)

type prequal struct {
	passive
	peers[struct{}]
	env      queueing.Env
	quantile float64
	pool     []pooled // oldest first
	loads    [recentLoads]int
	nLoads   int
	counts   []int // number of recent loads, by load
	oldest   bool  // whether the last removal took the oldest answer
}

type pooled struct {
	queueing.Probe
	at   selection.Instant
	uses float64 // remaining uses
}

func (c *prequal) size() int { return min(poolSize, max(minPool, len(c.list)/2)) }

// uses returns how often one answer is used on average, so that the pool stays filled.
func (c *prequal) uses() float64 {
	share := float64(c.size()) / float64(len(c.list))
	return max(1, (1+reuseMargin)/((1-share)*probesPerPick-removePerPick))
}

func (c *prequal) Pick(now selection.Instant) queueing.Ticket {
	c.ask()
	c.pool = slices.DeleteFunc(c.pool, func(p pooled) bool {
		return now-p.at > poolAge || p.uses <= 0 || c.byWorker[int32(p.Worker)] == nil
	})
	ticket := c.draw().ticket()
	hot := c.threshold()
	if len(c.pool) >= minPool {
		i := c.best(hot)
		p := &c.pool[i]
		ticket.Worker = int32(p.Worker)
		p.Load++ // counts the request that is about to be sent
		p.uses--
	}
	c.remove(hot)
	return ticket
}

// ask sends the probes to different workers.
func (c *prequal) ask() {
	var asked [int(probesPerPick)]int32
	for i := range asked {
		q := c.draw()
		for len(c.list) > len(asked) && slices.Contains(asked[:i], q.worker) {
			q = c.draw()
		}
		asked[i] = q.worker
		c.env.Fleet.Probe(c.env.Index, int(q.worker))
	}
}

// best returns the index of the pooled answer to use, by the hot-cold rule.
func (c *prequal) best(hot int) int {
	best := 0
	for i := range c.pool {
		p, b := &c.pool[i], &c.pool[best]
		coldP, coldB := p.Load <= hot, b.Load <= hot
		switch {
		case coldP != coldB:
			if coldP {
				best = i
			}
		case coldP && p.Latency < b.Latency, !coldP && p.Load < b.Load:
			best = i
		}
	}
	return best
}

// threshold returns the load above which an answer is hot. Loads are small, so counting is
// faster than sorting.
func (c *prequal) threshold() int {
	known := min(c.nLoads, recentLoads)
	if known == 0 {
		return math.MaxInt
	}
	left := min(int(c.quantile*float64(known)), known-1)
	load := 0
	for ; left >= c.counts[load]; load++ {
		left -= c.counts[load]
	}
	return load
}

// remove drops one answer per request, alternately the oldest and the worst.
func (c *prequal) remove(hot int) {
	if len(c.pool) <= minPool {
		return
	}
	c.oldest = !c.oldest
	worst := 0
	if !c.oldest {
		for i := range c.pool {
			p, w := &c.pool[i], &c.pool[worst]
			hotP, hotW := p.Load > hot, w.Load > hot
			if hotP != hotW && hotP || hotP && hotW && p.Load > w.Load || !hotP && !hotW && p.Latency > w.Latency {
				worst = i
			}
		}
	}
	c.pool = slices.Delete(c.pool, worst, worst+1)
}

func (c *prequal) Probed(p queueing.Probe, now selection.Instant) {
	c.count(p.Load)
	if len(c.pool) >= c.size() {
		c.pool = slices.Delete(c.pool, 0, 1)
	}
	// The fraction of a use is rounded up or down at random.
	c.pool = append(c.pool, pooled{p, now, math.Floor(c.uses() + c.rand.Float64())})
}

// count adds a load to the last 64 and drops the oldest.
func (c *prequal) count(load int) {
	at := &c.loads[c.nLoads%recentLoads]
	if c.nLoads >= recentLoads {
		c.counts[*at]--
	}
	for len(c.counts) <= load {
		c.counts = append(c.counts, 0)
	}
	c.counts[load]++
	*at = load
	c.nLoads++
}

func (*prequal) Done(queueing.Ticket, queueing.Answer) {}
