package advertise

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/ringway/ringway/membership"
)

// Limits of one exchange. Sizes are those after inflating.
const (
	maxFrameBytes       = 512 << 10 // one frame
	maxOpeningBytes     = 1 << 10   // the first frame of a peer: a root, or a fetch
	maxExchangeBytes    = 64 << 20  // all frames of one direction
	minFrameCharge      = 16 << 10  // least size that a frame counts as: limits the number of tiny frames
	maxItems            = 1 << 17   // instances in all lists or wants, or records, of one direction
	maxBadRecords       = 1 << 10   // invalid records, perhaps of a later build, before the exchange is ended
	maxUnproven         = 2         // records of one live member with an unknown certificate; more are bad records
	frameTimeout        = 10 * time.Second
	exchangeTimeout     = 60 * time.Second
	itemsPerFrame       = 1024     // instances, of at most 170 bytes each, or records
	recordBytesPerFrame = 64 << 10 // bytes after which a frame of records is sent
	sendBurst           = 64 << 10 // burst of the rate limit, in bytes
	deflateFrom         = 256      // least size of a frame that is deflated, in bytes
)

// frameKind is the kind of a frame. On the wire a frame is its length (4 bytes, big
// endian, of kind and body), its kind (1 byte) and its body: msgpack, except for hello and
// digest. Fields that a later build adds at the end of a body are skipped.
type frameKind byte

const (
	frameHello   frameKind = 1 + iota // the initiator's roots of workers and of relays, first
	frameSame                         // the roots are equal
	frameDigest                       // salt, 256 hashes of 4 bytes, and 1 if they cover relays
	frameList                         // [bitmap of buckets, [[id, epoch, sequence, hash]…]]
	frameWant                         // [[[id, epoch]…]]; as the first frame, a fetch
	frameRecords                      // [[record…]]
	frameEnd                          // end of the turn
	frameBusy                         // the responder is busy: try later, or another member

	// deflated marks a frame whose body is compressed.
	deflated frameKind = 0x80
)

// bitmap marks buckets.
type bitmap [buckets / 8]byte

func (b *bitmap) set(i int)      { b[i/8] |= 1 << (i % 8) }
func (b *bitmap) has(i int) bool { return b[i/8]&(1<<(i%8)) != 0 }

// listed is one entry of a list: the stamp of the sender's record of an instance.
type listed struct {
	instance instance
	stamp    stamp
}

type (
	wireList struct {
		Buckets []byte
		Entries []wireListed
	}
	wireListed struct {
		NodeID                string
		Epoch, Sequence, Hash uint64
	}
	wireWant     struct{ Instances []wireInstance }
	wireInstance struct {
		NodeID string
		Epoch  uint64
	}
	wireRecords struct{ Records [][]byte }
)

// opening is the body of a hello. An initiator of an earlier release sends no root of relays.
type opening struct {
	root, relayRoot uint64
	relays          bool
}

func decodeHello(b []byte) (o opening, err error) {
	if len(b) < 8 {
		return o, errTruncated
	}
	o.root = binary.BigEndian.Uint64(b)
	if o.relays = len(b) >= 16; o.relays {
		o.relayRoot = binary.BigEndian.Uint64(b[8:])
	}
	return o, nil
}

func decodeDigest(b []byte) (d digest, err error) {
	if len(b) < digestBytes {
		return d, errTruncated
	}
	d.salt = binary.BigEndian.Uint64(b)
	for i := range d.hashes {
		d.hashes[i] = binary.BigEndian.Uint32(b[8+4*i:])
	}
	d.relays = len(b) > digestBytes && b[digestBytes] == 1
	return d, nil
}

// body reads the array of a frame's body and skips fields added by later builds.
func body(b []byte, fields int, read func(r *reader)) error {
	r := &reader{rest: b}
	tuple(r, fields, func() { read(r) })
	return r.finish()
}

// tuple is body for an array inside a body.
func tuple(r *reader, fields int, read func()) {
	n := r.array(math.MaxInt32, "malformed")
	if r.err == nil && n < fields {
		r.fail(errTruncated)
	}
	read()
	r.skip(n - fields)
}

