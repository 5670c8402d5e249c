package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/discovery"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// Client is an http.RoundTripper that sends requests to relays. Create it with New,
// run it with Run.
type Client struct {
	cfg       Config
	finder    *discovery.Finder
	pool      *relaypool.Pool[*relayConn]
	transport *http.Transport // opens connections; pools none
	budget    *selection.RetryBudget
	metrics   *metrics

	ready       chan struct{} // closed by markReady, after the first lookup of relays
	markReady   func()
	wantRefresh chan struct{} // capacity 1: a relay was lost, look up again
}

// New checks the configuration and reports all problems together. Lookups and connections
// begin with Run.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	c := &Client{
		cfg: cfg, transport: newTransport(cfg), budget: selection.NewRetryBudget(cfg.RetryBudget, savings),
		ready: make(chan struct{}), wantRefresh: make(chan struct{}, 1),
	}
	c.markReady = sync.OnceFunc(func() { close(c.ready) })
	err = errors.Join(err, cfg.pool.Validate())
	finder, seedErr := discovery.New(discovery.Config{
		Seeds: cfg.Seeds, DefaultPort: defaultPort, Resolver: cfg.Resolver, Logger: cfg.Logger, Registerer: cfg.Registerer,
		RefreshInterval: cfg.RefreshInterval, RefreshJitter: cfg.RefreshJitter,
	})
	if err = errors.Join(err, seedErr); err != nil {
		return nil, err
	}
	c.finder = finder
	counters, poolErr := relaypool.NewMetrics(cfg.Registerer)
	metrics, ownErr := newMetrics(cfg.Registerer)
	if err := errors.Join(poolErr, ownErr); err != nil {
		return nil, fmt.Errorf("client: register metrics: %w", err)
	}
	c.metrics = metrics
	c.pool, err = relaypool.New(*cfg.pool, c.open, relaypool.Observer{Logger: cfg.Logger, Metrics: counters, OnEvent: c.onEvent})
	return c, err
}

// Run looks up relays and keeps connections to some of them until ctx ends. It blocks:
// the caller owns the goroutine. Call it once per client.
func (c *Client) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var finding sync.WaitGroup
	finding.Go(func() { c.find(ctx) })
	err := c.pool.Run(ctx)
	cancel() // stops find if the pool's Run failed immediately
	finding.Wait()
	return err
}

// status returns all relays, their health, and which of them are used.
func (c *Client) status() relaypool.Status { return c.pool.Status() }

// savings is how many retries a client can make in a burst.
const savings = 100

// minPause is the pause before the next lookup if no seed leads to a relay, and the
// shortest pause after a relay was lost.
const minPause = time.Second

// find keeps the pool's peers up to date. The finder logs names that fail.
func (c *Client) find(ctx context.Context) {
	update := func() (relays []relaypool.Peer) {
		for _, addr := range c.finder.Addrs() {
			relays = append(relays, relaypool.Peer{ID: addr.String(), Address: addr.String()})
		}
		_ = c.pool.Update(relays) // addresses are unique; a closed pool needs no peers
		return relays
	}
	if len(update()) > 0 { // some seeds are addresses: requests need not wait for names
		c.markReady()
	}
	for ctx.Err() == nil {
		_ = c.finder.Refresh(ctx)
		pause := c.finder.Pause()
		if len(update()) == 0 {
			pause = minPause
		}
		c.markReady()
		soon := time.After(minPause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-c.wantRefresh:
			select {
			case <-ctx.Done():
			case <-soon:
			}
		}
	}
}

func (c *Client) onEvent(e relaypool.Event) {
	if e.Kind == relaypool.ConnectFailed || e.Kind == relaypool.Evicted && e.Reason == relaypool.Lost {
		publish.Notify(c.wantRefresh)
	}
}

// WithKey sets the key of requests with this context. Requests with the same key go to the
// same relay while it keeps its place among the primaries, and relays receive the key in
// Ringway-Key. If the context has no key, a Ringway-Key header of the request is its key.
func WithKey(ctx context.Context, key string) context.Context {
	return wire.WithKey(ctx, key)
}

const (
	// pingAfter and pingTimeout detect an HTTP/2 connection whose other side vanished
	// without closing it.
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
)

// relayConn is a connection to a relay.
type relayConn struct {
	*http.ClientConn
	lost    func(error)
	limit   atomic.Int64           // the most requests at a time that the relay allows, 0 if not known
	stated  atomic.Bool            // the pool knows the limit
	waiting atomic.Pointer[func()] // to be called when there is room, nil while there is

	mu        sync.Mutex // guards beginning; Available is read under it, too
	beginning int        // requests that net/http does not count yet
}

