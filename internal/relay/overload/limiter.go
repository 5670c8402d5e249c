package overload

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// Every is how often Tick is to be called.
	Every = 250 * time.Millisecond
	// Allowed is the delay that requests may have in a queue of the endpoints; where
	// answers usually take longer than that, it is as long as they take. A burst of so
	// long a work is refused nothing, and clients with a second of patience get their
	// answers.
	Allowed = 400 * time.Millisecond
	// PerEndpoint requests may always wait for each endpoint.
	PerEndpoint = 8
)

const (
	enough   = 50               // requests from which times are judged
	stale    = 8 * time.Second  // requests that are not enough by then are forgotten
	settling = 8 * time.Second  // a delay that lasts so long while requests do not pile up is no queue
	calm     = 5 * time.Second  // without a refusal: the overload is over
	memory   = time.Minute      // of how much the endpoints complete
	slowly   = 5 * time.Minute  // over which a longer time becomes the usual one, where that may be a queue
	typical  = 5 * time.Second  // over which it does where there is none
	shortest = time.Millisecond // times below are not told apart
	buckets  = 64               // four for each doubling: up to a minute
)

// Limiter bounds the requests of one service that wait for their answers. The zero value is
// ready, and bounds nothing until Tick has seen requests pile up.
type Limiter struct {
	waiting atomic.Int64
	limit   atomic.Int64 // 0: none

	// Since the last judgement.
	refused  atomic.Int64
	answered atomic.Int64
	gaveUp   atomic.Int64
	took     atomic.Int64           // ns, of all answered
	waited   atomic.Int64           // ns, of all given up
	times    [buckets]atomic.Uint32 // of answers
	lost     [buckets]atomic.Uint32 // until requests were given up

	// The rest is Tick's alone. Times are in seconds where nothing else is said.

	begun   bool
	since   time.Duration // the last judgement
	known   bool          // the next two
	fastest float64       // a tenth of the answers is faster in quiet times
	usual   float64       // mean in quiet times
	rate    float64       // completions per second, the most there were lately

	delayed bool
	from    time.Duration // when the delay began
	least   float64       // requests that were queued since then
	ghosts  float64       // requests given up that the endpoints have not done with
	patient float64       // clients, before they give up; 0: not known

	bound    bool
	last     time.Duration // refusal
	unproven bool          // that the limit costs nothing
	slowest  float64       // mean since the limit began
	most     int64         // requests that waited then
	reached  time.Duration // when no more than the limit waited; 0: not yet
}

// Enter counts a request that begins to wait, or reports that it is one too many.
func (l *Limiter) Enter() bool {
	waiting := l.waiting.Add(1)
	if limit := l.limit.Load(); limit > 0 && waiting > limit {
		l.waiting.Add(-1)
		l.refused.Add(1)
		return false
	}
	return true
}

// Answered ends the wait of a request whose answer begins.
func (l *Limiter) Answered(took time.Duration) {
	l.waiting.Add(-1)
	l.answered.Add(1)
	l.took.Add(int64(took))
	l.times[bucketOf(took)].Add(1)
}

// Left ends the wait of a request that teaches nothing of how long answers take: it
// failed, or its endpoint refused it.
func (l *Limiter) Left() { l.waiting.Add(-1) }

// GaveUp ends the wait of a request whose client waits no more.
func (l *Limiter) GaveUp(waited time.Duration) {
	l.waiting.Add(-1)
	l.gaveUp.Add(1)
	l.waited.Add(int64(waited))
	l.lost[bucketOf(waited)].Add(1)
}

// Waiting is how many requests wait for their answers.
func (l *Limiter) Waiting() int64 { return l.waiting.Load() }

// Limit is how many may; 0 is no limit.
func (l *Limiter) Limit() int64 { return l.limit.Load() }

// period is what was seen between two judgements.
type period struct {
	span                      float64 // s
	refused, answered, gaveUp int64
	rate                      float64 // answers per second
	times                     uint32  // that the next two are made of
	fastest, mean             float64 // s, of those answered and given up
	waited                    float64 // s, mean of those given up
	waiting                   int64   // at the end
}

