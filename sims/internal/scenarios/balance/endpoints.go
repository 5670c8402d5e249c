package balance

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

// slots is the load of one endpoint that never fails. It belongs to one goroutine.
type slots struct{ taken int }

func (s *slots) Load() (int, bool) { return s.taken, true }

func (s *slots) Seen() (selection.Instant, bool) { return math.MaxInt64, true }

// rangeOf returns a strategy over n endpoints, and their loads.
func rangeOf(spec strategy.Spec, n int, names string, source rand.Source) (*strategy.Strategy, []*slots, error) {
	s, err := strategy.New(strategy.Config{Spec: spec, Service: "sim", Rand: source})
	if err != nil {
		return nil, nil, err
	}
	endpoints, loads := make([]strategy.Endpoint, n), make([]*slots, n)
	for i := range endpoints {
		loads[i] = &slots{}
		name := fmt.Sprintf("%s-worker-%d", names, i)
		endpoints[i] = strategy.Endpoint{ID: name, Node: name, Weight: 1, Signals: loads[i], Value: loads[i]}
	}
	return s, loads, s.Update(endpoints)
}

// fill makes a number of picks and takes a slot with each pick.
func fill(s *strategy.Strategy, picks int) error {
	for range picks {
		e, err := s.Pick(strategy.Request{})
		if err != nil {
			return err
		}
		e.Value.(*slots).taken++
	}
	return nil
}

func fullest(loads []*slots) (most int) {
	for _, l := range loads {
		most = max(most, l.taken)
	}
	return most
}

func slotsSpec(v, k, jitter int) strategy.Spec {
	spec := strategy.Default(strategy.Slots)
	spec.VirtualNodes, spec.Samples, spec.SlotJitter = v, k, jitter
	return spec
}

// shareOf measures the share of picks that one endpoint gets with constant loads.
func shareOf(s *strategy.Strategy, of *slots, picks int) (float64, error) {
	got := 0
	for range picks {
		e, err := s.Pick(strategy.Request{})
		if err != nil {
			return 0, err
		}
		if e.Value.(*slots) == of {
			got++
		}
	}
	return float64(got) / float64(picks), nil
}
