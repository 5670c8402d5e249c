package upstream

import (
	"bytes"
	"errors"
	"io"
	"strings"
)

type bodyKind uint8

const (
	bodyNone bodyKind = iota
	bodyLength
	bodyChunked
	bodyToClose
)

const (
	maxChunkLine = 4096
	// maxChunkOverhead bounds the bytes of chunk extensions and tiny chunks beyond the data
	// that they carry, as in net/http.
	maxChunkOverhead = 16 << 10
)

var (
	errNeedMore      = errors.New("more bytes are needed")
	errChunkLine     = errors.New("malformed response: bad chunk size line")
	errChunkTooLong  = errors.New("malformed response: chunk size line too long")
	errChunkOverhead = errors.New("malformed response: too much chunk overhead")
	errChunkEnd      = errors.New("malformed response: chunk data does not end with CR LF")
)

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkData
	chunkDataEnd
	chunkTrailer
)

// framing extracts a message body from the bytes of a connection. It does not read the
// connection: the caller passes the bytes that it has read.
type framing struct {
	kind        bodyKind
	state       chunkState
	remaining   int64 // of the body or of the chunk
	excess      int64
	trailerSize int
	maxTrailer  int
	// trailer gets each trailer field; the slices are valid only during the call.
	trailer func(name, value []byte)
}

// next extracts the next piece of the body from buf. It returns the data, which points
// into buf, and the number of bytes of buf that it consumed. The error is errNeedMore if
// buf holds no further data, io.EOF after the end of the body. Data and an error never
// come together.
func (d *framing) next(buf []byte) (data []byte, used int, err error) {
	switch d.kind {
	case bodyLength:
		if d.remaining == 0 {
			return nil, 0, io.EOF
		}
		data = d.take(buf)
		if len(data) == 0 {
			return nil, 0, errNeedMore
		}
		return data, len(data), nil
	case bodyToClose:
		if len(buf) == 0 {
			return nil, 0, errNeedMore
		}
		return buf, len(buf), nil
	case bodyChunked:
		return d.nextChunked(buf)
	}
	return nil, 0, io.EOF
}

func (d *framing) take(buf []byte) []byte {
	if int64(len(buf)) > d.remaining {
		buf = buf[:d.remaining]
	}
	d.remaining -= int64(len(buf))
	return buf
}

func (d *framing) nextChunked(buf []byte) (data []byte, used int, err error) {
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
				return nil, used, errNeedMore
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
				return nil, used, errNeedMore
			}
			used += 2
			d.state = chunkSize
		case chunkTrailer:
			i := bytes.IndexByte(buf[used:], '\n')
			length := i
			if i < 0 {
				length = len(buf) - used
			}
			if d.trailerSize+length >= d.maxTrailer {
				return nil, used, errTrailersLarge
			}
			if i < 0 {
				return nil, used, errNeedMore
			}
			if i == 0 || buf[used+i-1] != '\r' {
				return nil, used, errBareLF
			}
			line := buf[used : used+i-1]
			used += i + 1
			d.trailerSize += i + 1
			if len(line) == 0 {
				d.kind, d.remaining = bodyLength, 0
				return nil, used, io.EOF
			}
			f, err := parseField(line)
			if err != nil {
				return nil, used, err
			}
			if d.trailer != nil {
				d.trailer(line[f.name:f.nameEnd], line[f.value:f.valueEnd])
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
		return nil, 0, errNeedMore
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
	if len(rest) > 0 && rest[0] != ';' || !allBytes(&isValue, rest) {
		return 0, errChunkLine
	}
	return n, nil
}

// isToken marks the bytes of a token (RFC 9110 §5.6.2).
var isToken = func() (t [256]bool) {
	for c := '0'; c <= '9'; c++ {
		t[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()

// isValue marks the bytes of a field value: no control characters except tab.
var isValue = func() (t [256]bool) {
	for c := range t {
		t[c] = c == '\t' || c >= ' ' && c != 0x7f
	}
	return t
}()

// isTarget marks the bytes that are allowed in a request target. Blanks and control
// characters would change where the request line ends.
var isTarget = func() (t [256]bool) {
	for c := range t {
		t[c] = c > ' ' && c != 0x7f
	}
	return t
}()

func all(t *[256]bool, s string) bool {
	for i := 0; i < len(s); i++ {
		if !t[s[i]] {
			return false
		}
	}
	return true
}

func allBytes(t *[256]bool, s []byte) bool {
	for _, c := range s {
		if !t[c] {
			return false
		}
	}
	return true
}

func validToken(s string) bool { return s != "" && all(&isToken, s) }

// hasToken reports whether a comma-separated list contains token, ignoring case.
func hasToken(list, token string) bool {
	for list != "" {
		var item string
		item, list, _ = strings.Cut(list, ",")
		if strings.EqualFold(strings.Trim(item, " \t"), token) {
			return true
		}
	}
	return false
}

func anyHasToken(lists []string, token string) bool {
	for _, l := range lists {
		if hasToken(l, token) {
			return true
		}
	}
	return false
}
