package relaypool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
)

func TestThreePrimariesAndTwoBackupsAreConnectedImmediately(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	s := r.status()
	if len(s.Primaries) != 3 || len(s.Backups) != 2 || len(s.Joining) != 0 {
		t.Errorf("primaries %v, backups %v, joining %v: want 3, 2 and none", s.Primaries, s.Backups, s.Joining)
	}
	want(t, "connections", s.Connections, Connections{Primary: 3, Backup: 2})
}

func TestAFleetThatIsTooSmallGetsWhatThereIs(t *testing.T) {
	for n, places := range map[int][2]int{1: {1, 0}, 3: {3, 0}, 4: {3, 1}, 5: {3, 2}} {
		s := newRig(t, config()).update(relays(n)).status()
		if got := [2]int{len(s.Primaries), len(s.Backups)}; got != places {
			t.Errorf("of %d peers: %v primaries and backups, want %v", n, got, places)
		}
	}
	r := newRig(t, config()).update(relays(2))
	r.update(relays(5))
	want(t, "after it grew", len(r.status().Primaries)+len(r.status().Backups), 5)
}

func TestPrimariesTakeTurns(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	for _, n := range []int{1, 2, 100, 301} {
		got := r.traffic(n, nil)
		low, high := n, 0
		for _, id := range r.status().Primaries {
			low, high = min(low, got[id]), max(high, got[id])
		}
		if high-low > 1 {
			t.Errorf("%d requests: %v, want equal counts ±1", n, got)
		}
	}
}

func TestAnEvictedPrimaryIsReplacedByABackupImmediatelyAndTheBackupAfterADelay(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	before := r.status()
	b, d := before.Primaries[1], before.Backups[0]
	r.told()
	evictedAt := r.now
	for range 4 {
		tk := r.request(Request{Exclude: slices.DeleteFunc(slices.Clone(before.Primaries), func(id string) bool { return id == b })})
		r.Report(tk, selection.Failure, 0, r.now)
		r.Release(tk, r.now)
	}
	after := r.status() // before any Step
	want(t, "primaries", after.Primaries, []string{before.Primaries[0], d, before.Primaries[2]})
	want(t, "backups", after.Backups, before.Backups[1:])
	r.step()
	want(t, "backups before the delay", r.status().Backups, before.Backups[1:])
	for len(r.status().Backups) < 2 {
		r.now = r.next
		r.step()
	}
	if waited := r.now.Sub(evictedAt); waited < 100*time.Millisecond || waited > 500*time.Millisecond {
		t.Errorf("replenished after %v, want 100ms to 500ms", waited)
	}
	f := r.status().Backups[1]
	want(t, "events", r.told(Evicted, Promoted, Chosen, Connected), []string{
		"evicted " + b + " consecutive_failures primary",
		"promoted " + d + " primary",
		"chosen " + f, "connected " + f + " backup",
	})
	if slices.Contains(slices.Concat(before.Primaries, before.Backups), f) {
		t.Errorf("%s was in the pool already", f)
	}
}

// Every place waits for itself, at random between the bounds, however many are lost.
func TestReplacementsComeBetweenAHundredAndFiveHundredMilliseconds(t *testing.T) {
	r := newRig(t, config()).update(relays(30))
	r.wait(2 * time.Second)
	shortest, longest := time.Hour, time.Duration(0)
	for i := range 300 {
		lost := r.now
		n := 1 + i%3
		for range n {
			r.Lost(r.linkOf(r.status().Primaries[0]), errRefused, r.now)
		}
		r.step().told()
		for filled := 0; filled < n; {
			r.now = r.next
			for range r.step().told(Connected) {
				filled++
				shortest, longest = min(shortest, r.now.Sub(lost)), max(longest, r.now.Sub(lost))
			}
		}
		r.wait(2 * time.Second)
	}
	if shortest < 100*time.Millisecond || shortest > 120*time.Millisecond || longest > 500*time.Millisecond || longest < 480*time.Millisecond {
		t.Errorf("600 replacements came after %v to %v", shortest, longest)
	}
}

func TestOnlyTheFourthFailureInARowEvicts(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	id := r.status().Primaries[0]
	fail := func() {
		for range 3 {
			r.to(id, selection.Failure, 0)
		}
		want(t, "role after three failures", r.peer(id).Role, Primary)
	}
	fail()
	r.to(id, selection.Success, time.Millisecond)
	r.wait(time.Minute) // or the share of failures would evict
	fail()
	r.to(id, selection.Failure, 0)
	want(t, "role after the fourth", r.peer(id).Role, NoRole)
}

