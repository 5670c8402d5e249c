package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/discovery"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership/internal/gossip"
	"github.com/ringway/ringway/membership/internal/trust"
)

const (
	// maxBroadcast is the largest payload of Broadcast: what fits into an encrypted packet
	// with the longest label.
	maxBroadcast = 1200
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
	asking    handshake.Silent // streams for gossip keys whose request has not arrived yet

	list  *memberlist.Memberlist // set by Start
	guard *trust.Guard           // nil without certificates

	snapshots publish.Value[Snapshot]
	status    statusBoard
	alive     atomic.Int64 // number of members, for the queue, which must not call memberlist
	probes    probeMonitor
	lost      atomic.Pointer[[]lostMember]
	replaced  chan lostMember // another process answers at its address; to the event loop
	own       ownAddrs
	outdated  atomic.Pointer[[]Member] // superseded instances that memberlist sees alive
	rival     atomic.Pointer[Member]   // the last instance with this node's own id that answered

	cancel context.CancelFunc
	wg     sync.WaitGroup
	// unregister removes the metrics.
	unregister func()

	closing context.Context // ends when Close begins
	close   context.CancelFunc
	depart  sync.Mutex // held by Leave; memberlist panics if it leaves after its shutdown
	state   sync.Mutex // guards started and closed
	started bool
	closed  bool
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
	n := &Node{cfg: cfg, epoch: epoch, logger: cfg.Logger, lines: loglimit.New(cfg.Logger), mailbox: newMailbox(), leaves: make(chan leaveNotice, 64), probed: make(chan probeReply, 16), recheck: make(chan struct{}, 1), replaced: make(chan lostMember, 16), drained: make(chan struct{}, 1)}
	n.lost.Store(&[]lostMember{})
	n.closing, n.close = context.WithCancel(context.Background())
	queue := newQueue(func() int { return int(n.alive.Load()) }, func() { n.metrics.packetDropped(dropEvicted) })
	// A registry of its own: nothing is registered if New fails, and nothing stays after Close.
	registry := prometheus.NewRegistry()
	n.metrics = newMetrics(registry, func() float64 { return float64(queue.len()) })
	h := hello{cluster: cfg.Cluster, environment: cfg.Environment, format: helloFormat, id: cfg.ID, epoch: epoch, role: cfg.Role}
	// Made for each stream, because the keys and the time in it change.
	greet := func() hello {
		h := h
		if n.guard != nil {
			h.format, h.tick = helloSigned, n.guard.NextTick()
		}
		if cfg.Keyring != nil {
			h.keys = strings.Join(cfg.Keyring.Fingerprints(), ",")
		}
		return h
	}
	n.delegate = &delegate{
		self: gossip.InstanceName(cfg.ID, epoch), label: h, mailbox: n.mailbox, broadcasts: queue,
		living: make(map[string]struct{}), nodes: make(map[string]int), limit: cfg.MaxMembers,
		placeholder: gossip.InstanceName(cfg.ID, 0), placing: true, placed: make(chan struct{}, 1),
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
		Exclude: func(addr netip.AddrPort) bool { return addr == n.advertise || n.own.has(addr) },
		Logger:  cfg.Logger, Registerer: registry,
	})
	if err == nil {
		err = cfg.Registerer.Register(registry)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("membership: %w", err), n.transport.Shutdown())
	}
	n.unregister = func() { cfg.Registerer.Unregister(registry) }
	return n, nil
}

// secure makes the node sign its gossip and accept only signed gossip.
func (n *Node) secure() {
	cfg := trust.Config{
		Identity: n.cfg.Identity, Label: n.cfg.label(),
		Self: n.delegate.self, Epoch: n.epoch, Addr: n.Addr(),
		MaxMembers: n.cfg.MaxMembers, MaxNewMembers: n.cfg.MaxNewMembers,
		Send: n.transport.sendRaw, Deliver: n.transport.deliver,
		AddrOf: n.addrOf, Answered: n.hearProbed,
		Dropped: n.metrics.dropped, Unproven: n.metrics.unproven,
		Clock: n.cfg.clock, Logger: n.logger,
	}
	if n.cfg.Keyring != nil {
		cfg.Keys, cfg.PrimaryKey = n.cfg.Keyring.Keys, n.cfg.Keyring.primary
	}
	n.guard = trust.New(n.transport.ctx, cfg)
	n.transport.guard, n.delegate.guard = n.guard, n.guard
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
// ends, the node follows the members no more: its snapshots stay as they are. Others see it alive
// until Close. For an orderly stop call Leave and Close.
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
	self := memberOf(n.metadata(), n.Addr())
	self.ServiceNames = n.serviceNames(event{name: n.delegate.self})
	// The first snapshot has only this node and is published here, so that Snapshot is never nil
	// after Start.
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
		c.UDPBufferSize = trust.MaxPacket
	case n.cfg.Keyring != nil:
		c.Keyring = n.cfg.Keyring.ring
	}
	c.EnableCompression = false // costs 80 µs a packet and saves nothing on packets this small
	c.ProbeInterval, c.SuspicionMult, c.SuspicionMaxTimeoutMult = probeInterval, suspicionMult, suspicionMaxMult
	c.GossipInterval, c.GossipNodes = gossipInterval, gossipNodes
	c.HandoffQueueDepth = 8192
	c.GossipVerifyIncoming = false // until keepQueueOccupied is done
	// The exchange of all states, memberlist's anti-entropy. It repairs what packets have lost.
	c.PushPullInterval = time.Minute
	// Longer than another member lets an exchange wait for its turn (see package trust).
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

// Close stops gossiping and waits for every goroutine of this package. Without Leave before it,
// other members see a crash; it cuts a Leave short that has not ended. It may be called more than
// once.
func (n *Node) Close() error {
	n.state.Lock()
	defer n.state.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	n.close()
	n.unregister()
	if !n.started {
		return n.transport.Shutdown()
	}
	n.cancel()
	n.depart.Lock() // a Leave that waits has ended by now, or is about to
	defer n.depart.Unlock()
	err := n.list.Shutdown() // also shuts down the transport
	n.wg.Wait()
	n.lines.Stop()
	return err
}
