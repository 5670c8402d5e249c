//go:build unix

package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// attachedTo returns the relays that a worker has sessions with, as the worker reports.
func (f *fleet) attachedTo(w *worker) (ids []string) {
	for _, id := range f.IDs(w.Member) {
		if id != w.ID {
			ids = append(ids, id)
		}
	}
	return ids
}

// listing returns on how many relays that run a worker has a session.
func (f *fleet) listing(t *testing.T) (sessions int) {
	for _, r := range f.running() {
		sessions += int(f.metric(t, r, "ringway_session_held"))
	}
	return sessions
}

// attached waits until every worker has its sessions, and every relay sends to all.
func (f *fleet) attached(t *testing.T, workers, each int) {
	t.Helper()
	f.awaitRange(t, workers)
	procs.Await(t, fmt.Sprintf("%d sessions of each of %d workers", each, workers), func() bool { return f.listing(t) == each*workers })
}

func secured(secure bool) string {
	if secure {
		return "with certificates"
	}
	return "in clear text"
}

// An attached worker has its first session with r1, and its row has three of the five relays. All
// five send it requests, list it, and explain it.
func TestAnAttachedWorkerIsReachedThroughEveryRelay(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		t.Run(secured(secure), func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, fleetConfig{Relays: 5, Workers: 2, Secure: secure, Attached: true, Services: func(int) []string { return []string{echo} }})
			for _, r := range f.relays {
				procs.Await(t, r.ID+" knows both workers", func() bool {
					_, status := f.ready(r.Admin)
					return status == 200 && f.metric(t, r, "ringway_advertise_endpoints") == 2
				})
			}
			procs.Await(t, "three sessions of each worker", func() bool { return f.listing(t) == 6 })
			other := 0
			for _, r := range f.relays {
				for range 20 {
					if a := f.call(r, echo); a.err != nil || a.status != 200 {
						t.Errorf("through %s: %v", r.ID, a)
					}
				}
				for _, w := range f.workers {
					if !slices.Contains(f.attachedTo(w), r.ID) {
						other++
					}
				}
				var members struct {
					Members []struct {
						ID       string
						Attached bool
					}
				}
				f.Get(r.Member, "/api/v1/members", &members)
				listed := 0
				for _, m := range members.Members {
					if m.Attached == strings.HasPrefix(m.ID, "w") {
						listed++
					}
				}
				if listed != 7 {
					t.Errorf("%s lists %+v", r.ID, members.Members)
				}
			}
			if other != 4 {
				t.Errorf("%d pairs of worker and relay without a session, want 4", other)
			}
			f.wellOnly(t, f.relays[0])
			for _, w := range f.workers {
				if text := w.Output(); strings.Contains(text, "gossip started") {
					t.Errorf("%s gossips:\n%s", w.ID, text)
				}
			}
		})
	}
}

// It runs alone, before the tests that run in parallel: it holds a time. That is the best of three,
// because the machine may stall.
func TestAnAttachedWorkerThatIsKilledIsGoneEverywhereWithinASecond(t *testing.T) {
	f := startFleet(t, fleetConfig{Relays: 5, Workers: 4, Secure: true, Attached: true, Services: func(int) []string { return []string{echo} }})
	for _, w := range f.workers {
		procs.Await(t, "every relay sees "+w.ID, func() bool { return f.sees(w.ID, true) })
	}
	procs.Await(t, "three sessions of each worker", func() bool { return f.listing(t) == 12 })
	var times []time.Duration
	for i, w := range f.workers[:3] {
		w.Kill()
		killed := time.Now()
		// A defect waits for the silence of its sessions, ten seconds.
		procs.AwaitFor(t, 5*time.Second, w.ID+" is gone everywhere", func() bool { return f.sees(w.ID, false) })
		times = append(times, time.Since(killed))
		for _, other := range f.workers[i+1:] {
			if !f.sees(other.ID, true) {
				t.Errorf("%s is gone as well", other.ID)
			}
		}
	}
	t.Logf("gone after %v", times)
	if slices.Min(times) > time.Second {
		t.Errorf("gone after %v, want 1 s at most", times)
	}
}

