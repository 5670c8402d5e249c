package membership

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// delegate is everything memberlist calls back. It is a type of its own so that
// these methods are not part of Node's API.
//
// Most of them run under memberlist's lock: they copy what they were given and
// return. None calls memberlist, none blocks. They run before Create returns.
type delegate struct {
	self       string // instance name
	label      hello
	meta       atomic.Pointer[[]byte] // signed anew when the certificate changes
	proofs     *proofs                // nil without certificates
	mailbox    *mailbox
	broadcasts *queue
	topics     map[byte]func([]byte) // written before start
	metrics    *metrics
	logger     *slog.Logger
	conflicts  atomic.Uint64
	limit      int // of members

	// living are the instances that memberlist has alive. memberlist calls with its
	// lock held whatever reads or writes this.
	living map[string]struct{}
}

// NodeMeta is this node's metadata; New made sure that it fits.
func (d *delegate) NodeMeta(int) []byte { return *d.meta.Load() }

// messageFormat leads every user message, then a topic, then the payload.
const messageFormat = 1

// NotifyMsg hands a message to its topic. The buffer is memberlist's.
func (d *delegate) NotifyMsg(b []byte) {
	if len(b) < 2 || b[0] != messageFormat {
		d.metrics.packetDropped(dropMessageFormat)
		return
	}
	handle, ok := d.topics[b[1]]
	if !ok {
		d.metrics.packetDropped(dropMessageTopic)
		return
	}
	handle(append([]byte(nil), b[2:]...))
}

// GetBroadcasts fills what is left of a packet.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.broadcasts.take(overhead, limit)
}

// LocalState and MergeRemoteState carry nothing: what members offer is compared
// over a stream of its own, with a peer that was admitted.
func (d *delegate) LocalState(bool) []byte        { return nil }
func (d *delegate) MergeRemoteState([]byte, bool) {}

// NotifyAlive is the backstop behind the hello: gossip can bring news of a node
// that never greeted us. This node is always accepted, or memberlist would lose
// its own entry.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if n.Name == d.self {
		return nil
	}
	if _, known := d.living[n.Name]; !known && len(d.living) >= d.limit {
		d.metrics.refused(inbound, fieldTooMany)
		return fmt.Errorf("node %q is one too many: %d members are known: raise the limit on members", n.Name, d.limit)
	}
	if d.proofs != nil {
		_, err := d.proofs.prove(told{name: n.Name, addr: addrOf(n), metadata: n.Meta})
		return err
	}
	m, err := decodeMetadata(n.Meta)
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
	case instanceName(m.ID, m.Epoch) != n.Name:
		d.metrics.refused(inbound, fieldID)
		return fmt.Errorf("node %q claims to be %q", n.Name, instanceName(m.ID, m.Epoch))
	}
	return nil
}

func (d *delegate) NotifyJoin(n *memberlist.Node) {
	d.living[n.Name] = struct{}{}
	d.mailbox.post(sightingOf(n, false))
}
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.mailbox.post(sightingOf(n, false)) }
func (d *delegate) NotifyLeave(n *memberlist.Node) {
	delete(d.living, n.Name)
	d.mailbox.post(sightingOf(n, true))
}

// NotifyConflict cannot happen between members that name themselves by id and
// boot time, unless a name is forged or two clocks agree to the millisecond.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.metrics.duplicates.Inc()
	if d.conflicts.Add(1) == 1 {
		d.logger.Error("two live processes share one instance name: give each its own --id",
			"instance", existing.Name, "addr", addrOf(existing), "other", addrOf(other))
	}
}

func sightingOf(n *memberlist.Node, gone bool) sighting {
	return sighting{name: n.Name, meta: append([]byte(nil), n.Meta...), addr: addrOf(n), gone: gone}
}

func addrOf(n *memberlist.Node) string {
	return net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))
}
