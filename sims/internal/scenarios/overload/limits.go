package overload

import (
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/overload"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// The candidates follow their published code, with their defaults. Each uses only what a relay
// observes: the times of requests and of their answers.

const (
	none            = "none"
	ringwayLimit    = "ringway"
	envoyGradient   = "envoy"
	netflixGradient = "gradient2"
	kratosBBR       = "bbr"
)

// ceiling is the value of the relay's setting --max-in-flight.
const ceiling = 10_000

// gates returns the constructor of the gates of one candidate; endpoints is the number of
// endpoints of a relay.
func gates(name string, endpoints int) func(int) queueing.Gate {
	switch name {
	case ringwayLimit:
		return func(int) queueing.Gate { return &limiter{endpoints: endpoints} }
	case envoyGradient:
		return func(i int) queueing.Gate { return newEnvoy(i) }
	case netflixGradient:
		return func(int) queueing.Gate { return &gradient2{limit: 20} }
	case kratosBBR:
		return func(int) queueing.Gate { return new(bbr) }
	}
	return nil
}

// limiter is the limiter of the relay, of package internal/overload.
type limiter struct {
	overload.Limiter
	endpoints int
}

func (l *limiter) Enter(selection.Instant) bool { return l.Limiter.Enter() }

func (l *limiter) Answered(took time.Duration, _ selection.Instant) { l.Limiter.Answered(took, 0) }

func (l *limiter) Refresh(now selection.Instant) { l.Tick(time.Duration(now), l.endpoints) }

// counted is the common part of the other candidates, which compare the number in flight with
// a limit.
type counted struct{ inFlight int }

func (c *counted) Left()                     { c.inFlight-- }
func (c *counted) GaveUp(time.Duration)      { c.inFlight-- }
func (c *counted) Refresh(selection.Instant) {}

// envoy is the gradient controller of Envoy's adaptive concurrency filter: it compares the
// median latency of a window with the median measured at the minimum limit (minRTT).
type envoy struct {
	counted
	samples   []time.Duration
	limit     float64
	deferred  float64 // the limit while minRTT is measured, 0 otherwise
	minRTT    time.Duration
	epoch     selection.Instant // requests sent before are ignored
	next      selection.Instant // next measurement of minRTT
	updated   selection.Instant
	atMinimum int
	jitter    time.Duration
}

const (
	envoyMinimum  = 3
	envoyMaximum  = 1000
	envoyRequests = 50
	envoyInterval = 60 * time.Second
	envoyUpdate   = 100 * time.Millisecond
	envoyBuffer   = 0.25
)

func newEnvoy(client int) *envoy {
	// The jitter of 15 % prevents relays from measuring at the same time.
	e := &envoy{limit: envoyMinimum, jitter: time.Duration(client%10) * envoyInterval * 15 / 1000}
	e.deferred = envoyMinimum
	return e
}

func (e *envoy) Enter(selection.Instant) bool {
	if float64(e.inFlight) >= math.Floor(e.limit) {
		return false
	}
	e.inFlight++
	return true
}

func (e *envoy) Answered(took time.Duration, now selection.Instant) {
	e.inFlight--
	if now-selection.Instant(took) < e.epoch {
		return
	}
	e.samples = append(e.samples, took)
	switch {
	case e.deferred > 0:
		if len(e.samples) >= envoyRequests {
			e.minRTT = e.median()
			e.limit, e.deferred = e.deferred, 0
			e.next, e.updated = now+selection.Instant(envoyInterval+e.jitter), now
		}
	case now >= e.next || e.atMinimum >= 5:
		e.deferred, e.limit, e.epoch, e.samples, e.atMinimum = e.limit, envoyMinimum, now, nil, 0
	case now-e.updated >= selection.Instant(envoyUpdate):
		e.updated = now
		gradient := min(2, max(0.5, float64(e.minRTT)*(1+envoyBuffer)/float64(e.median())))
		limit := e.limit * gradient
		e.limit = min(envoyMaximum, max(envoyMinimum, math.Floor(limit+math.Sqrt(limit))))
		if e.limit > envoyMinimum {
			e.atMinimum = 0
		} else {
			e.atMinimum++
		}
	}
}

func (e *envoy) median() time.Duration {
	slices.Sort(e.samples)
	m := e.samples[len(e.samples)/2]
	e.samples = e.samples[:0]
	return m
}

// gradient2 is Netflix's Gradient2Limit behind its WindowedLimit: it compares the mean latency
// of one second with an average of many seconds.
type gradient2 struct {
	counted
	limit   float64
	long    float64 // ns
	samples int
	sum     time.Duration
	most    int // highest number in flight in this window
	began   selection.Instant
	windows int // number of windows in long
}

const (
	gradient2Window    = time.Second
	gradient2Smoothing = 0.2
	gradient2Queue     = 4
	gradient2Minimum   = 20
	gradient2Long      = 600
	gradient2Warmup    = 10
)

func (g *gradient2) Enter(selection.Instant) bool {
	if g.inFlight >= int(g.limit) {
		return false
	}
	g.inFlight++
	g.most = max(g.most, g.inFlight)
	return true
}

func (g *gradient2) Answered(took time.Duration, now selection.Instant) {
	g.inFlight--
	g.samples, g.sum = g.samples+1, g.sum+took
	if now-g.began < selection.Instant(gradient2Window) || g.samples < 10 {
		return
	}
	short := float64(g.sum) / float64(g.samples)
	most := g.most
	g.samples, g.sum, g.most, g.began = 0, 0, g.inFlight, now
	if g.windows++; g.windows <= gradient2Warmup {
		g.long += (short - g.long) / float64(g.windows)
	} else {
		g.long += (short - g.long) * 2 / (gradient2Long + 1)
	}
	if g.long/short > 2 {
		g.long *= 0.9
	}
	if float64(most) < g.limit/2 {
		return
	}
	gradient := max(0.5, min(1, g.long/short))
	limit := g.limit*(1-gradient2Smoothing) + (g.limit*gradient+gradient2Queue)*gradient2Smoothing
	g.limit = max(gradient2Minimum, min(ceiling, limit))
}

// bbr is the limiter of go-kratos: the limit is the most answers of a tenth of a second times
// the smallest mean latency of a tenth of a second, over ten seconds. The original applies
// the limit only while the processor is loaded. This port omits that condition, because a
// relay does not know the processor load of its endpoints.
type bbr struct {
	counted
	ring  [100]bbrBucket
	limit int
	at    int64 // bucket for which limit was computed
}

type bbrBucket struct {
	number int64
	passed int
	sum    time.Duration
}

const bbrBucketTime = 100 * time.Millisecond

func (b *bbr) Enter(now selection.Instant) bool {
	if number := int64(now / selection.Instant(bbrBucketTime)); number != b.at {
		b.at, b.limit = number, b.product(number)
	}
	if b.inFlight > 1 && b.inFlight > b.limit {
		return false
	}
	b.inFlight++
	return true
}

func (b *bbr) product(number int64) int {
	most, least := 1, math.Inf(1)
	for _, one := range b.ring {
		if one.number >= number || one.number <= number-int64(len(b.ring)) || one.passed == 0 {
			continue
		}
		most = max(most, one.passed)
		least = min(least, math.Ceil(one.sum.Seconds()*1000/float64(one.passed)))
	}
	if math.IsInf(least, 1) {
		return ceiling // no samples yet
	}
	return int(math.Floor(float64(most)*least*float64(time.Second/bbrBucketTime)/1000 + 0.5))
}

func (b *bbr) Answered(took time.Duration, now selection.Instant) {
	b.inFlight--
	number := int64(now / selection.Instant(bbrBucketTime))
	at := &b.ring[number%int64(len(b.ring))]
	if at.number != number {
		*at = bbrBucket{number: number}
	}
	at.passed++
	at.sum += took
}
