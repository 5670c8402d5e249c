package selection

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

// one returns a rig with the endpoint "w0" past its slow start and another
// endpoint, "w1", with no samples.
func one(t *testing.T) *rig {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(2))
	r.settle()
	return r
}

// median makes the given latency and no report the range's median.
func (r *rig) median(m time.Duration) { r.medians.Store(packPair(float32(m), 0)) }

func TestScoreIsLatencyTimesQueuePlusOneOverSuccessSquaredWithoutHeadroom(t *testing.T) {
	r := one(t)
	r.median(time.Second) // nothing above it, nothing relaxes
	r.request("w0", 20*ms, Success.with(3))
	near(t, "score after a report of 3", r.score("w0"), float64(20*ms)*4, 0.01)
	p := r.pickFrom("w0") // one sent since the report, and one in flight
	near(t, "score with one out", r.score("w0"), float64(20*ms)*6, 0.01)
	r.Done(p, r.now, Cancelled)
	near(t, "score after the cancel", r.score("w0"), float64(20*ms)*5, 0.01)
	r.state("w0").success.Store(pack(0.5, r.now.tick()))
	near(t, "score at half success", r.score("w0"), float64(20*ms)*5*4, 0.01)
	r.state("w0").success.Store(pack(0.001, r.now.tick()))
	near(t, "score at no success is bounded", r.score("w0"), float64(20*ms)*5*400, 0.03)
}

func TestTheHeadroomIsTheUsualQueueAndAHalfButFourAtMost(t *testing.T) {
	for _, c := range []struct {
		load int
		want float64
	}{{0, 0}, {1, 1.5}, {2, 3}, {3, 4}, {1000, 4}} {
		r := one(t)
		r.median(time.Second)
		for range 100 { // 25 s
			r.request("w0", 20*ms, Success.with(c.load))
			r.wait(230 * ms)
			r.Refresh(r.now)
		}
		near(t, fmt.Sprintf("headroom at %d in flight", c.load), float64(r.view(r.now).headroom), c.want, 0.01)
		near(t, "score", r.score("w0"), float64(20*ms)*(float64(c.load)+c.want+1), 0.01)
	}
}

func TestABurstHardlyChangesTheHeadroom(t *testing.T) {
	r := one(t)
	r.requests(3, "w0", 20*ms, Success.with(2))
	r.Refresh(r.now)
	near(t, "at once", float64(r.view(r.now).headroom), 3.0/12, 0.01)
	for range 100 {
		r.Refresh(r.now)
	}
	near(t, "at last", float64(r.view(r.now).headroom), 3, 0.01)
}

func TestWithoutReportsTheOwnRequestsAreTheUsualQueue(t *testing.T) {
	r := one(t)
	for range 4 {
		r.pickFrom("w0")
	}
	for range 100 {
		r.Refresh(r.now)
	}
	near(t, "four at one of two", float64(r.view(r.now).headroom), 1.5*2, 0.01)
}

// A fast endpoint at its usual work is better than an idle one that is three times slower.
func TestAnIdleSlowEndpointIsNoBetterThanABusyFastOne(t *testing.T) {
	r := one(t)
	for range 60 {
		r.request("w0", 20*ms, Success.with(2))
		r.request("w1", 60*ms, Success.with(0))
		r.request("w0", 20*ms, Success.with(2))
		r.state("w0").report.Store(packPair(2, 2))
		r.median(20 * ms)
		r.usual = 2
		r.headroom.Store(math.Float32bits(headroomOf(2)))
	}
	if fast, slow := r.score("w0"), r.score("w1"); fast >= slow {
		t.Errorf("the fast one with two in flight scores %v, the idle slow one %v", time.Duration(fast), time.Duration(slow))
	}
}

func TestABadEstimateCountsInFullWhileARequestTriesTheEndpoint(t *testing.T) {
	r := one(t)
	r.median(20 * ms)
	r.requests(5, "w0", 200*ms, Success)
	r.wait(5 * time.Second)
	near(t, "relaxed", r.score("w0"), float64(24*ms), 0.01)
	p := r.pickFrom("w0")
	near(t, "while it is tried", r.score("w0"), float64(200*ms)*2, 0.01)
	r.Done(p, r.now, Cancelled)
	near(t, "given up", r.score("w0"), float64(24*ms), 0.01)
}

