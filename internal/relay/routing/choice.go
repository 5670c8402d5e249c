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
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/strategy"
)

// Origin says where the strategy of a service comes from.
type Origin string

// The origins, the strongest first.
const (
	FromServiceSetting Origin = "service_setting" // this relay's setting for this service
	FromAdvertisement  Origin = "advertisement"   // the service's own endpoints
	FromSetting        Origin = "setting"         // this relay's setting for all services
	FromDefault        Origin = "default"
)

// ChoiceConfig describes a Choice.
type ChoiceConfig struct {
	// Spec is the strategy; p2c is the service's balancer itself.
	Spec strategy.Spec
	// Origin is where Spec comes from. Default: FromDefault.
	Origin Origin
	// Service is named in the log.
	Service string
	// Now is the time by the clock of selection.Instant. Required for slots.
	Now func() selection.Instant
	// Stale is told of each endpoint that slots passed over because it had not been
	// seen lately. It must not block. Default: nobody is.
	Stale func(advertise.Endpoint)
	// Dial connects for closest and farthest. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger and Metrics are those of strategy.Config.
	Logger  *slog.Logger
	Metrics *strategy.Metrics
}

// Choice is how the endpoints of a service are picked. All methods may be called
// from any goroutine.
type Choice struct {
	// Spec is the strategy, Origin where it comes from.
	Spec   strategy.Spec
	Origin Origin

	strategy *strategy.Strategy // nil: the balancer picks
	// preferred are the IDs of the preferred nodes that the range has, where the
	// strategy measures: until it has, they are taken in their order.
	preferred atomic.Pointer[[]string]
	now       func() selection.Instant
	// evicted are the IDs that the balancer has evicted, as of its last refresh; nil
	// nearly always.
	evicted atomic.Pointer[[]string]
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

// everywhere reports whether the strategy means the same on every relay only if
// every relay can reach every endpoint: one that goes by the request's key, by
// preference or by distance. The others draw from any sample as well.
func everywhere(name string) bool {
	switch name {
	case strategy.P2C, strategy.Random, strategy.Slots:
		return false
	}
	return true
}

// UsesKey reports whether a request's key has any influence.
func (c *Choice) UsesKey() bool {
	return c.Spec.Name == strategy.Stable || c.Spec.Name == strategy.StableSHA256
}

// UnknownPreferred are the preferred nodes that the range lacks.
func (c *Choice) UnknownPreferred() []string {
	if c.strategy == nil {
		return nil
	}
	return c.strategy.UnknownPreferred()
}

// measures reports whether there is something for Run to do.
func (c *Choice) measures() bool {
	return c.Spec.Name == strategy.Closest || c.Spec.Name == strategy.Farthest
}

// Run measures distances until ctx ends, where the strategy goes by them.
func (c *Choice) Run(ctx context.Context) error {
	if !c.measures() {
		return nil
	}
	return c.strategy.Run(ctx)
}

// update takes the range of a new route.
func (c *Choice) update(b *selection.Balancer, targets []*Target) error {
	if c.strategy == nil {
		return nil
	}
	if drawn := slices.DeleteFunc(slices.Clone(targets), func(t *Target) bool { return t.Weight == 0 }); len(drawn) > 0 && !everywhere(c.Spec.Name) {
		targets = drawn // the others are warm standbys of other groups
	}
	endpoints := make([]strategy.Endpoint, len(targets))
	for i, t := range targets {
		endpoints[i] = strategy.Endpoint{ID: t.ID, Node: t.Node, Address: t.Address, Weight: t.Weight, Value: t, Signals: c.signals(b, t)}
		if t.Endpoint != nil {
			// The offer's own weight, not this relay's share: relays that go by a key
			// must agree.
			endpoints[i].Weight, endpoints[i].Version = float64(max(t.Endpoint.Weight, 1)), t.Endpoint.Version
		}
	}
	if err := c.strategy.Update(endpoints); err != nil {
		return err
	}
	var preferred []string
	if c.measures() {
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

// refresh notes what the balancer has evicted. Endpoints that may be tried again are
// not among them: they are asked for one by one.
func (c *Choice) refresh(b *selection.Balancer, now selection.Instant) {
	if c.strategy == nil {
		return
	}
	var out []string
	for _, s := range b.Stats(now) {
		if s.State == "evicted" {
			out = append(out, s.ID)
		}
	}
	before := c.evicted.Load()
	switch {
	case len(out) == 0 && before == nil, before != nil && slices.Equal(*before, out):
	case len(out) == 0:
		c.evicted.Store(nil)
	default:
		c.evicted.Store(&out)
	}
}

// signals are what slots reads of an endpoint between two updates.
type signals struct {
	balancer *selection.Balancer
	target   *Target
	now      func() selection.Instant
}

func (c *Choice) signals(b *selection.Balancer, t *Target) strategy.Signals {
	switch {
	case c.Spec.Name == strategy.Slots:
		return &signals{b, t, c.now}
	case c.Spec.Name == strategy.Stable && c.Spec.Bound > 0:
		return &ownLoad{b.InFlight(t.ID)}
	}
	return nil
}

// ownLoad is what the bound of stable reads: this relay's requests in flight. What a
// worker reports of all relays has no sum to be compared with.
type ownLoad struct{ inFlight selection.InFlight }

func (o *ownLoad) Load() (slots int, known bool) { return o.inFlight.Count(), true }

// Seen is not read.
func (*ownLoad) Seen() (at selection.Instant, known bool) { return 0, false }

// Load is the worker's own count where it reports one, else this relay's.
func (s *signals) Load() (slots int, known bool) {
	load, _ := s.balancer.Load(s.target.ID, s.now())
	return int(math.Round(load)), true
}

// Seen is now for an endpoint that owes no answer: membership vouches for its
// worker, or it would not be in the range. An endpoint that requests wait for was
// seen when it last answered one.
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
