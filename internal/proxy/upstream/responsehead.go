package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/ringway/ringway/internal/proxy/http1"
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
	lengthAt      int   // its field
	chunked       bool
	framed        bool // an informational answer has framing fields, which mean nothing there (RFC 9110 §15.2)
	close         bool // the connection ends with this message
	upgrade       bool // Connection names Upgrade
	retryAfter    bool
	hasTrailer    bool
	failed        string // the value of wire.FailedHeader
	load          int
	loads         int // fields with a load
	size          int // bytes of the head, including the empty line
	fields        []http1.Field
	spelled       []byte // the name that pass passes, as the endpoint has written it
}

var (
	errStatusLine = errors.New("malformed response: bad status line")
)

// parse reads a complete head that http1.HeadEnd has found (RFC 9112). It is stricter than
// net/http: line ends are CR LF, no folding, no blank before the colon, no empty name, only one
// framing, no coding except chunked. Two framings are refused, and not resolved as RFC 9112 §6.3
// allows: the client, or a proxy in front of it, could find another end of the answer. Names are
// compared only with those of the same length, so that most fields cost no comparison.
func (h *responseHead) parse(buf []byte) error {
	*h = responseHead{contentLength: noLength, load: -1, size: len(buf), fields: h.fields[:0], spelled: h.spelled[:0]}
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
		f, err := http1.ParseField(line)
		if err != nil {
			return err
		}
		name, value := line[f.Name:f.NameEnd], line[f.Value:f.ValueEnd]
		switch len(name) {
		case 2:
			f.HopByHop = http1.EqualFold(name, "te")
		case 7:
			if http1.EqualFold(name, "upgrade") {
				f.HopByHop = true
			} else if http1.EqualFold(name, "trailer") {
				h.hasTrailer = true
				if t := string(value); http1.HasToken(t, "Content-Length") || http1.HasToken(t, "Transfer-Encoding") || http1.HasToken(t, "Trailer") {
					return http1.ErrTrailerNames
				}
			}
		case 10:
			if http1.EqualFold(name, "connection") {
				f.HopByHop, connection = true, true
				v := string(value)
				h.close = h.close || http1.HasToken(v, "close")
				h.upgrade = h.upgrade || http1.HasToken(v, "upgrade")
				keepAlive = keepAlive || http1.HasToken(v, "keep-alive")
			} else if http1.EqualFold(name, "keep-alive") {
				f.HopByHop = true
			}
		case 11:
			if http1.EqualFold(name, "retry-after") {
				h.retryAfter = true
			}
		case 12:
			if http1.EqualFold(name, wire.LoadHeader) {
				if h.load = parseLoad(string(value)); h.loads > 0 {
					h.load = -1
				}
				h.loads++
			}
		case 14:
			if http1.EqualFold(name, wire.FailedHeader) {
				h.failed = string(value)
			} else if http1.EqualFold(name, "content-length") {
				if h.informational() {
					f.HopByHop, h.framed = true, true
					break
				}
				n, ok := http1.ParseLength(value)
				if !ok {
					return http1.ErrLength
				}
				if h.contentLength != noLength {
					// Compared as text, as net/http does: 3 and 03 may differ for a recipient.
					if first := h.fields[h.lengthAt]; !bytes.Equal(buf[first.Value:first.ValueEnd], value) {
						return http1.ErrLengths
					}
					f.HopByHop = true // a repetition, not written again
				} else {
					h.contentLength, h.lengthAt = n, len(h.fields)
				}
			}
		case 16:
			f.HopByHop = http1.EqualFold(name, "proxy-connection")
		case 17:
			if http1.EqualFold(name, "transfer-encoding") {
				if h.informational() {
					f.HopByHop, h.framed = true, true
					break
				}
				if h.chunked || !http1.EqualFold(value, "chunked") {
					return http1.ErrCoding
				}
				f.HopByHop, h.chunked = true, true
			}
		}
		f.Name += uint32(pos)
		f.NameEnd += uint32(pos)
		f.Value += uint32(pos)
		f.ValueEnd += uint32(pos)
		h.fields = append(h.fields, f)
		pos += i + 1
	}
	if h.chunked {
		if h.contentLength != noLength {
			return http1.ErrLengthAndTE
		}
		// HTTP/1.0 has no codings, so the framing of such a message is faulty (RFC 9112 §6.1).
		if h.http10 {
			return http1.ErrCoding
		}
	}
	// RFC 9112 §9.3: a connection of HTTP/1.0 lasts only if the endpoint states it.
	if h.http10 && !keepAlive {
		h.close = true
	}
	if connection {
		h.markNamed(buf)
	}
	return nil
}

