package downstream_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringway/ringway/internal/proxy/downstream"
)

// stricter are the faults for which we refuse a request that http.ReadRequest accepts. The
// table of requests says why, except for those of Host, which net/http's server finds later.
var stricter = []string{
	"a line of the head does not end with CR LF",
	"folded header line",
	"both Transfer-Encoding and Content-Length",
	"Transfer-Encoding is not chunked", // in HTTP/1.0
	"bad Content-Length",               // of more than 18 digits
	"bad chunk size line",              // more than 15 digits, control bytes
	"not HTTP/1.0 or HTTP/1.1",
	"Expect is not 100-continue",
	"HTTP/1.1 needs exactly one Host header",
	"bad Host header",
	"bad header name", // of a trailer
}

// grammar writes requests, right ones and nearly right ones.
type grammar struct {
	*rand.Rand
	out bytes.Buffer
}

// pick returns one of the words.
func (g *grammar) pick(words ...string) string { return words[g.IntN(len(words))] }

// rarely is true once in n times.
func (g *grammar) rarely(n int) bool { return g.IntN(n) == 0 }

// mostly returns one of the good words, and rarely one of the bad ones.
func (g *grammar) mostly(good, bad []string) string {
	if g.rarely(16) {
		return g.pick(bad...)
	}
	return g.pick(good...)
}

var (
	goodPaths  = []string{"/", "/a", "/b.c", "//", "/..", "/%20", "/%2f", "/%2F%41", "/é", "/\xff", "/!", "/'(x)", "/~a;b=c,d@e:f$g&h+i", "/[", "/\"", "/*", "/^`{|}\\"}
	badPaths   = []string{"/%zz", "/%", "/a b", "/\x7f", "/\x00", ""}
	goodHosts  = []string{"Host: a", "Host:a:80", "host: \t[::1] ", "HOST:", "Host: a,b"}
	badHosts   = []string{"Host: a b", "Host: é", "Host: a\r\nHost: a", "Host : a", "X: y"}
	goodFields = []string{"Accept: */*", "accept:", "X: a\tb", "X:  y ", "x: z", "Pragma: no-cache", "Cache-Control: x", "X: é\xff", "Cookie: a=b; c=d", "!#$%&'*+-.^_`|~: x"}
	badFields  = []string{"X-É: a", "Y : a", " z", "\tz", "X: a\rb", "X: \x00", "Z: \x7f", ": a", "Z"}
)

// message returns a request, with what may be the next one behind it.
func (g *grammar) message() []byte {
	g.out.Reset()
	g.requestLine()
	body := g.fields()
	g.out.WriteString("\r\n")
	g.out.WriteString(body)
	if g.rarely(2) {
		g.out.WriteString("GET /smuggled HTTP/1.1\r\nHost: b\r\n\r\n")
	}
	text := bytes.Clone(g.out.Bytes())
	for g.rarely(8) && len(text) > 0 {
		text = g.damage(text)
	}
	return text
}