func TestCancelledAndShedRequestsAreNoFailures(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	id := r.status().Primaries[0]
	for range 3 {
		r.to(id, selection.Failure, 0)
	}
	for range 50 {
		r.to(id, selection.Cancelled, time.Hour)
	}
	want(t, "consecutive failures after cancelled requests", r.peer(id).Consecutive, 3)
	r.to(id, selection.Shed, time.Hour)
	want(t, "after a shed one: it answers", r.peer(id).Consecutive, 0)
	want(t, "latency", r.peer(id).Latency, 0)
	want(t, "role", r.peer(id).Role, Primary)
}

// A hundred requests a second for ten seconds at each share of failures.
func TestOnePercentOfFailuresEvictsNoPeerAndTwentyPercentTheFailingOne(t *testing.T) {
	for _, c := range []struct {
		name       string
		all, first float64
		evicted    bool
	}{
		{"none fails", 0, 0, false},
		{"1 % background", 0.01, 0.01, false},
		{"3 % background", 0.03, 0.03, false},
		{"one fails at 20 %", 0, 0.2, true},
		{"one fails at 40 % next to 1 %", 0.01, 0.4, true},
		{"all fail at 40 %", 0.4, 0.4, false},
		{"all fail always", 1, 1, false},
	} {
		cfg := config()
		r := newRig(t, cfg).update(relays(8))
		first := r.status().Primaries[0]
		r.told()
		r.traffic(1000, func(id string) (selection.Outcome, time.Duration) {
			share := c.all
			if id == first {
				share = c.first
			}
			if float64(cfg.Rand()%10_000)/10_000 < share {
				return selection.Failure, 10 * time.Millisecond
			}
			return selection.Success, 10 * time.Millisecond
		})
		evicted := r.told(Evicted)
		guilty := len(evicted) > 0 && strings.HasPrefix(evicted[0], "evicted "+first+" error_rate")
		if c.evicted && !guilty || !c.evicted && len(evicted) > 0 {
			t.Errorf("%s: %v", c.name, evicted)
		}
	}
}

func TestASlowPeerIsEvictedAndASlowFleetIsNot(t *testing.T) {
	for _, c := range []struct {
		name         string
		others, slow time.Duration
		evicted      bool
	}{
		{"four times the others", 20 * time.Millisecond, 80 * time.Millisecond, true},
		{"twice the others", 20 * time.Millisecond, 40 * time.Millisecond, false},
		{"ten times, but less than three times the least baseline", time.Millisecond, 10 * time.Millisecond, false},
		{"all are slow", 900 * time.Millisecond, time.Second, false},
	} {
		r := newRig(t, config()).update(relays(8))
		first := r.status().Primaries[0]
		r.told()
		r.traffic(90, func(id string) (selection.Outcome, time.Duration) {
			if id == first {
				return selection.Success, c.slow
			}
			return selection.Success, c.others
		})
		evicted := r.told(Evicted)
		if want := []string{"evicted " + first + " latency primary"}; c.evicted && !slices.Equal(evicted, want) || !c.evicted && len(evicted) > 0 {
			t.Errorf("%s: %v", c.name, evicted)
		}
	}
	alone := newRig(t, config()).update(relays(1))
	alone.traffic(90, func(string) (selection.Outcome, time.Duration) { return selection.Success, time.Second })
	want(t, "the only peer", alone.told(Evicted), []string(nil))
}

func TestOneLongRequestEvictsNoPeer(t *testing.T) {
	for at := range 20 {
		r := newRig(t, config()).update(relays(8))
		first, n := r.status().Primaries[0], 0
		r.traffic(600, func(id string) (selection.Outcome, time.Duration) {
			if id == first {
				if n++; n == 101+at {
					return selection.Success, time.Hour
				}
			}
			return selection.Success, time.Millisecond
		})
		for _, e := range r.told(Evicted) {
			if strings.Contains(e, string(Latency)) {
				t.Errorf("as request %d: %s", 101+at, e)
			}
		}
	}
}

