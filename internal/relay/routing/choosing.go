package routing

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/selection/strategy"
)

// ChoosingConfig says with which strategies endpoints are picked.
type ChoosingConfig struct {
	// ByService are the strategies of single services. They beat what a service
	// advertises.
	ByService map[string]strategy.Spec
	// Default is for services that advertise none. Default: p2c.
	Default *strategy.Spec
	// SessionCookies are the names of cookies, by service. Every relay is connected to
	// every worker of such a service, so that a cookie names the same one to all.
	SessionCookies map[string]string
	// Stale is told of endpoints that were not seen lately. It must not block.
	// Default: nobody is.
	Stale func(advertise.Endpoint)
}

// Reasons of ringway_relay_selection_problems_total.
const (
	problemInvalid      = "invalid"
	problemDisagreement = "disagreement"
	problemUnknown      = "unknown_preferred"
)

// choosing decides on the strategy of every service. Only the router's goroutine
// calls it.
type choosing struct {
	cfg      ChoosingConfig
	least    affinity.Minimums // of any plan
	logger   *slog.Logger
	metrics  *strategy.Metrics
	problems *prometheus.CounterVec

	ctx     context.Context // Run's: what is measured in the background ends with it
	running sync.WaitGroup
}

func newChoosing(cfg Config) (*choosing, error) {
	metrics, err := strategy.NewMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	c := &choosing{cfg: cfg.Choosing, least: cfg.Plans.Minimums, logger: cfg.Logger, metrics: metrics, ctx: context.Background()}
	c.problems = promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_relay_selection_problems_total", Help: "What is wrong with the strategy of a service, each problem counted when it comes up: invalid (an advertised strategy makes no sense), disagreement (its workers advertise different ones, or some of them none), unknown_preferred (a preferred node offers nothing).",
	}, []string{"reason"})
	for _, reason := range []string{problemInvalid, problemDisagreement, problemUnknown} {
		c.problems.WithLabelValues(reason)
	}
	return c, nil
}

// start lets strategies measure until ctx ends; the returned function waits for them.
func (c *choosing) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.ctx = ctx
	return func() { cancel(); c.running.Wait() }
}

// chosen is what is remembered of one service.
type chosen struct {
	stop    func() // ends the measuring of the present choice
	decided bool   // there was a choice before the present one

	// What was said already, so that it is said once.
	advertised []string // the last advertised strategies, different ones
	unknown    []string // preferred nodes
}

// decide says which strategy a service uses, the first there is: the relay's setting
// for the service, what most of its workers advertise, the relay's setting for all.
func (c *choosing) decide(s *Service, of *chosen, endpoints []*advertise.Endpoint, votes Votes) (strategy.Spec, Origin) {
	if spec, ok := c.cfg.ByService[s.Name]; ok {
		return spec, FromServiceSetting
	}
	ready := slices.ContainsFunc(endpoints, func(e *advertise.Endpoint) bool { return e.State == advertise.Ready })
	if now := s.Choice(); !ready && now.Origin == FromAdvertisement {
		return now.Spec, now.Origin // nobody is left to say otherwise
	}
	if spec, ok := c.advertised(s.Name, of, votes); ok {
		return spec, FromAdvertisement
	}
	if c.cfg.Default != nil {
		return *c.cfg.Default, FromSetting
	}
	return strategy.Default(strategy.P2C), FromDefault
}

// minimums are those of a plan of the service. Every relay is connected to every worker
// where the strategy, or a session cookie, means only then the same on all of them.
func (c *choosing) minimums(service string, spec strategy.Spec, relays int) affinity.Minimums {
	m := c.least
	if _, held := c.cfg.SessionCookies[service]; held || everywhere(spec.Name) {
		m.PeersPerWorker = max(m.PeersPerWorker, relays)
	}
	return m
}

// apply has a service use a strategy, if it does not yet.
func (r *Router) apply(s *Service, spec strategy.Spec, origin Origin) error {
	c, of, now := r.choosing, &r.plans[s.Name].chosen, s.Choice()
	if now.Origin == origin && now.Spec.String() == spec.String() {
		of.decided = true
		return nil
	}
	next, err := NewChoice(ChoiceConfig{
		Spec: spec, Origin: origin, Service: s.Name, Now: r.now, Stale: c.cfg.Stale, Logger: c.logger, Metrics: c.metrics,
	})
	if err != nil {
		return err
	}
	if err := s.SetChoice(next); err != nil {
		return err
	}
	of.end()
	of.unknown = nil
	if next.measures() {
		ctx, cancel := context.WithCancel(c.ctx)
		of.stop = cancel
		c.running.Go(func() { _ = next.Run(ctx) }) // it fails only when it is run twice
	}
	level := slog.LevelInfo
	if !of.decided { // with thousands of services, a start would be nothing but this
		level = slog.LevelDebug
	}
	of.decided = true
	c.logger.Log(c.ctx, level, "strategy of a service", "service", s.Name, "selection", spec.String(), "origin", string(origin))
	return nil
}

// end stops what the present choice does in the background.
func (of *chosen) end() {
	if of.stop != nil {
		of.stop()
		of.stop = nil
	}
}

// tellUnknown warns of preferred nodes that a service lacks: a misspelt name looks no
// different from one that is down. Each time that others are missing.
func (c *choosing) tellUnknown(s *Service, of *chosen) {
	choice := s.Choice()
	if len(choice.Spec.Preferred) == 0 {
		return
	}
	unknown := choice.UnknownPreferred()
	if slices.Equal(unknown, of.unknown) {
		return
	}
	of.unknown = unknown
	if len(unknown) > 0 {
		c.problems.WithLabelValues(problemUnknown).Inc()
		c.logger.Warn("preferred nodes do not offer the service: they may be down, or their names misspelt",
			"service", s.Name, "selection", choice.Spec.String(), "unknown", strings.Join(unknown, ","))
	}
}
