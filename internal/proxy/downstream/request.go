package downstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/wire"
)

// fault is a request that is refused before it reaches the handler.
type fault struct {
	status int // 0: the connection ends without an answer
	err    error
}

func badRequest(err error) *fault { return &fault{http.StatusBadRequest, err} }

// The faults of a request beyond those of any message.
const (
	errRequestLine = http1.Malformed("bad request line")
	errTarget      = http1.Malformed("bad request target")
	errNoHost      = http1.Malformed("HTTP/1.1 needs exactly one Host header")
	errHost        = http1.Malformed("bad host")
	errScheme      = http1.Malformed("a request target with another scheme than http and https")
	errUser        = http1.Malformed("a user in the request target")
	errPreface     = http1.Malformed("damaged preface of HTTP/2")
	errExpect      = http1.Malformed("Expect is not 100-continue")
)

// body returns the body of the answer.
func (f *fault) body() []byte {
	b, _ := json.Marshal(struct { // strings can always be encoded
		Text string    `json:"error"`
		Code wire.Code `json:"code"`
	}{"malformed request: " + f.err.Error(), wire.CodeBadRequest})
	return append(b, '\n')
}

// refuse answers a request that is no valid HTTP, and ends the connection: where the next
// request begins is unknown.
func (c *conn) refuse(f *fault) {
	c.server.cfg.Malformed()
	c.server.cfg.Logger.Debug("malformed request", "client", c.remote, "err", f.err)
	if f.status != 0 {
		body := f.body()
		answer := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", f.status, http.StatusText(f.status), len(body), body)
		if _, err := c.nc.Write(answer); err != nil {
			return
		}
	}
	c.body.done = false // what follows is not read
	c.linger()
}

// parse reads the head of n bytes at c.in[c.from] into c.req and starts its body.
func (c *conn) parse(n int) *fault {
	head := c.in[c.from : c.from+n]
	c.from += n
	end := bytes.IndexByte(head, '\r')
	if head[end+1] != '\n' {
		return badRequest(errRequestLine)
	}
	r := c.renew()
	line, rest := c.textOf(head, end+2)
	if f := c.parseRequestLine(line[:end]); f != nil {
		return f
	}
	h := framingFields{length: -1}
	for {
		end := strings.IndexByte(rest, '\n')
		line := rest[:end-1]
		if line == "" {
			break
		}
		f, err := http1.ParseField(line)
		if err != nil {
			return badRequest(err)
		}
		if err := h.record(line[f.Name:f.NameEnd], line[f.Value:f.ValueEnd]); err != nil {
			return badRequest(err)
		}
		spelled := line[f.Name:f.NameEnd]
		name := http.CanonicalHeaderKey(spelled)
		if name != spelled && len(c.spelled) < maxSpelled {
			c.spelled = append(c.spelled, spelledField{name, spelled})
		}
		c.addField(name, line[f.Value:f.ValueEnd])
		rest = rest[end+1:]
	}
	if f := c.host(); f != nil {
		return f
	}
	if f := c.frame(&h); f != nil {
		return f
	}
	r.Header, r.RemoteAddr, r.TLS = c.header, c.remote, c.tls
	return nil
}

// requestState is the request that the handler gets. It serves for one request after the
// other.
type requestState struct {
	req     *http.Request
	blank   *http.Request   // what req is before each request: only a context
	url     url.URL         // of req, if it is plain
	context *requestContext // of blank and req
	header  http.Header
	values  []string // of header
	spelled []spelledField

	// The head of the request before, as strings that can be used again.
	line, fields string
}

// spelledField is a field of the request that the client has not written with its canonical name.
type spelledField struct{ name, spelled string }

// maxSpelled bounds them, because each field that is sent is compared with all. Further ones are sent
// with their canonical names.
const maxSpelled = 64

// fieldsOfMap is for how many fields a map of a header has room at first. A map that should
// have room for more gets twice the memory.
const fieldsOfMap = 14

func (s *requestState) init() {
	s.req, s.header = new(http.Request), make(http.Header, fieldsOfMap)
	s.newContext()
}

