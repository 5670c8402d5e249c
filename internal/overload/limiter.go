package overload

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// Every is the interval for calls of Tick.
	Every = 250 * time.Millisecond
	// Allowed is the delay that requests may have in a queue of the endpoints. If answers
	// usually take longer than that, the allowed delay is as long as they take. No request
	// of a burst that takes this long to process is refused, and clients with a second of
	// patience get their answers.
	Allowed = 400 * time.Millisecond
	// PerEndpoint is how many requests may always wait for each endpoint.
	PerEndpoint = 8
	// Connecting is how long a request may wait for a connection to its endpoint before that
	// wait counts. New connections cost this process time, most of all with TLS, while the
	// endpoints may be idle. Longer waits show endpoints that accept too few connections.
	Connecting = 3 * time.Second
)

const (
	enough     = 50               // requests needed to judge times and rates
	minAnswers = 10               // requests needed to judge times while too many wait
	stale      = 8 * time.Second  // counts that are not enough by then are discarded
	settleTime = 8 * time.Second  // a delay that lasts this long while requests do not pile up is not a queue
	calmPeriod = 5 * time.Second  // without a refusal the overload is over after this time
	memory     = time.Minute      // of the rate of completions
	riseTime   = 5 * time.Minute  // time over which a longer time becomes the usual one, if it may be a queue
	typical    = 5 * time.Second  // the same time if there is no queue
	shortest   = time.Millisecond // shorter times are not distinguished
	buckets    = 64               // four for each doubling, up to a minute
)

// Limiter bounds the requests of one service that wait for their answers. The zero value
// is ready, and has no limit until Tick has detected that requests pile up.
type Limiter struct {
	waiting atomic.Int64
	limit   atomic.Int64 // 0 means none

	// Counts since the last judgement.
	refused  atomic.Int64
	answered atomic.Int64
	gaveUp   atomic.Int64
	took     atomic.Int64           // ns, sum of all answered
	waited   atomic.Int64           // ns, sum of all given up
	times    [buckets]atomic.Uint32 // of answers
	lost     [buckets]atomic.Uint32 // times until requests were given up

	// Only Tick uses the fields below. Times without a unit are in seconds.

	begun   bool
	since   time.Duration // when the last judgement was made
	known   bool          // the next two are known
	fastest float64       // a tenth of the answers is faster in quiet times
	usual   float64       // mean in quiet times
	rate    float64       // completions per second, the recent maximum
	// Counts that are too few for rate yet: completions, and their time.
	completed int64
	during    float64

	delayed   bool
	from      time.Duration // when the delay began
	least     float64       // least number of queued requests since then
	abandoned float64       // requests that were given up but that the endpoints still process
	patience  float64       // how long clients wait before they give up; 0 means unknown

	bound    bool
	last     time.Duration // the last refusal
	unproven bool          // it is not yet proven that the limit costs no completions
	slowest  float64       // mean since the limit began
	most     int64         // how many requests waited when the limit began
	reached  time.Duration // when only as many requests as the limit waited; 0 means not yet
}

// Enter counts a request that begins to wait. It returns false if the limit is reached.
func (l *Limiter) Enter() bool {
	waiting := l.waiting.Add(1)
	if limit := l.limit.Load(); limit > 0 && waiting > limit {
		l.waiting.Add(-1)
		l.refused.Add(1)
		return false
	}
	return true
}

// Answered ends the wait of a request whose answer begins. A part of took, connecting, was
// spent waiting for connections.
func (l *Limiter) Answered(took, connecting time.Duration) {
	took -= min(connecting, Connecting)
	l.waiting.Add(-1)
	l.answered.Add(1)
	l.took.Add(int64(took))
	l.times[bucketOf(took)].Add(1)
}

// Left ends the wait of a request whose time is not counted, because it failed or its
// endpoint refused it.
func (l *Limiter) Left() { l.waiting.Add(-1) }

