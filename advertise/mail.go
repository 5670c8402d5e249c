package advertise

import (
	"math"
	"sync"

	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership"
)

// gossipTopic is the topic of this package's broadcasts.
const gossipTopic byte = 'a'

// maxBroadcast is the most bytes of a message that gossip carries reliably.
const maxBroadcast = 1200

// maxMailBytes limits the size of one message in the mailbox.
const maxMailBytes = 4 << 10

// The first byte of a broadcast.
const (
	kindRecord byte = 1 // a record follows
	kindHint   byte = 2 // [id, epoch, sequence, hash, size] of a record too large for gossip
)

type wireHint struct {
	NodeID                string
	Epoch, Sequence, Hash uint64
	Size                  int
}

// message returns the broadcast for a record: the record itself, or a hint of it. The hint has the
// stamp, so a member that has the record already fetches nothing.
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

// decodeMail reads only the part of a broadcast that the mailbox needs. The signature is
// checked later, because decodeMail runs on a receive goroutine of membership. It skips the
// services to find the end of the statement, which the hash covers.
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

// receiveGossip puts a broadcast into the mailbox. It runs on a receive goroutine of membership and
// must not block.
func (c *Catalogue) receiveGossip(payload []byte) {
	m, err := decodeMail(payload)
	switch {
	case err != nil:
		c.metrics.receive(outcomeOf(err))
	case !c.mailbox.put(m):
		c.metrics.receive(overflowed)
	}
}

// mail is one gossip message with its head decoded: either a record in raw, or a hint that
// a record can be fetched.
type mail struct {
	from  instance // owner of the record, not the sender of the message
	stamp stamp
	raw   []byte
	hint  bool
}

// mailbox accepts messages from the network's goroutines without blocking them. It keeps
// the newest few per instance and kind, not only the newest: signatures are checked later,
// and a forged message with a high sequence must not replace the genuine one. When it is
// full, messages are dropped and the next exchange brings the records. One instance has at most
// mailPerKey records and as many hints in it.
type mailbox struct {
	limit int
	wake  chan struct{} // capacity 1: there is mail

	mu      sync.Mutex
	waiting map[mailKey][]mail
	count   int
}

// mailPerKey is how many messages of one instance and kind the mailbox keeps.
const mailPerKey = 4

type mailKey struct {
	instance instance
	hint     bool
}

func newMailbox(limit int) *mailbox {
	return &mailbox{limit: limit, wake: make(chan struct{}, 1), waiting: map[mailKey][]mail{}}
}

// put adds a message. It returns false if the mailbox is full.
func (b *mailbox) put(m mail) bool {
	taken := b.file(m)
	publish.Notify(b.wake)
	return taken
}

// file adds a message to those of its key. At their limit the oldest gives way to a newer one, also
// when the mailbox is full: that takes no place of another instance.
func (b *mailbox) file(m mail) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := mailKey{m.from, m.hint}
	same := b.waiting[key]
	oldest := 0
	for i, w := range same {
		if w.stamp == m.stamp {
			return true
		}
		if w.stamp.compare(same[oldest].stamp) < 0 {
			oldest = i
		}
	}
	switch {
	case len(same) == mailPerKey:
		if m.stamp.compare(same[oldest].stamp) > 0 {
			same[oldest] = m
		}
	case b.count >= b.limit:
		return false
	default:
		b.waiting[key] = append(same, m)
		b.count++
	}
	return true
}

// take empties the mailbox and returns its messages.
func (b *mailbox) take() []mail {
	b.mu.Lock()
	waiting := b.waiting
	b.waiting, b.count = map[mailKey][]mail{}, 0
	b.mu.Unlock()
	var taken []mail
	for _, same := range waiting {
		taken = append(taken, same...)
	}
	return taken
}
