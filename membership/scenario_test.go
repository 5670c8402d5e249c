package membership_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/clusterscript"
	"github.com/ringway/ringway/membership"
)

// Every file in testdata is the history of a cluster; its statements are listed in
// [cluster.forms]. Real nodes play it, on unmodified memberlist, under a virtual clock.
func TestEveryHistoryEndsAsItPromises(t *testing.T) {
	// The race detector needs minutes for all. These have between them what members do; how a history
	// ends is tested without it.
	raced := []string{
		"clock_behind", "cut_off_relay", "dns_flaps", "keys_rotated_without_a_worker_no_certificates", "loss_20", "mass_restart_new_addresses",
		"oneway_one_member", "partition_short", "rolling_restart", "scale_down", "slow_consumer", "strangers_with_keys", "worker_crash",
	}
	for _, h := range histories(t) {
		if clusterscript.Raced && !slices.Contains(raced, h.Name) {
			continue
		}
		t.Run(h.Name, func(t *testing.T) {
			t.Parallel()
			play(t, h)
		})
	}
}

// What members promise they promise with certificates as well, where every packet
// is signed. Under the race detector a few short ones are played, in which members come,
// go and vanish; without it, all.
func TestEveryHistoryEndsTheSameWithCertificates(t *testing.T) {
	raced := []string{"blackhole_and_back", "restart_new_address", "rolling_restart"}
	for _, h := range histories(t) {
		switch {
		case h.Has("secure"): // it sets itself how
		case h.Name == "clock_ahead": // clock_ahead_signed ends otherwise, and gives the reason
		case clusterscript.Raced && !slices.Contains(raced, h.Name):
		default:
			t.Run(h.Name, func(t *testing.T) {
				t.Parallel()
				play(t, h.After("secure with keys and certificates"))
			})
		}
	}
}

func histories(t *testing.T) []*clusterscript.History {
	t.Helper()
	all, err := clusterscript.Files("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestManySimultaneousJoinsConvergeThroughThreeSeeds(t *testing.T) { storm(t, "") }

func TestManySimultaneousJoinsConvergeWithCertificates(t *testing.T) {
	storm(t, "secure with keys and certificates")
}

// 200 members with LONG_TESTS, 50 without: 200 take minutes.
func storm(t *testing.T, secured string) {
	t.Parallel()
	workers := 47
	switch {
	case clusterscript.Raced:
		workers = 27
	case os.Getenv("LONG_TESTS") != "":
		workers = 197
	}
	play(t, read(t, fmt.Sprintf(`
		%s
		join 3 relays through r1
		join %d workers through r1, r2, r3 in 2s
		expect agreement within 60s
		wait 30s
		expect agreement
		expect no false deaths
	`, secured, workers)))
}

func read(t *testing.T, text string) *clusterscript.History {
	t.Helper()
	h, err := clusterscript.Read("h.txt", text)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// play runs one history in a bubble of its own.
func play(t *testing.T, h *clusterscript.History) {
	t.Helper()
	var server *membership.NameServer
	if h.Has("dns") {
		server = membership.StartNameServer(t) // real, so outside of the bubble
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(1)
		c.names = server
		defer c.Close()
		if err := c.Play(h, 0, c.forms()); err != nil {
			t.Error(err)
		}
		t.Logf("%v virtual; %d false deaths excused; %v", time.Since(c.Began).Round(time.Second), len(c.deaths), c.Network.Counters())
	})
}

func TestEveryExpectationFailsWhereItDoesNotHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(1)
		defer c.Close()
		err := c.Play(read(t, `
			secure with keys and certificates
			join 2 relays, 3 workers through r1
			expect converged within 10s
			partition r1, r2, w1 | w2
			kill w3
			wait 1m
		`), 0, c.forms())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Refute(read(t, `
			expect agreement
			expect converged
			expect no member sees w1 for 1s
			expect no false deaths
			expect r1 sees 2 members within 1s
			expect r1 does not see w1
			expect r1, w1 see w2
			expect w3 left
			expect w1 failed
			expect r1 is degraded
			expect w2 is not degraded
			expect r1 is refused ""
			expect r1 logged "this text"
			expect r1 refused a peer for "gossip_key"
			expect all have key k2
			expect all leave out w1
		`), c.forms()); err != nil {
			t.Error(err)
		}
	})
}
