package upstream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringway/ringway/internal/proxy/http2"
)

// maxDials is how many connections to one endpoint are opened at a time. A burst then
// costs the endpoint a few handshakes at a time, and not one for each request: with one
// for each, all end late, the requests are given up and their handshakes are wasted. With
// only one, a distant endpoint would gain one connection per three round trips of TCP and
// TLS. More than a few only compete for processors: connections that become free serve
// most of a burst.
const maxDials = 4

// Activity counts what pools do to get connections. Its zero value is ready.
type Activity struct {
	// Waiting requests, and connections that are being opened for them. HTTP/1.1 only.
	Waiting, Dialling atomic.Int64
	// Waits counts the ended waits of requests that found no idle connection, by what ended
	// the wait.
	Waits [len(waitEnds)]atomic.Uint64
	// Opened and Failed count the connections that were opened and those that could not be
	// opened. Untrusted and NotH2 count those that TLS with a service has ended, in place of
	// Failed; see ServiceTLS.
	Opened, Failed, Untrusted, NotH2 atomic.Uint64
	// Unasked counts the HTTP/1.1 connections that were closed because of bytes that belong to
	// no request.
	Unasked atomic.Uint64
	// Abusive, Malformed and Stalled count the HTTP/2 connections that were closed because the endpoint
	// sent too much that costs and carries nothing, or what is no HTTP/2, or read nothing for a minute.
	Abusive, Malformed, Stalled atomic.Uint64
}

// ended counts the end of an HTTP/2 connection.
func (a *Activity) ended(err error) {
	switch http2.WhyEnded(err) {
	case http2.WhyAbusive:
		a.Abusive.Add(1)
	case http2.WhyMalformed:
		a.Malformed.Add(1)
	case http2.WhyStalled:
		a.Stalled.Add(1)
	}
}

func (a *Activity) failed(err error) {
	switch {
	case errors.Is(err, ErrUntrusted):
		a.Untrusted.Add(1)
	case errors.Is(err, ErrNotH2):
		a.NotH2.Add(1)
	default:
		a.Failed.Add(1)
	}
}

// The ends of a wait for a connection.
const (
	waitOpened = iota // a connection was opened
	waitFreed         // a connection became free
	waitFailed        // no connection could be opened
	waitGaveUp        // the request was cancelled, or its deadline passed
	waitEnded         // the endpoint was declared dead, or Drain ran out of time
)

var waitEnds = [...]string{"opened", "freed", "failed", "gave_up", "ended"}

// WaitEnds lists the names of the indexes of Activity.Waits, for metrics.
func WaitEnds() []string { return waitEnds[:] }

// waiter is a request that found no usable connection. Pool.mu guards it from join until
// ready is closed. The watch of the pool ends the waits that last too long: timers and the
// channels of contexts were most of what a busy relay allocated.
type waiter struct {
	ctx      context.Context
	progress *progress
	deadline time.Time // zero means none
	// fresh means that only a new connection is accepted.
	fresh bool

	queued bool
	ready  chan struct{} // closed when the wait ends
	c      *conn         // busy with the request
	reused bool          // the connection was not opened just now
	gaveUp bool          // the request was cancelled, or its deadline passed
	err    *Fault
}

// join adds w to the queue: at the front if w was already served, with a connection that
// turned out to be closed.
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
		p.failAll(&Fault{Stage: StageDial, Address: p.cfg.Address, Err: ErrClosed})
		return
	}
	p.serve()
	p.dialMore()
	p.arm() // the watch also detects when an idle connection has rested
}

// await returns when w was served, or with the reason that it was not. It needs no timer: the watch
// closes ready when the request is over. If the deadline has passed already, the request does not
// wait for the next round.
func (p *Pool) await(w *waiter) *Fault {
	late := hasPassed(w.deadline)
	if late {
		p.mu.Lock()
		p.endWaits(false)
		p.mu.Unlock()
	}
	<-w.ready
	switch {
	case late: // whatever the result: the endpoint had no time
	case w.err != nil:
		return w.err
	case !w.gaveUp && w.ctx.Err() == nil:
		return nil
	}
	gaveUp := &Fault{Stage: StageDial, Address: p.cfg.Address, late: late, Err: context.DeadlineExceeded}
	if cause := context.Cause(w.ctx); cause != nil {
		gaveUp.Err = cause
		if errors.Is(w.ctx.Err(), context.Canceled) {
			gaveUp.Stage = StageClient
		}
	}
	if w.c != nil { // it came too late for this request; the next one can use it
		p.giveBack(w.c, !w.reused)
	}
	return gaveUp
}

// endWaits ends the waits of requests that were cancelled, or whose deadline has passed. After a
// pause of the process the deadlines wait for the next round: a connection may have been opened
// meanwhile. The lock is held.
func (p *Pool) endWaits(paused bool) {
	for i := 0; i < len(p.waiting); {
		w := p.waiting[i]
		if w.ctx.Err() == nil && (paused || !hasPassed(w.deadline)) {
			i++
			continue
		}
		w.gaveUp = true
		p.removeWaiter(i, waitGaveUp)
	}
}

