package upstream

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/wire"
)

// CheckRequest refuses what cannot be written as an HTTP/1.1 request line. Carry calls it, and the
// caller of Begin must.
// The server has parsed the request, but one over HTTP/2 may hold what has no meaning there
// and ends the line in HTTP/1.1.
func CheckRequest(r *http.Request) error {
	if r.Method == http.MethodConnect {
		return errConnect
	}
	if !http1.ValidToken(r.Method) {
		return errBadMethod
	}
	if !http1.ValidHost(r.Host) {
		return errBadHost
	}
	_, err := target(r)
	return err
}

// CheckFields refuses fields that no protocol carries, of a request that no server has parsed.
func CheckFields(header http.Header) error {
	for name, values := range header {
		if !http1.ValidToken(name) {
			return fmt.Errorf("%w: a name is %.80q", errBadField, name)
		}
		for _, v := range values {
			if !http1.ValidValue(v) {
				return fmt.Errorf("%w: the value of %.80q", errBadField, name)
			}
		}
	}
	return nil
}

// target returns the request target in origin form, or * for OPTIONS, with the bytes that the
// client sent: another spelling of a path may name another resource. Nothing else is sent: a
// service that joins its own address and the target of "x:@host/" would reach another host.
func target(r *http.Request) (string, error) {
	t := r.RequestURI
	switch {
	case t == "":
		t = r.URL.RequestURI() // a request built by code
	case t[0] != '/' && t != "*":
		t = behindAuthority(r)
	}
	if !http1.ValidTarget(t) { // of another server
		t = escaped(t)
	}
	if !strings.HasPrefix(t, "/") && (t != "*" || r.Method != http.MethodOptions) {
		return "", errBadTarget
	}
	return t, nil
}

// behindAuthority returns the part of a target in absolute form that origin form has, empty if
// the target has no authority. OPTIONS of a whole host becomes * (RFC 9112 §3.2.4).
func behindAuthority(r *http.Request) string {
	_, rest, ok := strings.Cut(r.RequestURI, "://")
	if !ok || r.URL.Host == "" { // as in x:@host/://
		return ""
	}
	path := strings.IndexAny(rest, "/?")
	switch {
	case path < 0 && r.Method == http.MethodOptions:
		return "*"
	case path < 0:
		return "/"
	case rest[path] == '?':
		return "/" + rest[path:]
	}
	return rest[path:]
}

// hopRequest reports whether a client's field of this canonical name concerns only the
// client's connection, or is written separately.
func hopRequest(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
		"Content-Length", "Host", "Expect":
		return true
	}
	return false
}

// upgradeOf returns the protocol that the client wants to switch to, "" if none. A switch
// to HTTP/2 concerns this process and not the endpoint. Over HTTP/2 only the server itself
// sets the field, for an extended CONNECT. With a body there is none: the protocol changes behind
// the request (RFC 9110 §7.8), and an endpoint may answer before it has read that.
func upgradeOf(r *http.Request) string {
	u := r.Header["Upgrade"]
	if len(u) != 1 || hasBody(r) || u[0] == "" || !http1.AnyHasToken(r.Header["Connection"], "upgrade") || http1.HasToken(u[0], "h2c") {
		return ""
	}
	return u[0]
}

// Upgrades reports whether a request asks for a tunnel.
func Upgrades(r *http.Request) bool { return upgradeOf(r) != "" }

// RequiresUpgrade reports whether a request makes no sense without its upgrade: a WebSocket or a
// TCP session. Any other upgrade may be ignored (RFC 9110 §7.8), as it is over HTTP/2.
func RequiresUpgrade(r *http.Request) bool {
	upgrade := upgradeOf(r)
	return upgrade == wire.UpgradeTCP || strings.EqualFold(upgrade, "websocket")
}

const forwardedFor = "X-Forwarded-For"

// passing decides which fields of a request are sent as they are.
type passing struct {
	x          *Options
	connection []string            // the values of Connection, if they may name fields
	many       map[string]struct{} // what they name, in lower case, if they are long
	forwarded  bool                // X-Forwarded-For gets another address
}

func (x *Options) passes(r *http.Request) passing {
	connection := r.Header["Connection"]
	if len(connection) == 1 && (connection[0] == "keep-alive" || connection[0] == "close") {
		connection = nil // these two name no field
	}
	p := passing{x: x, connection: connection, forwarded: x.ForwardedFor != "" && !x.dropped(forwardedFor)}
	length := 0
	for _, list := range connection {
		length += len(list)
	}
	if length > longConnection {
		p.many = map[string]struct{}{}
		for _, list := range connection {
			nameTokens(p.many, list)
		}
	}
	return p
}

// longConnection is the length of Connection above which the names in it are looked up. Each field would
// be compared with each of them otherwise, for a head of 64 KiB 80 million times.
const longConnection = 256

// nameTokens adds the names in a list, in lower case.
func nameTokens(names map[string]struct{}, list string) {
	for item := range strings.SplitSeq(list, ",") {
		names[strings.ToLower(strings.Trim(item, " \t"))] = struct{}{}
	}
}

// sends reports whether the client's field is sent.
func (p *passing) sends(name string) bool {
	return !hopRequest(name) && !p.x.dropped(name) && !p.named(name) && !(p.forwarded && name == forwardedFor)
}

// named reports whether Connection names the field.
func (p *passing) named(name string) bool {
	if p.many != nil {
		_, named := p.many[strings.ToLower(name)]
		return named
	}
	return p.connection != nil && http1.AnyHasToken(p.connection, name)
}

