package advertise

import (
	"testing"

	"pgregory.net/rapid"
)

func TestAMarkHidesOneOfferOfOneEndpointOnly(t *testing.T) {
	here := target{instance{"worker-1", 7}, "echo", "127.0.0.1:1"}
	var h unreachableSet
	if h.has(here, 3) || h.remove(here) {
		t.Error("the empty set has a mark")
	}
	if !h.add(here, 3) || h.add(here, 3) || !h.has(here, 3) {
		t.Error("the first call adds the mark, the second finds it")
	}
	for name, other := range map[string]target{
		"next life":       {instance{"worker-1", 8}, "echo", "127.0.0.1:1"},
		"another service": {instance{"worker-1", 7}, "chat", "127.0.0.1:1"},
		"another address": {instance{"worker-1", 7}, "echo", "127.0.0.1:2"},
		"another worker":  {instance{"worker-2", 7}, "echo", "127.0.0.1:1"},
	} {
		if h.has(other, 3) {
			t.Errorf("%s is marked, too", name)
		}
	}
	if h.has(here, 4) {
		t.Error("a newer record is marked, too")
	}
	if !h.add(here, 4) || h.has(here, 3) || len(h) != 1 {
		t.Error("a newer mark takes the place of the older")
	}
	if !h.remove(here) || h.remove(here) || h.has(here, 4) {
		t.Error("an endpoint is still marked after the mark is removed")
	}
}

// Of all that add and remove report, the sums agree: as many marks as were set and
// not taken away are there.
func TestEveryMarkIsReportedOnceSetAndOnceTakenAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h unreachableSet
		marks := 0
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			at := target{service: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "service")}
			_, before := h[at]
			if rapid.Bool().Draw(t, "add") {
				if h.add(at, rapid.Uint64Range(1, 3).Draw(t, "sequence")) && !before {
					marks++
				}
			} else if h.remove(at) {
				marks--
			}
			if len(h) != marks {
				t.Fatalf("%d marks, %d reported", len(h), marks)
			}
		}
	})
}