func newTransport(cfg Config) *http.Transport {
	var protocols http.Protocols
	switch {
	case cfg.HTTP1:
		protocols.SetHTTP1(true)
	case cfg.TLS != nil:
		protocols.SetHTTP2(true)
	default:
		protocols.SetUnencryptedHTTP2(true)
	}
	return &http.Transport{
		Protocols:       &protocols,
		TLSClientConfig: cfg.TLS,
		HTTP2:           &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

func (c *Client) scheme() string {
	if c.cfg.TLS != nil {
		return "https"
	}
	return "http"
}

// open opens a connection for the pool.
func (c *Client) open(ctx context.Context, relay relaypool.Peer, lost func(error)) (*relayConn, error) {
	conn, err := c.transport.NewClientConn(ctx, c.scheme(), relay.Address)
	if err != nil {
		return nil, err
	}
	r := &relayConn{ClientConn: conn, lost: lost}
	conn.SetStateHook(func(conn *http.ClientConn) {
		if err := conn.Err(); err != nil {
			lost(err)
		}
		r.checkRoom()
	})
	return r, nil
}

// begin reports whether the relay takes one more request now, and counts it until begun. The
// reservations of net/http are not used: each request that waits to be sent counts the reservations
// of the others as streams, so those made before the relay's limit was known can block each other.
func (r *relayConn) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit.Load() == 0 {
		r.learn(assumedLimit)
	}
	if r.Available() <= r.beginning {
		return false
	}
	r.beginning++
	return true
}

// begun reports that a request has been sent, and so is counted by net/http, or has failed.
func (r *relayConn) begun() {
	r.mu.Lock()
	r.beginning--
	r.mu.Unlock()
	r.checkRoom()
}

// assumedLimit is what net/http takes for the relay's limit before the relay has stated one.
const assumedLimit = 100

// learn stores the relay's limit, unless it is the one that may be assumed: after an answer none is.
func (r *relayConn) learn(assumed int) {
	before, free, after := r.InFlight(), r.Available(), r.InFlight()
	if free > 0 && before == after && before+free != assumed { // no request began or ended meanwhile
		r.limit.Store(int64(before + free))
	}
}

// full reports whether the connection takes no requests because it carries as many as the relay
// allows, and how many, 0 if the limit is not known. If the relay closes the connection, it carries
// fewer. An unknown limit counts as reached, because a connection that the relay closes ends with its
// last request; but that number shows nothing about other connections.
func (r *relayConn) full() (carries int, _ bool) {
	before, free, after := r.InFlight(), r.Available(), r.InFlight()
	carries = max(before, after) + free // what is free is taken by requests that begin
	switch limit := r.limit.Load(); {
	case r.Err() != nil, free == 0 && int64(carries) < max(1, limit):
		return 0, false
	case limit == 0:
		return 0, true
	}
	return carries, true
}

// onRoom calls room when the relay takes requests again.
func (r *relayConn) onRoom(room func()) {
	r.waiting.Store(&room)
	r.checkRoom() // a request may have ended before
}

// checkRoom follows whatever may have made room.
func (r *relayConn) checkRoom() {
	if r.waiting.Load() == nil {
		return
	}
	r.mu.Lock()
	free := r.Available() > r.beginning
	r.mu.Unlock()
	if room := r.waiting.Load(); free && room != nil && r.waiting.CompareAndSwap(room, nil) {
		(*room)()
	}
}

type metrics struct{ retries, refused *prometheus.CounterVec }

// Why a request was sent again, and why it was not.
const (
	retryUnsent = "unsent"
	retryFailed = "failed"

	refusedUnsafe   = "unsafe"
	refusedAttempts = "attempts"
	refusedBudget   = "budget"
)

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	f := metric.With(nil) // registered below, with all errors
	m := &metrics{
		retries: f.CounterVec("ringway_client_retries_total", "Requests sent to another relay, by reason: unsent (nothing was sent to the first relay), failed (the first relay did not answer).", "reason"),
		refused: f.CounterVec("ringway_client_retries_refused_total", "Requests that failed and were not retried, by reason: unsafe (the method is not idempotent, or the body cannot be read again), attempts (limit of attempts reached), budget (retry budget used up).", "reason"),
	}
	metric.StartAtZero(m.retries, retryUnsent, retryFailed)
	metric.StartAtZero(m.refused, refusedUnsafe, refusedAttempts, refusedBudget)
	return m, errors.Join(r.Register(m.retries), r.Register(m.refused))
}
