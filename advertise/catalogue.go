package advertise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// errStopped is returned by calls that need Run after it has ended.
var errStopped = errors.New("advertise: the catalogue has stopped")

// errPanicked is returned by a call whose turn of the loop ended by a panic.
var errPanicked = errors.New("advertise: a panic ended the call: the log has its stack")

// Catalogue advertises the services of this node and collects those of all other members.
// Create it with New, run it with Run; all methods are safe for concurrent use.
type Catalogue struct {
	cfg     Config
	logger  *slog.Logger
	metrics *metrics
	views   publish.Value[View]
	mailbox *mailbox
	inbound inbound
	prober  *prober // nil without Config.Probe
	calls   chan func()
	ownWake chan struct{}
	stopped chan struct{}             // closed when Run has ended
	turned  atomic.Pointer[time.Time] // when the loop turned last; nil while it does not run
	// rate limits what exchanges send, logRate the log lines that peers can cause.
	rate, logRate *rate.Limiter

	mu       sync.Mutex // guards the fields up to the blank line
	started  bool
	desired  []Service
	offered  bool
	stated   *RelayStatement
	draining bool

	// Owned by Run's goroutine.
	store      *store
	kept       func(author string, epoch, sequence uint64) // of a recordSource; otherwise nil
	unverified *unverified
	updates    updates
	builder    *viewBuilder
	members    *membership.Snapshot
	own        ownRecord
	dirty      bool // a view is due
	random     *rand.Rand
	partners   *partners
	// compared is set after a successful exchange with another member, seenWorkers when the
	// first worker appears; see forget.
	compared, seenWorkers bool
	outbound              map[string]*finished // running exchanges that this node opened, by member
	finished              chan *finished
	exchanges             sync.WaitGroup
	fetches               map[instance]*pendingFetch
	early                 map[string]mail // hints of lives that have not begun here, by member
	misses                updates         // fetches that brought nothing, by the member whose record was wanted
}

// New registers a catalogue's handlers on the gossip node. It starts no goroutine.
func New(cfg Config) (*Catalogue, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	registry := &metric.Checked{Registerer: cfg.Registerer}
	c := &Catalogue{
		cfg: cfg, logger: cfg.Logger, metrics: newMetrics(registry), mailbox: newMailbox(mailboxLimit),
		calls: make(chan func()), ownWake: make(chan struct{}, 1), stopped: make(chan struct{}),
		store: newStore(storeConfig{}), unverified: newUnverified(), updates: updates{}, outbound: map[string]*finished{}, finished: make(chan *finished),
		fetches: map[instance]*pendingFetch{}, early: map[string]mail{}, misses: updates{}, random: rand.New(rand.NewPCG(cfg.Seed, 0)),
		rate:    rate.NewLimiter(rate.Limit(cfg.ExchangeRate), sendBurst),
		logRate: rate.NewLimiter(rate.Every(time.Second), logBurst),
	}
	metric.With(registry).GaugeFunc("ringway_advertise_loop_age_seconds", "Time since the loop that merges records turned last: at most 5 s in a healthy member.", c.age)
	c.partners = newPartners(cfg.Interval, c.random)
	c.builder = newViewBuilder(c.store, newAdmission(cfg.Rules, c.logRefused))
	if registry.Err != nil {
		return nil, fmt.Errorf("advertise: register metrics: %w", registry.Err)
	}
	if cfg.Probe {
		var err error
		if c.prober, err = newProber(proberConfig{Catalogue: c, Dial: cfg.Dial, Logger: cfg.Logger, Registerer: cfg.Registerer}); err != nil {
			return nil, err
		}
	}
	c.views.Store(&View{})
	cfg.Gossip.HandleGossip(gossipTopic, c.receiveGossip)
	cfg.Gossip.HandleStream(streamProtocol, c.serve)
	if source, ok := cfg.Gossip.(recordSource); ok {
		c.kept = source.HandleRecords(c.takeAttached)
		c.store.dropped = func(i instance) { c.kept(i.id, i.epoch, 0) }
	}
	return c, nil
}

// View returns the newest view: one atomic load, never nil, empty before Run.
func (c *Catalogue) View() *View { return c.views.Load() }

