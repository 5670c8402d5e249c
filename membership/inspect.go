package membership

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// The messages of memberlist that can change what a member believes of others.
// Their number leads each message.
const (
	messagePing         = 0
	messageIndirectPing = 1
	messageAck          = 2
	messageSuspect      = 3
	messageAlive        = 4
	messageDead         = 5
	messagePushPull     = 6
	messageCompound     = 7
	messageUser         = 8
	messageNack         = 11
	messageChecksum     = 12
	messageError        = 13
)

// The encodings are memberlist's: maps by the names of the fields.
type (
	aliveMessage struct {
		Incarnation uint32
		Node        string
		Addr        []byte
		Port        uint16
		Meta        []byte
		Vsn         []uint8
	}
	// doubtMessage is suspect and dead alike.
	doubtMessage struct {
		Incarnation uint32
		Node        string
		From        string
	}
	pushPullHeader struct {
		Nodes        int
		UserStateLen int
		Join         bool
	}
	pushPullState struct {
		Name        string
		Addr        []byte
		Port        uint16
		Meta        []byte
		Incarnation uint32
		State       int
		Vsn         []uint8
	}
)

// memberlist's numbers of states.
const (
	stateAlive = 0
	stateLeft  = 3
)

// An incarnation is a member's answer to doubts: each raises it by one. It is 32
// bits wide and wraps around, and a member cannot answer above the top. Doubts come
// a few a second at most, so an honest incarnation stays far below what the age of
// its instance allows.
const (
	maxIncarnation       = 1 << 31
	incarnationHeadStart = 100_000
	incarnationsASecond  = 10
)

// incarnationAllowed bounds what anyone can say of an instance.
func (g *guard) incarnationAllowed(instance string, incarnation uint32) bool {
	_, epoch, ok := splitInstance(instance)
	if !ok {
		return false
	}
	age := max(0, g.proofs.now().UnixMilli()-int64(min(epoch, 1<<50))) / 1000
	return int64(incarnation) <= min(maxIncarnation, incarnationHeadStart+incarnationsASecond*age)
}

// mayLeave reports whether an instance may be said to have gone by its own will: it
// says so itself, or its signed goodbye is known. Nothing is gossiped to a member
// that left, so it could not contradict a lie.
func (g *guard) mayLeave(instance string, by teller) bool {
	if id, _, ok := splitInstance(instance); !ok || id == by.id {
		return ok
	}
	return g.saidGoodbye(instance)
}

func (g *guard) saidGoodbye(instance string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, known := g.goodbyes[instance]
	return known
}

// noteGoodbye remembers an instance whose signed goodbye was checked.
func (g *guard) noteGoodbye(instance string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.goodbyes) < 2*g.limits.members {
		g.goodbyes[instance] = g.elapsed()
	}
}

// teller is the proven member that a message came from.
type teller struct{ id, addr string }

// inspect returns what memberlist may see of a message: the message itself where
// all of it is in order, else the parts that are; nothing when none is.
func (g *guard) inspect(payload []byte, by teller) []byte {
	message := payload
	if len(message) > 5 && message[0] == messageChecksum {
		message = message[5:]
	}
	kept, whole := g.sift(message, by, false)
	if whole {
		return payload
	}
	return kept
}

// sift returns the parts of a message that may pass, and whether these are all.
func (g *guard) sift(message []byte, by teller, inside bool) (kept []byte, whole bool) {
	if len(message) == 0 {
		return nil, false
	}
	reason := ""
	switch message[0] {
	case messageUser:
		return message, true
	case messagePing, messageIndirectPing, messageAck, messageNack, messageError:
		if g.decode(message[1:], &struct{}{}) != nil {
			reason = dropMessageFormat
		}
	case messageSuspect, messageDead:
		var d doubtMessage
		if g.decode(message[1:], &d) != nil {
			reason = dropMessageFormat
		} else if !g.incarnationAllowed(d.Node, d.Incarnation) {
			reason = dropIncarnation
		} else if message[0] == messageDead && d.From == d.Node && !g.mayLeave(d.Node, by) {
			reason = dropForged
		}
	case messageAlive:
		var a aliveMessage
		if g.decode(message[1:], &a) != nil {
			reason = dropMessageFormat
		} else {
			reason = g.judgeAlive(a, by)
		}
	case messageCompound:
		if inside {
			reason = dropMessageFormat // memberlist never nests
			break
		}
		return g.siftCompound(message, by)
	default: // compressed or encrypted: no member sends that
		reason = dropMessageFormat
	}
	if reason != "" {
		g.metrics.packetDropped(reason)
		return nil, false
	}
	return message, true
}

// decode reads from bytes, never from a stream: there the codec reserves whatever
// length an extension announces, gigabytes for a few bytes. memberlist decodes from
// streams, so it must not see what fails here.
func (g *guard) decode(b []byte, into any) error {
	return codec.NewDecoderBytes(b, g.handle).Decode(into)
}

