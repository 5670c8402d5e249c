package affinity

import (
	"fmt"
	"slices"

	"github.com/ringway/ringway/ring"
)

const (
	// DefaultRelaysPerService is the number of relays that serve one service (k),
	// the same as Hyperbahn's.
	DefaultRelaysPerService = 10

	// DefaultPeersPerTier is the number of workers below which a relay looks beyond its
	// own datacenter: two to choose from and one to spare.
	DefaultPeersPerTier = 3
)

// PlanConfig is what a plan depends on; two relays that agree on it have the same plan.
type PlanConfig struct {
	// Service is the name of the service; see [ValidateService].
	Service string

	// Relays are all relays of the fleet, in any order. The affine ones are chosen from
	// them.
	Relays []Relay

	// Skip are ids of relays that must not be chosen, to move load off them by hand. Ids
	// that are not among Relays do no harm. Skipping all of them is an error.
	Skip []string

	// Workers are the endpoints of the service.
	Workers []Worker

	// WorkersOrdered says that Workers is already in the order of ring.Order(Service, ids),
	// which saves a sort. The order is still checked, in one pass, because relays that
	// disagree on it would leave workers without connections.
	WorkersOrdered bool

	// RelaysPerService is the number of affine relays: 1 or more, 0 for
	// [DefaultRelaysPerService]. A smaller fleet serves the service whole.
	RelaysPerService int

	// Minimums defaults to [DefaultMinimums] when it is the zero value.
	Minimums Minimums

	// PeersPerTier is the number of workers below which a datacenter is not enough for its
	// relays: they then serve the region as well, and everything if that has too few, too.
	// 1 or more, 0 for [DefaultPeersPerTier].
	PeersPerTier int

	// IndexSource defaults to [IndexRank].
	IndexSource IndexSource

	// Strategy defaults to [Projection].
	Strategy Strategy
}

// complete fills in defaults and refuses settings out of bounds.
func (c *PlanConfig) complete() error {
	if err := ValidateService(c.Service); err != nil {
		return err
	}
	var err error
	if c.IndexSource, err = ParseIndexSource(string(c.IndexSource)); err != nil {
		return c.named(err)
	}
	if c.Strategy, err = ParseStrategy(string(c.Strategy)); err != nil {
		return c.named(err)
	}
	if c.Minimums == (Minimums{}) {
		c.Minimums = DefaultMinimums
	}
	for _, setting := range []struct {
		name     string
		value    *int
		standard int
	}{
		{"relays per service", &c.RelaysPerService, DefaultRelaysPerService},
		{"peers per tier", &c.PeersPerTier, DefaultPeersPerTier},
	} {
		if *setting.value < 0 {
			return fmt.Errorf("affinity: service %q: %s %d: allowed are 1 or more, or 0 for the default of %d",
				c.Service, setting.name, *setting.value, setting.standard)
		}
		if *setting.value == 0 {
			*setting.value = setting.standard
		}
	}
	shape := Shape{Relays: min(c.RelaysPerService, len(c.Relays)), Workers: len(c.Workers), Minimums: c.Minimums}
	return c.named(shape.Validate())
}

func (c *PlanConfig) named(err error) error {
	if err != nil {
		return fmt.Errorf("service %q: %w", c.Service, err)
	}
	return nil
}

// affine returns the relays that serve the service, by index.
func (c *PlanConfig) affine() ([]Relay, error) {
	byID := make(map[string]Relay, len(c.Relays))
	ids := make([]string, len(c.Relays))
	for i, relay := range c.Relays {
		ids[i] = relay.ID
		byID[relay.ID] = relay
	}
	ids = ring.Order(c.Service, ids)
	if err := checkIDs("relay", ids); err != nil {
		return nil, c.named(err)
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(c.Skip, id) })
	if len(ids) == 0 {
		return nil, c.named(fmt.Errorf("%w to choose from: all %d are on the skip list: take one off it", ErrNoRelays, len(c.Relays)))
	}
	// By rank, whoever gets which slot does not matter where all of them serve.
	if c.IndexSource == IndexSlot || c.RelaysPerService < len(ids) {
		ids = Slots(c.Service, c.RelaysPerService, ids)
		if c.IndexSource == IndexRank {
			ids = ring.Order(c.Service, ids)
		}
	}
	out := make([]Relay, len(ids))
	for i, id := range ids {
		out[i] = byID[id]
	}
	return out, nil
}

// orderedWorkers returns the workers in ring order, and their ids.
func (c *PlanConfig) orderedWorkers() ([]Worker, []string, error) {
	ids := make([]string, len(c.Workers))
	for i, worker := range c.Workers {
		ids[i] = worker.ID
	}
	if c.WorkersOrdered {
		if !ring.IsOrdered(c.Service, ids) {
			return nil, nil, fmt.Errorf("affinity: service %q: the %d workers are said to be in ring order but are not, or one is repeated: pass them in the order of ring.Order(service, ids) or leave WorkersOrdered unset",
				c.Service, len(ids))
		}
		if slices.Contains(ids, "") {
			return nil, nil, c.named(checkIDs("worker", []string{""}))
		}
		return c.Workers, ids, nil
	}
	byID := make(map[string]Worker, len(c.Workers))
	for _, worker := range c.Workers {
		byID[worker.ID] = worker
	}
	ids = ring.Order(c.Service, ids)
	if err := checkIDs("worker", ids); err != nil {
		return nil, nil, c.named(err)
	}
	workers := make([]Worker, len(ids))
	for i, id := range ids {
		workers[i] = byID[id]
	}
	return workers, ids, nil
}

// checkIDs refuses empty and repeated ids. In ring order repeats stand side by side.
func checkIDs(kind string, ordered []string) error {
	for i, id := range ordered {
		if id == "" {
			return fmt.Errorf("affinity: the id of a %s is empty: give every %s a stable id", kind, kind)
		}
		if i > 0 && ordered[i-1] == id {
			return fmt.Errorf("affinity: %s %q is listed twice: list each %s once", kind, id, kind)
		}
	}
	return nil
}
