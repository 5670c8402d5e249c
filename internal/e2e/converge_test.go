//go:build unix

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// TestThirtySecuredProcessesConvergeWithin15Seconds runs alone, before the tests
// that run in parallel: it is the one with a deadline. A fleet has three tries, because
// the machine may stall.
func TestThirtySecuredProcessesConvergeWithin15Seconds(t *testing.T) {
	for try := range 3 {
		inTime := false
		t.Run(fmt.Sprint("try ", try+1), func(t *testing.T) { inTime = converges(t, 6, 24, 15*time.Second) })
		if inTime || t.Failed() {
			return
		}
	}
	t.Error("no fleet of three has converged in time")
}

// converges starts a fleet and reports whether it converges within a bound.
func converges(t *testing.T, relays, workers int, bound time.Duration) bool {
	t.Helper()
	f := startFleet(t, fleetConfig{Relays: relays, Workers: workers, Secure: true, SharedBackend: true, Plain: true,
		Services: func(int) []string { return []string{echo} }})
	started := time.Now()
	for !f.agrees(relays + workers) {
		if time.Since(started) > bound {
			t.Logf("not converged %v after the last start: %v", bound, f.views())
			return false
		}
		time.Sleep(20 * time.Millisecond) // between two checks of the state
	}
	t.Logf("%d processes converged %v after the last start", relays+workers, time.Since(started).Round(10*time.Millisecond))

	for _, r := range f.relays {
		procs.Await(t, r.ID+" is ready and knows all endpoints", func() bool {
			var v serviceView
			_, status := f.ready(r.Admin)
			return status == 200 && f.api(r.Admin, "/api/v1/services/"+echo, &v) == 200 && v.Endpoints == workers
		})
		if a := f.call(r, echo); a.status != 200 {
			t.Errorf("%v", a)
		}
	}
	return true
}

type checksums struct{ Members, Services string }

// agrees reports whether all relays that run see that many members, and the same
// ones.
func (f *fleet) agrees(members int) bool {
	var first checksums
	for i, r := range f.running() {
		var c checksums
		if len(f.IDs(r.Member)) != members || f.api(r.Admin, "/api/v1/checksum", &c) != 200 || c.Members == "" {
			return false
		}
		if i == 0 {
			first = c
		}
		if c != first {
			return false
		}
	}
	return true
}

// views is for messages: what each relay sees.
func (f *fleet) views() (views []string) {
	for _, r := range f.running() {
		var c checksums
		f.api(r.Admin, "/api/v1/checksum", &c)
		ids := f.IDs(r.Member)
		views = append(views, fmt.Sprintf("%s: %d members, checksums %+v", r.ID, len(ids), c))
	}
	return views
}

// TestOneClusterRemainsWhenASeedIsDeadAndAllOthersAreRestarted has two seeds,
// of which one is killed and never comes back while the others are restarted, the
// second seed among them. That one knows no living address then, and who is
// restarted after it knows it alone, so the fleet may be split until its parts find
// each other.
func TestOneClusterRemainsWhenASeedIsDeadAndAllOthersAreRestarted(t *testing.T) {
	t.Parallel()
	const workers = 5
	f := startFleet(t, fleetConfig{Relays: 3, Workers: workers, Seeds: 2, Secure: true, SharedBackend: true,
		Services: func(int) []string { return []string{echo} }})
	procs.Await(t, "all see each other", func() bool { return f.agrees(3 + workers) })

	seed, second := f.relay("r1"), f.relay("r2")
	seed.Kill()
	restart := func(p **process, admin string) {
		(*p).Kill()
		*p = start(t, (*p).Config)
		procs.Await(t, (*p).Name()+" lives again", func() bool { return f.client.get(admin, "/healthz").status == 200 })
		if *p != second.Process { // no other member is there to find
			procs.Await(t, (*p).Name()+" is ready again", func() bool { _, status := f.ready(admin); return status == 200 })
		}
	}
	restart(&f.relay("r3").Process, f.relay("r3").Admin)
	for i, w := range f.workers {
		if i == workers-1 {
			restart(&second.Process, second.Admin)
		}
		restart(&w.Process, w.Admin)
	}
	restarted := time.Now()
	// Each member looks for one that it misses every half a minute or so, and the
	// dead seed is among those it looks for.
	procs.AwaitFor(t, 2*patience, "one cluster remains", func() bool { return f.agrees(2 + workers) })
	t.Logf("one cluster again %v after the last restart", time.Since(restarted).Round(10*time.Millisecond))

	f.flows(t, workers)
	seed.Process = start(t, seed.Config)
	procs.Await(t, "the dead seed is back", func() bool { return f.agrees(3 + workers) })
	f.flows(t, workers)
}

// flows waits until every relay knows all workers, and sends through each.
func (f *fleet) flows(t *testing.T, workers int) {
	t.Helper()
	for _, r := range f.running() {
		procs.Await(t, r.ID+" is ready and knows all endpoints", func() bool {
			var v serviceView
			_, status := f.ready(r.Admin)
			return status == 200 && f.api(r.Admin, "/api/v1/services/"+echo, &v) == 200 && v.Endpoints == workers
		})
		// For three seconds a worker that has just joined is held below its share, so
		// one that joined earlier can get many requests in a row.
		through := map[string]bool{}
		procs.Await(t, r.ID+" sends through more than one worker", func() bool {
			a := f.call(r, echo)
			if a.status != 200 || a.header.Get(relayHeader) != r.ID {
				t.Fatalf("%v", a)
			}
			through[a.header.Get(endpointHeader)] = true
			return len(through) > 1
		})
	}
}
