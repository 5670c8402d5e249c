package affinity

import "fmt"

// Relay is a relay of the fleet.
type Relay struct {
	ID string // stable and unique
	Place

	// Traffic is how many requests per second the relay carries for the service, 0 if that is
	// not known: as many as the mean of the others, or more where fewer relays of its zone serve
	// than of theirs. Within a zone it decides weights, and no connection.
	Traffic int
}

// MaxTrafficRatio bounds the traffic of a relay: it counts as at least the mean divided by
// MaxTrafficRatio and as at most the mean times MaxTrafficRatio. A relay that lies about its
// traffic cannot do more than that.
const MaxTrafficRatio = 4

// supplyOf returns the traffic of each relay that serves a service as a multiple of the mean, nil
// if all carry the same. One that states none carries what it would if all relays of the fleet got
// the same from clients, in proportion to what the others state: those that do not serve the service
// forward to relays of their own zone, so the relays of a zone carry more where fewer of them serve.
func supplyOf(serving, fleet []Relay) []float64 {
	all, chosen := map[Place]int{}, map[Place]int{}
	for _, r := range fleet {
		all[r.Place]++
	}
	for _, r := range serving {
		chosen[r.Place]++
	}
	out, stated, expected := make([]float64, len(serving)), 0.0, 0.0
	for i, r := range serving {
		out[i] = float64(all[r.Place]*len(serving)) / float64(chosen[r.Place]*len(fleet)) // 1 if there is one place
		if r.Traffic > 0 {
			stated += float64(r.Traffic)
			expected += out[i]
		}
	}
	sum := 0.0
	for i, r := range serving {
		switch {
		case r.Traffic > 0:
			out[i] = float64(r.Traffic)
		case expected > 0:
			out[i] = float64(out[i] * (stated / expected))
		}
		sum += out[i]
	}
	mean, total, equal := sum/float64(len(out)), 0.0, true
	for i := range out {
		out[i] = min(max(out[i], mean/MaxTrafficRatio), mean*MaxTrafficRatio)
		total += out[i]
		equal = equal && out[i] == out[0]
	}
	if equal {
		return nil
	}
	for i := range out {
		out[i] /= total / float64(len(out))
	}
	return out
}

// Worker is one worker's endpoint of the service.
type Worker struct {
	ID string // stable and unique
	Place

	// Weight is the worker's share of load relative to the other workers: 1 to 100, 0 for
	// [DefaultWeight].
	Weight int
}

const (
	// DefaultWeight leaves room for workers with a tenth or ten times the usual capacity.
	DefaultWeight = 10
	// MaxWeight bounds the ratio of two weights: with a few connections per worker, a
	// larger ratio could not be balanced.
	MaxWeight = 100
)

// Relays converts ids to relays without a place.
func Relays(ids []string) []Relay {
	out := make([]Relay, len(ids))
	for i, id := range ids {
		out[i].ID = id
	}
	return out
}

// Workers converts ids to workers of [DefaultWeight] without a place.
func Workers(ids []string) []Worker {
	out := make([]Worker, len(ids))
	for i, id := range ids {
		out[i].ID = id
	}
	return out
}

// loadsOf returns the weights, 0 replaced by the default, or nil if all are equal.
func loadsOf(workers []Worker) ([]float64, error) {
	var loads []float64
	for i := range workers {
		w := &workers[i]
		if w.Weight < 0 || w.Weight > MaxWeight {
			return nil, fmt.Errorf("affinity: worker %q has the weight %d: allowed are 1 to %d, or 0 for the default of %d",
				w.ID, w.Weight, MaxWeight, DefaultWeight)
		}
		if loads == nil && w.Weight != workers[0].Weight && w.weight() != workers[0].weight() {
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
