package advertise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"golang.org/x/time/rate"

	"github.com/ringway/ringway/internal/wirefixture"
	"github.com/ringway/ringway/membership"
)

// fixtureRecords are records in each form that releases write, by the name of their fixture; those
// of relays are written since 0.2.0.
var fixtureRecords = map[string]Record{
	"small":     {NodeID: "worker-1", Epoch: 1_800_000_000_000, Sequence: 1, Services: []Service{{Name: "echo", Address: "10.0.0.3:8080"}}},
	"full":      full,
	"withdrawn": {NodeID: "worker-1", Epoch: 1_800_000_000_000, Sequence: 9},
	"relay":     stated,
}

// wireSignature stands for a signature: this package passes signatures on, and package
// membership makes them.
var wireSignature = bytes.Repeat([]byte{0xa5}, membership.MaxSignature)

// recordParts returns the elements of an encoded record, for changes.
func recordParts(raw []byte, change func(record []any) []any) []byte {
	var record []any
	h := handle()
	h.RawToString = true
	if err := codec.NewDecoderBytes(raw, h).Decode(&record); err != nil {
		panic(err)
	}
	if len(record) == signedFields {
		record[signedFields-1] = []byte(record[signedFields-1].(string))
	}
	out, err := encode(change(record))
	if err != nil {
		panic(err)
	}
	return out
}

func recordFixtures() (out []wirefixture.Format) {
	refused := map[string]func([]byte) []byte{
		"another format": func(raw []byte) []byte {
			return recordParts(raw, func(r []any) []any { r[0] = 2; return r })
		},
	}
	eachService := func(change func(service []any) []any) func([]byte) []byte {
		return func(raw []byte) []byte {
			return recordParts(raw, func(r []any) []any {
				services, _ := r[4].([]any)
				for i := range services {
					services[i] = change(services[i].([]any))
				}
				return r
			})
		}
	}
	later := map[string]func([]byte) []byte{
		"a field in each service": eachService(func(s []any) []any { return append(s, nil, map[string]any{"later": []any{1.5, nil}}) }),
		"an unknown flag":         eachService(func(s []any) []any { s[8] = s[8].(int64) | 1<<20; return s }),
	}
	for name, record := range fixtureRecords {
		refused := map[string]func([]byte) []byte{"another format": refused["another format"]}
		if len(record.Services) > 0 {
			refused["an unknown protocol"] = eachService(func(s []any) []any { s[2] = len(protocols); return s })
			refused["an unknown state"] = eachService(func(s []any) []any { s[5] = len(states); return s })
		}
		for _, signed := range []bool{false, true} {
			encoded := func() ([]byte, error) {
				raw, err := record.Encode()
				if signed {
					raw = withSignature(statementOf(raw), wireSignature)
				}
				return raw, err
			}
			laterHere := map[string]func([]byte) []byte{"a field in each service": later["a field in each service"], "an unknown flag": later["an unknown flag"]}
			suffix := ""
			if signed {
				suffix = "-signed"
				laterHere["a field at its end"] = func(raw []byte) []byte {
					return recordParts(raw, func(r []any) []any { return append(r, "later") })
				}
			}
			out = append(out, wirefixture.Format{
				Name: "record-" + name + suffix, Encode: encoded, Refused: refused, Later: laterHere,
				Decode: func(raw []byte) (any, error) {
					got, part, err := decodeRecord(raw)
					return map[string]any{"record": got, "signature": part.signature}, err
				},
			})
			gossip := func() ([]byte, error) {
				raw, err := encoded()
				return gossiped(raw), err
			}
			out = append(out, wirefixture.Format{
				Name: "gossip-" + name + suffix, Encode: gossip,
				Decode: func(raw []byte) (any, error) {
					m, err := decodeMail(raw)
					return mailValue(m), err
				},
				Refused: map[string]func([]byte) []byte{"an unknown kind": func(raw []byte) []byte { raw[0] = 9; return raw }},
			})
		}
	}
	return append(out, wirefixture.Format{
		Name: "gossip-hint",
		Encode: func() ([]byte, error) {
			raw, err := full.Encode()
			if err != nil {
				return nil, err
			}
			e := newEntry(full, append(raw, make([]byte, maxBroadcast)...), signedPart{statement: statementOf(raw)})
			return e.message()
		},
		Decode: func(raw []byte) (any, error) {
			m, err := decodeMail(raw)
			return mailValue(m), err
		},
		Later: map[string]func([]byte) []byte{"a field at its end": func(raw []byte) []byte {
			raw[1]++
			return append(raw, "\xa5later"...)
		}},
	})
}

func mailValue(m mail) any {
	return map[string]any{"node": m.from.id, "epoch": m.from.epoch, "sequence": m.stamp.sequence, "hash": m.stamp.hash, "hint": m.hint, "record": m.raw}
}

// written is a connection that keeps what is written to it, and reads what is in it.
type written struct {
	net.Conn
	bytes.Buffer
}

func (w *written) Read(b []byte) (int, error)       { return w.Buffer.Read(b) }
func (w *written) Write(b []byte) (int, error)      { return w.Buffer.Write(b) }
func (w *written) SetReadDeadline(time.Time) error  { return nil }
func (w *written) SetWriteDeadline(time.Time) error { return nil }

