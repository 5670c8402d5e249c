package membership

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/internal/latest"
	"github.com/ringway/ringway/membership/discovery"
)

const (
	// MaxBroadcast is the largest payload of Broadcast. memberlist keeps anything
	// larger than a packet in its queue for ever and never says so.
	MaxBroadcast = 1200
	// topicLeave carries announcements of members that are about to go. The
	// topics from 16 on are free for users of this package.
	topicLeave byte = 1
	// FirstTopic is the first topic that HandleGossip and Broadcast accept.
	FirstTopic byte = 16
	// retransmit is how often a broadcast is sent, times log10 of the members.
	retransmit = 4
	// minSpread is the cluster size that broadcasts are sent for at least. Below
	// ten members the formula sends four copies, which leave out one in fifty.
	minSpread = 10
	// How memberlist finds out who is dead: a probe every probeInterval, then a
	// suspicion of suspicionMult times log10 of the members, in probe intervals,
	// and suspicionMaxMult times as long while nobody confirms it.
	probeInterval    = time.Second
	suspicionMult    = 4
	suspicionMaxMult = 6
	// gossipInterval is the time between two rounds, of four packets each.
	gossipInterval = 200 * time.Millisecond
	// tickInterval is how often the table is asked while time alone can change it.
	tickInterval = time.Second
)

// Node is this process's place in the cluster.
//
// Lifecycle: New binds the sockets; handlers are registered; Start begins to
// gossip; Leave says goodbye; Close stops everything and waits for it. All
// methods may be called from any goroutine, HandleGossip and HandleStream only
// before Start.
type Node struct {
	cfg       Config
	epoch     uint64
	advertise netip.AddrPort
	logger    *slog.Logger
	metrics   *metrics

	transport *transport
	seeds     *discovery.Finder
	delegate  *delegate
	mailbox   *mailbox
	leaves    chan leaveNotice // announcements, to the event loop
	verdicts  chan verdict     // what certificates say, to the event loop

	list *memberlist.Memberlist // set by Start
	// quarantine belongs to the loop.
	quarantine *quarantine

	snapshots latest.Value[Snapshot]
	status    statusBoard
	alive     atomic.Int64 // for memberlist's queue, which must not ask memberlist
	lost      atomic.Pointer[[]lostMember]
	held      atomic.Pointer[[]Quarantined] // of the newest snapshot

	cancel  context.CancelFunc
	wg      sync.WaitGroup
	state   sync.Mutex // guards started and closed
	started bool
	closed  bool
}

type leaveNotice struct {
	id    string
	epoch uint64
}

func (l leaveNotice) payload() []byte {
	return appendString(binary.BigEndian.AppendUint64(nil, l.epoch), l.id)
}

// New validates the configuration, encodes the metadata and binds the gossip
// sockets. It starts nothing. All that is wrong with the configuration is in one
// error.
func New(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	epoch := uint64(cfg.clock().UnixMilli())
	n := &Node{cfg: cfg, epoch: epoch, logger: cfg.Logger, mailbox: newMailbox(), leaves: make(chan leaveNotice, 64), verdicts: make(chan verdict, 256), quarantine: newQuarantine()}

	gossiped := n.metadata()
	if cfg.lie != nil {
		cfg.lie(&gossiped)
	}
	meta, err := gossiped.encode()
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	queue := &memberlist.TransmitLimitedQueue{RetransmitMult: retransmit, NumNodes: func() int { return int(max(minSpread, n.alive.Load())) }}
	n.metrics = newMetrics(cfg.Registerer, func() float64 { return float64(queue.NumQueued()) })
	h := hello{cluster: cfg.Cluster, environment: cfg.Environment, id: cfg.ID, epoch: epoch, role: cfg.Role}
	greet := func() hello {
		h := h
		if cfg.Keyring != nil {
			h.keys = strings.Join(cfg.Keyring.Fingerprints(), ",")
		}
		return h
	}
	n.delegate = &delegate{
		self: instanceName(cfg.ID, epoch), label: h, meta: meta, mailbox: n.mailbox, broadcasts: queue,
		topics: make(map[byte]func([]byte)), metrics: n.metrics, logger: cfg.Logger,
	}
	n.delegate.topics[topicLeave] = n.hearLeave

	if n.transport, err = newTransport(cfg, greet, n.metrics); err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	n.transport.vouched = n.vouched
	n.transport.handlers[protocolProbe] = func(context.Context, Peer, net.Conn) {}
	if cfg.Keyring != nil {
		n.transport.handlers[protocolKeys] = n.serveKeys
	}
	bound, err := netip.ParseAddrPort(n.transport.streams.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("membership: bound address: %w", err), n.transport.Shutdown())
	}
	n.advertise = netip.AddrPortFrom(bound.Addr().Unmap(), bound.Port())
	if cfg.AdvertiseAddr != "" {
		n.advertise = netip.MustParseAddrPort(cfg.AdvertiseAddr) // validated
	}
	n.seeds, err = discovery.New(discovery.Config{
		Seeds: cfg.Seeds, AllowNoSeeds: true, DefaultPort: DefaultGossipPort, Resolver: cfg.Resolver,
		Exclude: func(addr netip.AddrPort) bool { return addr == n.advertise },
		Logger:  cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("membership: %w", err), n.transport.Shutdown())
	}
	return n, nil
}

