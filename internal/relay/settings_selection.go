package relay

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

// The settings below are read into maps by service, with the value for all services under "",
// which is not the name of a service.

// parseSelection parses --selection: "stable", or "billing=stable" for one service. It
// reports all errors.
func parseSelection(items []string) (map[string]strategy.Spec, []settings.Problem) {
	strategies := map[string]strategy.Spec{}
	var problems []settings.Problem
	for _, text := range joinPreferred(items) {
		refuse := func(reason, allowed string) {
			problems = append(problems, settings.Problem{Setting: "selection", Value: text, Reason: reason, Allowed: allowed})
		}
		service, spec, found := cutService(text)
		if found && affinity.ValidateService(service) != nil {
			refuse("not the name of a service before the '='", "SERVICE=STRATEGY, or STRATEGY for all services")
		}
		parsed, err := strategy.Parse(spec)
		switch {
		case spec == "":
			refuse("no strategy", strings.Join(strategy.Names(), ", "))
			continue
		case err != nil:
			for _, one := range split(err) {
				refuse(strings.TrimPrefix(one.Error(), "selection: "), "")
			}
			continue
		}
		switch _, again := strategies[service]; {
		case found && service == "": // refused above
		case again && service == "":
			refuse("a second strategy for all services", "one; give the others to their services, SERVICE=STRATEGY")
		case again:
			refuse("a second strategy for "+service, "one for each service")
		default:
			strategies[service] = parsed
		}
	}
	return strategies, problems
}

// cutService cuts off the service, if there is one: the '=' of a parameter follows a ';'.
func cutService(text string) (service, spec string, found bool) {
	if head, _, _ := strings.Cut(text, ";"); !strings.Contains(head, "=") {
		return "", text, false
	}
	service, spec, _ = strings.Cut(text, "=")
	return strings.TrimSpace(service), strings.TrimSpace(spec), true
}

// joinPreferred restores lists of preferred nodes. The values of a setting in a flag and
// in the environment are separated by the same comma as these lists. So an item that
// follows a list of nodes, and is neither a strategy nor one of a service, is another
// node.
func joinPreferred(items []string) []string {
	var out []string
	for _, item := range items {
		head, _, _ := strings.Cut(item, ";")
		if n := len(out) - 1; n >= 0 && !strings.Contains(head, "=") && !slices.Contains(strategy.Names(), strings.TrimSpace(head)) {
			if last := out[n][strings.LastIndexByte(out[n], ';')+1:]; strings.HasPrefix(strings.TrimSpace(last), "preferred=") {
				out[n] += "," + item
				continue
			}
		}
		out = append(out, item)
	}
	return out
}

// split returns the single errors of joined errors.
func split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, one := range joined.Unwrap() {
		out = append(out, split(one)...)
	}
	return out
}

// parseKeySources parses --key-source: "cookie:sid;caller", or "billing=cookie:sid" for
// one service. It reports all errors.
func parseKeySources(items []string) (ingress.Keys, []settings.Problem) {
	keys := ingress.Keys{}
	var problems []settings.Problem
	for _, text := range items {
		refuse := func(reason, allowed string) {
			problems = append(problems, settings.Problem{Setting: "key-source", Value: text, Reason: reason, Allowed: allowed})
		}
		service, rest, found := strings.Cut(text, "=")
		service = strings.TrimSpace(service)
		if !found {
			service, rest = "", text
		} else if affinity.ValidateService(service) != nil {
			refuse("not the name of a service before the '='", "SERVICE=SOURCE, or SOURCE for all services")
			continue
		}
		sources, err := ingress.ParseKeySources(rest)
		if err != nil {
			refuse(err.Error(), ingress.KeySourceForms)
			continue
		}
		switch _, again := keys[service]; {
		case again && service == "":
			refuse("a second source for all services", "one value with the sources in their order, divided by ';'")
		case again:
			refuse("a second source for "+service, "one value for each service, with the sources in their order, divided by ';'")
		default:
			keys[service] = sources
		}
	}
	return keys, problems
}

// parseServerNames parses --service-server-name: names in certificates. It reports all errors.
func parseServerNames(items []string) (map[string]string, []settings.Problem) {
	names := map[string]string{}
	var problems []settings.Problem
	for _, text := range items {
		refuse := func(reason string) {
			problems = append(problems, settings.Problem{Setting: "service-server-name", Value: text, Reason: reason, Allowed: "SERVICE=NAME, or NAME for all other services"})
		}
		service, name, found := strings.Cut(text, "=")
		if !found {
			service, name = "", text
		}
		service, name = strings.TrimSpace(service), strings.TrimSpace(name)
		err := upstream.CheckServerName(name)
		_, again := names[service]
		switch {
		case found && affinity.ValidateService(service) != nil:
			refuse("not the name of a service before the '='")
		case err != nil:
			refuse(err.Error())
		case again:
			refuse("a second name for " + cmp.Or(service, "all other services"))
		default:
			names[service] = name
		}
	}
	return names, problems
}

