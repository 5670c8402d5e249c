package selection

import (
	"fmt"
	"testing"
	"time"
)

// zones returns eight endpoints of the own zone, with 88 % of the weight, and four of another one.
func zones(marked bool) (endpoints []Endpoint[any]) {
	for i := range 8 {
		endpoints = append(endpoints, Endpoint[any]{ID: fmt.Sprint("here-", i), Weight: 0.11})
	}
	for i := range 4 {
		endpoints = append(endpoints, Endpoint[any]{ID: fmt.Sprint("other-", i), Weight: 0.03, OtherZone: marked})
	}
	return endpoints
}

// shareOfOtherZones sends requests one by one and returns how many of a hundred went to other zones.
func (r *rig) shareOfOtherZones(requests int, here time.Duration) int {
	n, next := 0, r.now
	for range requests {
		p, took := r.pick(nil), 10*time.Millisecond
		if p.ID()[0] == 'o' {
			n++
		} else {
			took = here
		}
		r.wait(took)
		r.Done(p, r.now, Success)
		if r.now >= next {
			r.Refresh(r.now)
			next = r.now + Instant(250*time.Millisecond)
		}
	}
	return 100 * n / requests
}

func TestOtherZonesGetTheirWeightAndTheRestWhileTheOwnZoneIsMuchWorse(t *testing.T) {
	shares := map[bool][2]int{}
	for _, marked := range []bool{false, true} {
		r := newRig(t, DefaultConfig())
		r.update(zones(marked))
		r.settle()
		r.shareOfOtherZones(2000, 10*time.Millisecond) // estimates become known
		shares[marked] = [2]int{r.shareOfOtherZones(2000, 10*time.Millisecond), r.shareOfOtherZones(200, 80*time.Millisecond)}
	}
	t.Logf("well, then slow, without the mark: %v, with: %v", shares[false], shares[true])
	if well := shares[true][0]; well < 9 || well > 15 {
		t.Errorf("other zones get %d %% while all is well, want their weight of 12 %%", well)
	}
	if slow, before := shares[true][1], shares[false][1]; slow < 55 || slow < before+10 {
		t.Errorf("other zones get %d %% of the first 200 requests while the own zone is slow, want most; they would get %d %% by weight", slow, before)
	}
}

func TestARangeOfOtherZonesOnlyIsDrawnByWeight(t *testing.T) {
	r := newRig(t, DefaultConfig())
	endpoints := zones(true)[8:]
	r.update(endpoints)
	if table := r.table.Load(); len(table.otherZone.drawn) != 0 || len(table.near.drawn) != 4 {
		t.Errorf("%d of other zones, %d near", len(table.otherZone.drawn), len(table.near.drawn))
	}
}
