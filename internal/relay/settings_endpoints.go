package relay

import (
	"fmt"
	"math"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/pool"
)

// endpointSettings are the settings for the statistics, evictions and connections of
// endpoints: workers, and relays to forward to.
type endpointSettings struct {
	Alpha              float64
	EvictAfterFailures int
	EvictErrorRate     float64
	EvictLatencyFactor float64
	EvictMaxTime       time.Duration
	SlowStart          time.Duration

	DialTimeout           time.Duration
	IdleConnectionTimeout time.Duration
	MaxIdleConnections    int

	ForwardCandidates, ForwardPrimaries, ForwardBackups int
	ForwardMaxAge                                       time.Duration
}

func defaultEndpointSettings() endpointSettings {
	s, f := selection.DefaultConfig(), pool.DefaultConfig()
	return endpointSettings{
		Alpha: s.Alpha, EvictAfterFailures: s.ConsecutiveFailures, EvictErrorRate: s.ErrorRateThreshold,
		EvictLatencyFactor: s.LatencyFactor, EvictMaxTime: s.MaxEviction, SlowStart: s.SlowStart,
		DialTimeout: upstream.DefaultDialTimeout, IdleConnectionTimeout: upstream.DefaultIdleTimeout, MaxIdleConnections: upstream.DefaultMaxIdle,
		ForwardCandidates: f.Candidates, ForwardPrimaries: f.Primaries, ForwardBackups: f.Backups, ForwardMaxAge: f.MaxAge,
	}
}

func (s *endpointSettings) declare(set *settings.Set) {
	const endpoints, forwarding = "Endpoints", "Forwarding"
	settings.Float(set, &s.Alpha, settings.Spec{Name: "ewma-alpha", Group: endpoints, Usage: "largest weight of one new answer in the average of the time that an endpoint (a worker, or a relay that requests are forwarded to) takes; more follows a change faster, less is steadier"},
		settings.Rule[float64]{Allowed: "more than 0, at most 1", Holds: func(v float64) bool { return v > 0 && v <= 1 }})
	settings.Int(set, &s.EvictAfterFailures, settings.Spec{Name: "evict-after-failures", Group: endpoints, Usage: "failures in a row that an endpoint may have; the next one evicts it: it gets no requests for some time; where all of them fail none is evicted, and of the workers of a range at most a third are"}, settings.Between(1, 1_000_000))
	settings.Float(set, &s.EvictErrorRate, settings.Spec{Name: "evict-error-rate", Group: endpoints, Usage: "share of failures that evicts an endpoint which surely exceeds it, in 20 recent requests or more; where all of them fail alike none is evicted"},
		settings.Rule[float64]{Allowed: "more than 0, less than 1", Holds: func(v float64) bool { return v > 0 && v < 1 }})
	settings.Float(set, &s.EvictLatencyFactor, settings.Spec{Name: "evict-latency-factor", Group: endpoints, Usage: "how many times the usual time an endpoint may take; one that lastingly takes more is evicted; usual is the median of the workers of a range, and for relays that requests are forwarded to the median of the 99th percentiles of the others, 10ms at least; 0 is never"},
		settings.Rule[float64]{Allowed: "0 for never, or 1.5 to 1000", Holds: func(v float64) bool { return v == 0 || v >= 1.5 && v <= 1000 }})
	settings.Duration(set, &s.EvictMaxTime, settings.Spec{Name: "evict-max-time", Group: endpoints, Usage: "longest time for which an evicted endpoint gets no requests; the first eviction lasts 1s to 2s, each one that follows up to twice as long"}, settings.Between(time.Second, 24*time.Hour))
	settings.Duration(set, &s.SlowStart, settings.Spec{Name: "slow-start", Group: endpoints, Usage: "time in which a worker that has joined or come back reaches its full share of the requests; 0 gives it the full share immediately; not for a gate"}, settings.Between(0, time.Hour))
	settings.Duration(set, &s.DialTimeout, settings.Spec{Name: "dial-timeout", Group: endpoints, Usage: "time for opening one connection to a worker or relay, TLS included; with a longer one a request whose endpoint does not answer is tried elsewhere later"}, settings.Between(10*time.Millisecond, 10*time.Second))
	settings.Duration(set, &s.IdleConnectionTimeout, settings.Spec{Name: "idle-connection-timeout", Group: endpoints, Usage: "time for which an HTTP/1.1 connection to an endpoint is kept without a request, and half as long again at most; less than the services keep theirs; the last connection to an endpoint stays"}, settings.Between(time.Second, 24*time.Hour))
	settings.Int(set, &s.MaxIdleConnections, settings.Spec{Name: "max-idle-connections", Group: endpoints, Usage: "HTTP/1.1 connections to one endpoint that are kept without a request; more are closed when their requests end"}, settings.Between(1, 10_000))

	settings.Int(set, &s.ForwardCandidates, settings.Spec{Name: "forward-candidates", Group: forwarding, Usage: "relays, the best in this relay's own order, out of which those are drawn that it connects to and forwards the requests of one service to; fewer make connections more stable, more spread the load better"}, settings.Between(1, 1000))
	settings.Int(set, &s.ForwardPrimaries, settings.Spec{Name: "forward-primaries", Group: forwarding, Usage: "relays that the requests of one service are forwarded to, in turn"}, settings.Between(1, 40))
	settings.Int(set, &s.ForwardBackups, settings.Spec{Name: "forward-backups", Group: forwarding, Usage: "relays that are connected as well, each to take the place of a primary immediately"}, settings.Between(0, 40))
	settings.Duration(set, &s.ForwardMaxAge, settings.Spec{Name: "forward-max-age", Group: forwarding, Usage: "time after which a place among primaries and backups is drawn again, so that requests also reach relays that were added later; each place has an age of its own, from nine tenths of this on"}, settings.AtLeast(time.Second))

	set.Check(func() []settings.Problem {
		places := s.ForwardPrimaries + s.ForwardBackups
		if s.ForwardCandidates >= places {
			return nil
		}
		return []settings.Problem{{Setting: "forward-candidates", Related: []string{"forward-primaries", "forward-backups"},
			Reason: fmt.Sprintf("--forward-primaries and --forward-backups are %d places for them, and some would always be empty", places), Allowed: fmt.Sprintf("%d or more, or fewer primaries and backups", places)}}
	})
}