// parseSessionCookies parses --session-cookie: names of cookies, empty for none. It reports
// all errors.
func parseSessionCookies(items []string) (map[string]string, []settings.Problem) {
	names := map[string]string{}
	var problems []settings.Problem
	for _, text := range items {
		refuse := func(reason, allowed string) {
			problems = append(problems, settings.Problem{Setting: "session-cookie", Value: text, Reason: reason, Allowed: allowed})
		}
		service, name, found := strings.Cut(text, "=")
		service, name = strings.TrimSpace(service), strings.TrimSpace(name)
		_, again := names[service]
		switch {
		case affinity.ValidateService(service) != nil:
			refuse("not the name of a service before the '='", "SERVICE=NAME")
		case !found || name != "" && wire.CheckCookieName(name) != nil:
			refuse("not the name of a cookie after the '='", fmt.Sprintf("SERVICE=NAME, with a name of 1 to %d letters, digits and -_.!#$%%&'*+^`|~, or SERVICE= for no cookie", wire.MaxCookieName))
		case again:
			refuse("a second cookie for "+service, "one for each service")
		default:
			names[service] = name
		}
	}
	return names, problems
}

// checkCookies refuses cookies that browsers would discard.
func checkCookies(names map[string]string, policies ingress.Policies) (problems []settings.Problem) {
	for _, service := range slices.Sorted(maps.Keys(names)) {
		name := names[service]
		if err := policies.CheckCookie(service, name); err != nil {
			problems = append(problems, settings.Problem{Setting: "session-cookie", Related: []string{"service-policy", "service-policy-file"}, Value: service + "=" + name, Reason: err.Error()})
		}
	}
	return problems
}

