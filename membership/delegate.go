package membership

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership/internal/gossip"
	"github.com/ringway/ringway/membership/internal/trust"
)

// delegate implements all delegate interfaces of memberlist. It is a separate type so that
// these methods are not part of Node's API.
//
// Most methods run under memberlist's lock: they copy their arguments and return. They must
// not call memberlist and must not block. They can run before memberlist.Create returns.
type delegate struct {
	self       string // instance name
	label      hello
	meta       atomic.Pointer[[]byte] // replaced when the certificate changes
	guard      *trust.Guard           // nil without certificates
	mailbox    *mailbox
	broadcasts *queue
	topics     map[byte]func([]byte) // written before start
	metrics    *metrics
	logger     *slog.Logger
	conflicts  atomic.Uint64
	limit      int // most members
	// refusing is true from the first member that the limit refuses until there is room again.
	refusing   atomic.Bool
	refusalLog time.Time // of the newest log line about it; under memberlist's lock

	// placeholder is the instance that keeps memberlist's queue occupied. It joins and dies
	// while placing is true, under memberlist's lock; placed receives a value for each.
	placeholder string
	placing     bool
	placed      chan struct{}

	// living are the instances that memberlist sees alive, and nodes counts those of each id.
	// memberlist holds its lock during all calls that read or write these maps.
	living map[string]struct{}
	nodes  map[string]int
}

// NodeMeta returns this node's metadata; New has checked that it fits.
func (d *delegate) NodeMeta(int) []byte { return *d.meta.Load() }

// messageFormat is the first byte of every user message, followed by a topic and the payload.
const messageFormat = 1

// NotifyMsg passes a message to the handler of its topic. The buffer belongs to memberlist.
func (d *delegate) NotifyMsg(b []byte) {
	if len(b) < 2 || b[0] != messageFormat {
		d.metrics.packetDropped(trust.DropMessageFormat)
		return
	}
	handle, ok := d.topics[b[1]]
	if !ok {
		d.metrics.packetDropped(dropMessageTopic)
		return
	}
	handle(append([]byte(nil), b[2:]...))
}

// GetBroadcasts fills the remaining space of a packet. memberlist puts its own messages first.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.broadcasts.take(overhead, limit)
}

// LocalState and MergeRemoteState carry nothing: records are compared over a separate stream
// with an admitted peer.
func (d *delegate) LocalState(bool) []byte        { return nil }
func (d *delegate) MergeRemoteState([]byte, bool) {}

// NotifyAlive checks nodes that the hello did not: gossip can announce a node that never sent
// this node a hello. This node itself is always accepted; otherwise memberlist would lose its
// own entry.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if n.Name == d.self || d.isPlaceholder(n) {
		return nil
	}
	if d.full(n.Name) {
		d.metrics.refused(inbound, fieldTooMany)
		d.reportFull()
		return fmt.Errorf("node %q exceeds the limit: %d members are known: raise the limit on members", n.Name, d.limit)
	}
	if d.guard != nil {
		return d.guard.Prove(n.Name, addrOf(n), n.Meta)
	}
	m, err := gossip.DecodeMetadata(n.Meta)
	switch {
	case err != nil:
		d.metrics.refused(inbound, fieldMalformed)
		return err
	case m.Cluster != d.label.cluster:
		d.metrics.refused(inbound, fieldCluster)
		return fmt.Errorf("node %q is of cluster %q", n.Name, m.Cluster)
	case m.Environment != d.label.environment:
		d.metrics.refused(inbound, fieldEnvironment)
		return fmt.Errorf("node %q is of environment %q", n.Name, m.Environment)
	case gossip.InstanceName(m.ID, m.Epoch) != n.Name:
		d.metrics.refused(inbound, fieldID)
		return fmt.Errorf("node %q claims to be %q", n.Name, gossip.InstanceName(m.ID, m.Epoch))
	}
	return nil
}

// full reports whether an instance would be that of one member too many. Where identities are
// proven, the boots of a node are one member; else each could be that of another process. An
// instance that memberlist sees alive already is never refused: an update is no new member.
func (d *delegate) full(instance string) bool {
	if _, known := d.living[instance]; known {
		return false
	}
	if d.guard == nil {
		return len(d.living) >= d.limit
	}
	return d.nodes[nodeOf(instance)] == 0 && len(d.nodes) >= d.limit
}

