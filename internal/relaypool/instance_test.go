package relaypool

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/selection"
)

func TestAnotherInstanceAtTheSameAddressBeginsWithACleanRecord(t *testing.T) {
	for instance, clean := range map[string]bool{"1": false, "2": true} {
		peers := relays(1)
		peers[0].Instance = "1"
		r := newRig(t, config())
		r.refuse["r1"] = true
		r.update(peers).wait(10 * time.Second)
		if r.peer("r1").Health != Out {
			t.Fatalf("%+v", r.peer("r1"))
		}
		r.refuse["r1"] = false
		peers = relays(1)
		peers[0].Instance = instance
		r.update(peers)
		if got := len(r.status().Primaries) == 1; got != clean {
			t.Errorf("instance %s after 1: connected at once: %v, want %v", instance, got, clean)
		}
	}
}

func TestAllWereTriedWhenNoneIsOpeningAndThereIsAPrimaryOrNoOtherToTry(t *testing.T) {
	r := newRig(t, config())
	want(t, "tried, without peers", r.Tried(), true)
	r.hold = true
	r.update(relays(7))
	for range 5 {
		want(t, "tried, while five are being connected", r.Tried(), false)
		r.refuse[r.opening[0].Peer.ID] = true
		r.finish(r.opening[0])
	}
	want(t, "tried, while two of seven were not", r.Tried(), false)
	r.wait(time.Second / 2)
	want(t, "connecting", len(r.opening), 2)
	r.finish(r.opening[0])
	want(t, "tried, with a primary and one on the way", r.Tried(), false)
	r.refuse[r.opening[0].Peer.ID] = true
	r.finish(r.opening[0])
	want(t, "tried, with one primary out of seven", r.Tried(), true)

	dead := newRig(t, config())
	for _, p := range relays(2) {
		dead.refuse[p.ID] = true
	}
	dead.update(relays(2))
	want(t, "tried, when all refuse", dead.Tried(), true)
}

func TestThePeersRequestsAndFailuresAreCounted(t *testing.T) {
	r := newRig(t, config()).update(relays(1))
	for _, o := range []selection.Outcome{selection.Success, selection.Failure, selection.Shed, selection.Cancelled, selection.Success} {
		r.to("r1", o, time.Millisecond)
	}
	if p := r.peer("r1"); p.Requests != 5 || p.Failures != 1 {
		t.Errorf("%d requests, %d failures, want 5 and 1", p.Requests, p.Failures)
	}
}

func TestARequestWaitsNoLongerThanItsPatience(t *testing.T) {
	for patience, waits := range map[time.Duration]time.Duration{0: 10 * time.Second, 3 * time.Second: 3 * time.Second, time.Minute: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.stubborn = true // or the attempt would end, too
			f.takes["r1"] = time.Hour
			p, err := New(config(), f.dial, Observer{})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Update(relays(1)); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			began := time.Now()
			_, err = p.Acquire(t.Context(), Request{Patience: patience})
			if waited := time.Since(began); !errors.Is(err, ErrUnavailable) || waited != waits {
				t.Errorf("patience %v: waited %v, %v", patience, waited, err)
			}
			stop()
			<-ended
		})
	}
}
