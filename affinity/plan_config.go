package affinity

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringway/ringway/ring"
)

const (
	// defaultPeersPerTier is the number of workers below which a relay also serves workers
	// outside its datacenter. Three leave two to choose from when one fails.
	defaultPeersPerTier = 3

	// defaultZoneSlack keeps requests in their zone while that costs its workers at most a tenth
	// more load than the others have.
	defaultZoneSlack = 1.1
	// MaxZoneSlack is enough to keep all requests in their zones.
	MaxZoneSlack = 10
)

// PlanConfig is the complete input of a plan: equal inputs give equal plans.
type PlanConfig struct {
	// Service is the name of the service; see [ValidateService].
	Service string

	// Relays are all relays of the fleet, in any order. The affine ones are chosen from
	// them.
	Relays []Relay

	// Skip are ids of relays that must not be chosen, so that an operator can move load off
	// them. Ids that are not among Relays are ignored. Skipping all relays is an error.
	Skip []string

	// Workers are the endpoints of the service.
	Workers []Worker

	// WorkersOrdered states that Workers is already in the order of ring.Order(Service,
	// ids), which saves a sort. The order is still checked, in one pass, because relays
	// with different orders would leave workers without connections.
	WorkersOrdered bool

	// RelaysPerService is the number of affine relays (k): Minimums.PeersPerWorker or more, so
	// that each worker has as many relays as it needs, or 0, the default, for at least what
	// [PlanConfig.Serving] computes. In a smaller fleet every relay serves the service.
	RelaysPerService int

	// WholeRange connects every affine relay to every worker, for strategies and cookies
	// that can name any of them. The automatic number of relays is then 10, or
	// Minimums.PeersPerWorker if that is more: more would need as many more connections.
	WholeRange bool

	// Minimums defaults to [DefaultMinimums] when it is the zero value.
	Minimums Minimums

	// PeersPerTier is the number of workers below which the relays of a datacenter also
	// serve the region, and below which the relays of a region serve all workers. 1 or
	// more, 0 for the default of 3.
	PeersPerTier int

	// ZoneSlack is how much more than the mean load the workers of a zone (a datacenter) may get
	// from its own relays, before these send the rest to other zones: 1 to 10, 0 for
	// the default of 1.1. With 1 all workers get the same load.
	ZoneSlack float64

	// IndexSource defaults to [IndexSlot].
	IndexSource IndexSource

	// Strategy defaults to [Projection].
	Strategy Strategy

	// Previous may be an earlier plan of the service. What has not changed since then is not
	// computed again; the plan is the same as without Previous.
	Previous *Plan
}

// WithDefaults fills in the default of every setting that is zero, as [NewPlan] does.
func (c PlanConfig) WithDefaults() PlanConfig {
	c.Minimums = cmp.Or(c.Minimums, DefaultMinimums)
	c.PeersPerTier = cmp.Or(c.PeersPerTier, defaultPeersPerTier)
	c.ZoneSlack = cmp.Or(c.ZoneSlack, defaultZoneSlack)
	c.IndexSource = cmp.Or(c.IndexSource, IndexSlot)
	c.Strategy = cmp.Or(c.Strategy, Projection)
	return c
}

// complete fills in defaults and refuses settings out of bounds.
func (c *PlanConfig) complete() error {
	*c = c.WithDefaults()
	if err := ValidateService(c.Service); err != nil {
		return fmt.Errorf("affinity: %w", err)
	}
	var err error
	if c.IndexSource, err = parseIndexSource(string(c.IndexSource)); err != nil {
		return c.named(err)
	}
	if c.Strategy, err = parseStrategy(string(c.Strategy)); err != nil {
		return c.named(err)
	}
	if c.RelaysPerService != 0 && c.RelaysPerService < c.Minimums.PeersPerWorker {
		return fmt.Errorf("affinity: service %q: relays per service %d: allowed are %d (the min peers per worker) or more, or 0 for an automatic number",
			c.Service, c.RelaysPerService, c.Minimums.PeersPerWorker)
	}
	if c.PeersPerTier < 0 {
		return fmt.Errorf("affinity: service %q: peers per tier %d: allowed are 1 or more, or 0 for the default of %d",
			c.Service, c.PeersPerTier, defaultPeersPerTier)
	}
	if !(c.ZoneSlack >= 1 && c.ZoneSlack <= MaxZoneSlack) {
		return fmt.Errorf("affinity: service %q: zone slack %v: allowed are 1 to %v, or 0 for the default of %v",
			c.Service, c.ZoneSlack, MaxZoneSlack, defaultZoneSlack)
	}
	shape := Shape{Relays: len(c.Relays), Workers: len(c.Workers), Minimums: c.Minimums}
	if c.WholeRange {
		shape.PeersPerWorker = max(shape.PeersPerWorker, len(c.Relays))
	}
	return c.named(shape.validate())
}

