package upstream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// maxDials is how many connections to one endpoint are opened at a time. A burst then
// costs the endpoint a few handshakes at once, and not one for each request: with one
// for each, they all end late, the requests are given up and their handshakes are
// wasted. One alone would let a distant endpoint gain one connection in each of the
// three round trips of TCP and TLS. More than a few only share the processors: the
// connections that come free serve most of a burst.
const maxDials = 4

// Activity is what pools do to have connections. Its zero value is ready.
type Activity struct {
	// Waiting requests, and connections that are being opened for them: HTTP/1.1
	// only.
	Waiting, Dialling atomic.Int64
	// Waits counts requests that found no idle connection, by what ended their wait.
	Waits [len(waitEnds)]atomic.Uint64
	// Opened and Failed count the connections that were opened, and those that could
	// not be.
	Opened, Failed atomic.Uint64
}

// What ends the wait for a connection.
const (
	waitOpened = iota // one was opened
	waitFreed         // one came free
	waitFailed        // none could be opened
	waitGaveUp        // the request was cancelled, or its time was over
	waitEnded         // the endpoint was declared dead, or the pool cut off
)

var waitEnds = [...]string{"opened", "freed", "failed", "gave_up", "ended"}

// WaitEnds lists the names of the places of Activity.Waits, for metrics.
func WaitEnds() []string { return waitEnds[:] }

// waiter is a request that found no connection which it could use. Guarded by Pool.mu
// until ready is closed.
type waiter struct {
	ctx      context.Context
	progress *progress
	deadline time.Time // zero: none
	// fresh says that only a new connection will do.
	fresh bool

	queued bool
	ready  chan struct{} // closed with c or err set
	c      *conn         // busy with the request
	reused bool          // it was not opened just now
	err    *Error
}

// connect returns a connection that is busy with the request: the idle one used last,
// or else the first that comes free or is opened. Those who wait are served in the
// order in which they came. With fresh, only one that is opened will do.
func (p *Pool) connect(ctx context.Context, g *progress, deadline time.Time, fresh bool) (c *conn, reused bool, _ error) {
	if !fresh {
		if c := p.takeIdle(ctx, g); c != nil {
			return c, true, nil
		}
	}
	w := &waiter{ctx: ctx, progress: g, deadline: deadline, fresh: fresh}
	for again := false; ; again = true {
		p.join(w, again)
		if err := p.await(w); err != nil {
			return nil, false, err
		}
		if !w.reused || !w.c.stale() {
			return w.c, w.reused, nil
		}
		p.forget(w.c)
	}
}

// join puts w into the queue: at its front if it was served already, with a connection
// that turned out to be closed.
func (p *Pool) join(w *waiter, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.queued, w.ready, w.c, w.reused = true, make(chan struct{}), nil, false
	p.cfg.Activity.Waiting.Add(1)
	if again {
		p.waiting = slices.Insert(p.waiting, 0, w)
	} else {
		p.waiting = append(p.waiting, w)
	}
	if p.cut {
		p.failAll(&Error{Stage: StageDial, Address: p.cfg.Address, Err: ErrClosed})
		return
	}
	p.serve()
	p.dialMore()
	if len(p.idle) > 0 { // these rest; the watch sees when they have
		p.arm()
	}
}

// await returns when w was served. Its error is a ready *Error.
func (p *Pool) await(w *waiter) error {
	var late <-chan time.Time
	if !w.deadline.IsZero() {
		timer := time.NewTimer(time.Until(w.deadline))
		defer timer.Stop()
		late = timer.C
	}
	gaveUp := &Error{Stage: StageDial, Address: p.cfg.Address, late: passed(w.deadline)}
	select {
	case <-w.ready:
		switch {
		case gaveUp.late: // whatever came of it: the endpoint had no time
			gaveUp.Err = context.DeadlineExceeded
		case w.err != nil:
			return w.err
		case w.ctx.Err() == nil:
			return nil
		}
	case <-w.ctx.Done():
	case <-late:
		gaveUp.Err = context.DeadlineExceeded
	}
	if cause := context.Cause(w.ctx); cause != nil {
		gaveUp.Err = cause
		if errors.Is(cause, context.Canceled) {
			gaveUp.Stage = StageClient
		}
	}
	p.mu.Lock()
	if w.queued {
		p.dismiss(slices.Index(p.waiting, w), waitGaveUp)
	}
	p.mu.Unlock()
	if w.c != nil { // it came too late; the next one can use it
		p.giveBack(w.c, !w.reused)
	}
	return gaveUp
}

// passed reports whether there is a deadline and it is over.
func passed(deadline time.Time) bool { return !deadline.IsZero() && !deadline.After(time.Now()) }

// dismiss takes the waiter at i out of the queue: it is served, or has left. The lock
// is held.
func (p *Pool) dismiss(i, end int) {
	w := p.waiting[i]
	w.queued = false
	p.cfg.Activity.Waiting.Add(-1)
	p.cfg.Activity.Waits[end].Add(1)
	p.waiting = slices.Delete(p.waiting, i, i+1)
	close(w.ready)
	p.stopUnwanted()
}

