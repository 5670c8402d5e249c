package advertise

import (
	"context"
	"maps"
	"math"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

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
// none. The handler checks a record, merges it, and returns what it is of.
type recordSource interface {
	HandleRecords(take func(ctx context.Context, raw []byte) (author string, epoch, sequence uint64, err error))
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
	if askErr := c.onLoop(ctx, func() { _, _, err = c.merge(x) }); askErr != nil {
		err = askErr
	}
	return author, epoch, sequence, err
}

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
	select {
	case b.wake <- struct{}{}:
	default:
	}
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

// Limits of parked records. A node that joins receives most records before it knows the
// certificates of their authors.
const (
	parkedAge      = 10 * time.Minute
	maxParked      = 16_384
	maxParkedBytes = 16 << 20
)

// unverified holds records whose author's certificate is not known yet, the newest of each
// instance. These records are not trusted: they are kept separate from the store and never
// replace a verified record. When it is full, new records are dropped, and an exchange
// brings them later. Run's goroutine owns it.
//
// A forgery can take the place of a genuine record here. It is dropped when the certificate
// arrives, and an exchange brings the genuine record.
type unverified struct {
	records map[instance]unverifiedRecord
	bytes   int
}

type unverifiedRecord struct {
	entry *entry
	since time.Time
}

func newUnverified() *unverified { return &unverified{records: map[instance]unverifiedRecord{}} }

// put parks a record. The outcome is unproven if it was parked, else old or refused. Number and
// bytes are limited, because a record may have 256 kB.
func (p *unverified) put(e *entry, now time.Time) outcome {
	key := e.instance()
	before, known := p.records[key]
	size := len(e.raw)
	if known {
		if e.stamp.compare(before.entry.stamp) <= 0 {
			return old
		}
		size -= len(before.entry.raw)
	}
	if !known && len(p.records) >= maxParked || p.bytes+size > maxParkedBytes {
		return refused
	}
	p.records[key] = unverifiedRecord{e, now}
	p.bytes += size
	return unproven
}

// raw returns the parked record of an instance, nil if there is none.
func (p *unverified) raw(key instance) []byte {
	if r, ok := p.records[key]; ok {
		return r.entry.raw
	}
	return nil
}

func (p *unverified) ids() (ids []string) {
	for key := range p.records {
		ids = append(ids, key.id)
	}
	return ids
}

func (p *unverified) drop(key instance) {
	if r, ok := p.records[key]; ok {
		p.bytes -= len(r.entry.raw)
		delete(p.records, key)
	}
}

func (p *unverified) expire(now time.Time) {
	maps.DeleteFunc(p.records, func(_ instance, r unverifiedRecord) bool {
		expired := now.Sub(r.since) >= parkedAge
		if expired {
			p.bytes -= len(r.entry.raw)
		}
		return expired
	})
}

// Limits of the records that one member may replace its own with. A member publishes once a
// second at most, so only one that does not keep to that reaches them. Each newer record costs
// every member the check of a signature and a view, and every relay a plan. Without certificates
// there is no limit: any member could use up that of another.
const (
	// Twice what a member needs that publishes every second.
	updatesPerMinute = 120
	updatesBurst     = 60
)

// updates counts the newer records of each author with a token bucket. Only records that their
// author has signed take a token, so no other member can use up an author's. Run's goroutine
// owns it. Buckets are by node id, so a restart does not fill one.
type updates map[string]*rate.Limiter

// allow takes a token of an author.
func (u updates) allow(author string, now time.Time) bool {
	bucket := u[author]
	if bucket == nil {
		bucket = rate.NewLimiter(updatesPerMinute/60., updatesBurst)
		u[author] = bucket
	}
	return bucket.AllowN(now, 1)
}

// spent reports whether an author has no token left.
func (u updates) spent(author string, now time.Time) bool {
	bucket := u[author]
	return bucket != nil && bucket.TokensAt(now) < 1
}

// expire removes the buckets that are full again.
func (u updates) expire(now time.Time) {
	maps.DeleteFunc(u, func(_ string, bucket *rate.Limiter) bool { return bucket.TokensAt(now) >= updatesBurst })
}
