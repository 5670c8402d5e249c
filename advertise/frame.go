package advertise

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The bounds of one exchange.
const (
	maxFrameBytes    = 1 << 20  // one frame
	maxExchangeBytes = 64 << 20 // all frames of one direction
	frameTimeout     = 10 * time.Second
	exchangeTimeout  = 60 * time.Second
	listedPerFrame   = 4096      // at most 170 bytes each
	recordsPerFrame  = 512 << 10 // bytes after which a frame of records is sent
)

// frameKind says what a frame holds. On the wire a frame is its length (4 bytes,
// big endian, kind and body), its kind (1 byte) and its body, a msgpack array.
type frameKind byte

const (
	frameHello   frameKind = 1 + iota // [root]: the initiator's, first
	frameSame                         // []: the roots are equal
	frameBuckets                      // [256 hashes of 8 bytes]
	frameList                         // [bitmap of buckets, [[id, epoch, sequence, hash]…]]
	frameWant                         // [[[id, epoch]…]]; as the first frame it fetches
	frameRecords                      // [[record…]]
	frameEnd                          // []: it is the other side's turn
	frameBusy                         // []: try again later, or another member
)

// bitmap marks buckets.
type bitmap [buckets / 8]byte

func (b *bitmap) set(i int)      { b[i/8] |= 1 << (i % 8) }
func (b *bitmap) has(i int) bool { return b[i/8]&(1<<(i%8)) != 0 }

// listed is one line of a list: what the sender holds of an instance.
type listed struct {
	instance instance
	stamp    stamp
}

type (
	wireHello   struct{ Root uint64 }
	wireBuckets struct{ Hashes []byte }
	wireList    struct {
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

// body opens a frame's array and skips, when done, what a later build added.
func body(b []byte, fields int, read func(r *reader)) error {
	r := &reader{rest: b}
	n := r.array(math.MaxInt32, "frame")
	if r.err == nil && n < fields {
		r.fail(errTruncated)
	}
	read(r)
	r.skip(n - fields)
	return r.finish()
}

// tuple is the same for an array inside a body.
func tuple(r *reader, fields int, read func()) {
	n := r.array(math.MaxInt32, "frame")
	if r.err == nil && n < fields {
		r.fail(errTruncated)
	}
	read()
	r.skip(n - fields)
}

func decodeHello(b []byte) (root uint64, err error) {
	err = body(b, 1, func(r *reader) { root = r.uint() })
	return root, err
}

func decodeBuckets(b []byte) (hashes [buckets]uint64, err error) {
	err = body(b, 1, func(r *reader) {
		raw := r.bytes(8*buckets, "frame")
		if r.err == nil && len(raw) != 8*buckets {
			r.fail(refuse("frame", "%d bytes of bucket hashes: want %d", len(raw), 8*buckets))
			return
		}
		for i := 0; i < len(raw); i += 8 {
			hashes[i/8] = binary.BigEndian.Uint64(raw[i:])
		}
	})
	return hashes, err
}

func decodeList(b []byte) (marked bitmap, entries []listed, err error) {
	err = body(b, 2, func(r *reader) {
		copy(marked[:], r.bytes(len(marked), "frame"))
		for range r.array(listedPerFrame, "frame") {
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
		for range r.array(listedPerFrame, "frame") {
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

// decodeRecords copies, so that one record kept does not keep the whole frame.
func decodeRecords(b []byte) (raws [][]byte, err error) {
	err = body(b, 1, func(r *reader) {
		for range r.array(maxFrameBytes, "frame") {
			raw := r.bytes(MaxRecordBytes, "too_large")
			if r.err != nil {
				return
			}
			raws = append(raws, append([]byte(nil), raw...))
		}
	})
	return raws, err
}

// frames reads and writes frames on one connection, within its bounds.
type frames struct {
	conn           net.Conn
	in             *bufio.Reader
	end            time.Time // when the whole exchange must be over
	sent, received int
	counter        *prometheus.CounterVec
}

func newFrames(conn net.Conn, c *Catalogue) *frames {
	return &frames{conn: conn, in: bufio.NewReader(conn), end: time.Now().Add(exchangeTimeout), counter: c.metrics.bytes}
}

func (f *frames) deadline() time.Time {
	if d := time.Now().Add(frameTimeout); d.Before(f.end) {
		return d
	}
	return f.end
}

func (f *frames) send(kind frameKind, v any) error {
	out := []byte{0, 0, 0, 0, byte(kind)}
	if v == nil {
		out = append(out, 0x90) // an empty array
	} else {
		b, err := encode(v)
		if err != nil {
			return err
		}
		out = append(out, b...)
	}
	if len(out)-4 > maxFrameBytes || f.sent+len(out) > maxExchangeBytes {
		return fmt.Errorf("send frame of %d bytes after %d: want at most %d per frame and %d in all", len(out), f.sent, maxFrameBytes, maxExchangeBytes)
	}
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	if err := f.conn.SetWriteDeadline(f.deadline()); err != nil {
		return err
	}
	f.sent += len(out)
	f.counter.WithLabelValues("sent").Add(float64(len(out)))
	_, err := f.conn.Write(out)
	return err
}

// receive returns the next frame. Its length is judged before it is read.
func (f *frames) receive() (frameKind, []byte, error) {
	if err := f.conn.SetReadDeadline(f.deadline()); err != nil {
		return 0, nil, err
	}
	var head [5]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:4]))
	if n < 1 || n > maxFrameBytes {
		return 0, nil, refuse("frame", "frame of %d bytes: want 1 to %d", n, maxFrameBytes)
	}
	f.received += 4 + int(n)
	if f.received > maxExchangeBytes {
		return 0, nil, refuse("frame", "exchange of more than %d bytes", maxExchangeBytes)
	}
	f.counter.WithLabelValues("received").Add(float64(4 + n))
	b := make([]byte, n-1)
	if _, err := io.ReadFull(f.in, b); err != nil {
		return 0, nil, err
	}
	return frameKind(head[4]), b, nil
}

func unexpected(kind frameKind) error { return refuse("frame", "frame of kind %d out of turn", kind) }

func (f *frames) sendList(marked bitmap, entries []listed) error {
	for first := true; first || len(entries) > 0; first = false {
		n := min(len(entries), listedPerFrame)
		w := wireList{Buckets: marked[:]}
		for _, l := range entries[:n] {
			w.Entries = append(w.Entries, wireListed{l.instance.id, l.instance.epoch, l.stamp.sequence, l.stamp.hash})
		}
		if err := f.send(frameList, w); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return f.send(frameEnd, nil)
}

func (f *frames) sendWant(wanted []instance) error {
	for len(wanted) > 0 {
		n := min(len(wanted), listedPerFrame)
		var w wireWant
		for _, i := range wanted[:n] {
			w.Instances = append(w.Instances, wireInstance{i.id, i.epoch})
		}
		if err := f.send(frameWant, w); err != nil {
			return err
		}
		wanted = wanted[n:]
	}
	return nil
}

func (f *frames) sendRecords(raws [][]byte) error {
	for len(raws) > 0 {
		n, size := 0, 0
		for n < len(raws) && size < recordsPerFrame {
			size += len(raws[n]) + 5
			n++
		}
		if err := f.send(frameRecords, wireRecords{raws[:n]}); err != nil {
			return err
		}
		raws = raws[n:]
	}
	return nil
}
