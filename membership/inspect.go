package membership

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/ringway/ringway/membership/identity"
)

// Numbers of the memberlist messages that can change the state of other members. The number
// is the first byte of a message.
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

// The encodings are those of memberlist: maps by field name.
type (
	aliveMessage struct {
		Incarnation uint32
		Node        string
		Addr        []byte
		Port        uint16
		Meta        []byte
		Vsn         []uint8
	}
	// doubtMessage is used for suspect and for dead.
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

// Numbers of memberlist's states.
const (
	stateAlive = 0
	stateLeft  = 3
)

// A member answers each doubt by raising its incarnation by one. An incarnation has 32 bits
// and wraps around, and a member cannot answer above the maximum. Doubts arrive at most a few
// times per second, so an honest incarnation stays far below the limit that follows from the
// age of its instance. This alone bounds the doubts about an instance that does not sign its
// incarnation (see incarnation.go).
const (
	maxIncarnation       = 1 << 31
	incarnationHeadStart = 100_000
	incarnationsASecond  = 10
)

// incarnationAllowed reports whether an honest member can claim this incarnation.
func (g *guard) incarnationAllowed(instance string, incarnation uint32) bool {
	_, epoch, ok := splitInstance(instance)
	if !ok {
		return false
	}
	age := max(0, g.proofs.now().UnixMilli()-int64(min(epoch, 1<<50))) / 1000
	return int64(incarnation) <= min(maxIncarnation, incarnationHeadStart+incarnationsASecond*age)
}

// mayLeave reports whether a message may state that an instance left on purpose: the instance
// itself sent it, or its signed leave notice is known. Members that left receive no gossip, so
// such an instance could not contradict a forged message.
func (g *guard) mayLeave(instance string, by announcer) bool {
	if id, _, ok := splitInstance(instance); !ok || id == by.id {
		return ok
	}
	return g.hasLeft(instance)
}

func (g *guard) hasLeft(instance string) bool {
	id, epoch, _ := splitInstance(instance)
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.leaves[id], func(l signedLeave) bool { return l.epoch == epoch })
}

// signedLeave is a boot whose signed leave notice was checked.
type signedLeave struct {
	epoch uint64
	at    time.Duration
}

// recordLeave records a signed leave notice, and forgets the oldest of its author that is too many.
func (g *guard) recordLeave(id string, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	notices := slices.DeleteFunc(g.leaves[id], func(l signedLeave) bool { return l.epoch == epoch })
	if len(notices) >= leavesPerNode {
		notices = slices.Delete(notices, 0, 1)
		g.metrics.packetDropped(dropTooMany)
	}
	if len(notices) == 0 && len(g.leaves) >= 2*g.limits.members {
		g.metrics.packetDropped(dropTooMany)
		return
	}
	g.leaves[id] = append(notices, signedLeave{epoch, g.elapsed()})
}

// announcer is the proven member that a message came from.
type announcer struct{ id, addr string }

// inspect returns the parts of a message that memberlist may receive: the message itself if
// all parts are valid, else the valid parts; nil if there are none.
func (g *guard) inspect(payload []byte, by announcer) []byte {
	message := payload
	if len(message) > 5 && message[0] == messageChecksum {
		message = message[5:]
	}
	kept, whole := g.filter(message, by, false)
	if whole {
		return payload
	}
	return kept
}

// filter returns the valid parts of a message, and whether these are all parts.
func (g *guard) filter(message []byte, by announcer, inside bool) (kept []byte, whole bool) {
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
		if g.decode(message[1:], &d) != nil || len(d.From) > maxAccuser {
			reason = dropMessageFormat
			break
		}
		var kind byte
		if kind, reason = g.checkDoubt(message[0], &d, by); reason == "" {
			checked := encodeMessage(kind, &d)
			return checked, bytes.Equal(checked, message)
		}
	case messageAlive:
		var a aliveMessage
		if g.decode(message[1:], &a) != nil {
			reason = dropMessageFormat
		} else {
			reason = g.checkAlive(a, by)
		}
	case messageCompound:
		if inside {
			reason = dropMessageFormat // memberlist never nests compound messages
			break
		}
		return g.filterCompound(message, by)
	default: // compressed or encrypted: members do not send these here
		reason = dropMessageFormat
	}
	if reason != "" {
		g.refuse(reason)
		return nil, false
	}
	return message, true
}

// refuse counts what memberlist does not receive.
func (g *guard) refuse(reason string) {
	if reason != dropIdle {
		g.metrics.packetDropped(reason)
	}
}

