package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// watchPeriod is how late a cancelled request may be noticed.
	watchPeriod = 20 * time.Millisecond
	// restTime is how long a connection rests after an answer that declared a body
	// which must not come. An endpoint that sends it all the same does so at once.
	restTime = 20 * time.Millisecond
)

// past is a deadline that has passed: it ends reads and writes at once.
var past = time.Unix(1, 0)

// Pool keeps the warm connections to one endpoint and carries requests over
// them. All methods may be called from any goroutine.
type Pool struct {
	cfg Config
	h2  *h2Conns // nil for HTTP/1.1

	warming sync.Mutex // one Warm at a time
	answers atomic.Uint64

	mu       sync.Mutex // everything below; held for a few instructions only
	closed   bool
	inFlight int
	dials    uint64
	reused   uint64
	idle     []*conn // the newest last: it is used first
	busy     []*conn
	watched  []*progress   // the exchanges in flight
	drained  chan struct{} // closed when closed and nothing is in flight

	dialling int
	// HTTP/1.1 only: see waiting.go.
	waiting   []*waiter       // the one that waits longest first
	dialCtx   context.Context // of the dials under way; nil before the first
	stopDials context.CancelCauseFunc

	// The watch looks at the busy connections every watchPeriod, while there
	// are any, and cuts off those whose request is over or does not move. Over
	// HTTP/2 it is for the latter only.
	watch *time.Timer
	round time.Duration
	armed bool
	cut   bool // Drain gave up waiting

	blamed time.Time // when a dial last ran out of time that is not Repeated

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
	// InFlight requests, those that wait for a connection and tunnels included.
	InFlight int
	// Waiting requests, for an HTTP/1.1 connection, and Dialling, connections that
	// are being opened.
	Waiting, Dialling int
	// Dials counts connections opened, Reused requests that found a warm one, Answers
	// the final heads of answers that came.
	Dials, Reused, Answers uint64
}

// NewPool checks cfg and returns a pool without connections. It starts no
// goroutine; timers run while the pool holds connections, so Close it.
func NewPool(cfg Config) (*Pool, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg, drained: make(chan struct{}), round: watchPeriod}
	p.watch = time.AfterFunc(time.Hour, p.watchRound)
	p.watch.Stop()
	p.janitor = time.AfterFunc(time.Hour, p.cleanRound)
	p.janitor.Stop()
	if cfg.Protocol == H2C {
		p.h2, p.round = newH2Conns(p), h2WatchPeriod
	}
	if cfg.Sessions != nil {
		cfg.Sessions.join(p)
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
	if err := CheckRequest(r); err != nil {
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

// Warm makes sure that at least one connection is open. It waits for one, as a request
// does, when there is none or when all idle ones turn out to be closed by the other
// side.
func (p *Pool) Warm(ctx context.Context) error {
	p.warming.Lock()
	defer p.warming.Unlock()
	if p.h2 != nil {
		return p.h2.warm(ctx)
	}
	if !p.enter(nil) {
		return &Error{Stage: StageDial, Address: p.cfg.Address, Err: ErrClosed}
	}
	defer p.leave(nil)
	p.mu.Lock()
	gone := p.takeStale()
	open := len(p.idle) + len(p.busy)
	p.mu.Unlock()
	closeAll(gone)
	if open > 0 {
		return nil
	}
	c, reused, err := p.connect(ctx, new(progress), time.Time{}, false)
	if err != nil {
		return err
	}
	p.giveBack(c, !reused)
	return nil
}

// Probe opens a connection and closes it: it says whether the endpoint can be reached
// at this moment, whatever the connections are that are open.
func (p *Pool) Probe(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err == nil {
		_ = conn.Close() // it was open
	}
	return err
}

// dial opens one connection and counts it. Its error is a ready *Error.
func (p *Pool) dial(ctx context.Context) (net.Conn, error) {
	dctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	nc, err := p.cfg.Dial(dctx, "tcp", p.cfg.Address)
	if err != nil {
		if context.Cause(ctx) == nil { // it was not given up
			p.cfg.Activity.Failed.Add(1)
		}
		e := &Error{Stage: StageDial, Address: p.cfg.Address, Err: err}
		// The dialler's own timer may be a moment before the context's.
		late := dctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
		switch cerr := context.Cause(ctx); {
		case cerr != nil:
			e.Err = cerr
		case late: // not the request's deadline, so no such error may be in it
			e.Err = fmt.Errorf("%w %v", errDialLate, p.cfg.DialTimeout)
		}
		return nil, e
	}
	p.mu.Lock()
	p.dials++
	p.mu.Unlock()
	p.cfg.Activity.Opened.Add(1)
	return nc, nil
}

// enter counts a request in; every successful enter is paired with a leave. What has
// no exchange gives nil.
func (p *Pool) enter(g *progress) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.inFlight++
	if g != nil {
		g.slot = len(p.watched)
		p.watched = append(p.watched, g)
		if g.limit > 0 {
			p.arm()
		}
	}
	return true
}

func (p *Pool) leave(g *progress) {
	p.mu.Lock()
	p.inFlight--
	if g != nil {
		last := len(p.watched) - 1
		moved := p.watched[last]
		p.watched[g.slot], moved.slot = moved, g.slot
		p.watched[last] = nil
		p.watched = p.watched[:last]
	}
	last := p.isOver()
	p.mu.Unlock()
	if last {
		p.finish()
	}
}

// isOver reports whether the pool is closed and nothing goes on any more. It becomes
// true once, because then nothing new is begun. The lock is held.
func (p *Pool) isOver() bool { return p.closed && p.inFlight == 0 && p.dialling == 0 }

// finish runs once, when isOver becomes true.
func (p *Pool) finish() {
	p.watch.Stop()
	if p.cfg.Sessions != nil {
		p.cfg.Sessions.leave(p)
	}
	if p.h2 != nil {
		p.h2.close()
	}
	close(p.drained)
}

// takeIdle returns the connection used last of those that do not rest, marked busy
// with ctx, or nil. Each is looked at first: what the endpoint sent behind its last
// answer must not be read as the answer to this request.
func (p *Pool) takeIdle(ctx context.Context, g *progress) *conn {
	for {
		p.mu.Lock()
		p.serve() // a rest may be over: those who wait are first
		n := p.rested()
		if n < 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n]
		p.idle = slices.Delete(p.idle, n, n+1)
		p.engage(c, ctx, g)
		p.reused++
		p.mu.Unlock()
		if !c.stale() {
			return c
		}
		p.forget(c)
	}
}

