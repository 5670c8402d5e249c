package relaypool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/publish"
)

// Conn is a connection that the pool can close. Close is called once, when its last
// request has ended.
type Conn interface{ Close() error }

// Open connects to a peer within ctx. The connection calls lost when it takes no more
// requests, from any goroutine, at any time, any number of times: the pool then stops
// using the connection and closes it when its requests have ended.
type Open[C Conn] func(ctx context.Context, peer Peer, lost func(error)) (C, error)

// Observer receives the events of a pool. Every field is optional.
type Observer struct {
	// Logger receives a line for each event: Warn for failures, Debug for changes of
	// peers and candidates, Info for the rest.
	Logger *slog.Logger
	// Metrics may be shared by several pools.
	Metrics *Metrics
	// OnEvent receives the events one at a time. It must not block for long, and it may
	// call the pool.
	OnEvent func(Event)
}

// Pool keeps connections and assigns requests to them. Create it with New, run it with
// Run. All methods may be called from any goroutine.
type Pool[C Conn] struct {
	cfg      Config
	open     Open[C]
	observer Observer
	wake     chan struct{} // capacity 1: Run has something to do

	mu      sync.Mutex // guards the fields below and those of each conn
	table   *table
	conns   map[linkID]*conn[C]
	todo    actions       // for Run: connections to open and events to report
	changed chan struct{} // closed and replaced when the result of Acquire may change
	counted Connections   // the numbers that the gauges show
	running bool
	closed  bool
}

// conn is a connection of the pool, opening or open.
type conn[C Conn] struct {
	conn   C
	ready  chan struct{} // closed when conn or err is set
	err    error         // why it could not be opened; set before ready is closed
	opened bool
	lost   error // set if the connection was lost before Open returned
	cancel context.CancelFunc
}

// New checks the configuration and reports all problems together. The pool opens no
// connection before Run.
func New[C Conn](cfg Config, open Open[C], observer Observer) (*Pool[C], error) {
	table, err := newTable(cfg)
	if err != nil {
		return nil, err
	}
	if observer.Logger == nil {
		observer.Logger = slog.New(slog.DiscardHandler)
	}
	if observer.Metrics == nil {
		observer.Metrics = newMetrics(nil)
	}
	if observer.OnEvent == nil {
		observer.OnEvent = func(Event) {}
	}
	return &Pool[C]{
		cfg: cfg, open: open, observer: observer, wake: make(chan struct{}, 1),
		table: table, conns: map[linkID]*conn[C]{}, changed: make(chan struct{}),
	}, nil
}

// Update replaces the peers. Peers that stay keep their statistics. A removed peer loses
// its place; its connections close with their last requests. On an error (an empty or
// repeated id; all reported together) nothing changes.
func (p *Pool[C]) Update(peers []Peer) (err error) {
	p.change(func(now time.Time) {
		if err = ErrClosed; !p.closed {
			err = p.table.Update(peers, now)
		}
	})
	return err
}

// Resize sets how many peers share the requests, not fewer than Config.Primaries; as many more
// are candidates. More are connected immediately. Fewer lose their places only when none of the
// numbers of a whole RefreshInterval needed them, so that a number that goes down and up costs no
// connection. Config.MaxTotal must leave room for them.
func (p *Pool[C]) Resize(primaries int) {
	p.change(func(now time.Time) { p.table.Resize(primaries, now) })
}

// Status describes the pool.
func (p *Pool[C]) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.Status(time.Now())
}

// Bound returns the peer that a key is bound to, if any. The call does not count as use of
// the key.
func (p *Pool[C]) Bound(key string) (id string, bound bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.Bound(key, time.Now())
}

// Tried reports whether every peer that the pool needs has been tried: no peer is being
// connected, and there is a primary or no candidate is left to connect to.
func (p *Pool[C]) Tried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table.Tried()
}

// errGivenUp is the error of a request that waited for a connection which is not needed
// any more.
var errGivenUp = errors.New("the connection was cancelled while it was being opened")

// Run opens connections and keeps them open until ctx ends. It blocks: the caller owns the
// goroutine. When Run returns, connections without requests are closed, the others close
// with their last request, and no goroutine is left running. Call it once per pool.
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
			p.notify(e)
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

// shut closes the pool and drains all connections.
func (p *Pool[C]) shut() {
	p.change(func(time.Time) {
		p.closed = true
		p.table.shut()
	})
	p.mu.Lock()
	close(p.changed)
	p.changed = make(chan struct{})
	events := p.todo.Events
	p.todo = actions{}
	p.mu.Unlock()
	for _, e := range events {
		p.notify(e)
	}
}

// change calls f with the table locked and then steps the table. It closes connections
// itself and leaves connections to open and events to Run.
func (p *Pool[C]) change(f func(now time.Time)) {
	p.mu.Lock()
	now := time.Now()
	f(now)
	closing := p.step(now)
	p.mu.Unlock()
	p.closeAll(closing)
}

// step steps the table with the lock held. It returns the connections that the caller must
// close after it has released the lock.
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
		publish.Notify(p.wake)
	}
	after := p.table.connections()
	p.observer.Metrics.moved(p.counted, after)
	p.counted = after
	return closing
}

// connect opens one connection and reports the result to the table.
func (p *Pool[C]) connect(ctx context.Context, o opening) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.ConnectTimeout,
		fmt.Errorf("no connection within %v", p.cfg.ConnectTimeout))
	defer cancel()
	p.mu.Lock()
	c := p.conns[o.Link]
	if c == nil { // cancelled in the meantime
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

// lost is the function that connections call when they take no more requests.
func (p *Pool[C]) lost(id linkID, err error) {
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

// notify counts and logs an event and calls the observer.
func (p *Pool[C]) notify(e Event) {
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
