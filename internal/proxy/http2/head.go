package http2

import (
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/wire"
)

// Field is one field of a header list. Names are lower case.
type Field = hpack.HeaderField

// Head is the header list of a request or of an answer, checked (RFC 9113 §8.2 and §8.3).
type Head struct {
	// Method, Scheme, Authority, Path and Protocol are the control data of a request.
	// Scheme and Path are empty for a plain CONNECT, Protocol for everything but an extended
	// one (RFC 8441).
	Method, Scheme, Authority, Path, Protocol string
	// Status is the status code of an answer, 100 to 999.
	Status int
	// Fields are the other fields, in their order.
	Fields []Field
	// Length is the declared length of the body, -1 if there is none.
	Length int64
}

// malformed is what is wrong with a header list.
type malformed string

func (e malformed) Error() string { return string(e) }

const (
	errPseudoLate    = malformed("a pseudo-header field after another field")
	errPseudoTwice   = malformed("a pseudo-header field twice")
	errPseudoUnknown = malformed("an unknown pseudo-header field")
	errPseudoMissing = malformed("a pseudo-header field is missing or empty")
	errName          = malformed("a field name that is no lower-case token")
	errValue         = malformed("a field value with bytes that are not allowed")
	errConnection    = malformed("a field of the connection, which HTTP/2 does not have")
	errTE            = malformed("TE with another value than trailers")
	errStatus        = malformed("no status of three digits")
	errLength        = malformed("a bad Content-Length")
	errMethod        = malformed("a method that is no token")
	errPath          = malformed("a bad path")
	errScheme        = malformed("a scheme that is not http or https")
	errAuthority     = malformed("a bad authority, or a host that differs from it")
	errProtocol      = malformed(":protocol without CONNECT")
)

// reset empties the head and keeps its memory.
func (h *Head) reset() {
	clear(h.Fields)
	*h = Head{Fields: h.Fields[:0], Length: -1}
}

// take reads a whole header list into h, the list of a request or of an answer.
func (h *Head) take(list []Field, request bool) error {
	h.reset()
	pseudo := 0
	for pseudo < len(list) && strings.HasPrefix(list[pseudo].Name, ":") {
		if err := h.pseudo(&list[pseudo], request); err != nil {
			return err
		}
		pseudo++
	}
	h.Fields = append(h.Fields, list[pseudo:]...)
	if err := h.check(); err != nil {
		return err
	}
	if request {
		return h.checkRequest()
	}
	if h.Status == 0 {
		return errPseudoMissing
	}
	return nil
}

func (h *Head) pseudo(f *Field, request bool) error {
	if !request {
		if f.Name != ":status" {
			return errPseudoUnknown
		}
		if h.Status != 0 {
			return errPseudoTwice
		}
		status, err := strconv.ParseUint(f.Value, 10, 16)
		if err != nil || len(f.Value) != 3 || status < 100 {
			return errStatus
		}
		h.Status = int(status)
		return nil
	}
	var place *string
	switch f.Name {
	case ":method":
		place = &h.Method
	case ":scheme":
		place = &h.Scheme
	case ":authority":
		place = &h.Authority
	case ":path":
		place = &h.Path
	case ":protocol":
		place = &h.Protocol
	default:
		return errPseudoUnknown
	}
	if *place != "" {
		return errPseudoTwice
	}
	if f.Value == "" {
		return errPseudoMissing
	}
	if !http1.ValidValue(f.Value) {
		return errValue
	}
	*place = f.Value
	return nil
}

// check checks the fields of a head or of trailers.
func (h *Head) check() error {
	for i := range h.Fields {
		f := &h.Fields[i]
		if !validName(f.Name) {
			if strings.HasPrefix(f.Name, ":") {
				return errPseudoLate
			}
			return errName
		}
		if !http1.ValidValue(f.Value) {
			return errValue
		}
		switch f.Name {
		case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
			return errConnection
		case "te":
			if f.Value != "trailers" {
				return errTE
			}
		case "content-length":
			n, ok := http1.ParseLength(f.Value)
			if !ok || h.Length >= 0 {
				return errLength
			}
			h.Length = n
		}
	}
	return nil
}

