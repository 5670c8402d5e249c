package advertise

import (
	"testing"

	"pgregory.net/rapid"
)

func TestAMarkHidesOneOfferOfOneEndpointOnly(t *testing.T) {
	here := target{instance{"worker-1", 7}, "echo", "127.0.0.1:1"}
	var h hidden
	if h.has(here, 3) || h.reveal(here) {
		t.Error("the empty set hides something")
	}
	if !h.hide(here, 3) || h.hide(here, 3) || !h.has(here, 3) {
		t.Error("the first call hides, the second finds it hidden")
	}
	for name, other := range map[string]target{
		"next life":       {instance{"worker-1", 8}, "echo", "127.0.0.1:1"},
		"another service": {instance{"worker-1", 7}, "chat", "127.0.0.1:1"},
		"another address": {instance{"worker-1", 7}, "echo", "127.0.0.1:2"},
		"another worker":  {instance{"worker-2", 7}, "echo", "127.0.0.1:1"},
	} {
		if h.has(other, 3) {
			t.Errorf("its %s is hidden, too", name)
		}
	}
	if h.has(here, 4) {
		t.Error("a newer record is hidden, too")
	}
	if !h.hide(here, 4) || h.has(here, 3) || len(h) != 1 {
		t.Error("a newer mark takes the place of the older")
	}
	if !h.reveal(here) || h.reveal(here) || h.has(here, 4) {
		t.Error("revealed once, an endpoint is not hidden")
	}
}

// Of all that hide and reveal, the reports add up: as many marks as were set and
// not taken away are there.
func TestEveryMarkIsReportedOnceSetAndOnceTakenAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h hidden
		marks := 0
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			at := target{service: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "service")}
			_, before := h[at]
			if rapid.Bool().Draw(t, "hide") {
				if h.hide(at, rapid.Uint64Range(1, 3).Draw(t, "sequence")) && !before {
					marks++
				}
			} else if h.reveal(at) {
				marks--
			}
			if len(h) != marks {
				t.Fatalf("%d marks, %d reported", len(h), marks)
			}
		}
	})
}