func framesOver(conn net.Conn) *frames {
	c := &Catalogue{metrics: newMetrics(nil), rate: rate.NewLimiter(rate.Inf, sendBurst)}
	return c.newFrames("outward", membership.Peer{}, conn)
}

// frameFixture is the frames that send writes.
type frameFixture struct {
	name  string
	send  func(ctx context.Context, f *frames) error
	grows bool // its bodies are msgpack, which a later release may extend
}

func frameFixtures(t *testing.T) (out []wirefixture.Format) {
	small, err := fixtureRecords["small"].Encode()
	if err != nil {
		t.Fatal(err)
	}
	signed := withSignature(statementOf(small), wireSignature)
	var marked bitmap
	marked.set(7)
	marked.set(200)
	entries := []listed{{instance{"worker-1", 1_800_000_000_000}, stamp{7, 0xfedc_ba98_7654_3210}}, {instance{"worker-2", 5}, stamp{maxSequence, 1}}}
	wanted := []instance{entries[0].instance, entries[1].instance}
	var sum digest
	sum.salt = 0x0123_4567_89ab_cdef
	for i := range sum.hashes {
		sum.hashes[i] = uint32(i) * 0x0101_0101
	}
	var many []listed
	for n := range 40 {
		many = append(many, listed{instance{fmt.Sprintf("worker-%02d", n), 1_800_000_000_000}, stamp{1, uint64(n)}})
	}
	plain := func(kind frameKind, body []byte) func(context.Context, *frames) error {
		return func(ctx context.Context, f *frames) error { return f.send(ctx, kind, body) }
	}
	for _, one := range []frameFixture{
		{"hello", plain(frameHello, []byte{0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4}), false},
		{"hello-relays", plain(frameHello, []byte{0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 0xca, 0xfe, 5, 6, 7, 8, 9, 10}), false},
		{"digest-relays", plain(frameDigest, func() []byte { d := sum; d.relays = true; return d.encode() }()), false},
		{"same", plain(frameSame, nil), false},
		{"busy", plain(frameBusy, nil), false},
		{"digest", plain(frameDigest, sum.encode()), false},
		{"list", func(ctx context.Context, f *frames) error { return f.sendList(ctx, marked, entries) }, true},
		{"list-deflated", func(ctx context.Context, f *frames) error { return f.sendList(ctx, marked, many) }, false},
		{"want", func(ctx context.Context, f *frames) error { return f.sendWant(ctx, wanted) }, true},
		{"records", func(ctx context.Context, f *frames) error { return f.sendRecords(ctx, [][]byte{small, signed}) }, true},
	} {
		f := wirefixture.Format{
			Name: "exchange-" + one.name,
			Encode: func() ([]byte, error) {
				conn := &written{}
				err := one.send(t.Context(), framesOver(conn))
				return conn.Bytes(), err
			},
			Decode: decodeFrames,
			// The bytes of deflate are the library's choice; what they inflate to is the format.
			Random: strings.HasSuffix(one.name, "-deflated"),
		}
		if one.grows {
			f.Later = map[string]func([]byte) []byte{"a field at its end": func(raw []byte) []byte {
				size := 4 + int(raw[3]) // of the first frame, below 256 bytes here
				longer := append(bytes.Clone(raw[:size]), "\xa5later"...)
				longer[3] += 6
				longer[5]++
				return append(longer, raw[size:]...)
			}}
		}
		out = append(out, f)
	}
	return out
}

// decodeFrames reads all frames, as the exchange does.
func decodeFrames(raw []byte) (any, error) {
	f := framesOver(&written{Buffer: *bytes.NewBuffer(raw)})
	var values []any
	for {
		kind, body, err := f.receive(maxFrameBytes)
		if errors.Is(err, io.EOF) && len(values) > 0 {
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		var value any
		switch kind {
		case frameHello:
			var o opening
			o, err = decodeHello(body)
			if value = o.root; o.relays {
				value = []uint64{o.root, o.relayRoot}
			}
		case frameDigest:
			var d digest
			d, err = decodeDigest(body)
			value = map[string]any{"salt": d.salt, "first": d.hashes[0], "last": d.hashes[buckets-1], "relays": d.relays}
		case frameList:
			var marked bitmap
			var entries []listed
			marked, entries, err = decodeList(body)
			text := []string{}
			for _, e := range entries {
				text = append(text, fmt.Sprint(e.instance, e.stamp))
			}
			value = map[string]any{"buckets": marked[:], "entries": text}
		case frameWant:
			var wanted []instance
			wanted, err = decodeWant(body)
			value = fmt.Sprint(wanted)
		case frameRecords:
			value, err = decodeRecords(body)
		case frameSame, frameBusy, frameEnd:
			value = len(body)
		default:
			err = unexpected(kind)
		}
		if err != nil {
			return nil, err
		}
		values = append(values, map[string]any{"kind": kind, "value": value})
	}
}

// A fleet has two releases while it is upgraded, and again when the upgrade is reverted.
func TestTheRecordsAndExchangesOfReleasesAreReadAndWritten(t *testing.T) {
	wirefixture.Check(t, append(recordFixtures(), frameFixtures(t)...)...)
}
