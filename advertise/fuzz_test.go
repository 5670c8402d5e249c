package advertise

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/ringway/ringway/membership"
)

// FuzzMail feeds the decoder of gossip messages.
func FuzzMail(f *testing.F) {
	raw, err := full.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(gossiped(raw))
	f.Add(gossiped(mustEncode(f, stated)))
	f.Add(gossiped(withSignature(statementOf(raw), []byte("signature"))))
	hint, err := encode(wireHint{"worker-1", 1, 2, 3, 4})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{kindHint}, hint...))
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := decodeMail(payload)
		if err != nil {
			return
		}
		if m.from.id == "" && m.hint || len(m.from.id) > MaxNodeIDBytes || m.hint != (m.raw == nil) {
			t.Fatalf("decoded %+v", m)
		}
		if r, _, err := decodeRecord(m.raw); !m.hint && err == nil && (instance{r.NodeID, r.Epoch} != m.from || r.Sequence != m.stamp.sequence) {
			t.Fatalf("filed as %+v, it is of %q in life %d, number %d", m, r.NodeID, r.Epoch, r.Sequence)
		}
	})
}

// FuzzFrame feeds the decoder of every kind of frame.
func FuzzFrame(f *testing.F) {
	raw, err := full.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(byte(frameHello), hello(1))
	f.Add(byte(frameDigest), newStore(storeConfig{}).digest(1, false).encode())
	f.Add(byte(frameDigest), newStore(storeConfig{}).digest(1, true).encode())
	for kind, v := range map[frameKind]any{
		frameList:    wireList{make([]byte, buckets/8), []wireListed{{"a", 1, 2, 3}}},
		frameWant:    wireWant{[]wireInstance{{"a", 1}}},
		frameRecords: wireRecords{[][]byte{raw}},
	} {
		b, err := encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(kind), b)
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		switch frameKind(kind) {
		case frameHello:
			_, _ = decodeHello(b)
		case frameDigest:
			if d, err := decodeDigest(b); err == nil && !bytes.HasPrefix(b, d.encode()) {
				t.Fatalf("% x decoded to %+v", b, d)
			}
		case frameList:
			if _, list, err := decodeList(b); err == nil && len(list) > itemsPerFrame {
				t.Fatalf("%d entries", len(list))
			}
		case frameWant:
			if wanted, err := decodeWant(b); err == nil && len(wanted) > itemsPerFrame {
				t.Fatalf("%d instances", len(wanted))
			}
		case frameRecords:
			raws, _ := decodeRecords(b)
			total := 0
			for _, raw := range raws {
				total += len(raw)
			}
			if total > len(b) {
				t.Fatalf("%d bytes out of %d", total, len(b))
			}
		}
	})
}

// fed is a connection whose other end has sent everything already and swallows
// what it gets.
type fed struct {
	in   *bytes.Reader
	sent int
}

func (c *fed) Read(b []byte) (int, error)       { return c.in.Read(b) }
func (c *fed) Write(b []byte) (int, error)      { c.sent += len(b); return len(b), nil }
func (c *fed) Close() error                     { return nil }
func (c *fed) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *fed) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *fed) SetDeadline(time.Time) error      { return nil }
func (c *fed) SetReadDeadline(time.Time) error  { return nil }
func (c *fed) SetWriteDeadline(time.Time) error { return nil }

// FuzzExchange feeds both sides of an exchange with what the other one might
// send: whole conversations, byte by byte.
func FuzzExchange(f *testing.F) {
	record := func(r Record) []byte {
		raw, err := r.Encode()
		if err != nil {
			f.Fatal(err)
		}
		return raw
	}
	body := func(kind frameKind, v any) []byte {
		b, err := encode(v)
		if err != nil {
			f.Fatal(err)
		}
		return frameBytes(kind, b)
	}
	var everything bitmap
	for i := range buckets {
		everything.set(i)
	}
	ours := record(Record{NodeID: "w", Epoch: 1, Sequence: 1, Services: echo(1)})
	end := frameBytes(frameEnd, nil)
	want := body(frameWant, wireWant{[]wireInstance{{"w", 1}, {"a", 1}}})
	records := body(frameRecords, wireRecords{[][]byte{
		record(Record{NodeID: "a", Epoch: 1, Sequence: 2, Services: echo(2)}),
		record(Record{NodeID: "w", Epoch: 1, Sequence: 9}),
		record(Record{NodeID: "b", Epoch: 2, Sequence: 1, Services: echo(3)}),
	}})
	list := body(frameList, wireList{everything[:], []wireListed{{"a", 1, 2, 3}, {"w", 1, 0, 0}}})
	squashed := bomb(frameRecords, 2000)
	f.Add(true, bytes.Join([][]byte{want}, nil))
	f.Add(true, bytes.Join([][]byte{frameBytes(frameHello, hello(0)), list, end, records, squashed, end}, nil))
	f.Add(false, frameBytes(frameSame, nil))
	f.Add(false, bytes.Join([][]byte{frameBytes(frameDigest, make([]byte, digestBytes)), records, want, end, end}, nil))
	f.Fuzz(func(t *testing.T, responds bool, in []byte) {
		members := workers(map[string]uint64{"a": 1, "b": 1, "w": 1})
		c, err := New(Config{Gossip: &still{snapshot: membership.NewSnapshot(1, "w", members)}, Now: func() time.Time { return start }})
		if err != nil {
			t.Fatal(err)
		}
		c.rate = rate.NewLimiter(rate.Inf, sendBurst)
		c.setMembers(c.cfg.Gossip.Snapshot())
		c.store.write(newEntry(Record{NodeID: "w", Epoch: 1, Sequence: 1}, ours, signedPart{}), start)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.inbound.run(ctx)
		go func() { // the loop, without its timers
			for {
				select {
				case call := <-c.calls:
					call()
				case <-ctx.Done():
					return
				}
			}
		}()

		conn := &fed{in: bytes.NewReader(in)}
		if responds {
			c.serve(ctx, membership.Peer{ID: "peer"}, conn)
		} else {
			_ = c.runExchange(ctx, c.newFrames(outward, membership.Peer{ID: "peer"}, conn), c.sync)
		}

		if conn.sent > maxExchangeBytes || c.inbound.silent.Len() != 0 || len(c.inbound.peers) != 0 {
			t.Fatalf("%d bytes sent, %d streams waiting, %d exchanges open", conn.sent, c.inbound.silent.Len(), len(c.inbound.peers))
		}
		root := uint64(0)
		for key, e := range c.store.entries {
			if c.store.isAlive(key) {
				root ^= e.mix()
			}
			if key.epoch > uint64(start.Add(futureEpoch).UnixMilli()) {
				t.Fatalf("kept a record of the future: %+v", e.record)
			}
		}
		if c.store.root != root || !bytes.Equal(c.store.entries[instance{"w", 1}].raw, ours) {
			t.Fatalf("root %x, the records make %x; our own is now %+v", c.store.root, root, c.store.entries[instance{"w", 1}].record)
		}
	})
}
