package strategy

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Config describes a Strategy. Only Spec is required.
type Config struct {
	// Spec says which strategy, with what parameters.
	Spec Spec
	// Service is named in the log.
	Service string
	// Stale is told of each stale endpoint that slots meets on its way. It is
	// called within a pick, so it must not block; expiry.Scheduler.Observe suits.
	Stale func(*Endpoint)
	// Dial opens a connection for closest and farthest. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Rand makes picks repeatable in tests. It must be safe for concurrent use if
	// Pick is called so. Default: the runtime's generator, and crypto/rand for
	// random.
	Rand rand.Source
	// Logger gets the warnings. Default: none.
	Logger *slog.Logger
	// Metrics count; one value serves all services. Default: none.
	Metrics *Metrics
}

// picker is one strategy.
type picker interface {
	// update publishes a table of endpoints that are checked, sorted by node and
	// the picker's own. Calls do not overlap.
	update(sorted []*Endpoint)
	// pick chooses. With a decision it also tells how, and then has no effect on
	// metrics, log or observers.
	pick(r Request, d *Decision) (*Endpoint, error)
	// describe is the decision's rule and what its scores measure.
	describe() (rule, measure string)
}

// Strategy picks endpoints. New makes one; all methods are safe for concurrent
// use.
type Strategy struct {
	spec    Spec
	picker  picker
	results *[resultCount]prometheus.Counter

	mu      sync.Mutex // guards unknown and the order of updates
	unknown []string
}

// New checks the configuration, all of it at once. It starts nothing.
func New(cfg Config) (*Strategy, error) {
	if err := cfg.Spec.Validate(); err != nil {
		return nil, err
	}
	cfg.Spec.Preferred = slices.Clone(cfg.Spec.Preferred)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = newMetrics()
	}
	s := &Strategy{spec: cfg.Spec, results: cfg.Metrics.picks[cfg.Spec.Name], unknown: slices.Clone(cfg.Spec.Preferred)}
	random := rand.New(orRuntime(cfg.Rand))
	switch cfg.Spec.Name {
	case Stable:
		s.picker = &stable{bound: cfg.Spec.Bound, random: random, keyless: cfg.Metrics.keyless[Stable], passedOn: cfg.Metrics.passedOn}
	case StableSHA256:
		s.picker = &stableSHA256{random: random, keyless: cfg.Metrics.keyless[StableSHA256]}
	case Manual:
		s.picker = newManual(cfg.Spec.Preferred)
	case Ordered:
		s.picker = &ordered{preferred: cfg.Spec.Preferred}
	case Random:
		s.picker = newUniform(cfg.Rand)
	case Closest, Farthest:
		s.picker = newByDistance(cfg)
	case Slots:
		s.picker = newSlots(cfg, random)
	default:
		return nil, errors.New("selection: p2c is no strategy of this package: use a selection.Balancer")
	}
	s.picker.update(nil)
	return s, nil
}

// Update replaces the range; the slice is copied. On an error (an ID or Node
// empty or repeated, a weight negative, infinite or NaN; all reported at once) the
// old range stays.
func (s *Strategy) Update(endpoints []Endpoint) error {
	if err := validate(endpoints); err != nil {
		return err
	}
	sorted := byNode(slices.Clone(endpoints))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = slices.DeleteFunc(slices.Clone(s.spec.Preferred), func(node string) bool {
		return slices.ContainsFunc(sorted, func(e *Endpoint) bool { return e.Node == node })
	})
	s.picker.update(sorted)
	return nil
}

// Pick chooses an endpoint. The error wraps one of this package's and says why
// there is none.
func (s *Strategy) Pick(r Request) (*Endpoint, error) {
	e, err := s.picker.pick(r, nil)
	s.results[resultOf(err)].Inc()
	return e, err
}

// Explain tells how a pick for the request goes. Where chance takes part it is a
// pick of its own, not the last one. It changes nothing and counts nothing.
func (s *Strategy) Explain(r Request) Decision {
	d := Decision{Strategy: s.spec.String(), Key: r.Key}
	d.Rule, d.Measure = s.picker.describe()
	d.Winner, d.Err = s.picker.pick(r, &d)
	return d
}

// Spec returns the strategy's specification.
func (s *Strategy) Spec() Spec {
	spec := s.spec
	spec.Preferred = slices.Clone(spec.Preferred)
	return spec
}

// UnknownPreferred returns the preferred nodes that the range lacks, in the
// configured order: worth a warning once the range is complete, since a misspelt
// name looks no different from one that is down.
func (s *Strategy) UnknownPreferred() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unknown)
}

// Run does the strategy's background work until ctx ends, and waits for what it
// started: closest and farthest measure. The others have none, and Run returns at
// once. One Run runs at a time; an error says that one does already.
func (s *Strategy) Run(ctx context.Context) error {
	if p, ok := s.picker.(*byDistance); ok {
		return p.run(ctx)
	}
	return nil
}

// first returns the first endpoint of the list, from start on and around its end,
// that the request does not exclude. With a decision it looks at them all; the
// score is the place.
func first(list []*Endpoint, start int, r *Request, d *Decision) (*Endpoint, error) {
	if len(list) == 0 {
		return nil, errNoEndpoints
	}
	var winner *Endpoint
	for i := range list {
		e := list[(start+i)%len(list)]
		excluded := r.excludes(e)
		d.consider(e, float64(i), noteOf(excluded))
		if !excluded && winner == nil {
			if winner = e; d == nil {
				break
			}
		}
	}
	if winner == nil {
		return nil, errAllExcluded
	}
	return winner, nil
}
