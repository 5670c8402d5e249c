package selection

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// openSession opens a session whose handshake takes as long as that of the endpoint, and
// which stays open.
func (r *rig) openSession(excluded *Exclusion, handshake map[string]time.Duration) Pick[any] {
	r.t.Helper()
	p, err := r.PickSession(r.now, excluded, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.wait(handshake[p.ID()])
	return r.Answered(p, r.now, Success)
}

// inFlight returns the requests in flight by endpoint.
func (r *rig) inFlight() map[string]int {
	out := map[string]int{}
	for _, s := range r.Stats(r.now) {
		out[s.ID] = s.InFlight
	}
	return out
}

func TestSessionsAreEvenlySpreadHoweverFastTheHandshakesAre(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(3))
	r.settle()
	handshake := map[string]time.Duration{"w0": time.Millisecond, "w1": 2 * time.Millisecond, "w2": 4 * time.Millisecond}
	for n := range 72 {
		r.openSession(nil, handshake)
		if n%10 == 0 {
			r.Refresh(r.now)
		}
	}
	for id, n := range r.inFlight() {
		if n != 24 {
			t.Errorf("%s has %d of 72 sessions", id, n)
		}
	}
}

// The sessions of cookies are short requests: their endpoints have nothing in flight between them.
// Those that joined a moment later must not lose every comparison because their slow start is one.
func TestShortSessionsReachEndpointsThatJoinedOneAfterTheOther(t *testing.T) {
	r := newRig(t, DefaultConfig())
	for n := range 4 {
		r.update(rangeOf(n + 1))
		r.wait(100 * time.Millisecond)
	}
	homes := map[string]int{}
	for range 400 {
		p, err := r.PickSession(r.now, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Done(p, r.now, Result{Outcome: Success})
		homes[p.ID()]++
	}
	for _, e := range rangeOf(4) {
		if homes[e.ID] < 20 {
			t.Errorf("%s has %d of 400 sessions", e.ID, homes[e.ID])
		}
	}
}

func TestTheSessionsThatMoveGoToTheWorkerThatHasNone(t *testing.T) {
	r := newRig(t, DefaultConfig())
	const others, each = 49, 24
	r.update(rangeOf(others + 1)[:others])
	r.settle()
	var open []Pick[any]
	for range others * each {
		open = append(open, r.openSession(nil, nil))
	}
	r.update(rangeOf(others + 1)) // the last one is new
	r.settle()
	for range 23 {
		r.Done(open[0], r.now, Success)
		open = open[1:]
		if p := r.openSession(nil, nil); p.ID() != fmt.Sprintf("w%d", others) {
			t.Fatalf("a session moved to %s, which has %d", p.ID(), r.inFlight()[p.ID()])
		}
	}
}

func TestSessionsFollowTheWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		seed := rapid.Uint64().Draw(t, "seed")
		cfg.Rand = rand.New(rand.NewPCG(seed, 1)).Uint64
		b, err := NewBalancer[any](cfg)
		if err != nil {
			t.Fatal(err)
		}
		endpoints := rangeOf(rapid.IntRange(1, 8).Draw(t, "endpoints"))
		total := 0.0
		for i := range endpoints {
			endpoints[i].Weight = float64(rapid.IntRange(1, 10).Draw(t, "weight"))
			total += endpoints[i].Weight
		}
		if err := b.Update(endpoints, 0); err != nil {
			t.Fatal(err)
		}
		now := Instant(time.Minute)
		sessions := rapid.IntRange(0, 400).Draw(t, "sessions")
		for range sessions {
			if _, err := b.PickSession(now, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		sum := 0
		for _, s := range b.Stats(now) {
			sum += s.InFlight
			share := float64(sessions) * s.Weight / total
			if off := float64(s.InFlight) - share; off > 2 || off < -2 {
				t.Errorf("%s with the weight %v of %v has %d of %d sessions", s.ID, s.Weight, total, s.InFlight, sessions)
			}
		}
		if sum != sessions {
			t.Errorf("%d of %d sessions", sum, sessions)
		}
	})
}