func (h *Head) checkRequest() error {
	if h.Method == "" {
		return errPseudoMissing
	}
	if !http1.ValidToken(h.Method) {
		return errMethod
	}
	host, hosts := "", 0
	for i := range h.Fields {
		if f := &h.Fields[i]; f.Name == "host" {
			if hosts++; hosts > 1 && host != f.Value {
				return errAuthority
			}
			host = f.Value
		}
	}
	// A host in addition to the authority must be the same, so that nothing behind this side takes
	// the other one for the host.
	switch {
	case h.Authority == "":
		h.Authority = host
	case hosts > 0 && !http1.EqualFold(host, h.Authority):
		return errAuthority
	}
	if strings.IndexByte(h.Authority, '@') >= 0 || !httpguts.ValidHostHeader(h.Authority) {
		return errAuthority
	}
	if h.Protocol != "" && h.Method != "CONNECT" {
		return errProtocol
	}
	if h.Method == "CONNECT" && h.Protocol == "" {
		if h.Scheme != "" || h.Path != "" || h.Authority == "" {
			return errPseudoMissing
		}
		return nil
	}
	switch {
	case h.Scheme == "" || h.Path == "":
		return errPseudoMissing
	case h.Scheme != "http" && h.Scheme != "https":
		return errScheme
	case h.Path[0] != '/' && (h.Path != "*" || h.Method != "OPTIONS"), !http1.ValidTarget(h.Path):
		return errPath
	}
	return nil
}

// takeTrailers reads a header list after a body.
func (h *Head) takeTrailers(list []Field) error {
	h.reset()
	h.Fields = append(h.Fields, list...)
	if err := h.check(); err != nil {
		return err
	}
	if h.Length >= 0 {
		return errLength
	}
	return nil
}

// validName reports whether a name is a token without upper-case letters.
func validName(name string) bool {
	for i := range len(name) {
		if 'A' <= name[i] && name[i] <= 'Z' {
			return false
		}
	}
	return http1.ValidToken(name)
}

// lowerNames and canonicalNames translate the names of common fields without an allocation.
// HTTP/2 has lower-case names, http.Header canonical ones.
var lowerNames, canonicalNames = func() (lower, canonical map[string]string) {
	lower, canonical = map[string]string{}, map[string]string{}
	for _, name := range []string{
		"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Accept-Ranges", "Access-Control-Allow-Credentials",
		"Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers",
		"Access-Control-Max-Age", "Access-Control-Request-Headers", "Access-Control-Request-Method", "Age", "Allow", "Alt-Svc",
		"Authorization", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length",
		"Content-Location", "Content-Range", "Content-Security-Policy", "Content-Type", "Cookie", "Date", "Etag", "Expect", "Expires",
		"Forwarded", "From", "Grpc-Accept-Encoding", "Grpc-Encoding", "Grpc-Message", "Grpc-Status", "Grpc-Status-Details-Bin",
		"Grpc-Timeout", "Host", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Last-Modified",
		"Link", "Location", "Max-Forwards", "Origin", "Pragma", "Priority", "Proxy-Authenticate", "Proxy-Authorization", "Range", "Referer",
		"Refresh", "Retry-After", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User", "Server", "Server-Timing",
		"Set-Cookie", "Strict-Transport-Security", "Te", "Traceparent", "Tracestate", "Trailer", "Upgrade-Insecure-Requests",
		"User-Agent", "Vary", "Via", "Www-Authenticate", "X-Content-Type-Options", "X-Forwarded-For", "X-Forwarded-Host",
		"X-Forwarded-Proto", "X-Frame-Options", "X-Real-Ip", "X-Request-Id", "X-Requested-With",
		wire.ServiceHeader, wire.KeyHeader, wire.TimeoutHeader, wire.CallerHeader, wire.HopHeader, wire.ExposeHeader,
		wire.RelayHeader, wire.EndpointHeader, wire.AttemptsHeader, wire.LoadHeader, wire.FailedHeader,
	} {
		l := strings.ToLower(name)
		lower[name], canonical[l] = l, name
	}
	return lower, canonical
}()

// LowerName returns the name of a field in HTTP/2.
func LowerName(name string) string {
	if lower, ok := lowerNames[name]; ok {
		return lower
	}
	return strings.ToLower(name)
}

// CanonicalName returns the name of a field as http.Header has it.
func CanonicalName(name string) string {
	if canonical, ok := canonicalNames[name]; ok {
		return canonical
	}
	return http.CanonicalHeaderKey(name)
}