func (n *Node) metadata() metadata {
	return metadata{
		Format: metadataFormat, Cluster: n.cfg.Cluster, Environment: n.cfg.Environment,
		ID: n.cfg.ID, Epoch: n.epoch, Role: string(n.cfg.Role),
		Datacenter: n.cfg.Datacenter, Region: n.cfg.Region,
		ForwardAddr: n.cfg.ForwardAddr, AdminAddr: n.cfg.AdminAddr, Version: n.cfg.Version,
	}
}

// Addr is the IP:port at which the other members reach this node's gossip.
func (n *Node) Addr() string { return n.advertise.String() }

// ID and Epoch name this instance.
func (n *Node) ID() string { return n.cfg.ID }

// Epoch is the boot time of this instance in Unix milliseconds.
func (n *Node) Epoch() uint64 { return n.epoch }

// HandleGossip registers what receives the broadcasts of a topic. The payload is
// the handler's to keep. Handlers run on memberlist's receive goroutines: they
// must return at once and must not call this Node. Only before Start.
func (n *Node) HandleGossip(topic byte, handle func(payload []byte)) {
	n.delegate.topics[topic] = handle
}

// HandleStream registers what serves incoming streams of a protocol. The peer
// was admitted; the connection is closed when handle returns, and ctx ends when
// the node closes. Only before Start.
func (n *Node) HandleStream(protocol string, handle func(ctx context.Context, peer Peer, conn net.Conn)) {
	n.transport.handlers[protocol] = handle
}

// Start begins to gossip and to join the seeds, in the background, for ever.
// It fails only when memberlist cannot be set up; use WaitReady to learn whether
// the cluster was found. ctx bounds nothing but the background work: when it
// ends the node falls silent as if it had crashed. Call Leave and Close to go.
func (n *Node) Start(ctx context.Context) error {
	n.state.Lock()
	defer n.state.Unlock()
	if n.started || n.closed {
		return errors.New("membership: Start was called before, or after Close")
	}
	ctx, n.cancel = context.WithCancel(ctx)
	n.alive.Store(1)

	list, err := memberlist.Create(n.memberlistConfig())
	if err != nil {
		return fmt.Errorf("membership: start memberlist: %w", err)
	}
	n.list = list
	n.started = true
	n.transport.start()
	self := n.metadata().member(n.Addr())
	state := newTable(self.Instance())
	state.seen(self, time.Now())
	n.publish(state)
	n.wg.Go(func() { n.loop(ctx, state) })
	n.wg.Go(func() { n.seeds.Run(ctx) })
	n.wg.Go(func() { n.keepJoined(ctx) })
	n.logger.Info("gossip started", "id", n.cfg.ID, "addr", n.Addr(), "cluster", n.cfg.Cluster, "environment", n.cfg.Environment, "seeds", n.cfg.Seeds)
	return nil
}

func (n *Node) memberlistConfig() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = n.delegate.self
	c.Transport = n.transport
	c.Label = n.cfg.label()
	c.AdvertiseAddr, c.AdvertisePort = n.advertise.Addr().String(), int(n.advertise.Port())
	c.BindAddr, c.BindPort = c.AdvertiseAddr, c.AdvertisePort
	c.Delegate, c.Events, c.Alive, c.Conflict = n.delegate, n.delegate, n.delegate, n.delegate
	if n.cfg.Keyring != nil {
		c.Keyring = n.cfg.Keyring.ring
	}
	c.EnableCompression = false // costs 80 µs a packet and saves nothing on packets this small
	c.ProbeInterval, c.SuspicionMult, c.SuspicionMaxTimeoutMult = probeInterval, suspicionMult, suspicionMaxMult
	c.GossipInterval, c.GossipNodes = gossipInterval, 4
	c.HandoffQueueDepth = 8192
	c.PushPullInterval = time.Minute
	c.TCPTimeout = 5 * time.Second
	// Names are unique per boot, so a process that crashes again and again leaves
	// many dead instances, which draw gossip away from the living. With the default
	// of 4, a join in a cluster of 13 after 20 crashes was unknown to somebody for
	// about a minute in most runs; with 8 in few.
	c.RetransmitMult = 8
	c.GossipToTheDeadTime = 30 * time.Second
	c.DeadNodeReclaimTime = time.Second // names are unique per boot, so nothing waits for this
	c.Logger = newMemberlistLogger(n.logger, n.metrics.problems)
	return c
}

