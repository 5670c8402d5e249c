package membership

import (
	"cmp"
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

	"github.com/ringway/ringway/internal/discovery"
	"github.com/ringway/ringway/internal/latest"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// maxBroadcast is the largest payload of Broadcast: what fits into an encrypted packet
	// with the longest label.
	maxBroadcast = 1200
	// topicLeave carries announcements of members that are about to leave. Users of this
	// package may use the topics from 16 on.
	topicLeave byte = 1
	// topicStay carries the answer of a member that receives a false announcement that it leaves.
	topicStay byte = 2
	// firstTopic is the first topic that HandleGossip and Broadcast accept.
	firstTopic byte = 16
	// How memberlist detects dead members: one probe per probeInterval, then a suspicion of
	// suspicionMult times log10 of the number of members, in probe intervals, and of
	// suspicionMaxMult times that while no other member confirms it.
	probeInterval    = time.Second
	suspicionMult    = 4
	suspicionMaxMult = 6
	// gossipInterval is the time between two rounds of gossipNodes packets each, while there
	// are messages to send. With four packets per round, eight records of 440 bytes that
	// changed simultaneously took longer than a second to reach all members in one of 200
	// runs.
	gossipInterval = 200 * time.Millisecond
	gossipNodes    = 6
	// judgeInterval is how often certificates are checked again, because they can expire.
	judgeInterval = 5 * time.Second
	// updateTimeout limits the wait until the gossip about new metadata is sent.
	updateTimeout = 2 * time.Second
	// intervalPerMember is the default of PublishInterval, for each member: see there.
	intervalPerMember = 5 * time.Microsecond
	// firstInterval is that of a node that starts: the first members come together, and a
	// consumer that chooses among them must not get only the first one.
	firstInterval = 50 * time.Millisecond
	// tickInterval is how often the table is checked while time alone can change it.
	tickInterval = time.Second
)

// Node is this process as a member of the cluster.
//
// Lifecycle: New binds the sockets; handlers are registered; Start begins to gossip; Leave
// announces the departure; Close stops everything and waits for it. All methods may be called
// from any goroutine, HandleGossip and HandleStream only before Start.
type Node struct {
	cfg       Config
	epoch     uint64
	advertise netip.AddrPort
	logger    *slog.Logger
	lines     *loglimit.Limiter // of log lines about members that join and leave
	metrics   *metrics

	transport *transport
	seeds     *discovery.Finder
	delegate  *delegate
	mailbox   *mailbox
	leaves    chan leaveNotice // announcements, to the event loop
	probed    chan probeReply  // members that live and are not seen; see joinProbed
	recheck   chan struct{}    // certificates changed; to the event loop
	leaving   atomic.Bool      // Leave was called
	draining  atomic.Bool      // an operator has taken this member out of rotation
	drained   chan struct{}    // draining changed; to followMetadata

	list *memberlist.Memberlist // set by Start
	// proofs and guard are nil without certificates.
	proofs *proofs
	guard  *guard

	snapshots latest.Value[Snapshot]
	status    statusBoard
	alive     atomic.Int64 // number of members, for the queue, which must not call memberlist
	probes    probeMonitor
	lost      atomic.Pointer[[]lostMember]
	outdated  atomic.Pointer[[]Member] // superseded instances that memberlist sees alive
	rival     atomic.Pointer[Member]   // the last instance with this node's own id that answered

	cancel  context.CancelFunc
	wg      sync.WaitGroup
	state   sync.Mutex // guards started and closed
	started bool
	closed  bool
}

// leaveNotice announces that an instance is about to leave, or, as an answer to a notice that it
// did not send, that it stays.
type leaveNotice struct {
	id        string
	epoch     uint64
	stay      bool
	signature []byte // after the payload; empty without certificates
}

func (l leaveNotice) payload() []byte {
	return appendString(binary.BigEndian.AppendUint64(nil, l.epoch), l.id)
}

// topic returns the topic of the notice and the kind of statement that its signature covers.
func (l leaveNotice) topic() (byte, Statement) {
	if l.stay {
		return topicStay, statementStay
	}
	return topicLeave, statementLeave
}

// Config returns the configuration of the node, with its defaults. What it refers to is shared
// with the node.
func (n *Node) Config() Config { return n.cfg }

