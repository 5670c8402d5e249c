package selection

import (
	"math"
	"sync/atomic"
	"time"
)

// phase is the eviction state of an endpoint.
type phase uint32

const (
	active phase = iota
	evicted
	halfOpen
)

// state holds the statistics of one balancer about one endpoint. It belongs to an
// endpoint ID and outlives tables. Every field is atomic; the size is exactly two cache
// lines (adjacent lines are prefetched in pairs), and the allocator aligns 128-byte
// objects to 128 bytes, so two endpoints never share a line.
//
// A float32 and a tick that belong together share one word, so that a reader
// never combines a new value with an old time.
type state struct {
	// Scoring an idle endpoint reads only the first line.
	latency    atomic.Uint64 // float32 ns, tick of the sample; 0 = no sample yet
	success    atomic.Uint64 // float32 average, tick; 0 = exactly 1, the common case
	report     atomic.Uint64 // float32 last report, float32 its average
	picks      atomic.Uint64 // requests sent since the start
	done       atomic.Uint64 // requests ended since the start
	mark       atomic.Uint64 // picks at the last report
	rampUntil  atomic.Int64  // Instant at which the slow start ends
	reportTick atomic.Uint32
	reported   atomic.Uint32 // noReport, ownReport or shedReport

	counts      atomic.Uint64 // float32 decayed failures, float32 decayed requests
	failures    atomic.Uint64 // failures since the start
	countsTick  atomic.Uint32
	sendTick    atomic.Uint32 // last send
	silenceTick atomic.Uint32 // last sign of life, or first send while none waited
	samples     atomic.Uint32 // weight and number of latency samples; see evidence
	consecutive atomic.Uint32 // failures since the last success
	phase       atomic.Uint32
	probing     atomic.Uint32 // tick at which the one request of a half-open endpoint started, 0 without one
	streaming   atomic.Int32  // requests in flight whose answer has begun, or that wait for their client
	queueCost   atomic.Uint32 // float32: what an own request in flight adds to the queue

	full atomic.Uint32              // tick until which it counts as full, refusals in a row; see refused
	tier atomic.Pointer[tierHealth] // of its tier, or of a range with one tier
}

// Values of state.reported: the content of state.report.
const (
	noReport   = iota
	ownReport  // the endpoint reported its in-flight count
	shedReport // it never reported, but it shed a request; see shedWithoutReport
)

// evidence is what the latency estimate rests on: the weight of its samples at the time of
// the last one, in units of 1/256, and in the low bits their number, and whether the last try was
// in vain. The number stops at maxSamples: numbers below 5 matter for the average, below 3 for
// the median.
type evidence uint32

const (
	maxSamples = 15
	weightUnit = 1 << 8
	// maxWeight bounds the weight, so that a hundred samples replace an estimate however
	// fast they come.
	maxWeight = 100
)

func newEvidence(weight float32, samples uint32, vain bool) evidence {
	e := evidence(min(weight, maxWeight)*weightUnit)<<5 | evidence(min(samples, maxSamples))
	if vain {
		e |= maxSamples + 1
	}
	return e
}

func (e evidence) samples() uint32 { return uint32(e & maxSamples) }

func (e evidence) vain() bool { return e&(maxSamples+1) != 0 }

func (e evidence) weight() float32 { return float32(e>>5) / weightUnit }

func (s *state) evidence() evidence { return evidence(s.samples.Load()) }

func pack(value float32, t tick) uint64 {
	return uint64(math.Float32bits(value))<<32 | uint64(t)
}

func unpack(word uint64) (float32, tick) {
	return math.Float32frombits(uint32(word >> 32)), tick(word)
}

func packPair(a, b float32) uint64 { return pack(a, tick(math.Float32bits(b))) }

func unpackPair(word uint64) (a, b float32) {
	a, t := unpack(word)
	return a, math.Float32frombits(uint32(t))
}

// storeTick avoids the cost of an atomic store if the tick has not changed.
func storeTick(field *atomic.Uint32, t tick) {
	if field.Load() != uint32(t) {
		field.Store(uint32(t))
	}
}

// begin counts a request that is about to be sent, unless the limit of requests in flight
// is reached; 0 means no limit. The limit is never exceeded: done is read first and only
// grows.
func (s *state) begin(now tick, limit int) bool {
	var before uint64
	if limit == 0 {
		before = s.picks.Add(1) - 1
	} else {
		for {
			done := s.done.Load()
			before = s.picks.Load()
			if int64(before-done) >= int64(limit) {
				return false
			}
			if s.picks.CompareAndSwap(before, before+1) {
				break
			}
		}
	}
	if waiting := int64(before-s.done.Load()) - int64(s.streaming.Load()); waiting <= 0 {
		storeTick(&s.silenceTick, now)
	}
	storeTick(&s.sendTick, now)
	return true
}

