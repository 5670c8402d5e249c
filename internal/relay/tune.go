package relay

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/settings"
)

// tunable are the settings that a reload applies, besides the log level: those of
// single requests. What the fleet must agree on, and what is bound, needs a restart.
var tunable = []string{
	"domain", "routes", "key-source", "request-timeout", "attempt-timeout", "max-attempts", "retry-budget", "max-in-flight", "max-in-flight-per-client",
	"max-client-connections", "adaptive-in-flight",
	"trusted-proxy", "expose-route-headers", "drain-timeout", "session-drain-timeout",
}

// Tune puts into cfg what a reload can change.
func (s *Settings) Tune(cfg *Config) {
	cfg.Domain, cfg.Routes = s.Domain, s.Routes
	cfg.Keys, _ = parseKeySources(s.KeySource) // checked when they were loaded
	cfg.RequestTimeout, cfg.MaxAttempts, cfg.RetryBudget = s.RequestTimeout, s.MaxAttempts, s.RetryBudget
	cfg.AttemptTimeout = s.AttemptTimeout.of(s.RequestTimeout)
	cfg.MaxInFlight, cfg.DrainTimeout, cfg.ExposeRouteHeaders = s.MaxInFlight, s.DrainTimeout, s.ExposeRouteHeaders
	cfg.AdaptiveInFlight = s.AdaptiveInFlight
	cfg.MaxInFlightPerClient, cfg.TrustedProxies = s.MaxInFlightPerClient.of(s.MaxInFlight), s.trustedProxies()
	cfg.MaxClientConnections, cfg.SessionDrainTimeout = s.MaxClientConnections, s.sessionDrain()
}

// attemptTime is how long one attempt may take: a duration, or a percentage of what the
// request may. Zero is no limit of its own.
type attemptTime struct {
	fixed   time.Duration
	percent int
}

// of is the time where a request may take so long.
func (a attemptTime) of(request time.Duration) time.Duration {
	if a.percent > 0 {
		return time.Duration(float64(request) * float64(a.percent) / 100)
	}
	return a.fixed
}

var attemptTimes = settings.Kind[attemptTime]{
	Name: "time", Want: "a duration such as 500ms or 10s, or a percentage of request-timeout such as 33%; 0 for no limit",
	Parse: func(text string) (attemptTime, error) {
		text = strings.TrimSpace(text)
		if digits, ok := strings.CutSuffix(text, "%"); ok {
			n, err := strconv.Atoi(digits)
			if err != nil || n < 1 || n > 100 {
				return attemptTime{}, errors.New("not from 1% to 100%")
			}
			return attemptTime{percent: n}, nil
		}
		fixed, err := time.ParseDuration(text)
		if err != nil || fixed < 0 {
			return attemptTime{}, errors.New("neither a duration nor a percentage")
		}
		return attemptTime{fixed: fixed}, nil
	},
	Format: func(a attemptTime) string {
		if a.percent > 0 {
			return strconv.Itoa(a.percent) + "%"
		}
		return a.fixed.String()
	},
}
