package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/http2"
	"github.com/ringway/ringway/internal/publish"
)

// h2IdlePeriod is how often the connections of a pool without requests are checked.
const h2IdlePeriod = time.Second

// h2Conns keeps the HTTP/2 connections to one endpoint and carries requests
// over their streams. A request takes a free stream of any connection and does not wait for one of
// them, because a stream may last for days. If none is free, it waits in a queue, of which room
// wakes the first, and one connection at a time is opened for all that wait, up to MaxConns.
type h2Conns struct {
	p   *Pool
	cfg http2.Config
	// scheme of the requests. Sidecars and relays get it as in clear text: their TLS is
	// that of the fleet.
	scheme string

	waiting atomic.Int32  // how many requests wait for a stream
	room    chan struct{} // has an element if there may be a stream for one of them

	mu      sync.Mutex // taken before Pool.mu
	conns   []*h2Conn
	ending  []*h2Conn  // take no more requests, but have some
	opening *h2Opening // that requests wait for; nil if none does
	rests   time.Time  // until then only a first connection is opened
	closed  bool
}

// h2Conn is a connection of HTTP/2.
type h2Conn struct {
	*http2.Conn
	used bool // it has had a stream
}

// settled reports whether the settings of the endpoint have arrived.
func (c *h2Conn) settled() bool {
	select {
	case <-c.Ready():
		return true
	default:
		return false
	}
}

// h2Opening is a connection that is being opened, or will be, for all waiting requests: a
// burst needs one connection and not a hundred, and a failed dial would fail in the same way
// for each request. It has ended when the number of streams is known that the endpoint allows.
type h2Opening struct {
	done  chan struct{} // closed at the end
	err   *Fault
	limit time.Time // of the dial

	// Guarded by h2Conns.mu.
	started     bool
	cancel      context.CancelCauseFunc
	waiting     int
	errReturned bool // a request has received err
}

func newH2Conns(p *Pool) *h2Conns {
	c := &h2Conns{p: p, scheme: "http", room: make(chan struct{}, 1)}
	c.cfg = http2.Config{MaxHead: p.cfg.MaxResponseHeaderBytes, Room: func() {
		if c.waiting.Load() > 0 {
			c.signal()
		}
	}}
	if p.cfg.Protocol == advertise.H2 {
		c.scheme = "https"
	}
	return c
}

// signal lets the request that has waited longest look for a stream.
func (c *h2Conns) signal() {
	publish.Notify(c.room)
}

// reserve returns a stream whose Open does not wait. Requests that find none wait in order of
// arrival, and more connections are opened for them.
func (c *h2Conns) reserve(s *h2Stream) (stream *http2.Stream, reused bool, err *Fault) {
	take := func() bool {
		stream, reused = c.take(s.key != "")
		return stream != nil
	}
	// While others wait, a free stream is for the first of them.
	if c.waiting.Load() == 0 {
		c.mu.Lock()
		found := take()
		c.mu.Unlock()
		if found {
			return stream, reused, nil
		}
	}
	ctx, cancel := context.WithCancelCause(s.r.Context())
	defer cancel(nil)
	c.p.setWait(&s.progress, cancel)
	defer c.p.setWait(&s.progress, nil)
	waits := time.Now()
	err = c.await(ctx, s.x.Deadline, take)
	s.res.Waited += time.Since(waits)
	if err != nil && err.Stage == StageClient && s.r.Context().Err() == nil {
		err.Stage = StageDial // the watch has ended the wait, and not the client
	}
	return stream, reused, err
}

// setWait lets the watch end the wait for a stream from now on, or with nil no more.
func (p *Pool) setWait(g *progress, cancel context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.endWait = cancel
}

// take reserves a stream on an open connection that has one free, and whose settings have
// arrived if settled. The lock is held.
func (c *h2Conns) take(settled bool) (s *http2.Stream, reused bool) {
	for _, conn := range c.conns {
		if settled && !conn.settled() {
			continue
		}
		if s := conn.Reserve(); s != nil {
			reused, conn.used = conn.used, true
			return s, reused
		}
	}
	return nil, false
}

