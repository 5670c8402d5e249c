package peering_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
)

var hour = flag.Bool("hour", false, "play an hour of 20 relays and 200 workers, some five minutes on two cores")

// Real members on unmodified memberlist, under a virtual clock; every relay plans and
// connects by its own snapshots. An hour of 220 members takes minutes, so the 200
// workers belong to 20 members, ten each. LONG_TESTS lengthens the histories, the race
// detector shortens them.
func TestWhileMembersJoinLeaveAndCrashWorkersKeepTheirRelaysAndNothingFlaps(t *testing.T) {
	type history struct {
		relays, members, perMember int
		duration                   time.Duration
	}
	histories := []history{
		{20, 20, 1, 15 * time.Minute},
		{20, 20, 10, 5 * time.Minute},
	}
	switch {
	case *hour:
		histories = []history{{20, 200, 1, time.Hour}}
	case raceEnabled:
		histories = []history{{20, 20, 1, 5 * time.Minute}}
	case os.Getenv("LONG_TESTS") != "":
		histories = []history{{20, 20, 1, time.Hour}, {20, 20, 10, 20 * time.Minute}}
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
