package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/ringway/ringway/internal/wire"
)

// noLength is the content length of a message that does not declare one.
const noLength = -1

// responseHead is one parsed response head. Its fields point by offset into the bytes that
// were parsed, so that it can be pooled.
type responseHead struct {
	status        int
	http10        bool
	contentLength int64 // noLength when not declared
	chunked       bool
	close         bool // the connection ends with this message
	upgrade       bool // Connection names Upgrade
	retryAfter    bool
	hasTrailer    bool
	failed        string // the value of wire.FailedHeader
	load          int
	size          int // bytes of the head, including the empty line
	fields        []fieldSpan
}

// fieldSpan is one header field: the offsets of name and value.
type fieldSpan struct {
	name, nameEnd, value, valueEnd uint32
	hop                            bool // concerns this connection only
}

var (
	errHeadTooLarge  = errors.New("malformed response: the head is too large")
	errBareLF        = errors.New("malformed response: a line of the head does not end with CR LF")
	errStatusLine    = errors.New("malformed response: bad status line")
	errStatus        = errors.New("malformed response: its status is not between 200 and 999")
	errVersion       = errors.New("malformed response: not HTTP/1.0 or HTTP/1.1")
	errFolded        = errors.New("malformed response: folded header line")
	errFieldName     = errors.New("malformed response: bad header name")
	errFieldValue    = errors.New("malformed response: bad byte in a header value")
	errLength        = errors.New("malformed response: bad Content-Length")
	errLengths       = errors.New("malformed response: conflicting Content-Length")
	errLengthAndTE   = errors.New("malformed response: both Transfer-Encoding and Content-Length")
	errCoding        = errors.New("malformed response: Transfer-Encoding is not chunked")
	errTrailerNames  = errors.New("malformed response: Trailer announces a framing field")
	errTrailersLarge = errors.New("malformed response: the trailers are too large")
)

// headEnd searches for the end of a head in buf and returns the length of the head, 0 if
// the head is not complete. The search continues at from, which is the next that the
// previous call returned.
func headEnd(buf []byte, from int) (n, next int, err error) {
	for {
		i := bytes.IndexByte(buf[from:], '\n')
		if i < 0 {
			return 0, from, nil
		}
		end := from + i
		if end == 0 || buf[end-1] != '\r' {
			return 0, from, errBareLF
		}
		if i == 1 { // an empty line
			return end + 1, end + 1, nil
		}
		from = end + 1
	}
}

// parse reads a complete head that headEnd has found (RFC 9112). It is stricter than
// net/http: line ends are CR LF, no folding, no blank before the colon, no empty name,
// only one framing, no coding except chunked.
func (h *responseHead) parse(buf []byte) error {
	*h = responseHead{contentLength: noLength, load: -1, size: len(buf), fields: h.fields[:0]}
	eol := bytes.IndexByte(buf, '\r')
	if err := h.parseStatusLine(buf[:eol]); err != nil {
		return err
	}
	if buf[eol+1] != '\n' {
		return errStatusLine
	}
	connection, keepAlive := false, false
	for pos := eol + 2; ; {
		i := bytes.IndexByte(buf[pos:], '\n')
		line := buf[pos : pos+i-1]
		if len(line) == 0 {
			break
		}
		f, err := parseField(line)
		if err != nil {
			return err
		}
		name, value := line[f.name:f.nameEnd], line[f.value:f.valueEnd]
		switch len(name) {
		case 2:
			f.hop = equalFold(name, "te")
		case 7:
			if equalFold(name, "upgrade") {
				f.hop = true
			} else if equalFold(name, "trailer") {
				h.hasTrailer = true
				if t := string(value); hasToken(t, "Content-Length") || hasToken(t, "Transfer-Encoding") || hasToken(t, "Trailer") {
					return errTrailerNames
				}
			}
		case 10:
			if equalFold(name, "connection") {
				f.hop, connection = true, true
				v := string(value)
				h.close = h.close || hasToken(v, "close")
				h.upgrade = h.upgrade || hasToken(v, "upgrade")
				keepAlive = keepAlive || hasToken(v, "keep-alive")
			} else if equalFold(name, "keep-alive") {
				f.hop = true
			}
		case 11:
			if equalFold(name, "retry-after") {
				h.retryAfter = true
			}
		case 12:
			if equalFold(name, wire.LoadHeader) {
				h.load = parseLoad(string(value))
			}
		case 14:
			if equalFold(name, wire.FailedHeader) {
				h.failed = string(value)
			} else if equalFold(name, "content-length") {
				n, ok := parseLength(value)
				if !ok {
					return errLength
				}
				if h.contentLength != noLength {
					if h.contentLength != n {
						return errLengths
					}
					f.hop = true // a repetition, not written again
				}
				h.contentLength = n
			}
		case 16:
			f.hop = equalFold(name, "proxy-connection")
		case 17:
			if equalFold(name, "transfer-encoding") {
				if h.chunked || !equalFold(value, "chunked") {
					return errCoding
				}
				f.hop, h.chunked = true, true
			}
		case 18:
			f.hop = equalFold(name, "proxy-authenticate")
		}
		f.name += uint32(pos)
		f.nameEnd += uint32(pos)
		f.value += uint32(pos)
		f.valueEnd += uint32(pos)
		h.fields = append(h.fields, f)
		pos += i + 1
	}
	if h.chunked {
		if h.contentLength != noLength {
			return errLengthAndTE
		}
		if h.http10 {
			return errCoding
		}
	}
	if h.http10 && !keepAlive {
		h.close = true
	}
	if connection {
		h.markNamed(buf)
	}
	return nil
}

