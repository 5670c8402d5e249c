package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Lease is one request's place on a connection. It belongs to one goroutine at a
// time.
type Lease[C Conn] struct {
	pool     *Pool[C]
	conn     C
	ticket   Ticket
	start    time.Time
	reported bool
	released bool
}

// Conn is the connection. It may carry other requests, as many as Config.Streams
// allows, and must not be used after Release.
func (l *Lease[C]) Conn() C { return l.conn }

// Peer is whom it leads to.
func (l *Lease[C]) Peer() Peer { return l.ticket.Peer }

// Report says how the request ended, or that its answer has begun: the latency is
// the time since Acquire returned. Later reports are ignored.
func (l *Lease[C]) Report(o Outcome) {
	if l.reported {
		return
	}
	l.reported = true
	l.pool.finish(func(now time.Time) { l.pool.table.Report(l.ticket, o, now.Sub(l.start), now) })
}

// Release gives the place back. Further calls do nothing.
func (l *Lease[C]) Release() {
	if l.released {
		return
	}
	l.released = true
	l.pool.finish(func(now time.Time) { l.pool.table.Release(l.ticket, now) })
}

// finish is change for the path of a request: most of them leave nothing to do.
func (p *Pool[C]) finish(f func(now time.Time)) {
	p.mu.Lock()
	now := time.Now()
	f(now)
	closing := p.settle(now)
	p.mu.Unlock()
	p.closeAll(closing)
}

// settle is step, if there is anything to do. The lock is held.
func (p *Pool[C]) settle(now time.Time) (closing []C) {
	if p.table.pending() {
		return p.step(now)
	}
	return nil
}

// Acquire returns a place on a connection for one request, as [Table.Acquire] says.
// While no connection is open but one will be, it waits, until ctx ends or for
// ConnectTimeout. Errors wrap one of those of this package, or that of ctx.
func (p *Pool[C]) Acquire(ctx context.Context, r Request) (*Lease[C], error) {
	l, reason, err := p.acquire(ctx, r)
	if err != nil {
		p.observer.Metrics.rejected.WithLabelValues(reason).Inc()
		return nil, err
	}
	return l, nil
}

func (p *Pool[C]) acquire(ctx context.Context, r Request) (_ *Lease[C], reason string, _ error) {
	var failed error // why connections that we waited for were not opened
	var patience <-chan time.Time
	wait := p.cfg.ConnectTimeout
	if r.Patience > 0 {
		wait = min(wait, r.Patience)
	}
	for {
		if ctx.Err() != nil {
			return nil, rejectedCancelled, waitError(context.Cause(ctx), failed)
		}
		ticket, c, changed, err := p.try(r)
		if err == nil && ticket.Ready {
			return &Lease[C]{pool: p, conn: c.conn, ticket: ticket, start: time.Now()}, "", nil
		}
		if err != nil && !errors.Is(err, errNotYet) {
			return nil, reasonOf(err), errors.Join(err, failed)
		}
		if patience == nil {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			patience = timer.C
		}
		var ready chan struct{}
		if err == nil {
			ready, changed = c.ready, nil
		}
		select {
		case <-ready:
			if c.err == nil {
				return &Lease[C]{pool: p, conn: c.conn, ticket: ticket, start: time.Now()}, "", nil
			}
			failed = fmt.Errorf("pool: connecting to %s (%s): %w", ticket.Peer.ID, ticket.Peer.Address, c.err)
			r.Exclude = append(slices.Clip(r.Exclude), ticket.Peer.ID)
			continue
		case <-changed:
			continue
		case <-ctx.Done():
			err, reason = context.Cause(ctx), rejectedCancelled
		case <-patience:
			err, reason = fmt.Errorf("%w: waited %v for a connection", ErrUnavailable, wait), rejectedTimeout
		}
		if ready != nil {
			p.finish(func(now time.Time) { p.table.Release(ticket, now) })
		}
		return nil, reason, waitError(err, failed)
	}
}

// try asks the table once. Without a ticket, it is worth asking again when changed
// is closed.
func (p *Pool[C]) try(r Request) (ticket Ticket, c *conn[C], changed <-chan struct{}, err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return Ticket{}, nil, nil, ErrClosed
	}
	now := time.Now()
	ticket, err = p.table.Acquire(r, now)
	closing := p.settle(now)
	c, changed = p.conns[ticket.Link], p.changed
	p.mu.Unlock()
	p.closeAll(closing)
	return ticket, c, changed, err
}

func waitError(err, failed error) error {
	return errors.Join(fmt.Errorf("pool: waiting for a connection: %w", err), failed)
}

func reasonOf(err error) string {
	for reason, of := range map[string]error{
		rejectedNoPeers: ErrNoPeers, rejectedExhausted: ErrExhausted, rejectedUnavailable: ErrUnavailable,
		rejectedExcluded: ErrExcluded, rejectedClosed: ErrClosed,
	} {
		if errors.Is(err, of) {
			return reason
		}
	}
	return rejectedUnavailable
}
