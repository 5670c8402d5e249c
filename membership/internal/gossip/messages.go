package gossip

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// Numbers of the memberlist messages that can change the state of other members. The number
// is the first byte of a message.
const (
	KindPing         = 0
	KindIndirectPing = 1
	KindAck          = 2
	KindSuspect      = 3
	KindAlive        = 4
	KindDead         = 5
	KindExchange     = 6
	KindCompound     = 7
	KindUser         = 8
	KindNack         = 11
	KindChecksum     = 12
	KindError        = 13
)

// The encodings are those of memberlist: maps by field name.
type (
	// Alive announces an instance.
	Alive struct {
		Incarnation uint32
		Node        string
		Addr        []byte
		Port        uint16
		Meta        []byte
		Vsn         []uint8
	}
	// Doubt states that an instance is suspected, or dead. From is the member that began it.
	Doubt struct {
		Incarnation uint32
		Node        string
		From        string
	}
	// ExchangeHeader begins an exchange of states over a stream. The states follow.
	ExchangeHeader struct {
		Nodes        int
		UserStateLen int
		Join         bool
	}
	// State is one instance in an exchange of states.
	State struct {
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
	// The two between are suspect and dead: both are a doubt by the word of another member.
	StateAlive = 0
	StateLeft  = 3
)

// handle is the encoding of memberlist's messages.
var handle = &codec.MsgpackHandle{}

// NewEncoder returns an encoder of values that are part of a message.
func NewEncoder(w io.Writer) *codec.Encoder { return codec.NewEncoder(w, handle) }

// Encode encodes a message of memberlist.
func Encode(kind byte, message any) []byte {
	var b bytes.Buffer
	b.WriteByte(kind)
	_ = NewEncoder(&b).Encode(message) // into memory, and of plain fields: cannot fail
	return b.Bytes()
}

// Decode decodes from bytes, never from a stream: from a stream the codec allocates whatever
// length an extension announces, gigabytes for a few bytes. memberlist decodes from streams,
// so it must not receive messages that fail here.
func Decode(b []byte, into any) error {
	return codec.NewDecoderBytes(b, handle).Decode(into)
}

// TooLong reports whether memberlist sends no instance with a name, an address and versions of these
// lengths. Messages about unknown members wait for certificates, so their size matters.
func TooLong(name string, addr []byte, versions []uint8) bool {
	const longest = 63 + len(".18446744073709551615")
	return len(name) > longest || len(addr) > net.IPv6len || len(versions) > 6
}

// SplitCompound returns the parts of a compound message, and whether all of them are there. The
// message is its kind, the number of parts, the length of each in two bytes, and the parts. If it
// ends early, the parts that are complete still count, as they do for memberlist.
func SplitCompound(message []byte) (parts [][]byte, whole bool) {
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

// JoinCompound reverses SplitCompound. The parts come from one packet, so there are at most 255,
// and the length of each fits.
func JoinCompound(parts [][]byte) []byte {
	out := []byte{KindCompound, byte(len(parts))}
	for _, p := range parts {
		out = binary.BigEndian.AppendUint16(out, uint16(len(p)))
	}
	return append(out, bytes.Join(parts, nil)...)
}
