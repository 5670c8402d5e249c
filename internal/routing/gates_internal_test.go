package routing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

type noConn struct{}

func (noConn) Close() error { return nil }

// primariesOf returns the relays that a gate sends requests to, of n places.
func primariesOf(t *testing.T, gate string, relays []string, n int) []string {
	cfg := relaypool.DefaultConfig()
	cfg.Backups = 0 // which of those that are connected become backups is the scheduler's choice
	cfg.Selector, cfg.MaxTotal, cfg.Rand = gate, 1<<20, rand.New(rand.NewPCG(1, 2)).Uint64
	pool, err := relaypool.New(cfg, func(context.Context, relaypool.Peer, func(error)) (noConn, error) { return noConn{}, nil }, relaypool.Observer{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = pool.Run(ctx) }()
	var peers []relaypool.Peer
	for _, id := range relays {
		peers = append(peers, relaypool.Peer{ID: id})
	}
	pool.Resize(n)
	if err := pool.Update(peers); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	synctest.Wait()
	return pool.Status().Primaries
}

// Requests come in equally at all gates, and each relay sends them to the workers of its range by the plan of
// the defaults.
func TestBehindAnyNumberOfGatesEveryWorkerGetsItsShare(t *testing.T) {
	for _, size := range []struct{ relays, workers int }{{4, 12}, {12, 120}, {60, 1_000}, {300, 20_000}} {
		cfg := DefaultPlanSettings().PlanConfig
		cfg.Service = "echo"
		for i := range size.relays {
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("relay-%d", i)})
		}
		for i := range size.workers {
			cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("worker-%d", i)})
		}
		plan, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		affine := plan.Affine()
		for _, gates := range []int{1, 2, 4, 10, 30, 100} {
			t.Run(fmt.Sprintf("%d relays, %d workers, %d gates", size.relays, size.workers, gates), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					places := primaries(len(affine), gates)
					ofRelay := make([]float64, len(affine))
					for i := range gates {
						used := primariesOf(t, fmt.Sprintf("gate-%d", i), affine, places)
						for _, id := range used {
							at, _ := plan.Index(id)
							ofRelay[at] += 1 / float64(len(used))
						}
					}
					ofWorker := map[string]float64{}
					for i := range affine {
						assignments, err := plan.Assignments(i)
						if err != nil {
							t.Fatal(err)
						}
						sum := 0.0
						for _, a := range assignments {
							sum += a.Weight
						}
						for _, a := range assignments {
							ofWorker[a.Worker] += ofRelay[i] * a.Weight / sum
						}
					}
					mean := float64(gates) / float64(size.workers)
					loads := make([]float64, 0, size.workers)
					for _, load := range ofWorker {
						loads = append(loads, load/mean)
					}
					t.Logf("%d places, %d affine relays; of the mean: busiest %.2f, least %.2f of %d workers", places, len(affine), slices.Max(loads), slices.Min(loads), len(loads))
					if len(loads) != size.workers || slices.Max(loads) > 2 || slices.Min(loads) < 0.5 {
						t.Errorf("of the mean: busiest %.2f, least %.2f, of %d workers", slices.Max(loads), slices.Min(loads), len(loads))
					}
				})
			})
		}
	}
}

// Zones have unequal numbers of gates, and those of a zone use its relays.
func TestAGateSharesTheRelaysOfItsZoneWithItsGates(t *testing.T) {
	var relays []relaypool.Peer
	var members []membership.Member
	var gates []affinity.Place
	for zone, n := range map[string]struct{ relays, others, gates int }{"a": {150, 10, 100}, "b": {150, 30, 2}, "c": {2, 5, 4}} {
		place := affinity.Place{Datacenter: zone, Region: "eu"}
		for i := range n.relays {
			relays = append(relays, relaypool.Peer{ID: fmt.Sprint(zone, i), Datacenter: zone, Region: "eu"})
		}
		for i := range n.relays + n.others {
			members = append(members, membership.Member{ID: fmt.Sprint(zone, i), Datacenter: zone, Region: "eu"})
		}
		for range n.gates {
			gates = append(gates, place)
		}
	}
	for _, c := range []struct {
		role             identity.Role
		datacenter       string
		near, forwarders int
	}{
		{identity.RoleGate, "a", 150, 100},
		{identity.RoleGate, "b", 150, 2},
		{identity.RoleGate, "c", 302, 106}, // too few relays there
		{identity.RoleGate, "", 302, 106},
		{identity.RoleRelay, "b", 150, 30},
		{identity.RoleRelay, "", 302, 45},
	} {
		r := &Router{cfg: Config{Role: c.role, Datacenter: c.datacenter, Region: "eu"}, fleet: fleet{relays: members, gates: gates}, forwarding: &forwarding{cfg: relaypool.DefaultConfig()}}
		if near, forwarders := r.forwarders(&Route{Index: -1}, relays); near != c.near || forwarders != c.forwarders {
			t.Errorf("%+v: %d relays, %d forward to them", c, near, forwarders)
		}
	}
}
