// Package http1gen writes HTTP/1.1 messages for tests that compare two readers: right ones, and
// nearly right ones.
package http1gen

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Grammar writes one message after the other.
type Grammar struct {
	*rand.Rand
	Out bytes.Buffer
}

// New returns the grammar with this seed.
func New(seed uint64) Grammar { return Grammar{Rand: rand.New(rand.NewPCG(seed, 0))} }

// Pick returns one of the words.
func (g *Grammar) Pick(words ...string) string { return words[g.IntN(len(words))] }

// Rarely is true once in n times.
func (g *Grammar) Rarely(n int) bool { return g.IntN(n) == 0 }

// Mostly returns one of the good words, and rarely one of the bad ones.
func (g *Grammar) Mostly(good, bad []string) string {
	if g.Rarely(16) {
		return g.Pick(bad...)
	}
	return g.Pick(good...)
}

// GoodFields and BadFields are lines of a head or of trailers.
var (
	GoodFields = []string{"Accept: */*", "accept:", "X: a\tb", "X:  y ", "x: z", "Pragma: no-cache", "Cache-Control: x", "X: é\xff", "Cookie: a=b; c=d", "!#$%&'*+-.^_`|~: x"}
	BadFields  = []string{"X-É: a", "Y : a", " z", "\tz", "X: a\rb", "X: \x00", "Z: \x7f", ": a", "Z"}
)

// Framing adds the fields that frame a body, and returns one that mostly fits them.
func (g *Grammar) Framing(add func(line string)) (body string) {
	switch g.IntN(10) {
	case 0, 1, 2:
	case 3, 4, 5:
		body = g.Pick("", "a", "abc", "\r\n", "GET / HTTP/1.1\r\nHost: c\r\n\r\n", "0\r\n\r\n", strings.Repeat("x", 5000))
		add(fmt.Sprintf("Content-Length: %d", len(body)))
	case 6, 7, 8:
		add(g.Pick("Transfer-Encoding: chunked", "transfer-encoding:\tChunked "))
		body = g.chunks()
	default:
		for range 1 + g.IntN(2) {
			add(g.Pick("Content-Length: 3", "Content-Length: 03", "Content-Length: 3, 3", "Content-Length: +3", "Content-Length:", "Content-Length: 3 3", "Content-Length: 0x3", "Content-Length: 0000000000000000003", "Content-Length: 9223372036854775808",
				"Transfer-Encoding: chunked", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: identity", "Transfer-Encoding: xchunked", "Transfer-Encoding:", "Transfer-Encoding : chunked", "Transfer-Encoding: \x0bchunked"))
		}
		body = g.Pick("abc", "3\r\nabc\r\n0\r\n\r\n", "0\r\n\r\n", "")
	}
	return body
}

// Lines writes fields in any order, and the end of the head.
func (g *Grammar) Lines(fields []string) {
	g.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	for _, f := range fields {
		g.Out.WriteString(f + "\r\n")
	}
	g.Out.WriteString("\r\n")
}

// Message returns what was written, at times damaged.
func (g *Grammar) Message() []byte {
	text := bytes.Clone(g.Out.Bytes())
	for g.Rarely(8) && len(text) > 0 {
		text = g.damage(text)
	}
	return text
}

func (g *Grammar) chunks() string {
	var b strings.Builder
	for range g.IntN(4) {
		data := g.Pick("a", "abc", "\r\n", "0\r\n\r\n", strings.Repeat("x", 300))
		size := fmt.Sprintf(g.Pick("%x", "%x", "%X", "0%x", "00000000%x"), len(data))
		extension := ""
		if g.Rarely(10) {
			extension = g.Pick(";a", ";", ";a=\"b;c\"", " ", "\t", " ;a", ";\x00", ";a\rb", "\r", "x", ",")
		}
		b.WriteString(size + extension + "\r\n" + data + "\r\n")
	}
	last := "0"
	if g.Rarely(16) {
		last = g.Pick("00", "0;a", "0 ", "", "-0", "0x0", "fffffffffffffffff", "1")
	}
	b.WriteString(last + "\r\n")
	for g.Rarely(4) {
		b.WriteString(g.Mostly([]string{"X: a", "x:b", "Content-Length: 5", "Host: c", "Y: \xff"}, BadFields) + "\r\n")
	}
	b.WriteString("\r\n")
	return b.String()
}

// damage changes one place.
func (g *Grammar) damage(text []byte) []byte {
	at := g.IntN(len(text))
	switch g.IntN(4) {
	case 0: // a byte less
		return slices.Delete(text, at, at+1)
	case 1: // a byte more
		return slices.Insert(text, at, g.Pick("\r", "\n", " ", "\t", "\x00", ":", "\r\n", ",", "\x80", "0", ";")[0])
	case 2: // another byte
		text[at] = byte(g.Uint32())
		return text
	default: // the end is missing
		return text[:at]
	}
}

var blankBeforeExtension = regexp.MustCompile(`[0-9a-fA-F][ \t]+;`)

// RefusedBlank reports whether net/http refuses a chunk size line that a recipient must accept
// (RFC 9112 §7.1.1).
func RefusedBlank(message []byte, err error) bool {
	return err != nil && err.Error() == "invalid byte in chunk length" && blankBeforeExtension.Match(message)
}

// Found counts what became of messages. Refused are those that net/http accepts, by fault.
type Found struct {
	Accepted int
	Refused  map[string]int
}

// Compare runs a comparison for each of four seeds: of 100,000 messages together, of a million
// with LONG_TESTS, of a hundred million with LONG_TESTS=full, which takes half an hour on two
// cores. A third must be accepted, and each fault of stricter must occur.
func Compare(t *testing.T, stricter []string, compare func(t *testing.T, seed uint64, n int) Found) {
	n := 100_000
	switch os.Getenv("LONG_TESTS") {
	case "":
	case "full":
		n = 100_000_000
	default:
		n = 1_000_000
	}
	const seeds = 4
	var all sync.WaitGroup
	var found [seeds]Found
	for seed := range uint64(seeds) {
		all.Go(func() { found[seed] = compare(t, seed+1, n/seeds) })
	}
	all.Wait()
	accepted, refused := 0, map[string]int{}
	for _, f := range found {
		accepted += f.Accepted
		for why, times := range f.Refused {
			refused[why] += times
		}
	}
	t.Logf("%d of %d are accepted", accepted, n)
	for _, why := range slices.Sorted(maps.Keys(refused)) {
		t.Logf("%d are refused although net/http accepts them: %s", refused[why], why)
	}
	if accepted < n/3 || len(refused) < len(stricter) {
		t.Errorf("%d of %d messages are accepted and %d kinds of faults occur, want a third and %d", accepted, n, len(refused), len(stricter))
	}
}
