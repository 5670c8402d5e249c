package advertise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/latest"
	"github.com/ringway/ringway/membership"
)

// ErrStopped is returned by calls that need Run after it has ended.
var ErrStopped = errors.New("advertise: the catalogue has stopped")

// Config is what a Catalogue is made of. Only Gossip is required.
type Config struct {
	// Gossip is the node that this catalogue advertises over. New registers
	// handlers on it, so the node must not have started yet.
	Gossip Gossip
	// Logger gets refused exchanges and forged records. Default: none.
	Logger *slog.Logger
	// Registerer gets the metrics. Default: they are not registered.
	Registerer prometheus.Registerer
	// Interval is how often this node compares its records with one random
	// member, give or take 30 %. Default 30 s: what gossip loses is repaired
	// within about three intervals everywhere.
	Interval time.Duration
	// PublishInterval is the least time between two publications of this node's
	// record. Default 1 s: a flapping worker must not fill the gossip queue.
	PublishInterval time.Duration
	// ViewInterval is the least time between two views. Default 50 ms.
	ViewInterval time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (c *Config) validate() error {
	if c.Gossip == nil {
		return errors.New("advertise: Config.Gossip is nil: pass the membership node")
	}
	if c.Interval < 0 || c.PublishInterval < 0 || c.ViewInterval < 0 {
		return fmt.Errorf("advertise: negative interval (%v, %v, %v): use 0 for the default", c.Interval, c.PublishInterval, c.ViewInterval)
	}
	fill := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	fill(&c.Interval, 30*time.Second)
	fill(&c.PublishInterval, time.Second)
	fill(&c.ViewInterval, 50*time.Millisecond)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Bounds of the loop.
const (
	mailboxLimit   = 8192 // instances with mail waiting
	maxOutbound    = 2    // exchanges this node runs at once
	maxFetches     = 1024 // hinted records waiting to be fetched
	fetchAttempts  = 4    // the owner first, then other members
	joinExchanges  = 3    // exchanges when this node finds company
	spreadLimit    = 16   // records of one exchange frame that are gossiped on
	expireInterval = time.Minute
)

// Catalogue advertises what this node offers and knows what all others do. New
// makes one, Run makes it work; all methods are safe for concurrent use.
type Catalogue struct {
	cfg     Config
	logger  *slog.Logger
	metrics *metrics
	views   latest.Value[View]
	mailbox *mailbox
	inbound inbound
	calls   chan func()
	ownWake chan struct{}
	stopped chan struct{} // closed when Run has ended
	// compared is set by the first exchange with another member that succeeded.
	compared atomic.Bool

	mu       sync.Mutex // guards what follows up to the blank line
	started  bool
	desired  []Service
	offered  bool
	draining bool

	// Owned by Run's goroutine.
	store     *store
	builder   *viewBuilder
	members   *membership.Snapshot
	own       own
	dirty     bool
	viewed    time.Time
	outbound  map[string]struct{} // members with an exchange of ours
	finished  chan finished
	exchanges sync.WaitGroup
	partners  []string // members to exchange with as soon as there is a place
	joining   int      // exchanges left to do since this node was alone
	failures  int      // exchanges failed in a row
	fetches   map[instance]*pendingFetch
}

type pendingFetch struct {
	stamp    stamp
	attempts int
	running  bool
}

// finished is how an exchange of ours ended.
type finished struct {
	peer   string
	fetch  *instance // nil for a comparison
	result string
	err    error
}

// New registers a catalogue's handlers on the gossip node. It starts nothing.
func New(cfg Config) (*Catalogue, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Catalogue{
		cfg: cfg, logger: cfg.Logger, metrics: newMetrics(), mailbox: newMailbox(mailboxLimit),
		calls: make(chan func()), ownWake: make(chan struct{}, 1), stopped: make(chan struct{}),
		store: newStore(storeConfig{}), outbound: map[string]struct{}{}, finished: make(chan finished),
		fetches: map[instance]*pendingFetch{}, joining: joinExchanges,
	}
	c.builder = newViewBuilder(c.store)
	if err := c.metrics.register(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("advertise: register metrics: %w", err)
	}
	c.views.Store(&View{})
	cfg.Gossip.HandleGossip(GossipTopic, c.hear)
	cfg.Gossip.HandleStream(StreamProtocol, c.serve)
	return c, nil
}

// View is the newest view: one atomic load, never nil, empty before Run.
func (c *Catalogue) View() *View { return c.views.Load() }

// Settled reports whether the view can be trusted to be whole: an exchange with
// another member has succeeded, or there is no other member. Before that, a
// service that is missing may only not have been heard of yet.
func (c *Catalogue) Settled() bool {
	members := c.View().Members()
	return c.compared.Load() || members != nil && len(members.Members()) <= 1
}

// Watch delivers the current view, then always the newest; a slow reader skips
// views and delays nobody. The channel is closed when ctx ends.
func (c *Catalogue) Watch(ctx context.Context) <-chan *View { return c.views.Watch(ctx) }

// Run owns all goroutines of the catalogue and returns, with nil, when ctx has
// ended and they have. It runs once; a second call returns an error. The gossip
// node should have started. What this node offers is not withdrawn: when the
// node leaves, its endpoints go with it.
func (c *Catalogue) Run(ctx context.Context) error {
	c.mu.Lock()
	started := c.started
	c.started = true
	c.mu.Unlock()
	if started {
		return errors.New("advertise: Run called twice: make a new catalogue")
	}
	ctx, cancel := context.WithCancel(ctx)
	c.inbound.run(ctx)
	c.loop(ctx)
	cancel()
	close(c.stopped)
	c.exchanges.Wait()
	c.inbound.stop()
	return nil
}

func (c *Catalogue) loop(ctx context.Context) {
	snapshots := c.cfg.Gossip.Watch(ctx)
	viewTimer, ownTimer := stoppedTimer(), stoppedTimer()
	defer viewTimer.Stop()
	defer ownTimer.Stop()
	compare := time.NewTimer(c.compareDelay())
	defer compare.Stop()
	expire := time.NewTicker(expireInterval)
	defer expire.Stop()
	c.wakeOwn() // for what was offered before

	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case s, ok := <-snapshots:
			if !ok {
				return
			}
			c.setMembers(s)
		case <-c.mailbox.wake:
			c.readMail()
		case call := <-c.calls:
			call()
		case <-c.ownWake:
			c.armOwn(ownTimer)
		case <-ownTimer.C:
			c.armOwn(ownTimer)
		case f := <-c.finished:
			c.finish(f)
			if f.result == resultFailed || f.result == resultBusy {
				compare.Reset(c.compareDelay())
			}
		case <-compare.C:
			c.addPartner(c.randomMember())
			compare.Reset(c.compareDelay())
		case <-expire.C:
			now := c.cfg.Now()
			c.store.expire(now)
			c.dirty = c.dirty || c.builder.expiring(now)
			maps.DeleteFunc(c.fetches, func(_ instance, f *pendingFetch) bool { return !f.running })
		case <-viewTimer.C:
		}
		c.startExchanges(ctx)
		c.publishView(viewTimer)
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func (c *Catalogue) armOwn(timer *time.Timer) {
	if wait := c.publishOwn(); wait > 0 {
		timer.Reset(wait)
	}
}

// publishView publishes now if the last view is old enough, else when it is.
func (c *Catalogue) publishView(timer *time.Timer) {
	if !c.dirty {
		return
	}
	now := c.cfg.Now()
	if wait := c.viewed.Add(c.cfg.ViewInterval).Sub(now); wait > 0 && wait <= c.cfg.ViewInterval {
		timer.Reset(wait)
		return
	}
	v := c.builder.build(c.members, now)
	c.dirty, c.viewed = false, now
	c.metrics.views.Inc()
	c.metrics.services.Set(float64(len(v.names)))
	c.metrics.endpoints.Set(float64(v.count))
	c.metrics.records.Set(float64(len(c.store.entries)))
	c.views.Store(v)
}

func (c *Catalogue) touch(id string) {
	c.builder.touch(id)
	c.dirty = true
}

// setMembers joins the records with a new set of members.
func (c *Catalogue) setMembers(s *membership.Snapshot) {
	before := c.members
	c.members = s
	if self := s.Self(); c.own.instance.id == "" && self.ID != "" {
		// Fixed from here on: should another process take our id with a higher
		// epoch, it must not be its life that we write for.
		c.own.instance, c.own.role = instance{self.ID, self.Epoch}, self.Role
		c.store.self = c.own.instance
		c.wakeOwn()
		c.mu.Lock()
		if c.offered && c.own.role != membership.RoleWorker {
			c.logger.Error("what this node offers is not published: only workers offer services", "node", self.ID, "role", self.Role)
		}
		c.mu.Unlock()
	}
	for _, id := range c.store.setAlive(s.Members(), c.cfg.Now()) {
		c.touch(id)
	}
	c.dirty = true // a view carries its snapshot
	c.greet(before, s)
}

// greet plans exchanges with members that have appeared: three when this node
// was alone, and later about three in the whole cluster per newcomer, so that a
// join, or a partition that heals, does not wait for the next interval.
func (c *Catalogue) greet(before, after *membership.Snapshot) {
	others, fresh := 0, []string(nil)
	for _, m := range after.Members() {
		if m.ID == c.own.instance.id {
			continue
		}
		others++
		if before != nil {
			if was, ok := before.Get(m.ID); ok && was.Epoch == m.Epoch {
				continue
			}
		}
		fresh = append(fresh, m.ID)
	}
	if others == 0 {
		c.joining = joinExchanges
		return
	}
	for _, i := range rand.Perm(len(fresh)) {
		if c.joining > 0 {
			c.joining--
			c.addPartner(fresh[i])
		} else if rand.IntN(others+1) < joinExchanges {
			c.addPartner(fresh[i])
		}
	}
}

// readMail merges what gossip brought and gossips on what was new.
func (c *Catalogue) readMail() {
	for _, m := range c.mailbox.take() {
		if m.hint {
			c.hearHint(m)
			continue
		}
		if e, result := c.mergeOne(m.raw); result == applied {
			c.spread(e)
		}
	}
}

// mergeAll merges one frame of an exchange. A few new records are gossiped on:
// they are news that gossip lost. Many are what a joiner has to catch up with.
func (c *Catalogue) mergeAll(raws [][]byte) {
	var news []*entry
	for _, raw := range raws {
		if e, result := c.mergeOne(raw); result == applied {
			news = append(news, e)
		}
	}
	if len(news) <= spreadLimit {
		for _, e := range news {
			c.spread(e)
		}
	}
}

func (c *Catalogue) mergeOne(raw []byte) (*entry, outcome) {
	e, result, err := c.store.merge(raw, c.cfg.Now())
	c.metrics.receive(result)
	switch {
	case err != nil:
		c.logger.Debug("dropped a record", "error", err)
	case result == foreign:
		c.logger.Warn("heard a record in our name that we did not write, publishing ours again", "sequence", e.stamp.sequence)
		c.healOwn(e)
	case result == applied:
		c.touch(e.record.NodeID)
	}
	return e, result
}

// spread gossips a record, or a hint of it, unless its worker lives a later life.
func (c *Catalogue) spread(e *entry) {
	if m, ok := c.store.alive[e.record.NodeID]; ok && m.Epoch > e.record.Epoch {
		return
	}
	message, err := e.message()
	if err == nil {
		err = c.cfg.Gossip.Broadcast(GossipTopic, e.record.NodeID, message)
	}
	if err != nil {
		c.logger.Debug("could not gossip a record, exchanges will carry it", "node", e.record.NodeID, "error", err)
	}
}

// hearHint plans to fetch a record that is too large for gossip.
func (c *Catalogue) hearHint(m mail) {
	c.metrics.receive("hint")
	if e := c.store.entries[m.from]; e != nil && m.stamp.compare(e.stamp) <= 0 {
		return
	}
	if m.from.epoch > uint64(c.cfg.Now().Add(futureEpoch).UnixMilli()) {
		c.metrics.receive("invalid_future_epoch")
		return
	}
	if f := c.fetches[m.from]; f != nil {
		if m.stamp.compare(f.stamp) > 0 {
			f.stamp, f.attempts = m.stamp, 0
		}
		return
	}
	if len(c.fetches) < maxFetches {
		c.fetches[m.from] = &pendingFetch{stamp: m.stamp}
	}
}

// ask runs f on the loop and waits for it.
func (c *Catalogue) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case c.calls <- func() { f(); close(done) }:
		<-done
		return nil
	case <-c.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// compareDelay is the interval ± 30 %, and shorter after failures: a member that
// could not reach the first partner tries the next within seconds.
func (c *Catalogue) compareDelay() time.Duration {
	d := c.cfg.Interval
	if c.failures > 0 && c.failures < 16 {
		d = min(d, time.Second<<(c.failures-1))
	}
	return time.Duration(float64(d) * (0.7 + 0.6*rand.Float64()))
}

func (c *Catalogue) randomMember() string {
	if c.members == nil {
		return ""
	}
	all := c.members.Members()
	for range 8 { // ourselves is one of them
		if len(all) == 0 {
			break
		}
		if id := all[rand.IntN(len(all))].ID; id != c.own.instance.id {
			return id
		}
	}
	return ""
}

func (c *Catalogue) addPartner(id string) {
	if id == "" || len(c.partners) >= 2*joinExchanges {
		return
	}
	c.partners = append(c.partners, id)
}

// startExchanges fills the free places with fetches, then comparisons.
func (c *Catalogue) startExchanges(ctx context.Context) {
	for key, f := range c.fetches {
		if len(c.outbound) >= maxOutbound {
			return
		}
		if f.running {
			continue
		}
		peer := key.id
		if _, alive := c.store.alive[peer]; !alive || f.attempts > 0 {
			peer = c.randomMember()
		}
		if _, busy := c.outbound[peer]; busy || peer == "" || peer == c.own.instance.id {
			continue
		}
		f.running = true
		c.start(ctx, finished{peer: peer, fetch: &key}, func(ctx context.Context, fr *frames) (string, error) {
			return c.fetch(ctx, fr, []instance{key})
		})
	}
	for len(c.partners) > 0 && len(c.outbound) < maxOutbound {
		peer := c.partners[0]
		c.partners = c.partners[1:]
		if _, busy := c.outbound[peer]; !busy {
			c.start(ctx, finished{peer: peer}, c.sync)
		}
	}
}

func (c *Catalogue) start(ctx context.Context, end finished, talk func(context.Context, *frames) (string, error)) {
	c.outbound[end.peer] = struct{}{}
	c.exchanges.Go(func() {
		end.result, end.err = c.connect(ctx, end.peer, func(f *frames) (string, error) { return talk(ctx, f) })
		select {
		case c.finished <- end:
		case <-c.stopped:
		}
	})
}

func (c *Catalogue) finish(f finished) {
	delete(c.outbound, f.peer)
	c.metrics.exchanges.WithLabelValues("out", f.result).Inc()
	if f.err != nil {
		c.logger.Debug("record exchange failed", "peer", f.peer, "result", f.result, "error", f.err)
	}
	if f.fetch == nil {
		if f.err == nil {
			c.failures = 0
			c.compared.Store(true)
		} else {
			c.failures++
		}
		return
	}
	pending := c.fetches[*f.fetch]
	pending.running = false
	pending.attempts++
	e := c.store.entries[*f.fetch]
	if pending.attempts >= fetchAttempts || e != nil && pending.stamp.compare(e.stamp) <= 0 {
		delete(c.fetches, *f.fetch)
	}
}
