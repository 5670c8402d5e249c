package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync/atomic"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

// Origin is where the strategy of a service, or a field of its policy, comes from.
type Origin string

// The origins in order of precedence, the highest first.
const (
	FromServiceSetting Origin = "service_setting" // this relay's setting for this service
	FromAdvertisement  Origin = "advertisement"   // the service's own endpoints
	FromSetting        Origin = "setting"         // this relay's setting for all services
	FromDefault        Origin = "default"
)

// ChoiceConfig describes a Choice.
type ChoiceConfig struct {
	// Spec is the strategy; p2c means the service's own balancer.
	Spec strategy.Spec
	// Origin is where Spec comes from. Default: FromDefault.
	Origin Origin
	// Service is the name for the log.
	Service string
	// Now returns the current selection.Instant. Required for slots.
	Now func() selection.Instant
	// Stale is called for each endpoint that slots skipped because it had not been seen
	// recently. It must not block. Default: not called.
	Stale func(advertise.Endpoint)
	// Dial connects for closest and farthest. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger and Metrics are passed to strategy.Config.
	Logger  *slog.Logger
	Metrics *strategy.Metrics
}

// Choice picks the endpoints of a service. All methods may be called from any goroutine.
type Choice struct {
	// Spec is the strategy, Origin where it comes from.
	Spec   strategy.Spec
	Origin Origin

	strategy *strategy.Strategy // nil: the balancer picks
	// preferred are the IDs of the preferred nodes in the range, if the strategy measures:
	// until it has measured, they are used in this order.
	preferred atomic.Pointer[[]string]
	now       func() selection.Instant
}

// NewChoice checks the configuration. It starts nothing.
func NewChoice(cfg ChoiceConfig) (*Choice, error) {
	if cfg.Spec.Name == "" {
		cfg.Spec.Name = strategy.P2C
	}
	if cfg.Origin == "" {
		cfg.Origin = FromDefault
	}
	c := &Choice{Spec: cfg.Spec, Origin: cfg.Origin, now: cfg.Now}
	if c.Spec.Name == strategy.P2C {
		return c, cfg.Spec.Validate()
	}
	if cfg.Now == nil && cfg.Spec.Name == strategy.Slots {
		return nil, errors.New("routing: strategy slots needs ChoiceConfig.Now: it asks when an endpoint was seen last")
	}
	of := strategy.Config{Spec: cfg.Spec, Service: cfg.Service, Dial: cfg.Dial, Logger: cfg.Logger, Metrics: cfg.Metrics}
	if cfg.Stale != nil {
		of.Stale = func(e *strategy.Endpoint) {
			if t, ok := e.Value.(*Target); ok && t.Endpoint != nil {
				cfg.Stale(*t.Endpoint)
			}
		}
	}
	var err error
	if c.strategy, err = strategy.New(of); err != nil {
		return nil, fmt.Errorf("routing: service %s: %w", cfg.Service, err)
	}
	return c, nil
}

// UnknownPreferred returns the preferred nodes that the range lacks.
func (c *Choice) UnknownPreferred() []string {
	if c.strategy == nil {
		return nil
	}
	return c.strategy.UnknownPreferred()
}

// Run measures distances until ctx ends, if the strategy uses them.
func (c *Choice) Run(ctx context.Context) error {
	if !c.Spec.Measures() {
		return nil
	}
	return c.strategy.Run(ctx)
}

// update sets the range of a new route.
func (c *Choice) update(b *selection.Balancer[*Target], targets []*Target) error {
	if c.strategy == nil {
		return nil
	}
	if drawn := slices.DeleteFunc(slices.Clone(targets), func(t *Target) bool { return t.Weight == 0 }); len(drawn) > 0 && !c.Spec.NeedsWholeRange() {
		targets = drawn // the others are warm standbys of other groups
	}
	endpoints := make([]strategy.Endpoint, len(targets))
	for i, t := range targets {
		endpoints[i] = strategy.Endpoint{ID: t.ID, Node: t.Node, Address: t.Address, Weight: t.Weight, Value: t, Signals: c.signals(b, t)}
		if t.Endpoint != nil {
			// Not this relay's share of it: relays with a strategy by key must agree.
			endpoints[i].Weight, endpoints[i].Version = t.offeredWeight(), t.Endpoint.Version
		}
	}
	if err := c.strategy.Update(endpoints); err != nil {
		return err
	}
	var preferred []string
	if c.Spec.Measures() {
		for _, node := range c.Spec.Preferred {
			for _, e := range endpoints {
				if e.Node == node {
					preferred = append(preferred, e.ID)
				}
			}
		}
	}
	c.preferred.Store(&preferred)
	return nil
}

// signals are the values of an endpoint that slots reads between two updates.
type signals struct {
	balancer *selection.Balancer[*Target]
	target   *Target
	now      func() selection.Instant
}

func (c *Choice) signals(b *selection.Balancer[*Target], t *Target) strategy.Signals {
	switch {
	case c.Spec.Name == strategy.Slots:
		return &signals{b, t, c.now}
	case c.Spec.Name == strategy.Stable && c.Spec.Bound > 0:
		return &ownLoad{b.InFlight(t.ID)}
	}
	return nil
}

// ownLoad is the load for the bound of stable: this relay's requests in flight. The load
// that a worker reports for all relays cannot be used, because there is no sum to compare
// it with.
type ownLoad struct{ inFlight selection.InFlight }

func (o *ownLoad) Load() (slots int, known bool) { return o.inFlight.Count(), true }

// Seen is not used.
func (*ownLoad) Seen() (at selection.Instant, known bool) { return 0, false }

// Load returns the worker's own count if it reports one, else this relay's.
func (s *signals) Load() (slots int, known bool) {
	load, _ := s.balancer.Load(s.target.ID, s.now())
	return int(math.Round(load)), true
}

// Seen returns now for an endpoint without waiting requests: membership proves that its
// worker is alive, otherwise it would not be in the range. For an endpoint on which
// requests wait, Seen returns when it last answered one.
func (s *signals) Seen() (at selection.Instant, known bool) {
	if e := s.target.Endpoint; e != nil && e.Unreachable {
		return 0, false
	}
	now := s.now()
	if silence := s.balancer.Silence(s.target.ID, now); silence > 0 {
		return now - selection.Instant(silence), true
	}
	return math.MaxInt64, true
}