// decodeList reads a frame of a list. The number of entries that the frame announces reserves
// nothing: an entry takes memory when it has been read.
func decodeList(b []byte) (marked bitmap, entries []listed, err error) {
	err = body(b, 2, func(r *reader) {
		copy(marked[:], r.bytes(len(marked), "malformed"))
		for range r.array(itemsPerFrame, "endless") {
			var l listed
			tuple(r, 4, func() {
				l.instance = instance{r.string(MaxNodeIDBytes, "node_id"), r.uint()}
				l.stamp = stamp{r.uint(), r.uint()}
			})
			if r.err != nil {
				return
			}
			entries = append(entries, l)
		}
	})
	return marked, entries, err
}

func decodeWant(b []byte) (wanted []instance, err error) {
	err = body(b, 1, func(r *reader) {
		for range r.array(itemsPerFrame, "endless") {
			var i instance
			tuple(r, 2, func() { i = instance{r.string(MaxNodeIDBytes, "node_id"), r.uint()} })
			if r.err != nil {
				return
			}
			wanted = append(wanted, i)
		}
	})
	return wanted, err
}

// decodeRecords copies the records, so that a stored record does not keep the whole frame
// in memory.
func decodeRecords(b []byte) (raws [][]byte, err error) {
	err = body(b, 1, func(r *reader) {
		for range r.array(itemsPerFrame, "endless") {
			raw := r.bytes(MaxRecordBytes, "too_large")
			if r.err != nil {
				return
			}
			raws = append(raws, append([]byte(nil), raw...))
		}
	})
	return raws, err
}

// frames reads and writes the frames of one exchange, within its limits.
type frames struct {
	direction string // outward or inward
	peer      membership.Peer
	conn      net.Conn
	in        *bufio.Reader
	end       time.Time // when the whole exchange must be over
	rate      *rate.Limiter
	counter   *prometheus.CounterVec

	dropped        int            // bad records received
	firstBad       error          // why the first of them was dropped
	unproven       map[string]int // records of live members with an unknown certificate, by author
	foreign        *entry         // a record in the name of this node that it did not write
	sent, received int            // bytes, limited by maxExchangeBytes
	deflater       *flate.Writer  // created at first use, because most exchanges do not need it
	inflater       io.ReadCloser
}

func (c *Catalogue) newFrames(direction string, peer membership.Peer, conn net.Conn) *frames {
	return &frames{
		direction: direction, peer: peer, conn: conn, in: bufio.NewReader(conn),
		end: time.Now().Add(exchangeTimeout), rate: c.rate, counter: c.metrics.bytes,
	}
}

// deadline is when the next read or write must have ended. The end of the whole exchange bounds a
// peer that is just in time with each of many frames.
func (f *frames) deadline() time.Time {
	if d := time.Now().Add(frameTimeout); d.Before(f.end) {
		return d
	}
	return f.end
}

// send writes one frame, deflated if that makes it smaller, at the node's rate.
//
// It sends in parts of the size of the burst. The deadline of a part begins after the wait for the
// rate, so it measures only how fast the peer reads.
func (f *frames) send(ctx context.Context, kind frameKind, body []byte) error {
	if f.sent += max(1+len(body), minFrameCharge); 1+len(body) > maxFrameBytes || f.sent > maxExchangeBytes {
		return fmt.Errorf("send frame of %d bytes, %d with those before: at most %d and %d fit, the next exchange brings the rest", 1+len(body), f.sent, maxFrameBytes, maxExchangeBytes)
	}
	kind, body, err := f.squeeze(kind, body)
	if err != nil {
		return err
	}
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 5+len(body)), uint32(1+len(body)))
	out = append(append(out, byte(kind)), body...)
	for len(out) > 0 {
		n := min(len(out), f.rate.Burst())
		if err := f.rate.WaitN(ctx, n); err != nil {
			return fmt.Errorf("wait to send at %v bytes a second: %w", f.rate.Limit(), err)
		}
		if err := f.conn.SetWriteDeadline(f.deadline()); err != nil {
			return err
		}
		if _, err := f.conn.Write(out[:n]); err != nil {
			return err
		}
		f.counter.WithLabelValues("sent").Add(float64(n))
		out = out[n:]
	}
	return nil
}

