//go:build unix

package e2e

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/history"
	"github.com/ringway/ringway/internal/procs"
)

// leftFor is how long after the exit of a worker its backend may still get requests.
const leftFor = 2 * time.Second

// rolling holds the processes that are restarted one after the other, and the load.
type rolling struct {
	Relays, Workers bool
	// Attached: the workers do not gossip.
	Attached bool
	// Rate is how many requests a second there are, at most; Requests how many at least.
	Rate, Requests int64
}

func TestARollingRestartLosesNoRequest(t *testing.T) {
	t.Parallel()
	tests := map[string]rolling{
		"of the relays, 200 requests a second":  {Relays: true, Rate: 200, Requests: size(0, 10_000, 20_000)},
		"of the workers, 200 requests a second": {Workers: true, Rate: 200, Requests: size(0, 5_000, 20_000)},
		"of both, 50 requests a second":         {Relays: true, Workers: true, Rate: 50, Requests: size(0, 2_000, 20_000)},
		"of the relays of attached workers":     {Relays: true, Attached: true, Rate: 200, Requests: size(0, 5_000, 20_000)},
		"of attached workers":                   {Workers: true, Attached: true, Rate: 200, Requests: size(0, 5_000, 20_000)},
	}
	if full() {
		tests["of the relays, 50 requests a second"] = rolling{Relays: true, Rate: 50, Requests: 20_000}
		tests["of the workers, 50 requests a second"] = rolling{Workers: true, Rate: 50, Requests: 20_000}
		tests["of both, 200 requests a second"] = rolling{Relays: true, Workers: true, Rate: 200, Requests: 20_000}
	}
	for name, test := range tests {
		t.Run(name, test.run)
	}
}

// Some clients use the relays that report that they are ready, as load balancers do; the
// others go on to the next relay when one refuses a connection, and only then.
func (c rolling) run(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 3, Attached: c.Attached, Services: func(int) []string { return []string{echo} }})
	f.awaitRange(t, 3)

	var ready atomic.Pointer[[]*relay]
	look := func() {
		var now []*relay
		for _, r := range f.relays {
			if _, status := f.ready(r.Admin); status == 200 {
				now = append(now, r)
			}
		}
		if len(now) > 0 {
			ready.Store(&now)
		}
	}
	look()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-tick.C:
				look()
			case <-stop:
				tick.Stop()
				return
			}
		}
	}()
	pause := 2 * loadClients * time.Second / time.Duration(c.Rate)
	loads := []*load{
		f.startLoad(t, loadConfig{Name: "asks-readiness", Service: echo, Pause: pause, Relay: func(n int) *relay {
			relays := *ready.Load()
			return relays[n%len(relays)]
		}}),
		f.startLoad(t, loadConfig{Name: "moves-on", Service: echo, Pause: pause, Retry: true, Relay: func(n int) *relay {
			return f.relays[n%len(f.relays)] // those that are down, too
		}}),
	}
	finished := func() (n int64) {
		for _, l := range loads {
			n += l.finished.Load()
		}
		return n
	}
	restarts := 0
	// Three times what it should take: a slow machine stops early, and fails.
	deadline := time.Now().Add(time.Minute + 3*time.Duration(c.Requests)*time.Second/time.Duration(c.Rate))
	for restarts == 0 || finished() < c.Requests && time.Now().Before(deadline) {
		if c.Relays {
			for _, r := range f.relays {
				for _, l := range loads {
					l.more(t, 50)
				}
				r.Process = restart(t, r.Process)
				procs.Await(t, r.ID+" is ready again", func() bool { _, status := f.ready(r.Admin); return status == 200 })
				restarts++
			}
		}
		if c.Workers {
			for _, w := range f.workers {
				for _, l := range loads {
					l.more(t, 50)
				}
				stopInOrder(t, w.Process)
				out := time.Now()
				// Its backend runs on: it would answer what a relay still sends.
				for time.Since(out) < 3*leftFor/2 {
					for _, l := range loads {
						l.more(t, 10)
					}
				}
				f.outages = append(f.outages, history.Entry{Kind: history.Down, Endpoint: w.ID, At: out}, history.Entry{Kind: history.Up, Endpoint: w.ID, At: time.Now()})
				w.Process = start(t, w.Process.Config)
				procs.Await(t, w.ID+" is offered again", func() bool { return f.sees(w.ID, true) })
				restarts++
			}
		}
	}
	if n := finished(); n < c.Requests {
		t.Errorf("%d requests, want %d", n, c.Requests)
	}
	for _, l := range loads {
		l.more(t, 50)
		results := l.stop()
		noneFailed(t, results)
		f.judge(t, results)
	}
	t.Logf("%d restarts", restarts)
	close(stop)
	<-stopped
}

// restart ends a process as an operator does and starts it again.
func restart(t *testing.T, old *process) *process {
	t.Helper()
	stopInOrder(t, old)
	return start(t, old.Config)
}

func stopInOrder(t *testing.T, p *process) {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	if code := p.Exit(t); code != 0 {
		t.Errorf("%s exited with %d", p.Name(), code)
	}
}

// TestNoRestartOfARelayAnswersWithAnUnknownService restarts one relay again and again
// under requests that ask only that relay.
func TestNoRestartOfARelayAnswersWithAnUnknownService(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 3, Services: func(int) []string { return []string{echo} }})
	r := f.relays[1]
	procs.Await(t, r.ID+" serves", func() bool { return f.call(r, echo).status == 200 })
	var mu sync.Mutex
	by := map[string]int{}
	count := func(got result) { // an hour of them is not kept
		mu.Lock()
		defer mu.Unlock()
		if got.err != nil { // it was down
			by["refused"]++
			return
		}
		by[fmt.Sprint(got.status, " ", got.failure().Code)]++
		if got.status == 404 {
			t.Errorf("%v", got)
		}
	}
	l := f.startLoad(t, loadConfig{Name: "one", Service: echo, Pause: 2 * time.Millisecond, Relay: func(int) *relay { return r }, Count: count})
	restarts := size(3, 15, 1_000)
	for range restarts {
		l.more(t, 20)
		r.Process = restart(t, r.Process)
		procs.Await(t, r.ID+" is ready again", func() bool { _, status := f.ready(r.Admin); return status == 200 })
	}
	l.more(t, 20)
	l.stop()
	t.Logf("%d restarts: %v", restarts, by)
}