// await returns when take has succeeded, or with the reason that it has not. The lock is held while
// take runs. A request takes a stream only in its turn, which is a signal of room: the channel
// holds one, and the request that has waited longest receives it. The end of an opening is the turn
// of all, because a new connection may have room for many.
func (c *h2Conns) await(ctx context.Context, deadline time.Time, take func() bool) *Fault {
	e := &Fault{Stage: StageDial, Address: c.p.cfg.Address, Err: context.DeadlineExceeded, late: hasPassed(deadline)}
	if e.late {
		return e // the endpoint had no time
	}
	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	// A stream that ended after the look of reserve has sent no signal, because no request waited.
	// The first to wait therefore looks again.
	turn := c.waiting.Add(1) == 1
	defer c.leave()
	for ; ; turn = true {
		o := c.join(turn, take)
		if o == nil {
			return nil
		}
		select {
		case <-o.done:
			if o.err != nil {
				return c.errorOf(o, deadline)
			}
			continue
		case <-c.room:
			c.part(o, false)
			continue
		case <-ctx.Done():
		case <-late:
		}
		c.part(o, true)
		var client bool
		if e.Err, client = cause(ctx, e.Err); client {
			e.Stage = StageClient
		}
		return e
	}
}

// join returns nil if take succeeds, which is called only in turn. Otherwise it returns the opening
// to wait for, which begins unless enough connections are open. It does not begin while a stream is
// free, because a request that was woken takes that. It does not begin before rests is over either:
// after a failed dial the open connections serve the requests, and the endpoint gets one attempt in
// each h2IdlePeriod.
func (c *h2Conns) join(turn bool, take func() bool) *h2Opening {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetEnded()
	if turn && take() {
		return nil
	}
	o := c.opening
	if o == nil {
		o = &h2Opening{done: make(chan struct{})}
		c.opening = o
	}
	o.waiting++
	switch {
	case c.closed:
		o.err = &Fault{Stage: StageDial, Address: c.p.cfg.Address, Err: ErrClosed}
		c.end(o)
	case o.started, len(c.conns) >= c.p.cfg.MaxConns, len(c.conns) > 0 && time.Now().Before(c.rests), c.hasRoom():
	default:
		o.started, o.limit = true, time.Now().Add(c.p.cfg.DialTimeout)
		var ctx context.Context
		// All that wait share the opening, so the end of one request does not cancel it.
		ctx, o.cancel = context.WithCancelCause(context.Background())
		c.p.mu.Lock()
		c.p.dialling++
		c.p.mu.Unlock()
		go c.open(ctx, o)
	}
	return o
}

// part ends the wait of one request for an opening that has not ended. The last that gives up
// cancels the opening. One that has not given up looks for a stream and joins again immediately.
func (c *h2Conns) part(o *h2Opening, gaveUp bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.waiting--; o.waiting > 0 || !gaveUp || !o.started {
		return
	}
	o.cancel(ErrClosed)
	if c.opening == o {
		c.opening = nil
	}
}

// leave ends the wait of one request, and lets the next one look for a stream if there is one. A
// signal that this request has consumed may have stood for several streams: room holds only one.
func (c *h2Conns) leave() {
	if c.waiting.Add(-1) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasRoom() {
		c.signal()
	}
}

// hasRoom reports whether a stream is free. The lock is held.
func (c *h2Conns) hasRoom() bool {
	return slices.ContainsFunc(c.conns, func(conn *h2Conn) bool {
		n, limit := conn.Load()
		return n < limit && conn.Err() == nil
	})
}

// errorOf returns the error of an opening for one of the requests that have waited for it.
func (c *h2Conns) errorOf(o *h2Opening, deadline time.Time) *Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !o.errReturned
	o.errReturned = true
	return o.err.ofWait(deadline, o.limit, first)
}

// forgetEnded removes the connections that accept no more requests. Those that still have some, after
// a GOAWAY of the endpoint, are checked and closed with the others until these end. The lock is held.
func (c *h2Conns) forgetEnded() {
	c.conns = slices.DeleteFunc(c.conns, func(conn *h2Conn) bool {
		switch err := conn.Err(); {
		case err == nil:
			return false
		case errors.Is(err, http2.ErrClosed):
			conn.Shutdown() // if its stream numbers are used up, neither side would end it
		}
		c.ending = append(c.ending, conn)
		return true
	})
	c.ending = slices.DeleteFunc(c.ending, func(conn *h2Conn) bool {
		streams, _ := conn.Load()
		return streams == 0
	})
}

