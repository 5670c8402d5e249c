package membership

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
)

// inspected is a stream of memberlist whose state exchange is inspected like packets:
// memberlist reads only the states of proven instances with valid incarnations.
type inspected struct {
	net.Conn
	guard *guard
	by    announcer
	// labelled is true if the stream begins with a label: the other end opened it.
	labelled bool
	// place is that of a stream which the other end opened. This node itself opens few.
	place *place

	in      *bufio.Reader
	limited *io.LimitedReader // under in
	ready   bytes.Buffer      // inspected, but not read yet
	states  bytes.Buffer      // follow ready; nothing follows them
	begun   bool
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
	case messagePushPull:
		return c.exchange()
	case messagePing, messageAck, messageError:
		return c.readValue(&c.ready)
	}
	c.guard.metrics.packetDropped(dropMessageFormat)
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
		return g.decode(value.Bytes(), into)
	}
	var header pushPullHeader
	if err := decode(&header); err != nil {
		return fmt.Errorf("state exchange with %s: %w", c.by.id, err)
	}
	if limit := g.exchanges.announced(); header.Nodes < 0 || header.Nodes > limit || header.UserStateLen != 0 {
		g.metrics.packetDropped(dropTooMany)
		return fmt.Errorf("state exchange with %s: %d instances and %d bytes announced, %d and 0 are allowed", c.by.id, header.Nodes, header.UserStateLen, limit)
	}
	if c.place != nil && !c.place.take(header.Nodes) {
		g.metrics.packetDropped(dropExchanges)
		return fmt.Errorf("state exchange with %s: it has another one, or there are too many in all: it is repeated later", c.by.id)
	}
	c.limited.N = int64(header.Nodes) * maxState
	kept := keptStates{names: make(map[string]struct{}), others: g.exchanges.states}
	encoder := codec.NewEncoder(&c.states, g.handle)
	for range header.Nodes {
		var s pushPullState
		if err := decode(&s); err != nil {
			return fmt.Errorf("state exchange with %s: %w", c.by.id, err)
		}
		if value.Len() > maxState {
			g.metrics.packetDropped(dropMessageFormat)
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
	return codec.NewEncoder(&c.ready, g.handle).Encode(&header)
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
func (k *keptStates) checkRoom(s *pushPullState) (reason string) {
	if len(s.Meta) > memberlist.MetaMaxSize {
		return dropMetadata
	}
	if tooLong(s.Name, s.Addr, s.Vsn) {
		return dropMessageFormat
	}
	if s.State != stateAlive {
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

func (k *keptStates) add(s *pushPullState) {
	k.n++
	if s.State != stateAlive {
		k.others--
		return
	}
	k.names[s.Name] = struct{}{}
}

const (
	// maxValue limits the size of one value of a stream.
	maxValue = 64 << 10
	// maxDepth limits the nesting of values. A state contains at most lists of numbers.
	maxDepth = 8
)

var errValue = errors.New("malformed message: a value is too large, too deep, or of a kind that memberlist does not send")

// readValue moves the next value of the stream to out. The decoder of the codec, which memberlist
// uses, is not safe on a stream: it allocates whatever length is announced, 4 GB and more, before
// any of these bytes have arrived.
func (c *inspected) readValue(out *bytes.Buffer) error {
	err := copyValue(out, c.in, 0)
	if errors.Is(err, errValue) {
		c.guard.metrics.packetDropped(dropMessageFormat)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// copyValue copies one value of MessagePack, according to the table of formats in its
// specification, without its extensions.
func copyValue(out *bytes.Buffer, in *bufio.Reader, depth int) error {
	kind, err := in.ReadByte()
	if err != nil {
		return err
	}
	out.WriteByte(kind)
	var data, values uint64 // the number of bytes, or of values, that follow
	switch {
	case kind < 0x80, kind >= 0xe0, kind == 0xc0, kind == 0xc2, kind == 0xc3: // small numbers, nil, false, true
	case kind < 0x90:
		values = 2 * uint64(kind&0x0f)
	case kind < 0xa0:
		values = uint64(kind & 0x0f)
	case kind < 0xc0:
		data = uint64(kind & 0x1f)
	case kind >= 0xc4 && kind <= 0xc6: // bytes
		data, err = copyLength(out, in, 1<<(kind-0xc4))
	case kind == 0xca || kind == 0xcb: // floats
		data = 4 << (kind - 0xca)
	case kind >= 0xcc && kind <= 0xd3: // integers
		data = 1 << ((kind - 0xcc) % 4)
	case kind >= 0xd9 && kind <= 0xdb: // text
		data, err = copyLength(out, in, 1<<(kind-0xd9))
	case kind == 0xdc || kind == 0xdd:
		values, err = copyLength(out, in, 2<<(kind-0xdc))
	case kind == 0xde || kind == 0xdf:
		values, err = copyLength(out, in, 2<<(kind-0xde))
		values *= 2
	default:
		return errValue
	}
	if err != nil {
		return err
	}
	if uint64(out.Len())+data+values > maxValue || depth > maxDepth {
		return errValue
	}
	if _, err := io.CopyN(out, in, int64(data)); err != nil {
		return err
	}
	for range values {
		if err := copyValue(out, in, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// copyLength copies a length field of size bytes and returns the length.
func copyLength(out *bytes.Buffer, in *bufio.Reader, size int64) (length uint64, _ error) {
	if _, err := io.CopyN(out, in, size); err != nil {
		return 0, err
	}
	for _, b := range out.Bytes()[out.Len()-int(size):] {
		length = length<<8 | uint64(b)
	}
	return length, nil
}