// judgeAlive says why memberlist must not see an alive message; "" when it may.
func (g *guard) judgeAlive(a aliveMessage, by teller) (reason string) {
	if !g.incarnationAllowed(a.Node, a.Incarnation) {
		return dropIncarnation
	}
	if a.Node == g.self {
		return "" // memberlist answers by itself
	}
	t := told{name: a.Node, addr: addrPort(a.Addr, a.Port), metadata: a.Meta}
	_, err := g.proofs.prove(t)
	if err == nil {
		return ""
	}
	var unproven *unprovenError
	if errors.As(err, &unproven) {
		g.metrics.unproven.WithLabelValues(unproven.kind).Inc()
		if unproven.missing != nil {
			var message bytes.Buffer
			message.WriteByte(messageAlive)
			if codec.NewEncoder(&message, g.handle).Encode(&a) == nil &&
				!g.parkAlive(*unproven.missing, a.Node, message.Bytes(), wanted{from: by.addr, also: t.addr}, by.id) {
				return dropTooMany
			}
		}
	}
	return dropUnproven
}

func (g *guard) siftCompound(message []byte, by teller) (kept []byte, whole bool) {
	if len(message) < 2 || len(message) < 2+2*int(message[1]) {
		g.metrics.packetDropped(dropMessageFormat)
		return nil, false
	}
	count := int(message[1])
	lengths, rest := message[2:2+2*count], message[2+2*count:]
	whole = true
	var parts [][]byte
	for i := range count {
		length := int(binary.BigEndian.Uint16(lengths[2*i:]))
		if length > len(rest) {
			g.metrics.packetDropped(dropMessageFormat)
			whole = false
			break
		}
		part, all := g.sift(rest[:length], by, true)
		rest = rest[length:]
		whole = whole && all
		if all {
			parts = append(parts, part)
		}
	}
	if whole {
		return message, true
	}
	if len(parts) == 0 {
		return nil, false
	}
	kept = []byte{messageCompound, byte(len(parts))}
	for _, p := range parts {
		kept = binary.BigEndian.AppendUint16(kept, uint16(len(p)))
	}
	return append(kept, bytes.Join(parts, nil)...), false
}

func addrPort(ip net.IP, port uint16) string {
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port)))
}

// splitInstance takes the name of an instance apart.
func splitInstance(name string) (id string, epoch uint64, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || checkID(name[:dot]) != nil {
		return "", 0, false
	}
	epoch, err := strconv.ParseUint(name[dot+1:], 10, 64)
	return name[:dot], epoch, err == nil
}

// inspected is a stream of memberlist whose state exchange is inspected as packets
// are: memberlist reads only the states of proven instances, with incarnations that
// are allowed.
type inspected struct {
	net.Conn
	guard *guard
	by    teller
	// labelled says that the stream begins with a label: the other end opened it.
	labelled bool

	in    *bufio.Reader
	ready bytes.Buffer // what was inspected and not yet read
	begun bool
}

// maxStream bounds what one exchange of states may take.
const maxStream = 64 << 20

func (c *inspected) Read(b []byte) (int, error) {
	if !c.begun {
		c.begun = true
		c.in = bufio.NewReader(io.LimitReader(c.Conn, maxStream))
		if err := c.begin(); err != nil {
			return 0, err
		}
	}
	if c.ready.Len() > 0 {
		return c.ready.Read(b)
	}
	return c.in.Read(b)
}

// begin reads as far as the message type, and through an exchange of states.
func (c *inspected) begin() error {
	if c.labelled {
		label := make([]byte, len(c.guard.header))
		if _, err := io.ReadFull(c.in, label); err != nil {
			return err
		}
		c.ready.Write(label) // memberlist compares it
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

// exchange reads the other end's states and keeps those that memberlist may see.
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
	// Dead instances are told of as well, for a while.
	if limit := 4 * g.limits.members; header.Nodes < 0 || header.Nodes > limit || header.UserStateLen != 0 {
		g.metrics.packetDropped(dropTooMany)
		return fmt.Errorf("state exchange with %s: %d instances and %d bytes announced, %d and 0 are allowed", c.by.id, header.Nodes, header.UserStateLen, limit)
	}
	states := make([]pushPullState, 0, min(header.Nodes, 1024))
	for range header.Nodes {
		var s pushPullState
		if err := decode(&s); err != nil {
			return fmt.Errorf("state exchange with %s: %w", c.by.id, err)
		}
		reason := ""
		if s.State == stateAlive {
			reason = g.judgeAlive(aliveMessage{s.Incarnation, s.Name, s.Addr, s.Port, s.Meta, s.Vsn}, c.by)
		} else if !g.incarnationAllowed(s.Name, s.Incarnation) {
			reason = dropIncarnation
		} else if s.State == stateLeft && !g.mayLeave(s.Name, c.by) {
			reason = dropForged
		}
		if reason != "" {
			g.metrics.packetDropped(reason)
			continue
		}
		states = append(states, s)
	}
	header.Nodes = len(states)
	encoder := codec.NewEncoder(&c.ready, g.handle)
	if err := encoder.Encode(&header); err != nil {
		return err
	}
	for i := range states {
		if err := encoder.Encode(&states[i]); err != nil {
			return err
		}
	}
	return nil
}
