package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// watchPeriod is how late a cancelled request may be noticed.
	watchPeriod = 20 * time.Millisecond
)

// past is a deadline that has passed: it ends reads and writes at once.
var past = time.Unix(1, 0)

// Pool keeps the warm connections to one endpoint and carries requests over
// them. All methods may be called from any goroutine.
type Pool struct {
	cfg Config
	h2  *h2Conns // nil for HTTP/1.1

	warming sync.Mutex // one Warm at a time

	mu       sync.Mutex // everything below; held for a few instructions only
	closed   bool
	inFlight int
	dials    uint64
	reused   uint64
	idle     []*conn // the newest last: it is used first
	busy     []*conn
	drained  chan struct{} // closed when closed and nothing is in flight

	// The watch looks at the busy connections every watchPeriod, while there
	// are any, and cuts off those whose request is over. period counts its
	// rounds: a cheap clock.
	watch  *time.Timer
	armed  bool
	period uint64
	cut    bool // Drain gave up waiting

	// The janitor runs twice per IdleTimeout, while there are connections to
	// look at; generation counts its rounds.
	janitor    *time.Timer
	cleaning   bool
	generation uint64
}

// Stats are a pool's counters at one moment.
type Stats struct {
	// Open connections: idle, busy and tunnels.
	Open int
	// Idle connections, ready for a request.
	Idle int
	// InFlight requests, those still dialling and tunnels included.
	InFlight int
	// Dials counts connections opened, Reused requests that found a warm one.
	Dials, Reused uint64
}

// NewPool checks cfg and returns a pool without connections. It starts no
// goroutine; timers run while the pool holds connections, so Close it.
func NewPool(cfg Config) (*Pool, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg, drained: make(chan struct{})}
	p.watch = time.AfterFunc(time.Hour, p.watchRound)
	p.watch.Stop()
	p.janitor = time.AfterFunc(time.Hour, p.cleanRound)
	p.janitor.Stop()
	if cfg.Protocol == H2C {
		p.h2 = newH2Conns(p)
	}
	return p, nil
}

// Address is the endpoint's.
func (p *Pool) Address() string { return p.cfg.Address }

// Carry sends r to the endpoint and its answer to w. It returns when both are
// done; a failure is always an *Error. x is not kept. For HTTP/1.1 it runs on
// the caller's goroutine and starts one more only for a request body that is
// large or of unknown length, or for the second direction of a tunnel; all of
// these have ended when it returns.
func (p *Pool) Carry(w http.ResponseWriter, r *http.Request, x Exchange) (Result, error) {
	if err := checkRequest(r); err != nil {
		return Result{Load: -1}, &Error{Stage: StageClient, Address: p.cfg.Address, Err: err}
	}
	if x.Deadline.IsZero() {
		x.Deadline, _ = r.Context().Deadline()
	}
	if p.h2 != nil {
		return p.h2.carry(w, r, x)
	}
	return p.carryHTTP1(w, r, x)
}

// Warm makes sure that at least one connection is open. It dials when there
// is none, or when all idle ones turn out to be closed by the other side.
func (p *Pool) Warm(ctx context.Context) error {
	p.warming.Lock()
	defer p.warming.Unlock()
	if p.h2 != nil {
		return p.h2.warm(ctx)
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return &Error{Stage: StageDial, Address: p.cfg.Address, Err: ErrClosed}
	}
	gone := p.takeStale()
	open := len(p.idle) + len(p.busy)
	p.mu.Unlock()
	closeAll(gone)
	if open > 0 {
		return nil
	}
	nc, err := p.dial(ctx, time.Time{})
	if err != nil {
		return err
	}
	c := newConn(nc)
	p.mu.Lock()
	kept := p.keep(c)
	p.mu.Unlock()
	if !kept {
		_ = c.Close()
	}
	return nil
}

// dial opens one connection and counts it. Its error is a ready *Error.
// A zero deadline leaves DialTimeout alone to bound it.
func (p *Pool) dial(ctx context.Context, deadline time.Time) (net.Conn, error) {
	limit := time.Now().Add(p.cfg.DialTimeout)
	short := !deadline.IsZero() && deadline.Before(limit)
	if short {
		limit = deadline
	}
	dctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	nc, err := p.cfg.Dial(dctx, "tcp", p.cfg.Address)
	if err != nil {
		e := &Error{Stage: StageDial, Address: p.cfg.Address, Err: err}
		if cerr := ctx.Err(); cerr != nil {
			e.Err = cerr
			if errors.Is(cerr, context.Canceled) {
				e.Stage = StageClient
			}
		} else if short && dctx.Err() != nil {
			e.Err = context.DeadlineExceeded
		}
		return nil, e
	}
	p.mu.Lock()
	p.dials++
	p.mu.Unlock()
	return nc, nil
}

// enter counts a request in; every successful enter is paired with a leave.
func (p *Pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.inFlight++
	return true
}

func (p *Pool) leave() {
	p.mu.Lock()
	p.inFlight--
	last := p.closed && p.inFlight == 0
	p.mu.Unlock()
	if last {
		p.finish()
	}
}

// finish runs once, when the pool is closed and nothing is in flight.
func (p *Pool) finish() {
	p.watch.Stop()
	if p.h2 != nil {
		p.h2.close()
	}
	close(p.drained)
}

