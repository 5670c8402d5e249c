package relaypool

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/outlier"
	"github.com/ringway/ringway/selection"
)

func TestTiersAreByDatacenterThenRegionAndEmptyNamesMatchNothing(t *testing.T) {
	for _, c := range []struct {
		dc, region string // ours
		peer       Peer
		want       affinity.Tier
	}{
		{"dc1", "eu", Peer{Datacenter: "dc1", Region: "eu"}, affinity.SameDatacenter},
		{"dc1", "eu", Peer{Datacenter: "dc1", Region: "us"}, affinity.SameDatacenter},
		{"dc1", "eu", Peer{Datacenter: "dc2", Region: "eu"}, affinity.SameRegion},
		{"dc1", "eu", Peer{Datacenter: "dc2", Region: "us"}, affinity.Global},
		{"", "eu", Peer{Region: "eu"}, affinity.SameRegion},
		{"dc1", "eu", Peer{Region: "eu"}, affinity.SameRegion},
		{"", "", Peer{}, affinity.Global},
		{"dc1", "", Peer{Datacenter: "dc2"}, affinity.Global},
	} {
		if got := c.peer.tier(c.dc, c.region); got != c.want {
			t.Errorf("a peer in %q/%q, seen from %q/%q: %v, want %v", c.peer.Datacenter, c.peer.Region, c.dc, c.region, got, c.want)
		}
	}
}

// fleet has the given number of peers in our datacenter, in our region, elsewhere.
func fleet(dc, region, global int) []Peer {
	peers := relays(dc + region + global)
	for i := range peers {
		switch {
		case i < dc:
			peers[i].Datacenter, peers[i].Region = "dc1", "eu"
		case i < dc+region:
			peers[i].Datacenter, peers[i].Region = "dc2", "eu"
		default:
			peers[i].Datacenter, peers[i].Region = "dc9", "us"
		}
	}
	return peers
}

func local() Config {
	cfg := config()
	cfg.Datacenter, cfg.Region = "dc1", "eu"
	return cfg
}

func TestATierThatIsTooSmallTakesTheNextOneIn(t *testing.T) {
	for _, c := range []struct {
		dc, region, global, minimum int
		candidates                  int
		reach                       affinity.Tier
	}{
		{2, 5, 0, 3, 7, affinity.SameRegion},
		{2, 5, 9, 3, 7, affinity.SameRegion},
		{3, 5, 9, 3, 3, affinity.SameDatacenter},
		{1, 1, 4, 3, 6, affinity.Global},
		{0, 0, 4, 3, 4, affinity.Global},
		{1, 0, 0, 3, 1, affinity.Global},
		{3, 5, 9, 4, 8, affinity.SameRegion}, // MinPeersPerTier
		{3, 5, 9, 1, 3, affinity.SameDatacenter},
	} {
		cfg := local()
		cfg.MinPeersPerTier, cfg.Candidates = c.minimum, 100
		s := newRig(t, cfg).update(fleet(c.dc, c.region, c.global)).status()
		if len(s.Candidates) != c.candidates || s.Reach != c.reach {
			t.Errorf("%+v: %d candidates as far as %v", c, len(s.Candidates), s.Reach)
		}
	}
}

func TestWithoutAPlaceOfOurOwnAllAreAlike(t *testing.T) {
	cfg := config()
	cfg.Candidates = 100
	want(t, "candidates", len(newRig(t, cfg).update(fleet(3, 5, 9)).status().Candidates), 17)
}

func TestAPeerThatMovesChangesItsTier(t *testing.T) {
	r := newRig(t, local()).update(fleet(3, 3, 0))
	want(t, "reach", r.status().Reach, affinity.SameDatacenter)
	r.told()
	moved := fleet(3, 3, 0)
	moved[0].Datacenter = "dc2"
	r.update(moved)
	want(t, "tier", r.peer("r1").Tier, affinity.SameRegion)
	want(t, "reach", r.status().Reach, affinity.SameRegion)
	want(t, "events", r.told(CandidatesChanged), []string{"candidates changed  peer_moved"})
}