// New validates the configuration, encodes the metadata and binds the gossip sockets. It starts
// no goroutine. One error reports all problems of the configuration.
func New(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	epoch := uint64(cfg.clock().UnixMilli())
	n := &Node{cfg: cfg, epoch: epoch, logger: cfg.Logger, lines: loglimit.New(cfg.Logger), mailbox: newMailbox(), leaves: make(chan leaveNotice, 64), probed: make(chan probeReply, 16), recheck: make(chan struct{}, 1), drained: make(chan struct{}, 1)}
	queue := newQueue(func() int { return int(n.alive.Load()) }, func() { n.metrics.packetDropped(dropEvicted) })
	n.metrics = newMetrics(cfg.Registerer, func() float64 { return float64(queue.len()) })
	h := hello{cluster: cfg.Cluster, environment: cfg.Environment, format: helloFormat, id: cfg.ID, epoch: epoch, role: cfg.Role}
	greet := func() hello {
		h := h
		if n.guard != nil {
			h.format, h.tick = helloSigned, n.guard.nextTick()
		}
		if cfg.Keyring != nil {
			h.keys = strings.Join(cfg.Keyring.Fingerprints(), ",")
		}
		return h
	}
	n.delegate = &delegate{
		self: instanceName(cfg.ID, epoch), label: h, mailbox: n.mailbox, broadcasts: queue,
		living: make(map[string]struct{}), nodes: make(map[string]int), limit: cfg.MaxMembers,
		placeholder: instanceName(cfg.ID, 0), placing: true, placed: make(chan struct{}, 1),
		topics: make(map[byte]func([]byte)), metrics: n.metrics, logger: cfg.Logger,
	}
	n.delegate.topics[topicLeave] = func(payload []byte) { n.receiveNotice(payload, false) }
	n.delegate.topics[topicStay] = func(payload []byte) { n.receiveNotice(payload, true) }

	if n.transport, err = newTransport(cfg, greet, n.metrics); err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
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
		n.advertise = netip.AddrPortFrom(n.advertise.Addr().Unmap(), n.advertise.Port())
	}
	n.transport.heard = n.hearDeparted
	if cfg.Identity != nil {
		n.secure()
	}
	if err := n.describe(); err != nil {
		return nil, errors.Join(fmt.Errorf("membership: %w", err), n.transport.Shutdown())
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

// secure makes the node sign its gossip and accept only signed gossip.
func (n *Node) secure() {
	n.proofs = newProofs(n.cfg)
	n.guard = newGuard(n.cfg, n.proofs, n.metrics)
	n.guard.self, n.guard.epoch, n.guard.addr, n.guard.probed = n.delegate.self, n.epoch, n.Addr(), n.probed
	n.guard.send, n.guard.deliver = n.transport.sendRaw, n.transport.deliver
	n.guard.exchanges.ctx = n.transport.ctx
	n.transport.guard, n.delegate.proofs, n.proofs.fleetTime = n.guard, n.proofs, n.guard.fleetTime
}

// describe makes this node gossip its metadata.
func (n *Node) describe() error { return n.setMetadata(n.metadata()) }

// setMetadata encodes the metadata that this node gossips. With certificates it ends in place of a
// signature with the certificate's id only: the guard signs it together with the incarnation.
func (n *Node) setMetadata(m metadata) error {
	signature := 0
	if n.proofs != nil {
		m.GossipAddr, m.Incarnation, signature = n.Addr(), unstated, MaxSignature
	}
	meta, err := m.encode(signature)
	if err != nil {
		return err
	}
	if n.proofs != nil {
		key := identity.KeyID(n.cfg.Identity.Chain()[0])
		meta = append(append(meta, key[:]...), make([]byte, signatureSize)...)
	}
	n.delegate.meta.Store(&meta)
	return nil
}

func (n *Node) metadata() metadata {
	return metadata{
		Format: metadataFormat, Cluster: n.cfg.Cluster, Environment: n.cfg.Environment,
		ID: n.cfg.ID, Epoch: n.epoch, Role: string(n.cfg.Role),
		Datacenter: n.cfg.Datacenter, Region: n.cfg.Region,
		ForwardAddr: n.cfg.ForwardAddr, AdminAddr: n.cfg.AdminAddr, Version: n.cfg.Version,
		Draining: n.draining.Load(),
	}
}

// Addr returns the IP:port at which other members reach this node's gossip.
func (n *Node) Addr() string { return n.advertise.String() }

// Epoch returns the boot time of this instance in Unix milliseconds.
func (n *Node) Epoch() uint64 { return n.epoch }

// HandleGossip registers the handler of a topic's broadcasts, before Start. The handler may keep
// the payload. Handlers run on memberlist's receive goroutines: they must return immediately and
// must not call this Node. Topics are 16 or more, lower ones belong to this package.
func (n *Node) HandleGossip(topic byte, handle func(payload []byte)) {
	n.delegate.topics[topic] = handle
}

// HandleStream registers the handler of a protocol's incoming streams, before Start. The peer has
// been admitted; the connection is closed when handle returns, and ctx ends when the node closes.
func (n *Node) HandleStream(protocol string, handle func(ctx context.Context, peer Peer, conn net.Conn)) {
	n.transport.handlers[protocol] = handle
}

// Start begins to gossip and to join the seeds, in the background, until the node stops. It fails
// only if memberlist cannot be set up; use WaitReady to wait until the cluster was found. When ctx
// ends, the node stops without announcing it, as if it had crashed. For an orderly stop call Leave
// and Close.
func (n *Node) Start(ctx context.Context) error {
	n.state.Lock()
	defer n.state.Unlock()
	if n.started || n.closed {
		return errors.New("membership: Start was called before, or after Close")
	}
	ctx, n.cancel = context.WithCancel(ctx)
	n.alive.Store(1)

	c := n.memberlistConfig()
	list, err := memberlist.Create(c)
	if err == nil {
		n.list, n.started = list, true
		err = n.keepQueueOccupied(c)
	}
	if err != nil {
		return fmt.Errorf("membership: start memberlist: %w", err)
	}
	n.transport.start()
	self := n.metadata().member(n.Addr())
	self.ServiceNames = n.serviceNames(event{name: n.delegate.self})
	state := newTable(self.Instance())
	state.seen(self, time.Now())
	n.publish(state)
	n.wg.Go(func() { n.loop(ctx, state) })
	n.wg.Go(func() { n.followMetadata(ctx) })
	n.wg.Go(func() { n.joinProbed(ctx) })
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
	switch {
	case n.guard != nil: // the guard seals packets, and TLS protects streams
		c.UDPBufferSize = maxDatagram - packetOverhead
	case n.cfg.Keyring != nil:
		c.Keyring = n.cfg.Keyring.ring
	}
	c.EnableCompression = false // costs 80 µs a packet and saves nothing on packets this small
	c.ProbeInterval, c.SuspicionMult, c.SuspicionMaxTimeoutMult = probeInterval, suspicionMult, suspicionMaxMult
	c.GossipInterval, c.GossipNodes = gossipInterval, gossipNodes
	c.HandoffQueueDepth = 8192
	c.GossipVerifyIncoming = false // until keepQueueOccupied is done
	c.PushPullInterval = time.Minute
	c.TCPTimeout = 5 * time.Second
	// Names are unique per boot, so a process that crashes repeatedly leaves many dead
	// instances, which compete with live members for gossip. With the default of 4, a join in
	// a cluster of 13 after 20 crashes was unknown to a member for more than five seconds in
	// 13 of 30 runs, with 6 in 2, with 8 in one. After 100 crashes in a cluster of ten the
	// members agreed after 130 s, 82 s and 0.9 s.
	c.RetransmitMult = 8
	c.GossipToTheDeadTime = 30 * time.Second
	c.DeadNodeReclaimTime = time.Second // names are unique per boot, so nothing waits for this
	c.Ping = &n.probes
	c.Logger = newMemberlistLogger(n.logger, n.metrics.problems)
	return c
}

// loop owns the table. It is the only writer of snapshots.
func (n *Node) loop(ctx context.Context, state *table) {
	var tick <-chan time.Time  // set while time can change the table
	var judge <-chan time.Time // with certificates, which can expire
	pacer, unpublished := latest.NewPacer(), false
	pacer.Begin(cmp.Or(n.cfg.PublishInterval, firstInterval))
	if n.proofs != nil {
		ticker := time.NewTicker(judgeInterval)
		defer ticker.Stop()
		judge = ticker.C
	}
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case <-n.mailbox.wake:
			changed = n.apply(state, n.mailbox.take())
		case notice := <-n.leaves:
			changed = n.handleLeave(state, notice)
		case <-judge:
			changed = n.judge(state)
		case <-n.recheck:
			changed = n.judge(state)
		case <-tick:
			tick = nil
		case <-pacer.C:
		}
		degraded := state.burst.on
		changes, again := state.tick(n.answered(state), time.Now())
		changed = n.report(changes) || changed
		n.noteOutdated(state)
		if again && tick == nil {
			tick = time.After(tickInterval)
		}
		unpublished = unpublished || changed || degraded != state.burst.on
		if unpublished && pacer.May() {
			unpublished = false
			pacer.Begin(cmp.Or(n.cfg.PublishInterval, time.Duration(len(state.alive))*intervalPerMember))
			n.publish(state)
		}
	}
}

