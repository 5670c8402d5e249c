package advertise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/metric"
)

// proberConfig describes a prober.
type proberConfig struct {
	// Catalogue holds the endpoints to check. Required. It must be running while the
	// prober runs.
	Catalogue *Catalogue
	// Timeout limits one attempt to connect. Default 1 s: less than a caller waits
	// for an answer.
	Timeout time.Duration
	// Recheck is the interval between two checks of an unreachable endpoint. Default 5 s.
	Recheck time.Duration
	// Dial connects. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Logger receives a line when an endpoint becomes unreachable, and when it is
	// reachable again. Default: none.
	Logger *slog.Logger
	// Registerer receives the metrics, including those of its scheduler. Default:
	// none.
	Registerer prometheus.Registerer
}

// prober marks endpoints that refuse connections although membership reports their worker
// as alive: the service has died while its agent still runs, or only this node cannot
// reach the address. A caller that cannot connect to an endpoint calls Catalogue.Observe. The
// prober then tries to connect; if that fails as well, the endpoint is
// [Endpoint.Unreachable] on this node until a later check connects or the worker publishes
// a newer record. The endpoint keeps its position in every view, so that all relays make
// plans of the same workers. Records, checksums and gossip do not change.
//
// While membership is degraded, this node may be the one that is cut off. Endpoints become unreachable
// all the same: no other report of a death arrives then, and a relay that can connect to none of its
// endpoints uses all of them.
type prober struct {
	cfg         proberConfig
	lines       *loglimit.Limiter // a network that fails has many endpoints
	scheduler   *scheduler[target]
	unreachable prometheus.Gauge
}

// newProber checks the configuration. It starts no goroutine.
func newProber(cfg proberConfig) (*prober, error) {
	if cfg.Catalogue == nil {
		return nil, errors.New("advertise: proberConfig.Catalogue is nil: pass the catalogue whose endpoints are dialled")
	}
	if cfg.Timeout < 0 || cfg.Recheck < 0 {
		return nil, fmt.Errorf("advertise: negative timeout or recheck (%v, %v): use 0 for the default", cfg.Timeout, cfg.Recheck)
	}
	cfg.Timeout, cfg.Recheck = cmp.Or(cfg.Timeout, time.Second), cmp.Or(cfg.Recheck, 5*time.Second)
	if cfg.Dial == nil {
		var d net.Dialer
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	x := &prober{cfg: cfg, lines: loglimit.New(cfg.Logger), unreachable: metric.With(nil).Gauge("ringway_advertise_endpoints_unreachable", "Endpoints of live workers that this node could not connect to and sends no requests to.")}
	var err error
	x.scheduler, err = newScheduler(schedulerConfig[target]{
		Expire: x.expire, MaxConcurrent: maxConcurrentChecks, MaxPending: maxPendingChecks,
		Lines: x.lines, Registerer: cfg.Registerer,
	})
	if err == nil && cfg.Registerer != nil {
		err = cfg.Registerer.Register(x.unreachable)
	}
	if err != nil {
		return nil, fmt.Errorf("advertise: prober: %w", err)
	}
	return x, nil
}

// observe schedules a check of an endpoint that could not be connected to. It never
// blocks and changes nothing itself. Safe for concurrent use.
func (x *prober) observe(e Endpoint) {
	x.scheduler.observe(target{instance{e.NodeID, e.Epoch}, e.Name, e.Address})
}

// Refused reports whether a connection error indicates that the endpoint is not there and
// should be observed: refused, no route, or a timeout. Errors of this process (no free
// descriptors or ports, a name that does not resolve) do not count.
func Refused(err error) bool {
	if name := new(net.DNSError); errors.As(err, &name) {
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
}

// run checks observed endpoints, and unreachable ones again, until ctx ends. It owns all
// goroutines and returns when they have ended.
func (x *prober) run(ctx context.Context) error {
	var rechecking sync.WaitGroup
	defer x.lines.Stop()
	defer rechecking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rechecking.Go(func() { x.recheck(ctx) })
	return x.scheduler.run(ctx)
}

// recheck has marked endpoints checked again. They get no requests, so no caller observes them, and
// without a check a mark would stay until the worker publishes a new record.
func (x *prober) recheck(ctx context.Context) {
	tick := time.NewTicker(x.cfg.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var marked []target
		err := x.cfg.Catalogue.onLoop(ctx, func() {
			for t := range x.cfg.Catalogue.builder.unreachable {
				marked = append(marked, t)
			}
		})
		if err != nil {
			return // the catalogue has stopped, or ctx has ended
		}
		for _, t := range marked {
			x.scheduler.observe(t) // if the queue is full, the next round tries again
		}
	}
}

// expire fulfils the contract of the scheduler: the result of the dial is applied in one
// step of the catalogue's loop, and only if the offer is still the one for which the dial
// began. The dial takes up to the timeout, so it cannot run on the loop. The sequence that was read
// before it shows after it whether the offer is the same.
func (x *prober) expire(ctx context.Context, t target) (outcome checkOutcome, err error) {
	var sequence uint64
	offered := false
	if err := x.onLoop(ctx, func(c *Catalogue) {
		if sequence, offered = c.offers(t); !offered {
			c.builder.unreachable.remove(t)
		}
	}); err != nil || !offered {
		return checkAlready, err
	}
	refusal := x.dial(ctx, t.address)
	if refusal != nil && !Refused(refusal) {
		return 0, refusal
	}
	reachable := false
	err = x.onLoop(ctx, func(c *Catalogue) {
		if refusal == nil {
			outcome, reachable = checkFresh, c.builder.unreachable.remove(t)
			c.touch(t.id)
		} else {
			outcome = c.expire(t, sequence)
		}
	})
	switch {
	case err != nil:
	case reachable:
		x.lines.Log(slog.LevelInfo, "endpoint can be connected to again", "service", t.service, "worker", t.id, "address", t.address)
	case outcome == checkExpired:
		x.lines.Log(slog.LevelInfo, "endpoint cannot be connected to although its worker is alive: this node sends it no requests until a connection succeeds", "service", t.service, "worker", t.id, "address", t.address, "err", refusal)
	}
	return outcome, err
}

func (x *prober) dial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	conn, err := x.cfg.Dial(ctx, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// onLoop runs f on the catalogue's loop.
func (x *prober) onLoop(ctx context.Context, f func(*Catalogue)) error {
	return x.cfg.Catalogue.onLoop(ctx, func() {
		f(x.cfg.Catalogue)
		x.unreachable.Set(float64(len(x.cfg.Catalogue.builder.unreachable)))
	})
}

// offers returns the sequence of the visible record that contains the endpoint. It must
// run on the loop.
func (c *Catalogue) offers(t target) (sequence uint64, ok bool) {
	e, _ := c.store.visible(t.id)
	if e == nil || e.instance() != t.instance {
		return 0, false
	}
	return e.stamp.sequence, slices.ContainsFunc(e.services(), func(s Service) bool {
		return s.Name == t.service && s.Address == t.address
	})
}

// expire hides an endpoint that was found dead at that sequence, unless its worker has
// withdrawn it, left or died in the meantime. It must run on the loop. A newer record is a new
// offer, for which nothing was dialled.
func (c *Catalogue) expire(t target, sequence uint64) checkOutcome {
	now, offered := c.offers(t)
	switch {
	case !offered:
		c.builder.unreachable.remove(t)
		return checkAlready
	case now != sequence:
		return checkFresh
	case !c.builder.unreachable.add(t, sequence):
		return checkAlready
	}
	c.touch(t.id)
	return checkExpired
}