// informational reports whether another head follows. It has no body, whatever its fields declare.
func (h *responseHead) informational() bool {
	return h.status < 200 && h.status != http.StatusSwitchingProtocols
}

// again returns the fields of Result.Again. buf is the input of parse.
func (h *responseHead) again(buf []byte) (fields []wire.Field) {
	for _, f := range h.fields {
		for _, name := range againFields {
			if http1.EqualFold(buf[f.Name:f.NameEnd], name) {
				fields = append(fields, wire.Field{Name: name, Value: string(buf[f.Value:f.ValueEnd])})
			}
		}
	}
	return fields
}

func (h *responseHead) parseStatusLine(line []byte) error {
	const prefix = "HTTP/1."
	if len(line) < len("HTTP/1.1 200") || string(line[:len(prefix)]) != prefix {
		return h.statusLineError(line)
	}
	h.http10 = line[7] == '0' // a later version than 1.1 is read as 1.1 (RFC 9110 §2.5)
	if line[7] < '0' || line[7] > '9' || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return h.statusLineError(line)
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return h.statusLineError(line)
		}
		h.status = h.status*10 + int(c-'0')
	}
	if h.status < 100 || !http1.ValidValue(line[12:]) {
		return h.statusLineError(line)
	}
	return nil
}

func (h *responseHead) statusLineError(line []byte) error {
	if bytes.HasPrefix(line, []byte("HTTP/")) && !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return http1.ErrVersion
	}
	if len(line) > 40 {
		line = line[:40]
	}
	return fmt.Errorf("%w %q", errStatusLine, line)
}

// markNamed marks the fields that Connection names as hop-by-hop. Connection cannot remove
// the framing and Trailer. RFC 9110 §7.6.1: what Connection names is for this connection only.
func (h *responseHead) markNamed(buf []byte) {
	length := 0
	for list := range h.connection(buf) {
		length += len(list)
	}
	if length > longConnection {
		h.markMany(buf)
		return
	}
	for list := range h.connection(buf) {
		for list := string(list); list != ""; {
			var item string
			item, list, _ = strings.Cut(list, ",")
			item = strings.Trim(item, " \t")
			if strings.EqualFold(item, "close") || strings.EqualFold(item, "keep-alive") ||
				strings.EqualFold(item, "Content-Length") || strings.EqualFold(item, "Trailer") {
				continue
			}
			for j := range h.fields {
				f := &h.fields[j]
				if int(f.NameEnd-f.Name) == len(item) && strings.EqualFold(string(buf[f.Name:f.NameEnd]), item) {
					f.HopByHop = true
				}
			}
		}
	}
}

// connection yields the values of Connection.
func (h *responseHead) connection(buf []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := range h.fields {
			c := &h.fields[i]
			if c.HopByHop && http1.EqualFold(buf[c.Name:c.NameEnd], "connection") && !yield(buf[c.Value:c.ValueEnd]) {
				return
			}
		}
	}
}

// markMany is markNamed for long lists.
func (h *responseHead) markMany(buf []byte) {
	names := map[string]struct{}{}
	for list := range h.connection(buf) {
		nameTokens(names, string(list))
	}
	for _, kept := range [...]string{"close", "keep-alive", "content-length", "trailer"} {
		delete(names, kept)
	}
	for i := range h.fields {
		f := &h.fields[i]
		if _, named := names[strings.ToLower(string(buf[f.Name:f.NameEnd]))]; named {
			f.HopByHop = true
		}
	}
}