// answered reports whether other members answer the probes of this node.
func (n *Node) answered(state *table) bool {
	return n.probes.answered(len(state.alive), n.list.GetHealthScore(), time.Now())
}

// judge checks all proofs again and reports whether a member has lost its proof or has one again.
func (n *Node) judge(state *table) bool {
	n.proofs.sweep()
	n.guard.sweep()
	for _, m := range state.members() {
		_, shown := n.Snapshot().Get(m.ID)
		if shown != (n.proofs.lapsed(n.delegate.self, m) == "") {
			return true
		}
	}
	return false
}

// handleLeave records a notice and passes it on if it is new: the leaving member has time for only a
// few packets, so other members must spread the notice.
func (n *Node) handleLeave(state *table, notice leaveNotice) (changed bool) {
	topic, kind := notice.topic()
	payload := notice.payload()
	if err := n.Verify(notice.id, kind, payload, notice.signature); err != nil {
		n.metrics.packetDropped(dropForged)
		n.logger.Debug("notice dropped", "err", err)
		return false
	}
	if notice.id == n.cfg.ID && notice.epoch == n.epoch && !n.leaving.Load() {
		n.contradict(notice)
		return false
	}
	if n.guard != nil && !notice.stay {
		n.guard.noteLeave(notice.id, notice.epoch)
	}
	if notice.stay {
		changed = n.report(state.stays(notice.id, notice.epoch, time.Now()))
	} else {
		changed = n.report(state.announced(notice.id, notice.epoch, time.Now()))
	}
	if changed && notice.id != n.cfg.ID {
		_ = n.Broadcast(topic, notice.id, append(payload, notice.signature...)) // cannot fail: it is short
	}
	return changed
}

