package presence

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// wanted reports whether a proof of this life is asked of any relay.
func wanted(wants map[string][]instance, i instance) bool {
	for _, of := range wants {
		if slices.Contains(of, i) {
			return true
		}
	}
	return false
}

func TestARecordThatTheCatalogueHasDroppedIsWantedAgain(t *testing.T) {
	f := threeList(func(*listed) {})
	t.Cleanup(f.lines.Stop)
	clear(f.records)
	w1 := instance{"w1", 7}
	f.kept("w1", 7, 5)
	if chooseAll(f); f.best["w1"].instance != w1 {
		t.Fatalf("with its record the worker is not chosen: %+v", f.best)
	}
	f.kept("w1", 7, 0)
	if wants := f.choose(time.Now()); !wanted(wants, w1) || f.missing != 1 {
		t.Errorf("without it wanted are %v, missing %d", wants, f.missing)
	}
}

// A relay that has the session has the proof, and asks no other one for it.
func TestARecordOfTheOwnListThatTheCatalogueHasDroppedIsTakenAgain(t *testing.T) {
	f := viewOf("r1", 100)
	t.Cleanup(f.lines.Stop)
	w := worker("w1", 7, 5)
	taken := 0
	f.take = func(context.Context, []byte) (string, uint64, uint64, error) {
		taken++
		f.kept("w1", 7, 5)
		return "w1", 7, 5, nil
	}
	if _, err := f.takeRecord(t.Context(), w.instance, []byte{1}); err != nil {
		t.Fatal(err)
	}
	f.put(w, proof{instance: w.instance, record: []byte{1}})
	base := membership.NewSnapshot(1, "r1", []membership.Member{{ID: "r1", Epoch: 1, Role: identity.RoleRelay}})
	f.merge(t.Context(), base)
	f.kept("w1", 7, 0)
	f.merge(t.Context(), base)
	f.running.Wait()
	f.merge(t.Context(), base)
	if _, there := f.Snapshot().Get("w1"); taken != 2 || !there {
		t.Errorf("taken %d times, member %t", taken, there)
	}
}

// All relays of a worker list its new certificate before the proof of it has come.
func TestAWorkerThatRenewsItsCertificateStaysAMemberEverywhere(t *testing.T) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	source := func(role identity.Role, node string) *identity.Source {
		s, err := authority.Source(identity.Claims{Role: role, Cluster: "shop", Environment: "prod", Node: node}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	f := viewOf("r4", 100)
	t.Cleanup(f.lines.Stop)
	f.cfg.Identity, f.certificates = source(identity.RoleRelay, "r4"), map[keyID]*identity.Certified{}
	before, after := source(identity.RoleWorker, "w1"), source(identity.RoleWorker, "w1")
	f.kept("w1", 7, 5)
	list := func(s *identity.Source) {
		for _, relay := range []string{"r1", "r2", "r3"} {
			w := worker("w1", 7, 5)
			w.key = identity.KeyID(s.Chain()[0])
			f.listOf(relay).put(w)
			f.changed("w1")
		}
	}
	learn := func(s *identity.Source) {
		if _, err := f.learn("w1", s.Chain()); err != nil {
			t.Fatal(err)
		}
	}
	list(before)
	learn(before)
	if f.choose(time.Now()); f.best["w1"].key != identity.KeyID(before.Chain()[0]) {
		t.Fatalf("before: %+v", f.best)
	}
	list(after)
	wants := f.choose(time.Now())
	if f.best["w1"].key != identity.KeyID(before.Chain()[0]) || !wanted(wants, instance{"w1", 7}) {
		t.Errorf("until the proof comes: chosen %+v, wanted %v", f.best, wants)
	}
	learn(after)
	if f.choose(time.Now()); f.best["w1"].key != identity.KeyID(after.Chain()[0]) || f.missing != 0 {
		t.Errorf("after it has come: %+v, missing %d", f.best, f.missing)
	}
}

// What a recheck costs depends on the certificates that changed, and not on workers times relays.
func TestOnlyWorkersWhoseCertificateChangedItsStandingAreChosenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 2 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		source := func(role identity.Role, node string, validity time.Duration) *identity.Source {
			s, err := authority.Source(identity.Claims{Role: role, Cluster: "shop", Environment: "prod", Node: node}, validity)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		f := viewOf("r4", 100)
		f.cfg.Identity, f.certificates = source(identity.RoleRelay, "r4", 2*time.Hour), map[keyID]*identity.Certified{}
		for id, validity := range map[string]time.Duration{"w1": time.Hour, "w2": 2 * time.Hour} {
			s := source(identity.RoleWorker, id, validity)
			w := worker(id, 7, 5)
			w.key = identity.KeyID(s.Chain()[0])
			f.kept(id, 7, 5)
			f.listOf("r1").put(w)
			if _, err := f.learn(id, s.Chain()); err != nil {
				t.Fatal(err)
			}
		}
		chosen := func() (ids []string) {
			f.recheck()
			stale := slices.Sorted(maps.Keys(f.stale))
			f.choose(time.Now())
			return append(stale, slices.Sorted(maps.Keys(f.best))...)
		}
		for _, step := range []struct {
			after time.Duration
			want  []string // chosen again, and then listed
		}{
			{0, []string{"w1", "w2", "w1", "w2"}},
			{time.Minute, []string{"w1", "w2"}},
			{time.Hour, []string{"w1", "w2"}}, // w1 has expired
			{time.Minute, []string{"w2"}},
		} {
			time.Sleep(step.after)
			if got := chosen(); !slices.Equal(got, step.want) {
				t.Errorf("%v later: %v, want %v", step.after, got, step.want)
			}
		}
		f.lines.Stop()
	})
}

