package relaypool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/selection"
)

// Request holds the properties of a request that matter to the pool.
type Request struct {
	// Key, if not empty, is a sticky key: requests with the same key go to the same
	// primary while it keeps its place.
	Key string
	// Exclude are the ids of peers that this request has tried.
	Exclude []string
	// Patience is how long the request waits for the first connection while one is being
	// opened. Default and maximum: ConnectTimeout.
	Patience time.Duration
}

// ticket is a request's place on a connection.
type ticket struct {
	Link linkID
	Peer Peer
	// Ready is false while the connection is being opened; the request waits for it.
	Ready bool
	// First is set if the connection would be the only one to the peer.
	First bool
}

// Acquire is [Pool.Acquire] without the wait. Give the place back with Release.
func (t *table) Acquire(r Request, now time.Time) (ticket, error) {
	t.advance(now)
	if len(t.peers) == 0 {
		return ticket{}, ErrNoPeers
	}
	if len(t.primaries) == 0 {
		t.neededAt, t.sooner = t.now, true
	}
	excluded := func(p *peer) bool { return slices.Contains(r.Exclude, p.ID) }
	var bound *peer
	if r.Key != "" {
		if bound = t.bindings.find(r.Key, t.now); bound != nil && !excluded(bound) {
			if l := t.ready(bound.member); l != nil {
				return t.take(l), nil
			}
			if l := t.grow(bound.member); l != nil {
				return t.take(l), nil
			}
		}
	}
	full := false
	for _, find := range [...]func(*member) *link{t.ready, t.grow} {
		for i := range t.primaries {
			at := (t.turn + i) % len(t.primaries)
			m := t.primaries[at]
			if excluded(m.peer) {
				continue
			}
			full = true
			if l := find(m); l != nil {
				t.turn = (at + 1) % len(t.primaries)
				if r.Key != "" && bound == nil {
					t.bindings.bind(r.Key, m.peer, t.now)
				}
				return t.take(l), nil
			}
		}
	}
	if full {
		return ticket{}, t.exhausted()
	}
	return t.acquireElsewhere(excluded)
}

// Bound returns the peer that a key is bound to, if any. The call does not count as use of
// the key.
func (t *table) Bound(key string, now time.Time) (id string, bound bool) {
	if p := t.bindings.peek(key, now); p != nil {
		return p.ID, true
	}
	return "", false
}

// acquireElsewhere acquires a place for a request that no primary can take: at a backup, or
// at a peer that is being connected.
func (t *table) acquireElsewhere(excluded func(*peer) bool) (ticket, error) {
	for _, m := range t.backups {
		if excluded(m.peer) {
			continue
		}
		if l := t.ready(m); l != nil {
			return t.take(l), nil
		}
	}
	waiting := false
	for _, m := range t.joining {
		if excluded(m.peer) {
			continue
		}
		waiting = true
		if l := m.links[0]; t.room(l) {
			return t.take(l), nil
		}
	}
	switch {
	case waiting:
		return ticket{}, errNotYet
	case len(t.primaries) > 0:
		return ticket{}, ErrExcluded
	case t.vacancies() > 0 && len(t.eligible()) > 0,
		slices.ContainsFunc(t.evicted, func(p *peer) bool { return p.links < t.cfg.MaxPerPeer && !excluded(p) }): // see recall
		return ticket{}, errNotYet
	}
	return ticket{}, t.unavailable()
}

func (t *table) take(l *link) ticket {
	l.inFlight++
	l.peer.requests++
	return ticket{Link: l.id, Peer: l.peer.Peer, Ready: l.open, First: !l.open && !l.member.connected()}
}

// Report reports how a request ended and its latency. Call it at most once per ticket,
// before Release. It may evict the peer.
func (t *table) Report(tk ticket, o selection.Outcome, latency time.Duration, now time.Time) {
	t.advance(now)
	l := t.links[tk.Link]
	if l == nil {
		return
	}
	h, m := &l.peer.health, l.peer.member
	evictIf := func(verdict func(*member) (Reason, string)) {
		if m != nil && m.role != NoRole {
			t.evictIfBad(m, verdict)
		}
	}
	switch o {
	case selection.Success:
		l.answered = true
		h.success(max(latency, 0), t.cfg.Alpha, t.now)
		evictIf(t.slow)
	case selection.Failure, selection.NoAnswer:
		l.peer.failures++
		h.failure(t.now)
		evictIf(t.failing)
	case selection.Shed:
		l.answered = true
		h.shed(t.now)
	}
}

