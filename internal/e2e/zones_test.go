//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// inZones starts three relays and three workers of echo in each of two zones.
func inZones(t *testing.T) *fleet {
	t.Helper()
	zone := func(n int) []string { return []string{"--region", "eu", "--datacenter", []string{"eu-1", "eu-2"}[n%2]} }
	f := startFleet(t, fleetConfig{Relays: 6, ArgsOf: func(id string) []string { return zone(int(id[1]-'0') - 1) }})
	for n := range 6 {
		id := fmt.Sprintf("w%d", n+1)
		w := f.startBackend(id)
		f.startAgent(w, id, []string{echo}, zone(n)...)
		f.workers = append(f.workers, w)
	}
	f.awaitRange(t, 3)
	// Until a relay knows all workers, its three may be of the other zone.
	for i, r := range f.relays {
		procs.Await(t, r.ID+" is connected to the workers of its zone", func() bool {
			var v serviceView
			if f.api(r.Admin, "/api/v1/services/"+echo, &v) != http.StatusOK || len(v.Peers) != 3 {
				return false
			}
			return !slices.ContainsFunc(v.Peers, func(p peerView) bool { return !p.Connected || int(p.Node[1]-'1')%2 != i%2 })
		})
	}
	return f
}

// The relays of a zone whose workers all vanish at the same time have no connection to other
// workers, and learn only after seconds that theirs are dead.
func TestAZoneWhoseWorkersAllDieFailsNoRequest(t *testing.T) {
	for name, dies := range map[string]func(*testing.T, *worker){
		"killed": func(t *testing.T, w *worker) {
			w.Signal(t, syscall.SIGKILL)
			w.backend.Signal(t, syscall.SIGKILL)
			<-w.backend.Done // an idle connection of a process that is ending takes a POST
		},
		"hung": func(t *testing.T, w *worker) {
			w.Signal(t, syscall.SIGSTOP)
			w.backend.Signal(t, syscall.SIGSTOP)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := inZones(t)
			load := f.startLoad(t, loadConfig{Name: "zone", Service: echo, GETs: name == "hung", Relay: f.roundRobin})
			load.more(t, 300)
			for n := 0; n < len(f.workers); n += 2 {
				dies(t, f.workers[n])
			}
			dead := time.Now()
			load.more(t, 1_000)
			for n := 0; n < len(f.workers); n += 2 {
				procs.Await(t, "the worker is gone", func() bool { return f.sees(f.workers[n].ID, false) })
			}
			load.more(t, 300)
			results := load.stop()
			var slowest time.Duration
			lost := 0
			for _, r := range results {
				slowest = max(slowest, r.took)
				if r.ok() {
					continue
				}
				if lostOn(f.workers[0], r) || lostOn(f.workers[2], r) || lostOn(f.workers[4], r) {
					lost++
					if r.began.Before(dead) {
						continue // it was in flight
					}
				}
				t.Errorf("failed %v after they died: %v", r.began.Sub(dead), r)
			}
			t.Logf("%d requests, %d POSTs in flight were lost, the slowest took %v", len(results), lost, slowest)
			f.judge(t, results)
		})
	}
}

// The requests have connections of their own, so no worker refuses them one: only their own failures
// show that the zone is dead.
func TestRequestsThatAllWorkersOfAZoneLoseAreCarriedByAnotherZone(t *testing.T) {
	t.Parallel()
	f := inZones(t)
	answers := make(chan answer, 8)
	client := newClient(t)
	for n := range cap(answers) {
		go func() {
			answers <- client.send(request{method: http.MethodGet, addr: f.relays[0].Ingress, path: "/hold?key=zone", service: echo, id: fmt.Sprintf("lost-%d", n)})
		}()
	}
	// A request that two workers of its zone refuse goes to the other zone before the third is dead.
	away := []*worker{f.workers[1], f.workers[3], f.workers[5]}
	for alive := []*worker{f.workers[0], f.workers[2], f.workers[4]}; len(alive) > 0; alive = alive[1:] {
		procs.Await(t, "workers have all requests", func() bool {
			if len(answers) > 0 {
				t.Fatalf("a request had its answer before its worker was released: %v", <-answers)
			}
			held := map[string]bool{}
			for _, w := range slices.Concat(alive, away) {
				for id := range w.executed(t) {
					held[id] = true
				}
			}
			return len(held) == cap(answers)
		})
		alive[0].Signal(t, syscall.SIGKILL)
		alive[0].backend.Signal(t, syscall.SIGKILL)
		<-alive[0].backend.Done
	}
	f.release(t, "zone")
	for range cap(answers) {
		if got := <-answers; got.status != http.StatusOK {
			t.Errorf("a request that was on workers of the dead zone only: %v", got)
		}
	}
}