// GaveUp ends the wait of a request whose client has given up, or that got no answer in time.
func (l *Limiter) GaveUp(waited time.Duration) {
	l.waiting.Add(-1)
	l.gaveUp.Add(1)
	l.waited.Add(int64(waited))
	l.lost[bucketOf(waited)].Add(1)
}

// Waiting returns how many requests wait for their answers.
func (l *Limiter) Waiting() int64 { return l.waiting.Load() }

// Limit returns how many requests may wait; 0 means no limit.
func (l *Limiter) Limit() int64 { return l.limit.Load() }

// period holds the counts between two judgements.
type period struct {
	span                      float64 // s
	refused, answered, gaveUp int64
	rate                      float64 // answers per second
	times                     uint32  // number of times in the next two
	fastest, mean             float64 // s, of the requests answered and given up
	waited                    float64 // s, mean of the requests given up
	waiting                   int64   // at the end
}

// wasteful reports whether a considerable part of the requests was given up.
func (p period) wasteful() bool { return p.gaveUp >= 5 && 9*p.gaveUp > p.answered }

// Tick judges what happened since its last judgement. It must be called once every Every,
// with a time that never decreases and the current number of endpoints.
func (l *Limiter) Tick(now time.Duration, endpoints int) {
	if !l.begun {
		l.begun, l.since = true, now
		return
	}
	if l.refused.Load() > 0 {
		l.last = now
	}
	if l.bound && now-l.last >= calmPeriod {
		l.release()
	}
	ended := l.answered.Load() + l.gaveUp.Load()
	if ended < enough && !(ended >= minAnswers && l.tooManyWaiting(endpoints)) {
		if now-l.since >= stale {
			l.take(now)
			l.delayed, l.completed, l.during = false, 0, 0
		}
		return
	}
	p := l.take(now)
	if 2*int64(p.times) < min(enough, ended) {
		return // most clients left before their answers could arrive
	}
	if !l.known {
		l.known, l.fastest, l.usual = true, p.fastest, p.mean
	}
	l.fastest = min(l.fastest, p.fastest)
	delay := p.fastest - l.fastest
	l.learn(p, delay, now)
	l.count(p, delay)
	if !l.bound && l.queueGrows(p, delay, now) {
		l.bound, l.last = true, now
		l.unproven, l.slowest, l.most, l.reached = true, p.mean, p.waiting, 0
	}
	if l.bound {
		l.limit.Store(max(l.product()-int64(l.abandoned), minLimit(endpoints)))
	}
}

// minLimit returns how many requests may wait under any limit.
func minLimit(endpoints int) int64 { return int64(PerEndpoint * max(endpoints, 1)) }

// tooManyWaiting reports whether so large a number of requests waits that they may be a queue.
// The decision cannot wait for the usual number of requests: at 50 a second and three
// times that load, the queue would grow by two seconds before that.
func (l *Limiter) tooManyWaiting(endpoints int) bool {
	queued := l.waiting.Load() + int64(l.abandoned)
	return l.known && !l.bound && queued > max(l.product(), minLimit(endpoints))
}

// learn updates the usual times of answers.
func (l *Limiter) learn(p period, delay float64, now time.Duration) {
	switch {
	case l.costly(p, now):
		// The endpoints complete fewer requests than they can, so nothing queues there: the
		// current times are the usual ones.
		l.fastest, l.usual, l.rate = p.fastest, max(l.usual, p.mean), p.rate
		l.unproven = false
	case l.bound:
		l.usual = min(p.mean, l.usual+(p.mean-l.usual)*min(1, p.span/riseTime.Seconds()))
	case delay < l.allowed()/4:
		l.usual += (p.mean - l.usual) * min(1, p.span/typical.Seconds())
		l.fastest += delay * min(1, p.span/riseTime.Seconds())
	}
}

