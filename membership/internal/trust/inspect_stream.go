package trust

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/membership/internal/gossip"
)

// inspected is a stream of memberlist whose state exchange is inspected like packets:
// memberlist reads only the states of proven instances with valid incarnations.
type inspected struct {
	net.Conn
	guard *Guard
	by    announcer
	// labelled is true if the stream begins with a label: the other end opened it.
	labelled bool
	// place belongs to a stream which the other end opened. This node itself opens few.
	place *place

	in      *bufio.Reader
	limited *io.LimitedReader // under in
	ready   bytes.Buffer      // inspected, but not read yet
	states  bytes.Buffer      // follow ready; nothing follows them
	begun   bool
}

// Accepted returns a stream of memberlist that a member opened, as memberlist may read it. It
// returns nil if the member has too many.
func (g *Guard) Accepted(conn net.Conn, id string, epoch uint64) net.Conn {
	place := g.exchanges.open(id)
	if place == nil {
		g.count(dropStreams)
		return nil
	}
	by := announcer{id, g.proofs.addr(gossip.InstanceName(id, epoch))}
	return &inspected{Conn: conn, guard: g, by: by, labelled: true, place: place}
}

// Dialled returns a stream of memberlist that this node opened to a member, as memberlist may read
// it.
func (g *Guard) Dialled(conn net.Conn, id, addr string) net.Conn {
	return &inspected{Conn: conn, guard: g, by: announcer{id, addr}}
}

// maxStream limits the bytes of a stream. The limit of a state exchange follows from the number
// of its states.
const maxStream = 64 << 20

func (c *inspected) Read(b []byte) (int, error) {
	if !c.begun {
		c.begun = true
		c.limited = &io.LimitedReader{R: c.Conn, N: maxStream}
		c.in = bufio.NewReader(c.limited)
		if err := c.begin(); err != nil {
			return 0, err
		}
	}
	if c.ready.Len() > 0 {
		return c.ready.Read(b)
	}
	if c.states.Len() > 0 {
		return c.states.Read(b)
	}
	return c.in.Read(b)
}

// Close also gives the place of the stream to another one.
func (c *inspected) Close() error {
	c.place.close()
	return c.Conn.Close()
}

// begin reads up to the message type, and the whole of a state exchange.
func (c *inspected) begin() error {
	if c.labelled {
		label := make([]byte, len(c.guard.header))
		if _, err := io.ReadFull(c.in, label); err != nil {
			return err
		}
		c.ready.Write(label) // memberlist checks it
	}
	kind, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	c.ready.WriteByte(kind)
	switch kind {
	case gossip.KindExchange:
		return c.exchange()
	case gossip.KindPing, gossip.KindAck, gossip.KindError:
		return c.readValue(&c.ready)
	}
	c.guard.count(DropMessageFormat)
	return fmt.Errorf("stream of %s begins with message type %d, which no member sends", c.by.id, kind)
}

// exchange reads the peer's states and keeps those that memberlist may receive. It keeps them
// encoded and without what memberlist does not use, so that the memory for an exchange does not
// depend on what the peer sends, but on the members that there are.
func (c *inspected) exchange() error {
	g := c.guard
	var value bytes.Buffer
	decode := func(into any) error {
		value.Reset()
		if err := c.readValue(&value); err != nil {
			return err
		}
		return gossip.Decode(value.Bytes(), into)
	}
	var header gossip.ExchangeHeader
	if err := decode(&header); err != nil {
		return fmt.Errorf("state exchange with %s: %w", c.by.id, err)
	}
	if limit := g.exchanges.announced(); header.Nodes < 0 || header.Nodes > limit || header.UserStateLen != 0 {
		g.count(dropTooMany)
		return fmt.Errorf("state exchange with %s: %d instances and %d bytes announced, %d and 0 are allowed", c.by.id, header.Nodes, header.UserStateLen, limit)
	}
	if c.place != nil && !c.place.take(header.Nodes) {
		g.count(dropExchanges)
		return fmt.Errorf("state exchange with %s: it has another one, or there are too many in all: it is repeated later", c.by.id)
	}
	c.limited.N = int64(header.Nodes) * maxState
	kept := keptStates{names: make(map[string]struct{}), others: g.exchanges.states}
	encoder := gossip.NewEncoder(&c.states)
	for range header.Nodes {
		var s gossip.State
		if err := decode(&s); err != nil {
			return fmt.Errorf("state exchange with %s: %w", c.by.id, err)
		}
		if value.Len() > maxState {
			g.count(DropMessageFormat)
			return fmt.Errorf("state exchange with %s: a state of %d bytes, %d are allowed", c.by.id, value.Len(), maxState)
		}
		reason := kept.checkRoom(&s)
		if reason == "" {
			reason = g.checkState(&s, c.by)
		}
		if reason != "" {
			g.refuse(reason)
			continue
		}
		kept.add(&s)
		if err := encoder.Encode(&s); err != nil {
			return err
		}
	}
	c.in.Reset(eof{}) // memberlist reads no further
	header.Nodes = kept.n
	return gossip.NewEncoder(&c.ready).Encode(&header)
}

// eof is the end of a stream.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// keptStates counts the states of one exchange that memberlist receives.
type keptStates struct {
	n      int
	names  map[string]struct{} // of instances that live
	others int                 // how many that do not live still have room
}

// checkRoom returns why a state has no room; "" if it has. Of an instance that does not live
// memberlist uses no metadata, so checkRoom removes them.
func (k *keptStates) checkRoom(s *gossip.State) (reason string) {
	if len(s.Meta) > memberlist.MetaMaxSize {
		return DropMetadata
	}
	if gossip.TooLong(s.Name, s.Addr, s.Vsn) {
		return DropMessageFormat
	}
	if s.State != gossip.StateAlive {
		s.Meta = nil
		if k.others == 0 {
			return dropTooMany
		}
		return ""
	}
	if _, again := k.names[s.Name]; again {
		return dropTooMany
	}
	return ""
}

func (k *keptStates) add(s *gossip.State) {
	k.n++
	if s.State != gossip.StateAlive {
		k.others--
		return
	}
	k.names[s.Name] = struct{}{}
}

// readValue moves the next value of the stream to out. The decoder of the codec, which memberlist
// uses, is not safe on a stream: it allocates whatever length is announced, 4 GB and more, before
// any of these bytes have arrived.
func (c *inspected) readValue(out *bytes.Buffer) error {
	err := gossip.CopyValue(out, c.in, 0)
	if errors.Is(err, gossip.ErrValue) {
		c.guard.count(DropMessageFormat)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
