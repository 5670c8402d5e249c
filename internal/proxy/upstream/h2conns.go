package upstream

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/http2"
)

// h2IdlePeriod is how often the connections of a pool without requests are checked.
const h2IdlePeriod = time.Second

// h2Conns keeps the HTTP/2 connections to one endpoint and carries requests
// over their streams.
type h2Conns struct {
	p   *Pool
	cfg http2.Config
	// scheme is that of the requests. Sidecars and relays get it as in clear text: their TLS is
	// that of the fleet.
	scheme string

	mu      sync.Mutex // taken before Pool.mu
	conns   []*http2.Conn
	opening *h2Opening // nil if none is being opened
}

// h2Opening is a connection that is being opened for all waiting requests: a burst needs
// one connection and not a hundred, and a failed dial would fail in the same way for each
// request.
type h2Opening struct {
	done        chan struct{} // closed when c or err is set
	c           *http2.Conn
	err         *Error
	limit       time.Time // of the dial
	cancel      context.CancelCauseFunc
	waiting     int  // guarded by h2Conns.mu
	errReturned bool // a request has received err; guarded by h2Conns.mu
}

func newH2Conns(p *Pool) *h2Conns {
	c := &h2Conns{p: p, cfg: http2.Config{MaxHead: p.cfg.MaxResponseHeaderBytes}, scheme: "http"}
	if p.cfg.Protocol == advertise.H2 {
		c.scheme = "https"
	}
	return c
}

// reserve returns a stream, whose Open waits only if all connections are full. It adds the
// time until a connection was open to waited.
func (c *h2Conns) reserve(ctx context.Context, deadline time.Time, waited *time.Duration) (_ *http2.Stream, reused bool, _ error) {
	for {
		if s := c.reserveOpen(); s != nil {
			return s, true, nil
		}
		full, o, began := c.join(c.p.cfg.MaxConns)
		if full != nil {
			return full.NewStream(), true, nil
		}
		waits := time.Now()
		err := c.await(ctx, deadline, o)
		*waited += time.Since(waits)
		if err != nil {
			return nil, false, err
		}
		if began {
			if s := o.c.Reserve(); s != nil {
				return s, false, nil
			}
			return o.c.NewStream(), false, nil // if the connection is already lost, Open returns the error
		}
	}
}

// join returns the connection with the fewest requests if enough are open. Otherwise it
// returns the opening to wait for, and begins one if there is none.
func (c *h2Conns) join(enough int) (_ *http2.Conn, _ *h2Opening, began bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opening == nil {
		if least := c.leastLoaded(enough); least != nil {
			return least, nil, false
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		c.opening = &h2Opening{done: make(chan struct{}), cancel: cancel}
		c.p.mu.Lock()
		c.p.dialling++
		c.p.mu.Unlock()
		began = true
		go c.open(ctx, c.opening)
	}
	c.opening.waiting++
	return nil, c.opening, began
}

// await returns when the connection is open, or with an *Error. The last waiter that gives
// up cancels the opening.
func (c *h2Conns) await(ctx context.Context, deadline time.Time, o *h2Opening) error {
	e := &Error{Stage: StageDial, Address: c.p.cfg.Address, late: hasPassed(deadline)}
	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-o.done:
		switch {
		case e.late: // whatever the result: the endpoint had no time
		case o.err == nil:
			return nil
		default:
			c.mu.Lock()
			first := !o.errReturned
			o.errReturned = true
			c.mu.Unlock()
			return o.err.ofWait(deadline, o.limit, first)
		}
	case <-ctx.Done():
	case <-late:
	}
	c.mu.Lock()
	if o.waiting--; o.waiting == 0 {
		o.cancel(ErrClosed)
		if c.opening == o {
			c.opening = nil
		}
	}
	c.mu.Unlock()
	var client bool
	if e.Err, client = cause(ctx, context.DeadlineExceeded); client {
		e.Stage = StageClient
	}
	return e
}

// reserveOpen reserves a stream on an open connection that has one free.
func (c *h2Conns) reserveOpen() *http2.Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		if s := conn.Reserve(); s != nil {
			return s
		}
	}
	return nil
}

// leastLoaded returns the connection with the fewest requests if enough are open, else nil.
// The lock is held.
func (c *h2Conns) leastLoaded(enough int) (least *http2.Conn) {
	c.forgetEnded()
	if len(c.conns) < enough {
		return nil
	}
	fewest := 0
	for _, conn := range c.conns {
		if n, _ := conn.Load(); least == nil || n < fewest {
			least, fewest = conn, n
		}
	}
	return least
}

// forgetEnded removes the connections that accept no more requests. The lock is held.
func (c *h2Conns) forgetEnded() {
	c.conns = slices.DeleteFunc(c.conns, func(conn *http2.Conn) bool { return conn.Err() != nil })
}

// open opens one connection for all waiting requests. Drain waits for its goroutine.
func (c *h2Conns) open(ctx context.Context, o *h2Opening) {
	o.limit = time.Now().Add(c.p.cfg.DialTimeout)
	nc, err := c.p.dial(ctx)
	if err != nil {
		o.err = err.(*Error)
		c.p.mu.Lock()
		c.p.markRepeated(o.err, o.limit)
		c.p.mu.Unlock()
	} else {
		o.c = http2.NewClient(nc, c.cfg)
		go func() { _ = o.c.Run() }() // its streams report the error
	}
	c.mu.Lock()
	if o.c != nil {
		c.conns = append(c.conns, o.c)
	}
	if c.opening == o {
		c.opening = nil
	}
	c.mu.Unlock()
	o.cancel(nil)
	close(o.done)
	c.p.mu.Lock()
	c.p.dialling--
	last := c.p.isOver()
	c.p.arm()
	c.p.mu.Unlock()
	if last {
		c.p.finish()
	}
}

func (c *h2Conns) warm(ctx context.Context) error {
	if !c.p.enter(nil) {
		return &Error{Stage: StageDial, Address: c.p.cfg.Address, Err: ErrClosed}
	}
	defer c.p.leave(nil)
	if open, _ := c.count(); open > 0 {
		return nil
	}
	open, o, _ := c.join(1)
	if open != nil { // it was opened meanwhile
		return nil
	}
	return c.await(ctx, time.Time{}, o)
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

// check lets the connections notice that the endpoint is gone. It reports whether any is
// open.
func (c *h2Conns) check(elapsed time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetEnded()
	for _, conn := range c.conns {
		conn.Check(elapsed)
	}
	return len(c.conns) > 0
}

// close closes every connection with the streams on it.
func (c *h2Conns) close() {
	c.mu.Lock()
	conns := c.conns
	c.conns = nil
	c.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}