// Watch delivers the current view, then always the newest; a slow reader skips views and
// does not delay others. The channel is closed when ctx ends.
func (c *Catalogue) Watch(ctx context.Context) <-chan *View { return c.views.Watch(ctx) }

// Run owns all goroutines of the catalogue. It returns nil after ctx and all goroutines
// have ended. It runs once; a second call returns an error. The gossip node should have
// started. Run does not withdraw the services of this node: when the node leaves, its
// endpoints are removed with it.
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
	var probing sync.WaitGroup
	if c.prober != nil {
		probing.Go(func() { _ = c.prober.run(ctx) }) // fails only when called twice
	}
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx) })
	c.keepLooping(ctx)
	cancel()
	watching.Wait()
	close(c.stopped)
	probing.Wait()
	c.exchanges.Wait()
	c.inbound.stop()
	return nil
}

// Observe schedules a check of an endpoint that refused a connection although its worker is alive,
// or that was not seen lately. If the check cannot connect either, the endpoint is
// [Endpoint.Unreachable] on this node until a later check connects or the worker publishes a newer
// record. Observe never blocks, and does nothing without Config.Probe.
func (c *Catalogue) Observe(e Endpoint) {
	if c.prober != nil {
		c.prober.observe(e)
	}
}

// loop is the only writer of the store, the parked records and the views. Each turn handles one
// cause, then starts the exchanges that have a place, then publishes a view if one is due, so no
// cause has to know what depends on it. Only the tick that shows that the loop turns does neither.
func (c *Catalogue) loop(ctx context.Context) {
	snapshots := c.cfg.Gossip.Watch(ctx)
	ownTimer := stoppedTimer()
	defer ownTimer.Stop()
	compare := time.NewTimer(c.partners.delay(c.compared))
	defer compare.Stop()
	expire := time.NewTicker(expireInterval)
	defer expire.Stop()
	turn := time.NewTicker(turnInterval)
	defer turn.Stop()
	defer c.turned.Store(nil)
	c.wakeOwn() // for services offered before Run

	for ctx.Err() == nil {
		now := time.Now()
		c.turned.Store(&now)
		select {
		case <-turn.C:
			c.renewOwn()
			continue
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
			if c.finish(f) {
				compare.Reset(c.partners.delay(c.compared))
			}
		case <-compare.C:
			c.partners.add(c.randomMember())
			compare.Reset(c.partners.delay(c.compared))
		case <-expire.C:
			now := c.cfg.Now()
			c.store.expire(now)
			c.dirty = c.builder.retry(now) || c.dirty || c.builder.expiring(now)
			c.expireFetches()
			c.unverified.expire(now)
			c.updates.expire(now)
			c.unpark(c.unverified.authors()) // a live member's new certificate may be known by now
		}
		c.startExchanges(ctx)
		if c.dirty {
			c.publishView()
		}
	}
}