// contradict answers a notice that this node is about to leave, which it never sent.
func (n *Node) contradict(notice leaveNotice) {
	if notice.stay {
		return // this node's own notice, passed on by another member
	}
	n.metrics.packetDropped(dropForged)
	n.logger.Warn("received a forged notice that this node is leaving: another process has the gossip key", "id", n.cfg.ID)
	answer := leaveNotice{id: n.cfg.ID, epoch: n.epoch, stay: true}
	_ = n.announce(answer)
}

// announce signs and broadcasts a notice about this node.
func (n *Node) announce(notice leaveNotice) error {
	topic, kind := notice.topic()
	payload := notice.payload()
	return n.Broadcast(topic, notice.id, append(payload, n.Sign(kind, payload)...))
}

func (n *Node) apply(state *table, events []event) (changed bool) {
	now := time.Now()
	for _, s := range events {
		if s.gone && s.name == n.delegate.self {
			continue // memberlist's echo of Leave; this node is alive until Close
		}
		if s.gone {
			changed = n.report(state.gone(s.name, n.answered(state), now)) || changed
			continue
		}
		m, err := decodeMetadata(s.meta)
		if err != nil || instanceName(m.ID, m.Epoch) != s.name {
			n.metrics.packetDropped(dropMetadata) // an update with metadata that NotifyAlive would refuse
			continue
		}
		seen := m.member(s.addr)
		seen.ServiceNames = n.serviceNames(s)
		changed = n.report(state.seen(seen, now)) || changed
	}
	return changed
}

// serviceNames returns the services in the certificate that signed the metadata of an event. It
// does not use the newest proof of the instance, which an older copy of its metadata can replace.
func (n *Node) serviceNames(of event) string {
	switch {
	case n.proofs == nil:
		return ""
	case of.name == n.delegate.self:
		return n.cfg.Identity.Claims().Services
	}
	key, _ := signer(of.meta[max(0, len(of.meta)-MaxSignature):])
	return n.proofs.serviceNames(key)
}

