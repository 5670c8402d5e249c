package selection

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTheHeadOfAnAnswerIsLearntFromAndTheRequestStaysInFlight(t *testing.T) {
	r := one(t)
	r.median(time.Second)
	p := r.pickFrom("w0")
	r.wait(20 * ms)
	p = r.Answered(p, r.now, Success.with(3))
	got := r.stats("w0")
	near(t, "latency", float64(got.Latency), float64(20*ms), 0.001)
	if !got.HasReport || got.Reported != 3 || got.InFlight != 1 || got.ErrorRate != 0 {
		t.Errorf("after the head: %+v", got)
	}
	near(t, "score with the answer still coming", r.score("w0"), float64(20*ms)*5, 0.01)
	r.wait(time.Hour)
	r.Done(p, r.now, Success.with(9))
	after := r.stats("w0")
	if after.InFlight != 0 {
		t.Errorf("%d in flight after the end", after.InFlight)
	}
	after.InFlight, after.Score, got.Score = got.InFlight, 0, 0
	if after != got {
		t.Errorf("the end of a good body changed\n%+v to\n%+v", got, after)
	}
}

func TestEveryOutcomeOfAHeadCountsAsIfItHadEndedThere(t *testing.T) {
	for _, o := range []ended{Success, Success.with(7), Failure, Shed, Shed.with(7), Cancelled} {
		atHead, atEnd := one(t), one(t)
		for _, r := range []*rig{atHead, atEnd} {
			r.requests(3, "w0", 10*ms, Success.with(1))
		}
		p, q := atHead.pickFrom("w0"), atEnd.pickFrom("w0")
		atHead.wait(30 * ms)
		atEnd.wait(30 * ms)
		p = atHead.Answered(p, atHead.now, o)
		p = atHead.Answered(p, atHead.now, o) // a second time it has no effect
		if got := atHead.stats("w0").InFlight; got != 1 {
			t.Errorf("%v: %d in flight while the answer comes", o.result().Outcome, got)
		}
		atHead.Done(p, atHead.now, Cancelled)
		atEnd.Done(q, atEnd.now, o)
		if a, b := atHead.stats("w0"), atEnd.stats("w0"); a != b && o.result().Outcome != Shed {
			t.Errorf("%v: learnt\n%+v at the head,\n%+v at the end", o.result().Outcome, a, b)
		} else if a.Score < b.Score { // what a shed without a report invents counts the request itself
			t.Errorf("%v: score %v at the head, %v at the end", o.result().Outcome, a.Score, b.Score)
		}
	}
}

func TestABodyThatBreaksOffIsAFailure(t *testing.T) {
	r := fleet(t, 10, DefaultConfig())
	before := r.stats("w0")
	p := r.Answered(r.pickFrom("w0"), r.now, Success)
	r.Done(p, r.now, Failure)
	got := r.stats("w0")
	if got.Failures != before.Failures+1 || got.ConsecutiveFailures != 1 || got.SuccessAverage >= 1 || got.InFlight != 0 {
		t.Errorf("after a broken body: %+v", got)
	}
	r.othersAnswer(5)
	for range 40 { // every head is fine, every body breaks
		r.Done(r.Answered(r.pickFrom("w0"), r.now, Success), r.now, Failure)
	}
	if got := r.stats("w0").State; got != "evicted" {
		t.Errorf("%s though every body breaks", got)
	}
}

func TestLongStreamsAreNoSilence(t *testing.T) {
	r := one(t)
	r.median(20 * ms)
	r.request("w0", 20*ms, Success)
	var streams []Pick[any]
	for range 3 {
		p := r.pickFrom("w0")
		r.wait(20 * ms)
		streams = append(streams, r.Answered(p, r.now, Success))
	}
	r.wait(time.Hour)
	r.Refresh(r.now)
	r.headroom.Store(0)
	near(t, "three streams, an hour later", r.score("w0"), float64(20*ms)*4, 0.02)
	waiting := r.pickFrom("w0")
	near(t, "a request next to them", r.score("w0"), float64(20*ms)*5, 0.02)
	r.wait(2 * time.Second)
	near(t, "which waits for 2 s", r.score("w0"), float64(time.Second)*5, 0.02)
	r.Done(streams[0], r.now, Success)
	near(t, "the end of a stream does not help it", r.score("w0"), float64(time.Second)*4, 0.02)
	r.Done(waiting, r.now, Cancelled)
	near(t, "it gave up", r.score("w0"), float64(20*ms)*3, 0.02)
	for _, p := range streams[1:] {
		r.Done(p, r.now, Cancelled)
	}
	near(t, "all have ended", r.score("w0"), float64(20*ms), 0.02)
}

func TestTheHeadDecidesAboutAHalfOpenEndpoint(t *testing.T) {
	for o, want := range map[Outcome]State{Success: Active, Failure: Evicted, Shed: HalfOpen} {
		r := fleet(t, 5, DefaultConfig())
		r.requests(4, "w0", 0, Failure)
		r.evictedFor()
		p := r.Answered(r.pickFrom("w0"), r.now, o)
		if got := r.stats("w0").State; got != want {
			t.Errorf("%s after a head of %v, want %s", got, o, want)
		}
		if free := r.state("w0").probing.Load() == 0; !free {
			t.Errorf("the place of the one request is still taken after a head of %v", o)
		}
		r.Done(p, r.now, Success)
		if got := r.stats("w0").State; got != want {
			t.Errorf("%s after the body, want %s", got, want)
		}
	}
}

