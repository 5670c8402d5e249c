package advertise

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/membership"
)

// took is what waits in a watch, nil when nothing does.
func took(t *testing.T, watch <-chan *Endpoints) *Endpoints {
	t.Helper()
	synctest.Wait()
	select {
	case e, open := <-watch:
		if !open || e == nil {
			t.Fatalf("the watch delivers %v, open %t", e, open)
		}
		return e
	default:
		return nil
	}
}

func TestAWatchOfAServiceIsWokenByThatServiceOnly(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", membership.RoleRelay)
		worker := n.join("worker-0", membership.RoleWorker)
		offer := func(services ...Service) {
			offer(t, worker, services)
			settle(3 * time.Second)
		}
		ctx, cancel := context.WithCancel(n.ctx)
		early := relay.catalogue.WatchService(ctx, "echo")
		if e := took(t, early); e == nil || e.Len() != 0 {
			t.Fatalf("first %v, want the empty list of a service without offers", e)
		}
		offer(offered("echo", 1))
		if e := took(t, early); e == nil || e.Len() != 1 || e != relay.catalogue.View().Endpoints("echo") {
			t.Fatalf("echo is offered and its watch has %v", e)
		}
		late := relay.catalogue.WatchService(n.ctx, "echo")
		if e := took(t, late); e == nil || e.Len() != 1 {
			t.Fatalf("a new watch begins with %v, want the service as it is", e)
		}

		views := relay.catalogue.View().Version()
		offer(offered("echo", 1), offered("other", 1))
		offer(offered("echo", 1), offered("other", 2))
		n.join("relay-1", membership.RoleRelay)
		n.join("worker-1", membership.RoleWorker)
		settle(time.Minute)
		if relay.catalogue.View().Version() < views+4 {
			t.Fatal("no views were published meanwhile")
		}
		if a, b := took(t, early), took(t, late); a != nil || b != nil {
			t.Errorf("echo did not change and its watches have %v and %v", a, b)
		}

		for port := range 5 { // without a reader only the newest is kept
			offer(offered("echo", 10+port))
		}
		for _, watch := range []<-chan *Endpoints{early, late} {
			if e := took(t, watch); e == nil || e.Of("worker-0").Address != "h:14" || took(t, watch) != nil {
				t.Errorf("a slow watch has %v, want the newest alone", e)
			}
		}

		n.kill("worker-0")
		n.detect("worker-0")
		settle(time.Second)
		for _, watch := range []<-chan *Endpoints{early, late} {
			if e := took(t, watch); e == nil || e.Len() != 0 {
				t.Errorf("the service has vanished and its watch has %v, want an empty list", e)
			}
		}
		cancel()
		synctest.Wait()
		if _, open := <-early; open {
			t.Error("the watch goes on after its context has ended")
		}
	})
}

// Watches come and go while the services change: each begins with something,
// never goes back, and ends with the current state; none is left behind.
func TestManyWatchesOfManyServicesEachEndWithTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const services, watchers, steps = 5, 200, 300
		var w viewWatches
		w.views.Store(&View{})
		j := newJoined(t)
		for i := range services {
			j.lives(fmt.Sprint("w", i), 1)
		}
		name := func(i int) string { return fmt.Sprint("s", i) }
		ended := make(chan struct{})
		var final *View
		var all sync.WaitGroup
		for i := range watchers {
			all.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				service := i % services
				for done := false; !done; {
					ctx, cancel := context.WithCancel(t.Context())
					watch := w.service(ctx, name(service))
					last := <-watch
					for range random.IntN(20) {
						select {
						case e := <-watch:
							if was := last.Of(fmt.Sprint("w", service)); e == last || was != nil && was.Weight > e.Of(fmt.Sprint("w", service)).Weight {
								t.Errorf("%v after %v", e, last)
							}
							last = e
						case <-ended:
							done = true
						}
					}
					if done {
						select { // the publisher is done: what waits is the newest
						case last = <-watch:
						default:
						}
						if last != final.Endpoints(name(service)) {
							t.Errorf("%s ends with %v, want %v", name(service), last, final.Endpoints(name(service)))
						}
					}
					cancel()
					for range watch { // until it is closed
					}
				}
			})
		}
		for step := range steps {
			s := step % services
			final = j.hears(fmt.Sprint("w", s), 1, uint64(step+1), Service{Name: name(s), Address: "h:1", Weight: int32(1 + step/services)})
			w.publish(final, j.changed)
		}
		close(ended)
		all.Wait()
		synctest.Wait()
		if len(w.services) != 0 {
			t.Errorf("%d services without watchers are not forgotten", len(w.services))
		}
	})
}

// Only consumers collect changes: the clock of the bubble stands still here.
func TestEachOfSeveralChangesInARowIsInAViewWithoutDelay(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", membership.RoleRelay)
		for i := range 3 {
			offer(t, n.join(fmt.Sprintf("worker-%d", i), membership.RoleWorker), echo(1))
		}
		settle(time.Minute)
		for i := range 3 {
			if offers := relay.catalogue.View().Endpoints("echo").Len(); offers != 3-i {
				t.Fatalf("%d endpoints after %d of 3 workers are gone", offers, i)
			}
			n.detect(fmt.Sprintf("worker-%d", i))
			synctest.Wait()
		}
	})
}
