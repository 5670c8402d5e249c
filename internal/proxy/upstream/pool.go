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
	"syscall"
	"time"

	"github.com/ringway/ringway/advertise"
)

// Pool keeps the warm connections to one endpoint and carries requests over
// them. All methods may be called from any goroutine.
type Pool struct {
	cfg Config
	h2  *h2Conns // nil for HTTP/1.1

	warming sync.Mutex // one Warm at a time over HTTP/1.1
	answers atomic.Uint64
	care    care        // HTTP/1.1 only
	reached atomic.Bool // TCP only: the last dial succeeded

	mu        sync.Mutex // guards the fields below; held for a few instructions only
	closed    bool
	inFlight  int
	dials     uint64
	ended     uint64
	undialled uint64
	reused    uint64
	idle      []*conn // the newest last; the newest is used first
	resting   []*conn // not idle yet, for what may follow their answers; that which rests longest first
	busy      []*conn
	watched   []*progress   // the exchanges in flight
	drained   chan struct{} // closed when closed and nothing is in flight

	dialling int
	// HTTP/1.1 only: see waiting.go.
	waiting   []*waiter       // the longest waiting first
	dialCtx   context.Context // of the running dials; nil before the first
	stopDials context.CancelCauseFunc

	// The watch checks the busy connections and the waiting requests every watchPeriod, while
	// there are any, and ends those whose request is over or does not move. Over HTTP/2 it checks all
	// exchanges, and the connections: every h2IdlePeriod if they have no requests.
	watch   *time.Timer
	armed   bool
	checked time.Time // when the watch last ran
	paused  bool      // that was so long ago that the process may have been paused; never twice in a row
	cut     bool      // Drain gave up waiting

	lastTimeout time.Time // when a dial last ran out of time with an error that is not Repeated

	// The janitor runs twice per IdleTimeout while there are idle connections. generation
	// counts its rounds.
	janitor    *time.Timer
	cleaning   bool
	generation uint64
}

// Stats are a pool's counters at one moment.
type Stats struct {
	// Open counts the open connections: idle, busy and tunnels. A pool for TCP keeps no idle
	// connection, and counts one more while its last dial succeeded.
	Open int
	// Idle counts the idle connections, ready for a request.
	Idle int
	// InFlight counts the requests, including tunnels and those that wait for a connection.
	InFlight int
	// Waiting counts the requests that wait for an HTTP/1.1 connection, Dialling the
	// connections that are being opened.
	Waiting, Dialling int
	// Dials counts the connections opened, Reused the requests that found a warm one,
	// Answers the final response heads, Ended the exchanges that have ended.
	Dials, Reused, Answers, Ended uint64
	// Undialled counts the connections that were not opened although nothing refused them.
	Undialled uint64
}

// NewPool checks cfg and returns a pool without connections. It starts no goroutine.
// Timers run while the pool holds connections, so the caller must Close it.
func NewPool(cfg Config) (*Pool, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg, drained: make(chan struct{})}
	p.care.epoch = time.Now()
	p.watch = time.AfterFunc(time.Hour, p.watchRound)
	p.watch.Stop()
	p.janitor = time.AfterFunc(time.Hour, p.closeIdle)
	p.janitor.Stop()
	if cfg.Protocol == advertise.H2C || cfg.Protocol == advertise.H2 {
		p.h2 = newH2Conns(p)
	}
	if cfg.Sessions != nil {
		cfg.Sessions.join(p)
	}
	return p, nil
}

// Address returns the address of the endpoint.
func (p *Pool) Address() string { return p.cfg.Address }

// OverHTTP2 reports whether requests are sent over HTTP/2.
func (p *Pool) OverHTTP2() bool { return p.h2 != nil }

// Carry sends r to the endpoint and its answer to w. It returns when both are done.
func (p *Pool) Carry(w http.ResponseWriter, r *http.Request, x *Options) (Result, *Fault) {
	if err := CheckRequest(r); err != nil {
		return Result{Load: -1}, &Fault{Stage: StageClient, Address: p.cfg.Address, Err: err}
	}
	answer, res, err := p.Begin(w, r, x)
	if answer == nil {
		return res, err
	}
	return answer.Deliver()
}