// awaitsBody counts n more requests that wait for their clients. A silence begins when the body has
// moved and no other request waits for the endpoint, as in begin.
func (s *state) awaitsBody(n int32, now tick) {
	if n < 0 && !s.waiting(s.outstanding()) {
		storeTick(&s.silenceTick, now)
	}
	s.streaming.Add(n)
}

// succeeded adds the latency of a success to the estimate, which is the mean of the samples
// with weights that decay over 6 s. A sample weighs alpha at most, except the first five.
// It weighs exactly alpha if there was none for staleAge: old samples show little.
//
// A good sample of an endpoint with an old bad estimate counts half, and the other half is
// the estimate relaxed as in the score: a bad estimate keeps requests away, so an endpoint
// that has recovered gives only few samples. A sample that is not good restores the
// estimate, so an endpoint that stays slow gets one request in some seconds. The result is what came
// of the first such try since the estimate was good.
func (s *state) succeeded(latency time.Duration, now tick, alpha, median float32) (tried try) {
	x := float32(max(latency, 1))
	for range 4 { // losing a sample to contention is harmless
		known := s.evidence()
		samples, vain := known.samples(), known.vain()
		tried = noTry
		word := s.latency.Load()
		next, weight := x, float32(0)
		if word != 0 {
			old, at := unpack(word)
			age := now.since(at)
			if age == 0 && samples == maxSamples {
				break // one sample per tick is enough, and one more costs a write
			}
			weight = known.weight() * decay(float32(age)*perLatencyTau)
			a := min(alpha, 1/(weight+1))
			good := median * goodEnough
			vain = vain && old > good
			if age > staleAge {
				a = alpha
				weight = min(weight, 1/alpha-1)
				first := !vain
				switch {
				case old <= good:
				case x < good:
					vain, tried = false, goodTry
					a, weight, old = 0.5, 1, relaxed(old, median, age)
				default:
					vain, tried = true, vainTry
				}
				if !first {
					tried = noTry
				}
			}
			if samples < 5 {
				a = max(a, 1/float32(samples+1))
			}
			next = old + a*(x-old)
		}
		if s.latency.CompareAndSwap(word, pack(next, now)) {
			if e := newEvidence(weight+1, samples+1, vain); e != known {
				s.samples.Store(uint32(e))
			}
			break
		}
	}
	if s.consecutive.Load() != 0 {
		s.consecutive.Store(0)
	}
	if word := s.success.Load(); word != 0 {
		// Start from the relaxed value: a success must never lower the average.
		success := relaxedSuccess(word, now)
		success += 0.05 * (1 - success)
		if success > 0.9999 {
			s.success.Store(0)
		} else {
			s.success.Store(pack(success, now))
		}
	}
	return tried
}

// reportWeight is the weight of a report in the average of reports.
func reportWeight(samples uint32, elapsed int32, alpha float32) float32 {
	a := min(alpha, 1-decay(float32(elapsed)*perReportsTau))
	if samples < 5 {
		a = max(a, 1/float32(samples+1))
	}
	return a
}

// failed lowers the success average by 5 %, without relaxing it first: the failure shows
// that relaxing was premature. Latency, report and sends do not change.
func (s *state) failed(now tick) {
	success := float32(1)
	if word := s.success.Load(); word != 0 {
		success, _ = unpack(word)
	}
	s.success.Store(pack(max(success*0.95, 1e-6), now))
	s.failures.Add(1)
	s.consecutive.Add(1)
}

// unanswered keeps, as the estimate, what the score made of the silence while requests
// waited. Otherwise an endpoint behind a black hole looks good again as soon as the last
// of its requests has run out of time, and the retries of others go there. The estimate,
// as the score sees it, never falls here, and it relaxes as any bad one does.
func (s *state) unanswered(now tick, median float32) {
	silence := slowness(now.since(tick(s.silenceTick.Load())))
	word := s.latency.Load()
	estimate, at := unpack(word)
	estimate = relaxed(estimate, median, now.since(at))
	if silence > estimate && s.latency.CompareAndSwap(word, pack(silence, now)) { // one lost to contention is harmless
		s.samples.Store(uint32(newEvidence(1, s.evidence().samples(), s.evidence().vain()))) // the next answers count more than a guess
	}
}

// count adds one ended request to the counts, which decay with outlier.Memory.
func (s *state) count(failure float32, now tick) {
	failures, requests := s.decayedCounts(now)
	s.counts.Store(packPair(failures+failure, requests+1))
	storeTick(&s.countsTick, now)
}

