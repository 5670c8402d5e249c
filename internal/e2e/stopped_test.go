//go:build unix

package e2e

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// A process that is stopped accepts connections and never answers: what looks alive from
// outside and is not. A GET goes elsewhere when the time for an attempt is over.
func TestAWorkerThatHangsFailsNoGET(t *testing.T) {
	t.Parallel()
	const attempt, spare = 2 * time.Second, 6 * time.Second
	for name, test := range map[string]struct {
		secure bool
		hangs  func(*worker) *process
	}{
		"its service, in clear text":    {false, func(w *worker) *process { return w.backend }},
		"its service, behind a sidecar": {true, func(w *worker) *process { return w.backend }},
		"its agent":                     {true, func(w *worker) *process { return w.Process }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, fleetConfig{Relays: 2, Workers: 4, Secure: test.secure,
				RelayArgs: []string{"--attempt-timeout", attempt.String()},
				Services:  func(int) []string { return []string{echo} }})
			f.awaitRange(t, 4)
			l := f.startLoad(t, loadConfig{Name: "gets", Service: echo, GETs: true, Relay: f.roundRobin})
			l.more(t, 100)
			stopped := test.hangs(f.workers[0])
			stopped.Signal(t, syscall.SIGSTOP)
			for range size(2, 8, 20) {
				l.more(t, 500)
			}
			stopped.Signal(t, syscall.SIGCONT)
			l.more(t, 100)
			results := l.stop()
			noneFailed(t, results)
			f.judge(t, results)
			var slowest time.Duration
			for _, r := range results {
				slowest = max(slowest, r.took)
			}
			if slowest > attempt+spare {
				t.Errorf("the slowest took %v, an attempt may take %v", slowest, attempt)
			}
			t.Logf("the slowest took %v", slowest)
		})
	}
}

// A burst of new connections reaches a relay without connections to its workers, or the relay to
// which another one forwards.
func TestABurstOfNewConnectionsAndAPauseOfTheRelayFailNoRequest(t *testing.T) {
	if !long() {
		t.Skip("needs a machine of its own: make test-long")
	}
	const burst = 3000
	var f *fleet
	var r *relay
	for _, at := range []struct {
		entry  int
		relays int
		args   []string
	}{{1, 2, servedBy("r1", 2, echo)}, {0, 1, nil}} {
		f = startFleet(t, fleetConfig{Relays: at.relays, Workers: 3, Secure: true, Plain: true, RelayArgs: at.args,
			Services: func(int) []string { return []string{echo} }})
		r = f.relays[at.entry]
		f.serves(t, r, echo)
		procs.Await(t, "three workers", func() bool {
			var v serviceView
			return f.api(r.Admin, "/api/v1/services/"+echo, &v) == 200 && v.Endpoints == 3
		})
		c := gather(t, r.Ingress, burst, echo, "/")
		// All are served where the machine is idle. One that is too slow for them refuses
		// some, and fails none.
		got := c.answers()
		t.Logf("%d relays, answers: %v", at.relays, got)
		if got["200"]+got["503 overloaded"] != burst || got["200"] < burst/2 {
			t.Errorf("answers: %v, want %d times 200", got, burst)
		}
		c.leave()
	}

	l := f.startLoad(t, loadConfig{Name: "pause", Service: echo, GETs: true, Pause: 20 * time.Millisecond, Relay: func(int) *relay { return r }})
	l.more(t, 100)
	r.Signal(t, syscall.SIGSTOP)
	time.Sleep(20 * time.Second) // the pause itself
	r.Signal(t, syscall.SIGCONT)
	time.Sleep(3 * time.Second) // what it may take
	// One stall of the machine delays all clients, but not the requests of three windows.
	var begins []time.Time
	for range 3 {
		begins = append(begins, time.Now())
		l.more(t, 300)
	}
	results := l.stop()
	noneFailed(t, results)
	usual := took(results[:100], 0.9)
	var windows []time.Duration
	for i, begin := range begins {
		windows = append(windows, took(slices.DeleteFunc(slices.Clone(results), func(r result) bool {
			return r.began.Before(begin) || i+1 < len(begins) && !r.began.Before(begins[i+1])
		}), 0.9))
	}
	t.Logf("nine of ten took up to %v before the pause, up to %v in the windows from three seconds after it on", usual, windows)
	if slices.Min(windows) > max(5*usual, 500*time.Millisecond) {
		t.Errorf("from three seconds after the pause on nine of ten requests took up to %v, before it %v", windows, usual)
	}
}