// costly reports whether the limit makes the endpoints complete fewer requests: fewer
// requests wait than before the limit, and fewer are completed. If answers have become
// faster there was a queue, and a part of the loss may come from another relay that has
// taken a larger share. So the loss must be much larger then. A later loss has other
// causes, such as an endpoint that is gone.
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
	if since > settleTime.Seconds()+3*p.mean {
		l.unproven = false
		return false
	}
	// The requests answered now must have begun under the limit.
	if since < p.span+1.5*p.mean || p.refused == 0 || p.wasteful() || l.abandoned > 0 || 10*p.waiting < 9*limit || 5*p.waiting >= 4*l.most {
		return false
	}
	least := 0.85
	if p.mean < 0.75*l.slowest {
		least = 0.5
	}
	expected := l.rate * p.span
	return float64(p.answered)+3*math.Sqrt(expected) < least*expected
}

// count updates the rate of completions. The endpoints also complete requests that clients
// have given up, which is not observed.
func (l *Limiter) count(p period, delay float64) {
	if l.bound || l.delayed {
		unseen := max(0, l.rate*p.span-float64(p.answered))
		l.abandoned = max(0, l.abandoned+float64(p.gaveUp)-unseen)
		if delay < l.allowed()/8 { // the endpoints have dropped them
			l.abandoned = 0
		}
		if p.wasteful() && (l.patience == 0 || p.waited < l.patience) {
			l.patience = p.waited
		}
	}
	if !p.wasteful() {
		l.rate *= math.Exp(-p.span / memory.Seconds())
	}
	l.completed, l.during = l.completed+p.answered, l.during+p.span
	if p.answered+p.gaveUp >= enough || l.completed >= enough {
		l.rate = max(float64(l.completed)/l.during, l.rate)
		l.completed, l.during = 0, 0
	}
}

// queueGrows reports whether the number of waiting requests grows and they wait too long.
func (l *Limiter) queueGrows(p period, delay float64, now time.Duration) bool {
	queued := float64(p.waiting) + l.abandoned
	switch {
	case delay <= l.allowed()/8:
		l.forget()
		return false
	case !l.delayed:
		l.delayed, l.from, l.least = true, now, queued
		return false
	case now-l.from >= settleTime:
		l.forget()
		l.fastest, l.usual = p.fastest, p.mean
		return false
	}
	l.least = min(l.least, queued)
	grows := queued > 1.05*l.least+3*math.Sqrt(l.least)
	return grows && delay > l.allowed()/4 && queued > float64(l.product())
}

// allowed returns the allowed delay, in s.
func (l *Limiter) allowed() float64 { return max(Allowed.Seconds(), l.usual) }

// product returns how many requests wait if each waits as long as allowed. For clients
// that give up sooner it is half of their patience, if answers can be that fast.
func (l *Limiter) product() int64 {
	wait := l.usual + l.allowed()
	if l.patience > 0 {
		wait = max(min(wait, l.patience/2), 1.25*l.usual)
	}
	return int64(math.Ceil(l.rate * wait))
}

// release ends the limit.
func (l *Limiter) release() {
	l.forget()
	l.bound, l.unproven = false, false
	l.limit.Store(0)
}

// forget resets the state of a delay.
func (l *Limiter) forget() { l.delayed, l.abandoned, l.patience = false, 0, 0 }

// take returns and resets the counts.
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
		// A request that was given up sooner than answers usually come does not show how long
		// they take.
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

// tenth returns the time below which a tenth of the answers are, in s, with the precision
// of the buckets.
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

// bucketOf returns the bucket of a time.
func bucketOf(took time.Duration) int {
	if took < shortest {
		return 0
	}
	units := uint64(took / (shortest / 4)) // 4 or more
	doublings := bits.Len64(units) - 3
	quarter := int(units>>doublings) - 4 // 0 to 3
	return min(1+4*doublings+quarter, buckets-1)
}

// lowerOf returns the lower bound of a bucket, in ns.
func lowerOf(bucket int) float64 {
	if bucket == 0 {
		return 0
	}
	doublings, quarter := (bucket-1)/4, (bucket-1)%4
	return float64(shortest) * float64(int64(4+quarter)<<doublings) / 4
}