func (s *state) decayedCounts(now tick) (failures, requests float32) {
	failures, requests = unpackPair(s.counts.Load())
	if age := now.since(tick(s.countsTick.Load())); age > 0 {
		d := decay(float32(age) * perCountTau)
		failures, requests = failures*d, requests*d
	}
	return failures, requests
}

// takeReport records an in-flight count that the endpoint sent with an answer.
func (s *state) takeReport(load float32, now tick, alpha float32) {
	average := load
	if s.reported.Load() == ownReport {
		_, average = unpackPair(s.report.Load())
		if age := now.since(tick(s.reportTick.Load())); age > reportExpiry && average > unusualQueue*(load+1) {
			average = load // what was reported before has expired
		} else {
			average += reportWeight(s.evidence().samples(), age, alpha) * (load - average)
		}
	}
	s.report.Store(packPair(load, average))
	storeTick(&s.reportTick, now)
	s.mark.Store(s.picks.Load())
	if s.reported.Load() != ownReport {
		s.reported.Store(ownReport)
	}
}

// answeredWithoutReport discards a report that is no longer updated; otherwise the count
// of sends since that report would grow without bound and starve the endpoint.
func (s *state) answeredWithoutReport(now tick) {
	if s.reported.Load() == ownReport && now.since(tick(s.reportTick.Load())) > reportExpiry {
		s.reported.Store(noReport)
	}
}

// shedWithoutReport replaces the report that a busy endpoint did not send: twice the
// assumed queue plus one, which decays over 100 ms like a report. Without it an endpoint
// that refuses fast would look idle.
func (s *state) shedWithoutReport(v *view) {
	const ceiling = 10_000
	queue := max(s.outstanding(), v.queue)
	var average float32
	reported := s.reported.Load()
	if reported != noReport {
		var last float32
		last, average = unpackPair(s.report.Load())
		queue = max(queue, last*decay(float32(v.tick.since(tick(s.reportTick.Load())))*perReportTau))
	}
	if reported != ownReport {
		average = 0
		s.reported.Store(shedReport)
	}
	s.report.Store(packPair(min(2*queue+1, ceiling), average))
	storeTick(&s.reportTick, v.tick)
}

// restart clears the statistics that led to an eviction. The latency estimate stays,
// because it comes from successes only.
func (s *state) restart() {
	s.success.Store(0)
	s.counts.Store(0)
	s.consecutive.Store(0)
	s.mark.Store(s.picks.Load())
}

// freshen moves stamps older than maxAge forward, so that 32-bit ages do not wrap.
func (s *state) freshen(now tick) {
	oldest := now - maxAge
	for _, word := range []*atomic.Uint64{&s.latency, &s.success} {
		if w := word.Load(); w != 0 {
			if value, at := unpack(w); now.since(at) > maxAge {
				word.CompareAndSwap(w, pack(value, oldest))
			}
		}
	}
	if word := s.full.Load(); word != 0 && now.since(tick(word&^refusals)) > maxAge {
		s.full.Store(0)
	}
	for _, stamp := range []*atomic.Uint32{&s.reportTick, &s.sendTick, &s.silenceTick, &s.countsTick} {
		if at := stamp.Load(); now.since(tick(at)) > maxAge {
			stamp.CompareAndSwap(at, uint32(oldest))
		}
	}
}

const (
	// goodEnough times the median latency is the limit between good and bad: bad estimates
	// relax to it, and only a sample below it brings a slow endpoint back. An idle endpoint
	// at this limit scores better than one of median latency at its usual work.
	goodEnough = 1.2
	// goodSuccess: a single failure lowers the success average to 0.95. An endpoint that
	// failed more than that is tried later, when the average has relaxed.
	goodSuccess = 0.9
	// overdueShare: after the mean time between two requests to an endpoint, divided by
	// overdueShare, it is overdue, and its latency is divided by overdueBonus. A good endpoint gets
	// less than this part of its fair share, because it must also be drawn: at least a fifth in
	// each minute.
	overdueShare = 1.0 / 3
	overdueBonus = 4
	// overdueSlow is how much longer that time is at most for an endpoint that was slow and reports
	// no load; see tries.
	overdueSlow = 10
	// vainFactor is how much longer it is at least for one whose last try was in vain.
	vainFactor = 3
	// reportExpiry, 10 s: an answer without a report discards a report older than this, and an unusual
	// average falls from then on; see expired.
	reportExpiry = int32(10_000_000_000 >> tickShift)
	// unusualQueue times the usual queue keeps requests away however busy the others are.
	unusualQueue = 10
	// staleAge, 1 s: an estimate older than this follows a sample faster.
	staleAge = int32(1_000_000_000 >> tickShift)
	// minHold, 100 ms: the count of sends starts to decay after this long without one.
	minHold = int32(100_000_000 >> tickShift)
)