// Begin sends r, which CheckRequest must have accepted, to the endpoint, and the head of its answer
// to w. If it returns no Answer, the exchange has ended. Nothing may change r, w and x before its
// end. A Deadline that is zero is set to that of the request's context. For HTTP/1.1 an exchange runs
// on its caller's goroutine. It starts one more only for a request body that is large or of unknown
// length, and for the second direction of a tunnel. These have ended when it has.
func (p *Pool) Begin(w http.ResponseWriter, r *http.Request, x *Options) (Answer, Result, *Fault) {
	if deadline, ok := r.Context().Deadline(); ok && x.Deadline.IsZero() {
		x.Deadline = deadline
	}
	switch {
	case p.h2 != nil:
		return p.h2.begin(w, r, x)
	case p.cfg.Protocol == advertise.TCP:
		return p.beginTCP(w, r, x)
	}
	return p.beginHTTP1(w, r, x)
}

// Warm makes sure that at least one connection is open. Like a request, it waits for one
// if there is none or if the other side has closed all idle ones. Callers at the same time
// share one connection, and one that gives up does not end the attempt of the others.
// Over TCP every connection is a session of the service, so Warm only probes.
func (p *Pool) Warm(ctx context.Context) error {
	switch {
	case p.h2 != nil:
		return p.h2.warm(ctx)
	case p.cfg.Protocol == advertise.TCP:
		return p.Probe(ctx)
	}
	p.warming.Lock()
	defer p.warming.Unlock()
	if !p.enter(nil) {
		return &Fault{Stage: StageDial, Address: p.cfg.Address, Err: ErrClosed}
	}
	defer p.leave(nil)
	p.mu.Lock()
	gone := p.takeStale()
	open := len(p.idle) + len(p.resting) + len(p.busy)
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

// connect returns a connection that is busy with the request: the most recently used idle
// one, or else the first that becomes free or is opened. Waiting requests are served in
// order of arrival. With fresh, only a new connection is accepted.
func (p *Pool) connect(ctx context.Context, g *progress, deadline time.Time, fresh bool) (c *conn, reused bool, _ *Fault) {
	if !fresh {
		if c := p.takeIdle(ctx, g); c != nil {
			return c, true, nil
		}
	}
	began := time.Now()
	defer func() { g.waited += time.Since(began) }()
	w := &waiter{ctx: ctx, progress: g, deadline: deadline, fresh: fresh}
	for again := false; ; again = true {
		p.join(w, again)
		if err := p.await(w); err != nil {
			return nil, false, err
		}
		if !w.reused || !p.stale(w.c) {
			return w.c, w.reused, nil
		}
		p.forget(w.c)
	}
}

// takeIdle returns the most recently used connection that does not rest, marked busy with
// ctx, or nil. It checks each connection first, unless the exchange does: what the endpoint
// sent after its last answer must not be read as the answer to this request. The connection is
// already busy during the check, so the system call needs no lock. Because the newest is used
// first, those that the traffic does not need grow old and are closed.
func (p *Pool) takeIdle(ctx context.Context, g *progress) *conn {
	for {
		p.mu.Lock()
		p.serve() // a rest may be over: waiting requests are served first
		n := len(p.idle) - 1
		if n < 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n]
		p.idle[n] = nil
		p.idle = p.idle[:n]
		p.engage(c, ctx, g)
		p.reused++
		p.mu.Unlock()
		if g.asks && c.bare() || !p.stale(c) {
			return c
		}
		p.forget(c)
	}
}

// Probe opens a connection and closes it. It checks whether the endpoint can be reached
// now, independent of the open connections.
func (p *Pool) Probe(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	_ = conn.Close() // the endpoint was reached
	return nil
}

