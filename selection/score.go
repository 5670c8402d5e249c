package selection

import "math"

// view holds the time and the figures of the range that one pick uses for scoring.
type view struct {
	now       Instant
	tick      tick
	median    float32 // M: median latency of the range, ns
	queue     float32 // median average report, 0 without reports
	headroom  float32 // h: usual requests in flight; see headroomOf
	slowStart float32 // length of the ramp, ns
	overdue   int32   // ticks without an answer after which a good endpoint is tried; see state.overdue
	// slowFactor is how much longer that is for an endpoint that was slow and reports no load.
	slowFactor float32
}

// score is the cost of sending the next request to the endpoint; lower is better. The
// formula is part of the package's contract (L', q and s' are explained in parts):
//
//	L' · (q + h + 1) / max(s', 0.05)²  ÷  max(0.1, age/ramp) while younger than the ramp
//	                                   ÷  4 while an idle good endpoint is overdue
//
// One request in flight of this balancer adds 1 to q, or less for endpoints of more than
// the mean weight. The headroom h is the same for all endpoints. It leaves room for the
// queues that are usual: most endpoints serve several requests at a time, so a request more
// or less shows little about the latency, and without h an idle slow endpoint looks better
// than a fast one at its usual work.
func (s *state) score(v *view) float32 {
	return v.combine(s.parts(v))
}

func (v *view) combine(latency, queue, success, ramp float32) float32 {
	score := latency * (queue + v.headroom + 1)
	if factor := success * success * ramp; factor != 1 {
		score /= factor
	}
	return score
}

// parts returns L', q, s' (bounded below) and the ramp of the score.
func (s *state) parts(v *view) (latency, queue, success, ramp float32) {
	out := s.outstanding()

	// L': while no request waits, bad estimates relax, so that one request tries the
	// endpoint. While requests wait, the estimate counts in full and L' is at least half of
	// the silence. Requests whose answer has begun do not wait, however long the answer
	// takes.
	waiting := s.waiting(out)
	latency = v.median
	age := int32(math.MaxInt32)
	if word := s.latency.Load(); word != 0 {
		var at tick
		latency, at = unpack(word)
		age = v.tick.since(at)
		if !waiting {
			latency = relaxed(latency, v.median, age)
		}
	}
	if waiting {
		latency = max(latency, s.silence(v))
	}

	// q: the report, relaxed towards its average, plus the requests sent since the
	// report, plus those in flight. An endpoint that never reported is assumed to be as
	// busy as the median endpoint.
	if out > 0 {
		out *= s.weighed()
	}
	queue = max(out, v.queue)
	if reported := s.reported.Load(); reported != noReport {
		last, average := unpackPair(s.report.Load())
		since := v.tick.since(tick(s.reportTick.Load()))
		fresh := decay(float32(since) * perReportTau)
		if reported == ownReport {
			if since > reportExpiry && average > unusualQueue*(v.queue+v.headroom+1) {
				average = expired(average, v.queue, since)
			}
			queue = average + (last-average)*fresh + out
			if s.picks.Load() != s.mark.Load() {
				queue += s.sentSinceReport(v.tick) * s.weighed()
			}
		} else {
			queue += last * fresh
		}
	}

	success, ramp = 1, 1
	if word := s.success.Load(); word != 0 {
		success = max(relaxedSuccess(word, v.tick), 0.05)
	}
	if left := s.rampUntil.Load() - int64(v.now); left > 0 {
		ramp = max(0.1, 1-float32(left)/v.slowStart)
	}
	if age > v.overdue && out == 0 && s.overdue(v, latency, age) && queue <= v.headroom+0.5 && success > goodSuccess && ramp == 1 {
		latency /= overdueBonus
	}
	return latency, queue, success, ramp
}

// expired returns an unusual average of reports of which the last is older than reportExpiry. It falls
// to the median within as long again, so that one request tries the endpoint: without requests there
// is no other report, and a single false one would keep them away for good.
func expired(average, median float32, since int32) float32 {
	return average - (average-median)*min(float32(since-reportExpiry)/float32(reportExpiry), 1)
}

// overdue reports whether a good endpoint has been without an answer for so long that a
// request should try it. While queues are short, only the estimates decide, and those of
// equally good endpoints differ by chance. The endpoint with the highest would lose each
// pair, so that its estimate stayed the highest. An endpoint that was slow is tried less often
// if its queue is not known from reports, which may be the reason, and tries were in vain.
func (s *state) overdue(v *view, latency float32, age int32) bool {
	good := v.median * (goodEnough + 0.01) // a relaxed estimate is a little more than goodEnough by rounding
	if latency > good {
		return false
	}
	after := float32(v.overdue) * s.weighed()
	if estimate, _ := unpack(s.latency.Load()); estimate > good && s.reported.Load() != ownReport {
		factor := v.slowFactor
		if s.evidence().vain() {
			factor = max(factor, vainFactor)
		}
		after *= factor
	}
	return float32(age) > after
}

// relaxed returns an estimate of the given age. A bad one relaxes within 5 s to what is just
// not good, so that the endpoint is tried; time alone makes no slow endpoint attractive, see
// succeeded. It relaxes along a straight line, because then an endpoint that was ten times
// slower is tried hardly later than one that is three times slower.
func relaxed(latency, median float32, age int32) float32 {
	// No branch: about half of the estimates are bad when latencies vary, so the processor
	// would predict it wrong half of the time.
	bad := max(latency-median*goodEnough, 0)
	return max(latency-bad*min(float32(age)*perBadAge, 1), 1) // 1 ns: rounding must not make it 0
}

// waiting reports whether one of out requests in flight has no answer yet; silence returns the
// latency that its waiting stands for.
func (s *state) waiting(out float32) bool { return out > 0 && out > float32(s.streaming.Load()) }

func (s *state) silence(v *view) float32 {
	return slowness(v.tick.since(tick(s.silenceTick.Load())))
}

// slowness is the latency, in ns, that a silence of this many ticks stands for.
func slowness(silence int32) float32 { return float32(silence) * (1 << tickShift) / 2 }

func (s *state) weighed() float32 { return math.Float32frombits(s.queueCost.Load()) }

// outstanding returns this balancer's requests in flight. done is read first, so the
// difference is never negative.
func (s *state) outstanding() float32 {
	done := s.done.Load()
	return float32(int64(s.picks.Load() - done))
}

// sentSinceReport returns the requests sent since the last report. After 100 ms without a
// request the count decays over 10 s, so that an endpoint whose requests fail is tried
// again.
func (s *state) sentSinceReport(now tick) float32 {
	mark := s.mark.Load()
	sent := float32(int64(s.picks.Load() - mark))
	if sent <= 0 {
		return 0
	}
	if idle := now.since(tick(s.sendTick.Load())); idle > minHold {
		sent *= decay(float32(idle) * perRelaxTau)
	}
	return sent
}

func relaxedSuccess(word uint64, now tick) float32 {
	success, at := unpack(word)
	return 1 - (1-success)*decay(float32(now.since(at))*perRelaxTau)
}