// takeIdle returns the connection used last, marked busy with ctx, or nil.
// probe asks for a look at it even if it was in use a moment ago.
func (p *Pool) takeIdle(ctx context.Context, probe bool) *conn {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.engage(c, ctx)
		// An endpoint may close, or complain about, a connection that it
		// finds idle for too long, but hardly one that worked within the
		// last period.
		if c.period != p.period {
			probe = true
		}
		p.reused++
		p.mu.Unlock()
		if !probe || !c.stale() {
			return c
		}
		p.mu.Lock()
		p.reused--
		p.disengage(c)
		p.mu.Unlock()
		_ = c.Close()
	}
}

// adopt marks a freshly dialled connection busy.
func (p *Pool) adopt(c *conn, ctx context.Context) {
	p.mu.Lock()
	p.engage(c, ctx)
	p.mu.Unlock()
}

// release ends a connection's use: back to the pool when reusable, else
// closed.
func (p *Pool) release(c *conn, reusable bool) {
	p.mu.Lock()
	p.disengage(c)
	kept := reusable && !c.cancelled && p.keep(c)
	p.mu.Unlock()
	if !kept {
		_ = c.Close()
	}
}

// engage puts c among the busy connections. The lock is held.
func (p *Pool) engage(c *conn, ctx context.Context) {
	c.ctx = ctx
	c.slot = len(p.busy)
	p.busy = append(p.busy, c)
	if p.cut {
		c.cancelled = true
		_ = c.Conn.Close()
	}
	if !p.armed {
		p.armed = true
		p.period++ // nobody counted since the last round
		p.watch.Reset(watchPeriod)
	}
}

// disengage takes c out of the busy connections. The lock is held.
func (p *Pool) disengage(c *conn) {
	last := len(p.busy) - 1
	moved := p.busy[last]
	p.busy[c.slot] = moved
	moved.slot = c.slot
	p.busy[last] = nil
	p.busy = p.busy[:last]
	c.ctx = nil
}

// keep puts c among the idle connections if there is room. The lock is held.
func (p *Pool) keep(c *conn) bool {
	if p.closed || len(p.idle) >= p.cfg.MaxIdle {
		return false
	}
	c.period = p.period
	c.generation = p.generation
	p.idle = append(p.idle, c)
	if !p.cleaning {
		p.cleaning = true
		p.janitor.Reset(max(p.cfg.IdleTimeout/2, time.Millisecond))
	}
	return true
}

// watchRound cuts off the connections whose request was cancelled: their
// deadline is moved into the past, again in every round, because the request
// may just be setting its own. It runs on the timer's goroutine.
func (p *Pool) watchRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.period++
	for _, c := range p.busy {
		if c.ctx.Err() != nil {
			c.cancelled = true
			_ = c.SetDeadline(past)
		}
	}
	p.armed = len(p.busy) > 0
	if p.armed {
		p.watch.Reset(watchPeriod)
	}
}

// cleanRound closes connections that were idle for two rounds, but for the
// newest KeepIdle, and those that the other side has closed.
func (p *Pool) cleanRound() {
	p.mu.Lock()
	p.generation++
	gone := p.takeStale()
	for len(p.idle) > max(p.cfg.KeepIdle, 0) && p.idle[0].generation+2 <= p.generation {
		gone = append(gone, p.idle[0])
		p.idle = append(p.idle[:0], p.idle[1:]...)
	}
	p.cleaning = len(p.idle) > 0
	if p.cleaning {
		p.janitor.Reset(max(p.cfg.IdleTimeout/2, time.Millisecond))
	}
	p.mu.Unlock()
	closeAll(gone)
}

// takeStale takes the connections that the other side has closed out of the
// idle ones. The lock is held; a look costs one short system call each.
func (p *Pool) takeStale() (gone []*conn) {
	kept := p.idle[:0]
	for _, c := range p.idle {
		if c.stale() {
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

// Close refuses new requests and closes the idle connections. Requests in
// flight finish, and then their connections are closed. It does not wait; it
// may be called again.
func (p *Pool) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	gone := p.idle
	p.idle = nil
	p.cleaning = false
	p.janitor.Stop()
	last := p.inFlight == 0
	p.mu.Unlock()
	closeAll(gone)
	if last {
		p.finish()
	}
}

// Drain is Close, and then waits until nothing is in flight. When ctx ends
// first it cuts off what is left, tunnels too, and returns the context's
// error after that.
func (p *Pool) Drain(ctx context.Context) error {
	p.Close()
	select {
	case <-p.drained:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.cut = true
	for _, c := range p.busy {
		c.cancelled = true
		_ = c.Conn.Close()
	}
	p.mu.Unlock()
	if p.h2 != nil {
		p.h2.close()
	}
	return ctx.Err()
}

// Stats returns the counters.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	s := Stats{
		Open: len(p.idle) + len(p.busy), Idle: len(p.idle), InFlight: p.inFlight,
		Dials: p.dials, Reused: p.reused,
	}
	p.mu.Unlock()
	if p.h2 != nil {
		s.Open, s.Idle = p.h2.count()
	}
	return s
}