// wasteful reports whether a considerable part of the requests was given up.
func (p period) wasteful() bool { return p.gaveUp >= 5 && 9*p.gaveUp > p.answered }

// Tick judges what happened since it did so last. Call it Every so often, with a time that
// does not go back and the number of endpoints that there are now.
func (l *Limiter) Tick(now time.Duration, endpoints int) {
	if !l.begun {
		l.begun, l.since = true, now
		return
	}
	if l.refused.Load() > 0 {
		l.last = now
	}
	if l.bound && now-l.last >= calm {
		l.release()
	}
	if l.answered.Load()+l.gaveUp.Load() < enough {
		if now-l.since >= stale {
			l.take(now)
			l.delayed = false
		}
		return
	}
	p := l.take(now)
	if p.times < enough/2 {
		return // most clients left before their answers could come
	}
	if !l.known {
		l.known, l.fastest, l.usual = true, p.fastest, p.mean
	}
	l.fastest = min(l.fastest, p.fastest)
	delay := p.fastest - l.fastest
	l.learn(p, delay, now)
	l.count(p, delay)
	if !l.bound && l.pilesUp(p, delay, now) {
		l.bound, l.last = true, now
		l.unproven, l.slowest, l.most, l.reached = true, p.mean, p.waiting, 0
	}
	if l.bound {
		l.limit.Store(max(l.product()-int64(l.ghosts), int64(PerEndpoint*max(endpoints, 1))))
	}
}

// learn takes in how long answers take.
func (l *Limiter) learn(p period, delay float64, now time.Duration) {
	switch {
	case l.costly(p, now):
		// The endpoints complete less than they can, so nothing queues there: answers
		// take as long as they take now.
		l.fastest, l.usual, l.rate = p.fastest, max(l.usual, p.mean), p.rate
		l.unproven = false
	case l.bound:
		l.usual = min(p.mean, l.usual+(p.mean-l.usual)*min(1, p.span/slowly.Seconds()))
	case delay < l.allowed()/4:
		l.usual += (p.mean - l.usual) * min(1, p.span/typical.Seconds())
		l.fastest += delay * min(1, p.span/slowly.Seconds())
	}
}

// costly reports whether the limit makes the endpoints complete less: fewer requests wait
// than before it, and fewer are completed. Where answers have become faster there was a
// queue, and some of that may be because another relay has taken a larger share; so they
// must be much fewer then. Later on it has other causes, such as an endpoint that is gone.
func (l *Limiter) costly(p period, now time.Duration) bool {
	if !l.unproven {
		return false
	}
	l.slowest = max(l.slowest, p.mean)
	limit := l.limit.Load()
	if l.reached == 0 {
		if 10*p.waiting <= 11*limit {
			l.reached = now
		}
		return false
	}
	since := (now - l.reached).Seconds()
	if since > settling.Seconds()+3*p.mean {
		l.unproven = false
		return false
	}
	// What is answered now must have begun under the limit.
	if since < p.span+1.5*p.mean || p.refused == 0 || p.wasteful() || l.ghosts > 0 || 10*p.waiting < 9*limit || 5*p.waiting >= 4*l.most {
		return false
	}
	least := 0.85
	if p.mean < 0.75*l.slowest {
		least = 0.5
	}
	expected := l.rate * p.span
	return float64(p.answered)+3*math.Sqrt(expected) < least*expected
}

// count takes in how much the endpoints complete. What clients have given up they complete
// as well, unseen.
func (l *Limiter) count(p period, delay float64) {
	if l.bound || l.delayed {
		unseen := max(0, l.rate*p.span-float64(p.answered))
		l.ghosts = max(0, l.ghosts+float64(p.gaveUp)-unseen)
		if delay < l.allowed()/8 { // the endpoints have dropped them
			l.ghosts = 0
		}
		if p.wasteful() && (l.patient == 0 || p.waited < l.patient) {
			l.patient = p.waited
		}
	}
	if !p.wasteful() {
		l.rate *= math.Exp(-p.span / memory.Seconds())
	}
	l.rate = max(p.rate, l.rate)
}

