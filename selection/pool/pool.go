package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Conn is a connection that the pool can close. Close is called once, when its last
// request has ended.
type Conn interface{ Close() error }

// Open connects to a peer within ctx. lost is how the connection says, from any
// goroutine, at any time and as often as it likes, that it takes no more requests:
// the pool stops using it and closes it when its requests have ended.
type Open[C Conn] func(ctx context.Context, peer Peer, lost func(error)) (C, error)

// Observer is told what a pool does. Every field may be left out.
type Observer struct {
	// Logger gets a line for each event: Warn where something failed, else Info,
	// and Debug for what is only bookkeeping.
	Logger *slog.Logger
	// Metrics may be shared by several pools.
	Metrics *Metrics
	// OnEvent gets the events one after the other. It must not block for long, and
	// may call the pool.
	OnEvent func(Event)
}

// Pool keeps connections and hands them to requests. Create it with New, run it
// with Run. All methods may be called from any goroutine.
type Pool[C Conn] struct {
	cfg      Config
	open     Open[C]
	observer Observer
	wake     chan struct{} // capacity 1: Run has something to do

	mu      sync.Mutex // guards what follows, conn's fields included
	table   *Table
	conns   map[LinkID]*conn[C]
	todo    Actions       // for Run: what to open and to tell
	changed chan struct{} // closed, and replaced, when Acquire may go otherwise
	counted Connections   // what the gauges have been told
	running bool
	closed  bool
}

// conn is a connection of the pool, opening or open.
type conn[C Conn] struct {
	conn   C
	ready  chan struct{} // closed when conn or err is set
	err    error         // why it could not be opened; set before ready is closed
	opened bool
	lost   error // it was lost before it was opened
	cancel context.CancelFunc
}

// New checks the configuration and reports all that is wrong with it at once. It
// connects to nobody before Run.
func New[C Conn](cfg Config, open Open[C], observer Observer) (*Pool[C], error) {
	table, err := NewTable(cfg)
	if err != nil {
		return nil, err
	}
	if observer.Logger == nil {
		observer.Logger = slog.New(slog.DiscardHandler)
	}
	if observer.Metrics == nil {
		observer.Metrics = newMetrics()
	}
	if observer.OnEvent == nil {
		observer.OnEvent = func(Event) {}
	}
	return &Pool[C]{
		cfg: cfg, open: open, observer: observer, wake: make(chan struct{}, 1),
		table: table, conns: map[LinkID]*conn[C]{}, changed: make(chan struct{}),
	}, nil
}

// Update takes the peers that there are from now on; see [Table.Update].
func (p *Pool[C]) Update(peers []Peer) (err error) {
	p.change(func(now time.Time) {
		if err = ErrClosed; !p.closed {
			err = p.table.Update(peers, now)
		}
	})
	return err
}

// Status describes the pool.
func (p *Pool[C]) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.Status(time.Now())
}

// Bound says which peer a key sticks to, if it does. Asking is no use of the key.
func (p *Pool[C]) Bound(key string) (id string, bound bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.Bound(key, time.Now())
}

// Tried says whether everybody who can be connected to at the moment was; see
// [Table.Tried].
func (p *Pool[C]) Tried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.Tried()
}

// errGivenUp is what a request learns that waited for a connection which nobody
// wants any more.
var errGivenUp = errors.New("the connection was given up while it was being opened")

// Run connects, and keeps connected, until ctx ends. It blocks: the caller owns the
// goroutine. When it returns, connections without requests are closed, those with
// requests are closed by the last of them, and nothing else is left running. A pool
// runs once.
func (p *Pool[C]) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.running {
		p.mu.Unlock()
		return errors.New("pool: Run was called before: a pool runs once")
	}
	p.running = true
	p.mu.Unlock()

	var opening sync.WaitGroup
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		p.change(func(time.Time) {})
		p.mu.Lock()
		todo := p.todo
		p.todo.Open, p.todo.Events = nil, nil
		p.mu.Unlock()

		for _, e := range todo.Events {
			p.tell(e)
		}
		for _, o := range todo.Open {
			opening.Go(func() { p.connect(ctx, o) })
		}
		timer.Reset(time.Until(todo.Next))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-p.wake:
		}
	}
	p.shut()
	opening.Wait()
	return nil
}