// age returns the time since the loop turned last in seconds, 0 while it does not run.
func (c *Catalogue) age() float64 {
	if at := c.turned.Load(); at != nil {
		return time.Since(*at).Seconds()
	}
	return 0
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// armOwn publishes the own record, or sets the timer to the end of the publish interval. What
// changes until then is published together.
func (c *Catalogue) armOwn(timer *time.Timer) {
	if wait := c.publishOwn(); wait > 0 {
		timer.Reset(wait)
	}
}

// publishView publishes a new view.
func (c *Catalogue) publishView() {
	v := c.builder.build(c.members, c.cfg.Now())
	v.settled = c.compared || c.members != nil && c.alone()
	c.dirty = false
	c.metrics.views.Inc()
	c.metrics.services.Set(float64(v.serviceCount()))
	c.metrics.endpoints.Set(float64(v.EndpointCount()))
	c.metrics.records.Set(float64(len(c.store.entries)))
	c.reportFull(v)
	c.views.Store(v)
}

// reportFull logs once that services are refused because there are too many.
func (c *Catalogue) reportFull(v *View) {
	was := c.views.Load().full
	switch {
	case v.full && !was:
		c.metrics.full.Set(1)
		c.logger.Error("the limit on services is reached: this member refuses more names, and its view lacks their endpoints: raise --max-services on all relays, or find the worker that keeps offering new names", "max_services", c.cfg.Rules.MaxServices)
	case was && !v.full:
		c.metrics.full.Set(0)
	}
}

// logRefused counts and logs an offer that does not become an endpoint.
func (c *Catalogue) logRefused(r Refusal) {
	c.metrics.offersRefused.WithLabelValues(r.Reason).Add(float64(r.Count))
	if c.logRate.Allow() {
		c.logger.Warn("refused services of a worker", "worker", r.Worker, "reason", r.Reason, "services", r.Count, "service", r.Service, "error", r.Text)
	}
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
		// Set only once: if another process takes our id with a higher epoch, this
		// node must not write records for that process.
		c.own.instance, c.own.role, c.own.attached = instance{self.ID, self.Epoch}, self.Role, self.Attached
		c.store.self = c.own.instance
		c.wakeOwn()
		c.mu.Lock()
		if c.offered && c.own.role != identity.RoleWorker {
			c.logger.Error("the services of this node are not published: only workers offer services", "node", self.ID, "role", self.Role)
		}
		if c.stated != nil && c.own.role != identity.RoleRelay {
			c.logger.Error("the statement of this node is not published: only relays state their traffic and their plan", "node", self.ID, "role", self.Role)
		}
		c.mu.Unlock()
	}
	if before != nil && (c.own.attached || before.Self() != s.Self()) {
		c.renewOwn() // a new certificate may name other services, and sessions wait for a record of it
	}
	changed := c.store.setMembers(s, c.cfg.Now())
	for _, id := range changed {
		c.touch(id)
	}
	c.unpark(changed)
	c.followEarly(changed)
	c.dirty = true // a view contains its snapshot
	c.forget(s)
	c.partners.greet(s.Self(), before, s)
}

// alone reports whether there is no other member to compare records with.
func (c *Catalogue) alone() bool {
	self := c.members.Self()
	return self.Attached || !slices.ContainsFunc(c.members.Members(), func(m membership.Member) bool { return m.ID != self.ID && !m.Attached })
}

// forget makes this node compare its records again when the first worker appears. In
// earlier comparisons no member had any records: those of that worker, and of the workers
// that it knows, are still missing.
func (c *Catalogue) forget(s *membership.Snapshot) {
	if c.seenWorkers || !slices.ContainsFunc(s.Members(), func(m membership.Member) bool { return m.Role == identity.RoleWorker && !m.Attached }) {
		return
	}
	c.seenWorkers, c.compared = true, false
	c.partners.joining = joinExchanges
	for _, running := range c.outbound {
		running.early = true
	}
}

// readMail merges the records received by gossip and gossips the new ones on. The checks are in the
// order of their cost: what is known already and what exceeds its author's rate is dropped before it
// is examined, which takes about 100 µs.
func (c *Catalogue) readMail() {
	for _, m := range c.mailbox.take() {
		if m.hint {
			c.receiveHint(m)
			continue
		}
		if c.store.has(m.from, m.stamp) { // gossip delivers repeats; do not check their signatures
			c.metrics.receive(old)
			continue
		}
		if c.updates.spent(m.from.id, c.cfg.Now()) { // also without the check of a signature
			c.metrics.receive(limited)
			continue
		}
		e, result, err := c.merge(c.examine(m.raw))
		switch {
		case result == forged:
			if c.logRate.Allow() {
				c.logger.Warn("dropped a forged record from gossip: a member with the gossip key sends records in the name of another", "node", m.from.id, "error", err)
			}
		case err != nil:
			c.logger.Debug("dropped a record", "error", err)
		case result == foreign:
			c.logger.Warn("received a record in the name of this node that it did not write, publishing its own again", "sequence", e.stamp.sequence)
		case result == applied:
			c.spread(e)
		}
	}
}

// examined is a record from the network with the result of the check. If the error wraps
// membership.ErrUnproven, the record may be merged later; with any other error, never.
type examined struct {
	entry *entry
	err   error
}