// declareEndpoints declares the settings for the statistics, evictions and connections of
// endpoints: workers, and relays to forward to.
func (s *Settings) declareEndpoints(set *settings.Set) {
	const endpoints, forwarding = "Endpoints", "Forwarding"
	settings.Float(set, &s.Selection.Alpha, settings.Spec{Name: "ewma-alpha", Group: endpoints, Usage: "largest weight of one new answer in the average of the time that an endpoint (a worker, or a relay that requests are forwarded to) takes; more follows a change faster, less is steadier"},
		settings.Rule[float64]{Allowed: "more than 0, at most 1", Holds: func(v float64) bool { return v > 0 && v <= 1 }})
	settings.Int(set, &s.Selection.ConsecutiveFailures, settings.Spec{Name: "evict-after-failures", Group: endpoints, Usage: "failures in a row that an endpoint may have; the next one evicts it: it gets no requests for some time; they count while the others are healthy, and of the workers of a range at most a third are evicted"}, settings.Between(1, 1_000_000))
	settings.Float(set, &s.Selection.ErrorRateThreshold, settings.Spec{Name: "evict-error-rate", Group: endpoints, Usage: "share of failures by which an endpoint must surely exceed the others, in 20 recent requests or more, to be evicted; failures in a row evict while the others fail less than this share; where all of them fail alike none is evicted"},
		settings.Rule[float64]{Allowed: "more than 0, less than 1", Holds: func(v float64) bool { return v > 0 && v < 1 }})
	settings.Float(set, &s.Selection.LatencyFactor, settings.Spec{Name: "evict-latency-factor", Group: endpoints, Usage: "how many times the usual time an endpoint may take; one that stays above this is evicted; usual is the median of the workers of a range, and for relays that requests are forwarded to the median of the 99th percentiles of the others, 10ms at least; 0 disables this"},
		settings.Rule[float64]{Allowed: "0 for never, or 1.5 to 1000", Holds: func(v float64) bool { return v == 0 || v >= 1.5 && v <= 1000 }})
	settings.Duration(set, &s.Selection.MaxEviction, settings.Spec{Name: "evict-max-time", Group: endpoints, Usage: "longest time for which an evicted endpoint gets no requests; the first eviction lasts 1s to 2s, each one that follows up to twice as long"}, settings.Between(time.Second, 24*time.Hour))
	settings.Duration(set, &s.Selection.SlowStart, settings.Spec{Name: "slow-start", Group: endpoints, Usage: "time in which a worker that has joined or come back reaches its full share of the requests; 0 gives it the full share immediately; not for a gate"}, settings.Between(0, time.Hour))
	settings.Duration(set, &s.Upstream.DialTimeout, settings.Spec{Name: "dial-timeout", Group: endpoints, Usage: "time for opening one connection to a worker or relay, TLS included; with a longer one a request whose endpoint does not answer is tried elsewhere later"}, settings.Between(10*time.Millisecond, 10*time.Second))
	settings.Duration(set, &s.Upstream.IdleTimeout, settings.Spec{Name: "idle-connection-timeout", Group: endpoints, Usage: "longest time for which an HTTP/1.1 connection to an endpoint is kept without a request, half of it at least; less than the services keep theirs; the last connection to an endpoint stays"}, settings.Between(time.Second, 24*time.Hour))
	settings.Int(set, &s.Upstream.MaxResponseHeaderBytes, settings.Spec{Name: "max-answer-head", Group: endpoints, Placeholder: "BYTES", Usage: "size of the head of an answer; a larger one fails the attempt; where workers have a sidecar or relays forward, set it there as well"}, settings.Between(upstream.LeastResponseHead, upstream.MostResponseHead))
	settings.Int(set, &s.Upstream.MaxIdle, settings.Spec{Name: "max-idle-connections", Group: endpoints, Usage: "HTTP/1.1 connections to one endpoint that are kept without a request; more are closed when their requests end"}, settings.Between(1, 10_000))

	settings.Int(set, &s.Forwarding.Candidates, settings.Spec{Name: "forward-candidates", Group: forwarding, Usage: "relays, the best in this relay's own order, out of which those are drawn that it connects to and forwards the requests of one service to; fewer make connections more stable, more spread the load better"}, settings.Between(1, 1000))
	settings.Custom(set, &s.Forwarding.Primaries, settings.Spec{Name: "forward-primaries", Group: forwarding, Placeholder: "auto|NUMBER", Usage: "relays that the requests of one service are forwarded to, in turn; auto is 3, or more where few gates or relays forward to many, so that all of these get their share"}, primaryCounts)
	settings.Int(set, &s.Forwarding.Backups, settings.Spec{Name: "forward-backups", Group: forwarding, Usage: "relays that are connected as well, each to take the place of a primary immediately"}, settings.Between(0, 40))
	settings.Duration(set, &s.Forwarding.MaxAge, settings.Spec{Name: "forward-max-age", Group: forwarding, Usage: "time after which a place among primaries and backups is drawn again, so that requests also reach relays that were added later; each place has an age of its own, from nine tenths of this on"}, settings.AtLeast(time.Second))

	set.Check(func() []settings.Problem {
		places := cmp.Or(s.Forwarding.Primaries, relaypool.DefaultConfig().Primaries) + s.Forwarding.Backups
		if s.Forwarding.Candidates >= places {
			return nil
		}
		return []settings.Problem{{Setting: "forward-candidates", Related: []string{"forward-primaries", "forward-backups"},
			Reason: fmt.Sprintf("--forward-primaries and --forward-backups are %d places for them, and some would always be empty", places), Allowed: fmt.Sprintf("%d or more, or fewer primaries and backups", places)}}
	})
}

// forwarding returns the configuration for the relays to forward to: what is declared once for
// workers and relays comes from Plans and Selection.
func (s *Settings) forwarding() relaypool.Config {
	cfg := s.Forwarding
	cfg.MinPeersPerTier = s.Plans.PeersPerTier
	cfg.Alpha, cfg.ConsecutiveFailures, cfg.ErrorRateThreshold = s.Selection.Alpha, s.Selection.ConsecutiveFailures, s.Selection.ErrorRateThreshold
	cfg.LatencyMultiplier, cfg.MaxEviction = s.Selection.LatencyFactor, s.Selection.MaxEviction
	if cfg.LatencyMultiplier == 0 {
		cfg.LatencyMultiplier = math.MaxFloat64 // zero would not mean never
	}
	return cfg
}

// notForGates are the settings that concern only workers. Those of the plan are not among
// them: a gate makes the same plan to determine which relays serve a service.
var notForGates = []string{"peer-slack", "peer-drain-delay", "allow-clear-text", "service-ca", "service-server-name", "slow-start"}

// checkGate refuses settings that have no effect on a gate.
func (s *Settings) checkGate(set *settings.Set) []settings.Problem {
	if s.Role != identity.RoleGate {
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
