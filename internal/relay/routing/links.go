package routing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/affinity/peering"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/membership/identity"
)

// links owns the connections to workers. What to open and close is the
// table's business; here it is done. Only the router's goroutine calls it. A
// connection is opened by a goroutine of its own, whose result comes on ended.
type links struct {
	table  *peering.Table[poolKey]
	open   func(poolKey) (*upstream.Pool, error)
	pools  map[poolKey]*upstream.Pool
	ended  chan opening
	wg     sync.WaitGroup
	logger *slog.Logger

	byState *prometheus.GaugeVec
	events  *prometheus.CounterVec
	counted peering.Counts
}

// poolKey is what a connection is made of. Services that share a worker's
// address share its connections.
type poolKey struct {
	address  string
	protocol upstream.Protocol
	// node and role are who must answer, over mutual TLS; empty for a service,
	// which proves nothing.
	node string
	role identity.Role
}

// relayKey and sidecarKey are the keys of those who prove who they are.
func relayKey(address string, protocol upstream.Protocol, node string) poolKey {
	return poolKey{address, protocol, node, identity.RoleRelay}
}

func sidecarKey(address string, protocol upstream.Protocol, node string) poolKey {
	return poolKey{address, protocol, node, identity.RoleWorker}
}

// forUpgrades is the same peer over HTTP/1.1.
func (k poolKey) forUpgrades() poolKey {
	k.protocol = upstream.HTTP1
	return k
}

// opening is the end of one attempt to connect. The pool tells attempts of one key
// apart that was given up and wanted again.
type opening struct {
	key  poolKey
	pool *upstream.Pool
	err  error
}

func newLinks(open func(poolKey) (*upstream.Pool, error), cfg Config) (*links, error) {
	table, err := peering.NewTable[poolKey](peering.Config{DrainDelay: cfg.Links.DrainDelay})
	if err != nil {
		return nil, err
	}
	f := promauto.With(cfg.Registerer)
	return &links{
		table: table, open: open, pools: map[poolKey]*upstream.Pool{}, ended: make(chan opening), logger: cfg.Logger,
		byState: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringway_peering_links", Help: "Workers that this relay connects to, by state: waiting, opening, open, spare (out of range but within slack), draining.",
		}, []string{"state"}),
		events: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_peering_events_total", Help: "What happened to connections: opened, failed, lost, closed, drain_started, drain_cancelled, and what audits repaired: missing, surplus.",
		}, []string{"event"}),
	}, nil
}

// pool returns the pool for key, which must then be wanted: what is not is closed
// by the next audit.
func (l *links) pool(key poolKey) (*upstream.Pool, error) {
	if p := l.pools[key]; p != nil {
		return p, nil
	}
	p, err := l.open(key)
	if err == nil {
		l.pools[key] = p
	}
	return p, err
}

// act does what is due and returns when something is due next, zero for never.
func (l *links) act(ctx context.Context, now time.Time) time.Time {
	actions := l.table.Step(now)
	for _, key := range actions.Close {
		l.pools[key].Close()
		delete(l.pools, key)
	}
	for _, key := range actions.Open {
		pool := l.pools[key]
		l.wg.Go(func() {
			err := pool.Warm(ctx)
			select {
			case l.ended <- opening{key, pool, err}:
			case <-ctx.Done():
			}
		})
	}
	l.countEvents()
	return actions.Next
}

// finish takes the end of an attempt to connect.
func (l *links) finish(o opening, now time.Time) {
	switch {
	case l.pools[o.key] != o.pool:
	case o.err != nil:
		l.logger.Debug("cannot connect; trying again later", "addr", o.key.address, "err", o.err)
		l.table.Failed(o.key, now)
	default:
		l.table.Opened(o.key, now)
	}
}

// audit compares the table with the connections there are: a tunnel may have taken
// the last one, the far end may have closed it.
func (l *links) audit(now time.Time) {
	open := make(map[poolKey]struct{}, len(l.pools))
	for key, pool := range l.pools {
		if l.table.State(key) == peering.None || pool.Stats().Open > 0 {
			open[key] = struct{}{}
		}
	}
	_, surplus := l.table.Audit(open, now)
	for _, key := range surplus {
		l.pools[key].Close()
		delete(l.pools, key)
	}
}

// count brings the states in the metrics up to date. It looks at every link, so it is
// for now and then.
func (l *links) count() {
	byState := l.table.Count()
	for _, state := range []peering.State{peering.Waiting, peering.Opening, peering.Open, peering.Spare, peering.Draining} {
		l.byState.WithLabelValues(state.String()).Set(float64(byState[state]))
	}
}

// countEvents brings the events up to date, and looks at no link.
func (l *links) countEvents() {
	before, now := l.counted, l.table.Counts()
	l.counted = now
	for _, e := range []struct {
		name   string
		before uint64
		now    uint64
	}{
		{"opened", before.Opened, now.Opened},
		{"failed", before.Failed, now.Failed},
		{"lost", before.Lost, now.Lost},
		{"closed", before.Closed, now.Closed},
		{"drain_started", before.DrainsStarted, now.DrainsStarted},
		{"drain_cancelled", before.DrainsCancelled, now.DrainsCancelled},
		{"missing", before.Missing, now.Missing},
		{"surplus", before.Surplus, now.Surplus},
	} {
		l.events.WithLabelValues(e.name).Add(float64(e.now - e.before))
	}
}

// close closes every connection and waits for the attempts to connect, whose context
// has ended.
func (l *links) close() {
	for _, pool := range l.pools {
		pool.Close()
	}
	l.wg.Wait()
	l.count()
	l.countEvents()
}