// loop owns the table. It is the only writer of snapshots.
func (n *Node) loop(ctx context.Context, state *table) {
	var due, tick <-chan time.Time // set while a change waits to be published, and while time matters
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case <-n.mailbox.wake:
			changed = n.apply(state, n.mailbox.take())
		case notice := <-n.leaves:
			changed = n.hearOf(state, notice)
		case v := <-n.verdicts:
			changed = n.quarantine.note(v, time.Now())
		case <-tick:
			tick = nil
		case <-due:
			due = nil
			n.publish(state)
			continue
		}
		degraded := state.burst.on
		changes, again := state.tick(n.list.GetHealthScore(), time.Now())
		changed = n.report(changes) || changed
		if again && tick == nil {
			tick = time.After(tickInterval)
		}
		if (changed || degraded != state.burst.on) && due == nil {
			due = time.After(n.cfg.PublishInterval)
		}
	}
}

// hearOf notes an announcement and, when it is news, tells others: the leaver has
// time for a few packets only, so the announcement spreads as an infection does.
func (n *Node) hearOf(state *table, notice leaveNotice) (changed bool) {
	changed = n.report(state.announced(notice.id, notice.epoch))
	if changed && notice.id != n.cfg.ID {
		_ = n.Broadcast(topicLeave, notice.id, notice.payload()) // short: it always fits
	}
	return changed
}

func (n *Node) apply(state *table, sightings []sighting) (changed bool) {
	now := time.Now()
	for _, s := range sightings {
		if s.gone && s.name == n.delegate.self {
			continue // memberlist's echo of Leave; this node is here until Close
		}
		if s.gone {
			changed = n.report(state.gone(s.name, n.list.GetHealthScore(), now)) || changed
			continue
		}
		m, err := decodeMetadata(s.meta)
		if err != nil || instanceName(m.ID, m.Epoch) != s.name {
			n.metrics.packetDropped(dropMetadata) // NotifyAlive refuses these; an update slipped by
			continue
		}
		changed = n.report(state.seen(m.member(s.addr), now)) || changed
	}
	return changed
}

// report logs and counts what the table says happened.
func (n *Node) report(changes []change) bool {
	for _, c := range changes {
		n.metrics.events.WithLabelValues(c.event).Inc()
		m := c.member
		if c.event == "superseded" && m.ID == n.cfg.ID {
			n.metrics.duplicates.Inc()
			n.logger.Error("the cluster knows a later boot of this node's id and follows that one: another process runs under it (give each process its own --id), or this host's clock went backwards (then this node is let in when the later boot is gone)", "id", m.ID, "epoch", n.epoch)
			continue
		}
		if c.event == "outdated" {
			// Ordinary after a restart: the old life is still being told of.
			n.logger.Debug("news of an instance that booted before the one this node knows", "member", m.ID, "epoch", m.Epoch, "addr", m.GossipAddr)
			continue
		}
		level := slog.LevelDebug
		if c.event == "failed" {
			level = slog.LevelWarn
		}
		n.logger.Log(context.Background(), level, "member "+c.event, "member", m.ID, "role", m.Role, "addr", m.GossipAddr)
	}
	return len(changes) > 0
}

func (n *Node) publish(state *table) {
	var version uint64 = 1
	if old := n.snapshots.Load(); old != nil {
		version = old.Version() + 1
	}
	members, caught := n.quarantine.filter(state.members(), time.Now())
	for m, reason := range caught {
		n.metrics.events.WithLabelValues("quarantined").Inc()
		n.logger.Warn("member quarantined: its gossip is not to be believed", "member", m.ID, "addr", m.GossipAddr, "reason", reason)
	}
	held := n.quarantine.among(state.members())
	n.held.Store(&held)
	s := NewSnapshot(version, n.cfg.ID, members).WithDepartures(state.departures.list(time.Now()), state.burst.on)
	if old := n.snapshots.Load(); old != nil && old.Degraded() != s.Degraded() {
		if s.Degraded() {
			n.logger.Warn("lost sight of much of the cluster at once: this node may be cut off, so its peers are kept", "members", len(s.Members()), "failed", len(state.burst.failed))
		} else {
			n.logger.Info("the view of the cluster is trusted again", "members", len(s.Members()))
		}
	}
	lost := slices.Collect(maps.Values(state.lost))
	n.lost.Store(&lost)
	n.alive.Store(int64(len(s.Members())))
	n.metrics.published(s)
	n.snapshots.Store(s)
}

