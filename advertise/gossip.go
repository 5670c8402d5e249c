package advertise

import (
	"context"
	"math"
	"net"

	"github.com/ringway/ringway/membership"
)

// Gossip is what this package needs of a membership node. *membership.Node
// implements it.
type Gossip interface {
	// Snapshot is the cluster as it is now, nil before the node has started.
	Snapshot() *membership.Snapshot
	// Watch delivers the current snapshot, then always the newest.
	Watch(ctx context.Context) <-chan *membership.Snapshot
	// Broadcast queues a message; it replaces the queued one of that topic and
	// key. Above 1,200 bytes it is refused.
	Broadcast(topic byte, key string, payload []byte) error
	// HandleGossip registers, before start, what a topic's messages go to. The
	// payload is the handler's to keep.
	HandleGossip(topic byte, h func(payload []byte))
	// HandleStream registers, before start, what a protocol's streams go to.
	HandleStream(protocol string, h func(ctx context.Context, peer membership.Peer, conn net.Conn))
	// OpenStream opens a stream to a live member.
	OpenStream(ctx context.Context, memberID, protocol string) (net.Conn, error)
	// Sign returns this node's signature of a statement, at most
	// [membership.MaxSignature] bytes; nil in a fleet without certificates.
	Sign(kind membership.Statement, statement []byte) []byte
	// Verify reports whether the member with that id made the statement. The error
	// wraps [membership.ErrUnproven] while its certificate is not known. It is called
	// from many goroutines.
	Verify(author string, kind membership.Statement, statement, signature []byte) error
	// SignedNow reports whether a signature of this node was made with the
	// certificate that it has now.
	SignedNow(signature []byte) bool
}

// GossipTopic is the topic of this package's broadcasts.
const GossipTopic byte = 'a'

// maxBroadcast is the most bytes of a message that gossip carries reliably.
const maxBroadcast = 1200

// maxMailBytes bounds what one message may occupy in the mailbox.
const maxMailBytes = 4 << 10

// The first byte of a broadcast.
const (
	kindRecord byte = 1 // a record follows
	kindHint   byte = 2 // [id, epoch, sequence, hash, size] of one too large to send
)

type wireHint struct {
	NodeID                string
	Epoch, Sequence, Hash uint64
	Size                  int
}

// message is the broadcast that spreads a record.
func (e *entry) message() ([]byte, error) {
	if 1+len(e.raw) <= maxBroadcast {
		return append([]byte{kindRecord}, e.raw...), nil
	}
	b, err := encode(wireHint{e.record.NodeID, e.record.Epoch, e.stamp.sequence, e.stamp.hash, len(e.raw)})
	if err != nil {
		return nil, err
	}
	return append([]byte{kindHint}, b...), nil
}

// decodeMail reads just enough of a broadcast to file it. Its signature is checked
// later: this runs on a receive goroutine of membership.
func decodeMail(payload []byte) (mail, error) {
	if len(payload) == 0 || len(payload) > maxMailBytes {
		return mail{}, refuse("malformed", "broadcast of %d bytes", len(payload))
	}
	switch r := (&reader{rest: payload[1:]}); payload[0] {
	case kindRecord:
		m := mail{raw: payload[1:]}
		fields := r.array(math.MaxInt32, "malformed")
		signed := signedPart{statement: r.rest}
		head := readRecordHead(r, fields)
		r.skip(r.array(MaxServices, "services"))
		signed.statement = signed.statement[:len(signed.statement)-len(r.rest)]
		if fields > recordFields {
			signed.signature = r.optionalBytes(membership.MaxSignature, "signature")
		}
		m.from, m.stamp = instance{head.NodeID, head.Epoch}, stamp{head.Sequence, hashOf(m.raw, signed)}
		return m, r.err
	case kindHint:
		m := mail{hint: true}
		n := r.array(math.MaxInt32, "malformed")
		m.from = instance{r.string(MaxNodeIDBytes, "node_id"), r.uint()}
		m.stamp = stamp{r.uint(), r.uint()}
		if size := r.uint(); r.err == nil && size > MaxRecordBytes {
			r.fail(refuse("too_large", "hint of a record of %d bytes: want at most %d", size, MaxRecordBytes))
		}
		if r.err == nil && (n < 5 || m.from.id == "" || m.stamp.sequence > maxSequence) {
			r.fail(refuse("malformed", "hint without an id or with a sequence beyond %d", uint64(maxSequence)))
		}
		r.skip(n - 5)
		return m, r.finish()
	default:
		return mail{}, refuse("format", "broadcast of kind %d", payload[0])
	}
}

// hear runs on a receive goroutine of membership: it files and returns.
func (c *Catalogue) hear(payload []byte) {
	m, err := decodeMail(payload)
	switch {
	case err != nil:
		c.metrics.receive(outcomeOf(err))
	case !c.mailbox.put(m):
		c.metrics.receive(overflowed)
	}
}
