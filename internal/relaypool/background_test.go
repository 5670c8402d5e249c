package relaypool

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/outlier"
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
		lost := r.lostForFailures()
		t.Logf("%d places lost in %d requests, one every %v", lost, requests, every)
		if lost > 0 {
			t.Errorf("%d places lost to 1 %% of background failures in %d requests, one every %v", lost, requests, every)
		}
	}
}

// lostForFailures returns how many peers were evicted for failures.
func (r *rig) lostForFailures() (n int) {
	for _, e := range r.events {
		if e.Kind == Evicted && (e.Reason == ErrorRate || e.Reason == ConsecutiveFailures) {
			n++
		}
	}
	return n
}

// The failures of a moment are a small share of the requests of a good minute.
func TestNoPeerIsEvictedWhenAllBeginToFailTogether(t *testing.T) {
	for _, every := range []time.Duration{300 * time.Millisecond, 20 * time.Millisecond, time.Millisecond} {
		for _, primaries := range []int{2, 3, 5} {
			cfg := config()
			cfg.Primaries = primaries
			r := newRig(t, cfg).update(relays(8))
			r.traffic(int(time.Minute/every), func(string) (selection.Outcome, time.Duration) { return selection.Success, every })
			r.traffic(int(10*time.Second/every), func(string) (selection.Outcome, time.Duration) { return selection.Failure, every })
			if n := r.lostForFailures(); n > 0 {
				t.Errorf("%d primaries, a request every %v: %d places lost when all began to fail", primaries, every, n)
			}
		}
	}
}

// Peers that fail together must not excuse each other while another answers.
func TestTwoOfThreePrimariesThatFailAreEvictedAfterAFewFailures(t *testing.T) {
	for _, every := range []time.Duration{300 * time.Millisecond, 20 * time.Millisecond, time.Millisecond} {
		for _, warm := range []bool{false, true} {
			r := newRig(t, config()).update(relays(8))
			if warm {
				r.traffic(int(time.Minute/every), func(string) (selection.Outcome, time.Duration) { return selection.Success, every })
			}
			bad := r.status().Primaries[:2]
			failures := 0
			for i := 0; i < 1000 && r.lostForFailures() < 2; i++ {
				r.traffic(1, func(id string) (selection.Outcome, time.Duration) {
					if slices.Contains(bad, id) {
						failures++
						return selection.Failure, every
					}
					return selection.Success, every
				})
			}
			if n := r.lostForFailures(); n != 2 || failures > 10 {
				t.Errorf("a request every %v, warm %t: %d evicted after %d failures", every, warm, n, failures)
			}
		}
	}
}

// Of few requests nothing is sure, and another peer is connected.
func TestAPeerIsComparedWithThePlainShareOfOthersThatHadFewRequests(t *testing.T) {
	for _, c := range []struct {
		name               string
		failures, requests float64 // of another peer
		want               Reason
	}{
		{"no request", 0, 0, ErrorRate},
		{"few requests, which were answered", 0, 19, ErrorRate},
		{"few requests, a third as many failures", 1.9, 19, ErrorRate},
		{"few requests, half as many failures", 2.9, 19, ""},
		{"requests enough, too few to be sure", 0, 20, ""},
		{"many requests, which were answered", 0, 1000, ErrorRate},
	} {
		r := newRig(t, config()).update(relays(2))
		r.peers["r1"].health = health{counts: outlier.Count{Failures: 30, Requests: 100}, countedAt: r.now}
		r.peers["r2"].health = health{counts: outlier.Count{Failures: c.failures, Requests: c.requests}, countedAt: r.now}
		got, _ := r.failing(r.peers["r1"].member)
		want(t, c.name, got, c.want)
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