func TestWhoStoodInForNearerPeersGoesWhenTheyAreBack(t *testing.T) {
	r := newRig(t, local()).update(fleet(0, 5, 0))
	r.wait(time.Minute)
	r.told()
	tk := r.request(Request{})
	r.update(append(fleet(5, 0, 0), Peer{ID: "far", Region: "eu"}))
	r.Release(tk, r.now)
	r.step()
	for _, p := range r.status().Peers {
		if p.Role != NoRole && p.Tier != affinity.SameDatacenter {
			t.Errorf("%s (%v) still has a place", p.ID, p.Tier)
		}
	}

	// The same, with the far ones still there.
	r = newRig(t, local()).update(fleet(0, 5, 0))
	all := append(fleet(0, 5, 0), Peer{ID: "n1", Datacenter: "dc1"}, Peer{ID: "n2", Datacenter: "dc1"},
		Peer{ID: "n3", Datacenter: "dc1"}, Peer{ID: "n4", Datacenter: "dc1"}, Peer{ID: "n5", Datacenter: "dc1"})
	r.told()
	r.update(all)
	moved := r.told(Evicted)
	want(t, "moved", len(moved), 5)
	want(t, "the first", moved[0][len(moved[0])-len("locality primary"):], "locality primary")
	s := r.status()
	want(t, "connections", s.Connections, Connections{Primary: 3, Backup: 2})
}

// The places do not depend on the order in which the peers became known.
func TestAFarPeerLosesItsPlaceWhenAllNearerOnesHaveOne(t *testing.T) {
	near := local().MinPeersPerTier
	r := newRig(t, local()).update(fleet(near-1, 4, 0))
	want(t, "places before", len(r.status().Primaries)+len(r.status().Backups), 5)
	r.update(fleet(near, 4, 0)).wait(time.Minute)
	s := r.status()
	want(t, "reach", s.Reach, affinity.SameDatacenter)
	for _, p := range s.Peers {
		if p.Role != NoRole && p.Tier != affinity.SameDatacenter {
			t.Errorf("%s (%v) still has a place", p.ID, p.Tier)
		}
	}
	want(t, "connections", s.Connections, newRig(t, local()).update(fleet(near, 4, 0)).wait(time.Minute).status().Connections)
}

func TestTheRankingIsTheSameEverywhere(t *testing.T) {
	cfg := config()
	shuffled := relays(20)
	slices.Reverse(shuffled)
	got := newRig(t, cfg).update(relays(20)).status().Candidates
	want(t, "candidates of gate-1", got, []string{"r9", "r8", "r15", "r14", "r13", "r4", "r11", "r7"}) // golden
	want(t, "in another order of the input", newRig(t, cfg).update(shuffled).status().Candidates, got)
	cfg.Selector = "gate-2"
	if other := newRig(t, cfg).update(relays(20)).status().Candidates; slices.Equal(other, got) {
		t.Error("another selector ranks in the same way")
	}
}

func TestAPeerMoreOrLessMovesOnlyItsOwnPlaceAmongTheCandidates(t *testing.T) {
	r := newRig(t, config()).update(relays(20))
	before := r.status().Candidates
	for _, gone := range before {
		after := newRig(t, config()).update(slices.DeleteFunc(relays(20), func(p Peer) bool { return p.ID == gone })).status().Candidates
		kept := slices.DeleteFunc(slices.Clone(before), func(id string) bool { return id == gone })
		want(t, "without "+gone, after[:7], kept)
	}
}

// Over many selectors a peer is first in proportion to its weight: 2 to 1.
func TestHalfTheWeightIsHalfTheShare(t *testing.T) {
	const n = 4000
	first := 0
	for i := range n {
		cfg := config()
		cfg.Selector = fmt.Sprint("gate-", i)
		cfg.Candidates = 1
		r := newRig(t, cfg)
		if err := r.Update(relays(2), r.now); err != nil {
			t.Fatal(err)
		}
		// A quarter of recent requests failed: weight 1 − 2·0.25.
		r.peers["r2"].health = health{counts: outlier.Count{Failures: 250, Requests: 999}, countedAt: r.now}
		r.rank(byHealth)
		if r.candidates[0].ID == "r1" {
			first++
		}
	}
	// 2/3, with four standard deviations.
	if got := float64(first) / n; math.Abs(got-2.0/3) > 4*math.Sqrt(2.0/9/n) {
		t.Errorf("share %.3f, want 0.667", got)
	}
}

