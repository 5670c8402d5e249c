package gossip

import "encoding/binary"

// AppendText writes a text of at most 255 bytes: its length, then the bytes.
func AppendText(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}

// FieldReader reads fields from the front of a frame; after a missing field every later one
// is empty. So a caller reads all fields and checks Failed once.
type FieldReader struct {
	Rest   []byte
	Failed bool
}

// Take returns the next n bytes, nil if there are fewer.
func (r *FieldReader) Take(n int) []byte {
	if r.Failed || len(r.Rest) < n {
		r.Failed = true
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Byte returns the next byte.
func (r *FieldReader) Byte() uint8 {
	if b := r.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint64 returns the next eight bytes as a number.
func (r *FieldReader) Uint64() uint64 {
	if b := r.Take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Text returns a text that AppendText wrote.
func (r *FieldReader) Text() string { return string(r.Take(int(r.Byte()))) }

// labelMagic begins every packet that carries a memberlist label. No kind of message has this
// number.
const labelMagic = 244

// LabelHeader returns how memberlist begins each packet of a cluster.
func LabelHeader(label string) []byte {
	return append([]byte{labelMagic, byte(len(label))}, label...)
}