// selection returns the configuration for the workers of a range.
func (s endpointSettings) selection() selection.Config {
	cfg := selection.DefaultConfig()
	cfg.Alpha, cfg.ConsecutiveFailures, cfg.ErrorRateThreshold = s.Alpha, s.EvictAfterFailures, s.EvictErrorRate
	cfg.LatencyFactor, cfg.MaxEviction, cfg.SlowStart = s.EvictLatencyFactor, s.EvictMaxTime, s.SlowStart
	return cfg
}

// forwarding returns the configuration for the relays to forward to. minPeersPerTier of
// them must be in the nearest tiers.
func (s endpointSettings) forwarding(minPeersPerTier int) pool.Config {
	cfg := pool.DefaultConfig()
	cfg.MinPeersPerTier = minPeersPerTier
	cfg.Candidates, cfg.Primaries, cfg.Backups, cfg.MaxAge = s.ForwardCandidates, s.ForwardPrimaries, s.ForwardBackups, s.ForwardMaxAge
	cfg.Alpha, cfg.ConsecutiveFailures, cfg.ErrorRateThreshold = s.Alpha, s.EvictAfterFailures, s.EvictErrorRate
	cfg.LatencyMultiplier, cfg.MaxEviction = s.EvictLatencyFactor, s.EvictMaxTime
	if s.EvictLatencyFactor == 0 {
		cfg.LatencyMultiplier = math.MaxFloat64 // zero would not mean never
	}
	return cfg
}

// upstream returns the configuration of connections to workers and relays.
func (s endpointSettings) upstream() upstream.Config {
	return upstream.Config{DialTimeout: s.DialTimeout, IdleTimeout: s.IdleConnectionTimeout, MaxIdle: s.MaxIdleConnections}
}

// notForGates are the settings that concern only workers. Those of the plan are not among
// them: a gate makes the same plan to determine which relays serve a service.
var notForGates = []string{"peer-slack", "peer-drain-delay", "allow-clear-text", "slow-start"}

// checkGate refuses settings that have no effect on a gate.
func (s *Settings) checkGate(set *settings.Set) []settings.Problem {
	if s.Role != membership.RoleGate {
		return nil
	}
	var problems []settings.Problem
	for _, name := range notForGates {
		if origin, _ := set.Origin(name); origin.Source != settings.Default {
			problems = append(problems, settings.Problem{Setting: name, Related: []string{"role"},
				Reason: "it is about connections to workers, and a gate (--role gate) has none: it would do nothing", Allowed: "nothing on a gate: leave it out here and give it to the relays"})
		}
	}
	return problems
}
