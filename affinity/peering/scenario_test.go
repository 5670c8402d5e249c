package peering_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
)

var hour = flag.Bool("hour", false, "also play an hour of 20 relays and 200 workers, some five minutes on two cores")

// Real members on unmodified memberlist, under a virtual clock; every relay plans and
// connects by its own snapshots. An hour of 220 members takes minutes, so the 200
// workers are those of 20 members, ten each; a longer history has members of one
// worker. The race detector gets a shorter one.
func TestWhileMembersJoinLeaveAndCrashWorkersKeepTheirRelaysAndNothingFlaps(t *testing.T) {
	histories := []struct {
		relays, members, perMember int
		duration                   time.Duration
	}{
		{20, 20, 1, time.Hour},
		{20, 20, 10, 20 * time.Minute},
	}
	if *hour {
		histories = append(histories, histories[0])
		histories[2].members = 200
	}
	if raceEnabled {
		histories = histories[:1]
		histories[0].duration = 5 * time.Minute
	}
	for _, h := range histories {
		t.Run(fmt.Sprintf("%d relays, %d workers", h.relays, h.members*h.perMember), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(h.perMember,
					&variant{name: "slots, no grace", index: affinity.IndexSlot},
					&variant{name: "slots, grace 15s", index: affinity.IndexSlot, grace: 15 * time.Second},
					&variant{name: "rank, grace 15s", index: affinity.IndexRank, grace: 15 * time.Second},
				)
				defer c.close()
				for i := range h.relays + h.members {
					role := membership.RoleRelay
					if i >= h.relays {
						role = membership.RoleWorker
					}
					if err := c.add(fmt.Sprintf("%s-%03d", role, i), role); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				stop := make(chan struct{})
				var watching sync.WaitGroup
				watching.Go(func() { c.watch(stop) })
				events, err := c.live(rand.New(rand.NewPCG(1, 1)), h.duration, 25*time.Second, h.relays, h.members)
				if err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				close(stop)
				watching.Wait()
				c.report(t, events)
			})
		})
	}
}