// dial opens one connection and counts it.
func (p *Pool) dial(ctx context.Context) (net.Conn, *Fault) {
	dctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	nc, err := p.cfg.Dial(dctx, "tcp", p.cfg.Address)
	if err == nil && p.cfg.Protocol == advertise.H2 {
		// The handshake is part of the dial and of its time: a service that accepts a connection
		// and then sends nothing is not reached.
		nc, err = p.cfg.TLS.Client(dctx, nc, p.cfg.Address)
	}
	if err == nil || context.Cause(ctx) == nil { // otherwise the dial shows nothing
		p.reached.Store(err == nil)
	}
	if err != nil {
		if context.Cause(ctx) == nil { // the dial was not cancelled
			p.cfg.Activity.failed(err)
		}
		e := &Fault{Stage: StageDial, Address: p.cfg.Address, Err: err}
		// The dialler's own timer may fire just before that of the context.
		late := dctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
		switch cerr := context.Cause(ctx); {
		case cerr != nil:
			e.Err = cerr
		case late: // the request's deadline did not pass, so its error must not be wrapped
			e.Err = fmt.Errorf("%w %v", errDialLate, p.cfg.DialTimeout)
		}
		// A refusal shows that packets arrive, and a lack of descriptors or ports is local. What is
		// left may be a network that loses packets: the relay counts it when it judges whether it
		// reaches the endpoints at all.
		if context.Cause(ctx) == nil && !errors.Is(err, syscall.ECONNREFUSED) && e.Exhausted() == "" {
			p.mu.Lock()
			p.undialled++
			p.mu.Unlock()
		}
		return nil, e
	}
	p.mu.Lock()
	p.dials++
	p.mu.Unlock()
	p.cfg.Activity.Opened.Add(1)
	return nc, nil
}

// enter counts a request; every successful enter needs a leave. g is nil if there is no
// exchange.
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
		// Without a limit there is nothing to check until the exchange has a connection or waits
		// for one in the queue, and both arm the watch.
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
		p.ended++
		// The last one takes the place of g: the end of an exchange costs the same however many are
		// in flight.
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

// isOver reports whether the pool is closed and nothing is running. It becomes true only
// once, because a closed pool begins nothing new. The lock is held.
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

// Close refuses new requests and closes the idle connections. Requests in flight finish,
// and then their connections are closed. Close does not wait and may be called again.
func (p *Pool) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	gone := slices.Concat(p.idle, p.resting)
	p.idle, p.resting = nil, nil
	p.cleaning = false
	p.janitor.Stop()
	p.stopUnwanted()
	last, unused := p.isOver(), p.inFlight == 0
	p.mu.Unlock()
	closeAll(gone)
	switch {
	case last:
		p.finish()
	case unused && p.h2 != nil: // a connection whose settings have not arrived is for no request any more
		p.h2.close()
	}
}

// Drain calls Close and waits until nothing is in flight and no connection is being
// opened. If ctx ends first, Drain closes the other connections, including tunnels, and
// returns the context's error.
func (p *Pool) Drain(ctx context.Context) error {
	p.Close()
	select {
	case <-p.drained:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	// A request in flight may find or open a connection later than this: engage then closes it, and
	// join ends the wait.
	p.cut = true
	for _, c := range p.busy {
		c.cancelled = true
		_ = c.Conn.Close()
	}
	p.failAll(&Fault{Stage: StageDial, Address: p.cfg.Address, Err: ErrClosed})
	p.mu.Unlock()
	if p.h2 != nil {
		p.h2.close()
	}
	return ctx.Err()
}

// Abandon ends the exchanges whose answer has not begun, with ErrAbandoned, and the waits
// for a connection. If an endpoint is known to be dead, they need not wait for a deadline.
// Later exchanges are not affected.
func (p *Pool) Abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.watched {
		// The flag stays, because an exchange may be between two waits now. The watch checks it
		// again in each round.
		g.abandoned.Store(true)
		g.check(0, false)
	}
	p.failAll(&Fault{Stage: StageDial, Address: p.cfg.Address, Err: ErrAbandoned})
	if len(p.watched) > 0 {
		p.arm()
	}
}

// Stats returns the counters.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	s := Stats{
		Open: len(p.idle) + len(p.resting) + len(p.busy), Idle: len(p.idle) + len(p.resting), InFlight: p.inFlight,
		Waiting: len(p.waiting), Dialling: p.dialling, Dials: p.dials, Reused: p.reused, Answers: p.answers.Load(), Ended: p.ended, Undialled: p.undialled,
	}
	p.mu.Unlock()
	switch {
	case p.h2 != nil:
		s.Open, s.Idle = p.h2.count()
	case p.cfg.Protocol == advertise.TCP && p.reached.Load():
		s.Open++
	}
	return s
}