// checkState returns why memberlist must not receive a state; "" if it may. memberlist takes the
// states that are neither alive nor left as suspicions.
func (g *guard) checkState(s *pushPullState, by announcer) (reason string) {
	if s.State == stateAlive {
		return g.checkAlive(aliveMessage{s.Incarnation, s.Name, s.Addr, s.Port, s.Meta, s.Vsn}, by)
	}
	kind, d := byte(messageSuspect), doubtMessage{Incarnation: s.Incarnation, Node: s.Name, From: by.id}
	if s.State == stateLeft {
		kind, d.From = messageDead, s.Name
	}
	_, reason = g.checkDoubt(kind, &d, by)
	s.Incarnation = d.Incarnation
	return reason
}

// decode decodes from bytes, never from a stream: from a stream the codec allocates whatever
// length an extension announces, gigabytes for a few bytes. memberlist decodes from streams,
// so it must not receive messages that fail here.
func (g *guard) decode(b []byte, into any) error {
	return codec.NewDecoderBytes(b, g.handle).Decode(into)
}

// tooLong reports whether memberlist sends no instance with a name, an address and versions of these
// lengths. Messages about unknown members wait for certificates, so their size matters.
func tooLong(name string, addr []byte, versions []uint8) bool {
	const longest = 63 + len(".18446744073709551615")
	return len(name) > longest || len(addr) > net.IPv6len || len(versions) > 6
}

// checkAlive returns why memberlist must not receive an alive message; "" if it may.
func (g *guard) checkAlive(a aliveMessage, by announcer) (reason string) {
	if !g.incarnationAllowed(a.Node, a.Incarnation) {
		return dropIncarnation
	}
	if tooLong(a.Node, a.Addr, a.Vsn) {
		return dropMessageFormat
	}
	if a.Node == g.self {
		return g.checkOwn(a)
	}
	t := announced{name: a.Node, addr: addrPort(a.Addr, a.Port), metadata: a.Meta, incarnation: a.Incarnation}
	m, err := g.proofs.prove(t)
	if err == nil {
		g.endDisplaced(false)
		return g.checkIncarnation(a, m)
	}
	var unproven *unprovenError
	if errors.As(err, &unproven) {
		g.metrics.unproven.WithLabelValues(unproven.kind).Inc()
		if unproven.missing != nil {
			var message bytes.Buffer
			message.WriteByte(messageAlive)
			if codec.NewEncoder(&message, g.handle).Encode(&a) == nil &&
				!g.parkAlive(*unproven.missing, a.Node, message.Bytes(), requestSource{from: by.addr, also: t.addr}, by.id) {
				return dropTooMany
			}
		}
	}
	return dropUnproven
}

func (g *guard) filterCompound(message []byte, by announcer) (kept []byte, whole bool) {
	all, whole := splitCompound(message)
	if !whole {
		g.metrics.packetDropped(dropMessageFormat)
	}
	var parts [][]byte
	for _, one := range all {
		part, unchanged := g.filter(one, by, true)
		whole = whole && unchanged
		if part != nil {
			parts = append(parts, part)
		}
	}
	if whole {
		return message, true
	}
	if len(parts) == 0 {
		return nil, false
	}
	return joinCompound(parts), false
}

// splitCompound returns the parts of a compound message, and whether all of them are there.
func splitCompound(message []byte) (parts [][]byte, whole bool) {
	if len(message) < 2 || len(message) < 2+2*int(message[1]) {
		return nil, false
	}
	count := int(message[1])
	lengths, rest := message[2:2+2*count], message[2+2*count:]
	for i := range count {
		length := int(binary.BigEndian.Uint16(lengths[2*i:]))
		if length > len(rest) {
			return parts, false
		}
		parts = append(parts, rest[:length])
		rest = rest[length:]
	}
	return parts, true
}

// joinCompound reverses splitCompound. The parts come from one packet, so there are at most 255,
// and the length of each fits.
func joinCompound(parts [][]byte) []byte {
	out := []byte{messageCompound, byte(len(parts))}
	for _, p := range parts {
		out = binary.BigEndian.AppendUint16(out, uint16(len(p)))
	}
	return append(out, bytes.Join(parts, nil)...)
}

func addrPort(ip net.IP, port uint16) string {
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port)))
}

// splitInstance splits the name of an instance into id and epoch.
func splitInstance(name string) (id string, epoch uint64, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || identity.CheckName(name[:dot]) != nil {
		return "", 0, false
	}
	epoch, err := strconv.ParseUint(name[dot+1:], 10, 64)
	return name[:dot], epoch, err == nil
}
