package gossip

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	// maxValue limits the size of one value of a stream. The largest that memberlist sends, a
	// state, has about 1 KiB.
	maxValue = 64 << 10
	// maxDepth limits the nesting of values. A state contains at most lists of numbers.
	maxDepth = 8
)

var ErrValue = errors.New("malformed message: a value is too large, too deep, or of a kind that memberlist does not send")

// CopyValue copies one value of MessagePack, according to the table of formats in its
// specification, without its extensions. The codec never sees a stream: a length that is announced
// costs memory only when that many bytes have arrived. The size is checked before they are read,
// and the depth because each level of nesting takes a call.
func CopyValue(out *bytes.Buffer, in *bufio.Reader, depth int) error {
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
		return ErrValue
	}
	if err != nil {
		return err
	}
	if uint64(out.Len())+data+values > maxValue || depth > maxDepth {
		return ErrValue
	}
	if _, err := io.CopyN(out, in, int64(data)); err != nil {
		return err
	}
	for range values {
		if err := CopyValue(out, in, depth+1); err != nil {
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
