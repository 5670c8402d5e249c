package membership

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

// memberlistHandle is the encoding of memberlist's messages.
var memberlistHandle = &codec.MsgpackHandle{}

// newEncoder returns an encoder of values that are part of a message.
func newEncoder(w io.Writer) *codec.Encoder { return codec.NewEncoder(w, memberlistHandle) }

// encodeMessage encodes a message of memberlist.
func encodeMessage(kind byte, message any) []byte {
	var b bytes.Buffer
	b.WriteByte(kind)
	_ = newEncoder(&b).Encode(message) // into memory, and of plain fields: cannot fail
	return b.Bytes()
}

// decodeMessage decodes from bytes, never from a stream: from a stream the codec allocates whatever
// length an extension announces, gigabytes for a few bytes. memberlist decodes from streams,
// so it must not receive messages that fail here.
func decodeMessage(b []byte, into any) error {
	return codec.NewDecoderBytes(b, memberlistHandle).Decode(into)
}

// tooLong reports whether memberlist sends no instance with a name, an address and versions of these
// lengths. Messages about unknown members wait for certificates, so their size matters.
func tooLong(name string, addr []byte, versions []uint8) bool {
	const longest = 63 + len(".18446744073709551615")
	return len(name) > longest || len(addr) > net.IPv6len || len(versions) > 6
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
