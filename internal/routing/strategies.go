package routing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/strategy"
)

// StrategiesConfig holds the strategies with which endpoints are picked.
type StrategiesConfig struct {
	// ByService are the strategies that have precedence over what their services advertise; the one
	// under "" is for all other services that advertise none. Default: p2c.
	ByService map[string]strategy.Spec
	// SessionCookies are cookie names by service, empty for none. They have precedence over
	// what a service advertises. Every relay is connected to every worker of a service with a
	// cookie, so that each relay can use the endpoint that a cookie names.
	SessionCookies map[string]string
	// Stale is called for endpoints that were not seen recently. It must not block. Default:
	// not called.
	Stale func(advertise.Endpoint)
}

// SessionCookie returns the name of the cookie of a service whose workers advertise this
// policy, empty if it has none, and where that comes from.
func (c *StrategiesConfig) SessionCookie(service string, advertised advertise.Policy) (name string, origin Origin) {
	if name, set := c.SessionCookies[service]; set {
		return name, FromServiceSetting
	}
	if advertised.SessionCookie != "" {
		return advertised.SessionCookie, FromAdvertisement
	}
	return "", FromDefault
}

// Reasons of ringway_relay_selection_problems_total.
const (
	problemInvalid      = "invalid"
	problemDisagreement = "disagreement"
	problemUnknown      = "unknown_preferred"
)

// strategyResolver decides on the strategy of every service. Only the router's goroutine calls it.
type strategyResolver struct {
	cfg      StrategiesConfig
	logger   *slog.Logger      // of measurements
	lines    *loglimit.Limiter // about what workers advertise; of its own, so that no other line displaces them
	metrics  *strategy.Metrics
	problems *prometheus.CounterVec
	policies *prometheus.CounterVec // problems of policies

	ctx     context.Context // the context of Run: background measurements end with it
	running sync.WaitGroup
}

func newStrategyResolver(cfg Config) (*strategyResolver, error) {
	metrics, err := strategy.NewMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	c := &strategyResolver{cfg: cfg.Strategies, logger: cfg.Logger, lines: loglimit.New(cfg.Logger), metrics: metrics, ctx: context.Background()}
	c.problems = metric.With(cfg.Registerer).CounterVec("ringway_relay_selection_problems_total", "Problems of the strategy of a service, each counted when it appears: invalid (an advertised strategy that cannot be used), disagreement (its workers advertise different ones, or some of them none), unknown_preferred (a preferred node offers nothing).", "reason")
	metric.StartAtZero(c.problems, problemInvalid, problemDisagreement, problemUnknown)
	c.policies = metric.With(cfg.Registerer).CounterVec("ringway_relay_policy_problems_total", "Problems of the policy of a service, each counted when it appears: invalid (an advertised policy with a part that cannot be used, or with a session cookie whose name the settings give to another service), disagreement (its workers advertise different ones, or some of them none).", "reason")
	metric.StartAtZero(c.policies, problemInvalid, problemDisagreement)
	return c, nil
}

// start lets strategies measure until ctx ends; the returned function waits for them.
func (c *strategyResolver) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.ctx = ctx
	return func() { cancel(); c.running.Wait(); c.lines.Stop() }
}

// strategyState is the state of the choice of one service.
type strategyState struct {
	stop    func() // ends the measurements of the current choice
	decided bool   // there was a choice before the current one

	// What was already logged, so that it is logged only once.
	advertised []string // the last differing advertised strategies
	unknown    []string // preferred nodes
	invalid    []string // parts of policies
	differing  []string // values of policies
}

// decide returns the strategy of a service by precedence: the relay's setting for the
// service, the strategy that most of its workers advertise, the relay's setting for all.
func (c *strategyResolver) decide(s *Service, of *strategyState, endpoints []*advertise.Endpoint, votes Votes) (strategy.Spec, Origin) {
	if spec, ok := c.cfg.ByService[s.Name]; ok {
		return spec, FromServiceSetting
	}
	ready := slices.ContainsFunc(endpoints, func(e *advertise.Endpoint) bool { return e.State == advertise.Ready })
	if now := s.Choice(); !ready && now.Origin == FromAdvertisement {
		return now.Spec, now.Origin // no ready worker is left that could advertise another one
	}
	if spec, ok := c.advertised(s.Name, of, votes); ok {
		return spec, FromAdvertisement
	}
	if spec, ok := c.cfg.ByService[""]; ok {
		return spec, FromSetting
	}
	return strategy.Default(strategy.P2C), FromDefault
}

