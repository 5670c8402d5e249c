package peering

import (
	"testing"
	"time"
)

func TestAFarEndThatIsANewProcessIsTriedImmediately(t *testing.T) {
	r := newRig(t, Config{RetryDelay: time.Second, MaxRetryDelay: 30 * time.Second}).want("s", list("a"), nil)
	for _, wait := range []time.Duration{1, 2, 4, 8} { // it is down for some time
		r.step(list("a"), nil)
		r.Failed("a", r.now)
		r.after(wait * time.Second)
	}
	r.step(list("a"), nil)
	r.Failed("a", r.now)
	r.step(nil, nil)
	r.Renewed("a")
	r.step(list("a"), nil)
	// Its own failures count from one.
	r.Failed("a", r.now)
	if next := r.Step(r.now).Next; !next.Equal(r.now.Add(time.Second)) {
		t.Errorf("the next attempt is due in %v: want 1s", next.Sub(r.now))
	}
}

func TestANewProcessChangesNothingWhereNoAttemptWaits(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a", "b"), nil).step(list("a", "b"), nil)
	r.Opened("a", r.now)
	for _, k := range list("a", "b", "absent") {
		r.Renewed(k)
	}
	r.step(nil, nil).states(map[State]int{Open: 1, Opening: 1})
}
