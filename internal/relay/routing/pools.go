package routing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/internal/relay/upstream"
)

// maxWarming bounds the connections that are being opened at one time, so that a
// deploy of a thousand workers is not a storm of handshakes.
const maxWarming = 16

// pools owns the connections to workers and relays. Only the router's goroutine
// calls it; opening a connection happens in goroutines that close waits for.
type pools struct {
	count          prometheus.Gauge
	opened, closed prometheus.Counter

	open    func(key poolKey) (*upstream.Pool, error)
	drain   time.Duration
	logger  *slog.Logger
	byKey   map[poolKey]*pooled
	warming chan struct{}
	wg      sync.WaitGroup
}

// poolKey is what a connection is made of. Services that share a worker's
// address share its connections.
type poolKey struct {
	address  string
	protocol upstream.Protocol
	// relay is the id of the relay that must answer, empty for a worker.
	relay string
}

type pooled struct {
	pool *upstream.Pool
	// generation is the last update that needed the pool.
	generation uint64
	// idleSince is set while no route needs the pool.
	idleSince time.Time
	// warm is closed after the first attempt to connect; warming is set while one
	// is under way.
	warm    chan struct{}
	warming atomic.Bool
}

func newPools(open func(poolKey) (*upstream.Pool, error), cfg Config) *pools {
	f := promauto.With(cfg.Registerer)
	return &pools{
		count:  f.NewGauge(prometheus.GaugeOpts{Name: "ringway_relay_upstream_pools", Help: "Workers and relays that connections are kept to."}),
		opened: f.NewCounter(prometheus.CounterOpts{Name: "ringway_relay_upstream_pools_opened_total", Help: "Workers and relays that connections were opened to."}),
		closed: f.NewCounter(prometheus.CounterOpts{Name: "ringway_relay_upstream_pools_closed_total", Help: "Workers and relays whose connections were closed after the drain delay."}),
		open:   open, drain: cfg.DrainDelay, logger: cfg.Logger, byKey: make(map[poolKey]*pooled), warming: make(chan struct{}, maxWarming),
	}
}

// need returns the pool for key and marks it as used by this generation. A new
// one begins to connect in the background.
func (p *pools) need(ctx context.Context, key poolKey, generation uint64) (*pooled, error) {
	if e, ok := p.byKey[key]; ok {
		e.generation, e.idleSince = generation, time.Time{}
		return e, nil
	}
	pool, err := p.open(key)
	if err != nil {
		return nil, err
	}
	e := &pooled{pool: pool, generation: generation, warm: make(chan struct{})}
	p.byKey[key] = e
	p.opened.Inc()
	p.count.Set(float64(len(p.byKey)))
	e.warming.Store(true)
	p.wg.Go(func() {
		defer close(e.warm)
		p.warm(ctx, key, e)
	})
	return e, nil
}

// warm opens a connection, when a place is free.
func (p *pools) warm(ctx context.Context, key poolKey, e *pooled) {
	defer e.warming.Store(false)
	select {
	case p.warming <- struct{}{}:
		defer func() { <-p.warming }()
	case <-ctx.Done():
		return
	}
	if err := e.pool.Warm(ctx); err != nil && ctx.Err() == nil {
		p.logger.Debug("cannot warm a connection; the next request will try again", "addr", key.address, "err", err)
	}
}

// rewarm connects again where no connection is left: a tunnel took the last one,
// the endpoint closed it, or it could not be reached before.
func (p *pools) rewarm(ctx context.Context, generation uint64) {
	for key, e := range p.byKey {
		if e.generation == generation && e.pool.Stats().Open == 0 && e.warming.CompareAndSwap(false, true) {
			p.wg.Go(func() { p.warm(ctx, key, e) })
		}
	}
}

// sweep closes the pools that nothing has needed for the drain delay. It reports
// when it should be called again, zero for never.
func (p *pools) sweep(generation uint64, now time.Time) (next time.Duration) {
	for key, e := range p.byKey {
		if e.generation == generation {
			continue
		}
		if e.idleSince.IsZero() {
			e.idleSince = now
		}
		left := p.drain - now.Sub(e.idleSince)
		if left <= 0 {
			e.pool.Close()
			delete(p.byKey, key)
			p.closed.Inc()
			p.count.Set(float64(len(p.byKey)))
		} else if next == 0 || left < next {
			next = left
		}
	}
	return next
}

// close closes every pool and waits for what was being opened.
func (p *pools) close() {
	for _, e := range p.byKey {
		e.pool.Close()
	}
	p.wg.Wait()
}