func TestOnlyAGoodAnswerBringsASlowEndpointBack(t *testing.T) {
	r := one(t)
	r.median(20 * ms)
	r.requests(5, "w0", 200*ms, Success)
	for range 10 {
		r.wait(6 * time.Second)
		r.request("w0", 200*ms, Success) // still slow
		near(t, "after another slow answer", r.score("w0"), float64(200*ms), 0.01)
	}
	r.wait(6 * time.Second)
	r.request("w0", 40*ms, Success) // better, and not good
	near(t, "after one that is not good", r.score("w0"), float64(168*ms), 0.01)
	r.wait(6 * time.Second)
	r.request("w0", 20*ms, Success)
	near(t, "after a good one", r.score("w0"), float64(22*ms), 0.01)
}

func TestAnEndpointWithoutSamplesCountsAsTheMedian(t *testing.T) {
	r := one(t)
	near(t, "before a median is known", r.score("w1"), float64(10*ms), 0.001)
	r.requests(3, "w0", 40*ms, Success)
	r.Refresh(r.now)
	near(t, "with a median of 40 ms", r.score("w1"), float64(40*ms), 0.01)
}

func TestTheMedianNeedsThreeSamplesOfAnEndpoint(t *testing.T) {
	r := one(t)
	r.requests(2, "w0", 40*ms, Success)
	r.Refresh(r.now)
	near(t, "after two samples", r.score("w1"), float64(10*ms), 0.001)
}

func TestOnlyBadEstimatesRelaxAndOnlyToWhatIsJustNotGood(t *testing.T) {
	r := one(t)
	r.median(20 * ms)
	r.request("w0", 100*ms, Success)
	r.request("w1", 5*ms, Success)
	r.wait(3 * time.Second)
	near(t, "slow endpoint after 3 s", r.score("w0"), float64(24*ms)+float64(76*ms)*(1-3.0/5), 0.01)
	near(t, "fast endpoint after 3 s", r.score("w1"), float64(5*ms), 0.001)
	r.wait(10 * time.Minute)
	near(t, "slow endpoint after 10 min", r.score("w0"), float64(24*ms), 0.001)
}

func TestSilenceWithRequestsOutMakesAnEndpointSlow(t *testing.T) {
	r := one(t)
	r.median(20 * ms)
	r.request("w0", 20*ms, Success)
	r.wait(time.Minute) // idle time is no silence
	first := r.pickFrom("w0")
	near(t, "at the start", r.score("w0"), float64(20*ms)*2, 0.01)
	r.wait(2 * time.Second)
	near(t, "after 2 s", r.score("w0"), float64(time.Second)*2, 0.01)
	second := r.pickFrom("w0") // a further send does not end the silence
	near(t, "two out", r.score("w0"), float64(time.Second)*3, 0.01)
	r.Done(first, r.now, Cancelled) // nor does the caller's going away
	near(t, "after a cancel", r.score("w0"), float64(time.Second)*2, 0.01)
	for _, answer := range []ended{Success.with(0), Shed.with(0), Failure} {
		third := r.pickFrom("w0")
		third.start = r.now - Instant(20*ms)
		r.wait(2 * time.Second)
		if got := r.score("w0"); got < float64(2*time.Second) {
			t.Errorf("score in the silence is %v", time.Duration(got))
		}
		third.start = r.now - Instant(20*ms)
		r.Done(third, r.now, answer) // an answer of any kind does, with another still out
		if got := r.score("w0"); got > float64(200*ms) {
			t.Errorf("score after the answer %v is %v, want the estimate again", answer.result().Outcome, time.Duration(got))
		}
	}
	r.Done(second, r.now, Cancelled)
}