func (f *frames) squeeze(kind frameKind, body []byte) (frameKind, []byte, error) {
	if len(body) < deflateFrom || kind == frameDigest { // hashes do not compress
		return kind, body, nil
	}
	var out bytes.Buffer
	if f.deflater == nil {
		f.deflater, _ = flate.NewWriter(nil, flate.DefaultCompression) // fails only for an invalid level
	}
	f.deflater.Reset(&out)
	if _, err := f.deflater.Write(body); err != nil {
		return 0, nil, err
	}
	if err := f.deflater.Close(); err != nil {
		return 0, nil, err
	}
	if out.Len() >= len(body) {
		return kind, body, nil
	}
	return kind | deflated, out.Bytes(), nil
}

// receive returns the next frame, of at most limit bytes. The length is checked before the
// frame is read, and again while it is inflated.
//
// Each frame counts as at least minFrameCharge, so one direction of an exchange has at most 4,096
// frames.
func (f *frames) receive(limit int) (frameKind, []byte, error) {
	if err := f.conn.SetReadDeadline(f.deadline()); err != nil {
		return 0, nil, err
	}
	var head [5]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:4]))
	if n < 1 || n > int64(limit) {
		return 0, nil, refuse("frame_size", "frame of %d bytes: want 1 to %d", n, limit)
	}
	b := make([]byte, n-1)
	if _, err := io.ReadFull(f.in, b); err != nil {
		return 0, nil, err
	}
	f.counter.WithLabelValues("received").Add(float64(4 + n))
	kind := frameKind(head[4])
	if kind&deflated != 0 {
		var err error
		if b, err = f.inflate(b, limit); err != nil {
			return 0, nil, err
		}
	}
	if f.received += max(1+len(b), minFrameCharge); f.received > maxExchangeBytes {
		return 0, nil, refuse("endless", "frames of more than %d bytes in one exchange", maxExchangeBytes)
	}
	return kind &^ deflated, b, nil
}

// inflate never produces more than limit bytes. A body is a byte shorter than its frame, so one of
// limit bytes is too long as well.
func (f *frames) inflate(b []byte, limit int) ([]byte, error) {
	if f.inflater == nil {
		f.inflater = flate.NewReader(nil)
	}
	if err := f.inflater.(flate.Resetter).Reset(bytes.NewReader(b), nil); err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(f.inflater, int64(limit)))
	switch {
	case err != nil:
		return nil, refuse("malformed", "inflate frame of %d bytes: %v", len(b), err)
	case len(out) >= limit:
		return nil, refuse("bomb", "frame of %d bytes inflates to %d or more", len(b), limit)
	}
	return out, nil
}

func unexpected(kind frameKind) error {
	return refuse("out_of_turn", "frame of kind %d out of turn", kind)
}

// sendList sends one frame at least: without an entry the bitmap still states which buckets differ,
// and the peer sends all its records in them.
func (f *frames) sendList(ctx context.Context, marked bitmap, entries []listed) error {
	for first := true; first || len(entries) > 0; first = false {
		n := min(len(entries), itemsPerFrame)
		w := wireList{Buckets: marked[:]}
		for _, l := range entries[:n] {
			w.Entries = append(w.Entries, wireListed{l.instance.id, l.instance.epoch, l.stamp.sequence, l.stamp.hash})
		}
		if err := f.sendEncoded(ctx, frameList, w); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return f.send(ctx, frameEnd, nil)
}

func (f *frames) sendWant(ctx context.Context, wanted []instance) error {
	for len(wanted) > 0 {
		n := min(len(wanted), itemsPerFrame)
		var w wireWant
		for _, i := range wanted[:n] {
			w.Instances = append(w.Instances, wireInstance{i.id, i.epoch})
		}
		if err := f.sendEncoded(ctx, frameWant, w); err != nil {
			return err
		}
		wanted = wanted[n:]
	}
	return nil
}

// sendRecords fills a frame until it has recordBytesPerFrame. With the largest record as its last
// one it has about 320 kB, which is below maxFrameBytes.
func (f *frames) sendRecords(ctx context.Context, raws [][]byte) error {
	for len(raws) > 0 {
		n, size := 0, 0
		for n < min(len(raws), itemsPerFrame) && size < recordBytesPerFrame {
			size += len(raws[n]) + 5
			n++
		}
		if err := f.sendEncoded(ctx, frameRecords, wireRecords{raws[:n]}); err != nil {
			return err
		}
		raws = raws[n:]
	}
	return nil
}

func (f *frames) sendEncoded(ctx context.Context, kind frameKind, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	return f.send(ctx, kind, b)
}