func TestTheLastPeerIsNeverEvictedForItsHealth(t *testing.T) {
	r := newRig(t, config()).update(relays(1))
	r.traffic(100, func(string) (selection.Outcome, time.Duration) { return selection.Failure, time.Millisecond })
	want(t, "primaries", r.status().Primaries, []string{"r1"})
	want(t, "its health", r.peer("r1").Health, Unhealthy)
}

func TestAnEvictedPeerIsAnnouncedAgainAndUsedAgain(t *testing.T) {
	r := newRig(t, config()).update(relays(2))
	id := r.status().Primaries[0]
	for range 4 {
		r.to(id, selection.Failure, 0)
	}
	p := r.peer(id)
	want(t, "health", p.Health, Out)
	if out := p.OutUntil.Sub(r.now); out < time.Second || out > 2*time.Second {
		t.Errorf("out for %v, want 1s to 2s the first time", out)
	}
	if !strings.Contains(p.Reason, "4 consecutive failures") {
		t.Errorf("reason %q", p.Reason)
	}
	r.told()
	r.wait(p.OutUntil.Sub(r.now) - 1)
	want(t, "candidates before", r.status().Candidates, r.status().Primaries)
	r.wait(1)
	want(t, "events", r.told(Readmitted, Connected), []string{"readmitted " + id, "connected " + id + " primary"})
	want(t, "consecutive failures", r.peer(id).Consecutive, 0)
}

func TestEvictionsGrowLongerUntilThePeerStaysHealthy(t *testing.T) {
	r := newRig(t, config()).update(relays(2))
	id := r.status().Primaries[0]
	evict := func() time.Duration {
		for range 4 {
			r.to(id, selection.Failure, 0)
		}
		return r.peer(id).OutUntil.Sub(r.now)
	}
	for k := range 8 {
		out := evict()
		high := min(30*time.Second, 2*time.Second<<k)
		if out < high/2 || out > high {
			t.Errorf("eviction %d lasts %v, want %v to %v", k+1, out, high/2, high)
		}
		r.wait(out + time.Second)
	}
	r.wait(30 * time.Second)
	if out := evict(); out > 2*time.Second {
		t.Errorf("after 30 s without a failure: %v", out)
	}
}

func TestABrokenConnectionCostsThePlaceImmediatelyAndIsTriedAgainSoon(t *testing.T) {
	r := newRig(t, config()).update(relays(5))
	r.wait(time.Minute)
	before := r.status()
	r.told()
	id := before.Primaries[2]
	r.Lost(r.linkOf(id), errors.New("reset"), r.now)
	want(t, "primaries", r.status().Primaries, []string{before.Primaries[0], before.Primaries[1], before.Backups[0]})
	r.wait(500 * time.Millisecond)
	want(t, "events", r.told(Evicted, Promoted, Connected), []string{
		"evicted " + id + " lost primary", "promoted " + before.Backups[0] + " primary", "connected " + id + " backup",
	})

	// One that closes immediately is not connected to in a loop.
	r.Lost(r.linkOf(id), errors.New("reset"), r.now)
	want(t, "health of a peer that hung up", r.peer(id).Health, Out)
}

func TestRequestsOnAConnectionThatIsGivenUpMayEnd(t *testing.T) {
	giveUp := map[string]func(r *rig, id string){
		"lost":    func(r *rig, id string) { r.Lost(r.linkOf(id), errors.New("goaway"), r.now) },
		"removed": func(r *rig, id string) { r.update(nil) },
		"evicted": func(r *rig, id string) {
			for range 4 {
				r.to(id, selection.Failure, 0)
			}
		},
		"stale": func(r *rig, id string) { r.wait(time.Hour) },
	}
	for name, do := range giveUp {
		r := newRig(t, config()).update(relays(8))
		r.wait(time.Minute)
		tk := r.request(Request{})
		do(r, tk.Peer.ID)
		r.wait(time.Hour)
		if r.open[tk.Link] == "" {
			t.Errorf("%s: the connection was closed under a request", name)
		}
		r.Release(tk, r.now)
		r.step()
		if r.open[tk.Link] != "" {
			t.Errorf("%s: the connection is still open after its last request", name)
		}
	}
}

