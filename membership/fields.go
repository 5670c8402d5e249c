package membership

import "encoding/binary"

// appendString writes a text of at most 255 bytes: its length, then the bytes.
func appendString(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}

// fieldReader reads fields from the front of a frame; after a missing field every later one
// is empty.
type fieldReader struct {
	rest   []byte
	failed bool
}

func (r *fieldReader) take(n int) []byte {
	if r.failed || len(r.rest) < n {
		r.failed = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *fieldReader) byte() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *fieldReader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *fieldReader) string() string { return string(r.take(int(r.byte()))) }

// labelHeader returns how memberlist begins each packet of a cluster.
func labelHeader(label string) []byte {
	return append([]byte{labelMagic, byte(len(label))}, label...)
}
