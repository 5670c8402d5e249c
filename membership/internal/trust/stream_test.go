package trust

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ringway/ringway/membership/internal/gossip"
)

// closable is a connection that notes when it is closed.
type closable struct {
	stream
	closed bool
}

func (c *closable) Close() error { c.closed = true; return nil }

func TestAStreamHasAPlaceUntilItIsClosed(t *testing.T) {
	to := newWire(t).member("to", nil)
	var open []net.Conn
	under := &closable{}
	for range streamsPerNode + 1 {
		if c := to.Accepted(under, "by", 1); c != nil {
			open = append(open, c)
		}
	}
	if len(open) != streamsPerNode || to.dropped(dropStreams) != 1 {
		t.Fatalf("%d streams are accepted, %d refused", len(open), to.dropped(dropStreams))
	}
	if to.Accepted(under, "other", 1) == nil {
		t.Error("a stream of another node is refused")
	}
	if err := open[0].Close(); err != nil || !under.closed {
		t.Errorf("the connection is closed: %v, %v", under.closed, err)
	}
	_ = open[0].Close() // memberlist does so
	if to.Accepted(under, "by", 1) == nil || to.Accepted(under, "by", 1) != nil {
		t.Error("the place of a closed stream is given to another one, or to two")
	}
	if err := to.Dialled(&closable{}, "by", "10.0.0.1:1").Close(); err != nil {
		t.Error(err)
	}
}

func TestAStreamBeginsWithWhatMembersSend(t *testing.T) {
	w := newWire(t)
	by, to := w.member("by", nil), w.member("to", nil)
	ping := []byte{gossip.KindPing, 0x81, 0xa1, 'x', 1}
	for _, c := range []struct {
		name     string
		accepted bool
		sent     []byte
		read     []byte // nil if it is refused
		err      error
	}{
		{"a ping, accepted", true, slices.Concat(to.header, ping, []byte("more")), slices.Concat(to.header, ping, []byte("more")), nil},
		{"a ping, dialled", false, ping, ping, nil},
		{"an answer", false, append([]byte{gossip.KindAck}, ping[1:]...), append([]byte{gossip.KindAck}, ping[1:]...), nil},
		{"an error", false, append([]byte{gossip.KindError}, ping[1:]...), append([]byte{gossip.KindError}, ping[1:]...), nil},
		{"a user message", false, append([]byte{gossip.KindUser}, ping[1:]...), nil, nil},
		{"a death", false, append([]byte{gossip.KindDead}, ping[1:]...), nil, nil},
		{"half a label", true, to.header[:3], nil, io.ErrUnexpectedEOF},
		{"a label only", true, to.header, nil, io.EOF},
		{"half a ping", false, ping[:3], nil, io.ErrUnexpectedEOF},
	} {
		before := to.dropped(DropMessageFormat)
		var conn net.Conn = stream{in: bytes.NewReader(c.sent)}
		if c.accepted {
			conn = to.Accepted(conn, "by", by.epoch)
		} else {
			conn = to.Dialled(conn, "by", by.addr)
		}
		var got bytes.Buffer
		buf, err := make([]byte, 7), error(nil)
		for err == nil {
			var n int
			n, err = conn.Read(buf)
			got.Write(buf[:n])
		}
		switch refused := to.dropped(DropMessageFormat) - before; {
		case c.read != nil:
			if !bytes.Equal(got.Bytes(), c.read) || err != io.EOF || refused != 0 {
				t.Errorf("%s: memberlist reads %x, want %x: %v", c.name, got.Bytes(), c.read, err)
			}
		case c.err != nil:
			if !errors.Is(err, c.err) || refused != 0 {
				t.Errorf("%s: %v, want %v", c.name, err, c.err)
			}
		case err == io.EOF || refused != 1:
			t.Errorf("%s: memberlist reads %x: %v, %d refused", c.name, got.Bytes(), err, refused)
		}
	}
}

// The address of a member that opens a stream is the one that it signed.
func TestTheCertificateOfAnUnknownMemberIsRequestedFromTheOtherEndOfAStream(t *testing.T) {
	w := newWire(t)
	by, third, to := w.member("by", nil), w.member("third", nil), w.member("to", nil)
	w.acquainted(by, to)
	if _, err := to.proofs.prove(by.announcement(t, nil)); err != nil {
		t.Fatal(err)
	}
	state := third.state(t)
	for name, conn := range map[string]net.Conn{
		"accepted": to.Accepted(stream{in: bytes.NewReader(exchanged(t, to.header, state))}, "by", by.epoch),
		"dialled":  to.Dialled(stream{in: bytes.NewReader(exchanged(t, nil, state))}, "by", by.addr),
	} {
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatal(err)
		}
		a := to.requested[third.keyOf()]
		if a == nil || !slices.Equal(a.from, []string{by.addr, third.addr}) || len(a.alive) != 1 {
			t.Fatalf("%s: the request is %+v", name, a)
		}
		to.drop(third.keyOf(), a)
	}
}

func TestAnExchangeIsRefusedByItsHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", nil)
		header := func(h gossip.ExchangeHeader) []byte {
			var b bytes.Buffer
			b.WriteByte(gossip.KindExchange)
			if err := gossip.NewEncoder(&b).Encode(&h); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
		limit := to.exchanges.announced()
		for _, c := range []struct {
			header gossip.ExchangeHeader
			reason string // that is counted
		}{
			{gossip.ExchangeHeader{}, ""}, {gossip.ExchangeHeader{Nodes: -1}, dropTooMany}, {gossip.ExchangeHeader{Nodes: limit + 1}, dropTooMany},
			{gossip.ExchangeHeader{UserStateLen: 1}, dropTooMany}, {gossip.ExchangeHeader{Nodes: limit}, "cut short"},
		} {
			before := to.dropped(dropTooMany)
			_, err := io.ReadAll(to.Dialled(stream{in: bytes.NewReader(header(c.header))}, "by", ""))
			if (err == nil) != (c.reason == "") || (to.dropped(dropTooMany)-before == 1) != (c.reason == dropTooMany) || (c.reason == "cut short") != errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%+v: %v, want %q", c.header, err, c.reason)
			}
		}
		// Of one node one exchange has its turn.
		first := to.Accepted(stream{in: bytes.NewReader(append(bytes.Clone(to.header), header(gossip.ExchangeHeader{})...))}, "by", 1)
		second := to.Accepted(stream{in: bytes.NewReader(append(bytes.Clone(to.header), header(gossip.ExchangeHeader{})...))}, "by", 1)
		if _, err := io.ReadAll(first); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadAll(second); err == nil || to.dropped(dropExchanges) != 1 {
			t.Errorf("a second exchange: %v, %d refused", err, to.dropped(dropExchanges))
		}
	})
}

// failing is a connection to which nothing can be written.
type failing struct{ net.Conn }

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWhatIsCutOrCannotBeSignedDoesNotPass(t *testing.T) {
	w := newWire(t)
	m, to := w.member("m", nil), w.member("to", nil)
	broken := m.state(t) // signed, so without a place for an incarnation
	var sent bytes.Buffer
	if n, err := to.Dialled(sink{w: &sent}, "x", "").Write(exchanged(t, nil, broken)); err != nil || n == 0 {
		t.Errorf("the state of another member: %d, %v", n, err)
	}
	sent.Reset()
	if n, err := m.Dialled(sink{w: &sent}, "x", "").Write(exchanged(t, nil, broken)); err == nil || n != 0 || sent.Len() != 0 {
		t.Errorf("its own: %d bytes leave: %d, %v", sent.Len(), n, err)
	}
	alive := m.alive(t, nil)
	for name, message := range map[string][]byte{
		"a part of its announcement": alive[:len(alive)-1],
		"a part of an exchange":      func(b []byte) []byte { return b[:len(b)-1] }(exchanged(t, nil, broken)),
	} {
		_, err := m.outgoing(message)
		_, streamErr := m.outgoingStates(message)
		if err == nil && streamErr == nil {
			t.Errorf("%s leaves", name)
		}
	}
	for n := range 6 {
		short := append(bytes.Repeat([]byte{gossip.KindChecksum}, min(n, 1)), make([]byte, max(0, n-1))...)
		if out, err := m.outgoing(short); err != nil || !bytes.Equal(out, short) {
			t.Errorf("a checksum of %d bytes leaves as %x: %v", n, out, err)
		}
		if kept := m.inspect(short, announcer{}); kept != nil {
			t.Errorf("of a checksum of %d bytes is kept %x", n, kept)
		}
	}
	// The announcement of another member may have its name in it.
	other := to.alive(t, func(d *gossip.Metadata, _ *gossip.Alive) { d.Version = m.self })
	if out, err := m.outgoing(other); err != nil || !bytes.Equal(out, other) {
		t.Errorf("that of another one leaves as %x: %v", out, err)
	}
	// A compound may be cut, or have a part without a byte.
	user := []byte{gossip.KindUser, 1}
	for _, c := range []struct {
		message, kept []byte
		counted       int
	}{
		{compound(user, nil), compound(user), 0}, {compound(user, user)[:8], compound(user), 1}, {compound(), compound(), 0}, {nil, nil, 0},
	} {
		before := to.dropped(DropMessageFormat)
		if kept := to.inspect(c.message, announcer{}); !bytes.Equal(kept, c.kept) || to.dropped(DropMessageFormat)-before != c.counted {
			t.Errorf("of %x is kept %x, want %x; %d are counted", c.message, kept, c.kept, to.dropped(DropMessageFormat)-before)
		}
	}
	if n, err := m.Dialled(failing{}, "x", "").Write([]byte{gossip.KindUser}); err == nil || n != 0 {
		t.Errorf("an error of the connection: %d, %v", n, err)
	}
	if _, err := m.Wrap(append(bytes.Clone(m.header), m.alive(t, nil)...), to.addr); err == nil {
		t.Error("its own announcement leaves in a packet")
	}
}