func TestAnEndpointThatDidNotAnswerStaysSlowWhenItsRequestHasEnded(t *testing.T) {
	r := one(t)
	r.median(20 * ms)
	r.request("w0", 20*ms, Success)
	latency := func() float64 {
		s, v := r.state("w0"), r.view(r.now)
		latency, _, _, _ := s.parts(&v)
		return float64(latency)
	}
	for range 2 { // a second silence counts as much as the first
		r.request("w0", 2*time.Second, NoAnswer)
		near(t, "when the request has ended", latency(), float64(time.Second), 0.01)
		r.wait(3 * time.Second)
		near(t, "3 s later", latency(), float64(24*ms)+float64(976*ms)*(1-3.0/5), 0.01)
	}
	r.request("w0", 10*ms, NoAnswer)
	if got := latency(); got < float64(300*ms) {
		t.Errorf("a short silence made a bad estimate %v", time.Duration(got))
	}
	for range 10 {
		r.wait(time.Second)
		r.request("w0", 20*ms, Success)
	}
	near(t, "after ten answers", latency(), float64(20*ms), 0.2)

	slow := r.pickFrom("w0")
	r.wait(2 * time.Second)
	r.request("w0", 20*ms, Success) // others are answered meanwhile
	r.Done(slow, r.now, NoAnswer)
	near(t, "after one request of many that ran out of time", latency(), float64(20*ms), 0.2)
}

// Otherwise a busy endpoint, of many samples, stays bad for as long as it averages.
func TestAnswersSoonOutweighASilence(t *testing.T) {
	r := one(t)
	r.median(20 * ms)
	for range 2 * maxWeight {
		r.request("w0", 20*ms, Success)
	}
	r.request("w0", 2*time.Second, NoAnswer)
	near(t, "after the silence", float64(r.stats("w0").Latency), float64(time.Second), 0.01)
	for range 100 { // it answers immediately, with no time to relax
		r.request("w0", 20*ms, Success)
	}
	if got := r.stats("w0").Latency; got > 40*ms {
		t.Errorf("after 2 s of answers in 20 ms the estimate is %v", got)
	}
}

func TestAReportAgesTowardsItsAverage(t *testing.T) {
	r := one(t)
	r.median(time.Second)
	r.state("w0").report.Store(packPair(9, 1))
	r.state("w0").reported.Store(ownReport)
	r.state("w0").reportTick.Store(uint32(r.now.tick()))
	r.state("w0").latency.Store(pack(float32(10*ms), r.now.tick()))
	near(t, "fresh", r.score("w0"), float64(10*ms)*10, 0.01)
	r.wait(100 * ms)
	near(t, "after 100 ms", r.score("w0"), float64(10*ms)*(1+8/math.E+1), 0.01)
	r.wait(10 * time.Second)
	near(t, "after 10 s", r.score("w0"), float64(10*ms)*2, 0.01)
}

func TestReportsFeedAnAverage(t *testing.T) {
	r := one(t)
	r.request("w0", 10*ms, Success.with(4))
	_, average := unpackPair(r.state("w0").report.Load())
	near(t, "first average", float64(average), 4, 0.001)
	r.state("w0").samples.Store(uint32(newEvidence(maxWeight, maxSamples, false)))
	r.wait(time.Hour)
	r.request("w0", 10*ms, Success.with(14))
	last, average := unpackPair(r.state("w0").report.Load())
	near(t, "last", float64(last), 14, 0.001)
	near(t, "average, moved by alpha", float64(average), 4+0.2*10, 0.001)
}

func TestSendsSinceTheReportCountAndFadeWhenIdle(t *testing.T) {
	r := one(t)
	r.median(time.Second)
	r.request("w0", 10*ms, Success.with(0))
	r.requests(10, "w0", 0, Failure) // failures do not clear them
	r.state("w0").success.Store(0)
	near(t, "at once", r.score("w0"), float64(10*ms)*11, 0.01)
	r.wait(10 * time.Second)
	near(t, "after 10 s", r.score("w0"), float64(10*ms)*(1+10/math.E), 0.01)
	r.request("w0", 10*ms, Success.with(0))
	near(t, "after a report", r.score("w0"), float64(10*ms), 0.01)
}