func TestAnOldPlaceIsDrawnForAnewAndNothingClosesBeforeTheNewConnectionIsOpen(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	r.told()
	r.wait(53 * time.Minute)
	want(t, "events before 0.9 h", r.told(Evicted, Refreshed), []string(nil))
	old := r.status()
	r.hold = true
	r.wait(7 * time.Minute)
	if got := len(r.opening); got != 5 {
		t.Fatalf("%d connections are being opened, want one for each place", got)
	}
	s := r.status()
	want(t, "places while they open", fmt.Sprint(s.Primaries, s.Backups), fmt.Sprint(old.Primaries, old.Backups))
	r.hold = false
	r.step()
	s = r.status()
	want(t, "connections", s.Connections, Connections{Primary: 3, Backup: 2})
	replaced := r.told(Evicted, Refreshed)
	want(t, "replaced", len(replaced), 5)
	for _, e := range replaced {
		if !strings.Contains(e, " stale ") {
			t.Error(e)
		}
	}
}

func TestAnOldPlaceIsDrawnForAgainWhenItsSuccessorGoesBeforeItIsConnected(t *testing.T) {
	cfg := config()
	cfg.Primaries, cfg.Backups, cfg.MaxTotal = 1, 0, 2
	r := newRig(t, cfg).update(relays(30))
	old := r.status().Primaries[0]
	r.hold = true
	r.wait(time.Hour)
	next := r.status().Joining
	if len(next) != 1 { // itself, with other random numbers
		t.Fatalf("joining %v in place of %s", next, old)
	}
	r.update(slices.DeleteFunc(relays(30), func(p Peer) bool { return p.ID == next[0] }))
	want(t, "primary", r.status().Primaries, []string{old})
	r.hold = false
	r.wait(time.Second)
	want(t, "replaced", len(r.told(Evicted, Refreshed)), 1)
}

func TestLoadReachesPeersThatCameLater(t *testing.T) {
	r := newRig(t, config()).update(relays(3))
	r.wait(time.Minute)
	r.update(relays(40))
	was := r.status()
	r.wait(time.Hour)
	changed := 0
	for _, id := range r.status().Primaries {
		if !slices.Contains(was.Primaries, id) {
			changed++
		}
	}
	if changed == 0 {
		t.Errorf("an hour after 37 peers came: %v", r.status().Primaries)
	}
}

func TestAPeerThatRefusesIsNotCalledInACircleAndAnotherTakesThePlace(t *testing.T) {
	r := newRig(t, config())
	r.refuse["r1"], r.refuse["r2"] = true, true
	r.update(relays(7))
	r.wait(10 * time.Second)
	s := r.status()
	want(t, "places", len(s.Primaries)+len(s.Backups), 5)
	failed := 0
	for _, e := range r.told(ConnectFailed) {
		if strings.HasPrefix(e, "connecting failed r1") {
			failed++
		}
	}
	if failed > 1 { // then five others were connected, and it is not needed
		t.Errorf("r1 was called %d times", failed)
	}

	all := newRig(t, config())
	for _, p := range relays(3) {
		all.refuse[p.ID] = true
	}
	all.update(relays(3))
	_, err := all.Acquire(Request{Exclude: []string{"r1", "r2", "r3"}}, all.now)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "tried again in") {
		t.Errorf("no peer accepts connections: %v", err)
	}
	all.refuse = nil
	all.wait(2 * time.Second)
	want(t, "primaries when they are back", len(all.status().Primaries), 3)
}

func TestAPeerThatIsGoneLosesItsPlaceAndItsKeys(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	id := r.request(Request{Key: "ann"}).Peer.ID
	want(t, "bindings", r.status().Bindings, 1)
	r.told()
	r.update(slices.DeleteFunc(relays(8), func(p Peer) bool { return p.ID == id }))
	if slices.Contains(r.status().Primaries, id) || len(r.status().Primaries) != 3 {
		t.Errorf("primaries %v without %s", r.status().Primaries, id)
	}
	want(t, "bindings", r.status().Bindings, 0)
	want(t, "events", r.told(PeerRemoved, Evicted, CandidatesChanged)[:2], []string{"peer removed " + id, "evicted " + id + " removed primary"})
	if _, err := r.Acquire(Request{}, r.now); err != nil {
		t.Error(err)
	}
	r.update(nil)
	if _, err := r.Acquire(Request{}, r.now); !errors.Is(err, ErrNoPeers) {
		t.Errorf("without peers: %v", err)
	}
}

