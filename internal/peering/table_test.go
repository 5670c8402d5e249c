package peering

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const drain = 30 * time.Second

// rig drives a table the way a caller does, with a clock that the test moves.
type rig struct {
	t *testing.T
	*Table[string]
	now time.Time
}

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	table, err := NewTable[string](cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, table, time.Unix(1000, 0)}
}

func (r *rig) after(d time.Duration) *rig { r.now = r.now.Add(d); return r }

func (r *rig) want(service string, in, near []string) *rig {
	r.Want(service, in, near, r.now)
	return r
}

// connect takes a step and opens what it asks for.
func (r *rig) connect() *rig {
	for _, k := range r.Step(r.now).Open {
		r.Opened(k, r.now)
	}
	return r
}

// step takes a step and checks what it asks for.
func (r *rig) step(open, closed []string) *rig {
	r.t.Helper()
	a := r.Step(r.now)
	slices.Sort(a.Close)
	if diff := cmp.Diff([][]string{open, closed}, [][]string{a.Open, a.Close}); diff != "" {
		r.t.Errorf("step at %v: opened and closed (-want +got):\n%s", r.now.Unix(), diff)
	}
	return r
}

func (r *rig) states(want map[State]int) *rig {
	r.t.Helper()
	if diff := cmp.Diff(want, r.Count()); diff != "" {
		r.t.Errorf("links by state (-want +got):\n%s", diff)
	}
	return r
}

func list(k ...string) []string { return k }

func TestWhatIsInARangeIsOpenedInOrder(t *testing.T) {
	newRig(t, Config{}).want("s", list("b", "a", "c"), nil).
		states(map[State]int{Waiting: 3}).
		step(list("b", "a", "c"), nil).
		states(map[State]int{Opening: 3}).
		step(nil, nil)
}

func TestNoMoreThanMaxOpeningAreOpenedAtOneTime(t *testing.T) {
	r := newRig(t, Config{MaxOpening: 2}).want("s", list("a", "b", "c", "d"), nil).step(list("a", "b"), nil)
	r.Opened("a", r.now)
	r.step(list("c"), nil)
	r.Failed("b", r.now)
	r.step(list("d"), nil)
}

func TestAnUnneededConnectionClosesAfterTheDrainDelay(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a", "b"), nil).connect()
	r.want("s", list("b", "c"), nil).step(list("c"), nil)
	r.states(map[State]int{Open: 1, Opening: 1, Draining: 1})
	if next := r.Step(r.now).Next; !next.Equal(r.now.Add(drain)) {
		t.Errorf("next step at %v: want the end of the drain, %v", next, r.now.Add(drain))
	}
	r.after(drain-1).step(nil, nil)
	r.after(1).step(nil, list("a"))
	r.after(time.Hour).step(nil, nil)
}

func TestTheDrainDelayIsASetting(t *testing.T) {
	newRig(t, Config{DrainDelay: time.Second}).want("s", list("a"), nil).connect().
		want("s", nil, nil).after(time.Second).step(nil, list("a"))
	newRig(t, Config{DrainDelay: -1}).want("s", list("a"), nil).connect().
		want("s", nil, nil).step(nil, list("a"))
}

func TestAConnectionNeededAgainWhileDrainingStaysOpen(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a"), nil).connect()
	r.want("s", nil, nil).after(drain/2).want("s", list("a"), nil)
	r.states(map[State]int{Open: 1}).after(drain).step(nil, nil)
	if got, want := r.Counts(), (Counts{Opened: 1, DrainsStarted: 1, DrainsCancelled: 1}); got != want {
		t.Errorf("counts are %+v: want %+v", got, want)
	}
}

func TestAConnectionThatAnotherServiceNeedsDoesNotDrain(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a"), nil).want("t", list("a"), nil).step(list("a"), nil)
	r.Opened("a", r.now)
	r.want("s", nil, nil).states(map[State]int{Open: 1}).after(drain).step(nil, nil)
	r.want("t", nil, nil).states(map[State]int{Draining: 1}).after(drain).step(nil, list("a"))
}

