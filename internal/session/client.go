package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/discovery"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// DefaultPort is the port of a seed without one: that of the peer listener of relays.
const DefaultPort = 7420

const (
	// BeatInterval is how often either side sends something, and Silence how long it waits for
	// something from the other: two beats, and then that side counts as dead.
	BeatInterval = 5 * time.Second
	Silence      = 2 * BeatInterval
	// dialTimeout bounds a connection, its handshake, and the first row.
	dialTimeout = 5 * time.Second
	// firstPause and longestPause are between two attempts at one address.
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
	// listTime is how long the list of a relay may take to the others. They gather changes for 10 ms.
	listTime = time.Second
	// refusedPause is at least between two attempts at a relay that refuses.
	refusedPause = 5 * time.Second
	// lonelyAnswers is how old the answers of DNS about seeds may be while there is no session.
	lonelyAnswers = 2 * time.Second
	// lonelyDials is how many addresses are dialled together while there is no session.
	lonelyDials = 3
	// leaveTimeout bounds how long Leave waits until the relays are notified.
	leaveTimeout = time.Second
)

// Config describes a Client.
type Config struct {
	// Member has the names, the place, the certificate, the resolver, the logger and the registry
	// of the worker; what concerns gossip is not used.
	Member membership.Config
	// Seeds are peer addresses of relays: host, host:port, dns+name or srv+name.
	Seeds []string
}