func TestNoBackupIsPromotedThatLeavesAtTheSameTime(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	s := r.status()
	gone := append(s.Backups[:1:1], s.Primaries[0])
	r.told()
	r.update(slices.DeleteFunc(relays(8), func(p Peer) bool { return slices.Contains(gone, p.ID) }))
	want(t, "events", r.told(Evicted, Promoted), []string{
		"evicted " + gone[0] + " removed backup", "evicted " + gone[1] + " removed primary", "promoted " + s.Backups[1] + " primary",
	})
}

func TestAPeerThatComesBackUnderAnotherAddressIsConnectedThere(t *testing.T) {
	r := newRig(t, config()).update(relays(3))
	moved := relays(3)
	moved[1].Address = "10.9.9.9:7410"
	r.update(moved).wait(time.Second)
	want(t, "primaries", len(r.status().Primaries), 3)
	for range 3 {
		if tk := r.request(Request{}); tk.Peer.ID == "r2" && tk.Peer.Address != "10.9.9.9:7410" {
			t.Errorf("r2 is still used at %s", tk.Peer.Address)
		}
	}
}

func TestBadPeersAreRefusedInOneErrorAndNothingChanges(t *testing.T) {
	r := newRig(t, config()).update(relays(3))
	err := r.Update([]Peer{{ID: "a"}, {Address: "10.0.0.9:1"}, {ID: "a"}}, r.now)
	for _, part := range []string{`the peer at "10.0.0.9:1" has no id`, `peer "a" is given twice`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want it to say %s", err, part)
		}
	}
	want(t, "peers", len(r.status().Peers), 3)
}

func TestARequestThatTriedEveryPrimaryGetsABackupAndThenAnError(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	s := r.status()
	var tried []string
	for range 5 {
		tk := r.request(Request{Exclude: tried})
		if slices.Contains(tried, tk.Peer.ID) {
			t.Fatalf("%s again after %v", tk.Peer.ID, tried)
		}
		tried = append(tried, tk.Peer.ID)
	}
	slices.Sort(tried[:3])
	slices.Sort(s.Primaries)
	want(t, "order", tried, append(s.Primaries, s.Backups...))
	if _, err := r.Acquire(Request{Exclude: tried}, r.now); !errors.Is(err, ErrExcluded) {
		t.Errorf("after all five: %v", err)
	}
}

func (r *rig) linkOf(id string) linkID {
	r.t.Helper()
	for link, peer := range r.open {
		if l := r.links[link]; peer == id && l != nil && l.member != nil {
			return link
		}
	}
	r.t.Fatalf("%s is not connected", id)
	return 0
}

func TestAnUnknownRoleOrKindHasATextAndDoesNotPanic(t *testing.T) {
	want(t, "texts", fmt.Sprint(Role(9), Kind(99)), "role(9) kind(99)")
}

func TestANumberOfPrimariesThatGoesUpAndDownCostsNoConnection(t *testing.T) {
	r := newRig(t, config()).update(relays(20))
	resize := func(n, primaries int) {
		t.Helper()
		r.Resize(n, r.now)
		r.step()
		want(t, "primaries", len(r.status().Primaries), primaries)
		want(t, "backups", len(r.status().Backups), 2)
	}
	first := slices.Concat(r.status().Primaries, r.status().Backups)
	resize(10, 10)
	if used := r.status().Primaries; !slices.Equal(used[:5], first) {
		t.Errorf("the primaries are %v: want those of before, then the backups %v, then others", used, first)
	}
	before := len(r.open)
	for range 20 {
		resize(4, 10)
		r.wait(30 * time.Second)
		resize(10, 10)
		r.wait(30 * time.Second)
	}
	want(t, "connections", len(r.open), before)
	used := r.status().Primaries
	resize(4, 10)
	r.wait(2*time.Minute + 10*time.Second)
	var best []string
	for _, id := range r.status().Candidates {
		if slices.Contains(used, id) && len(best) < 4 {
			best = append(best, id)
		}
	}
	left := r.status().Primaries
	if slices.Sort(best); !slices.Equal(slices.Sorted(slices.Values(left)), best) {
		t.Errorf("the primaries are %v: want those of %v that rank best, %v", left, used, best)
	}
	want(t, "backups", len(r.status().Backups), 2)
}