func TestABodyOfATryThatProvedNothingDoesNotEndTheNextTry(t *testing.T) {
	r := fleet(t, 5, DefaultConfig())
	r.requests(4, "w0", 0, Failure)
	r.evictedFor()
	first := r.Answered(r.pickFrom("w0"), r.now, Shed)
	second := r.pickFrom("w0")
	r.Done(first, r.now, Failure)
	if got := r.stats("w0").State; got != "half_open" || r.state("w0").probing.Load() == 0 {
		t.Errorf("%s, and the place of the second try is free", got)
	}
	r.Done(second, r.now, Success)
	if got := r.stats("w0").State; got != "active" {
		t.Errorf("%s after the second try succeeded", got)
	}
}

func TestAnsweredDoesNotAllocate(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(50))
	r.rand = nil
	if n := testing.AllocsPerRun(2000, func() {
		p, err := r.Pick(r.now, nil)
		if err != nil {
			t.Error(err)
		}
		r.now += Instant(ms)
		p = r.Balancer.Answered(p, r.now, Success.with(2))
		r.Balancer.Done(p, r.now, Failure.result())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever the order of heads and ends, the balancer knows how many requests are
// out, and how many of them wait.
func TestTheBooksOfHeadsAndEndsAreAlwaysRight(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, DefaultConfig())
		r.update(rangeOf(1))
		r.settle()
		var waiting, answered []Pick[any]
		take := func(rt *rapid.T, list *[]Pick[any]) Pick[any] {
			if len(*list) == 0 {
				rt.Skip()
			}
			i := rapid.IntRange(0, len(*list)-1).Draw(rt, "ticket")
			p := (*list)[i]
			*list = append((*list)[:i], (*list)[i+1:]...)
			return p
		}
		outcome := rapid.SampledFrom([]ended{Success, Failure, Shed})
		rt.Repeat(map[string]func(*rapid.T){
			"begin": func(*rapid.T) { waiting = append(waiting, r.pickFrom("w0")) },
			"head": func(rt *rapid.T) {
				answered = append(answered, r.Answered(take(rt, &waiting), r.now, outcome.Draw(rt, "head")))
			},
			"end without head": func(rt *rapid.T) { r.Done(take(rt, &waiting), r.now, outcome.Draw(rt, "end")) },
			"end":              func(rt *rapid.T) { r.Done(take(rt, &answered), r.now, outcome.Draw(rt, "end")) },
			"wait":             func(*rapid.T) { r.wait(time.Second) },
			"": func(rt *rapid.T) {
				s := r.state("w0")
				if got, want := int(s.outstanding()), len(waiting)+len(answered); got != want {
					rt.Fatalf("%d in flight, want %d", got, want)
				}
				if got, want := int(s.streaming.Load()), len(answered); got != want {
					rt.Fatalf("%d being answered, want %d", got, want)
				}
			},
		})
	})
}

func TestARequestThatWaitsForItsClientDoesNotWaitForTheEndpoint(t *testing.T) {
	r := fleet(t, 5, DefaultConfig())
	silent := func(want time.Duration) {
		t.Helper()
		if got := r.Silence("w0", r.now); got > want || got < want-ms {
			t.Errorf("silent for %v, want %v", got, want)
		}
	}
	awaits := func(p Pick[any], n int8) { r.Balancer.Answered(p, r.now, Result{AwaitsBody: n}) }
	upload := r.pickFrom("w0")
	awaits(upload, 1)
	r.wait(time.Second)
	silent(0)
	other := r.pickFrom("w0")
	r.wait(time.Second)
	silent(time.Second) // of the other
	awaits(upload, -1)
	silent(time.Second)
	awaits(upload, 1)
	r.Done(upload, r.now, Result{Outcome: NoAnswer, AwaitsBody: -1})
	silent(time.Second)
	r.Done(other, r.now, Success)
	silent(0)

	upload = r.pickFrom("w0")
	awaits(upload, 1)
	r.wait(time.Second)
	awaits(upload, -1)
	silent(0)
	r.wait(time.Second)
	silent(time.Second) // since the body is whole
	awaits(upload, 1)
	upload = r.Answered(upload, r.now, Result{Outcome: Shed, AwaitsBody: -1})
	r.wait(time.Second)
	silent(0)
	r.Done(upload, r.now, Success)
	if n := r.state("w0").streaming.Load(); n != 0 {
		t.Errorf("%d requests wait for their clients, with none in flight", n)
	}
}

func TestTheTimeOfTheClientIsNoLatency(t *testing.T) {
	r := fleet(t, 5, DefaultConfig())
	r.request("w0", 20*ms, Success)
	before := r.stats("w0").Latency
	r.request("w0", time.Minute+20*ms, Result{Outcome: Success, Client: time.Minute})
	r.request("w0", time.Second, Result{Outcome: Success, Client: time.Hour}) // clocks differ
	if got := r.stats("w0").Latency; got > before || got <= 0 {
		t.Errorf("%v, before %v", got, before)
	}
}

func TestFailuresAfterTheirHeadsAreInARow(t *testing.T) {
	r := fleet(t, 5, DefaultConfig())
	row := func(want uint32) {
		t.Helper()
		if got := r.state("w0").consecutive.Load(); got != want {
			t.Errorf("%d failures in a row, want %d", got, want)
		}
	}
	call := func(length time.Duration, end Outcome) {
		p := r.Answered(r.pickFrom("w0"), r.now, Success)
		r.wait(length)
		r.Done(p, r.now, end)
	}
	call(ms, Failure)
	call(ms, Failure)
	row(2)
	first := r.Answered(r.pickFrom("w0"), r.now, Success)
	second := r.Answered(r.pickFrom("w0"), r.now, Success)
	r.Done(second, r.now, Failure)
	r.Done(first, r.now, Failure)
	row(4)
	call(ms, Cancelled)
	row(0)
	call(ms, Failure)
	call(time.Minute, Failure) // its head was long ago
	row(1)
}
