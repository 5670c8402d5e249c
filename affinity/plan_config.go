package affinity

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/ringway/ringway/ring"
)

const (
	// DefaultPeersPerTier is the number of workers below which a relay also serves workers
	// outside its datacenter. Three leave two to choose from when one fails.
	DefaultPeersPerTier = 3

	// DefaultZoneSlack keeps requests in their zone while that costs its workers at most a tenth
	// more load than the others have.
	DefaultZoneSlack = 1.1
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
	// that each worker has as many relays as it needs, or 0, the default, for [AutoRelays]. In a
	// smaller fleet every relay serves the service.
	RelaysPerService int

	// WholeRange connects every affine relay to every worker, for strategies and cookies
	// that can name any of them. The automatic number of relays is then 10, or
	// Minimums.PeersPerWorker if that is more: more would need as many more connections.
	WholeRange bool

	// Minimums defaults to [DefaultMinimums] when it is the zero value.
	Minimums Minimums

	// PeersPerTier is the number of workers below which the relays of a datacenter also
	// serve the region, and below which the relays of a region serve all workers. 1 or
	// more, 0 for [DefaultPeersPerTier].
	PeersPerTier int

	// ZoneSlack is how much more than the mean load the workers of a zone (a datacenter) may get
	// from its own relays, before these send the rest to other zones: 1 to 10, 0 for
	// [DefaultZoneSlack]. With 1 all workers get the same load.
	ZoneSlack float64

	// IndexSource defaults to [IndexSlot].
	IndexSource IndexSource

	// Strategy defaults to [Projection].
	Strategy Strategy
}

// complete fills in defaults and refuses settings out of bounds.
func (c *PlanConfig) complete() error {
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
	if c.Minimums == (Minimums{}) {
		c.Minimums = DefaultMinimums
	}
	if c.RelaysPerService != 0 && c.RelaysPerService < c.Minimums.PeersPerWorker {
		return fmt.Errorf("affinity: service %q: relays per service %d: allowed are %d (the min peers per worker) or more, or 0 for an automatic number",
			c.Service, c.RelaysPerService, c.Minimums.PeersPerWorker)
	}
	if c.PeersPerTier < 0 {
		return fmt.Errorf("affinity: service %q: peers per tier %d: allowed are 1 or more, or 0 for the default of %d",
			c.Service, c.PeersPerTier, DefaultPeersPerTier)
	}
	c.PeersPerTier = cmp.Or(c.PeersPerTier, DefaultPeersPerTier)
	c.ZoneSlack = cmp.Or(c.ZoneSlack, DefaultZoneSlack)
	if !(c.ZoneSlack >= 1 && c.ZoneSlack <= MaxZoneSlack) {
		return fmt.Errorf("affinity: service %q: zone slack %v: allowed are 1 to %v, or 0 for the default of %v",
			c.Service, c.ZoneSlack, MaxZoneSlack, DefaultZoneSlack)
	}
	shape := Shape{Relays: len(c.Relays), Workers: len(c.Workers), Minimums: c.Minimums}
	if c.WholeRange {
		shape.PeersPerWorker = max(shape.PeersPerWorker, len(c.Relays))
	}
	return c.named(shape.validate())
}

// serving returns the number of affine relays, of a number of relays to choose from.
func (c *PlanConfig) serving(relays int) int {
	switch {
	case c.RelaysPerService != 0:
		return min(relays, c.RelaysPerService)
	case c.WholeRange:
		return min(relays, max(autoLeast, c.Minimums.PeersPerWorker))
	}
	return AutoRelays(relays, len(c.Workers), c.Minimums)
}

// AutoRelays returns how many of the relays of a fleet serve a service with a number of
// workers, unless a number is set: 10, as many as leave each about 16 workers, or the whole
// fleet, whichever is in between, and never less than the relays that each worker needs. A
// large service needs the connections and the processors of all relays, and then most requests
// reach a relay that serves it.
//
// Above 16 the result is one of few numbers (18, 20, … 30, 32, 36, … 60, 64, 72, …) and
// below the size of the fleet: a relay that is left over replaces one that leaves, and all
// others keep their ranges.
func AutoRelays(relays, workers int, minimums Minimums) int {
	m := minimums.PeersPerWorker
	// A step below the minimum would leave each worker with fewer relays.
	return max(min(relays, m), step(min(relays, max(autoLeast, m*workers/autoWorkers))))
}