// examine decodes a record and checks its signature. It takes about 100 µs and may be
// called from any goroutine.
//
// A panic costs only the record: every member examines the records of all workers, so one
// record would otherwise end all members together, and again after each restart.
func (c *Catalogue) examine(raw []byte) (x examined) {
	author := ""
	defer func() {
		if p := recover(); p != nil {
			x = examined{err: refuse(panicked, "record of %q: panic while it was examined: %v", author, p)}
			if c.logRate.Allow() {
				c.logger.Error("dropped a record that this build cannot examine: report it", "node", author, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
		}
	}()
	head := &reader{rest: raw}
	author = readRecordHead(head, head.array(math.MaxInt32, "malformed")).NodeID // also if the rest cannot be decoded
	record, signed, err := decodeRecord(raw)
	if err != nil {
		return examined{err: err}
	}
	err = c.cfg.Gossip.Verify(record.NodeID, membership.StatementRecord, signed.statement, signed.signature)
	if err != nil && !errors.Is(err, membership.ErrUnproven) {
		return examined{err: refuse(string(forged), "record of %q, sequence %d: %v", record.NodeID, record.Sequence, err)}
	}
	return examined{newEntry(record, raw, signed), err}
}

// merge puts an examined record into the store, or parks it. Only a newer record of a live member
// takes a token of its author: repeats, which other members send, must not use them up. An unproven
// record takes none, because its author may not have written it.
func (c *Catalogue) merge(x examined) (e *entry, result outcome, err error) {
	now := c.cfg.Now()
	switch {
	case x.entry == nil:
		result, err = outcomeOf(x.err), x.err
	case x.err == nil && c.store.updates(x.entry) && !c.updates.allow(x.entry.record.NodeID, now):
		result, err = limited, refuse(string(limited), "record of %q: it publishes more than %d a minute, the newest one is taken later", x.entry.record.NodeID, updatesPerMinute)
	case x.err == nil:
		e, result, err = c.store.take(x.entry, now)
	default:
		if err = c.store.inTime(x.entry.instance(), now); err != nil {
			result = outcomeOf(err)
		} else {
			result = c.unverified.put(x.entry, now)
		}
	}
	c.metrics.receive(result)
	switch result {
	case foreign:
		c.supersedeForeign(e)
	case applied:
		c.touch(e.record.NodeID)
	}
	return e, result, err
}

// unpark checks the parked records of members that have changed again. A record whose author is
// still unproven stays parked until it expires.
func (c *Catalogue) unpark(changed []string) {
	var news []*entry
	for _, id := range changed {
		m, _ := c.members.Get(id)
		key := instance{id, m.Epoch}
		raw := c.unverified.raw(key)
		if raw == nil {
			continue
		}
		x := c.examine(raw)
		if errors.Is(x.err, membership.ErrUnproven) {
			continue
		}
		c.unverified.drop(id)
		if e, result, err := c.merge(x); err != nil {
			c.logger.Debug("dropped a parked record", "error", err)
		} else if result == applied {
			news = append(news, e)
		}
	}
	c.spreadSome(news)
}

// spreadSome gossips new records of an exchange if they are few: then gossip has lost
// them. Many new records mean that this node has just joined and the others know them.
func (c *Catalogue) spreadSome(news []*entry) {
	if len(news) > spreadLimit {
		return
	}
	for _, e := range news {
		c.spread(e)
	}
}

// spread gossips a record, or a hint of it, unless its worker has restarted since.
func (c *Catalogue) spread(e *entry) {
	if p, ok := c.cfg.Gossip.(recordPublisher); ok {
		p.PublishRecord(e.raw)
		return
	}
	if m, ok := c.store.writer(e.record.NodeID); ok && (m.Epoch > e.record.Epoch || m.Attached) {
		return
	}
	message, err := e.message()
	if err == nil {
		err = c.cfg.Gossip.Broadcast(gossipTopic, e.record.NodeID, message)
	}
	if err != nil {
		c.logger.Debug("could not gossip a record, exchanges will carry it", "node", e.record.NodeID, "error", err)
	}
}

// onLoop runs f on the loop and waits for it. If f panics, the loop is restarted, and the deferred
// close frees the caller.
func (c *Catalogue) onLoop(ctx context.Context, f func()) error {
	done, ran := make(chan struct{}), false
	select {
	case c.calls <- func() { defer close(done); f(); ran = true }:
		<-done
		if !ran {
			return errPanicked
		}
		return nil
	case <-c.stopped:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}
