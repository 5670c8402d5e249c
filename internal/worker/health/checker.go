package health

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// startInterval is that of the probes of a service that may still be starting: it
// is what a start waits at most beyond what it takes.
const startInterval = 200 * time.Millisecond

// Status is what is known of a service. It is a value; nothing changes it.
type Status struct {
	// Healthy says whether the service is to be offered.
	Healthy bool
	// Since is when Healthy became what it is; zero before the first verdict.
	Since time.Time
	// Err says why the service is unhealthy, or how the newest probe of a healthy
	// one failed. It names what was asked, what came and what to do.
	Err error
	// Probes is how many have ended, Failures how many of them failed.
	Probes, Failures int
}

// Config describes a Checker.
type Config struct {
	// Name is the service, as it is offered; the label of its metrics. Required.
	Name string
	// Check is what is asked. New normalizes it.
	Check Check
	// OnChange is called from Run's goroutine with the first verdict and with
	// every change. The first verdict comes with the first success, or with the
	// first failure after StartGrace. Default: nobody is told.
	OnChange func(Status)
	// Logger gets a line for each verdict: healthy at info, unhealthy at warn;
	// single failures at debug. Default: discard.
	Logger *slog.Logger
	// Metrics counts the probes. Default: not counted.
	Metrics *Metrics
}

// Checker probes one service.
type Checker struct {
	cfg    Config
	status atomic.Pointer[Status]
	probe  func(context.Context) error // cfg.Check.probe, except under a virtual clock
}

// New validates the configuration. It starts nothing.
func New(cfg Config) (*Checker, error) {
	check, err := cfg.Check.Normalize()
	if cfg.Name == "" {
		err = errors.Join(errors.New("health check without the name of its service: set Name"), err)
	}
	if err != nil {
		return nil, err
	}
	cfg.Check = check
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)).With("service", cfg.Name)
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func(Status) {}
	}
	c := &Checker{cfg: cfg, probe: check.probe}
	c.status.Store(&Status{})
	return c, nil
}

// Status is what the probes so far say. It may be called from any goroutine.
func (c *Checker) Status() Status { return *c.status.Load() }

// Run probes until ctx ends, at once for the first time, and then returns nil.
// It leaves no goroutine and no connection behind. It is called once.
func (c *Checker) Run(ctx context.Context) error {
	check := c.cfg.Check
	judge := verdict{rise: check.Rise, fall: check.Fall}
	c.cfg.Metrics.verdict(c.cfg.Name, false)
	for begun := time.Now(); ; {
		start := time.Now()
		err := c.probe(ctx)
		if ctx.Err() != nil {
			return nil // the probe may have been cut short: it says nothing
		}
		end := time.Now()
		c.cfg.Metrics.probed(c.cfg.Name, err, end.Sub(start))
		forgiven := end.Sub(begun) < check.StartGrace
		changed := judge.observe(err == nil, forgiven)
		c.record(err, changed, judge.healthy)

		interval := check.Interval
		if forgiven && !judge.succeeded {
			interval = min(interval, startInterval)
		}
		interval -= rand.N(interval / 10) // never longer, so that the bound on detection holds
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(start.Add(interval))):
		}
	}
}

// record publishes the result of a probe and tells of a verdict.
func (c *Checker) record(err error, changed, healthy bool) {
	status := c.Status()
	status.Probes++
	if err != nil {
		status.Failures++
		status.Err = err
	} else if healthy {
		status.Err = nil // an unhealthy service keeps its reason until it has risen
	}
	if changed {
		status.Healthy, status.Since = healthy, time.Now()
		c.cfg.Metrics.verdict(c.cfg.Name, healthy)
	}
	c.status.Store(&status)
	switch {
	case !changed && err != nil:
		c.cfg.Logger.Debug("health check failed", "err", err)
	case changed && healthy:
		c.cfg.Logger.Info("service is healthy", "probes", status.Probes)
	case changed:
		c.cfg.Logger.Warn("service is unhealthy", "err", err)
	}
	if changed {
		c.cfg.OnChange(status)
	}
}
