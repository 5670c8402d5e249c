package upstream

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/proxy/http2"
)

// head makes the header list of the request. The pseudo-header fields come first (RFC 9113 §8.3),
// and :authority replaces Host. The fields of a connection are left out, and of Te only "trailers"
// remains (RFC 9113 §8.2.2).
func (s *h2Stream) head() error {
	r, x := s.r, s.x
	uri, err := target(r)
	if err != nil {
		return err
	}
	if !x.Verbatim {
		uri = escaped(uri)
	}
	host := r.Host
	if host == "" {
		host = s.c.p.cfg.Address // a request of HTTP/1.0 may have none
	}
	s.fields = append(s.fields[:0],
		http2.Field{Name: ":method", Value: r.Method}, http2.Field{Name: ":scheme", Value: s.c.scheme},
		http2.Field{Name: ":authority", Value: host}, http2.Field{Name: ":path", Value: uri})
	if s.key != "" {
		// Endpoints do not process the key of such a WebSocket (RFC 8441 §5), so it is not sent.
		s.fields[0].Value = http.MethodConnect
		s.fields = append(s.fields, http2.Field{Name: ":protocol", Value: "websocket"})
	}
	pass := x.passes(r)
	for name, values := range r.Header {
		if !pass.sends(name) || s.key != "" && name == keyName {
			continue
		}
		if err := s.field(name, values...); err != nil {
			return err
		}
	}
	if http1.AnyHasToken(r.Header["Te"], "trailers") {
		s.fields = append(s.fields, http2.Field{Name: "te", Value: "trailers"})
	}
	if pass.forwarded {
		list := x.ForwardedFor
		if before := pass.forwardedFor(r); len(before) > 0 {
			list = strings.Join(before, ", ") + ", " + list
		}
		if err := s.field(forwardedFor, list); err != nil {
			return err
		}
	}
	for i := range x.Header {
		if err := s.field(x.Header[i].Name, x.Header[i].Value); err != nil {
			return err
		}
	}
	length := int64(0)
	if hasBody(r) {
		length = r.ContentLength
	}
	if length > 0 || length == 0 && expectsBody(r.Method) {
		s.fields = append(s.fields, http2.Field{Name: "content-length", Value: strconv.FormatInt(length, 10)})
	}
	if hasBody(r) {
		if expectsContinue(r) {
			s.fields = append(s.fields, http2.Field{Name: "expect", Value: "100-continue"})
		}
		if names := x.trailerNames(r.Trailer); names != "" {
			s.fields = append(s.fields, http2.Field{Name: "trailer", Value: names})
		}
	}
	return nil
}

// escaped returns a target in which the bytes that no URI has are escaped, as HTTP/2 demands
// (RFC 9113 §8.3.1, RFC 3986 §2). All others stay as they are.
func escaped(target string) string {
	for i := range len(target) {
		if inURI(target[i]) {
			continue
		}
		b := []byte(target[:i])
		for ; i < len(target); i++ {
			if c := target[i]; inURI(c) {
				b = append(b, c)
			} else {
				b = fmt.Appendf(b, "%%%02X", c)
			}
		}
		return string(b)
	}
	return target
}

func inURI(c byte) bool { return c > ' ' && c < 0x7f && strings.IndexByte("#\"<>\\^`{|}", c) < 0 }

// field adds a field of the request.
func (s *h2Stream) field(name string, values ...string) error {
	if !http1.ValidToken(name) {
		return errBadField
	}
	lower := http2.LowerName(name)
	for _, v := range values {
		if !http1.ValidValue(v) {
			return errBadField
		}
		s.fields = append(s.fields, http2.Field{Name: lower, Value: v, Sensitive: s.neverIndexed(name, v)})
	}
	return nil
}

// shortCookie is the length below which a cookie can be guessed from sizes, as nghttp2 has it.
const shortCookie = 20

// neverIndexed reports whether a field of the request is sent so that no side indexes it (RFC
// 7541 §7.1.3). A client over HTTP/2 has decided that itself. Over HTTP/1.1 none can, so the
// rule is the same as in nghttp2.
func (s *h2Stream) neverIndexed(name, value string) bool {
	if s.r.ProtoMajor == 1 {
		return name == "Authorization" || name == "Cookie" && len(value) < shortCookie
	}
	client, ok := s.w.(interface{ NeverIndexed(name string) bool })
	return ok && client.NeverIndexed(name)
}
