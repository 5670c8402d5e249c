package advertise

import (
	"context"
	"net"

	"github.com/ringway/ringway/membership"
)

// Gossip is the part of a membership node that this package needs. *membership.Node
// implements it.
type Gossip interface {
	// Snapshot returns the current state of the cluster, nil before the node has started.
	Snapshot() *membership.Snapshot
	// Watch delivers the current snapshot, then always the newest.
	Watch(ctx context.Context) <-chan *membership.Snapshot
	// Broadcast queues a message, which replaces the queued message of that topic and
	// key. Messages above 1,200 bytes are refused.
	Broadcast(topic byte, key string, payload []byte) error
	// HandleGossip registers the handler of a topic's messages, before start. The handler
	// may keep the payload.
	HandleGossip(topic byte, h func(payload []byte))
	// Leave announces that this member leaves.
	Leave(ctx context.Context) error
	// HandleStream registers the handler of a protocol's streams, before start.
	HandleStream(protocol string, h func(ctx context.Context, peer membership.Peer, conn net.Conn))
	// OpenStream opens a stream to a live member.
	OpenStream(ctx context.Context, memberID, protocol string) (net.Conn, error)
	// Sign returns this node's signature of a statement, at most
	// [membership.MaxSignature] bytes; nil in a fleet without certificates.
	Sign(kind membership.Statement, statement []byte) []byte
	// Verify reports whether the member with that id made the statement. The error
	// wraps [membership.ErrUnproven] while its certificate is not known. It must be safe
	// for concurrent use.
	Verify(author string, kind membership.Statement, statement, signature []byte) error
	// SignedNow reports whether a signature of this node was made with its current
	// certificate.
	SignedNow(signature []byte) bool
}

// recordPublisher is a Gossip of a worker that does not gossip: it gets the record itself, of any
// size, in place of a broadcast.
type recordPublisher interface{ PublishRecord(raw []byte) }

// recordSource is a Gossip that brings the records of attached workers: their relays send them to
// each other together with the certificates, so that members that do not know these workers get
// none. The handler checks a record, merges it, and returns what it is of. What HandleRecords returns is
// called with each record that the catalogue has afterwards, and with sequence 0 when it has dropped the
// record of that life.
type recordSource interface {
	HandleRecords(take func(ctx context.Context, raw []byte) (author string, epoch, sequence uint64, err error)) (kept func(author string, epoch, sequence uint64))
}

// takeAttached merges the record of an attached worker.
func (c *Catalogue) takeAttached(ctx context.Context, raw []byte) (author string, epoch, sequence uint64, err error) {
	x := c.examine(raw)
	if x.err != nil {
		c.metrics.receive(outcomeOf(x.err))
		return "", 0, 0, x.err
	}
	if x.entry.record.Relay {
		c.metrics.receive(wrongRole)
		return "", 0, 0, refuse(string(wrongRole), "record of %q: a worker states no plan", x.entry.record.NodeID)
	}
	author, epoch, sequence = x.entry.record.NodeID, x.entry.record.Epoch, x.entry.stamp.sequence
	askErr := c.onLoop(ctx, func() {
		_, _, err = c.merge(x)
		if e := c.store.entries[x.entry.instance()]; e != nil {
			c.kept(author, epoch, e.stamp.sequence)
		}
	})
	if askErr != nil {
		err = askErr
	}
	return author, epoch, sequence, err
}
