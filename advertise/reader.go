package advertise

import (
	"encoding/binary"
	"math"
)

// reader decodes msgpack from the network. Lengths are checked against the caller's limit
// and against the rest of the input before memory is allocated; a general decoder would
// allocate whatever the input claims to hold. After the first error, every later read
// returns zero values.
type reader struct {
	rest []byte
	err  error
}

var errTruncated = &invalid{reason: "malformed", detail: "encoding ends early"}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
		r.rest = nil
	}
}

func (r *reader) take(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.rest)) {
		r.fail(errTruncated)
		return nil
	}
	out := r.rest[:n:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) tag() byte {
	b := r.take(1)
	if b == nil {
		return 0xc1 // the one byte msgpack never uses
	}
	return b[0]
}

// size reads a big-endian unsigned number of 1, 2, 4 or 8 bytes.
func (r *reader) size(bytes uint64) uint64 {
	b := r.take(bytes)
	if b == nil {
		return 0
	}
	var padded [8]byte
	copy(padded[8-len(b):], b)
	return binary.BigEndian.Uint64(padded[:])
}

func (r *reader) uint() uint64 {
	switch tag := r.tag(); {
	case tag <= 0x7f:
		return uint64(tag)
	case tag >= 0xcc && tag <= 0xcf: // uint 8 to 64
		return r.size(1 << (tag - 0xcc))
	case tag >= 0xd0 && tag <= 0xd3: // int 8 to 64, as some encoders write small positives
		n := r.size(1 << (tag - 0xd0))
		if bits := uint(8) << (tag - 0xd0); n>>(bits-1) != 0 {
			r.fail(refuse("malformed", "a negative number is not allowed here"))
			return 0
		}
		return n
	default:
		r.fail(refuse("malformed", "type 0x%02x instead of a number", tag))
		return 0
	}
}

// smallInt reads a number of at most 31 bits; a larger one becomes the largest.
func (r *reader) smallInt() int32 {
	n := r.uint()
	if n > math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(n)
}

// bytes reads a string or binary of at most limit bytes without copying it.
func (r *reader) bytes(limit int, reason string) []byte {
	var n uint64
	switch tag := r.tag(); {
	case tag >= 0xa0 && tag <= 0xbf:
		n = uint64(tag & 0x1f)
	case tag >= 0xc4 && tag <= 0xc6: // bin 8 to 32
		n = r.size(1 << (tag - 0xc4))
	case tag >= 0xd9 && tag <= 0xdb: // str 8 to 32
		n = r.size(1 << (tag - 0xd9))
	default:
		r.fail(refuse("malformed", "type 0x%02x instead of a string", tag))
	}
	if n > uint64(limit) {
		r.fail(refuse(reason, "%d bytes: want at most %d", n, limit))
		return nil
	}
	return r.take(n)
}

// optionalBytes is bytes for a field that may be nil.
func (r *reader) optionalBytes(limit int, reason string) []byte {
	if len(r.rest) > 0 && r.rest[0] == 0xc0 {
		r.take(1)
		return nil
	}
	return r.bytes(limit, reason)
}

func (r *reader) string(limit int, reason string) string { return string(r.bytes(limit, reason)) }

// array reads the head of an array of at most limit elements. Nil is an empty array.
func (r *reader) array(limit int, reason string) int {
	var n uint64
	switch tag := r.tag(); {
	case tag == 0xc0:
	case tag >= 0x90 && tag <= 0x9f:
		n = uint64(tag & 0x0f)
	case tag == 0xdc || tag == 0xdd: // array 16, 32
		n = r.size(2 << (tag - 0xdc))
	default:
		r.fail(refuse("malformed", "type 0x%02x instead of a list", tag))
	}
	if n > uint64(limit) {
		r.fail(refuse(reason, "%d elements: want at most %d", n, limit))
		return 0
	}
	if n > uint64(len(r.rest)) { // every element takes a byte or more
		r.fail(errTruncated)
		return 0
	}
	return int(n)
}

// skip skips n values of any type and nesting, without recursion. The network decides how deep
// values are nested, and a recursion could exhaust the stack.
func (r *reader) skip(n int) {
	for todo := uint64(max(n, 0)); todo > 0 && r.err == nil; todo-- {
		switch tag := r.tag(); {
		case tag <= 0x7f || tag >= 0xe0 || tag == 0xc0 || tag == 0xc2 || tag == 0xc3:
		case tag <= 0x8f: // map
			todo += 2 * uint64(tag&0x0f)
		case tag <= 0x9f: // array
			todo += uint64(tag & 0x0f)
		case tag <= 0xbf:
			r.take(uint64(tag & 0x1f))
		case tag >= 0xc4 && tag <= 0xc6: // bin
			r.take(r.size(1 << (tag - 0xc4)))
		case tag >= 0xc7 && tag <= 0xc9: // ext: length, type, data
			r.take(r.size(1<<(tag-0xc7)) + 1)
		case tag == 0xca || tag == 0xcb: // float
			r.take(4 << (tag - 0xca))
		case tag >= 0xcc && tag <= 0xcf:
			r.take(1 << (tag - 0xcc))
		case tag >= 0xd0 && tag <= 0xd3:
			r.take(1 << (tag - 0xd0))
		case tag >= 0xd4 && tag <= 0xd8: // fixext
			r.take(1 + 1<<(tag-0xd4))
		case tag >= 0xd9 && tag <= 0xdb:
			r.take(r.size(1 << (tag - 0xd9)))
		case tag == 0xdc || tag == 0xdd:
			todo += r.size(2 << (tag - 0xdc))
		case tag == 0xde || tag == 0xdf:
			todo += 2 * r.size(2<<(tag-0xde))
		default:
			r.fail(refuse("malformed", "type 0x%02x", tag))
		}
		// Each remaining value needs at least a byte; this check also keeps todo small.
		if todo-1 > uint64(len(r.rest)) {
			r.fail(errTruncated)
		}
	}
}

// finish returns the first error, or an error if input is left.
func (r *reader) finish() error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail(refuse("malformed", "%d bytes after the end", len(r.rest)))
	}
	return r.err
}
