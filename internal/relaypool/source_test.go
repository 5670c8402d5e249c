package relaypool

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/selection"
)

// The 26 tests of the source's discovery service (test_discovery_service.py), each
// as a promise of this package. Those marked "bites" asserted nothing that could
// fail, or the opposite of what their document states. Its 13 DNS scenarios and 8 DNS
// security tests are about names, and are in internal/discovery; that the pool
// follows what names lead to is in client/dns_test.go. Of the scenarios of its §41.23
// "minimal churn" is TestAPeerMoreOrLessMovesOnlyItsOwnPlaceAmongTheCandidates,
// "load spread" TestPrimariesTakeTurns, and "sticky eviction"
// TestAHealthyPeerKeepsItsKeysAndAnEvictedOneLosesThem; the other two are about
// identities, in membership.
func TestWhatTheSourceTested(t *testing.T) {
	two := func(t *testing.T) *rig { return newRig(t, config()).update(relays(2)) }
	for _, c := range []struct {
		source string
		holds  func(t *testing.T)
	}{
		{"service_initialization_with_static_seeds", func(t *testing.T) {
			want(t, "peers", len(two(t).status().Peers), 2)
		}},
		{"service_initialization_without_locality", func(t *testing.T) { // bites: it selects, too
			r := newRig(t, config()).update(fleet(1, 0, 1))
			want(t, "reach", r.status().Reach, affinity.Global)
			want(t, "primaries", len(r.status().Primaries), 2)
		}},
		{"service_initialization_with_locality", func(t *testing.T) {
			want(t, "reach", newRig(t, local()).update(fleet(3, 0, 3)).status().Reach, affinity.SameDatacenter)
		}},
		{"add_peer_manually", func(t *testing.T) {
			r := two(t).update(append(relays(2), Peer{ID: "relay-7", Address: "10.0.1.1:9000"}))
			want(t, "address", r.peer("relay-7").Address, "10.0.1.1:9000")
			want(t, "peers", len(r.status().Peers), 3)
		}},
		{"add_peer_with_locality", func(t *testing.T) { // bites: what the locality is for
			r := newRig(t, local()).update(fleet(1, 1, 1))
			for id, tier := range map[string]affinity.Tier{"r1": affinity.SameDatacenter, "r2": affinity.SameRegion, "r3": affinity.Global} {
				want(t, id, r.peer(id).Tier, tier)
			}
		}},
		{"remove_peer", func(t *testing.T) { // bites: and its connection
			r := two(t).update(relays(1))
			want(t, "peers", len(r.status().Peers), 1)
			want(t, "connections", len(r.open), 1)
		}},
		{"remove_nonexistent_peer", func(t *testing.T) {
			r := two(t)
			r.told()
			r.update(relays(2))
			want(t, "events", r.told(), []string(nil))
		}},
		{"get_peer", func(t *testing.T) {
			want(t, "id", two(t).peer("r2").ID, "r2")
		}},
		{"get_peer_address", func(t *testing.T) { // bites: of the connection that is used
			want(t, "address", strings.HasPrefix(two(t).request(Request{}).Peer.Address, "10.0.0."), true)
		}},
		{"get_all_peers", func(t *testing.T) {
			var ids []string
			for _, p := range newRig(t, config()).update(relays(9)).status().Peers {
				ids = append(ids, p.ID)
			}
			want(t, "peers, those without a place, too", ids, []string{"r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"})
		}},
		{"select_peer_returns_result", func(t *testing.T) { // bites: latency >= 0 always held
			r := two(t)
			r.to("r1", selection.Success, 30*time.Millisecond)
			want(t, "estimate", r.peer("r1").Estimate, 30*time.Millisecond)
			want(t, "of an untried one: a typical one", r.peer("r2").Estimate, 30*time.Millisecond)
		}},
		{"select_peer_returns_none_when_no_peers", func(t *testing.T) {
			if _, err := newRig(t, config()).Acquire(Request{}, start); !errors.Is(err, ErrNoPeers) {
				t.Errorf("got %v", err)
			}
		}},
		{"select_peer_is_deterministic", func(t *testing.T) { // bites: other keys go elsewhere
			r := newRig(t, config()).update(relays(3))
			used := map[string]bool{}
			for _, key := range []string{"workflow-1", "workflow-2", "workflow-3"} {
				first := r.request(Request{Key: key}).Peer.ID
				used[first] = true
				for range 5 {
					want(t, key, r.request(Request{Key: key}).Peer.ID, first)
				}
			}
			want(t, "peers used", len(used), 3)
		}},
		{"select_peer_with_filter", func(t *testing.T) {
			r := newRig(t, config()).update(relays(3))
			for range 9 {
				want(t, "the one not excluded", r.request(Request{Exclude: []string{"r1", "r3"}}).Peer.ID, "r2")
			}
		}},
		{"record_success_updates_latency", func(t *testing.T) { // bites: it becomes healthy, it was not
			r := two(t)
			want(t, "health before", r.peer("r1").Health, Unknown)
			for range 5 {
				r.to("r1", selection.Success, 15*time.Millisecond)
			}
			want(t, "latency", r.peer("r1").Latency, 15*time.Millisecond)
			want(t, "health", r.peer("r1").Health, Healthy)
		}},
		{"record_failure_updates_health", func(t *testing.T) { // the document: more than 3
			r := two(t)
			for range 3 {
				r.to("r1", selection.Failure, 0)
			}
			want(t, "failures", r.peer("r1").Consecutive, 3)
			want(t, "health after three", r.peer("r1").Health, Degraded)
			r.to("r1", selection.Failure, 0)
			want(t, "health after four", r.peer("r1").Health, Out)
		}},
		{"failure_affects_selection_weight", func(t *testing.T) { // bites: the weight, too
			r := two(t)
			before := r.peer("r1")
			r.to("r1", selection.Failure, 0)
			if after := r.peer("r1"); after.Weight >= before.Weight || after.Estimate <= before.Estimate {
				t.Errorf("before %+v, after %+v", before, after)
			}
		}},
		{"get_healthy_peers", func(t *testing.T) { // bites: and only they are used
			r := two(t)
			for range 4 {
				r.to("r1", selection.Failure, 0)
			}
			want(t, "used", r.traffic(10, nil), map[string]int{"r2": 10})
		}},
		{"get_peers_by_health", func(t *testing.T) {
			r := newRig(t, config()).update(relays(1))
			for range 4 {
				r.to("r1", selection.Failure, 0)
			}
			want(t, "health of one that no other can replace", r.peer("r1").Health, Unhealthy)
		}},
		{"locality_filter_initializes_with_config", func(t *testing.T) { // bites: it filters
			r := newRig(t, local()).update(fleet(3, 3, 3))
			got := r.status().Candidates
			slices.Sort(got)
			want(t, "candidates", got, []string{"r1", "r2", "r3"})
		}},
		{"update_peer_locality", func(t *testing.T) { // bites: and is no candidate any more
			r := newRig(t, local()).update(fleet(4, 0, 0))
			moved := fleet(4, 0, 0)
			moved[3].Datacenter, moved[3].Region = "us-west-2a", "us-west-2"
			r.update(moved)
			want(t, "tier", r.peer("r4").Tier, affinity.Global)
			want(t, "a candidate", slices.Contains(r.status().Candidates, "r4"), false)
		}},
		{"get_metrics_snapshot", func(t *testing.T) { // bites: numbers, not names
			want(t, "connections", newRig(t, config()).update(relays(6)).status().Connections, Connections{Primary: 3, Backup: 2})
		}},
		{"decay_failures", func(t *testing.T) { // bites: decayed >= 0 always held
			r := two(t)
			r.to("r1", selection.Failure, 0)
			rate, estimate := r.peer("r1").ErrorRate, r.peer("r1").Estimate
			r.wait(2 * time.Minute)
			if p := r.peer("r1"); p.ErrorRate > rate/100 || p.Estimate >= estimate || p.Estimate == 0 {
				t.Errorf("%+v, the rate was %v, the estimate %v", p, rate, estimate)
			}
		}},
		{"clear", func(t *testing.T) { // bites: connections, too
			r := two(t).update(nil)
			want(t, "peers", len(r.status().Peers), 0)
			want(t, "connections", len(r.open), 0)
		}},
		{"on_peer_added_callback", func(t *testing.T) {
			want(t, "events", two(t).told(PeerAdded), []string{"peer added r1", "peer added r2"})
		}},
		{"on_peer_removed_callback", func(t *testing.T) {
			r := two(t)
			r.told()
			want(t, "events", r.update(relays(1)).told(PeerRemoved), []string{"peer removed r2"})
		}},
	} {
		t.Run(c.source, c.holds)
	}
}