// report logs and counts the changes of the table.
func (n *Node) report(changes []change) bool {
	for i, c := range changes {
		n.metrics.events.WithLabelValues(c.event).Inc()
		m := c.member
		if c.event == "superseded" && m.ID == n.cfg.ID {
			n.metrics.duplicates.Add(1)
			other := changes[i+1].member // the instance that superseded it has joined
			n.logger.Error("the cluster knows a later boot of this node's id and follows that one: another process runs under it (give each process its own --id), or this host's clock went backwards (then this node is admitted when the later boot is gone)",
				"id", m.ID, "epoch", n.epoch, "other", other.GossipAddr, "other_epoch", other.Epoch)
			continue
		}
		if c.event == "outdated" {
			if m.ID == n.cfg.ID && m.Instance() != n.delegate.self {
				n.wg.Go(func() { n.confirmRival(n.transport.ctx, m) })
			}
			// Normal after a restart: gossip about the previous instance continues for some time.
			n.logger.Debug("news of an instance that booted before the one this node knows", "member", m.ID, "epoch", m.Epoch, "addr", m.GossipAddr)
			continue
		}
		level := slog.LevelInfo
		switch c.event {
		case "failed":
			level = slog.LevelWarn
		case "changed": // not only the set of members
			level = slog.LevelDebug
		}
		n.lines.Log(level, "member "+c.event, "member", m.ID, "role", m.Role, "addr", m.GossipAddr)
	}
	return len(changes) > 0
}

func (n *Node) publish(state *table) {
	var version uint64 = 1
	old := n.snapshots.Load()
	if old != nil {
		version = old.Version() + 1
	}
	members := state.members()
	if n.proofs != nil {
		var lapsed []Unproven
		members, lapsed = n.proofs.filter(n.delegate.self, members)
		for _, u := range lapsed {
			if old == nil {
				continue
			}
			if m, shown := old.Get(u.ID); !shown || m.Epoch != u.Epoch {
				continue // reported before, or never in a view
			}
			n.metrics.events.WithLabelValues("unproven").Inc()
			n.logger.Warn("member left out: its identity is not proven any more", "member", u.ID, "addr", u.GossipAddr, "reason", u.Reason)
		}
	}
	s := NewSnapshot(version, n.cfg.ID, members).WithDepartures(state.departures.list(time.Now(), state.burst.on), state.burst.on)
	if old != nil && old.Degraded() != s.Degraded() {
		if s.Degraded() {
			n.logger.Warn("lost contact with a large part of the cluster: this node may be cut off and keeps its peers", "members", len(s.Members()), "failed", len(state.burst.failed))
		} else {
			n.logger.Info("the view of the cluster is reliable again", "members", len(s.Members()))
		}
	}
	lost := slices.Collect(maps.Values(state.lost))
	n.lost.Store(&lost)
	n.alive.Store(int64(len(s.Members())))
	n.metrics.published(s)
	n.snapshots.Store(s)
}

// Snapshot returns the newest snapshot, nil before Start. One atomic load.
func (n *Node) Snapshot() *Snapshot { return n.snapshots.Load() }

// Watch delivers the current snapshot and then always the newest. A slow reader
// skips snapshots. The channel is closed when ctx ends.
func (n *Node) Watch(ctx context.Context) <-chan *Snapshot { return n.snapshots.Watch(ctx) }

// Broadcast gossips a payload to all members, best effort: one in 160,000 misses a
// member, and during joins it can take seconds. A newer broadcast of the same topic and key
// replaces one that is still queued.
func (n *Node) Broadcast(topic byte, key string, payload []byte) error {
	if len(payload) > maxBroadcast {
		return fmt.Errorf("broadcast %q is %d bytes, %d are allowed: send it over a stream", key, len(payload), maxBroadcast)
	}
	message := append([]byte{messageFormat, topic}, payload...)
	n.delegate.broadcasts.add(string(rune(topic))+key, message)
	return nil
}

// OpenStream connects to a member and exchanges hellos. The caller closes the connection. The
// error states if the member is not known, and is a *RefusalError if either side refused the
// other.
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