func TestWithinSlackAConnectionIsKeptButNotOpened(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a", "b"), list("z")).step(list("a", "b"), nil)
	r.Opened("a", r.now)
	r.Opened("b", r.now)
	r.want("s", list("b"), list("a", "z")).states(map[State]int{Open: 1, Spare: 1})
	r.after(time.Hour).step(nil, nil)
	r.want("s", list("b"), list("z")).states(map[State]int{Open: 1, Draining: 1})
	r.after(drain).step(nil, list("a"))
	if got := r.State("z"); got != None {
		t.Errorf("z, never in range, is %v: want %v", got, None)
	}
}

func TestAnOpeningThatIsNotWantedAnyMoreIsGivenUp(t *testing.T) {
	r := newRig(t, Config{MaxOpening: 1}).want("s", list("a", "b"), nil).step(list("a"), nil)
	r.want("s", list("b"), list("a")).step(list("b"), list("a"))
	r.Opened("a", r.now) // too late
	r.states(map[State]int{Opening: 1})
}

func TestAFailedOpeningIsTriedAgainLaterAndLater(t *testing.T) {
	r := newRig(t, Config{RetryDelay: time.Second, MaxRetryDelay: 5 * time.Second}).want("s", list("a"), nil)
	for _, wait := range []time.Duration{1, 2, 4, 5, 5} {
		r.step(list("a"), nil)
		r.Failed("a", r.now)
		if next := r.Step(r.now).Next; !next.Equal(r.now.Add(wait * time.Second)) {
			t.Errorf("the next attempt is due in %v: want %ds", next.Sub(r.now), wait)
		}
		r.after(wait*time.Second-1).step(nil, nil).after(1)
	}
}

func TestTheWaitNeverExceedsTheLargest(t *testing.T) {
	for _, test := range []struct{ first, largest, fourth, hundredth time.Duration }{
		{1, 5, 5, 5},
		{1, 8, 8, 8},
		{0, 0, 8 * time.Second, 30 * time.Second}, // the defaults
		{time.Hour, 24 * time.Hour, 8 * time.Hour, 24 * time.Hour},
		{time.Minute, time.Second, time.Minute, time.Minute},
	} {
		r := newRig(t, Config{RetryDelay: test.first, MaxRetryDelay: test.largest}).want("s", list("a"), nil)
		waits := make([]time.Duration, 101)
		for i := 1; i < len(waits); i++ {
			r.step(list("a"), nil)
			r.Failed("a", r.now)
			waits[i] = r.Step(r.now).Next.Sub(r.now)
			r.after(waits[i])
		}
		if waits[4] != test.fourth || waits[100] != test.hundredth {
			t.Errorf("from %v to %v: after the 4th and the 100th failure it waits %v and %v, want %v and %v",
				test.first, test.largest, waits[4], waits[100], test.fourth, test.hundredth)
		}
	}
}

// Time that passes between two steps counts from the call, not from the step before it.
func TestEveryReportCountsFromItsOwnTime(t *testing.T) {
	later := time.Second / 2
	for name, test := range map[string]struct {
		do   func(r *rig)
		next time.Duration // after the report
	}{
		"a need that ends":      {func(r *rig) { r.connect().after(later).want("s", nil, nil) }, drain},
		"an attempt that fails": {func(r *rig) { r.Step(r.now); r.after(later).Failed("a", r.now) }, time.Second},
		"a loss too soon": {func(r *rig) {
			r.Step(r.now)
			r.after(later).Opened("a", r.now)
			r.after(time.Second-1).Lost("a", r.now)
		}, time.Second},
	} {
		r := newRig(t, Config{}).want("s", list("a"), nil)
		test.do(r)
		if next := r.Step(r.now).Next; !next.Equal(r.now.Add(test.next)) {
			t.Errorf("%s: the next step is due in %v: want %v", name, next.Sub(r.now), test.next)
		}
	}
	// A loss that comes as late as the retry delay is none too soon.
	r := newRig(t, Config{}).want("s", list("a"), nil).connect().after(time.Second)
	r.Lost("a", r.now)
	r.step(list("a"), nil)
}

