package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

// startInterval is the interval of the probes of a service that may still be starting. It
// is the longest delay between the end of the start and the first success.
const startInterval = 200 * time.Millisecond

// Status is the result of the probes so far. It is an immutable value.
type Status struct {
	// Healthy reports whether the service should be offered.
	Healthy bool
	// Since is the time of the last change of Healthy; zero before the first verdict.
	Since time.Time
	// Err is why the service is unhealthy, or why the newest probe of a healthy one failed.
	// It has the request, the answer and the remedy.
	Err error
	// Probes counts the probes that have ended, Failures those of them that failed.
	Probes, Failures int
}

// Config describes a Checker.
type Config struct {
	// Name is the name of the service in its offer, and the label of its metrics. Required.
	Name string
	// Check defines the probes. New normalizes it.
	Check Check
	// Healthy means that the service is known to be healthy: by another check, before. Then there is no grace,
	// and Fall failures withdraw it, not one; OnChange is called from the first change on. Default false.
	Healthy bool
	// OnChange is called from Run's goroutine with the first verdict and with every change.
	// The first verdict comes with the first success, or with the first failure after
	// StartGrace. Default: no call.
	OnChange func(Status)
	// Logger logs each verdict: healthy at info, unhealthy at warn; single failures at
	// debug. Default: discard.
	Logger *slog.Logger
	// Metrics counts the probes. Default: not counted.
	Metrics *Metrics
}

// Checker probes one service.
type Checker struct {
	cfg    Config
	status atomic.Pointer[Status]
	probe  func(context.Context) error // cfg.Check.probe, except with a virtual clock
	lacks  bool                        // the newest probe found this process exhausted; Run's goroutine owns it
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
	c.status.Store(&Status{Healthy: cfg.Healthy})
	return c, nil
}

// Status returns the result of the probes so far. It may be called from any goroutine.
func (c *Checker) Status() Status { return *c.status.Load() }

// Run probes until ctx ends, the first time immediately, and then returns nil. It leaves no
// goroutine and no connection behind. It must be called only once.
func (c *Checker) Run(ctx context.Context) error {
	check := c.cfg.Check
	judge := healthState{rise: check.Rise, fall: check.Fall, succeeded: c.cfg.Healthy, healthy: c.cfg.Healthy, decided: c.cfg.Healthy}
	c.cfg.Metrics.setHealthy(c.cfg.Name, c.cfg.Healthy)
	for begun := time.Now(); ; {
		start := time.Now()
		err := c.probe(ctx)
		if ctx.Err() != nil {
			return nil // the probe may have been cut short, so its result is ignored
		}
		end := time.Now()
		c.cfg.Metrics.probed(c.cfg.Name, err, end.Sub(start))
		forgiven := end.Sub(begun) < check.StartGrace
		changed := false
		if resultOf(err) != resultExhausted || !judge.succeeded { // before a success the service is not offered, and the reason is published
			changed = judge.observe(err == nil, forgiven)
		}
		c.record(err, changed, judge.healthy)

		interval := check.Interval
		if forgiven && !judge.succeeded {
			interval = min(interval, startInterval)
		}
		interval -= rand.N(interval / 10) // never longer, so that the limit of detection holds
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(start.Add(interval))):
		}
	}
}

// record publishes the result of a probe and reports a change of the verdict.
func (c *Checker) record(err error, changed, healthy bool) {
	status := c.Status()
	status.Probes++
	if err != nil {
		status.Failures++
		status.Err = err
	} else if healthy {
		status.Err = nil // an unhealthy service keeps its reason until it is healthy
	}
	if changed {
		status.Healthy, status.Since = healthy, time.Now()
		c.cfg.Metrics.setHealthy(c.cfg.Name, healthy)
	}
	c.status.Store(&status)
	lacked := c.lacks
	c.lacks = resultOf(err) == resultExhausted
	switch {
	case !changed && c.lacks && !lacked:
		c.cfg.Logger.Warn("cannot check the service, which keeps its state", "err", err)
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

// healthState turns the results of probes into healthy or unhealthy. It uses no clock: the
// caller decides whether a failure is still forgiven.
type healthState struct {
	rise, fall int

	succeeded bool // at least once
	healthy   bool
	decided   bool // healthy is valid
	contrary  int  // results in a row that contradict healthy
}

// observe adds the result of one probe and reports whether the verdict changed, or was
// reached for the first time. Before the first success a failure decides only if it is not
// forgiven. The first success always decides, so that a running instance is offered
// immediately.
func (v *healthState) observe(success, forgiven bool) (changed bool) {
	if !v.succeeded {
		changed = success || !v.decided && !forgiven
		v.succeeded, v.healthy, v.decided = success, success, v.decided || changed
		return changed
	}
	if success == v.healthy {
		v.contrary = 0
		return false
	}
	v.contrary++
	if success && v.contrary < v.rise || !success && v.contrary < v.fall {
		return false
	}
	v.healthy, v.contrary = success, 0
	return true
}

// probe makes one probe. The error is a *failure, and nil means success. When probe
// returns, which it does when ctx ends, the connection is closed and no goroutine is left.
func (c Check) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	failed := c.attempt(ctx)
	if failed == nil {
		return nil
	}
	failed.asked = c.asked()
	return failed
}

func (c Check) attempt(ctx context.Context) *failure {
	socket, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return c.broken("connection", err)
	}
	defer socket.Close()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = socket.SetDeadline(time.Unix(1, 0)) // fails only on a closed connection
	})
	defer func() {
		if !stop() {
			<-interrupted
		}
	}()
	conn := socket
	if c.TLS {
		if conn, err = (upstream.ServiceTLS{Roots: c.ServiceRoots, Name: c.ServerName}).Client(ctx, socket, c.Address); err != nil {
			return c.broken("end of the TLS handshake", err)
		}
	}
	switch {
	case c.Kind == HTTP && (c.TLS || c.HTTP2):
		return c.askHTTP2(conn)
	case c.Kind == HTTP:
		return c.askHTTP(conn)
	case c.Kind == GRPC:
		return c.askGRPC(conn)
	}
	return nil
}

// asked describes the request of a probe for people.
func (c Check) asked() string {
	switch c.Kind {
	case HTTP:
		return fmt.Sprintf("%s %s://%s%s", c.Method, c.scheme(), c.Address, c.Path)
	case GRPC:
		if c.Service == "" {
			return fmt.Sprintf("gRPC health check of %s", c.Address)
		}
		return fmt.Sprintf("gRPC health check of %q at %s", c.Service, c.Address)
	}
	return "connect to " + c.Address
}

func (c Check) scheme() string {
	if c.TLS {
		return "https"
	}
	return "http"
}

// resultOf returns the label of the result of a probe.
func resultOf(err error) string {
	var failed *failure
	switch {
	case err == nil:
		return resultSuccess
	case errors.As(err, &failed):
		return failed.result
	}
	return resultUnclassified
}
