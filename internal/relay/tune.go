package relay

// tunable are the settings that a reload applies, besides the log level: those of
// single requests. What the fleet must agree on, and what is bound, needs a restart.
var tunable = []string{
	"domain", "routes", "request-timeout", "max-attempts", "retry-budget", "max-in-flight", "expose-route-headers", "drain-timeout",
}

// Tune puts into cfg what a reload can change.
func (s *Settings) Tune(cfg *Config) {
	cfg.Domain, cfg.Routes = s.Domain, s.Routes
	cfg.RequestTimeout, cfg.MaxAttempts, cfg.RetryBudget = s.RequestTimeout, s.MaxAttempts, s.RetryBudget
	cfg.MaxInFlight, cfg.DrainTimeout, cfg.ExposeRouteHeaders = s.MaxInFlight, s.DrainTimeout, s.ExposeRouteHeaders
}