const (
	// autoLeast is the number of relays of a small service, as in Hyperbahn.
	autoLeast = 10
	// autoWorkers is how many workers a relay of a large service connects to, at least: the
	// balancer needs about that many to choose from. With fewer relays, more requests would
	// take a hop.
	autoWorkers = 16
)

// step returns n up to 16, and above it the largest number below n of the form a·2^e with
// 8 <= a <= 15. Fleets often have a round number of relays, such as 32, 50 or 96. There,
// a relay that leaves must not change the step.
func step(n int) int {
	if n <= 16 {
		return n
	}
	drop := bits.Len(uint(n-1)) - 4
	return (n - 1) >> drop << drop
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
	// Slots are needed if they define the index, or to choose k of more relays.
	if k := c.serving(len(ids)); c.IndexSource == IndexSlot || k < len(ids) {
		chosen := slotHolders(c.Service, k, ids)
		if c.IndexSource == IndexRank {
			chosen = ring.Order(c.Service, chosen)
		} else {
			c.slotsOfPlaces(chosen, ids, byID)
		}
		ids = chosen
	}
	out := make([]Relay, len(ids))
	for i, id := range ids {
		out[i] = byID[id]
	}
	return out, nil
}

// slotsOfPlaces gives each place slots of its own, as many as it has among the chosen relays:
// a place that loses relays must not move the ranges in another. Where all relays are in one
// place, nothing changes.
func (c *PlanConfig) slotsOfPlaces(chosen, all []string, byID map[string]Relay) {
	members, places := map[Place][]string{}, map[Place][]int{}
	for _, id := range all {
		members[byID[id].Place] = append(members[byID[id].Place], id)
	}
	if len(members) == 1 {
		return
	}
	for i, id := range chosen {
		places[byID[id].Place] = append(places[byID[id].Place], i)
	}
	for place, at := range places {
		for i, id := range slotHolders(c.Service, len(at), members[place]) {
			chosen[at[i]] = id
		}
	}
}

// orderedWorkers returns the workers in ring order, and their ids.
func (c *PlanConfig) orderedWorkers() ([]Worker, []string, error) {
	ids := make([]string, len(c.Workers))
	for i, worker := range c.Workers {
		ids[i] = worker.ID
	}
	if c.WorkersOrdered {
		if !ring.IsOrdered(c.Service, ids) {
			return nil, nil, fmt.Errorf("affinity: service %q: WorkersOrdered is set, but the %d workers are not in ring order, or one is repeated: pass them in the order of ring.Order(service, ids) or leave WorkersOrdered unset",
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

// Relay is a relay of the fleet.
type Relay struct {
	ID string // stable and unique
	Place

	// Traffic is how many requests per second the relay carries for the service, 0 if that is
	// not known: as many as the mean of the others. Within a zone it decides weights, and no
	// connection.
	Traffic int
}

// MaxTrafficRatio bounds the traffic of a relay: it counts as at least the mean divided by
// MaxTrafficRatio and as at most the mean times MaxTrafficRatio. A relay that lies about its
// traffic cannot do more than that.
const MaxTrafficRatio = 4

// supplyOf returns the traffic of each relay that serves a service as a multiple of the mean, nil
// if all carry the same. While none is known, all relays of the fleet get the same from clients,
// and those that do not serve the service forward to relays of their own zone: so the relays of a
// zone carry more where fewer of them serve.
func supplyOf(serving, fleet []Relay) []float64 {
	out, sum, known := make([]float64, len(serving)), 0.0, 0
	for i, r := range serving {
		out[i] = float64(r.Traffic)
		if r.Traffic > 0 {
			sum += out[i]
			known++
		}
	}
	if known == 0 {
		all, chosen := map[Place]int{}, map[Place]int{}
		for _, r := range fleet {
			all[r.Place]++
		}
		for _, r := range serving {
			chosen[r.Place]++
		}
		for i, r := range serving {
			out[i] = float64(all[r.Place]) / float64(chosen[r.Place])
			sum += out[i]
		}
		known = len(serving)
	}
	mean, total, equal := sum/float64(known), 0.0, true
	for i := range out {
		if out[i] == 0 {
			out[i] = mean
		}
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