// pilesUp reports whether more and more requests wait, and for too long.
func (l *Limiter) pilesUp(p period, delay float64, now time.Duration) bool {
	queued := float64(p.waiting) + l.ghosts
	switch {
	case delay <= l.allowed()/8:
		l.forget()
		return false
	case !l.delayed:
		l.delayed, l.from, l.least = true, now, queued
		return false
	case now-l.from >= settling:
		l.forget()
		l.fastest, l.usual = p.fastest, p.mean
		return false
	}
	l.least = min(l.least, queued)
	grows := queued > 1.05*l.least+3*math.Sqrt(l.least)
	return grows && delay > l.allowed()/4 && queued > float64(l.product())
}

// allowed is the delay that is allowed, in s.
func (l *Limiter) allowed() float64 { return max(Allowed.Seconds(), l.usual) }

// product is how many requests wait where each waits as long as is allowed. Clients that
// give up sooner get half of their patience, as far as answers can be so fast.
func (l *Limiter) product() int64 {
	wait := l.usual + l.allowed()
	if l.patient > 0 {
		wait = max(min(wait, l.patient/2), 1.25*l.usual)
	}
	return int64(math.Ceil(l.rate * wait))
}

// release ends the limit.
func (l *Limiter) release() {
	l.forget()
	l.bound, l.unproven = false, false
	l.limit.Store(0)
}

// forget ends what a delay has led to.
func (l *Limiter) forget() { l.delayed, l.ghosts, l.patient = false, 0, 0 }

// take empties the counts.
func (l *Limiter) take(now time.Duration) period {
	p := period{
		span: (now - l.since).Seconds(), refused: l.refused.Swap(0), answered: l.answered.Swap(0), gaveUp: l.gaveUp.Swap(0), waiting: l.waiting.Load(),
	}
	l.since = now
	took, waited := time.Duration(l.took.Swap(0)), time.Duration(l.waited.Swap(0))
	p.rate = float64(p.answered) / p.span
	p.waited = waited.Seconds() / float64(max(p.gaveUp, 1))
	var times [buckets]uint32
	for i := range l.times {
		n, lost := l.times[i].Swap(0), l.lost[i].Swap(0)
		// Who leaves before answers usually come says nothing of how long they take.
		if lowerOf(i)/float64(time.Second) >= l.usual {
			n += lost
		}
		times[i] = n
		p.times += n
	}
	sum := took.Seconds()
	if p.waited >= l.usual {
		sum += waited.Seconds()
		p.mean = sum / float64(max(p.answered+p.gaveUp, 1))
	} else {
		p.mean = sum / float64(max(p.answered, 1))
	}
	p.fastest = tenth(&times, p.times)
	return p
}

// tenth is the time that a tenth of the answers took less than, in s, as exact as the
// buckets are.
func tenth(times *[buckets]uint32, all uint32) float64 {
	rank := float64(all) / 10
	for i, n := range times {
		if float64(n) < rank {
			rank -= float64(n)
			continue
		}
		if n == 0 {
			continue
		}
		from, to := lowerOf(i), lowerOf(i+1)
		return (from + (to-from)*rank/float64(n)) / float64(time.Second)
	}
	return 0
}

// bucketOf is the bucket of a time.
func bucketOf(took time.Duration) int {
	if took < shortest {
		return 0
	}
	units := uint64(took / (shortest / 4)) // 4 or more
	doublings := bits.Len64(units) - 3
	quarter := int(units>>doublings) - 4 // 0 to 3
	return min(1+4*doublings+quarter, buckets-1)
}

// lowerOf is where a bucket begins, in ns.
func lowerOf(bucket int) float64 {
	if bucket == 0 {
		return 0
	}
	doublings, quarter := (bucket-1)/4, (bucket-1)%4
	return float64(shortest) * float64(int64(4+quarter)<<doublings) / 4
}
