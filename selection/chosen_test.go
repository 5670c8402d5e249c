package selection

import (
	"testing"
	"time"
)

func TestAnEvictedEndpointIsUsableAgainForOneRequestAtATime(t *testing.T) {
	b, err := NewBalancer[any](DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Update([]Endpoint[any]{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}, {ID: "c", Weight: 1}}, 0); err != nil {
		t.Fatal(err)
	}
	var now Instant
	usable := func(want bool, when string) {
		t.Helper()
		if b.Usable("a", now) != want || !b.Usable("b", now) {
			t.Errorf("%s: a %v, b %v, want %v, true", when, b.Usable("a", now), b.Usable("b", now), want)
		}
	}
	take := func() Pick[any] {
		t.Helper()
		p, err := b.Take("a", 0)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	usable(true, "at first")
	for range 4 {
		b.Done(take(), 0, Failure.result())
	}
	usable(false, "evicted")
	now = Instant(time.Minute)
	b.Refresh(now)
	usable(true, "half-open")
	p := take()
	usable(false, "being tried")
	b.Done(p, now, Success.result())
	usable(true, "back")
	if b.Usable("absent", now) {
		t.Error("what is not in the range is usable")
	}
}

func TestOnlyWaitingRequestsMakeAnEndpointSilent(t *testing.T) {
	b, err := NewBalancer[any](DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Update([]Endpoint[any]{{ID: "a", Weight: 1}}, 0); err != nil {
		t.Fatal(err)
	}
	const s = Instant(time.Second)
	silence := func(now Instant, want time.Duration) {
		t.Helper()
		if got := b.Silence("a", now); got < want-time.Millisecond || got > want+time.Millisecond {
			t.Errorf("silent for %v, want %v", got, want)
		}
	}
	silence(60*s, 0) // idle
	stream, _ := b.Take("a", 60*s)
	silence(63*s, 3*time.Second)
	stream = b.Answered(stream, 64*s, Success.result())
	silence(90*s, 0) // a long answer
	waits, _ := b.Take("a", 90*s)
	silence(95*s, 5*time.Second)
	b.Done(waits, 95*s, Success.result())
	silence(99*s, 0)
	one, _ := b.Take("a", 100*s)
	two, _ := b.Take("a", 105*s)
	b.Done(one, 110*s, NoAnswer.result()) // a time limit is no sign of life
	silence(110*s, 10*time.Second)
	three, _ := b.Take("a", 111*s)
	b.Done(two, 115*s, NoAnswer.result())
	silence(115*s, 15*time.Second)
	four, _ := b.Take("a", 115*s)
	b.Done(three, 116*s, Failure.result()) // a refusal is
	silence(118*s, 2*time.Second)
	b.Done(four, 118*s, Success.result())
	b.Done(stream, 118*s, Success.result())
	if b.Silence("absent", 99*s) != 0 {
		t.Error("what is not in the range is silent")
	}
}