func TestTheNextStepIsDueWithTheFirstOfAllWaits(t *testing.T) {
	keys := list("a", "b", "c", "d", "e", "f", "g", "h")
	for name, test := range map[string]struct {
		start func(r *rig)
		end   func(r *rig, i int)
		wait  time.Duration
	}{
		"failures": {func(r *rig) { r.Step(r.now) }, func(r *rig, i int) { r.Failed(keys[i], r.now) }, time.Second},
		"drains":   {func(r *rig) { r.connect() }, func(r *rig, i int) { r.want("s", keys[i+1:], nil) }, drain},
	} {
		r := newRig(t, Config{}).want("s", keys, nil)
		test.start(r)
		want := r.now.Add(test.wait)
		for i := range keys {
			test.end(r, i)
			r.after(time.Millisecond)
		}
		for range 20 { // whatever the order of a map is
			if next := r.Step(r.now).Next; !next.Equal(want) {
				t.Fatalf("%s: the next step is due in %v: want %v", name, next.Sub(r.now), want.Sub(r.now))
			}
		}
	}
}

// A far end is queued a second time if it was dropped and is wanted again.
func TestAFarEndThatWasQueuedTwiceIsOpenedOnce(t *testing.T) {
	for _, fails := range []bool{false, true} {
		r := newRig(t, Config{MaxOpening: 1}).want("s", list("a", "b"), nil).step(list("a"), nil)
		r.want("s", list("a"), nil).want("s", list("a", "b"), nil)
		r.Opened("a", r.now)
		r.step(list("b"), nil)
		if fails {
			r.Failed("b", r.now)
			r.step(nil, nil).after(time.Second).step(list("b"), nil)
		} else {
			r.Opened("b", r.now)
			r.step(nil, nil)
		}
	}
}

func TestAFarEndGivenUpAndWantedAgainIsNotClosed(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a"), nil).step(list("a"), nil)
	r.want("s", nil, nil).want("s", list("a"), nil).step(list("a"), nil)
}

func TestOneFarEndInARangeAndOneNearAreAWish(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a"), list("b")).step(list("a"), nil)
	r.Opened("a", r.now)
	r.want("s", nil, list("a")).states(map[State]int{Spare: 1})
	r.want("s", nil, nil).states(map[State]int{Draining: 1})
}

// A relay runs for months, while services and workers come and go.
func TestWhatIsNotWantedAnyMoreLeavesNothingBehind(t *testing.T) {
	r := newRig(t, Config{MaxOpening: 2}).want("s", list("a", "b", "c"), list("d")).want("t", list("a"), nil)
	r.Step(r.now)
	r.Opened("a", r.now)
	r.Failed("b", r.now)
	r.want("s", nil, nil).want("t", nil, nil).after(drain).step(nil, list("a", "b", "c"))
	if n := len(r.services) + len(r.needs) + len(r.links) + len(r.queue) + len(r.retries) + len(r.draining) + len(r.dropped) + r.opening; n > 0 {
		t.Errorf("%d things are kept: %+v", n, r.Table)
	}
}

func TestEveryEventIsCounted(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a", "b"), nil).step(list("a", "b"), nil)
	r.Opened("a", r.now)
	r.Failed("b", r.now)
	for range 2 { // an end that is reported twice counts once
		r.Opened("b", r.now)
		r.Failed("a", r.now)
		r.Lost("b", r.now)
	}
	for _, report := range []func(string, time.Time){r.Opened, r.Failed, r.Lost} {
		report("forgotten", r.now)
	}
	r.want("s", nil, nil).want("s", list("a"), nil).want("s", nil, nil).after(drain).Step(r.now)
	if got, want := r.Counts(), (Counts{Opened: 1, Failed: 1, DrainsStarted: 2, DrainsCancelled: 1, Closed: 1}); got != want {
		t.Errorf("counts are %+v: want %+v", got, want)
	}
}

func TestALostConnectionIsOpenedAgainImmediately(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a"), nil).connect().after(time.Minute)
	r.Lost("a", r.now)
	r.step(list("a"), nil)
}

func TestAFarEndThatAcceptsAndHangsUpIsNotCalledInACircle(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a"), nil)
	for _, wait := range []time.Duration{1, 2, 4} {
		r.connect()
		r.Lost("a", r.now)
		r.step(nil, nil).after(wait*time.Second-1).step(nil, nil).after(1)
	}
}

