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

	"github.com/ringway/ringway/advertise/expiry"
)

// ExpirerConfig describes an Expirer.
type ExpirerConfig struct {
	// Catalogue is whose endpoints are looked at. Required, and running while the
	// Expirer is.
	Catalogue *Catalogue
	// Timeout bounds one attempt to connect. Default 1 s: less than a caller waits
	// for an answer.
	Timeout time.Duration
	// Recheck is how often an unreachable endpoint is looked at again. Default 5 s.
	Recheck time.Duration
	// Dial connects. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Logger gets a line when an endpoint becomes unreachable, and when it is
	// back. Default: none.
	Logger *slog.Logger
	// Registerer takes the metrics, those of package expiry among them. Default:
	// none.
	Registerer prometheus.Registerer
}

// Expirer takes endpoints out of use, on this node only, that refuse connections
// while membership says that their worker lives: a service that died beside its
// agent, or an address that only this node cannot reach. Who meets one calls
// Observe. It is connected to afresh, and if that fails, too, it is
// [Endpoint.Unreachable] until a re-check connects or its worker publishes a newer
// record. It stays in its place of every view: plans are made of the same workers
// on every relay. Records, checksums and gossip are not touched.
//
// While membership is degraded nothing becomes unreachable: this node may be the
// one that is cut off.
type Expirer struct {
	cfg         ExpirerConfig
	scheduler   *expiry.Scheduler[target]
	unreachable prometheus.Gauge
}

// NewExpirer checks the configuration. It starts nothing.
func NewExpirer(cfg ExpirerConfig) (*Expirer, error) {
	if cfg.Catalogue == nil {
		return nil, errors.New("advertise: ExpirerConfig.Catalogue is nil: pass the catalogue whose endpoints are dialled")
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
	x := &Expirer{cfg: cfg, unreachable: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ringway_advertise_endpoints_unreachable", Help: "Endpoints of live workers that this node could not connect to and sends nothing to.",
	})}
	var err error
	x.scheduler, err = expiry.New(expiry.Config[target]{
		Expire: x.expire, MaxConcurrent: expiry.DefaultMaxConcurrent, MaxPending: expiry.DefaultMaxPending,
		Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err == nil && cfg.Registerer != nil {
		err = cfg.Registerer.Register(x.unreachable)
	}
	if err != nil {
		return nil, fmt.Errorf("advertise: expirer: %w", err)
	}
	return x, nil
}

// Observe hands over an endpoint that could not be connected to. It never waits
// and decides nothing. Safe for concurrent use.
func (x *Expirer) Observe(e Endpoint) expiry.Result {
	return x.scheduler.Observe(target{instance{e.NodeID, e.Epoch}, e.Name, e.Address})
}

// Refused reports whether a failure to connect says that nobody is there, and so
// is one to observe: refused, no route, or no answer in time. What this process
// lacks (files, ports, a name's address) says nothing of the other end.
func Refused(err error) bool {
	if name := new(net.DNSError); errors.As(err, &name) {
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
}

// Run looks at what is observed, and again at what is unreachable, until ctx ends.
// It owns all goroutines and returns when they have ended.
func (x *Expirer) Run(ctx context.Context) error {
	var rechecking sync.WaitGroup
	defer rechecking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rechecking.Go(func() { x.recheck(ctx) })
	return x.scheduler.Run(ctx)
}

func (x *Expirer) recheck(ctx context.Context) {
	tick := time.NewTicker(x.cfg.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var marked []target
		err := x.cfg.Catalogue.ask(ctx, func() {
			for t := range x.cfg.Catalogue.builder.hidden {
				marked = append(marked, t)
			}
		})
		if err != nil {
			return // the catalogue has stopped, or ctx has ended
		}
		for _, t := range marked {
			x.scheduler.Observe(t) // where too many wait, the next round tries again
		}
	}
}

// expire keeps the contract of package expiry: what the dial has shown is applied
// in one step of the catalogue's loop, and only to the offer that was there when
// the dial began.
func (x *Expirer) expire(ctx context.Context, t target) (outcome expiry.Outcome, err error) {
	var sequence uint64
	offered := false
	if err := x.judge(ctx, func(c *Catalogue) {
		if sequence, offered = c.offers(t); !offered {
			c.builder.hidden.reveal(t)
		}
	}); err != nil || !offered {
		return expiry.Already, err
	}
	refusal := x.dial(ctx, t.address)
	if refusal != nil && !Refused(refusal) {
		return 0, refusal
	}
	revealed := false
	err = x.judge(ctx, func(c *Catalogue) {
		if refusal == nil {
			outcome, revealed = expiry.Fresh, c.builder.hidden.reveal(t)
			c.touch(t.id)
		} else {
			outcome = c.expire(t, sequence)
		}
	})
	switch {
	case err != nil:
	case revealed:
		x.cfg.Logger.Info("endpoint can be connected to again", "service", t.service, "worker", t.id, "address", t.address)
	case outcome == expiry.Expired:
		x.cfg.Logger.Info("endpoint cannot be connected to although its worker is alive: it gets nothing from here until it can", "service", t.service, "worker", t.id, "address", t.address, "err", refusal)
	}
	return outcome, err
}

func (x *Expirer) dial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	conn, err := x.cfg.Dial(ctx, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// judge runs f on the catalogue's loop.
func (x *Expirer) judge(ctx context.Context, f func(*Catalogue)) error {
	return x.cfg.Catalogue.ask(ctx, func() {
		f(x.cfg.Catalogue)
		x.unreachable.Set(float64(len(x.cfg.Catalogue.builder.hidden)))
	})
}

// offers finds the sequence of the visible record that has the endpoint. On the
// loop only.
func (c *Catalogue) offers(t target) (sequence uint64, ok bool) {
	e, _ := c.store.visible(t.id)
	if e == nil || e.instance() != t.instance {
		return 0, false
	}
	return e.stamp.sequence, slices.ContainsFunc(e.services(), func(s Service) bool {
		return s.Name == t.service && s.Address == t.address
	})
}

// expire hides what was found dead at that sequence. A worker that withdrew it,
// left or died meanwhile was first: then there is nothing to hide. On the loop
// only.
func (c *Catalogue) expire(t target, sequence uint64) expiry.Outcome {
	now, offered := c.offers(t)
	switch {
	case !offered:
		c.builder.hidden.reveal(t)
		return expiry.Already
	case now != sequence || c.members.Degraded():
		return expiry.Fresh
	case !c.builder.hidden.hide(t, sequence):
		return expiry.Already
	}
	c.touch(t.id)
	return expiry.Expired
}