// hand gives c to the waiter at i. The lock is held.
func (p *Pool) hand(i int, c *conn, reused bool) {
	w := p.waiting[i]
	w.c, w.reused = c, reused
	p.engage(c, w.ctx, w.progress)
	end := waitOpened
	if reused {
		p.reused++
		end = waitFreed
	}
	p.dismiss(i, end)
}

// serve gives the idle connections that have rested to those who wait. The lock is
// held.
func (p *Pool) serve() {
	for i := 0; i < len(p.waiting); {
		if p.waiting[i].fresh {
			i++
			continue
		}
		n := p.rested()
		if n < 0 {
			return
		}
		c := p.idle[n]
		p.idle = slices.Delete(p.idle, n, n+1)
		p.hand(i, c, true)
	}
}

// offer gives c, which is not among the idle ones, to the first who waits and can use
// it. The lock is held.
func (p *Pool) offer(c *conn, fresh bool) bool {
	if c.rests() {
		return false
	}
	for i, w := range p.waiting {
		if fresh || !w.fresh {
			p.hand(i, c, !fresh)
			return true
		}
	}
	return false
}

// dialMore opens connections, as many as there are requests that wait and at most
// maxDials at a time. The lock is held.
func (p *Pool) dialMore() {
	for p.dialling < min(maxDials, len(p.waiting)) {
		if p.dialCtx == nil {
			p.dialCtx, p.stopDials = context.WithCancelCause(context.Background())
		}
		p.dialling++
		p.cfg.Activity.Dialling.Add(1)
		go p.open(p.dialCtx)
	}
}

// open opens one connection for the request that waits longest when it is there. It has a
// goroutine of its own, which Drain waits for: the request for which it was begun may
// be served before.
func (p *Pool) open(ctx context.Context) {
	limit := time.Now().Add(p.cfg.DialTimeout)
	nc, err := p.dial(ctx)
	var c *conn
	if err == nil {
		c = newConn(nc)
	}
	p.mu.Lock()
	p.dialling--
	p.cfg.Activity.Dialling.Add(-1)
	kept := true
	if err != nil {
		p.dialFailed(err.(*Error), limit)
	} else {
		kept = p.offer(c, true) || p.keep(c)
	}
	p.dialMore()
	last := p.isOver()
	p.mu.Unlock()
	if !kept {
		_ = c.Close()
	}
	if last {
		p.finish()
	}
}

// dialFailed ends the wait of those to whom the failure of a dial says that they need
// not wait longer. When nothing listens there, or nothing is open that could come
// free, that is everybody: the others would find out the same one after the other,
// and may have another endpoint to try. Else it is the one that waits longest, and
// the next dial is for the next. The lock is held.
func (p *Pool) dialFailed(err *Error, limit time.Time) {
	all := len(p.idle)+len(p.busy) == 0 || errors.Is(err, syscall.ECONNREFUSED)
	p.blameOnce(err, limit)
	for first := true; len(p.waiting) > 0; first = false {
		w := p.waiting[0]
		w.err = err.ofWait(w.deadline, limit, first)
		p.dismiss(0, waitFailed)
		if !all {
			return
		}
	}
}

// blameOnce marks the error of a dial that ran out of time when the endpoint was blamed,
// since the dial began, for another that did. The lock is held.
func (p *Pool) blameOnce(err *Error, limit time.Time) {
	if !errors.Is(err, errDialLate) {
		return
	}
	if began := limit.Add(-p.cfg.DialTimeout); began.Before(p.blamed) {
		err.repeated = true
		return
	}
	p.blamed = time.Now()
}

// ofWait is the error of a dial, which ended at limit at the latest, for one that waited
// for it until deadline: which timer fires first must not decide what the error says.
// One that is not the first learns what the first did.
func (e *Error) ofWait(deadline, limit time.Time, first bool) *Error {
	own := *e
	if errors.Is(e, errDialLate) {
		own.repeated = own.repeated || !first
		if !deadline.IsZero() && deadline.Before(limit) {
			own.Err = context.DeadlineExceeded
		}
	}
	return &own
}

// failAll ends the wait of everybody. The lock is held.
func (p *Pool) failAll(err *Error) {
	for len(p.waiting) > 0 {
		own := *err
		p.waiting[0].err = &own
		p.dismiss(0, waitEnded)
	}
}

// stopUnwanted stops the dials of a closed pool when no request waits for them: what they
// opened would be closed at once. The lock is held.
func (p *Pool) stopUnwanted() {
	if p.closed && len(p.waiting) == 0 && p.dialCtx != nil {
		p.stopDials(ErrClosed)
		p.dialCtx = nil // one in flight may still need a fresh connection
	}
}

// giveBack ends the use of a connection on which nothing was sent.
func (p *Pool) giveBack(c *conn, fresh bool) {
	p.mu.Lock()
	p.disengage(c)
	kept := !c.cancelled && (p.offer(c, fresh) || p.keep(c))
	p.mu.Unlock()
	if !kept {
		_ = c.Close()
	}
}

// forget closes a connection that was taken to be reused and is over already.
func (p *Pool) forget(c *conn) {
	p.mu.Lock()
	p.reused--
	p.disengage(c)
	p.mu.Unlock()
	_ = c.Close()
}
