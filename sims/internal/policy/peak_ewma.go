package policy

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// PeakEWMA is the policy of Finagle: it picks the one of two workers with the lower
// peak-sensitive latency times requests in flight. Failure accrual marks failing workers,
// because fast failures would look like fast answers.
var PeakEWMA = queueing.Policy{Name: "peak-ewma", New: func(env queueing.Env) queueing.Client {
	return &peakEWMA{peers: peers[peak]{rand: env.Rand}}
}}

type peakEWMA struct {
	peers[peak]
	evictions int
}

// peak holds the statistics of one client about one worker.
type peak struct {
	cost    float64 // ns
	stamp   selection.Instant
	pending int
	accrual accrual
}

const (
	peakTau      = float64(10 * time.Second)
	peakPenalty  = float64(math.MaxInt64 >> 16)
	accrualTau   = float64(30 * time.Second)
	accrualRate  = 0.8
	accrualAtOne = 5 // failures in a row
	accrualFirst = 5 * time.Second
	accrualMost  = 300 * time.Second
	pickTries    = 5 // Finagle's maxEffort
)

// observe takes a higher latency over immediately and otherwise decays; a latency of 0 only
// decays.
func (p *peak) observe(latency float64, now selection.Instant) {
	weight := math.Exp(-float64(now-p.stamp) / peakTau)
	p.stamp = now
	if latency > p.cost {
		p.cost = latency
	} else {
		p.cost = latency*(1-weight) + p.cost*weight
	}
}

func (p *peak) load(now selection.Instant) float64 {
	p.observe(0, now)
	if p.cost < 1 && p.pending != 0 {
		return peakPenalty + float64(p.pending) // unknown: one request at a time
	}
	return p.cost * float64(p.pending+1)
}

func (c *peakEWMA) Pick(now selection.Instant) queueing.Ticket {
	var best *peer[peak]
	for range pickTries {
		a, b := c.pair()
		closedA, closedB := a.known.accrual.closed(now), b.known.accrual.closed(now)
		best = a
		if closedA != closedB {
			if closedA {
				best = b
			}
		} else if b.known.load(now) < a.known.load(now) {
			best = b
		}
		if !closedA || !closedB {
			break
		}
	}
	best.known.pending++
	best.known.accrual.sent(now)
	return best.ticket()
}

func (c *peakEWMA) Done(t queueing.Ticket, a queueing.Answer) {
	p := c.of(t)
	if p == nil {
		return
	}
	p.pending--
	p.observe(float64(a.Now-a.Start), a.Now)
	if p.accrual.done(a.Outcome == queueing.Success, a.Now, c.rand) {
		c.evictions++
	}
}

func (*peakEWMA) Refresh(selection.Instant) {}

func (c *peakEWMA) Evictions() int { return c.evictions }

// accrual evicts a worker after 5 failures in a row, or when less than 80 % of its
// requests of about 30 s succeeded. An evicted worker gets no requests for 5 s, doubling up to
// 300 s with half of the time jittered, and then one request as a probe.
type accrual struct {
	failing  float64 // 1 − average success
	stamp    selection.Instant
	requests int
	inARow   int
	evicted  bool
	until    selection.Instant
	probing  bool
	deaths   int
}

func (a *accrual) closed(now selection.Instant) bool {
	return a.evicted && (now < a.until || a.probing)
}

func (a *accrual) sent(now selection.Instant) {
	if a.evicted && now >= a.until {
		a.probing = true
	}
}

// done records an answer and reports whether that answer evicted the worker.
func (a *accrual) done(ok bool, now selection.Instant, random *rand.Rand) bool {
	weight := math.Exp(-float64(now-a.stamp) / accrualTau)
	a.stamp = now
	a.requests++
	failure := 1.0
	if ok {
		failure = 0
		a.inARow = 0
	} else {
		a.inARow++
	}
	a.failing = a.failing*weight + failure*(1-weight)
	if a.evicted {
		if !a.probing {
			return false // sent before the worker was evicted
		}
		if ok {
			*a = accrual{stamp: now}
			return false
		}
	} else if ok || a.inARow < accrualAtOne && (a.requests < accrualAtOne || 1-a.failing >= accrualRate) {
		return false
	}
	out := min(accrualMost, accrualFirst<<min(a.deaths, 10))
	a.deaths++
	a.evicted, a.probing = true, false
	a.until = now + selection.Instant(float64(out)*(0.5+0.5*random.Float64()))
	return true
}
