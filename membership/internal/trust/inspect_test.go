package trust

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// BenchmarkSignedPacket is what one packet of gossip costs its sender and its
// receiver together: signature, seal, session, inspection.
func BenchmarkSignedPacket(b *testing.B) {
	for _, keys := range []identity.KeyType{identity.Ed25519, identity.ECDSAP256} {
		b.Run(string(keys), func(b *testing.B) {
			w := newWire(b)
			key := func(s *setup) {
				withKey(1)(s)
				cert, private, err := w.authority.IssueKey(keys, s.Claims, time.Hour)
				if err == nil {
					s.Identity, err = identity.NewStaticSource(identity.PEM{Certificate: cert, Key: private, Authorities: w.authority.CertificatePEM()}, identity.SourceConfig{})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			from, to := w.member("a", key), w.member("b", key)
			w.acquainted(from, to)
			payload := compound(from.alive(b, nil), append([]byte{gossip.KindUser}, make([]byte, 400)...))
			b.ReportAllocs()
			for b.Loop() {
				to.delivered = to.delivered[:0]
				to.Receive(from.wrapped(b, payload, to.addr), from.addr)
				if len(to.delivered) != 1 {
					b.Fatal("dropped")
				}
			}
		})
	}
}

// BenchmarkProveMember is what a member costs that was never heard of: the check of
// its certificate and of its metadata.
func BenchmarkProveMember(b *testing.B) {
	w := newWire(b)
	member, to := w.member("a", nil), w.member("b", nil)
	var a gossip.Alive
	if err := gossip.Decode(member.alive(b, nil)[1:], &a); err != nil {
		b.Fatal(err)
	}
	chain := member.cfg.Identity.Chain()
	b.ReportAllocs()
	for b.Loop() {
		p := newProofs(to.cfg)
		if _, err := p.learn(chain); err != nil {
			b.Fatal(err)
		}
		if _, err := p.prove(announced{name: a.Node, addr: gossip.AddrPort(a.Addr, a.Port), metadata: a.Meta}); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzGuardedPacket feeds a member bodies of packets as a holder of the gossip key
// could send them. Nothing of them may reach memberlist.
func FuzzGuardedPacket(f *testing.F) {
	w := newWire(f)
	a, b := w.member("a", nil), w.member("b", nil)
	w.acquainted(a, b)
	f.Add([]byte{packetAsk, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Add(appendChain([]byte{packetCertificate}, a.cfg.Identity.Chain()))
	for _, sent := range append(a.sent, a.wrapped(f, []byte{gossip.KindUser}, b.addr)) {
		f.Add(sent[len(b.header)+2:])
	}
	b.Receive(a.sent[0], a.addr) // known from here on
	f.Fuzz(func(t *testing.T, body []byte) {
		b.delivered = nil
		sealed, err := b.seal(body)
		if err != nil {
			t.Fatal(err)
		}
		b.Receive(sealed, "10.6.6.6:666")
		if len(b.delivered) > 0 && body[0] != packetGossip {
			t.Fatalf("%x reached memberlist", body)
		}
		if b.packets > 2*maxStrangers*maxParkedPackets || len(b.requested) > maxStrangers+b.cfg.MaxMembers {
			t.Fatalf("%d packets and %d questions are kept", b.packets, len(b.requested))
		}
	})
}

// FuzzInspectedMessage feeds a member what a proven one could send: whatever passes
// is made of whole messages that were sent, and passes again.
func FuzzInspectedMessage(f *testing.F) {
	w := newWire(f)
	a, b := w.member("a", nil), w.member("b", nil)
	w.acquainted(a, b)
	alive := a.alive(f, nil)
	f.Add(alive)
	f.Add(compound(alive, []byte{gossip.KindUser, 1}, gossip.Encode(gossip.KindDead, &gossip.Doubt{Incarnation: 1, Node: a.self, From: a.self})))
	f.Add(append([]byte{gossip.KindChecksum, 0, 0, 0, 0}, alive...))
	f.Fuzz(func(t *testing.T, payload []byte) {
		kept := b.inspect(payload, announcer{"a", a.addr})
		// A doubt is encoded again, with the names of all its fields.
		if len(kept) > len(payload)*16 {
			t.Fatalf("%x became longer: %x", payload, kept)
		}
		if again := b.inspect(kept, announcer{"a", a.addr}); string(again) != string(kept) {
			t.Fatalf("%x was kept and then became %x", kept, again)
		}
	})
}

// stream is a connection whose other end has sent all that it will.
type stream struct {
	net.Conn
	in *bytes.Reader
}

func (s stream) Read(b []byte) (int, error) { return s.in.Read(b) }

// exchanged is a stream of memberlist that carries states.
func exchanged(t testing.TB, label []byte, states ...gossip.State) []byte {
	t.Helper()
	var b bytes.Buffer
	b.Write(label)
	b.WriteByte(gossip.KindExchange)
	encoder := codec.NewEncoder(&b, &codec.MsgpackHandle{})
	if err := encoder.Encode(&gossip.ExchangeHeader{Nodes: len(states), Join: true}); err != nil {
		t.Fatal(err)
	}
	for i := range states {
		if err := encoder.Encode(&states[i]); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func (m *guarded) state(t testing.TB) gossip.State {
	t.Helper()
	var a gossip.Alive
	if err := gossip.Decode(m.alive(t, nil)[1:], &a); err != nil {
		t.Fatal(err)
	}
	return gossip.State{Name: a.Node, Addr: a.Addr, Port: a.Port, Meta: a.Meta, Incarnation: 1, Vsn: a.Vsn}
}

func TestMemberlistReadsOnlyProvenStatesFromAStream(t *testing.T) {
	w := newWire(t)
	by, victim, to := w.member("by", nil), w.member("victim", nil), w.member("to", nil)
	w.acquainted(by, to)
	w.acquainted(victim, to)
	own, forged, dead, wrapped, left := by.state(t), victim.state(t), victim.state(t), victim.state(t), victim.state(t)
	left.State = gossip.StateLeft
	forged.Port = 666
	dead.State = 2
	wrapped.State, wrapped.Incarnation = 2, 1<<32-1
	other := victim.state(t) // its death is news only at a member that knows it
	for _, labelled := range []bool{true, false} {
		var label []byte
		if labelled {
			label = to.header
		}
		raw := exchanged(t, label, own, forged, other, dead, left, wrapped)
		c := &inspected{Conn: stream{in: bytes.NewReader(raw)}, guard: to.Guard, by: announcer{"by", by.addr}, labelled: labelled}
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		kept := dead
		kept.Meta = nil // memberlist does not use it
		if want := exchanged(t, label, own, other, kept); !bytes.Equal(got, want) {
			t.Errorf("labelled %v: memberlist reads\n%x, want\n%x", labelled, got, want)
		}
	}
	if to.dropped(dropIncarnation) != 2 || to.dropped(dropUnproven) != 2 {
		t.Errorf("%d dropped for the incarnation, %d unproven", to.dropped(dropIncarnation), to.dropped(dropUnproven))
	}
}

// FuzzInspectedStream feeds a member a stream of a proven one that lies.
func FuzzInspectedStream(f *testing.F) {
	w := newWire(f)
	by, to := w.member("by", nil), w.member("to", nil)
	w.acquainted(by, to)
	dead := by.state(f)
	dead.State = 2
	f.Add(exchanged(f, nil, by.state(f)))
	f.Add(exchanged(f, nil, by.fullState(f), dead, by.state(f)))
	f.Add([]byte{gossip.KindPing, 0x81})
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := &inspected{Conn: stream{in: bytes.NewReader(raw)}, guard: to.Guard, by: announcer{"by", by.addr}}
		got, err := io.ReadAll(c)
		if err == nil && len(raw) > 0 && (len(got) == 0 || raw[0] != gossip.KindExchange && !bytes.Equal(got, raw)) {
			t.Fatalf("of %x memberlist reads %x", raw, got)
		}
		if err != nil || len(raw) == 0 || raw[0] != gossip.KindExchange {
			return
		}
		states, err := received(got)
		if err != nil {
			t.Fatalf("of %x memberlist reads %x: %v", raw, got, err)
		}
		for _, s := range states {
			name, addr := s.Name, gossip.AddrPort(s.Addr, s.Port)
			if s.State != gossip.StateAlive && len(s.Meta) > 0 || len(s.Meta) > memberlist.MetaMaxSize ||
				s.State == gossip.StateAlive && name != to.self && (to.proofs.addr(name) != addr || !bytes.Equal(to.proofs.instances[name].metadata, s.Meta)) {
				t.Fatalf("of %x memberlist reads the state %+v", raw, s)
			}
		}
	})
}

// A length on a stream is only a promise, of a member that was taken over perhaps.
func TestALengthThatIsOnlyPromisedTakesNoMemory(t *testing.T) {
	w := newWire(t)
	by, to := w.member("by", nil), w.member("to", nil)
	w.acquainted(by, to)
	for _, raw := range []string{
		"\x06\x81\xa1x\xc9\xe5\xff\xff\xff\xff", // an extension: a time
		"\x06\x81\xa1x\xc6\xff\xff\xff\xff",
		"\x06\x81\xa5Nodes\xdb\xff\xff\xff\xff",
		"\x06\xdf\xff\xff\xff\xff",
		"\x06\xdd\xff\xff\xff\xff",
		"\x00\x81\xa4Node\xdb\xff\xff\xff\xff",
		"\x02\x81\xa7Payload\xc9\xe5\xff\xff\xff\xff",
		"\x0d" + strings.Repeat("\x91", 10_000), // values in values
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := io.ReadAll(&inspected{Conn: stream{in: bytes.NewReader([]byte(raw))}, guard: to.Guard, by: announcer{"by", by.addr}})
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%.20q passes", raw)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%.20q takes %d bytes", raw, took)
		}
	}
	if n := to.dropped(DropMessageFormat); n != 8 {
		t.Errorf("%d streams dropped, want 8", n)
	}
}

// The codec of memberlist reserves what an extension announces: four gigabytes for
// a packet of ten bytes.
func TestALengthThatIsOnlyAnnouncedReachesNoDecoderOfMemberlist(t *testing.T) {
	w := newWire(t)
	by, to := w.member("by", nil), w.member("to", nil)
	w.acquainted(by, to)
	huge := []byte{0x81, 0xa1, 'x', 0xc9, 0xff, 0xff, 0xff, 0xff, 1} // a map with an extension of 4 GiB
	for _, kind := range []byte{gossip.KindPing, gossip.KindIndirectPing, gossip.KindAck, gossip.KindNack, gossip.KindError, gossip.KindSuspect, gossip.KindAlive, gossip.KindDead} {
		if kept := to.inspect(append([]byte{kind}, huge...), announcer{"by", by.addr}); len(kept) > 0 {
			t.Errorf("a packet of type %d reaches memberlist", kind)
		}
	}
	if n := to.dropped(DropMessageFormat); n != 8 {
		t.Errorf("%d packets are counted, want 8", n)
	}
}