func (h *responseHead) parseStatusLine(line []byte) error {
	const prefix = "HTTP/1."
	if len(line) < len("HTTP/1.1 200") || string(line[:len(prefix)]) != prefix {
		return h.statusLineError(line)
	}
	switch line[7] {
	case '0':
		h.http10 = true
	case '1':
	default:
		return errVersion
	}
	if line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return h.statusLineError(line)
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return h.statusLineError(line)
		}
		h.status = h.status*10 + int(c-'0')
	}
	if h.status < 100 || !allBytes(&isValue, line[12:]) {
		return h.statusLineError(line)
	}
	return nil
}

func (h *responseHead) statusLineError(line []byte) error {
	if bytes.HasPrefix(line, []byte("HTTP/")) && !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return errVersion
	}
	if len(line) > 40 {
		line = line[:40]
	}
	return fmt.Errorf("%w %q", errStatusLine, line)
}

// parseField splits one header line without its line end.
func parseField(line []byte) (f fieldSpan, err error) {
	if line[0] == ' ' || line[0] == '\t' {
		return f, errFolded
	}
	n := 0
	for n < len(line) && isToken[line[n]] {
		n++
	}
	if n == 0 || n == len(line) || line[n] != ':' {
		return f, errFieldName
	}
	v, end := n+1, len(line)
	for v < end && (line[v] == ' ' || line[v] == '\t') {
		v++
	}
	for end > v && (line[end-1] == ' ' || line[end-1] == '\t') {
		end--
	}
	if !allBytes(&isValue, line[v:end]) {
		return f, errFieldValue
	}
	return fieldSpan{nameEnd: uint32(n), value: uint32(v), valueEnd: uint32(end)}, nil
}

// markNamed marks the fields that Connection names as hop-by-hop. Connection cannot remove
// the framing and Trailer.
func (h *responseHead) markNamed(buf []byte) {
	for i := range h.fields {
		c := &h.fields[i]
		if !c.hop || !equalFold(buf[c.name:c.nameEnd], "connection") {
			continue
		}
		for list := string(buf[c.value:c.valueEnd]); list != ""; {
			var item string
			item, list, _ = strings.Cut(list, ",")
			item = strings.Trim(item, " \t")
			if strings.EqualFold(item, "close") || strings.EqualFold(item, "keep-alive") ||
				strings.EqualFold(item, "Content-Length") || strings.EqualFold(item, "Trailer") {
				continue
			}
			for j := range h.fields {
				f := &h.fields[j]
				if int(f.nameEnd-f.name) == len(item) && strings.EqualFold(string(buf[f.name:f.nameEnd]), item) {
					f.hop = true
				}
			}
		}
	}
}

// fill adds the end-to-end fields to dst. buf is the input of parse. One string holds all
// names and values, one slice all value lists.
func (h *responseHead) fill(dst http.Header, buf []byte, x *Exchange) {
	text := string(buf)
	values := make([]string, len(h.fields))
	for i := range h.fields {
		f := &h.fields[i]
		if f.hop {
			continue
		}
		name := http.CanonicalHeaderKey(text[f.name:f.nameEnd])
		if !x.keepsResponse(name) {
			continue
		}
		values[i] = text[f.value:f.valueEnd]
		if h.hasTrailer && name == "Trailer" {
			if values[i] = x.keptNames(values[i]); values[i] == "" {
				continue
			}
		}
		if before, ok := dst[name]; ok {
			dst[name] = append(before, values[i])
			continue
		}
		dst[name] = values[i : i+1 : i+1]
	}
}

// bodyless reports whether a response to method never has a body, whatever its fields
// declare.
func bodyless(method string, status int) bool {
	return method == http.MethodHead || status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

// declaresBody reports whether the fields declare a body.
func (h *responseHead) declaresBody() bool { return h.chunked || h.contentLength > 0 }

func parseLength(v []byte) (int64, bool) {
	if len(v) == 0 || len(v) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// equalFold compares b with s, ignoring the case of ASCII letters.
func equalFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := 0; i < len(s); i++ {
		c, d := b[i], s[i]
		if c == d {
			continue
		}
		if c|0x20 != d|0x20 || d|0x20 < 'a' || d|0x20 > 'z' {
			return false
		}
	}
	return true
}