// fullQuiet is how long after a log line about the limit another one is not written, while
// members come and go at the limit.
const fullQuiet = 10 * time.Minute

// reportFull logs once that the limit is reached: from now on the members that this node sees
// are an arbitrary part of the cluster.
func (d *delegate) reportFull() {
	if d.refusing.Swap(true) {
		return
	}
	d.metrics.full.Set(1)
	if time.Since(d.refusalLog) < fullQuiet {
		return
	}
	d.refusalLog = time.Now()
	d.logger.Error("the limit on members is reached: this member refuses more, and sees only a part of the cluster: raise --max-members on all members", "max_members", d.limit)
}

// alive records whether memberlist sees an instance alive. The guard learns of it too: an instance
// that is gone gives way to a later boot of its node first.
func (d *delegate) alive(instance string, alive bool) {
	if _, known := d.living[instance]; known == alive {
		return
	}
	id := nodeOf(instance)
	if alive {
		d.living[instance] = struct{}{}
		d.nodes[id]++
	} else {
		delete(d.living, instance)
		if d.nodes[id]--; d.nodes[id] == 0 {
			delete(d.nodes, id)
		}
		if !d.full(instance) && d.refusing.Swap(false) {
			d.metrics.full.Set(0)
		}
	}
	if d.guard != nil {
		d.guard.RecordGone(instance, !alive)
	}
}

// nodeOf returns the id in the name of an instance.
func nodeOf(instance string) string {
	id, _, _ := gossip.SplitInstance(instance)
	return id
}

func (d *delegate) isPlaceholder(n *memberlist.Node) bool {
	return d.placing && n.Name == d.placeholder
}

func (d *delegate) NotifyJoin(n *memberlist.Node) {
	if d.isPlaceholder(n) {
		d.placed <- struct{}{}
		return
	}
	d.alive(n.Name, true)
	d.mailbox.post(eventOf(n, false))
}
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.mailbox.post(eventOf(n, false)) }
func (d *delegate) NotifyLeave(n *memberlist.Node) {
	if d.isPlaceholder(n) {
		d.placing = false
		d.placed <- struct{}{}
		return
	}
	d.alive(n.Name, false)
	d.mailbox.post(eventOf(n, true))
}

// NotifyConflict is called for two live nodes with one name. Names consist of id and boot
// time, so this happens only if a name is forged or two clocks agree to the millisecond.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.metrics.duplicates.Add(1)
	if d.conflicts.Add(1) == 1 {
		d.logger.Error("two live processes share one instance name: give each its own --id",
			"instance", existing.Name, "addr", addrOf(existing), "other", addrOf(other))
	}
}

func eventOf(n *memberlist.Node, gone bool) event {
	return event{name: n.Name, meta: append([]byte(nil), n.Meta...), addr: addrOf(n), gone: gone}
}

func addrOf(n *memberlist.Node) string {
	return net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))
}

// event is what a delegate callback reports about one instance. It is a copy, because
// memberlist changes its own value later.
type event struct {
	name string
	meta []byte
	addr string
	gone bool
}

// mailbox passes events from memberlist's callbacks, which run under its lock, to the event
// loop. It keeps only the newest event of an instance, so its size is limited and post never
// blocks. memberlist reports the events of an instance in order, so an older one has nothing that
// the newest lacks.
type mailbox struct {
	mu     sync.Mutex
	byName map[string]event
	order  []string
	wake   chan struct{} // capacity 1
}

func newMailbox() *mailbox {
	return &mailbox{byName: make(map[string]event), wake: make(chan struct{}, 1)}
}

func (b *mailbox) post(e event) {
	b.mu.Lock()
	if _, waiting := b.byName[e.name]; !waiting {
		b.order = append(b.order, e.name)
	}
	b.byName[e.name] = e
	b.mu.Unlock()
	publish.Notify(b.wake)
}

// take empties the mailbox and returns the events, oldest first.
func (b *mailbox) take() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]event, 0, len(b.order))
	for _, name := range b.order {
		out = append(out, b.byName[name])
	}
	clear(b.byName)
	b.order = b.order[:0]
	return out
}
