package affinity

import (
	"sort"
	"strings"

	"github.com/ringway/ringway/ring"
)

// ObserverConfig is the complete input of the range of an observer: a member that sends
// requests to workers and is in no plan.
type ObserverConfig struct {
	// Service and Observer are the name of the service and the member.
	Service  string
	Observer Relay
	// Workers are the endpoints of the service; WorkersOrdered as in [PlanConfig].
	Workers        []Worker
	WorkersOrdered bool
	// Endpoints is the most workers of the range, 0 for all.
	Endpoints int
	// PeersPerTier is the number of workers below which the observer also uses workers outside
	// its datacenter or region. 1 or more, 0 for the default of 3.
	PeersPerTier int
}

// ObserverRange returns the workers that an observer uses, with their weights: the workers that
// follow the hash of its ID on the ring, of the nearest tier that has enough. It returns
// [ErrNoWorkers] if there are none.
//
// An observer does not know the other observers, so observers cannot divide the ring evenly as
// relays do. With many observers of at least 64 endpoints each, a worker is in half to twice the
// average number of ranges. A worker that joins or leaves adds or removes one worker of a range
// and replaces at most one more, unless the tier then has enough workers or no longer enough.
// Other observers change nothing.
func ObserverRange(cfg ObserverConfig) ([]Assignment, error) {
	plan := PlanConfig{Service: cfg.Service, Relays: []Relay{cfg.Observer}, Workers: cfg.Workers, WorkersOrdered: cfg.WorkersOrdered, PeersPerTier: cfg.PeersPerTier}
	if err := plan.complete(); err != nil {
		return nil, err
	}
	workers, _, err := plan.orderedWorkers()
	if err != nil {
		return nil, err
	}
	if _, err := loadsOf(workers); err != nil { // checks the weights
		return nil, plan.named(err)
	}
	workers = nearest(workers, cfg.Observer.Place, plan.PeersPerTier)
	n := len(workers)
	if cfg.Endpoints > 0 {
		n = min(n, cfg.Endpoints)
	}
	// The ring is that of the workers, so that the observer has a place among them.
	seed := ring.Hash(cfg.Service, 0)
	at := ring.Hash(cfg.Observer.ID, seed)
	first := sort.Search(len(workers), func(i int) bool {
		hash := ring.Hash(workers[i].ID, seed)
		return hash > at || hash == at && strings.Compare(workers[i].ID, cfg.Observer.ID) >= 0
	})
	out, sum := make([]Assignment, n), 0.0
	for i := range out {
		w := workers[(first+i)%len(workers)]
		out[i] = Assignment{Worker: w.ID, Weight: w.weight()}
		sum += out[i].Weight
	}
	for i := range out {
		out[i].Weight /= sum
	}
	return out, nil
}

// nearest returns the workers up to the nearest tier that has enough of them.
func nearest(workers []Worker, from Place, enough int) []Worker {
	for _, tier := range []Tier{SameDatacenter, SameRegion} {
		var near []Worker
		for _, w := range workers {
			if from.Tier(w.Place) <= tier {
				near = append(near, w)
			}
		}
		if len(near) >= enough {
			return near
		}
	}
	return workers
}
