package relaypool

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
)

// Some failures are the fault of no peer: a pool that gave up a place for them would move all
// the time, and lose warm connections for nothing.
func TestBackgroundFailuresCostNoPeerItsPlace(t *testing.T) {
	for _, every := range []time.Duration{2 * time.Second, 600 * time.Millisecond, 300 * time.Millisecond, 20 * time.Millisecond} {
		r := newRig(t, config()).update(relays(8))
		rng := rand.New(rand.NewPCG(5, 6))
		requests := 40_000
		for range requests {
			tk := r.request(Request{})
			outcome := selection.Success
			if rng.Float64() < 0.01 {
				outcome = selection.Failure
			}
			r.wait(every)
			r.end(tk, outcome, time.Millisecond)
		}
		lost := 0
		for _, e := range r.events {
			if e.Kind == Evicted && (e.Reason == ErrorRate || e.Reason == ConsecutiveFailures) {
				lost++
			}
		}
		t.Logf("%d places lost in %d requests, one every %v", lost, requests, every)
		if lost > 0 {
			t.Errorf("%d places lost to 1 %% of background failures in %d requests, one every %v", lost, requests, every)
		}
	}
}

func TestFailuresOnAConnectionThatIsGivenUpDoNotCancelTheNextOne(t *testing.T) {
	r := newRig(t, config()).update(relays(2))
	r.wait(time.Minute)
	tk := r.request(Request{Exclude: []string{"r2"}})
	r.Lost(tk.Link, errors.New("goaway"), r.now)
	r.hold = true
	r.wait(time.Second)
	want(t, "connections that are being opened", len(r.opening), 1)
	next := r.opening[0]
	want(t, "peer of the next connection", next.Peer.ID, "r1")
	for range 4 {
		r.Report(tk, selection.Failure, 0, r.now)
	}
	r.step()
	want(t, "connections that are being opened after the failures", r.opening, []opening{next})
	r.finish(next)
	want(t, "role", r.peer("r1").Role, Primary)
}

func TestAnEvictionBeginsWithTheFailureThatIsReportedLast(t *testing.T) {
	r := newRig(t, config()).update(relays(2))
	var tickets []ticket
	for range 4 {
		tickets = append(tickets, r.request(Request{Exclude: []string{"r2"}}))
	}
	r.now = r.now.Add(time.Minute) // without a step: nothing was due
	for _, tk := range tickets {
		r.Report(tk, selection.Failure, 0, r.now)
	}
	want(t, "health", r.peer("r1").Health, Out)
	if until := r.peer("r1").OutUntil; !until.After(r.now) {
		t.Errorf("evicted until %v before the failure", r.now.Sub(until))
	}
}

func TestARequestThatWaitedForAConnectionWhichWasNeverOpenedCountsForNoPeer(t *testing.T) {
	r := newRig(t, config())
	r.hold = true
	r.update(relays(1))
	tk, err := r.Acquire(Request{}, r.now)
	if err != nil {
		t.Fatal(err)
	}
	r.OpenFailed(tk.Link, errRefused, r.now)
	r.Report(tk, selection.Failure, 0, r.now)
	r.Release(tk, r.now)
	want(t, "failures in a row", r.peer("r1").Consecutive, 0)
}