func TestAnEndpointThatFailsIsNoSinkholeForSessions(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(2)) // of two, none may be evicted
	r.settle()
	tries := 0
	for range 400 {
		var tried Exclusion
		for {
			p, err := r.PickSession(r.now, &tried, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.wait(5 * time.Millisecond)
			if p.ID() == "w1" {
				r.Answered(p, r.now, Success)
				break
			}
			tries++
			r.Done(p, r.now, Failure)
			p.AddTo(&tried)
		}
		r.Refresh(r.now)
	}
	if tries > 20 {
		t.Errorf("400 sessions were tried %d times at an endpoint that fails and therefore has none", tries)
	}
}

func TestAnEndpointThatHangsIsNoSinkholeForSessions(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(2))
	r.settle()
	var hanging []Pick[any]
	for range 200 {
		p, err := r.PickSession(r.now, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.wait(5 * time.Millisecond)
		if p.ID() == "w0" {
			hanging = append(hanging, p)
		} else {
			r.Answered(p, r.now, Success)
		}
		r.Refresh(r.now)
	}
	if len(hanging) > 40 { // those of the first 100 ms, while nothing shows that it hangs, are 20 at most
		t.Errorf("%d of 200 sessions wait for an endpoint that hangs", len(hanging))
	}
}

// A pause of 200 ms that is over is no hang: the session it delayed stays for days.
func TestAPauseDuringAHandshakeDoesNotKeepSessionsAway(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(2))
	r.settle()
	for _, id := range []string{"w1", "w1", "w1", "w0"} {
		p := r.pickFrom(id)
		if id == "w0" {
			r.wait(200 * time.Millisecond)
		}
		r.Answered(p, r.now, Success)
	}
	r.Refresh(r.now)
	if id := r.openSession(nil, nil).ID(); id != "w0" {
		t.Errorf("the next session went to %s", id)
	}
}

func TestSessionsPassOverFullExcludedAndEvictedEndpoints(t *testing.T) {
	r := newRig(t, DefaultConfig())
	endpoints := rangeOf(4)
	endpoints[0].Limit = 1
	r.update(endpoints)
	r.settle()
	r.requests(4, "w1", time.Millisecond, Failure)
	var tried Exclusion
	r.pickFrom("w2").AddTo(&tried)
	got := map[string]int{}
	for range 10 {
		got[r.openSession(&tried, nil).ID()]++
	}
	if got["w0"] != 1 || got["w3"] != 9 {
		t.Errorf("sessions went to %v", got)
	}
}

func TestAnEvictedEndpointReturnsAlsoIfThereAreOnlySessions(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(3))
	r.settle()
	r.requests(4, "w1", time.Millisecond, Failure)
	for n := 0; ; n++ {
		if n == 1000 {
			t.Fatal("no session tries it")
		}
		r.wait(time.Second)
		r.Refresh(r.now)
		p := r.openSession(nil, nil)
		if p.ID() == "w1" {
			break
		}
		r.Done(p, r.now, Success)
	}
	for _, s := range r.Stats(r.now) {
		if s.State != Active {
			t.Errorf("%s is %s", s.ID, s.State)
		}
	}
}

func TestThePickOfASessionIsExplained(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(3))
	r.settle()
	var d Decision
	p, err := r.PickSession(r.now, nil, &d)
	if err != nil || d.Winner.ID != p.ID() || d.Reason == "" || d.Candidates != 3 || d.Range != 3 {
		t.Errorf("%v, %+v", err, d)
	}
	if n := testing.AllocsPerRun(100, func() {
		p, err := r.PickSession(r.now, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Done(p, r.now, Success)
	}); n != 0 {
		t.Errorf("a pick allocates %v times", n)
	}
	empty := newRig(t, DefaultConfig())
	if _, err := empty.PickSession(0, nil, &d); err == nil || d.Reason != err.Error() {
		t.Errorf("%v, %+v", err, d)
	}
}

func BenchmarkPickSession(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := newRig(b, DefaultConfig())
			r.update(rangeOf(n))
			r.settle()
			for range n { // one session each, so that all are equal: the most draws
				if _, err := r.PickSession(r.now, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				p, err := r.PickSession(r.now, nil, nil)
				if err != nil {
					b.Fatal(err)
				}
				r.Done(p, r.now, Cancelled)
			}
		})
	}
}
