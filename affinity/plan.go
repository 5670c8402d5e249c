package affinity

import (
	"fmt"
	"slices"

	"github.com/ringway/ringway/ring"
)

// DefaultRelaysPerService is the number of relays that serve one service (k),
// the same as Hyperbahn's.
const DefaultRelaysPerService = 10

// PlanConfig is what a plan depends on; two relays that agree on it have the same plan.
type PlanConfig struct {
	// Service is the name of the service; see [ValidateService].
	Service string

	// Relays are the ids of all relays of the fleet, in any order. The affine ones are
	// chosen from them.
	Relays []string

	// Workers are the ids of the endpoints of the service. NewPlan copies them, unless
	// WorkersOrdered is set.
	Workers []string

	// WorkersOrdered says that Workers is already ring.Order(Service, …). The slice is then
	// kept and must not change any more. The order is still checked, in one pass, because
	// relays that disagree on it would leave workers without connections.
	WorkersOrdered bool

	// RelaysPerService is the number of affine relays: 1 or more, 0 for
	// [DefaultRelaysPerService]. A smaller fleet serves the service whole.
	RelaysPerService int

	// Minimums defaults to [DefaultMinimums] when it is the zero value.
	Minimums Minimums

	// IndexSource defaults to [IndexRank].
	IndexSource IndexSource
}

// Plan says, for one service, which relays serve it and which workers each of them
// connects to. It is immutable and safe for concurrent use.
type Plan struct {
	service string
	affine  []string
	workers []string
	shape   Shape
}

// Assignment is one connection that a relay should hold.
type Assignment struct {
	Worker string
	Weight float64 // share of the relay's traffic, 0 to 1; 0 is a warm standby
}

// NewPlan picks the affine relays and puts relays and workers in ring order. It returns
// [ErrNoRelays] or [ErrNoWorkers] for an empty side, and an error for ids that are empty
// or repeated, for a bad service name, and for settings out of bounds.
//
// It costs a sort of the workers, unless WorkersOrdered is set, and one hash per slot and
// relay where there are more relays than slots.
func NewPlan(cfg PlanConfig) (*Plan, error) {
	if err := ValidateService(cfg.Service); err != nil {
		return nil, err
	}
	source, err := ParseIndexSource(string(cfg.IndexSource))
	if err != nil {
		return nil, fmt.Errorf("service %q: %w", cfg.Service, err)
	}
	k := cfg.RelaysPerService
	if k == 0 {
		k = DefaultRelaysPerService
	}
	if k < 0 {
		return nil, fmt.Errorf("affinity: service %q: relays per service %d: allowed are 1 or more, or 0 for the default of %d",
			cfg.Service, k, DefaultRelaysPerService)
	}
	if cfg.Minimums == (Minimums{}) {
		cfg.Minimums = DefaultMinimums
	}
	shape := Shape{Relays: min(k, len(cfg.Relays)), Workers: len(cfg.Workers), Minimums: cfg.Minimums}
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("service %q: %w", cfg.Service, err)
	}

	workers := cfg.Workers
	switch {
	case !cfg.WorkersOrdered:
		workers = ring.Order(cfg.Service, workers)
		if err := checkIDs("worker", workers); err != nil {
			return nil, fmt.Errorf("service %q: %w", cfg.Service, err)
		}
	case !ring.IsOrdered(cfg.Service, workers):
		return nil, fmt.Errorf("affinity: service %q: the %d workers are said to be in ring order but are not, or one is repeated: pass ring.Order(service, workers) or leave WorkersOrdered unset",
			cfg.Service, len(workers))
	case slices.Contains(workers, ""):
		return nil, checkIDs("worker", []string{""})
	}
	ordered := ring.Order(cfg.Service, cfg.Relays)
	if err := checkIDs("relay", ordered); err != nil {
		return nil, fmt.Errorf("service %q: %w", cfg.Service, err)
	}
	return &Plan{
		service: cfg.Service,
		affine:  affineRelays(cfg.Service, ordered, k, source),
		workers: slices.Clip(workers),
		shape:   shape,
	}, nil
}

// affineRelays returns the relays of a service by index; ordered is the fleet in ring
// order.
func affineRelays(service string, ordered []string, k int, source IndexSource) []string {
	if source == IndexRank && k >= len(ordered) {
		return ordered // whoever gets which slot, all of them serve
	}
	affine := Slots(service, k, ordered)
	if source == IndexRank {
		affine = ring.Order(service, affine)
	}
	return slices.Clip(affine)
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

// Service returns the name of the service.
func (p *Plan) Service() string { return p.service }

// Affine returns the relays that serve the service, by index. The slice is the plan's and
// must not be changed.
func (p *Plan) Affine() []string { return p.affine }

// Workers returns the workers in ring order: the positions of every [Range] refer to it.
// The slice is the plan's and must not be changed.
func (p *Plan) Workers() []string { return p.workers }

// Shape returns the counts and minimums of the plan.
func (p *Plan) Shape() Shape { return p.shape }

// Index returns the index of a relay, and false if it does not serve the service.
func (p *Plan) Index(relay string) (int, bool) {
	i := slices.Index(p.affine, relay)
	return i, i >= 0
}

// Range returns the positions in [Plan.Workers] that the relay at index connects to.
func (p *Plan) Range(index int) (Range, error) {
	r, err := p.shape.Range(index)
	return r, p.named(err)
}

// AppendWeights appends the weights of the relay at index, in the order of its range; see
// [Shape.AppendWeights].
func (p *Plan) AppendWeights(dst []float64, index int) ([]float64, error) {
	dst, err := p.shape.AppendWeights(dst, index)
	return dst, p.named(err)
}

// Assignments returns the connections of the relay at index with their weights, in ring
// order from the start of its range. The slice is the caller's.
func (p *Plan) Assignments(index int) ([]Assignment, error) {
	r, err := p.Range(index)
	if err != nil {
		return nil, err
	}
	weights := p.shape.appendWeights(make([]float64, 0, r.Len()), index)
	out := make([]Assignment, 0, r.Len())
	for pos := range r.All() {
		out = append(out, Assignment{Worker: p.workers[pos], Weight: weights[len(out)]})
	}
	return out, nil
}

// Coverage counts the connections of all affine relays, in O(R + W). The result is the
// caller's.
func (p *Plan) Coverage() Coverage {
	return p.shape.coverage(make([]int, p.shape.Workers+1))
}

func (p *Plan) named(err error) error {
	if err != nil {
		return fmt.Errorf("service %q: %w", p.service, err)
	}
	return nil
}