// Client is a worker that takes part by sessions. Its methods are those of a membership.Node, for
// package advertise and the worker; they may be called from any goroutine.
type Client struct {
	cfg    membership.Config
	epoch  uint64
	logger *slog.Logger
	finder *discovery.Finder
	gauge  prometheus.Gauge
	ended  *prometheus.CounterVec
	wake   chan struct{} // capacity 1: links or rows have changed
	joined chan struct{} // closed with the first session

	snapshots publish.Value[membership.Snapshot]

	mu       sync.Mutex     // guards the fields below
	record   []byte         // the newest of this worker; nil before the first
	signer   [keyBytes]byte // the certificate that has signed it; zero without one
	shown    [keyBytes]byte // the certificate at the newest snapshot
	draining bool
	leaving  bool
	links    map[linkKey]*link
	tries    map[string]*tries // of addresses
	lastRow  []string          // addresses
	host     string            // of this worker, as its first session shows it
	err      error             // of the last attempt, while there is no session
	version  uint64
	names    names

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// linkKey distinguishes sessions: one with a renewed certificate, of this worker or of the relay, is
// opened in addition to the old one.
type linkKey struct {
	address     string
	certificate [keyBytes]byte // of this worker
	other       bool           // differs from that of the session that it replaces
}

type tries struct {
	failures int
	next     time.Time
}

// names is about the lookups of the seeds while there is no session.
type names struct {
	asking bool      // one is in flight
	next   time.Time // zero while there is a session
	pause  *backoff.ExponentialBackOff
	err    error // of the last one
}

// ErrClearText is the error of a seed on another host for a session that would be in clear text.
var ErrClearText = errors.New("a session to another host would be in clear text")

// CheckSeed checks a seed. Protected sessions may go to other hosts: those with certificates, and those
// that the operator allows in clear text.
func CheckSeed(seed string, protected bool) error {
	parsed, err := discovery.ParseSeed(seed, DefaultPort)
	if err == nil && !protected && parsed.Name != "localhost" && !parsed.Addr.Addr().IsLoopback() {
		err = ErrClearText
	}
	return err
}

// NewClient checks the configuration. It starts nothing.
func NewClient(cfg Config) (*Client, error) {
	m := cfg.Member
	for what, name := range map[string]string{"cluster": m.Cluster, "environment": m.Environment, "id": m.ID} {
		if err := identity.CheckName(name); err != nil {
			return nil, fmt.Errorf("attach: %s: %w", what, err)
		}
	}
	if m.Logger == nil {
		m.Logger = slog.New(slog.DiscardHandler)
	}
	f := metric.With(m.Registerer)
	c := &Client{
		cfg: m, epoch: uint64(time.Now().UnixMilli()), logger: m.Logger, wake: make(chan struct{}, 1), joined: make(chan struct{}),
		links: map[linkKey]*link{}, tries: map[string]*tries{}, names: names{pause: discovery.Backoff()},
		gauge: f.Gauge("ringway_session_links", "Sessions of this worker with relays."),
		ended: f.CounterVec("ringway_session_ended_total", "Sessions of this worker that ended: moved (another relay is in its row, or another session with its relay has replaced it), lost (the connection broke or was silent), refused (by the relay), forged (a row in the name of another relay than that of its certificate), failed (it never began).", "reason"),
	}
	metric.StartAtZero(c.ended, endMoved, endLost, endRefused, endForged, endFailed)
	var err error
	c.finder, err = discovery.New(discovery.Config{Seeds: cfg.Seeds, DefaultPort: DefaultPort, Resolver: m.Resolver, Logger: m.Logger, Registerer: m.Registerer})
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	c.publish()
	return c, nil
}

// Config returns the configuration of the worker.
func (c *Client) Config() membership.Config { return c.cfg }

// Epoch returns the boot time of this worker in Unix milliseconds.
func (c *Client) Epoch() uint64 { return c.epoch }

// Addr returns "", because no member connects to an attached worker itself.
func (c *Client) Addr() string { return "" }

// Unproven and Doubters return nothing: they are about gossip.
func (c *Client) Unproven() []membership.Unproven { return nil }

// Doubters returns nothing.
func (c *Client) Doubters() map[string]uint64 { return nil }

// Snapshot returns this worker and the relays of its row.
func (c *Client) Snapshot() *membership.Snapshot { return c.snapshots.Load() }

// Watch delivers the current snapshot, then always the newest.
func (c *Client) Watch(ctx context.Context) <-chan *membership.Snapshot {
	return c.snapshots.Watch(ctx)
}

// Broadcast, HandleGossip, HandleStream and OpenStream do nothing: there is no gossip.
func (c *Client) Broadcast(byte, string, []byte) error { return nil }

// HandleGossip does nothing.
func (c *Client) HandleGossip(byte, func([]byte)) {}

// HandleStream does nothing.
func (c *Client) HandleStream(string, func(context.Context, membership.Peer, net.Conn)) {}

// OpenStream fails.
func (c *Client) OpenStream(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("an attached worker opens no streams to members")
}

// PublishRecord sends the newest record of this worker to the relays of its row.
func (c *Client) PublishRecord(raw []byte) {
	c.mu.Lock()
	c.record = raw
	if c.cfg.Identity != nil {
		c.signer, _ = Signer(raw[max(0, len(raw)-membership.MaxSignature):]) // the signature is the last field
	}
	c.notifyLinks()
	c.mu.Unlock()
	c.notify() // sessions with a new certificate may begin
}

// SetDraining makes the members show this worker as draining, or not any more.
func (c *Client) SetDraining(on bool) {
	c.mu.Lock()
	c.draining = on
	c.notifyLinks()
	c.mu.Unlock()
	c.publish()
}

// notifyLinks lets every session send what is new. mu is held.
func (c *Client) notifyLinks() {
	for _, l := range c.links {
		l.notify()
	}
}

// Sign returns this worker's signature of a statement; nil without a certificate.
func (c *Client) Sign(kind membership.Statement, statement []byte) []byte {
	if kind != membership.StatementRecord {
		return nil
	}
	return Sign(c.cfg.Identity, c.label(), statement)
}

// Verify accepts every statement: only this worker's own records reach its catalogue.
func (c *Client) Verify(string, membership.Statement, []byte, []byte) error { return nil }

// SignedNow reports whether a signature was made with the current certificate.
func (c *Client) SignedNow(signature []byte) bool {
	key, ok := Signer(signature)
	return c.cfg.Identity == nil || ok && key == c.certificate()
}

func (c *Client) label() string { return c.cfg.Cluster + "/" + c.cfg.Environment }

// certificate returns the id of the current certificate, zero without one.
func (c *Client) certificate() (key [keyBytes]byte) {
	if c.cfg.Identity == nil {
		return key
	}
	return identity.KeyID(c.cfg.Identity.Chain()[0])
}

// Status reports whether this worker has a session, and how many it still lacks.
func (c *Client) Status() membership.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	lacking, joined := map[string]struct{}{}, false
	for _, l := range c.links {
		if l.row == nil {
			continue
		}
		joined = true
		for _, relay := range l.row.Relays[:min(l.row.Size, len(l.row.Relays))] {
			if t := c.tries[relay.Address]; t == nil || t.failures == 0 {
				lacking[relay.ID] = struct{}{}
			}
		}
	}
	if joined {
		for _, l := range c.links {
			if l.row != nil {
				delete(lacking, l.row.Self)
			}
		}
		return membership.Status{Joined: true, Version: c.version, Attaching: len(lacking)}
	}
	err := c.err
	switch {
	case c.names.err != nil && err != nil:
		err = fmt.Errorf("%w; %w", err, c.names.err)
	case c.names.err != nil:
		err = c.names.err
	case err == nil: // no attempt has failed yet
		return membership.Status{}
	}
	return membership.Status{Err: fmt.Errorf("attached to no relay: %w", err)}
}

