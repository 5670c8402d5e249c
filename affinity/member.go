package affinity

import "fmt"

// Relay is a relay of the fleet.
type Relay struct {
	ID string // stable and unique
	Place
}

// Worker is one worker's endpoint of the service.
type Worker struct {
	ID string // stable and unique
	Place

	// Weight is the share of load this worker should get beside the others: 1 to 100,
	// 0 for [DefaultWeight].
	Weight int
}

const (
	// DefaultWeight leaves room for workers of a tenth and of ten times the capacity.
	DefaultWeight = 10
	// MaxWeight bounds the ratio that a few connections per worker would have to carry.
	MaxWeight = 100
)

// Relays makes relays without a place of ids.
func Relays(ids []string) []Relay {
	out := make([]Relay, len(ids))
	for i, id := range ids {
		out[i].ID = id
	}
	return out
}

// Workers makes workers without a place and of [DefaultWeight] of ids.
func Workers(ids []string) []Worker {
	out := make([]Worker, len(ids))
	for i, id := range ids {
		out[i].ID = id
	}
	return out
}

// loadsOf returns the weights with the default filled in, or nil if all are equal.
func loadsOf(workers []Worker) ([]float64, error) {
	var loads []float64
	for i := range workers {
		w := &workers[i]
		if w.Weight < 0 || w.Weight > MaxWeight {
			return nil, fmt.Errorf("affinity: worker %q has the weight %d: allowed are 1 to %d, or 0 for the default of %d",
				w.ID, w.Weight, MaxWeight, DefaultWeight)
		}
		if loads == nil && w.weight() != workers[0].weight() {
			loads = make([]float64, len(workers))
			for j := range workers[:i] {
				loads[j] = workers[0].weight()
			}
		}
		if loads != nil {
			loads[i] = w.weight()
		}
	}
	return loads, nil
}

func (w *Worker) weight() float64 {
	if w.Weight == 0 {
		return DefaultWeight
	}
	return float64(w.Weight)
}