// open opens one connection for all waiting requests. The first of them need not wait for the
// settings of the endpoint. Drain waits for its goroutine.
func (c *h2Conns) open(ctx context.Context, o *h2Opening) {
	failed := (*Fault)(nil)
	if nc, err := c.p.dial(ctx); err != nil {
		failed = err
		c.p.mu.Lock()
		c.p.markRepeated(failed, o.limit)
		c.p.mu.Unlock()
	} else {
		conn := &h2Conn{Conn: http2.NewClient(nc, c.cfg)}
		go func() { c.p.cfg.Activity.ended(conn.Run()) }() // its streams report the error
		if c.add(conn) {
			c.awaitSettings(ctx, conn, o.limit)
			// Without this error the waiting requests would open one connection after the other, if
			// the endpoint accepts them and ends them immediately.
			failed = c.unused(conn)
		}
	}
	c.mu.Lock()
	c.forgetEnded()
	if failed != nil && len(c.conns) > 0 { // requests can wait for these
		if ctx.Err() == nil { // nothing has failed if those that waited for it have left
			c.rests = time.Now().Add(h2IdlePeriod)
		}
		failed = nil
	}
	if c.opening == o {
		o.err = failed
		c.end(o)
	}
	c.mu.Unlock()
	o.cancel(nil)
	c.p.mu.Lock()
	c.p.dialling--
	last := c.p.isOver()
	c.p.arm()
	c.p.mu.Unlock()
	if last {
		c.p.finish()
	}
}

// add lets a request use a connection. It returns false if all are closed. The signal is for one
// request, which may use the connection before its settings have arrived.
func (c *h2Conns) add(conn *h2Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
		return false
	}
	c.conns = append(c.conns, conn)
	c.signal()
	return true
}

// awaitSettings waits for the settings of the endpoint. Without these it gets one request: RFC
// 9113 §3.4 makes them the first that it sends.
func (c *h2Conns) awaitSettings(ctx context.Context, conn *h2Conn, limit time.Time) {
	timer := time.NewTimer(time.Until(limit))
	defer timer.Stop()
	select {
	case <-conn.Ready():
	case <-ctx.Done():
	case <-timer.C:
	}
}

// unused returns the error of a connection that has ended before a request used it.
func (c *h2Conns) unused(conn *h2Conn) *Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := conn.Err(); err != nil && !conn.used {
		return &Fault{Stage: StageDial, Address: c.p.cfg.Address, Err: err}
	}
	return nil
}

// end ends an opening for all that wait. The lock is held.
func (c *h2Conns) end(o *h2Opening) {
	c.opening = nil
	close(o.done)
}

func (c *h2Conns) warm(ctx context.Context) error {
	if !c.p.enter(nil) {
		return &Fault{Stage: StageDial, Address: c.p.cfg.Address, Err: ErrClosed}
	}
	defer c.p.leave(nil)
	if err := c.await(ctx, time.Time{}, func() bool { return len(c.conns) > 0 }); err != nil {
		return err
	}
	return nil
}

// count removes the connections that have ended and counts the others.
func (c *h2Conns) count() (open, idle int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetEnded()
	for _, conn := range c.conns {
		if n, _ := conn.Load(); n == 0 {
			idle++
		}
	}
	return len(c.conns), idle
}

// check lets the connections notice that the endpoint is gone, and requests that they may open one
// more. It reports whether any is open.
func (c *h2Conns) check(elapsed time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetEnded()
	for _, conn := range c.conns {
		conn.Check(elapsed)
	}
	for _, conn := range c.ending {
		conn.Check(elapsed)
	}
	if o := c.opening; o != nil && !o.started && len(c.conns) < c.p.cfg.MaxConns && !time.Now().Before(c.rests) {
		c.signal() // rests is over: the first that waits begins the opening
	}
	return len(c.conns) > 0
}

// close closes every connection with the streams on it, and ends the waits.
func (c *h2Conns) close() {
	c.mu.Lock()
	conns := slices.Concat(c.conns, c.ending)
	c.conns, c.ending, c.closed = nil, nil, true
	if o := c.opening; o != nil {
		o.err = &Fault{Stage: StageDial, Address: c.p.cfg.Address, Err: ErrClosed}
		if o.started {
			o.cancel(ErrClosed)
		}
		c.end(o)
	}
	c.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}