// placed is a table in a place with few peers, and the peers of its region.
func placed(t *testing.T, near, all int) (*rig, []Peer) {
	cfg := config()
	cfg.Datacenter, cfg.Region = "a", "eu"
	peers := relays(all)
	for i := range peers {
		if peers[i].Datacenter, peers[i].Region = "b", "eu"; i < near {
			peers[i].Datacenter = "a"
		}
	}
	return newRig(t, cfg), peers
}

// One of three near peers restarts. What the others carry must not move to another place.
func TestALostNearPeerMovesAtMostAThirdOfTheRequestsFarAway(t *testing.T) {
	r, peers := placed(t, 3, 9)
	r.Resize(24, r.now)
	r.update(peers)
	near := func() (n int) {
		for _, id := range r.status().Primaries {
			if r.peer(id).Datacenter == "a" {
				n++
			}
		}
		return n
	}
	want(t, "near primaries", near(), 3)
	r.refuse["r1"] = true
	for id, peer := range r.open {
		if peer == "r1" {
			r.Lost(id, errRefused, r.now)
		}
	}
	r.step()
	for range 20 { // it is tried again every one or two seconds
		r.wait(time.Second)
		want(t, "near primaries while one refuses", near(), 2)
		want(t, "primaries while one refuses", len(r.status().Primaries), 3)
		want(t, "backups while one refuses", len(r.status().Backups), 2)
	}
	r.refuse["r1"] = false
	r.wait(time.Minute)
	want(t, "near primaries when it is back", near(), 3)
	want(t, "primaries when it is back", len(r.status().Primaries), 3)
	r.update(peers[1:]) // it goes for good
	r.wait(narrowTime - time.Minute)
	want(t, "primaries for some time", len(r.status().Primaries), 3)
	r.wait(3 * time.Minute)
	want(t, "primaries from then on", len(r.status().Primaries), 8)
}

func TestAPlaceWithFewPeersUsesAsManyFarOnes(t *testing.T) {
	r, peers := placed(t, 2, 100)
	r.Resize(23, r.now)
	r.update(peers)
	want(t, "primaries", len(r.status().Primaries), 23)
}

// In a place with two peers the far ones carry most requests. A third one comes, which refuses for some time.
func TestANearPeerThatComesAndRefusesLeavesFewPlacesToFarOnes(t *testing.T) {
	for _, late := range []bool{false, true} {
		r, peers := placed(t, 3, 9)
		r.Resize(24, r.now)
		r.hold = late // the far ones are being connected when the third comes
		r.update(slices.Delete(slices.Clone(peers), 2, 3))
		if r.refuse["r3"] = true; late {
			for i := 0; i < len(r.opening); {
				if o := r.opening[i]; o.Peer.Datacenter == "a" {
					r.finish(o)
				} else {
					i++
				}
			}
		} else {
			want(t, "primaries", len(r.status().Primaries), 8)
		}
		r.update(peers)
		r.hold = false
		if r.step(); !late {
			r.wait(3 * time.Minute) // a regular ranking
		}
		want(t, "near primaries", len(slices.DeleteFunc(r.status().Primaries, func(id string) bool { return r.peer(id).Datacenter != "a" })), 2)
		want(t, "primaries", len(r.status().Primaries), 3)
		want(t, "backups", len(r.status().Backups), 2)
	}
}

func TestASurplusPrimaryThatIsLostWhileItIsRenewedLeavesNoPlaceTooMany(t *testing.T) {
	cfg := config()
	cfg.Primaries, cfg.Backups = 1, 0
	r := newRig(t, cfg)
	r.Resize(2, r.now)
	r.update(relays(5))
	want(t, "primaries", len(r.status().Primaries), 2)
	for hours := 0; len(r.joining) == 0; hours++ { // a peer may also be renewed by itself
		if hours == 20 {
			t.Fatal("none is replaced by another")
		}
		r.hold = false
		r.wait(10 * time.Minute)
		r.hold = true
		r.wait(50 * time.Minute)
	}
	renewed := r.joining[0].replaces
	r.Resize(1, r.now)
	r.Lost(renewed.links[0].id, errRefused, r.now)
	r.step()
	for len(r.opening) > 0 {
		r.finish(r.opening[0])
		r.step()
	}
	if s := r.status(); len(s.Backups) > 0 || len(s.Primaries) > 2 {
		t.Errorf("primaries %v, backups %v", s.Primaries, s.Backups)
	}
}