// Snapshot is the newest view, nil before Start. One atomic load.
func (n *Node) Snapshot() *Snapshot { return n.snapshots.Load() }

// Watch delivers the current snapshot and then always the newest. A slow reader
// skips snapshots. The channel is closed when ctx ends.
func (n *Node) Watch(ctx context.Context) <-chan *Snapshot { return n.snapshots.Watch(ctx) }

// Broadcast gossips a payload to all members, best effort: a few in ten thousand
// never arrive, and during joins it can take seconds. A newer broadcast of the
// same topic and key takes the place of one that still waits.
func (n *Node) Broadcast(topic byte, key string, payload []byte) error {
	if len(payload) > MaxBroadcast {
		return fmt.Errorf("broadcast %q is %d bytes, %d are allowed: send it over a stream", key, len(payload), MaxBroadcast)
	}
	message := append([]byte{messageFormat, topic}, payload...)
	n.delegate.broadcasts.QueueBroadcast(&broadcast{name: string(rune(topic)) + key, message: message})
	return nil
}

// OpenStream connects to a member and greets it. The caller closes the
// connection. The error says when the member is not known, and is a
// *RefusalError when one of the two ends refused the other.
func (n *Node) OpenStream(ctx context.Context, memberID, protocol string) (net.Conn, error) {
	s := n.Snapshot()
	if s == nil {
		return nil, errors.New("open stream: the node is not started")
	}
	m, ok := s.Get(memberID)
	if !ok {
		return nil, fmt.Errorf("open stream to %q: no such member is alive", memberID)
	}
	conn, peer, err := n.transport.dial(ctx, m.GossipAddr, protocol)
	if err != nil {
		return nil, fmt.Errorf("open stream to %s (%s): %w", memberID, m.GossipAddr, err)
	}
	if peer.ID != memberID {
		_ = conn.Close()
		return nil, fmt.Errorf("open stream to %s (%s): %s answered: the address has a new owner", memberID, m.GossipAddr, peer.ID)
	}
	return conn, nil
}

// hearLeave takes an announcement in. It never blocks: it runs on memberlist's
// receive goroutine.
func (n *Node) hearLeave(payload []byte) {
	r := &fieldReader{rest: payload}
	epoch, id := r.uint64(), r.string()
	if r.failed {
		n.metrics.packetDropped(dropMessageFormat)
		return
	}
	select {
	case n.leaves <- leaveNotice{id, epoch}:
	default:
		n.metrics.packetDropped(dropQueueFull) // the member is then taken to have failed
	}
}

// Leave tells the others that this node goes on purpose and waits, at most
// LeaveTimeout or until ctx ends, for the news to be sent. The node still
// answers probes until Close, so that nobody suspects it meanwhile.
func (n *Node) Leave(ctx context.Context) error {
	n.state.Lock()
	ready := n.started && !n.closed
	n.state.Unlock()
	if !ready {
		return nil
	}
	payload := leaveNotice{n.cfg.ID, n.epoch}.payload()
	if err := n.Broadcast(topicLeave, n.cfg.ID, payload); err != nil {
		return err
	}
	n.hearLeave(payload) // our own view says so, too
	timeout := n.cfg.LeaveTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	// The announcement needs a few gossip rounds ahead of memberlist's own
	// message, or the others would take this for a crash: until it is sent, and
	// then until those who heard it have passed it on.
	announced := time.Now()
	n.waitForBroadcasts(ctx, timeout/2)
	if alone := n.alive.Load() < 2; !alone {
		rounds := 1 + bits.Len64(uint64(n.alive.Load()))/2 // each round reaches four times as many
		pause(ctx, min(time.Duration(rounds)*gossipInterval, timeout/2-time.Since(announced)))
	}
	n.logger.Info("leaving the cluster", "id", n.cfg.ID)
	if err := n.list.Leave(max(timeout/2, time.Millisecond)); err != nil {
		return fmt.Errorf("leave: %w: the others will notice by probing", err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// waitForBroadcasts returns when the queue was sent, nobody listens, or time is up.
func (n *Node) waitForBroadcasts(ctx context.Context, limit time.Duration) {
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n.delegate.broadcasts.NumQueued() > 0 && n.alive.Load() > 1 {
		select {
		case <-tick.C:
		case <-deadline:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Close stops gossiping and waits for every goroutine of this package. Without
// Leave before it, the others see a crash. It may be called more than once.
func (n *Node) Close() error {
	n.state.Lock()
	defer n.state.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	if !n.started {
		return n.transport.Shutdown()
	}
	n.cancel()
	err := n.list.Shutdown() // shuts the transport down, too
	n.wg.Wait()
	return err
}