func TestAnEndpointThatNeverReportsCountsAsBusyAsTheMedianOne(t *testing.T) {
	r := one(t)
	r.requests(3, "w0", 10*ms, Success.with(4))
	r.Refresh(r.now)
	r.headroom.Store(0)
	near(t, "idle", r.score("w1"), float64(10*ms)*5, 0.01)
	for range 6 {
		r.pickFrom("w1")
	}
	near(t, "six out", r.score("w1"), float64(10*ms)*7, 0.01)
}

func TestReportsThatCeaseAreForgotten(t *testing.T) {
	r := one(t)
	r.median(time.Second)
	r.request("w0", 10*ms, Success.with(2))
	r.requests(500, "w0", 10*ms, Success)
	if !r.stats("w0").HasReport {
		t.Error("forgotten after 5 s, want 10 s")
	}
	r.requests(600, "w0", 10*ms, Success)
	if r.stats("w0").HasReport {
		t.Error("a report from 11 s ago still counts")
	}
	near(t, "score", r.score("w0"), float64(10*ms), 0.01)
}

func TestTheSuccessAverageFallsByATwentiethAndRelaxesToOne(t *testing.T) {
	r := one(t)
	r.request("w0", 0, Failure)
	near(t, "after one failure", r.stats("w0").SuccessAverage, 0.95, 0.001)
	r.request("w0", 0, Failure)
	near(t, "after two", r.stats("w0").SuccessAverage, 0.95*0.95, 0.001)
	r.request("w0", 0, Success)
	near(t, "after a success", r.stats("w0").SuccessAverage, 0.9025+0.05*0.0975, 0.001)
	r.state("w0").success.Store(pack(0.2, r.now.tick()))
	r.wait(10 * time.Second)
	near(t, "after 10 s", r.stats("w0").SuccessAverage, 1-0.8/math.E, 0.001)
	before := r.stats("w0").SuccessAverage
	r.request("w0", 0, Success)
	if after := r.stats("w0").SuccessAverage; after < before {
		t.Errorf("a success lowered the average from %v to %v", before, after)
	}
}

func TestTheEstimateIsTheMeanOfTheSamplesOfLate(t *testing.T) {
	r := one(t)
	r.request("w0", 100*ms, Success)
	near(t, "first sample", float64(r.stats("w0").Latency), float64(100*ms), 0.001)
	r.request("w0", 200*ms, Success)
	near(t, "second sample weighs 1/2", float64(r.stats("w0").Latency), float64(150*ms), 0.001)
	r.state("w0").samples.Store(uint32(newEvidence(maxWeight, maxSamples, false)))
	r.state("w0").latency.Store(pack(float32(100*ms), r.now.tick()))
	r.wait(time.Minute)
	r.request("w0", 200*ms, Success)
	near(t, "rare samples weigh alpha", float64(r.stats("w0").Latency), float64(120*ms), 0.001)
	// A weight of nine, decayed for 600 ms, and the new sample's of one.
	r.state("w0").samples.Store(uint32(newEvidence(9, maxSamples, false)))
	r.state("w0").latency.Store(pack(float32(100*ms), r.now.tick()))
	r.request("w0", 600*ms, Success)
	want := 100 + 500/(9*math.Exp(-0.1)+1)
	near(t, "frequent samples weigh less", float64(r.stats("w0").Latency), want*float64(ms), 0.005)
	near(t, "weight", float64(r.state("w0").evidence().weight()), 9*math.Exp(-0.1)+1, 0.005)
	r.state("w0").samples.Store(uint32(newEvidence(2, maxSamples, false)))
	r.state("w0").latency.Store(pack(float32(100*ms), r.now.tick()))
	r.request("w0", 200*ms, Success)
	near(t, "no sample weighs more than alpha", float64(r.stats("w0").Latency), float64(120*ms), 0.001)
}

