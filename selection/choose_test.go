package selection

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// inOrder is a Chooser that prefers the endpoints in this order.
type inOrder struct {
	ids   []string
	calls int
}

var errNoneLeft = errors.New("none is left")

func (o *inOrder) Choose(x *Exclusion) (string, error) {
	o.calls++
	for _, id := range o.ids {
		if !x.Excludes(id) {
			return id, nil
		}
	}
	return "", errNoneLeft
}

// Every combination of the states of three endpoints: the balancer decides which of them may get
// the request, and the Chooser only in which order.
func TestTheBalancerDecidesWhichEndpointsAChooserMayChoose(t *testing.T) {
	const (
		good   = iota
		shared // at its limit, and refuses itself
		refused
		closed // at its limit, which the balancer enforces
		out    // evicted
		tried
		states
	)
	// rank is the step at which an endpoint is accepted, -1 for none.
	rank := func(state int, fresh bool) int {
		switch {
		case state == good:
			return 0
		case state == shared:
			return 1
		case state == out, state == refused && fresh:
			return 2
		}
		return -1
	}
	for n := range states * states * states {
		now := [3]int{n % states, n / states % states, n / states / states}
		r := newRig(t, DefaultConfig())
		endpoints := rangeOf(3)
		for i, state := range now {
			if state == shared || state == refused || state == closed {
				endpoints[i].Limit, endpoints[i].Refuses = 1, state != closed
			}
		}
		r.update(endpoints)
		r.settle()
		var x Exclusion
		var ids []string
		for i, state := range now {
			id := fmt.Sprintf("w%d", i)
			ids = append(ids, id)
			switch state {
			case shared, closed:
				r.pickFrom(id)
			case refused:
				r.Done(r.pickFrom(id), r.now, Full)
			case out:
				r.table.Load().byID[id].state.phase.Store(uint32(evicted))
			case tried:
				p := r.pickFrom(id)
				p.AddTo(&x)
				r.Done(p, r.now, Cancelled)
			}
		}
		r.table.Store(r.table.Load().again())
		fresh := !slices.Contains(now[:], tried)
		want, best, full := "", states, false
		for i, state := range now {
			if at := rank(state, fresh); at >= 0 && at < best {
				want, best = ids[i], at
			}
			full = full || state == closed || state == refused
		}
		p, err := r.PickBy(r.now, &x, &inOrder{ids: ids})
		switch {
		case want == "" && full:
			if !errors.Is(err, ErrFull) {
				t.Errorf("%v: %v, want that there is no room", now, err)
			}
		case want == "":
			if !errors.Is(err, errNoneLeft) {
				t.Errorf("%v: %v, want the error of the Chooser", now, err)
			}
		case err != nil || p.ID() != want:
			t.Errorf("%v: %v, want %s", now, err, want)
		}
		if x.Excludes("w0") {
			t.Errorf("%v: after the pick an endpoint is still excluded", now)
		}
	}
}

func TestAChoiceOutsideOfTheRangeIsMadeAgain(t *testing.T) {
	r := fleet(t, 3, DefaultConfig())
	if p, err := r.PickBy(r.now, &Exclusion{}, &inOrder{ids: []string{"gone", "w2"}}); err != nil || p.ID() != "w2" {
		t.Errorf("%v, want w2", err)
	}
	stubborn := &named{"gone"}
	if _, err := r.PickBy(r.now, &Exclusion{}, stubborn); !errors.Is(err, ErrNoEndpoint) || errors.Is(err, ErrFull) {
		t.Errorf("a Chooser that insists: %v", err)
	}
	for range 20 { // no choice: the balancer draws
		if p, err := r.PickBy(r.now, &Exclusion{}, &named{""}); err != nil {
			t.Fatal(err)
		} else {
			r.Done(p, r.now, Success)
		}
	}
	for id, s := range map[string]EndpointStats{"w0": r.stats("w0"), "w1": r.stats("w1"), "w2": r.stats("w2")} {
		if s.Picks == 0 {
			t.Errorf("%s got none of the requests that nothing chose for", id)
		}
	}
}

type named struct{ id string }

func (n *named) Choose(*Exclusion) (string, error) { return n.id, nil }

func TestAChoiceDoesNotAllocate(t *testing.T) {
	r := fleet(t, 50, DefaultConfig())
	by, x := &inOrder{ids: []string{"w7", "w8"}}, &Exclusion{}
	if n := testing.AllocsPerRun(1000, func() {
		p, err := r.PickBy(r.now, x, by)
		if err != nil {
			t.Error(err)
		}
		r.Balancer.Done(p, r.now, Success.result())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