// newContext makes the context of the next requests.
func (s *requestState) newContext() {
	s.context = &requestContext{}
	s.blank = new(http.Request).WithContext(s.context)
}

// renew returns the request without anything of the one before.
func (s *requestState) renew() *http.Request {
	*s.req = *s.blank // handlers may have set any field, as ParseForm does
	clear(s.header)
	s.values, s.spelled = s.values[:0], s.spelled[:0]
	return s.req
}

// finished ends the context of the request.
func (s *requestState) finished() {
	if s.context.end() {
		s.newContext()
		return
	}
	s.context.values = nil // it may serve for a request of another connection
}

// keptText is the size of the heads that are kept as strings for the next request.
const keptText = 4 << 10

// textOf returns a head as two strings of which the second begins at an offset. The strings
// of the request before serve again where their bytes are the same, because many clients
// repeat their heads. Otherwise the head is copied, in one allocation. A string never changes,
// so it does not matter which client sent the equal bytes, or who keeps the string.
func (s *requestState) textOf(head []byte, offset int) (line, fields string) {
	switch {
	case string(head[offset:]) != s.fields:
		text := string(head)
		s.line, s.fields = text[:offset], text[offset:]
	case string(head[:offset]) != s.line:
		s.line = string(head[:offset])
	}
	line, fields = s.line, s.fields
	if len(head) > keptText {
		s.line, s.fields = "", ""
	}
	return line, fields
}

// addField adds a field to the header of the request. One slice holds the values of all
// fields.
func (s *requestState) addField(name, value string) {
	if before, ok := s.header[name]; ok {
		s.header[name] = append(before, value)
		return
	}
	i := len(s.values)
	s.values = append(s.values, value)
	s.header[name] = s.values[i : i+1 : i+1]
}

func (c *conn) parseRequestLine(line string) *fault {
	r := c.req
	method, rest, ok := strings.Cut(line, " ")
	target, proto, spaced := strings.Cut(rest, " ")
	if !ok || !spaced || !http1.ValidToken(method) || target == "" || !http1.ValidTarget(target) {
		return badRequest(errRequestLine)
	}
	switch major, minor, ok := http.ParseHTTPVersion(proto); {
	case !ok:
		return badRequest(errRequestLine)
	case major != 1:
		return &fault{http.StatusHTTPVersionNotSupported, http1.ErrVersion}
	case minor == 0:
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0
	default: // a later one is served as the latest that is known (RFC 9110 §2.5)
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	}
	r.Method, r.RequestURI = method, target
	if c.plainTarget(target) {
		return nil
	}
	// A CONNECT has an authority, which is no URL.
	authority := method == http.MethodConnect && target[0] != '/'
	if authority {
		target = "http://" + target
	}
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		return badRequest(errTarget)
	}
	switch {
	case parsed.Host != "" && parsed.Scheme != "http" && parsed.Scheme != "https" && !authority:
		return badRequest(errScheme) // the service would take it for a request by HTTP
	case parsed.User != nil:
		return badRequest(errUser) // it would be lost (RFC 9110 §4.2.4)
	case authority:
		parsed.Scheme = ""
	case parsed.Host == "" && (parsed.Scheme == "http" || parsed.Scheme == "https"):
		return badRequest(errHost) // RFC 9110 §4.2.1
	}
	r.URL = parsed
	return nil
}

// plainTarget sets the URL of a target that is a path and a query without anything to
// decode, as most are. It does what url.ParseRequestURI does with such a target.
func (s *requestState) plainTarget(target string) bool {
	if target[0] != '/' {
		return false
	}
	path := len(target)
	for i := range len(target) {
		switch b := target[i]; {
		case b == '?' && i+1 < len(target):
			path = i
		case !isPlain[b]:
			return false
		}
		if path < len(target) {
			break
		}
	}
	s.url = url.URL{Path: target[:path]}
	if path < len(target) {
		s.url.RawQuery = target[path+1:]
	}
	s.req.URL = &s.url
	return true
}

// isPlain marks the bytes that mean themselves in a path.
var isPlain = func() (t [256]bool) {
	for b := range t {
		t[b] = 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || strings.IndexByte("/-_.~$&+,:;=@", byte(b)) >= 0
	}
	return t
}()