// An endpoint that was slow gets so few requests that each good answer must count.
func TestGoodNewsOfAStaleEndpointCountsFromWhereItHasRelaxedTo(t *testing.T) {
	r := one(t)
	r.median(20 * ms)
	r.requests(5, "w0", 100*ms, Success)
	r.wait(3*time.Second - 10*ms)
	r.request("w0", 10*ms, Success)
	relaxed := 24 + 76*(1-3.0/5)
	near(t, "after a good answer", float64(r.stats("w0").Latency), float64(ms)*(10+relaxed)/2, 0.01)
	r.request("w0", 10*ms, Success)
	near(t, "after a second one", float64(r.stats("w0").Latency), float64(ms)*(10+(10+relaxed)/2*4)/5, 0.01)

	r.requests(5, "w1", 100*ms, Success)
	r.wait(3*time.Second - 200*ms)
	r.request("w1", 200*ms, Success)
	near(t, "after a worse one, which weighs alpha", float64(r.stats("w1").Latency), float64(120*ms), 0.01)
	r.wait(900*ms - 20*ms)
	r.request("w1", 20*ms, Success)
	near(t, "after a good one that comes soon, which weighs alpha too", float64(r.stats("w1").Latency), float64(100*ms), 0.01)
}

func TestOneSamplePerTickCountsAmongMany(t *testing.T) {
	r := one(t)
	for range maxSamples {
		r.request("w0", 10*ms, Success)
	}
	before := r.stats("w0").Latency
	for range 10 {
		p := r.pickFrom("w0")
		p.start = r.now - Instant(30*ms)
		r.Done(p, r.now, Success)
	}
	if got := r.stats("w0").Latency; got != before {
		t.Errorf("samples of one tick moved the estimate from %v to %v", before, got)
	}
	for range 3000 { // 30 ms at 100,000 requests per second, three times as slow
		p := r.pickFrom("w0")
		p.start = r.now - Instant(30*ms)
		r.wait(10 * time.Microsecond)
		r.Done(p, r.now, Success)
	}
	near(t, "after 229 ticks", float64(r.stats("w0").Latency), float64(28*ms), 0.05)
}

func TestFailuresNeverTouchLatencyReportOrSends(t *testing.T) {
	r := one(t)
	r.request("w0", 25*ms, Success.with(5))
	before := r.stats("w0")
	s := r.state("w0")
	mark, report := s.mark.Load(), s.report.Load()
	r.requests(3, "w0", ms, Failure.with(0))
	if after := r.stats("w0"); after.Latency != before.Latency || s.mark.Load() != mark || s.report.Load() != report {
		t.Errorf("failures changed %+v to %+v", before, after)
	}
}

func TestCancelledGivesBackTheCountAndBlamesNoEndpoint(t *testing.T) {
	r := one(t)
	r.request("w0", 25*ms, Success.with(5))
	r.wait(time.Second)
	before := r.stats("w0")
	r.requests(10, "w0", 0, Cancelled.with(0))
	after := r.stats("w0")
	if after.InFlight != 0 {
		t.Errorf("%d in flight after all were cancelled", after.InFlight)
	}
	before.Picks, before.Score, after.Score = before.Picks+10, 0, 0
	if after != before {
		t.Errorf("cancelling changed %+v to %+v", before, after)
	}
}

func TestShedIsALoadSignalAndNoFailure(t *testing.T) {
	r := one(t)
	r.request("w0", 25*ms, Success.with(1))
	r.requests(20, "w0", ms, Shed.with(30))
	got := r.stats("w0")
	if got.Failures != 0 || got.ConsecutiveFailures != 0 || got.SuccessAverage != 1 || got.ErrorRate != 0 || got.State != "active" {
		t.Errorf("shedding counted as failing: %+v", got)
	}
	near(t, "latency", float64(got.Latency), float64(25*ms), 0.001)
	near(t, "reported", got.Reported, 30, 0.001)
}

