package relaypool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// What the source's scenarios state about a fleet rather than of one pool: minimal
// churn, load spread, and discovery at scale. (Its scaling test compared a number
// of peers with itself and a wall-clock time; its deterministic pick had one
// caller.)

// gates are pools of as many callers, each with its own candidates among the same
// peers.
func gates(t *testing.T, n int, peers []Peer) []*rig {
	t.Helper()
	all := make([]*rig, n)
	for i := range all {
		cfg := config()
		cfg.Selector = fmt.Sprintf("gate-%d", i)
		cfg.Rand = rand.New(rand.NewPCG(uint64(i), 2)).Uint64
		all[i] = newRig(t, cfg).update(peers)
	}
	return all
}

func TestManyCallersSpreadOverAllPeers(t *testing.T) {
	const callers, peers = 400, 16
	primaries := map[string]int{}
	requests := map[string]int{}
	for _, r := range gates(t, callers, relays(peers)) {
		for _, id := range r.status().Primaries {
			primaries[id]++
		}
		for id, n := range r.traffic(3, nil) {
			requests[id] += n
		}
	}
	// 75 is the mean and 7.8 the standard deviation of fair draws; ± 5 of them.
	for _, p := range relays(peers) {
		if n := primaries[p.ID]; n < 36 || n > 114 {
			t.Errorf("%s is a primary of %d of %d callers, want about 75", p.ID, n, callers)
		}
		if requests[p.ID] != primaries[p.ID] {
			t.Errorf("%s got %d requests over its %d callers: each sends 3 to 3 primaries in turn", p.ID, requests[p.ID], primaries[p.ID])
		}
	}
}

func TestAPeerThatJoinsClosesNoConnectionAndOneThatLeavesOnlyItsOwn(t *testing.T) {
	before := relays(20)
	with := append(relays(20), Peer{ID: "joiner", Address: "10.0.1.1:7410"})
	for i, r := range gates(t, 50, before) {
		held := len(r.open)
		r.told()
		r.update(with).wait(10 * time.Second)
		want(t, "evicted when a peer joined", r.told(Evicted), []string(nil))
		want(t, "connections", len(r.open), held)

		s := r.status()
		gone := before[i%len(before)].ID
		r.update(slices.DeleteFunc(slices.Clone(with), func(p Peer) bool { return p.ID == gone })).wait(10 * time.Second)
		left := r.told(Evicted)
		holds := slices.Contains(slices.Concat(s.Primaries, s.Backups), gone)
		if holds != (len(left) > 0) {
			t.Errorf("caller %d held a connection to %s: %v, and lost %v", i, gone, holds, left)
		}
		for _, line := range left {
			if line != "evicted "+gone+" removed primary" && line != "evicted "+gone+" removed backup" {
				t.Errorf("caller %d: %s, though only %s left", i, line, gone)
			}
		}
		want(t, "connections afterwards", len(r.open), held)
	}
}

func TestAThousandPeersCostFiveConnectionsAndMissNone(t *testing.T) {
	for _, n := range []int{10, 50, 100, 1000} {
		peers := relays(n)
		r := newRig(t, config()).update(peers)
		s := r.status()
		want(t, "peers", len(s.Peers), n)
		want(t, "candidates", len(s.Candidates), 8)
		want(t, "connections", len(r.open), 5)
		got := r.traffic(300, nil)
		for _, id := range s.Primaries {
			want(t, "requests of "+id, got[id], 100)
		}
		// The result does not depend on the place in the list.
		slices.Reverse(peers)
		want(t, "candidates in another order", newRig(t, config()).update(peers).status().Candidates, s.Candidates)
	}
}

func TestARequestGoesToTheAddressThatItsPeerAnnounced(t *testing.T) {
	peers := relays(9)
	r := newRig(t, config()).update(peers)
	for range 6 {
		got := r.request(Request{}).Peer
		if i := slices.IndexFunc(peers, func(p Peer) bool { return p.ID == got.ID }); i < 0 || peers[i] != got {
			t.Errorf("got %+v, which was not announced", got)
		}
	}
	for _, p := range r.status().Peers {
		if p.ID == "absent" || p.ID == "" {
			t.Errorf("a peer that was never announced is listed: %+v", p)
		}
	}
	want(t, "peers", len(r.status().Peers), 9)
}
