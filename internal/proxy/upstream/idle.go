package upstream

import (
	"context"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/proxy/socket"
)

// watchPeriod is the maximum delay until a cancelled request is detected.
const watchPeriod = 20 * time.Millisecond

// keepIdle is how many idle connections IdleTimeout leaves open, so that a request to an endpoint of
// the range finds a warm connection.
const keepIdle = 1

// expiredDeadline is a deadline in the past: it ends reads and writes immediately.
var expiredDeadline = time.Unix(1, 0)

// stale reports whether an idle connection is closed or holds bytes that belong to no request,
// which the pool remembers.
func (p *Pool) stale(c *conn) bool {
	sight := c.look()
	if sight == socket.Arrived && c.used {
		p.unasked()
	}
	return sight != socket.Quiet
}

// endRests makes the connections idle that have rested. The lock is held. Only the first ones are
// checked: a short rest behind a long one lasts as long as that, which is at most restLong.
func (p *Pool) endRests() {
	n := 0
	for n < len(p.resting) && !p.resting[n].rests() {
		n++
	}
	if n == 0 {
		return
	}
	for _, c := range p.resting[:n] {
		c.generation = p.generation
	}
	p.idle = append(p.idle, p.resting[:n]...)
	p.resting = slices.Delete(p.resting, 0, n)
	p.care.rests.Store(int64(len(p.resting)))
}

// release ends a connection's use: if reusable, it goes to the first waiting request or
// back to the pool, otherwise it is closed.
func (p *Pool) release(c *conn, reusable bool) {
	p.mu.Lock()
	p.disengage(c)
	kept := reusable && !c.cancelled && (p.offer(c, false) || p.keep(c))
	p.mu.Unlock()
	if !kept {
		_ = c.Close()
	}
}

// engage adds c to the busy connections. The lock is held.
func (p *Pool) engage(c *conn, ctx context.Context, g *progress) {
	c.ctx, c.progress, g.c = ctx, g, c
	c.slot = len(p.busy)
	p.busy = append(p.busy, c)
	if p.cut {
		c.cancelled = true
		_ = c.Conn.Close()
	}
	p.arm()
}

// arm starts the watch unless the watch runs. The lock is held.
func (p *Pool) arm() {
	if !p.armed {
		p.armed = true
		p.checked = time.Now()
		p.watch.Reset(watchPeriod)
	}
}

// disengage removes c from the busy connections. The lock is held.
func (p *Pool) disengage(c *conn) {
	last := len(p.busy) - 1
	moved := p.busy[last]
	p.busy[c.slot] = moved
	moved.slot = c.slot
	p.busy[last] = nil
	p.busy = p.busy[:last]
	c.progress.c = nil
	c.ctx, c.progress = nil, nil
}

// keep adds c to the idle connections if there is room. The lock is held. The round of the janitor
// takes the place of a time, so that no clock is read for each answer.
func (p *Pool) keep(c *conn) bool {
	switch {
	case p.closed || len(p.idle)+len(p.resting) >= p.cfg.MaxIdle:
		return false
	case !c.rests():
		c.generation = p.generation
		p.idle = append(p.idle, c)
	case c.long && len(p.resting) >= maxResting:
		return false
	default:
		p.resting = append(p.resting, c)
		p.care.rests.Store(int64(len(p.resting)))
	}
	if !p.cleaning {
		p.cleaning = true
		p.janitor.Reset(max(p.cfg.IdleTimeout/2, time.Millisecond))
	}
	return true
}

// watchRound ends exchanges that do not move, and interrupts the connections whose request
// was cancelled. It moves their deadline into the past, and repeats this in every round,
// because the request may just be setting its own deadline. It runs on the timer's
// goroutine.
func (p *Pool) watchRound() {
	// A process that was paused blames no endpoint for it: what has arrived meanwhile is read before the
	// next round, in which a head may be late.
	p.mu.Lock()
	now := time.Now()
	elapsed := min(now.Sub(p.checked), 2*h2IdlePeriod)
	p.checked = now
	p.paused = elapsed > 5*watchPeriod && !p.paused
	paused := p.paused
	p.mu.Unlock()
	// The lock of the HTTP/2 connections is taken before that of the pool, so they are checked
	// here.
	open := p.h2 != nil && p.h2.check(elapsed)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.busy {
		if c.ctx.Err() != nil {
			c.cancelled = true
			_ = c.SetDeadline(expiredDeadline)
		}
	}
	for _, g := range p.watched {
		// A round that comes late on a busy host counts for five periods at most, because the
		// exchanges may have had no processor either.
		g.check(min(elapsed, 5*watchPeriod), paused)
	}
	p.endWaits(paused)
	p.serve()
	p.armed = len(p.busy)+len(p.watched)+len(p.waiting) > 0
	switch {
	case p.armed:
		p.watch.Reset(watchPeriod)
	// Connections without requests are checked less often: this finds those whose endpoint is gone,
	// before a request does.
	case open && !p.isOver():
		p.watch.Reset(h2IdlePeriod)
	}
}

// closeIdle closes connections that were idle for two rounds, except the newest keepIdle,
// and those that the other side has closed.
func (p *Pool) closeIdle() {
	p.mu.Lock()
	p.generation++
	p.endRests()
	gone := p.takeStale()
	for len(p.idle) > keepIdle && p.idle[0].generation+2 <= p.generation {
		gone = append(gone, p.idle[0])
		p.idle = append(p.idle[:0], p.idle[1:]...)
	}
	p.cleaning = len(p.idle)+len(p.resting) > 0
	if p.cleaning {
		p.janitor.Reset(max(p.cfg.IdleTimeout/2, time.Millisecond))
	}
	p.mu.Unlock()
	closeAll(gone)
}

// takeStale removes the connections that the other side has closed from the idle ones. The
// lock is held; each check costs one short system call.
func (p *Pool) takeStale() (gone []*conn) {
	kept := p.idle[:0]
	for _, c := range p.idle {
		if p.stale(c) {
			gone = append(gone, c)
		} else {
			kept = append(kept, c)
		}
	}
	clear(p.idle[len(kept):])
	p.idle = kept
	return gone
}

func closeAll(cs []*conn) {
	for _, c := range cs {
		_ = c.Close()
	}
}