// Release gives a place on a connection back.
func (t *table) Release(tk ticket, now time.Time) {
	t.advance(now)
	l := t.links[tk.Link]
	if l == nil {
		return // it was never opened
	}
	if !l.open {
		l.peer.requests-- // it has waited only
	}
	l.inFlight--
	switch {
	case l.inFlight > 0:
	case l.member == nil:
		t.closes = append(t.closes, l.id)
		t.drop(l)
	default:
		l.idleAt = t.now
		t.sooner = t.sooner || len(l.member.links) > 1
	}
}

// Full gives a place back unused: the peer takes no more requests on this connection until Room,
// and it carries that many, 0 if that is not known.
func (t *table) Full(tk ticket, carries int, now time.Time) {
	if l := t.links[tk.Link]; l != nil {
		l.full = true
		if carries > 0 {
			l.peer.carries = carries
		}
		l.peer.requests--
	}
	t.Release(tk, now)
}

// Allows corrects what is known of the peer since a connection was full.
func (t *table) Allows(tk ticket, n int) {
	if l := t.links[tk.Link]; l != nil && l.peer.carries > 0 {
		l.peer.carries = n
	}
}

// Room reports that the peer takes requests on a connection again.
func (t *table) Room(id linkID) {
	if l := t.links[id]; l != nil {
		l.full = false
	}
}

// Lease is one request's place on a connection. It belongs to one goroutine at a
// time.
type Lease[C Conn] struct {
	pool     *Pool[C]
	conn     C
	ticket   ticket
	start    time.Time
	reported bool
	released bool
}

// Conn returns the connection. It may carry other requests at the same time, as many as
// Config.Streams allows, and must not be used after Release.
func (l *Lease[C]) Conn() C { return l.conn }

// Peer returns the peer of the connection.
func (l *Lease[C]) Peer() Peer { return l.ticket.Peer }

// Report reports how the request ended, or that its answer has begun. The latency is the
// time since Acquire returned without Result.Client. Later reports are ignored.
func (l *Lease[C]) Report(r selection.Result) {
	if l.reported {
		return
	}
	l.reported = true
	l.pool.finish(func(now time.Time) { l.pool.table.Report(l.ticket, r.Outcome, now.Sub(l.start)-r.Client, now) })
}

// Release gives the place back. Only the first call has an effect.
func (l *Lease[C]) Release() {
	if l.released {
		return
	}
	l.released = true
	l.pool.finish(func(now time.Time) { l.pool.table.Release(l.ticket, now) })
}

// Full gives the place back unused, because the peer takes no more requests on this connection
// for now: it allows fewer than Config.Streams, or has not ended some that the pool counts as
// ended. The connection, which carries that many (0 if that is not known), gets no request until
// the caller calls room, from any goroutine.
func (l *Lease[C]) Full(carries int) (room func()) {
	l.released = true
	l.pool.finish(func(now time.Time) { l.pool.table.Full(l.ticket, carries, now) })
	return func() { l.pool.finish(func(time.Time) { l.pool.table.Room(l.ticket.Link) }) }
}

// Allows states how many requests the peer allows on a connection now.
func (l *Lease[C]) Allows(n int) {
	l.pool.finish(func(time.Time) { l.pool.table.Allows(l.ticket, n) })
}

// finish is change for the path of a request: it steps the table only if that is needed.
func (p *Pool[C]) finish(f func(now time.Time)) {
	p.mu.Lock()
	now := time.Now()
	f(now)
	closing := p.settle(now)
	p.mu.Unlock()
	p.closeAll(closing)
}

// settle calls step if the table has pending actions. The lock is held.
func (p *Pool[C]) settle(now time.Time) (closing []C) {
	if p.table.pending() {
		return p.step(now)
	}
	return nil
}