func TestAShedWithoutAReportPushesAwayForAMoment(t *testing.T) {
	r := one(t)
	before := r.score("w0")
	r.requests(3, "w0", ms, Shed)
	if got := r.score("w0"); got < 5*before {
		t.Errorf("score %v after three sheds, %v before; want at least five times", got, before)
	}
	r.wait(2 * time.Second)
	near(t, "score 2 s later", r.score("w0"), before, 0.001)
	if r.stats("w0").HasReport {
		t.Error("an invented load shows up as a report")
	}
}

func TestAYoungEndpointCostsMoreUntilItsRampEnds(t *testing.T) {
	cfg := DefaultConfig()
	cfg.SlowStart = 6 * time.Second // a setting that is read
	r := newRig(t, cfg)
	r.update(rangeOf(1))
	near(t, "new", r.score("w0"), float64(10*ms)*10, 0.01)
	r.wait(3 * time.Second)
	near(t, "half way", r.score("w0"), float64(10*ms)*2, 0.01)
	r.wait(3 * time.Second)
	near(t, "at the end", r.score("w0"), float64(10*ms), 0.01)
	cfg.SlowStart = 0
	r = newRig(t, cfg)
	r.update(rangeOf(1))
	near(t, "without a ramp", r.score("w0"), float64(10*ms), 0.01)
}

func TestAlphaAndInitialLatencyAreRead(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Alpha, cfg.InitialLatency = 0.5, 70*ms
	r := newRig(t, cfg)
	r.update(rangeOf(2))
	r.settle()
	near(t, "unknown endpoint", r.score("w1"), float64(70*ms), 0.001)
	r.requests(10, "w0", 100*ms, Success)
	r.state("w0").latency.Store(pack(float32(100*ms), r.now.tick()))
	r.wait(time.Minute)
	r.request("w0", 200*ms, Success)
	near(t, "estimate", float64(r.stats("w0").Latency), float64(150*ms), 0.001)
}

// A score of 0 would win every draw.
func TestAnEstimateThatRelaxesToATinyMedianStaysAboveZero(t *testing.T) {
	if got := relaxed(float32(33554436), 1, 1<<30); got < 1 {
		t.Errorf("it relaxes to %v", got)
	}
}

func TestTimeStampsOutliveTheirThirtyTwoBits(t *testing.T) {
	r := one(t)
	r.median(20 * ms)
	r.request("w0", 100*ms, Success.with(9))
	r.state("w0").report.Store(packPair(9, 1))
	r.state("w0").success.Store(pack(0.1, r.now.tick()))
	hung := r.pickFrom("w1")
	for range 30 { // idle for 30 days: the stamps wrapped four times
		r.wait(24 * time.Hour)
		r.Refresh(r.now)
		r.median(20 * ms)
		r.headroom.Store(0)
		near(t, "idle endpoint", r.score("w0"), float64(24*ms)*2, 0.001)
		if got := r.score("w1"); got < float64(5*time.Minute) {
			t.Fatalf("a request out for days scores %v", time.Duration(got))
		}
	}
	r.Done(hung, r.now, Cancelled)
}

func TestAnInstantFromAnotherGoroutineMayBeSlightlyOlder(t *testing.T) {
	r := one(t)
	r.median(20 * ms)
	r.request("w0", 100*ms, Success.with(1))
	r.now -= Instant(50 * ms)
	near(t, "score", r.score("w0"), float64(100*ms)*2, 0.001)
	r.request("w0", -5*ms, Success) // a clock that went back gives no negative latency
	if got := r.stats("w0").Latency; got <= 0 || got > 100*ms {
		t.Errorf("latency is %v", got)
	}
}

func TestTheDecayTableFollowsTheExponential(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float32Range(0, 40).Draw(t, "x")
		if got, want := float64(decay(x*decayStepsPerUnit)), math.Exp(-float64(x)); math.Abs(got-want) > 0.0006 {
			t.Fatalf("decay(%v) = %v, want %v", x, got, want)
		}
	})
}

func TestAStateFillsItsCacheLinesExactly(t *testing.T) {
	if size := reflect.TypeFor[state]().Size(); size != 128 {
		t.Errorf("a state has %d bytes, want 128", size)
	}
}