func TestTheWeightFallsWithFailuresAndLatencyAndNeverBelowATenth(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		failures, latency float64 // share, times the baseline
		want              float64
	}{
		{0, 1, 1}, {0.1, 1, 0.8}, {0.45, 1, 0.1}, {1, 1, 0.1},
		{0, 2, 0.75}, {0, 3, 0.5}, {0, 9, 0.5}, {0.1, 3, 0.3},
	} {
		r := newRig(t, config())
		if err := r.Update(relays(4), r.now); err != nil {
			t.Fatal(err)
		}
		for _, p := range r.peers {
			p.health = health{latency: 20 * ms, p99: 20 * ms, sampledAt: r.now}
		}
		r.peers["r1"].health = health{
			latency: time.Duration(c.latency * float64(20*ms)), p99: time.Second, sampledAt: r.now,
			counts: outlier.Count{Failures: c.failures * 1e6, Requests: 1e6}, countedAt: r.now,
		}
		if got := r.peer("r1").Weight; math.Abs(got-c.want) > 0.001 {
			t.Errorf("%v failures, %v times the baseline: %.3f, want %.3f", c.failures, c.latency, got, c.want)
		}
	}
}

// With equal estimates chance decides, so both of two candidates are chosen; with
// unequal ones the faster of any two, so that only the slowest never is.
func TestADrawIsOfTwoDifferentOnesAndTheFasterWins(t *testing.T) {
	r := newRig(t, config())
	if err := r.Update(relays(4), r.now); err != nil {
		t.Fatal(err)
	}
	draws := func(from ...string) map[string]int {
		var peers []*peer
		for _, id := range from {
			peers = append(peers, r.peers[id])
		}
		got := map[string]int{}
		for range 6000 {
			p, _ := r.draw(peers)
			got[p.ID]++
		}
		return got
	}
	if got := draws("r1", "r2"); got["r1"] < 2700 || got["r2"] < 2700 {
		t.Errorf("equal ones: %v", got)
	}
	for i, id := range []string{"r1", "r2", "r3", "r4"} {
		r.peers[id].health = health{latency: time.Duration(i+1) * time.Millisecond, sampledAt: r.now}
	}
	// Of the six pairs the first wins three, the second two, the third one.
	got := draws("r1", "r2", "r3", "r4")
	for id, share := range map[string]float64{"r1": 3000, "r2": 2000, "r3": 1000, "r4": 0} {
		if math.Abs(float64(got[id])-share) > 200 {
			t.Errorf("%s: %d of 6000, want %v ± 200", id, got[id], share)
		}
	}
	want(t, "of one", draws("r3"), map[string]int{"r3": 6000})
}

func TestChangesOfTheCandidatesAreReportedWithTheirReason(t *testing.T) {
	r := newRig(t, config()).update(relays(4))
	want(t, "at the start", r.told(CandidatesChanged), []string{"candidates changed  peer_added"})
	r.update(relays(5)[1:])
	want(t, "one came, one went", r.told(CandidatesChanged), []string{"candidates changed  peer_added", "candidates changed  peer_removed"})
	id := r.status().Primaries[0]
	for range 4 {
		r.to(id, selection.Failure, 0)
	}
	want(t, "one was evicted", r.told(CandidatesChanged), []string{"candidates changed  health_change"})
	r.update(relays(5)[1:])
	want(t, "nothing changed", r.told(CandidatesChanged), []string(nil))
}

func TestAFailedMoveToANearerPeerDoesNotRenewTheOneThatStandsIn(t *testing.T) {
	r := newRig(t, local()).update(fleet(0, 5, 0)).wait(time.Minute)
	r.told()
	near := []Peer{{ID: "n1", Datacenter: "dc1"}, {ID: "n2", Datacenter: "dc1"}, {ID: "n3", Datacenter: "dc1"}, {ID: "n4", Datacenter: "dc1"}, {ID: "n5", Datacenter: "dc1"}}
	for _, p := range near {
		r.refuse[p.ID] = true
	}
	r.update(append(fleet(0, 5, 0), near...)).wait(10 * time.Minute)
	want(t, "what those that stand in went through", r.told(Refreshed, Evicted), []string(nil))
	want(t, "places", len(r.status().Primaries)+len(r.status().Backups), 5)

	clear(r.refuse)
	r.wait(time.Minute)
	want(t, "after the nearer ones are well", len(r.told(Evicted)), 5)
}
