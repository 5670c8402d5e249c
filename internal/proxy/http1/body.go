package http1

import (
	"bytes"
	"errors"
	"io"
)

// Kind is how the end of a body is found (RFC 9112 §6.3).
type Kind uint8

const (
	NoBody  Kind = iota // the message ends with its head
	Length              // a number of bytes
	Chunked             // chunks, then trailers
	ToClose             // the end of the connection
)

const (
	maxChunkLine = 4096
	// maxChunkOverhead bounds the bytes of chunk extensions and tiny chunks beyond the data
	// that they carry, as in net/http.
	maxChunkOverhead = 16 << 10
)

// ErrNeedMore is returned for bytes that end within a message.
var ErrNeedMore = errors.New("more bytes are needed")

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkData
	chunkDataEnd
	chunkTrailer
)

// Body extracts a message body from the bytes of a connection. It does not read the
// connection: the caller passes the bytes that it has read. Begin starts each body.
type Body struct {
	// MaxTrailer bounds the trailers in bytes.
	MaxTrailer int
	// Trailer gets each trailer field; the slices are valid only during the call. Nil
	// ignores them.
	Trailer func(name, value []byte)

	kind        Kind
	state       chunkState
	remaining   int64 // of the body or of the chunk
	excess      int64
	trailerSize int
}

// Begin starts a body. The length counts only for the kind Length.
func (d *Body) Begin(kind Kind, length int64) {
	d.kind, d.state, d.remaining, d.excess, d.trailerSize = kind, chunkSize, length, 0, 0
}

// Kind returns the kind of the body; NoBody after the end of a chunked one.
func (d *Body) Kind() Kind { return d.kind }

// Direct returns how many of the next bytes of the connection are data, so that they can be
// read without a buffer in between: 0 if the next bytes may be anything else. Skip must be
// called with the number of bytes that were read so.
func (d *Body) Direct() int64 {
	if d.kind == Length || d.kind == Chunked && d.state == chunkData {
		return d.remaining
	}
	return 0
}

// Skip records that n bytes of data were read without Next.
func (d *Body) Skip(n int64) {
	if d.remaining -= n; d.remaining == 0 && d.kind == Chunked {
		d.state = chunkDataEnd
	}
}

// Next extracts the next piece of the body from buf. It returns the data, which points
// into buf, and the number of bytes of buf that it consumed. The error is ErrNeedMore if
// buf holds no further data, io.EOF after the end of the body. Data and an error never
// come together.
func (d *Body) Next(buf []byte) (data []byte, used int, err error) {
	switch d.kind {
	case Length:
		if d.remaining == 0 {
			return nil, 0, io.EOF
		}
		data = d.take(buf)
		if len(data) == 0 {
			return nil, 0, ErrNeedMore
		}
		return data, len(data), nil
	case ToClose:
		if len(buf) == 0 {
			return nil, 0, ErrNeedMore
		}
		return buf, len(buf), nil
	case Chunked:
		return d.nextChunked(buf)
	}
	return nil, 0, io.EOF
}

func (d *Body) take(buf []byte) []byte {
	if int64(len(buf)) > d.remaining {
		buf = buf[:d.remaining]
	}
	d.remaining -= int64(len(buf))
	return buf
}

func (d *Body) nextChunked(buf []byte) (data []byte, used int, err error) {
	for {
		switch d.state {
		case chunkSize:
			line, n, err := chunkLine(buf[used:])
			if err != nil {
				return nil, used, err
			}
			size, err := parseChunkSize(line)
			if err != nil {
				return nil, used, err
			}
			used += n
			d.excess = max(d.excess+int64(n)-16-2*size, 0)
			if d.excess > maxChunkOverhead {
				return nil, used, errChunkOverhead
			}
			d.remaining = size
			d.state = chunkData
			if size == 0 {
				d.state = chunkTrailer
			}
		case chunkData:
			data = d.take(buf[used:])
			if len(data) == 0 {
				return nil, used, ErrNeedMore
			}
			used += len(data)
			if d.remaining == 0 {
				d.state = chunkDataEnd
			}
			return data, used, nil
		case chunkDataEnd:
			rest := buf[used:]
			if len(rest) > 0 && rest[0] != '\r' || len(rest) > 1 && rest[1] != '\n' {
				return nil, used, errChunkEnd
			}
			if len(rest) < 2 {
				return nil, used, ErrNeedMore
			}
			used += 2
			d.state = chunkSize
		case chunkTrailer:
			i := bytes.IndexByte(buf[used:], '\n')
			length := i
			if i < 0 {
				length = len(buf) - used
			}
			if d.trailerSize+length >= d.MaxTrailer {
				return nil, used, ErrTrailers
			}
			if i < 0 {
				return nil, used, ErrNeedMore
			}
			if i == 0 || buf[used+i-1] != '\r' {
				return nil, used, ErrBareLF
			}
			line := buf[used : used+i-1]
			used += i + 1
			d.trailerSize += i + 1
			if len(line) == 0 {
				d.kind = NoBody
				return nil, used, io.EOF
			}
			f, err := ParseField(line)
			if err != nil {
				return nil, used, err
			}
			if d.Trailer != nil {
				d.Trailer(line[f.Name:f.NameEnd], line[f.Value:f.ValueEnd])
			}
		}
	}
}

// chunkLine extracts a chunk size line from buf; n includes its line end.
func chunkLine(buf []byte) (line []byte, n int, err error) {
	i := bytes.IndexByte(buf, '\n')
	if i < 0 {
		if len(buf) >= maxChunkLine {
			return nil, 0, errChunkTooLong
		}
		return nil, 0, ErrNeedMore
	}
	if i >= maxChunkLine {
		return nil, 0, errChunkTooLong
	}
	if i == 0 || buf[i-1] != '\r' {
		return nil, 0, errChunkLine
	}
	return buf[:i-1], i + 1, nil
}

// parseChunkSize reads hexadecimal digits, optionally followed by an extension, whose
// content is ignored.
func parseChunkSize(line []byte) (int64, error) {
	var n int64
	i := 0
	for ; i < len(line); i++ {
		c := line[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			c = 0xff
		}
		if c == 0xff {
			break
		}
		if i >= 15 { // at most 60 bits, so that sums do not overflow
			return 0, errChunkLine
		}
		n = n<<4 | int64(c)
	}
	if i == 0 {
		return 0, errChunkLine
	}
	rest := bytes.TrimLeft(line[i:], " \t")
	if len(rest) > 0 && rest[0] != ';' || !ValidValue(rest) {
		return 0, errChunkLine
	}
	return n, nil
}