// Doubts of earlier releases, whose subjects sign no incarnation, count as they are.
func TestADoubtBecomesWhatMemberlistMayReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, subject, earlier, unknown, to := w.member("by", nil), w.member("subject", nil), w.member("earlier", nil), w.member("unknown", nil), w.member("to", nil)
		to.knows(t, by, subject, earlier)
		for _, a := range []announced{
			by.announcement(t, nil), earlier.announcement(t, nil), subject.announcement(t, func(d *gossip.Metadata) { d.Incarnation = 5 }),
		} {
			if _, err := to.proofs.prove(a); err != nil {
				t.Fatal(err)
			}
		}
		to.own.highest = 3
		to.RecordLeave("subject", subject.epoch)
		const suspect, dead = gossip.KindSuspect, gossip.KindDead
		for _, c := range []struct {
			name        string
			kind        byte
			of          string
			from        string
			incarnation uint32
			as          byte
			at          uint32
			reason      string
		}{
			{"a suspicion", suspect, subject.self, "x.1", 5, suspect, 5, ""},
			{"a suspicion by itself", suspect, subject.self, subject.self, 5, suspect, 5, ""},
			{"a death by another", dead, subject.self, "x.1", 4, suspect, 4, ""},
			{"one that is ahead", dead, subject.self, "x.1", 5 + maxAhead, suspect, 5, ""},
			{"one that is too far ahead", dead, subject.self, "x.1", 6 + maxAhead, 0, 5, dropIncarnation},
			{"a goodbye with a notice", dead, subject.self, subject.self, 5, dead, 5, ""},
			{"a goodbye that is ahead", dead, subject.self, subject.self, 6, dead, 5, ""},
			{"a goodbye of the sender", dead, by.self, by.self, 9, dead, 9, ""},
			{"a goodbye of another", dead, earlier.self, earlier.self, 1, 0, 1, DropForged},
			{"one of an earlier release", suspect, earlier.self, "x.1", 90_000, suspect, 90_000, ""},
			{"one that no honest member sends", suspect, earlier.self, "x.1", 1 << 31, 0, 1 << 31, dropIncarnation},
			{"one about a stranger", suspect, unknown.self, "x.1", 1, 0, 1, dropIdle},
			{"one about this node", suspect, to.self, "x.1", 3, suspect, 3, ""},
			{"one about this node that is ahead", suspect, to.self, "x.1", 4, suspect, 3, ""},
		} {
			d := gossip.Doubt{Incarnation: c.incarnation, Node: c.of, From: c.from}
			as, reason := to.checkDoubt(c.kind, &d, announcer{"by", by.addr})
			if as != c.as || reason != c.reason || reason != dropIdle && d.Incarnation != c.at {
				t.Errorf("%s: as %d at %d, %q; want %d at %d, %q", c.name, as, d.Incarnation, reason, c.as, c.at, c.reason)
			}
		}
		// Denied are the three that are false, and none that is idle.
		if n := to.doubts.denied["by"].count; n != 3 {
			t.Errorf("%d doubts are denied, want 3", n)
		}
		// memberlist puts a checksum in front.
		checksum := []byte{gossip.KindChecksum, 0, 0, 0, 0}
		checked := append(checksum, gossip.Encode(suspect, &gossip.Doubt{Incarnation: 5, Node: subject.self, From: "x.1"})...)
		if kept := to.inspect(checked, announcer{"by", by.addr}); !bytes.Equal(kept, checked) {
			t.Errorf("with a checksum: kept is %x, want %x", kept, checked)
		}
		if kept := to.inspect(checksum, announcer{"by", by.addr}); kept != nil || to.dropped(DropMessageFormat) != 1 {
			t.Errorf("a checksum of nothing: kept is %x, %d are refused", kept, to.dropped(DropMessageFormat))
		}
		// The name of the first that doubts may be long.
		for length, want := range map[int]bool{maxAccuser: true, maxAccuser + 1: false} {
			message := gossip.Encode(gossip.KindSuspect, &gossip.Doubt{Incarnation: 5, Node: subject.self, From: string(bytes.Repeat([]byte("x"), length))})
			if kept := to.inspect(message, announcer{"by", by.addr}); (len(kept) > 0) != want {
				t.Errorf("an accuser of %d bytes: kept is %x", length, kept)
			}
		}
	})
}