// fieldCopier is an http.ResponseWriter that copies fields of an answer into its own head, as
// the one of package downstream for HTTP/1.1 does.
type fieldCopier interface {
	// CopyField adds a field to the head of the final answer, by its canonical name and as the
	// endpoint has spelled that. It keeps none of them. If it returns false, the field must be
	// added to Header.
	CopyField(name, spelled, value []byte) bool
}

// caching returns the fields that sharable reads. Those that w copies are in no map after pass.
func (h *responseHead) caching(buf []byte) http.Header {
	kept := http.Header{}
	for i := range h.fields {
		f := &h.fields[i]
		if name := buf[f.Name:f.NameEnd]; !f.HopByHop && (http1.EqualFold(name, "cache-control") || http1.EqualFold(name, "expires")) {
			kept.Add(string(name), string(buf[f.Value:f.ValueEnd]))
		}
	}
	return kept
}

// pass gives the end-to-end fields to w. buf is the input of parse, and its names become
// canonical. No string is made of what w copies. It reports whether w copies fields.
func (h *responseHead) pass(w http.ResponseWriter, buf []byte, x *Options) bool {
	c, copies := w.(fieldCopier)
	// A Trailer and the Upgrade of a 426 are rewritten.
	if copies && !h.hasTrailer && h.status != http.StatusUpgradeRequired {
		left := h.fields[:0]
		for _, f := range h.fields {
			name := buf[f.Name:f.NameEnd]
			h.spelled = append(h.spelled[:0], name...)
			canonicalize(name)
			if !f.HopByHop && keepsResponse(x, name) && !c.CopyField(name, h.spelled, buf[f.Value:f.ValueEnd]) {
				left = append(left, f)
			}
		}
		h.fields = left
	}
	if len(h.fields) > 0 {
		h.fill(w.Header(), buf, x)
	}
	return copies
}

// canonicalize changes a token as http.CanonicalHeaderKey does.
func canonicalize(name []byte) {
	upper := true
	for i, b := range name {
		if upper && 'a' <= b && b <= 'z' || !upper && 'A' <= b && b <= 'Z' {
			name[i] = b ^ 0x20
		}
		upper = b == '-'
	}
}

// fill adds the end-to-end fields to dst. buf is the input of parse. One string holds all
// names and values, one slice all value lists.
func (h *responseHead) fill(dst http.Header, buf []byte, x *Options) {
	text := string(buf)
	values := make([]string, len(h.fields))
	for i := range h.fields {
		f := &h.fields[i]
		if f.HopByHop && !h.requires(text[f.Name:f.NameEnd]) {
			continue
		}
		name := http.CanonicalHeaderKey(text[f.Name:f.NameEnd])
		if !keepsResponse(x, name) {
			continue
		}
		values[i] = text[f.Value:f.ValueEnd]
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

// requires reports whether a field names the protocols of which a 426 requires one
// (RFC 9110 §15.5.22). A way over HTTP/2 cannot carry the field.
func (h *responseHead) requires(name string) bool {
	return h.status == http.StatusUpgradeRequired && strings.EqualFold(name, "upgrade")
}

// begin starts the body of a response to method (RFC 9112 §6.3).
func (h *responseHead) begin(b *http1.Body, method string) {
	switch {
	case bodyless(method, h.status):
		b.Begin(http1.NoBody, 0)
	case h.chunked:
		b.Begin(http1.Chunked, 0)
	case h.contentLength != noLength:
		b.Begin(http1.Length, h.contentLength)
	default:
		b.Begin(http1.ToClose, 0)
	}
}

// bodyless reports whether a response to method never has a body, whatever its fields
// declare.
func bodyless(method string, status int) bool {
	return method == http.MethodHead || status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

// declaresBody reports whether the fields declare a body.
func (h *responseHead) declaresBody() bool { return h.chunked || h.contentLength > 0 }