// rested is the place of the idle connection used last of those that do not rest, -1
// for none. The lock is held.
func (p *Pool) rested() int {
	n := len(p.idle) - 1
	for n >= 0 && p.idle[n].rests() {
		n--
	}
	return n
}

// release ends a connection's use: to the first that waits or back to the pool when
// reusable, else closed.
func (p *Pool) release(c *conn, reusable bool) {
	p.mu.Lock()
	p.disengage(c)
	kept := reusable && !c.cancelled && (p.offer(c, false) || p.keep(c))
	p.mu.Unlock()
	if !kept {
		_ = c.Close()
	}
}

// engage puts c among the busy connections. The lock is held.
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

// arm starts the watch unless it runs. The lock is held.
func (p *Pool) arm() {
	if !p.armed {
		p.armed = true
		p.watch.Reset(p.round)
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
	c.progress.c = nil
	c.ctx, c.progress = nil, nil
}

// keep puts c among the idle connections if there is room. The lock is held.
func (p *Pool) keep(c *conn) bool {
	if p.closed || len(p.idle) >= p.cfg.MaxIdle {
		return false
	}
	c.generation = p.generation
	p.idle = append(p.idle, c)
	if !p.cleaning {
		p.cleaning = true
		p.janitor.Reset(max(p.cfg.IdleTimeout/2, time.Millisecond))
	}
	return true
}

// watchRound ends exchanges that do not move, and cuts off the connections whose
// request was cancelled: their deadline is moved into the past, again in every round, because the request
// may just be setting its own. It runs on the timer's goroutine.
func (p *Pool) watchRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.busy {
		if c.ctx.Err() != nil {
			c.cancelled = true
			_ = c.SetDeadline(past)
		}
	}
	for _, g := range p.watched {
		g.look(p.round)
	}
	p.serve()
	p.armed = len(p.busy)+len(p.watched) > 0
	if p.armed {
		p.watch.Reset(p.round)
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
	p.stopUnwanted()
	last := p.isOver()
	p.mu.Unlock()
	closeAll(gone)
	if last {
		p.finish()
	}
}

// Drain is Close, and then waits until nothing is in flight and no connection is being
// opened. When ctx ends first it cuts off what is left, tunnels too, and returns the
// context's error after that.
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
	p.failAll(&Error{Stage: StageDial, Address: p.cfg.Address, Err: ErrClosed})
	p.mu.Unlock()
	if p.h2 != nil {
		p.h2.close()
	}
	return ctx.Err()
}

// Abandon ends the exchanges whose answer has not begun, with ErrAbandoned, and those
// that wait for a connection: where an endpoint is known to be dead they need not wait
// for a deadline. Later ones are not touched.
func (p *Pool) Abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.watched {
		g.abandoned.Store(true)
		g.look(0)
	}
	p.failAll(&Error{Stage: StageDial, Address: p.cfg.Address, Err: ErrAbandoned})
	if len(p.watched) > 0 {
		p.arm()
	}
}

// Stats returns the counters.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	s := Stats{
		Open: len(p.idle) + len(p.busy), Idle: len(p.idle), InFlight: p.inFlight,
		Waiting: len(p.waiting), Dialling: p.dialling, Dials: p.dials, Reused: p.reused, Answers: p.answers.Load(),
	}
	p.mu.Unlock()
	if p.h2 != nil {
		s.Open, s.Idle = p.h2.count()
	}
	return s
}
