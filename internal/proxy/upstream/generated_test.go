package upstream

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/proxy/http1gen"
)

// stricter are the faults for which we refuse an answer that http.ReadResponse accepts. See
// responseHead.parse.
var stricter = []string{
	"a line of the head does not end with CR LF",
	"folded header line",
	"both Transfer-Encoding and Content-Length",
	"Transfer-Encoding is not chunked", // in HTTP/1.0, or where no body is allowed
	"bad Content-Length",               // of more than 18 digits
	"bad chunk size line",              // control bytes
	"not HTTP/1.x",
	"malformed response: bad status line", // more or other than three digits, several blanks, control bytes
	"bad header name",                     // a blank before the colon
	"Trailer announces a framing field",
}

// answers writes answers, right ones and nearly right ones.
type answers struct{ http1gen.Grammar }

// message returns an answer, with what may be the next one behind it.
func (g *answers) message() []byte {
	g.Out.Reset()
	g.Out.WriteString(g.Mostly([]string{"HTTP/1.1 "}, []string{"HTTP/1.0 ", "HTTP/1.0 ", "HTTP/1.2 ", "HTTP/2.0 ", "http/1.1 ", "HTTP/1.1  ", "HTTP/1.1\t", "HTTP/1.1"}))
	g.Out.WriteString(g.Mostly([]string{"200", "200", "204", "206", "304", "404", "426", "500", "100", "101", "103", "999"}, []string{"20", "2000", "+20", "099", "-20", "2x0", "", "0200"}))
	g.Out.WriteString(g.Mostly([]string{" OK", " ", "", " Not Found", " \xff"}, []string{" a\rb", "\x00", "\tOK", " \x7f", "OK"}) + "\r\n")
	fields := make([]string, 0, 12)
	add := func(line string) { fields = append(fields, line) }
	for range g.IntN(4) {
		add(g.Mostly(http1gen.GoodFields, http1gen.BadFields))
	}
	for g.Rarely(4) {
		add(g.Pick("Connection: close", "Connection: Keep-Alive", "Connection: x, close", "Connection: X, Content-Length", "Connection:", "Keep-Alive: 1", "Upgrade: other/1", "Proxy-Authenticate: Basic",
			"Ringway-Load: 3", "Ringway-Failed: a", "Retry-After: 1", "Set-Cookie: a=b", "Trailer: X", "Trailer: x, Y", "Trailer: ,", "Trailer: Content-Length", "trailer:"))
	}
	body := g.Framing(add)
	g.Lines(fields)
	g.Out.WriteString(body)
	if g.Rarely(2) {
		g.Out.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign")
	}
	return g.Message()
}

func TestAMillionGeneratedAnswersMeanTheSameToNetHTTP(t *testing.T) {
	http1gen.Compare(t, stricter, func(t *testing.T, seed uint64, n int) http1gen.Found {
		g := answers{http1gen.New(seed)}
		found := http1gen.Found{Refused: map[string]int{}}
		for i := range n {
			input, method := g.message(), g.Pick("GET", "GET", "GET", "HEAD")
			accepted, refusal, difference := compareAnswer(input, method, 1+g.IntN(200))
			if accepted {
				found.Accepted++
			}
			if refusal, _, _ = strings.Cut(refusal, ` "`); refusal != "" {
				found.Refused[refusal]++
				if !slices.Contains(stricter, refusal) {
					difference = "refused for a fault that is not known: " + refusal
				}
			}
			if difference != "" {
				t.Errorf("seed %d, answer %d to %s, %q: %s", seed, i, method, input, difference)
				return found
			}
		}
		return found
	})
}