// hasPassed reports whether there is a deadline that has passed.
func hasPassed(deadline time.Time) bool { return !deadline.IsZero() && !deadline.After(time.Now()) }

// removeWaiter removes the waiter at i, which was served or has given up, from the queue. The
// lock is held.
func (p *Pool) removeWaiter(i, end int) {
	w := p.waiting[i]
	w.queued = false
	p.cfg.Activity.Waiting.Add(-1)
	p.cfg.Activity.Waits[end].Add(1)
	p.waiting = slices.Delete(p.waiting, i, i+1)
	close(w.ready)
	p.stopUnwanted()
}

// hand passes c to the waiter at i. The lock is held. The connection is busy before the waiter is
// woken, so that the watch can end the exchange at any time.
func (p *Pool) hand(i int, c *conn, reused bool) {
	w := p.waiting[i]
	w.c, w.reused = c, reused
	p.engage(c, w.ctx, w.progress)
	end := waitOpened
	if reused {
		p.reused++
		end = waitFreed
	}
	p.removeWaiter(i, end)
}

// serve passes the idle connections that have rested to the waiting requests. The lock is
// held.
func (p *Pool) serve() {
	p.endRests()
	for i := 0; i < len(p.waiting); {
		if p.waiting[i].fresh {
			i++
			continue
		}
		n := len(p.idle) - 1
		if n < 0 {
			return
		}
		c := p.idle[n]
		p.idle[n] = nil
		p.idle = p.idle[:n]
		p.hand(i, c, true)
	}
}

// offer passes c, which is not among the idle ones, to the first waiting request that can
// use it. The lock is held. A connection that was used does not go to a request that wants a new
// one: its last connection was closed by the endpoint, and the others of that age likely as well.
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

// dialMore opens connections, one for each waiting request but at most maxDials at a time.
// The lock is held. A dial belongs to no request. Its connection goes to the request that waits
// longest when it is open, and the request that caused it may have got another one by then.
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

// open opens one connection for the request that then waits longest. It runs on a separate
// goroutine, which Drain waits for, because the request that started it may be served
// earlier.
func (p *Pool) open(ctx context.Context) {
	// dial has the same limit, begun a moment later. ofWait compares it with the deadlines of the
	// requests that waited.
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
		p.dialFailed(err, limit)
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

// dialFailed ends the waits of the requests for which waiting longer is useless. If the
// endpoint refuses connections, or no connection is open that could become free, these are
// all: the others would fail one after the other, and may have another endpoint to try.
// Otherwise it is the one that waits longest, and the next dial is for the next request.
// The lock is held.
func (p *Pool) dialFailed(err *Fault, limit time.Time) {
	all := len(p.idle)+len(p.resting)+len(p.busy) == 0 || errors.Is(err, syscall.ECONNREFUSED)
	p.markRepeated(err, limit)
	for first := true; len(p.waiting) > 0; first = false {
		w := p.waiting[0]
		w.err = err.ofWait(w.deadline, limit, first)
		p.removeWaiter(0, waitFailed)
		if !all {
			return
		}
	}
}

// markRepeated marks the error of a dial that ran out of time if another such dial has blamed
// the endpoint since this one began. The lock is held.
func (p *Pool) markRepeated(err *Fault, limit time.Time) {
	if !errors.Is(err, errDialLate) {
		return
	}
	if began := limit.Add(-p.cfg.DialTimeout); began.Before(p.lastTimeout) {
		err.repeated = true
		return
	}
	p.lastTimeout = time.Now()
}

// ofWait returns the error of a dial, which ended at limit at the latest, for a request
// that waited for the dial until deadline. The error must not depend on which timer fires
// first. For all but the first request the error is Repeated.
func (e *Fault) ofWait(deadline, limit time.Time, first bool) *Fault {
	own := *e
	if errors.Is(e, errDialLate) {
		own.repeated = own.repeated || !first
		if !deadline.IsZero() && deadline.Before(limit) {
			own.Err = context.DeadlineExceeded
		}
	}
	return &own
}

// failAll ends the waits of all requests. The lock is held.
func (p *Pool) failAll(err *Fault) {
	for len(p.waiting) > 0 {
		own := *err
		p.waiting[0].err = &own
		p.removeWaiter(0, waitEnded)
	}
}

// stopUnwanted stops the dials of a closed pool if no request waits for them: their
// connections would be closed immediately. The lock is held.
func (p *Pool) stopUnwanted() {
	if p.closed && len(p.waiting) == 0 && p.dialCtx != nil {
		p.stopDials(ErrClosed)
		p.dialCtx = nil // a request in flight may still need a fresh connection
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

// forget closes a connection that was taken for reuse but is already closed.
func (p *Pool) forget(c *conn) {
	p.mu.Lock()
	p.reused--
	p.disengage(c)
	p.mu.Unlock()
	_ = c.Close()
}
