package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/ringway/ringway/membership/discovery"
	"github.com/ringway/ringway/selection/budget"
	"github.com/ringway/ringway/selection/pool"
)

// Client is an http.RoundTripper that sends requests to relays. Create it with New,
// run it with Run.
type Client struct {
	cfg       Config
	finder    *discovery.Finder
	pool      *pool.Pool[*relayConn]
	transport *http.Transport // opens connections; pools none
	budget    *budget.Budget
	metrics   *metrics

	known  chan struct{} // closed, by looked, when relays have been looked for once
	looked func()
	hungry chan struct{} // capacity 1: a relay was lost, look again
}

// New checks the configuration and reports all that is wrong with it at once. It
// looks nothing up and connects to nobody before Run.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	c := &Client{
		cfg: cfg, transport: newTransport(cfg), budget: budget.New(cfg.RetryBudget, savings),
		known: make(chan struct{}), hungry: make(chan struct{}, 1),
	}
	c.looked = sync.OnceFunc(func() { close(c.known) })
	err = errors.Join(err, cfg.Pool.Validate())
	finder, seedErr := discovery.New(discovery.Config{
		Seeds: cfg.Seeds, DefaultPort: DefaultPort, Resolver: cfg.Resolver, Logger: cfg.Logger, Registerer: cfg.Registerer,
		RefreshInterval: cfg.RefreshInterval, RefreshJitter: cfg.RefreshJitter,
	})
	if err = errors.Join(err, seedErr); err != nil {
		return nil, err
	}
	c.finder = finder
	counters, poolErr := pool.NewMetrics(cfg.Registerer)
	metrics, ownErr := newMetrics(cfg.Registerer)
	if err := errors.Join(poolErr, ownErr); err != nil {
		return nil, fmt.Errorf("client: register metrics: %w", err)
	}
	c.metrics = metrics
	c.pool, err = pool.New(*cfg.Pool, c.open, pool.Observer{Logger: cfg.Logger, Metrics: counters, OnEvent: c.onEvent})
	return c, err
}

// Run finds relays and keeps connected to some, until ctx ends. It blocks: the
// caller owns the goroutine. A client runs once.
func (c *Client) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var finding sync.WaitGroup
	finding.Go(func() { c.find(ctx) })
	err := c.pool.Run(ctx)
	cancel() // if the pool did not even begin
	finding.Wait()
	return err
}

// Status says which relays there are, how they do, and which are used.
func (c *Client) Status() pool.Status { return c.pool.Status() }

// savings is how many retries a quiet client can have at once.
const savings = 100

// minPause is how soon seeds are looked up again where none leads to a relay, or
// because one was lost.
const minPause = time.Second

// find keeps the pool's peers up to date. The finder tells of names that fail.
func (c *Client) find(ctx context.Context) {
	update := func() (relays []pool.Peer) {
		for _, addr := range c.finder.Addrs() {
			relays = append(relays, pool.Peer{ID: addr.String(), Address: addr.String()})
		}
		_ = c.pool.Update(relays) // addresses are unique; a closed pool needs no peers
		return relays
	}
	if len(update()) > 0 { // seeds that are addresses: nobody waits for the names
		c.looked()
	}
	for ctx.Err() == nil {
		_ = c.finder.Refresh(ctx)
		pause := c.finder.Pause()
		if len(update()) == 0 {
			pause = minPause
		}
		c.looked()
		soon := time.After(minPause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-c.hungry:
			select {
			case <-ctx.Done():
			case <-soon:
			}
		}
	}
}

func (c *Client) onEvent(e pool.Event) {
	if e.Kind == pool.ConnectFailed || e.Kind == pool.Evicted && e.Reason == pool.Lost {
		select {
		case c.hungry <- struct{}{}:
		default:
		}
	}
}

type keyOfKey struct{}

// WithKey makes requests with this context go to the relay that the last one with
// the same key went to, as long as it keeps its place among the primaries, and tells
// the relays the key. A request with a KeyHeader has the key in it, unless its context
// has one.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOfKey{}, key)
}
