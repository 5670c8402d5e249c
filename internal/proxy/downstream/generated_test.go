package downstream_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/http1gen"
)

// stricter are the faults for which we refuse a request that http.ReadRequest accepts. The
// table of requests states why, except for those of Host, which net/http's server finds later.
var stricter = []string{
	"a line of the head does not end with CR LF",
	"folded header line",
	"both Transfer-Encoding and Content-Length",
	"Transfer-Encoding is not chunked", // in HTTP/1.0
	"bad Content-Length",               // of more than 18 digits
	"bad chunk size line",              // more than 15 digits, control bytes
	"not HTTP/1.x",
	"Expect is not 100-continue",
	"HTTP/1.1 needs exactly one Host header",
	"bad host",
	"a user in the request target",
	"a request target with another scheme than http and https",
	"bad header name", // of a trailer
}

// grammar writes requests, right ones and nearly right ones.
type grammar struct{ http1gen.Grammar }

var (
	goodPaths = []string{"/", "/a", "/b.c", "//", "/..", "/%20", "/%2f", "/%2F%41", "/é", "/\xff", "/!", "/'(x)", "/~a;b=c,d@e:f$g&h+i", "/[", "/\"", "/*", "/^`{|}\\"}
	badPaths  = []string{"/%zz", "/%", "/a b", "/\x7f", "/\x00", ""}
	goodHosts = []string{"Host: a", "Host:a:80", "host: \t[::1] ", "HOST:", "Host: a.b.:1"}
	badHosts  = []string{"Host: a b", "Host: é", "Host: a\r\nHost: a", "Host : a", "X: y", "Host: a,b", "Host: a:x", "Host: [::1", "Host: a..b", "Host: a%20b"}
)

// message returns a request, with what may be the next one behind it.
func (g *grammar) message() []byte {
	g.Out.Reset()
	if g.Rarely(16) {
		g.Out.WriteString(g.Pick("\r\n", "\r\n\r\n", "\n", "\r", "\r\n\r\n\r\n\r\n\r\n"))
	}
	g.requestLine()
	body := g.fields()
	g.Out.WriteString(body)
	if g.Rarely(2) {
		g.Out.WriteString("GET /smuggled HTTP/1.1\r\nHost: b\r\n\r\n")
	}
	return g.Message()
}

func (g *grammar) requestLine() {
	g.Out.WriteString(g.Pick("GET", "GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "get", "X-Y", "PRI", "CONNECT"))
	g.Out.WriteByte(' ')
	g.target()
	g.Out.WriteByte(' ')
	version := "HTTP/1.1"
	if g.Rarely(16) {
		version = g.Pick("HTTP/1.0", "HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.1 ", "HTTP/11")
	}
	g.Out.WriteString(version + "\r\n")
}

func (g *grammar) target() {
	switch g.IntN(10) {
	case 0:
		g.Out.WriteString(g.Pick("*", "b:80", "[::1]:80", "b", "http:b", "//b", "/", "?", "#", "http://", "b:"))
	case 1:
		g.Out.WriteString(g.Pick("http://", "https://", "HTTP://", "ftp://"))
		g.Out.WriteString(g.Pick("b", "b:80", "[::1]", "u:p@b", "b:x", "", "%62", "a%20b"))
		g.path()
	default:
		g.path()
	}
}

func (g *grammar) path() {
	for range 1 + g.IntN(3) {
		g.Out.WriteString(g.Mostly(goodPaths, badPaths))
	}
	if g.Rarely(3) {
		g.Out.WriteString(g.Pick("?", "?a=b", "?a=b&c", "??", "?a?b", "?%zz", "?é", "#x", "?a#b", "?%20+"))
	}
}

// fields writes the fields, and returns a body that mostly fits them.
func (g *grammar) fields() (body string) {
	fields := make([]string, 0, 12)
	add := func(line string) { fields = append(fields, line) }
	add(g.Mostly(goodHosts, badHosts))
	for range g.IntN(4) {
		add(g.Mostly(http1gen.GoodFields, http1gen.BadFields))
	}
	if g.Rarely(4) {
		add("Connection: " + g.Pick("close", "Keep-Alive", "x, close", "closed", "keep-alive,close", "Upgrade", ",", ""))
	}
	if g.Rarely(12) {
		add(g.Mostly([]string{"Expect: 100-continue", "Expect: 100-Continue", "Expect:", "Expect: x, 100-continue"}, []string{"Expect: x", "Expect: 100-continue x"}))
	}
	if g.Rarely(10) {
		add(g.Pick("Trailer: X", "Trailer: x, Y", "Trailer: ,", "Trailer: Content-Length", "trailer:"))
	}
	body = g.Framing(add)
	g.Lines(fields)
	return body
}

func TestAMillionGeneratedRequestsMeanTheSameToNetHTTP(t *testing.T) {
	http1gen.Compare(t, stricter, compareGenerated)
}

func compareGenerated(t *testing.T, seed uint64, n int) http1gen.Found {
	x := newComparison()
	l := serveMemory(t, downstream.Config{Handler: x, MaxHead: 64 << 10})
	g := grammar{http1gen.New(seed)}
	found := http1gen.Found{Refused: map[string]int{}}
	for i := range n {
		input := g.message()
		if looksLikeHTTP2(input) || bytes.HasPrefix(bytes.TrimLeft(input, "\r\n"), []byte("CONNECT  ")) {
			continue // such a connection is net/http's; it accepts a CONNECT without a target
		}
		c := x.run(l, input, 1+g.IntN(200))
		if x.difference != "" {
			t.Errorf("seed %d, request %d, %q: %s", seed, i, input, x.difference)
			return found
		}
		if x.accepted {
			found.Accepted++
			continue
		}
		// What net/http accepts is refused only for a fault that is known.
		if _, _, _, err := x.netHTTP(); err != nil {
			continue
		}
		why := x.refusal
		if why == "" {
			why = faultOf(c.written.String())
		}
		found.Refused[why]++
		if !slices.Contains(stricter, why) {
			t.Errorf("seed %d, request %d, %q: refused for %q, net/http accepts it", seed, i, input, why)
			return found
		}
	}
	return found
}

// faultOf returns the fault of a request that an answer reports.
func faultOf(answer string) string {
	_, text, _ := strings.Cut(answer, "malformed request: ")
	text, _, _ = strings.Cut(text, `"`)
	return text
}