func (g *grammar) requestLine() {
	g.out.WriteString(g.pick("GET", "GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "get", "X-Y", "PRI", "CONNECT"))
	g.out.WriteByte(' ')
	g.target()
	g.out.WriteByte(' ')
	version := "HTTP/1.1"
	if g.rarely(16) {
		version = g.pick("HTTP/1.0", "HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.1 ", "HTTP/11")
	}
	g.out.WriteString(version + "\r\n")
}

func (g *grammar) target() {
	switch g.IntN(10) {
	case 0:
		g.out.WriteString(g.pick("*", "b:80", "[::1]:80", "b", "http:b", "//b", "/", "?", "#", "http://", "b:"))
	case 1:
		g.out.WriteString(g.pick("http://", "https://", "HTTP://", "ftp://"))
		g.out.WriteString(g.pick("b", "b:80", "[::1]", "u:p@b", "b:x", "", "%62", "a%20b"))
		g.path()
	default:
		g.path()
	}
}

func (g *grammar) path() {
	for range 1 + g.IntN(3) {
		g.out.WriteString(g.mostly(goodPaths, badPaths))
	}
	if g.rarely(3) {
		g.out.WriteString(g.pick("?", "?a=b", "?a=b&c", "??", "?a?b", "?%zz", "?é", "#x", "?a#b", "?%20+"))
	}
}

// fields writes the fields, and returns a body that mostly fits them.
func (g *grammar) fields() (body string) {
	fields := make([]string, 0, 12)
	add := func(line string) { fields = append(fields, line) }
	add(g.mostly(goodHosts, badHosts))
	for range g.IntN(4) {
		add(g.mostly(goodFields, badFields))
	}
	if g.rarely(4) {
		add("Connection: " + g.pick("close", "Keep-Alive", "x, close", "closed", "keep-alive,close", "Upgrade", ",", ""))
	}
	if g.rarely(12) {
		add(g.mostly([]string{"Expect: 100-continue", "Expect: 100-Continue", "Expect:", "Expect: x, 100-continue"}, []string{"Expect: x", "Expect: 100-continue x"}))
	}
	if g.rarely(10) {
		add(g.pick("Trailer: X", "Trailer: x, Y", "Trailer: ,", "Trailer: Content-Length", "trailer:"))
	}
	switch g.IntN(10) {
	case 0, 1, 2:
	case 3, 4, 5:
		body = g.pick("", "a", "abc", "\r\n", "GET / HTTP/1.1\r\nHost: c\r\n\r\n", "0\r\n\r\n", strings.Repeat("x", 5000))
		add(fmt.Sprintf("Content-Length: %d", len(body)))
	case 6, 7, 8:
		add(g.pick("Transfer-Encoding: chunked", "transfer-encoding:\tChunked "))
		body = g.chunks()
	default:
		for range 1 + g.IntN(2) {
			add(g.pick("Content-Length: 3", "Content-Length: 03", "Content-Length: 3, 3", "Content-Length: +3", "Content-Length:", "Content-Length: 3 3", "Content-Length: 0x3", "Content-Length: 0000000000000000003", "Content-Length: 9223372036854775808",
				"Transfer-Encoding: chunked", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: identity", "Transfer-Encoding: xchunked", "Transfer-Encoding:", "Transfer-Encoding : chunked", "Transfer-Encoding: \x0bchunked"))
		}
		body = g.pick("abc", "3\r\nabc\r\n0\r\n\r\n", "0\r\n\r\n", "")
	}
	g.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	for _, f := range fields {
		g.out.WriteString(f)
		g.out.WriteString("\r\n")
	}
	return body
}

func (g *grammar) chunks() string {
	var b strings.Builder
	for range g.IntN(4) {
		data := g.pick("a", "abc", "\r\n", "0\r\n\r\n", strings.Repeat("x", 300))
		size := fmt.Sprintf(g.pick("%x", "%x", "%X", "0%x", "00000000%x"), len(data))
		extension := ""
		if g.rarely(10) {
			extension = g.pick(";a", ";", ";a=\"b;c\"", " ", "\t", " ;a", ";\x00", ";a\rb", "\r", "x", ",")
		}
		b.WriteString(size + extension + "\r\n" + data + "\r\n")
	}
	last := "0"
	if g.rarely(16) {
		last = g.pick("00", "0;a", "0 ", "", "-0", "0x0", "fffffffffffffffff", "1")
	}
	b.WriteString(last + "\r\n")
	for g.rarely(4) {
		b.WriteString(g.mostly([]string{"X: a", "x:b", "Content-Length: 5", "Host: c", "Y: \xff"}, badFields) + "\r\n")
	}
	b.WriteString("\r\n")
	return b.String()
}

// damage changes one place.
func (g *grammar) damage(text []byte) []byte {
	at := g.IntN(len(text))
	switch g.IntN(4) {
	case 0: // a byte less
		return slices.Delete(text, at, at+1)
	case 1: // a byte more
		return slices.Insert(text, at, g.pick("\r", "\n", " ", "\t", "\x00", ":", "\r\n", ",", "\x80", "0", ";")[0])
	case 2: // another byte
		text[at] = byte(g.Uint32())
		return text
	default: // the end is missing
		return text[:at]
	}
}

// A million with LONG_TESTS, a hundred million with LONG_TESTS=full: half an hour on two cores.
func TestAMillionGeneratedRequestsMeanTheSameToNetHTTP(t *testing.T) {
	n := 100_000
	switch os.Getenv("LONG_TESTS") {
	case "":
	case "full":
		n = 100_000_000
	default:
		n = 1_000_000
	}
	const seeds = 4 // each for a goroutine and a part of the requests
	var all sync.WaitGroup
	var found [seeds]generated
	for seed := range uint64(seeds) {
		all.Go(func() { found[seed] = compareGenerated(t, seed+1, n/seeds) })
	}
	all.Wait()
	accepted, refused := 0, map[string]int{}
	for _, f := range found {
		accepted += f.accepted
		for why, times := range f.refused {
			refused[why] += times
		}
	}
	t.Logf("%d of %d are accepted", accepted, n)
	for _, why := range slices.Sorted(maps.Keys(refused)) {
		t.Logf("%d are refused although net/http accepts them: %s", refused[why], why)
	}
	if accepted < n/3 || len(refused) < len(stricter) {
		t.Errorf("%d of %d requests are accepted and %d kinds of faults occur, want a third and %d", accepted, n, len(refused), len(stricter))
	}
}

// generated counts what became of requests. refused are those that net/http accepts, by fault.
type generated struct {
	accepted int
	refused  map[string]int
}

func compareGenerated(t *testing.T, seed uint64, n int) generated {
	x := newComparison()
	l := serveMemory(t, downstream.Config{Handler: x, MaxHead: 64 << 10})
	g := grammar{Rand: rand.New(rand.NewPCG(seed, 0))}
	found := generated{refused: map[string]int{}}
	for i := range n {
		input := g.message()
		if bytes.HasPrefix(input, []byte(preface)) || bytes.HasPrefix(input, []byte("CONNECT  ")) {
			continue // such a connection is net/http's; it accepts a CONNECT without a target
		}
		c := x.run(l, input, 1+g.IntN(200))
		if x.difference != "" {
			t.Errorf("seed %d, request %d, %q: %s", seed, i, input, x.difference)
			return found
		}
		if x.accepted {
			found.accepted++
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
		found.refused[why]++
		if !slices.Contains(stricter, why) {
			t.Errorf("seed %d, request %d, %q: refused for %q, net/http accepts it", seed, i, input, why)
			return found
		}
	}
	return found
}

// faultOf returns what an answer says is wrong with a request.
func faultOf(answer string) string {
	_, text, _ := strings.Cut(answer, "malformed request: ")
	text, _, _ = strings.Cut(text, `"`)
	return text
}