// A process that is stopped keeps its sockets open, and the kernel answers for it.
//
// It runs alone, before the tests that run in parallel: it holds a time. That is the median of three,
// because the machine may stall.
func TestAnAttachedWorkerThatIsSilentIsGoneWithinTwelveSeconds(t *testing.T) {
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 4, Secure: true, Attached: true, Services: func(int) []string { return []string{echo} }})
	f.attached(t, 4, 3)
	stopped, silent := f.workers[:3], map[string]time.Time{}
	for _, w := range stopped {
		w.Signal(t, syscall.SIGSTOP)
		silent[w.ID] = time.Now()
		time.Sleep(time.Second) // one stall of the machine must not delay the ends of all three
	}
	var times []time.Duration
	procs.AwaitFor(t, 20*time.Second, "all three are gone everywhere", func() bool {
		for id, since := range silent {
			if f.sees(id, false) {
				times = append(times, time.Since(since))
				delete(silent, id)
			}
		}
		return len(silent) == 0
	})
	t.Logf("gone after %v", times)
	if slices.Sort(times); times[len(times)/2] > 12*time.Second {
		t.Errorf("gone after %v, want 12 s at most", times)
	}
	for _, w := range stopped {
		w.Signal(t, syscall.SIGCONT)
		procs.Await(t, w.ID+" is back", func() bool { return f.sees(w.ID, true) })
	}
}

// Each worker has sessions with three of five relays, so one that dies takes some sessions with it,
// and no worker.
//
// It runs alone, before the tests that run in parallel: it holds a time. That is the better of two,
// because the machine may stall.
func TestARelayThatDiesTakesNoAttachedWorkerWithIt(t *testing.T) {
	f := startFleet(t, fleetConfig{Relays: 5, Workers: 4, Secure: true, Attached: true, Services: func(int) []string { return []string{echo} }})
	for _, w := range []string{"w1", "w2", "w3", "w4"} {
		procs.Await(t, "every relay sees "+w, func() bool { return f.sees(w, true) })
	}
	procs.Await(t, "three sessions of each worker", func() bool { return f.listing(t) == 12 })
	held := func(r *relay) float64 { return f.metric(t, r, "ringway_session_held") }
	var times []time.Duration    // until the sessions of a relay that dies have been replaced
	for dies := f.relays[0]; ; { // the one that all were given
		had := held(dies)
		took := f.replaced(t, dies)
		t.Logf("%v sessions of %s are replaced after %v", had, dies.ID, took)
		if had > 0 {
			times = append(times, took)
		}
		if dies != f.relays[0] {
			break
		}
		procs.Await(t, "the others know that it is dead", func() bool { return f.sees(dies.ID, false) })
		dies = slices.MaxFunc(f.running(), func(a, b *relay) int { return cmp.Compare(held(a), held(b)) })
	}
	if len(times) == 0 || slices.Min(times) > 2*time.Second {
		t.Errorf("three sessions each again after %v, want 2 s at most", times)
	}
}

// replaced kills a relay, and returns the time until four workers have three sessions each again. No
// other relay loses a worker meanwhile.
func (f *fleet) replaced(t *testing.T, dies *relay) time.Duration {
	t.Helper()
	dies.Kill()
	killed := time.Now()
	procs.AwaitFor(t, time.Minute, "three sessions of each worker without "+dies.ID, func() bool {
		for _, w := range f.workers {
			if !f.sees(w.ID, true) {
				t.Fatalf("%v after the end of a relay not all others see %s", time.Since(killed), w.ID)
			}
		}
		return f.listing(t) == 3*len(f.workers)
	})
	return time.Since(killed)
}

// A worker that stops drains first: relays send it nothing, then it is gone, as one that left.
func TestAnAttachedWorkerThatStopsFailsNoRequest(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 3, Secure: true, Attached: true, Services: func(int) []string { return []string{echo} }})
	f.attached(t, 3, 3)
	l := f.startLoad(t, loadConfig{Name: "drain", Service: echo, Relay: f.roundRobin})
	l.more(t, 100)
	w := f.workers[0]
	w.Signal(t, syscall.SIGTERM)
	if code := w.Exit(t); code != 0 {
		t.Errorf("it exited with %d", code)
	}
	procs.Await(t, "w1 is gone", func() bool { return f.sees("w1", false) })
	l.more(t, 100)
	results := l.stop()
	noneFailed(t, results)
	f.judge(t, results)
	for _, r := range f.relays {
		if memberFailed(r, "w1") {
			t.Errorf("%s says that w1 failed", r.ID)
		}
	}
}