func TestALostConnectionThatWasOnlyKeptIsForgotten(t *testing.T) {
	for _, near := range [][]string{nil, {"a"}} {
		r := newRig(t, Config{}).want("s", list("a"), nil).connect().want("s", nil, near)
		r.Lost("a", r.now)
		r.states(map[State]int{}).step(nil, list("a")).after(time.Hour).step(nil, nil)
	}
}

func TestAnAuditRepairsWhatTableAndRealityDisagreeOn(t *testing.T) {
	r := newRig(t, Config{}).want("s", list("a", "b"), nil).connect().after(time.Minute)
	missing, surplus := r.Audit(map[string]struct{}{"b": {}, "x": {}}, r.now)
	if diff := cmp.Diff([][]string{{"a"}, {"x"}}, [][]string{missing, surplus}); diff != "" {
		t.Errorf("missing and surplus (-want +got):\n%s", diff)
	}
	r.step(list("a"), nil)
	if c := r.Counts(); c.Missing != 1 || c.Surplus != 1 || c.Lost != 1 {
		t.Errorf("counts are %+v: want one missing, which is lost, and one surplus", c)
	}
}

func TestAnAuditLeavesAloneWhatIsNotOpenYet(t *testing.T) {
	r := newRig(t, Config{MaxOpening: 1}).want("s", list("a", "b"), nil).step(list("a"), nil)
	if missing, surplus := r.Audit(map[string]struct{}{"a": {}}, r.now); missing != nil || surplus != nil {
		t.Errorf("missing %q and surplus %q: want none, a is being opened and b waits", missing, surplus)
	}
}

func TestEachRetryDelayIsChecked(t *testing.T) {
	for _, cfg := range []Config{{RetryDelay: -1}, {MaxRetryDelay: -1}} {
		if _, err := NewTable[string](cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestAllSettingsOutOfBoundsAreRefusedInOneError(t *testing.T) {
	_, err := NewTable[string](Config{MaxOpening: -1, RetryDelay: -1})
	want := "peering: MaxOpening -1 is negative: give 0 for the default of 16, or more\n" +
		"peering: retry delays -1ns and 0s: want none negative, 0 for the defaults of 1s and 30s"
	if err == nil || err.Error() != want {
		t.Errorf("error is\n%v\nwant\n%s", err, want)
	}
}

func BenchmarkOneServiceChangesAmongAThousand(b *testing.B) {
	table, _ := NewTable[string](Config{MaxOpening: 1 << 20})
	now := time.Unix(1000, 0)
	for s := range 1000 {
		in := make([]string, 100)
		for i := range in {
			in[i] = strconv.Itoa(s*50 + i) // half of them shared with the next service
		}
		table.Want(strconv.Itoa(s), in, nil, now)
	}
	for _, k := range table.Step(now).Open {
		table.Opened(k, now)
	}
	one, other := list("0", "1", "2"), list("1", "2", "3")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			table.Want("0", one, nil, now)
		} else {
			table.Want("0", other, nil, now)
		}
		table.Step(now)
	}
}

func TestTriedIsTrueWhenEveryOpeningHasEndedWellOrNot(t *testing.T) {
	r := newRig(t, Config{MaxOpening: 2})
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"nothing is wanted", func() {}, true},
		{"two are waiting", func() { r.want("s", list("a", "b"), nil) }, false},
		{"two are being opened", func() { r.Step(r.now) }, false},
		{"one is open", func() { r.Opened("a", r.now) }, false},
		{"the other has failed", func() { r.Failed("b", r.now) }, true},
		{"it is being tried again", func() { r.after(time.Minute).Step(r.now) }, true},
	} {
		if step.do(); r.Tried() != step.want {
			t.Errorf("%s: tried is %v", step.what, r.Tried())
		}
	}
}

func TestAnUnknownStateHasATextAndDoesNotPanic(t *testing.T) {
	if got := fmt.Sprint(None, Draining, Draining+1, State(-1)); got != "none draining state(6) state(-1)" {
		t.Error(got)
	}
}
