//go:build !race

package membership

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership/identity"
)

// detection is what a fleet with certificates knows of crashes.
type detection struct {
	first, last, worst time.Duration // until the first and the last member know: means, and the longest
	wrong              int           // members that lived and were seen as failed
}

// detect starts a fleet, loses packets, waits, and then kills some of its members.
func detect(t *testing.T, members, kills int, loss float64) (d detection) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(memnet.Config{Seed: 1, Latency: time.Millisecond / 2, Jitter: time.Millisecond / 2})
		authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 1000 * time.Hour, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		var nodes []*Node
		var hosts []*memnet.Host
		for i := range members {
			host := network.Host(netip.AddrFrom4([4]byte{10, 0, byte(i / 200), byte(1 + i%200)}).String())
			cfg := Config{Cluster: "test", Environment: "ci", ID: fmt.Sprintf("n%d", i), Role: identity.RoleWorker, BindAddr: host.IP().String() + ":7400",
				Seeds: []string{"10.0.0.1", "10.0.0.2"}, Network: host, Keyring: keyring(t, 1)}
			certified(t, authority, &cfg, func(*identity.Claims) {})
			n, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Start(context.Background()); err != nil {
				t.Fatal(err)
			}
			nodes, hosts = append(nodes, n), append(hosts, host)
		}
		defer func() {
			for _, n := range nodes {
				_ = n.Close()
			}
			_ = network.Close()
			time.Sleep(10 * time.Minute) // until memberlist's goroutines are gone, too
		}()
		for waited := 0; ; waited++ {
			time.Sleep(time.Second)
			agree := true
			for _, n := range nodes {
				agree = agree && count(n) == members
			}
			if agree {
				break
			}
			if waited == 300 {
				t.Fatalf("%d members do not form a fleet", members)
			}
		}
		network.SetLoss(loss)
		time.Sleep(3 * time.Minute)
		const step = 50 * time.Millisecond
		deaths := 0
		for range kills {
			victim := nodes[len(nodes)-1]
			hosts[len(nodes)-1].Crash()
			_ = victim.Close()
			nodes = nodes[:len(nodes)-1]
			began, first := time.Now(), time.Duration(0)
			for {
				time.Sleep(step)
				know := 0
				for _, n := range nodes {
					if _, seen := n.Snapshot().Get(victim.ID()); !seen {
						know++
					}
				}
				took := time.Since(began)
				if know > 0 && first == 0 {
					first = took
				}
				if know == len(nodes) || took > 3*time.Minute {
					d.first, d.last, d.worst = d.first+first, d.last+took, max(d.worst, took)
					break
				}
			}
			deaths += len(nodes)
			time.Sleep(30 * time.Second)
		}
		d.first, d.last = d.first/time.Duration(kills), d.last/time.Duration(kills)
		for _, n := range nodes {
			d.wrong += int(testutil.ToFloat64(n.metrics.events.WithLabelValues("failed")))
		}
		d.wrong -= kills * len(nodes)
	})
	return d
}

// A death is taken as a suspicion, so each member waits for the answer of the subject. That costs
// the last member little time, and none is lost by it. LONG_TESTS measures larger fleets. The race detector,
// which takes a minute for it, sees the same goroutines in histories.
func TestACrashIsKnownInTimeAndNoLivingMemberIsLost(t *testing.T) {
	sizes := map[int]int{10: 6}
	if os.Getenv("LONG_TESTS") != "" {
		sizes = map[int]int{10: 30, 60: 12, 200: 6}
	}
	for members, kills := range sizes {
		if kills >= members {
			kills = members - 4
		}
		for _, loss := range []float64{0, 0.05, 0.2} {
			t.Run(fmt.Sprintf("%d members, loss %v", members, loss), func(t *testing.T) {
				t.Parallel()
				d := detect(t, members, kills, loss)
				t.Logf("| %d | %v %% | %d | %.1f | %.1f | %.1f | %d |", members, 100*loss, kills, d.first.Seconds(), d.last.Seconds(), d.worst.Seconds(), d.wrong)
				if d.wrong != 0 {
					t.Errorf("%d members that live were seen as failed", d.wrong)
				}
				// The time until one of all members probes the dead, and three times the shortest
				// suspicion, 4·log10 n s: it is longer while few members confirm it.
				if limit := time.Duration((11 + 12*math.Log10(float64(members))) * float64(time.Second)); d.last > limit {
					t.Errorf("the last member knows after %v, in the mean, the limit is %v", d.last, limit)
				}
			})
		}
	}
}
