package selection

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTakeBeginsARequestOnTheNamedEndpointInAnyState(t *testing.T) {
	r := fleet(t, 5, DefaultConfig())
	r.requests(4, "w0", 0, Failure)
	for i, want := range []State{Evicted, HalfOpen, Active} {
		if got := r.stats("w0").State; got != want {
			t.Fatalf("step %d: %s, want %s", i, got, want)
		}
		p, err := r.Take("w0", r.now)
		if err != nil || p.ID() != "w0" || p.Value() != 0 {
			t.Fatalf("%s: took %+v, %v", want, p, err)
		}
		if got := r.stats("w0").InFlight; got != 1 {
			t.Errorf("%s: %d in flight", want, got)
		}
		r.wait(25 * ms)
		r.Done(p, r.now, Success) // of a half-open endpoint this is the try that brings it back
		if want == "evicted" {
			if got := r.stats("w0").State; got != "evicted" {
				t.Errorf("a taken request readmitted it before its time: %s", got)
			}
			r.wait(30 * time.Second)
			r.Refresh(r.now)
		}
	}
}

func TestTheErrorOfTakeForAnUnknownEndpointNamesTheRemedy(t *testing.T) {
	r := fleet(t, 2, DefaultConfig())
	r.update(rangeOf(1))
	_, err := r.Take("w1", r.now)
	if !errors.Is(err, ErrNoEndpoint) || !strings.Contains(err.Error(), `"w1" is not in the range`) {
		t.Errorf("error is %v", err)
	}
	if _, err := r.Take("w0", r.now); err != nil {
		t.Error(err)
	}
}

func TestLoadIsTheReportWhileItIsFreshElseOurOwnRequests(t *testing.T) {
	r := one(t)
	check := func(when string, want float64, wantSampled bool) {
		t.Helper()
		if got, sampled := r.Load("w0", r.now); got != want || sampled != wantSampled {
			t.Errorf("%s: %v, sampled %v; want %v, %v", when, got, sampled, want, wantSampled)
		}
	}
	check("at first", 0, false)
	p := r.pickFrom("w0")
	check("one out", 1, false)
	r.Done(p, r.now, Success.with(40))
	check("after a report", 40, true)
	p = r.pickFrom("w0")
	check("and one more sent", 41, true)
	r.wait(9 * time.Second)
	if got, sampled := r.Load("w0", r.now); got < 40 || !sampled {
		t.Errorf("after 9 s: %v, sampled %v", got, sampled)
	}
	r.wait(2 * time.Second)
	check("after 11 s", 1, false)
	r.Done(p, r.now, Cancelled)
	if got, sampled := r.Load("stranger", r.now); got != 0 || sampled {
		t.Errorf("a stranger has a load of %v", got)
	}
}

func TestTakeAndLoadDoNotAllocate(t *testing.T) {
	r := fleet(t, 50, DefaultConfig())
	if n := testing.AllocsPerRun(1000, func() {
		p, err := r.Take("w7", r.now)
		if err != nil {
			t.Error(err)
		}
		r.Load("w7", r.now)
		r.Balancer.Done(p, r.now, Success.with(1))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