// apply sets the strategy of a service unless the service already uses it.
func (r *Router) apply(s *Service, spec strategy.Spec, origin Origin) error {
	c, of, now := r.strategies, &r.plans[s.Name].strategyState, s.Choice()
	if now.Origin == origin && now.Spec.String() == spec.String() {
		of.decided = true
		return nil
	}
	next, err := NewChoice(ChoiceConfig{
		Spec: spec, Origin: origin, Service: s.Name, Now: r.now, Stale: c.cfg.Stale, Dial: r.cfg.Dial, Logger: c.logger, Metrics: c.metrics,
	})
	if err != nil {
		return err
	}
	if err := s.SetChoice(next); err != nil {
		return err
	}
	of.end()
	of.unknown = nil
	if next.Spec.Measures() {
		ctx, cancel := context.WithCancel(c.ctx)
		of.stop = cancel
		c.running.Go(func() { _ = next.Run(ctx) }) // it fails only if it is called twice
	}
	level := slog.LevelInfo
	if !of.decided { // with thousands of services, these lines would fill the log of a start
		level = slog.LevelDebug
	}
	of.decided = true
	c.lines.Log(level, "strategy of a service", "service", s.Name, "selection", spec.String(), "origin", string(origin))
	return nil
}

// end stops the background work of the current choice.
func (of *strategyState) end() {
	if of.stop != nil {
		of.stop()
		of.stop = nil
	}
}

// logUnknown warns of preferred nodes that a service lacks, since a misspelt name cannot
// be distinguished from a node that is down. It warns when the set changes.
func (c *strategyResolver) logUnknown(s *Service, of *strategyState) {
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
		c.lines.Log(slog.LevelWarn, "preferred nodes do not offer the service: they may be down, or their names misspelt",
			"service", s.Name, "selection", choice.Spec.String(), "unknown", strings.Join(unknown, ","))
	}
}

// advertised returns the strategy that wins among the advertised ones. ok is false if the
// relay's setting wins.
func (c *strategyResolver) advertised(service string, of *strategyState, votes Votes) (spec strategy.Spec, ok bool) {
	for _, text := range slices.Sorted(maps.Keys(votes.invalid)) {
		if !slices.Contains(of.advertised, text) {
			c.problems.WithLabelValues(problemInvalid).Inc()
			c.lines.Log(slog.LevelWarn, "the strategy that a service advertises is not used: it is invalid", "service", service, "selection", text, "err", votes.invalid[text])
		}
	}
	ranked := Ranked(votes.Selections)
	said := append(slices.Sorted(maps.Keys(votes.invalid)), slices.Sorted(maps.Keys(votes.Selections))...)
	if len(ranked) > 1 && !slices.Equal(said, of.advertised) {
		c.problems.WithLabelValues(problemDisagreement).Inc()
		c.lines.Log(slog.LevelWarn, "the workers of a service advertise different strategies; most of them decide", "service", service,
			"used", cmp.Or(ranked[0], "the relay's setting"), "advertised", strings.Join(ranked, " "))
	}
	of.advertised = said
	if won := winner(votes.Selections); won != "" {
		spec, err := strategy.Parse(won) // cannot fail: the text comes from Spec.String
		return spec, err == nil
	}
	return strategy.Spec{}, false
}

// cookieOf returns another service to which the settings give a cookie of this name. On one
// host the cookies of two services would replace each other, and the operator has decided.
func (c *strategyResolver) cookieOf(name, service string) string {
	if _, own := c.cfg.SessionCookies[service]; own || name == "" {
		return ""
	}
	for _, other := range slices.Sorted(maps.Keys(c.cfg.SessionCookies)) {
		if c.cfg.SessionCookies[other] == name {
			return other
		}
	}
	return ""
}

// policy returns the policy that wins among the advertised ones, field by field. It logs
// what is invalid and where workers differ, once for each change.
func (c *strategyResolver) policy(service string, of *strategyState, votes Votes) advertise.Policy {
	won := votes.policy()
	var invalid, differing []string
	for _, text := range slices.Sorted(maps.Keys(votes.invalidPolicies)) {
		invalid = append(invalid, votes.invalidPolicies[text].Error())
	}
	if of := c.cookieOf(won.SessionCookie, service); of != "" {
		invalid = append(invalid, fmt.Sprintf("session-cookie %q: --session-cookie gives the name to %s", won.SessionCookie, of))
		won.SessionCookie = ""
	}
	for _, key := range advertise.PolicyKeys() {
		if ranked := RankedPolicies(votes.Policies[key]); len(ranked) > 1 {
			for i, value := range ranked {
				ranked[i] = cmp.Or(value, "none")
			}
			differing = append(differing, key+" "+strings.Join(ranked, " "))
		}
	}
	if len(invalid) > 0 && !slices.Equal(invalid, of.invalid) {
		c.policies.WithLabelValues(problemInvalid).Inc()
		c.lines.Log(slog.LevelWarn, "parts of the policy that a service advertises are not used", "service", service, "err", strings.Join(invalid, "; "))
	}
	if len(differing) > 0 && !slices.Equal(differing, of.differing) {
		c.policies.WithLabelValues(problemDisagreement).Inc()
		c.lines.Log(slog.LevelWarn, "the workers of a service advertise different policies; most of them decide", "service", service,
			"used", cmp.Or(won.String(), "the relay's settings"), "advertised", strings.Join(differing, "; "))
	}
	of.invalid, of.differing = invalid, differing
	return won
}