// The 1,025th worker that leaves in order, and those that leave with it, are not taken for failed.
func TestWorkersThatLeaveInOrderHaveLeftHoweverManyHaveBefore(t *testing.T) {
	f := viewOf("r4", 10_000)
	t.Cleanup(f.lines.Stop)
	base := membership.NewSnapshot(1, "r4", []membership.Member{{ID: "r4", Epoch: 1, Role: identity.RoleRelay}})
	l := f.listOf("r1")
	const workers = 2 * departuresKept
	leaves := change{sequence: 2}
	for i := range workers {
		w := worker(fmt.Sprintf("w%04d", i), 7, 5)
		f.kept(w.id, 7, 5)
		l.put(w)
		f.changed(w.id)
		leaves.gone = append(leaves.gone, gone{w.instance, true})
	}
	l.sequence = 1
	f.merge(t.Context(), base)
	if err := f.apply(l, leaves); err != nil {
		t.Fatal(err)
	}
	f.merge(t.Context(), base)
	for _, d := range f.Snapshot().Departures() {
		if d.Reason != membership.Left {
			t.Fatalf("%s has %s", d.Member.ID, d.Reason)
		}
	}
	if n := len(f.Snapshot().Departures()); n != departuresKept {
		t.Errorf("%d departures, want %d", n, departuresKept)
	}
	if f.merge(t.Context(), base); len(f.left) > departuresKept {
		t.Errorf("%d notices of workers that are gone are kept", len(f.left))
	}
}

// Gossip takes up to a minute to find that a relay is cut off; until then silence proves nothing.
func TestARelayThatHearsNoOtherKeepsTheirLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := viewOf("r4", 100)
		t.Cleanup(f.lines.Stop)
		snapshot := membership.NewSnapshot(1, "r4", nil)
		relays := []string{"r1", "r2", "r3"}
		for i, relay := range relays { // whose beats come at different times
			f.listOf(relay).put(worker("w"+relay, 7, 5))
			f.lists[relay].heard = time.Now().Add(-time.Duration(i) * 5 * time.Second / 2)
		}
		for range 12 {
			time.Sleep(5 * time.Second)
			for _, relay := range relays {
				if f.expire(f.lists[relay], snapshot, time.Now()); len(f.lists[relay].workers) == 0 {
					t.Fatalf("the list of %s is empty after a minute in which no relay was heard", relay)
				}
			}
		}
		if f.expire(f.lists["r1"], snapshot, time.Now().Add(-aloneLife)); len(f.lists["r1"].workers) == 0 {
			t.Error("the attempt that has failed began long ago, and a new one has not")
		}
		f.lists["r1"].heard = time.Now()
		if f.expire(f.lists["r2"], snapshot, time.Now()); len(f.lists["r2"].workers) > 0 {
			t.Error("r1 is heard, r2 has not been for a minute, and its list counts")
		}
		time.Sleep(aloneLife)
		if f.expire(f.lists["r3"], snapshot, time.Now()); len(f.lists["r3"].workers) > 0 {
			t.Error("a list counts although gossip has its relay alive and it has been silent for minutes")
		}
	})
}

func TestAMemberHasTwoOfThePlacesForReadersOfTheList(t *testing.T) {
	f := viewOf("r1", 100)
	t.Cleanup(f.lines.Stop)
	f.feeds = map[*feed]struct{}{}
	ended := map[int]chan struct{}{}
	read := func(n int, peer string) {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		ended[n] = make(chan struct{})
		go func() {
			defer close(ended[n])
			f.serve(t.Context(), membership.Peer{ID: peer, Role: identity.RoleObserver}, near)
		}()
		if err := far.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Read(make([]byte, 64)); err != nil { // it has a place, and its list comes
			t.Fatalf("reader %d: %v", n, err)
		}
	}
	for n := range 3 {
		read(n, "o1")
	}
	<-ended[0]
	read(3, "r2")
	f.mu.Lock()
	places := map[string]int{}
	for one := range f.feeds {
		places[one.peer]++
	}
	f.mu.Unlock()
	if places["o1"] != 2 || places["r2"] != 1 {
		t.Errorf("%v", places)
	}
	if n := testutil.ToFloat64(f.metrics.failed.WithLabelValues(problemReplaced)); n != 1 {
		t.Errorf("%v streams were counted as replaced", n)
	}
}
