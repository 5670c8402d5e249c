//go:build unix

package e2e

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Some clients use the relays that say that they are ready, as load balancers do; the
// others go on to the next relay when one refuses a connection, and only then.
func TestARollingRestartOfTheRelaysLosesNoRequest(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 3, Services: func(int) []string { return []string{echo} }})
	for _, r := range f.relays {
		await(t, r.id+" is ready and sees three workers", func() bool {
			var v serviceView
			_, status := f.ready(r.admin)
			return status == 200 && f.api(r.admin, "/api/v1/services/"+echo, &v) == 200 && v.Endpoints == 3
		})
	}

	var ready atomic.Pointer[[]*relay]
	look := func() {
		var now []*relay
		for _, r := range f.relays {
			if _, status := f.ready(r.admin); status == 200 {
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
	const pause = 40 * time.Millisecond
	loads := []*load{
		f.startLoad(t, loadConfig{Name: "asks-readiness", Service: echo, Pause: pause, Relay: func(n int) *relay {
			relays := *ready.Load()
			return relays[n%len(relays)]
		}}),
		f.startLoad(t, loadConfig{Name: "moves-on", Service: echo, Pause: pause, Retry: true, Relay: func(n int) *relay {
			return f.relays[n%len(f.relays)] // those that are down, too
		}}),
	}
	for _, r := range f.relays {
		for _, l := range loads {
			l.more(t, 50)
		}
		old := r.process
		old.Signal(t, syscall.SIGTERM)
		if code := old.Exit(t); code != 0 {
			t.Errorf("%s exited with %d", r.id, code)
		}
		again := start(t, old.Config)
		await(t, r.id+" is ready again", func() bool { _, status := f.ready(r.admin); return status == 200 })
		r.process = again
	}
	for _, l := range loads {
		l.more(t, 50)
		results := l.stop()
		noneFailed(t, results)
		f.noPostTwice(t, results)
	}
	close(stop)
	<-stopped
}
