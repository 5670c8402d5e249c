package relaypool

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
)

func TestAKeyStaysWithItsPrimary(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	first := map[string]string{}
	used := map[string]bool{}
	for i := range 30 {
		key := fmt.Sprint("session-", i)
		tk := r.request(Request{Key: key})
		first[key], used[tk.Peer.ID] = tk.Peer.ID, true
		r.end(tk, selection.Success, time.Millisecond)
	}
	want(t, "primaries used", len(used), 3)
	want(t, "bindings", r.status().Bindings, 30)
	for range 5 {
		for key, id := range first {
			tk := r.request(Request{Key: key})
			if tk.Peer.ID != id {
				t.Fatalf("%s went to %s and then to %s", key, id, tk.Peer.ID)
			}
			r.end(tk, selection.Success, time.Millisecond)
		}
	}
}

// A healthy answer must not cost a binding, and a bad peer must not keep it.
func TestAHealthyPeerKeepsItsKeysAndAnEvictedOneLosesThem(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	id := r.request(Request{Key: "ann"}).Peer.ID
	for range 50 {
		r.to(id, selection.Success, time.Millisecond)
		r.wait(time.Second)
	}
	want(t, "bindings of a healthy peer", r.status().Bindings, 1)
	want(t, "peer", r.request(Request{Key: "ann"}).Peer.ID, id)
	r.wait(time.Minute)
	for range 4 {
		r.to(id, selection.Failure, 0)
	}
	want(t, "bindings of an evicted peer", r.status().Bindings, 0)
	other := r.request(Request{Key: "ann"}).Peer.ID
	if other == id {
		t.Errorf("the key is still with %s", id)
	}
	r.wait(4 * time.Minute) // it comes back, and the key does not
	want(t, "peer", r.request(Request{Key: "ann"}).Peer.ID, other)
}

func TestARetryOfASessionGoesElsewhereAndTheKeyStays(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	id := r.request(Request{Key: "ann"}).Peer.ID
	if other := r.request(Request{Key: "ann", Exclude: []string{id}}).Peer.ID; other == id {
		t.Error("the excluded peer was used")
	}
	want(t, "the next request", r.request(Request{Key: "ann"}).Peer.ID, id)
	want(t, "bindings", r.status().Bindings, 1)
}

func TestBindingsEndAfterTheirTimeOrWithoutUse(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		times int
		kept  bool
	}{
		{"used every 4 min for 56 min", 4 * time.Minute, 14, true},
		{"used every 4 min for 60 min", 4 * time.Minute, 15, false},
		{"not used for 5 min", 5 * time.Minute, 1, false},
		{"not used for less", 5*time.Minute - 1, 1, true},
	} {
		b := newBindings(&Config{MaxBindings: 10, BindingTTL: time.Hour, BindingIdle: 5 * time.Minute})
		p := new(peer)
		now := start
		b.bind("ann", p, now)
		var got *peer
		for range c.times {
			now = now.Add(c.every)
			peeked := b.peek("ann", now)
			if got = b.find("ann", now); got != peeked {
				t.Errorf("%s: a look at the binding sees %v, a use %v", c.name, peeked, got)
			}
		}
		if kept := got == p; kept != c.kept {
			t.Errorf("%s: kept is %v", c.name, kept)
		}
		if b.order.Len() != len(b.byKey) || (b.order.Len() == 1) != c.kept {
			t.Errorf("%s: %d bindings are left", c.name, b.order.Len())
		}
	}
}

func TestALookAtABindingIsNoUse(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	id := r.request(Request{Key: "ann"}).Peer.ID
	if got, bound := r.Bound("ann", r.now.Add(r.cfg.BindingIdle-1)); !bound || got != id {
		t.Errorf("ann is bound to %q, want %s", got, id)
	}
	if got, bound := r.Bound("ann", r.now.Add(r.cfg.BindingIdle)); bound {
		t.Errorf("ann is still bound to %s", got)
	}
	if got, bound := r.Bound("bob", r.now); bound {
		t.Errorf("bob is bound to %s", got)
	}
}

func TestTheLeastRecentlyUsedBindingGoesFirst(t *testing.T) {
	b := newBindings(&Config{MaxBindings: 3, BindingTTL: time.Hour, BindingIdle: 5 * time.Minute})
	p := new(peer)
	for i, key := range []string{"a", "b", "c"} {
		b.bind(key, p, start.Add(time.Duration(i)))
	}
	b.find("a", start.Add(10))
	b.bind("d", p, start.Add(11))
	for key, kept := range map[string]bool{"a": true, "b": false, "c": true, "d": true} {
		if (b.find(key, start.Add(12)) != nil) != kept {
			t.Errorf("%s: kept is %v", key, !kept)
		}
	}
	// A binding that no request asks for any more goes with the next new binding.
	b.bind("e", p, start.Add(time.Hour))
	if b.order.Len() != 1 {
		t.Errorf("%d bindings are left", b.order.Len())
	}
}