// shut lets go of everything.
func (p *Pool[C]) shut() {
	p.change(func(time.Time) {
		p.closed = true
		p.table.shut()
	})
	p.mu.Lock()
	close(p.changed)
	p.changed = make(chan struct{})
	events := p.todo.Events
	p.todo = Actions{}
	p.mu.Unlock()
	for _, e := range events {
		p.tell(e)
	}
}

// change calls f with the table locked, and then does what the table says. What has
// to be opened and told is left to Run.
func (p *Pool[C]) change(f func(now time.Time)) {
	p.mu.Lock()
	now := time.Now()
	f(now)
	closing := p.step(now)
	p.mu.Unlock()
	p.closeAll(closing)
}

// step is called with the lock held and returns what its caller closes without it.
func (p *Pool[C]) step(now time.Time) (closing []C) {
	a := p.table.Step(now)
	for _, o := range a.Open {
		p.conns[o.Link] = &conn[C]{ready: make(chan struct{})}
	}
	for _, id := range a.Close {
		c := p.conns[id]
		if c == nil {
			continue
		}
		delete(p.conns, id)
		if c.opened {
			closing = append(closing, c.conn)
			continue
		}
		c.err = errGivenUp
		close(c.ready)
		if c.cancel != nil {
			c.cancel()
		}
	}
	p.todo.Open = append(p.todo.Open, a.Open...)
	p.todo.Events = append(p.todo.Events, a.Events...)
	sooner := a.Next.Before(p.todo.Next)
	p.todo.Next = a.Next
	if len(a.Open)+len(a.Events) > 0 {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	if sooner || len(a.Open)+len(a.Events) > 0 {
		select {
		case p.wake <- struct{}{}:
		default: // it has been woken
		}
	}
	after := p.table.connections()
	p.observer.Metrics.moved(p.counted, after)
	p.counted = after
	return closing
}

// connect opens one connection and reports how that ended.
func (p *Pool[C]) connect(ctx context.Context, o Opening) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.ConnectTimeout,
		fmt.Errorf("no connection within %v", p.cfg.ConnectTimeout))
	defer cancel()
	p.mu.Lock()
	c := p.conns[o.Link]
	if c == nil { // given up meanwhile
		p.mu.Unlock()
		return
	}
	c.cancel = cancel
	p.mu.Unlock()

	opened, err := p.open(ctx, o.Peer, func(err error) { p.lost(o.Link, err) })
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	unwanted := false
	p.change(func(now time.Time) {
		if p.conns[o.Link] == nil {
			unwanted = err == nil
			return
		}
		if err == nil && c.lost != nil {
			unwanted, err = true, c.lost
		}
		if err != nil {
			c.err = err
			delete(p.conns, o.Link)
			p.table.OpenFailed(o.Link, err, now)
		} else {
			c.conn, c.opened = opened, true
			p.table.Opened(o.Link, now)
		}
		close(c.ready)
	})
	if unwanted {
		p.closeAll([]C{opened})
	}
}

// lost is what connections call.
func (p *Pool[C]) lost(id LinkID, err error) {
	p.change(func(now time.Time) {
		switch c := p.conns[id]; {
		case c == nil:
		case c.opened:
			p.table.Lost(id, err, now)
		default:
			c.lost = errors.Join(errors.New("lost as soon as it was opened"), err)
		}
	})
}

func (p *Pool[C]) closeAll(conns []C) {
	for _, c := range conns {
		if err := c.Close(); err != nil {
			p.observer.Logger.Debug("pool: closing a connection failed", "err", err)
		}
	}
}

// tell passes an event on.
func (p *Pool[C]) tell(e Event) {
	p.observer.Metrics.count(e)
	level := slog.LevelInfo
	switch e.Kind {
	case PeerAdded, PeerRemoved, CandidatesChanged, Chosen:
		level = slog.LevelDebug
	case ConnectFailed:
		level = slog.LevelWarn
	case Evicted:
		if slices.Contains([]Reason{ErrorRate, ConsecutiveFailures, Latency}, e.Reason) {
			level = slog.LevelWarn
		}
	}
	attrs := make([]slog.Attr, 0, 5)
	for _, a := range [...]slog.Attr{
		slog.String("peer", e.Peer), slog.String("reason", string(e.Reason)), slog.String("detail", e.Detail),
	} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	if e.Role != NoRole {
		attrs = append(attrs, slog.String("role", e.Role.String()))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("err", e.Err))
	}
	p.observer.Logger.LogAttrs(context.Background(), level, "pool: "+e.Kind.String(), attrs...)
	p.observer.OnEvent(e)
}