// WaitReady returns when the first session has begun.
func (c *Client) WaitReady(ctx context.Context) error {
	select {
	case <-c.joined:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), c.Status().Err)
	}
}

// Start attaches in the background, until ctx ends or Close.
func (c *Client) Start(ctx context.Context) error {
	ctx, c.cancel = context.WithCancel(ctx)
	c.running.Go(func() { c.finder.Run(ctx) })
	c.running.Go(func() { c.loop(ctx) })
	c.logger.Info("attaching to relays; this worker does not gossip", "id", c.cfg.ID, "cluster", c.cfg.Cluster, "environment", c.cfg.Environment)
	return nil
}

// Leave notifies the relays that this worker leaves, and ends its sessions.
func (c *Client) Leave(ctx context.Context) error {
	c.mu.Lock()
	c.leaving = true
	var told []chan struct{}
	for _, l := range c.links {
		told = append(told, l.done)
		l.notify()
	}
	c.mu.Unlock()
	timeout := time.After(leaveTimeout)
	for _, done := range told {
		select {
		case <-done:
		case <-timeout:
			return errors.New("not all relays were told: they see that the sessions end")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.logger.Info("left the fleet", "id", c.cfg.ID)
	return nil
}

// Close ends all sessions and waits for them. Without Leave before it the worker counts as failed.
func (c *Client) Close() error {
	if c.cancel != nil {
		c.cancel()
	}
	c.running.Wait()
	return nil
}

func (c *Client) notify() {
	publish.Notify(c.wake)
}

// publish publishes this worker and the relays that it has sessions with.
func (c *Client) publish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	self := membership.Member{
		ID: c.cfg.ID, Epoch: c.epoch, Role: identity.RoleWorker, Cluster: c.cfg.Cluster, Environment: c.cfg.Environment,
		Datacenter: c.cfg.Datacenter, Region: c.cfg.Region, AdminAddr: c.cfg.AdminAddr, Version: c.cfg.Version,
		GossipAddr: c.host, Draining: c.draining, Attached: true,
	}
	if source := c.cfg.Identity; source != nil {
		self.ServiceNames = source.Claims().Services
	}
	members, sessions := []membership.Member{self}, 0
	known := map[string]bool{self.ID: true}
	for _, l := range c.links {
		if l.row == nil {
			continue
		}
		sessions++
		if !known[l.row.Self] {
			known[l.row.Self] = true
			members = append(members, membership.Member{
				ID: l.row.Self, Epoch: l.row.Epoch, Role: identity.RoleRelay, Cluster: c.cfg.Cluster, Environment: c.cfg.Environment, ForwardAddr: l.key.address,
			})
		}
	}
	c.gauge.Set(float64(sessions))
	old, certificate := c.snapshots.Load(), c.certificate()
	next := membership.NewSnapshot(c.version+1, self.ID, members)
	if old != nil && certificate == c.shown && slices.Equal(old.Members(), next.Members()) {
		return
	}
	c.shown = certificate // with each snapshot the catalogue checks whether it signs the record again
	c.version++
	c.snapshots.Store(next)
}