// host sets the host of the request (RFC 9112 §3.2).
func (c *conn) host() *fault {
	r := c.req
	hosts := c.header["Host"]
	if len(hosts) > 1 || len(hosts) == 0 && r.ProtoMinor == 1 {
		return badRequest(errNoHost)
	}
	if len(hosts) == 1 && !http1.ValidHost(hosts[0]) || !http1.ValidHost(r.URL.Host) {
		return badRequest(errHost)
	}
	if r.Host = r.URL.Host; r.Host == "" && len(hosts) == 1 {
		r.Host = hosts[0]
	}
	delete(c.header, "Host")
	return nil
}

// framingFields are the fields that decide where a request ends.
type framingFields struct {
	length   int64  // -1 if not declared
	declared string // its digits
	chunked  bool
}

func (h *framingFields) record(name, value string) error {
	switch len(name) {
	case len("content-length"):
		if !http1.EqualFold(name, "content-length") {
			return nil
		}
		n, ok := http1.ParseLength(value)
		if !ok {
			return http1.ErrLength
		}
		if h.length >= 0 && h.declared != value { // 3 and 03 are two lengths to net/http
			return http1.ErrLengths
		}
		h.length, h.declared = n, value
	case len("transfer-encoding"):
		if !http1.EqualFold(name, "transfer-encoding") {
			return nil
		}
		if h.chunked || !http1.EqualFold(value, "chunked") {
			return http1.ErrCoding
		}
		h.chunked = true
	}
	return nil
}

var chunkedCoding = []string{"chunked"}

// frame starts the body of the request (RFC 9112 §6.3). Stricter than net/http: a request
// with two framings, or with chunks in HTTP/1.0, is refused.
func (c *conn) frame(h *framingFields) *fault {
	r := c.req
	b := &c.body
	b.reset(c.server.cfg.MaxHead)
	r.Close = http1.AnyHasToken(c.header["Connection"], "close") ||
		r.ProtoMinor == 0 && !http1.AnyHasToken(c.header["Connection"], "keep-alive")
	if h.chunked && h.length >= 0 {
		return badRequest(http1.ErrLengthAndTE)
	}
	if h.chunked && r.ProtoMinor == 0 {
		return badRequest(http1.ErrCoding)
	}
	// The first field decides, and an empty one expects nothing, as in net/http.
	if expect := c.header["Expect"]; len(expect) > 0 && expect[0] != "" {
		if !http1.HasToken(expect[0], "100-continue") {
			return &fault{http.StatusExpectationFailed, errExpect}
		}
		b.expected = r.ProtoMinor == 1 && (h.chunked || h.length > 0)
	}
	if values := c.header["Content-Length"]; len(values) > 1 {
		c.header["Content-Length"] = values[:1] // repetitions of the same
	}
	switch {
	case h.chunked:
		if f := c.announceTrailers(); f != nil {
			return f
		}
		delete(c.header, "Transfer-Encoding")
		r.TransferEncoding, r.ContentLength, r.Body = chunkedCoding, -1, b
		b.framing.Begin(http1.Chunked, 0)
	case h.length > 0:
		r.ContentLength, r.Body = h.length, b
		b.framing.Begin(http1.Length, h.length)
	default:
		r.ContentLength, r.Body = 0, http.NoBody
		b.framing.Begin(http1.NoBody, 0)
		b.done = true
	}
	return nil
}

// announceTrailers moves the names of the trailers from the header to the request.
func (s *requestState) announceTrailers() *fault {
	lists, ok := s.header["Trailer"]
	if !ok {
		return nil
	}
	delete(s.header, "Trailer")
	s.req.Trailer = make(http.Header)
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			switch name {
			case "Transfer-Encoding", "Trailer", "Content-Length":
				return badRequest(http1.ErrTrailerNames)
			case "":
				continue
			}
			s.req.Trailer[name] = nil
		}
	}
	return nil
}

// contentLength returns the declared length of an answer, -1 if there is none or it is
// malformed.
func contentLength(h http.Header) int64 {
	values := h["Content-Length"]
	if len(values) != 1 {
		return -1
	}
	n, err := strconv.ParseInt(values[0], 10, 63)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
