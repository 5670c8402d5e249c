package http1

import (
	"bytes"
	"strings"
)

// Malformed is an error in a message.
type Malformed string

func (m Malformed) Error() string { return string(m) }

// The errors of requests and of responses. Callers add which of both it was.
const (
	ErrHeadTooLarge = Malformed("the head is too large")
	ErrBareLF       = Malformed("a line of the head does not end with CR LF")
	ErrFolded       = Malformed("folded header line")
	ErrFieldName    = Malformed("bad header name")
	ErrFieldValue   = Malformed("bad byte in a header value")
	ErrLength       = Malformed("bad Content-Length")
	ErrLengths      = Malformed("conflicting Content-Length")
	ErrLengthAndTE  = Malformed("both Transfer-Encoding and Content-Length")
	ErrCoding       = Malformed("Transfer-Encoding is not chunked")
	ErrTrailerNames = Malformed("Trailer announces a framing field")
	ErrTrailers     = Malformed("the trailers are too large")
	ErrVersion      = Malformed("not HTTP/1.x")

	errChunkLine     = Malformed("bad chunk size line")
	errChunkTooLong  = Malformed("chunk size line too long")
	errChunkOverhead = Malformed("too much chunk overhead")
	errChunkEnd      = Malformed("chunk data does not end with CR LF")
)

// Field is one header field: the offsets of its name and value.
type Field struct {
	Name, NameEnd, Value, ValueEnd uint32
	// HopByHop marks a field that concerns this connection only. ParseField leaves it false.
	HopByHop bool
}

// HeadEnd searches for the end of a head in buf and returns the length of the head, 0 if
// the head is not complete. The search continues at from, which is the next that the
// previous call returned.
func HeadEnd(buf []byte, from int) (n, next int, err error) {
	for {
		i := bytes.IndexByte(buf[from:], '\n')
		if i < 0 {
			return 0, from, nil
		}
		end := from + i
		if end == 0 || buf[end-1] != '\r' {
			return 0, from, ErrBareLF
		}
		if i == 1 { // an empty line
			return end + 1, end + 1, nil
		}
		from = end + 1
	}
}

// ParseField splits one header line without its line end.
func ParseField[T string | []byte](line T) (f Field, err error) {
	if line[0] == ' ' || line[0] == '\t' {
		return f, ErrFolded
	}
	n := 0
	for n < len(line) && isToken[line[n]] {
		n++
	}
	if n == 0 || n == len(line) || line[n] != ':' {
		return f, ErrFieldName
	}
	v, end := n+1, len(line)
	for v < end && (line[v] == ' ' || line[v] == '\t') {
		v++
	}
	for end > v && (line[end-1] == ' ' || line[end-1] == '\t') {
		end--
	}
	if !ValidValue(line[v:end]) {
		return f, ErrFieldValue
	}
	return Field{NameEnd: uint32(n), Value: uint32(v), ValueEnd: uint32(end)}, nil
}

// ParseLength reads the value of Content-Length: at most 18 digits.
func ParseLength[T string | []byte](v T) (int64, bool) {
	if len(v) == 0 || len(v) > 18 {
		return 0, false
	}
	var n int64
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(v[i]-'0')
	}
	return n, true
}

// EqualFold compares b with s, ignoring the case of ASCII letters.
func EqualFold[T string | []byte](b T, s string) bool {
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

func all[T string | []byte](t *[256]bool, s T) bool {
	for i := range len(s) {
		if !t[s[i]] {
			return false
		}
	}
	return true
}

// ValidValue reports whether a field may have this value.
func ValidValue[T string | []byte](s T) bool { return all(&isValue, s) }

// ValidTarget reports whether a request target has no blank and no control character.
func ValidTarget[T string | []byte](s T) bool { return all(&isTarget, s) }

// ValidToken reports whether s is a token, as methods and names of fields are.
func ValidToken[T string | []byte](s T) bool { return len(s) > 0 && all(&isToken, s) }

// HasToken reports whether a comma-separated list contains token, ignoring case.
func HasToken(list, token string) bool {
	for list != "" {
		var item string
		item, list, _ = strings.Cut(list, ",")
		if EqualFold(strings.Trim(item, " \t"), token) {
			return true
		}
	}
	return false
}

// AnyHasToken reports whether one of the lists contains token.
func AnyHasToken(lists []string, token string) bool {
	for _, l := range lists {
		if HasToken(l, token) {
			return true
		}
	}
	return false
}