// forwardedFor returns the addresses that the client has named.
func (p *passing) forwardedFor(r *http.Request) []string {
	if p.named(forwardedFor) {
		return nil
	}
	return r.Header[forwardedFor]
}

// expectsBody reports whether a request without a body states this (RFC 9110 §8.6).
func expectsBody(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// headWriter counts the lines of a head, to compare them with the line breaks in it.
type headWriter struct {
	buf   []byte
	lines int
}

func (b *headWriter) field(name, value string) {
	b.buf = append(b.buf, name...)
	b.buf = append(b.buf, ": "...)
	b.buf = append(b.buf, value...)
	b.buf = append(b.buf, "\r\n"...)
	b.lines++
}

// fieldSpeller is an http.ResponseWriter that knows how the client has written the names of its fields,
// as the one of package downstream for HTTP/1.1 does.
type fieldSpeller interface {
	SpelledField(name string) string
}

// requestHead appends the head of the upstream request to buf. Spell may be nil. Host is the first
// field, as RFC 9110 §7.2 recommends. The fields of the client follow, without those of its
// connection, and then those that this process sets. What frames the body comes from length alone
// and never from a field of the client.
func requestHead(buf []byte, r *http.Request, x *Options, upgrade string, length int64, spell fieldSpeller) ([]byte, error) {
	uri, err := target(r)
	if err != nil {
		return buf, err
	}
	start := len(buf)
	b := headWriter{buf: buf}
	b.buf = append(b.buf, r.Method...)
	b.buf = append(b.buf, ' ')
	b.buf = append(b.buf, uri...)
	b.buf = append(b.buf, " HTTP/1.1\r\nHost: "...)
	b.buf = append(b.buf, r.Host...)
	b.buf = append(b.buf, "\r\n"...)
	b.lines = 2

	pass := x.passes(r)
	for name, values := range r.Header {
		if !pass.sends(name) {
			continue
		}
		if spell != nil {
			name = spell.SpelledField(name)
		}
		for _, v := range values {
			b.field(name, v)
		}
	}
	te := http1.AnyHasToken(r.Header["Te"], "trailers")
	switch { // TE needs its option, too (RFC 9110 §10.1.4)
	case te && upgrade != "":
		b.field("Connection", "Upgrade, TE")
	case te:
		b.field("Connection", "TE")
	case upgrade != "":
		b.field("Connection", "Upgrade")
	}
	if te {
		b.field("Te", "trailers")
	}
	if upgrade != "" {
		b.field("Upgrade", upgrade)
	}
	if pass.forwarded {
		b.forwardedFor(pass.forwardedFor(r), x.ForwardedFor)
	}
	for _, f := range x.Header {
		if !http1.ValidToken(f.Name) || !http1.ValidValue(f.Value) {
			return buf, errBadField
		}
		b.field(f.Name, f.Value)
	}
	switch {
	case length < 0:
		b.field("Transfer-Encoding", "chunked")
		if names := x.trailerNames(r.Trailer); names != "" {
			b.field("Trailer", names)
		}
	case length > 0 || len(r.Header["Content-Length"]) > 0 || expectsBody(r.Method):
		b.buf = append(b.buf, "Content-Length: "...)
		b.buf = strconv.AppendInt(b.buf, length, 10)
		b.buf = append(b.buf, "\r\n"...)
		b.lines++
	}
	if length != 0 && expectsContinue(r) {
		b.field("Expect", "100-continue")
	}
	b.buf = append(b.buf, "\r\n"...)
	b.lines++
	// No value may add a line, whatever the handler changed in the request.
	if head := b.buf[start:]; bytes.Count(head, []byte{'\n'}) != b.lines || bytes.Count(head, []byte{'\r'}) != b.lines {
		return buf, errBadField
	}
	return b.buf, nil
}

// forwardedFor writes the addresses that the client has named, and then the client's own.
func (b *headWriter) forwardedFor(before []string, client string) {
	b.buf = append(b.buf, "X-Forwarded-For: "...)
	for _, v := range before {
		b.buf = append(b.buf, v...)
		b.buf = append(b.buf, ", "...)
	}
	b.buf = append(b.buf, client...)
	b.buf = append(b.buf, "\r\n"...)
	b.lines++
}

// sendsTrailer reports whether a client's trailer is sent.
func (x *Options) sendsTrailer(name string) bool {
	return http1.ValidToken(name) && trailerField(name) && !x.dropped(name)
}

// trailerField reports whether a field of this canonical name may be a trailer. Credentials,
// framing and conditions count only in a head (RFC 9110 §6.5.1). So does Upgrade, which makes
// trailers of HTTP/2 malformed.
func trailerField(name string) bool {
	return httpguts.ValidTrailerHeader(name) && name != "Upgrade"
}

// trailerNames returns the list of the trailers that are sent, empty if there are none.
func (x *Options) trailerNames(t http.Header) string {
	if len(t) == 0 {
		return ""
	}
	names := make([]string, 0, len(t))
	for name := range t {
		if x.sendsTrailer(name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func framingField(name string) bool {
	switch name {
	case "Content-Length", "Transfer-Encoding", "Trailer", "Host", "Connection":
		return true
	}
	return false
}

func expectsContinue(r *http.Request) bool {
	v := r.Header["Expect"]
	return len(v) > 0 && strings.EqualFold(v[0], "100-continue")
}