// receiveNotice passes a notice to the event loop. It never blocks: it runs on memberlist's receive
// goroutine.
func (n *Node) receiveNotice(payload []byte, stay bool) {
	r := &fieldReader{rest: payload}
	epoch, id := r.uint64(), r.string()
	if r.failed || identity.CheckName(id) != nil || len(r.rest) > MaxSignature {
		n.metrics.packetDropped(dropMessageFormat)
		return
	}
	select {
	case n.leaves <- leaveNotice{id, epoch, stay, r.rest}:
	default:
		n.metrics.packetDropped(dropQueueFull) // the member will be considered failed
	}
}

// Leave announces that this node leaves and waits, at most LeaveTimeout or until ctx ends, until
// the announcement is sent. The node still answers probes until Close, so that no member suspects
// it in the meantime.
func (n *Node) Leave(ctx context.Context) error {
	n.state.Lock()
	ready := n.started && !n.closed
	n.state.Unlock()
	if !ready {
		return nil
	}
	n.leaving.Store(true)
	notice := leaveNotice{id: n.cfg.ID, epoch: n.epoch}
	if err := n.announce(notice); err != nil {
		return err
	}
	payload := notice.payload()
	n.receiveNotice(append(payload, n.Sign(statementLeave, payload)...), false) // also for this node's own view
	timeout := n.cfg.LeaveTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	// The announcement needs a few gossip rounds before memberlist's own message; otherwise
	// other members would consider this a crash. Wait until it is sent, and then until the
	// members that received it have passed it on.
	announced := time.Now()
	n.waitForBroadcasts(ctx, timeout/2)
	if alone := n.alive.Load() < 2; !alone {
		rounds := 1 + bits.Len64(uint64(n.alive.Load()))/2 // each round multiplies the informed members by at least four
		pause(ctx, min(time.Duration(rounds)*gossipInterval, timeout/2-time.Since(announced)))
	}
	n.logger.Info("leaving the cluster", "id", n.cfg.ID)
	if err := n.list.Leave(max(timeout/2, time.Millisecond)); err != nil {
		return fmt.Errorf("leave: %w: the others will notice by probing", err)
	}
	return nil
}

// SetDraining makes the other members show this one as draining, or not any more. It has no other
// effect, and does not wait until they know. Safe for concurrent use.
func (n *Node) SetDraining(on bool) {
	if n.draining.Swap(on) == on {
		return
	}
	select {
	case n.drained <- struct{}{}:
	default:
	}
}

// followMetadata gossips the metadata of this node again when it changes, and when the certificate
// that signs it is replaced. Other members then request the new certificate. It also answers the
// doubts that memberlist does not.
func (n *Node) followMetadata(ctx context.Context) {
	var doubted <-chan struct{}
	if n.guard != nil {
		doubted = n.guard.doubted
	}
	draining := false // as the others know it
	for {
		var changed <-chan struct{}
		signed := true
		if n.proofs != nil {
			changed = n.cfg.Identity.Changed()
			select { // the proofs of other members may have changed as well
			case n.recheck <- struct{}{}:
			default:
			}
			meta := *n.delegate.meta.Load()
			signed = n.SignedNow(meta[len(meta)-MaxSignature:])
		}
		if now := n.metadata(); !signed || now.Draining != draining {
			draining = now.Draining
			n.updateMetadata(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-n.drained:
		case <-changed:
		case <-doubted:
			// The wait, for a round of gossip, also limits how often this node answers.
			_ = n.list.UpdateNode(gossipInterval)
		}
	}
}

func (n *Node) updateMetadata(m metadata) {
	if err := n.setMetadata(m); err != nil {
		n.logger.Error("cannot gossip the new metadata of this node, so other members keep the old one", "err", err)
		return
	}
	if err := n.list.UpdateNode(updateTimeout); err != nil {
		n.logger.Debug("gossiping new metadata takes long", "err", err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// waitForBroadcasts returns when the queue is sent, there is no other member, or time is up.
func (n *Node) waitForBroadcasts(ctx context.Context, limit time.Duration) {
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n.delegate.broadcasts.len() > 0 && n.alive.Load() > 1 {
		select {
		case <-tick.C:
		case <-deadline:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Close stops gossiping and waits for every goroutine of this package. Without Leave before it,
// other members see a crash. It may be called more than once.
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
	err := n.list.Shutdown() // also shuts down the transport
	n.wg.Wait()
	n.lines.Stop()
	return err
}