// Acquire returns a place on a connection for one request. For a known key it is a connection
// of the primary of the key; otherwise of the primary whose turn it is, or of the next
// primary with room, or of one to which another connection may be opened. Backups are used
// if there is no primary or the request excludes all of them.
//
// If no connection is open, Acquire waits until ctx ends, but not longer than
// Request.Patience or ConnectTimeout, and not if every peer has refused. Meanwhile evicted
// peers are connected to as well. Errors wrap one of those of this package,
// or that of ctx.
func (p *Pool[C]) Acquire(ctx context.Context, r Request) (*Lease[C], error) {
	l, reason, err := p.acquire(ctx, r)
	if err != nil {
		p.observer.Metrics.rejected.WithLabelValues(reason).Inc()
		return nil, err
	}
	return l, nil
}

func (p *Pool[C]) acquire(ctx context.Context, r Request) (_ *Lease[C], reason string, _ error) {
	var failed error   // the last error of a connection that this request waited for
	var calls []string // the peers of these connections, if they would have been the first
	var held ticket    // the place on a connection that is being opened
	var patience <-chan time.Time
	wait := p.cfg.ConnectTimeout
	if r.Patience > 0 {
		wait = min(wait, r.Patience)
	}
	for {
		if ctx.Err() != nil {
			p.finish(func(now time.Time) { p.table.Release(held, now) })
			return nil, rejectedCancelled, waitError(context.Cause(ctx), failed)
		}
		tk, c, changed, err := p.try(r, held)
		if err == nil && tk.Ready {
			return &Lease[C]{pool: p, conn: c.conn, ticket: tk, start: time.Now()}, "", nil
		}
		if err != nil && !errors.Is(err, errNotYet) {
			return nil, reasonOf(err), errors.Join(err, failed)
		}
		if err == nil && c == nil {
			// The step behind table.Acquire has given the connection up. Each such step leaves fewer that
			// are being opened, so this ends.
			held = ticket{}
			continue
		}
		held = tk
		if patience == nil {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			patience = timer.C
		}
		var ready chan struct{}
		if err == nil {
			ready = c.ready
		}
		select {
		case <-ready:
		case <-changed: // perhaps another connection is open
		case <-ctx.Done():
			continue
		case <-patience:
			p.finish(func(now time.Time) { p.table.Release(held, now) })
			return nil, rejectedTimeout, waitError(fmt.Errorf("%w: waited %v for a connection", ErrUnavailable, wait), failed)
		}
		select {
		case <-ready:
			if c.err == nil {
				return &Lease[C]{pool: p, conn: c.conn, ticket: tk, start: time.Now()}, "", nil
			}
			held = ticket{}
			failed = fmt.Errorf("pool: connecting to %s (%s): %w", tk.Peer.ID, tk.Peer.Address, c.err)
			if calls = append(calls, tk.Peer.ID); !tk.First || count(calls, tk.Peer.ID) == maxCalls {
				r.Exclude = append(slices.Clip(r.Exclude), tk.Peer.ID)
			}
		default:
		}
	}
}

func count(list []string, s string) (n int) {
	for _, other := range list {
		if other == s {
			n++
		}
	}
	return n
}

// maxCalls is how often a request waits for the first connection to a peer that refuses. A
// relay that has just started may refuse once; a pool calls no more often than every
// ReplenishMin.
const maxCalls = 3

// try calls table.Acquire once, in exchange for the place held, if any. If there is no ticket
// that is ready, the caller tries again when changed is closed.
func (p *Pool[C]) try(r Request, held ticket) (tk ticket, c *conn[C], changed <-chan struct{}, err error) {
	p.mu.Lock()
	now := time.Now()
	p.table.Release(held, now) // without effect for none
	if err = ErrClosed; !p.closed {
		tk, err = p.table.Acquire(r, now)
	}
	closing := p.settle(now)
	c, changed = p.conns[tk.Link], p.changed
	p.mu.Unlock()
	p.closeAll(closing)
	return tk, c, changed, err
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