func (c *PlanConfig) named(err error) error {
	if err != nil {
		return fmt.Errorf("service %q: %w", c.Service, err)
	}
	return nil
}

// orderedWorkers returns the workers in ring order, and their ids.
func (c *PlanConfig) orderedWorkers() ([]Worker, []string, error) {
	if c.WorkersOrdered {
		ids, ordered := c.idsInOrder()
		if !ordered {
			return nil, nil, fmt.Errorf("affinity: service %q: WorkersOrdered is set, but the %d workers are not in ring order, or one is repeated: pass them in the order of ring.Order(service, ids) or leave WorkersOrdered unset",
				c.Service, len(c.Workers))
		}
		if slices.Contains(ids.new, "") {
			return nil, nil, c.named(checkIDs("worker", []string{""}))
		}
		return c.Workers, ids.all, nil
	}
	ids := make([]string, len(c.Workers))
	for i := range c.Workers {
		ids[i] = c.Workers[i].ID
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

// checkIDs refuses empty and repeated ids. In ring order equal ids are neighbours.
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

// Strategy selects how workers are assigned to relays.
type Strategy string

const (
	// Projection gives every relay a run of the worker ring. Ranges differ by at most one
	// worker and the weights have a closed form.
	Projection Strategy = "projection"

	// Rendezvous gives every worker the relays that have the highest score with it. A
	// member that joins or leaves moves only its own connections, the least possible;
	// ranges differ in size, and iteration finds weights that compensate for the
	// difference. Recommended where relays come and go and hold no stable slots.
	Rendezvous Strategy = "rendezvous"
)

// parseStrategy accepts "projection" and "rendezvous", and "" for the default, projection.
func parseStrategy(text string) (Strategy, error) {
	switch strategy := Strategy(text); strategy {
	case "":
		return Projection, nil
	case Projection, Rendezvous:
		return strategy, nil
	}
	return "", fmt.Errorf("affinity: strategy %q: allowed are %q and %q", text, Projection, Rendezvous)
}

// IndexSource selects where a relay's index comes from.
type IndexSource string

const (
	// IndexSlot uses the number of the slot that the relay holds. A relay that is replaced
	// changes only its own range. Each place has slots of its own.
	IndexSlot IndexSource = "slot"

	// IndexRank uses the relay's position among the affine relays in ring order, as
	// Hyperbahn does. One relay more or less shifts the ranges of all.
	IndexRank IndexSource = "rank"
)

// parseIndexSource accepts "slot" and "rank", and "" for the default, slot.
func parseIndexSource(text string) (IndexSource, error) {
	switch source := IndexSource(text); source {
	case "":
		return IndexSlot, nil
	case IndexSlot, IndexRank:
		return source, nil
	}
	return "", fmt.Errorf("affinity: index source %q: allowed are %q and %q", text, IndexSlot, IndexRank)
}

// Bounds on [Minimums]. With fewer than three relays, a worker has a single connection
// left while one of its relays restarts.
const (
	LeastPeersPerWorker = 3
	LeastPeersPerRelay  = 1
)

// Minimums are the least numbers of connections that a plan must keep.
type Minimums struct {
	PeersPerWorker int // relays that each worker is connected to, at least (m): 3 or more
	PeersPerRelay  int // workers that each relay is connected to, at least (p): 1 or more
}

// DefaultMinimums leave every worker and every relay a connection after two failures.
var DefaultMinimums = Minimums{PeersPerWorker: 3, PeersPerRelay: 3}

// Validate returns an error with the value and the allowed values.
func (m Minimums) Validate() error {
	if m.PeersPerWorker < LeastPeersPerWorker {
		return fmt.Errorf("affinity: min peers per worker %d: allowed are %d or more, so that a worker survives the loss of a relay while another restarts",
			m.PeersPerWorker, LeastPeersPerWorker)
	}
	if m.PeersPerRelay < LeastPeersPerRelay {
		return fmt.Errorf("affinity: min peers per relay %d: allowed are %d or more",
			m.PeersPerRelay, LeastPeersPerRelay)
	}
	return nil
}

// MaxServiceName is the longest name of a service, in bytes: it is usable as one DNS label.
const MaxServiceName = 63

// ValidateService refuses a service name that is not [a-zA-Z0-9][a-zA-Z0-9._-]{0,62}.
// The tilde stays out because it separates a service from a slot number.
func ValidateService(name string) error {
	valid := len(name) >= 1 && len(name) <= MaxServiceName
	for i := 0; valid && i < len(name); i++ {
		c := name[i]
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		valid = alphanumeric || i > 0 && (c == '.' || c == '_' || c == '-')
	}
	if !valid {
		return fmt.Errorf("service name %.80q: allowed are 1 to %d letters, digits, '.', '_' and '-', the first a letter or a digit",
			name, MaxServiceName)
	}
	return nil
}
