package relaypool

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/selection"
)

func (f *fakeFleet) refuses(id string, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse[id] = on
}

func (f *fakeFleet) dialled(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials[id]
}

// One of the peers refuses for a few seconds and then works again; all others leave.
func TestNoRequestFailsForLackOfAConnectionWhileAPeerThatAcceptsOneIsThere(t *testing.T) {
	for _, n := range []int{2, 3} {
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				f, cfg := newFleet(t), config()
				cfg.Rand = rand.New(rand.NewPCG(seed, 0)).Uint64
				p, _ := running(t, f, cfg, Observer{})
				p.Update(relays(n))
				ask := func() {
					began := time.Now()
					l, err := p.Acquire(t.Context(), Request{})
					if err != nil {
						t.Fatalf("%d peers, %d: after %v: %v", n, seed, time.Since(began), err)
					}
					if waited := time.Since(began); waited > cfg.ReplenishMax {
						t.Errorf("%d peers, %d: waited %v", n, seed, waited)
					}
					l.Conn().users.Add(1)
					done(l, selection.Success)
				}
				synctest.Wait()
				time.Sleep(10 * time.Second)
				f.refuses("r1", true)
				f.mu.Lock()
				for w := range f.open {
					if w.peer == "r1" {
						go w.lost(errors.New("reset"))
					}
				}
				f.mu.Unlock()
				for i := range 60 {
					time.Sleep(100 * time.Millisecond)
					ask()
					f.refuses("r1", i < 50)
				}
				p.Update(relays(1))
				for range 20 {
					ask()
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
	}
}

// The health of a peer does not matter where no other can take its requests.
func TestAPeerThatWasEvictedForItsHealthServesWhenNoOtherIsConnected(t *testing.T) {
	r := newRig(t, config()).update(relays(2))
	id := r.status().Primaries[0]
	for range 4 {
		r.to(id, selection.Failure, 0)
	}
	want(t, "health", r.peer(id).Health, Out)
	r.told()
	r.update(slices.DeleteFunc(relays(2), func(p Peer) bool { return p.ID != id }))
	r.wait(100 * time.Millisecond)
	want(t, "primaries without a request", len(r.status().Primaries), 0)
	if _, err := r.Acquire(Request{}, r.now); !errors.Is(err, errNotYet) {
		t.Errorf("the first request: %v, want it to wait", err)
	}
	r.step()
	want(t, "primaries when a request waits", r.status().Primaries, []string{id})
	want(t, "events", r.told(Readmitted, Connected), []string{"readmitted " + id, "connected " + id + " primary"})
}

// The list of peers reports that it lives, and connecting costs little.
func TestAPeerThatRefusesIsTriedAgainWithinTwoSecondsHoweverLongItRefused(t *testing.T) {
	r := newRig(t, config()).update(relays(2))
	r.wait(time.Minute)
	id := r.status().Primaries[0]
	r.refuse[id] = true
	r.Lost(r.linkOf(id), errors.New("reset"), r.now)
	for range 60 {
		r.wait(time.Second)
		if out := r.peer(id).OutUntil.Sub(r.now); out > 2*time.Second {
			t.Fatalf("evicted for %v", out)
		}
	}
	if n := len(r.told(ConnectFailed)); n < 30 || n > 60 {
		t.Errorf("called %d times in a minute", n)
	}
	r.refuse[id] = false
	r.wait(2 * time.Second)
	want(t, "primaries", len(r.status().Primaries), 2)
}

func TestARequestThatWaitsForASilentPeerGetsTheOneThatAccepts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.takes["r1"], f.takes["r2"] = time.Hour, 50*time.Millisecond
		f.refuse["r2"] = true
		p, _ := running(t, f, config(), Observer{})
		p.Update(relays(2))
		time.AfterFunc(3*time.Second, func() { f.refuses("r2", false) })
		began := time.Now()
		l := use(t, p, Request{})
		want(t, "peer", l.Peer().ID, "r2")
		if waited := time.Since(began); waited > 3600*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		done(l, selection.Success)
		for _, peer := range p.Status().Peers {
			want(t, "requests of "+peer.ID, peer.Requests, map[string]uint64{"r1": 0, "r2": 1}[peer.ID])
		}
	})
}

// A relay that starts may refuse the first connection.
func TestARequestWaitsForThreeConnectionsToTheOnlyPeer(t *testing.T) {
	for refused, served := range map[int]bool{2: true, 3: false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.refuse["r1"], f.takes["r1"] = true, 10*time.Millisecond // so that the request waits for the first call, too
			p, _ := running(t, f, config(), Observer{OnEvent: func(e Event) {
				if e.Kind == ConnectFailed && f.dialled("r1") == refused {
					f.refuses("r1", false)
				}
			}})
			p.Update(relays(1))
			l, err := p.Acquire(t.Context(), Request{})
			if err == nil {
				l.Release()
			}
			if (err == nil) != served || err != nil && (!errors.Is(err, ErrUnavailable) || !errors.Is(err, errRefused)) {
				t.Errorf("refused %d times: %v, want it to be served: %v", refused, err, served)
			}
		})
	}
}

// A request that finds no peer connected asks for a step, which may readmit a peer. The request
// may end before that step.
func TestAReleaseKeepsTheStepThatAnAcquireAskedFor(t *testing.T) {
	r := newRig(t, config())
	r.hold = true
	r.update(relays(1))
	tk, err := r.Acquire(Request{}, r.now)
	if err != nil {
		t.Fatal(err)
	}
	r.Release(tk, r.now)
	want(t, "a step is due", r.pending(), true)
}

// The near peers lose their connections and refuse. Of the farther ones, as many as requests need are called
// meanwhile. They are not needed any more when the near ones count as usable again, which the step behind
// the question of a request finds.
func TestARequestWhoseConnectionIsGivenUpWhileItAsksGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, cfg := newFleet(t), config()
		cfg.Datacenter, cfg.Region = "a", "eu"
		p, _ := running(t, f, cfg, Observer{})
		peers := relays(13)
		for i := range peers {
			switch place := &peers[i]; {
			case i == 0:
				place.Datacenter, place.Region = "a", "eu"
			case i < 3:
				place.Datacenter, place.Region = "b", "eu"
			default:
				place.Datacenter, place.Region = "c", "us"
				f.takes[place.ID] = time.Hour
			}
		}
		p.Update(peers)
		p.Resize(12)
		synctest.Wait()
		for _, id := range []string{"r1", "r2", "r3"} {
			f.refuses(id, true)
		}
		f.mu.Lock()
		for w := range f.open {
			go w.lost(errors.New("reset"))
		}
		f.mu.Unlock()
		time.Sleep(600 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if l, err := p.Acquire(ctx, Request{}); err == nil {
			l.Release()
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
