package downstream_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
)

// headLimit is the largest head that the servers of the table accept.
const headLimit = 8 << 10

// verdicts of a server on a request, in addition to the status of a refusal.
const (
	ok        = "accepted"
	closed    = "closed" // without an answer
	overHTTP2 = "HTTP/2"
)

// preface begins a connection of HTTP/2.
const preface = "PRI * HTTP/2.0\r\n\r\n"

// looksLikeHTTP2 reports whether a connection begins as only HTTP/2 does: it is served as that, or
// ends without an answer. net/http gives it to the handler.
func looksLikeHTTP2(input []byte) bool {
	return bytes.HasPrefix(input, []byte("PRI * ")) && !bytes.HasPrefix(input, []byte("PRI * HTTP/1."))
}

// reference is net/http's server.
func reference(t testing.TB) string {
	t.Helper()
	// net/http adds 4 KiB to its limit, and answers OPTIONS * itself unless configured otherwise.
	s := &http.Server{Handler: http.HandlerFunc(describe), MaxHeaderBytes: headLimit - 4<<10, DisableGeneralOptionsHandler: true, ErrorLog: log.New(io.Discard, "", 0)}
	return procs.Serve(t, s)
}

// answers reads the answers of a connection to its end. An answer is what describe wrote, or
// the status of a refusal.
func answers(t testing.TB, r *bufio.Reader) (all []string) {
	t.Helper()
	for {
		begin, err := r.Peek(5)
		switch {
		case err != nil: // the end, or a reset behind the last answer
			return all
		case string(begin) != "HTTP/":
			return append(all, overHTTP2)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			t.Fatal(err)
		case resp.StatusCode == http.StatusOK:
			all = append(all, string(body))
		case resp.StatusCode != http.StatusContinue:
			all = append(all, strconv.Itoa(resp.StatusCode))
		}
	}
}

// ask sends raw, ends its side, and returns the answers.
func ask(t testing.TB, addr, raw string) []string {
	t.Helper()
	c := dial(t, addr)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(c.Conn, raw)    // a server that refuses may not read everything
		if !strings.HasPrefix(raw, preface) { // HTTP/2 may end before its first frame otherwise
			_ = c.Conn.(*net.TCPConn).CloseWrite()
		}
	}()
	all := answers(t, c.Reader)
	_ = c.Close()
	within(t, sent, "the end of sending")
	return all
}

// verdict is what a server answers to the first request.
func verdict(answers []string) string {
	switch {
	case len(answers) == 0:
		return closed
	case accepted(answers[0]):
		return ok
	}
	return answers[0]
}

func accepted(answer string) bool { return strings.HasSuffix(answer, "\n") }

func TestARequestMeansWhatItMeansToNetHTTPOrARowGivesTheReason(t *testing.T) {
	ours, _ := start(t, downstream.Config{Handler: http.HandlerFunc(describe), MaxHead: headLimit})
	theirs := reference(t)
	names := map[string]bool{}
	for _, row := range table {
		if names[row.name] {
			t.Errorf("two rows have the name %q", row.name)
		}
		names[row.name] = true
		t.Run(row.name, func(t *testing.T) {
			got, want := ask(t, ours, row.raw), ask(t, theirs, row.raw)
			if v := verdict(got); v != row.want {
				t.Errorf("%.200q is %s, want %s", row.raw, v, row.want)
			}
			if same := slices.Equal(got, want); same != (row.reason == "") {
				t.Errorf("%.200q: the reason is %q\nours:     %.500q\nnet/http: %.500q", row.raw, row.reason, got, want)
			}
		})
	}
}

func TestARequestMeansTheSameInAnyPieces(t *testing.T) {
	whole, _ := start(t, downstream.Config{Handler: http.HandlerFunc(describe), MaxHead: headLimit})
	l := serveMemory(t, downstream.Config{Handler: http.HandlerFunc(describe), MaxHead: headLimit})
	for _, row := range table {
		if row.want == overHTTP2 {
			continue // the rest of such a connection is net/http's
		}
		want := ask(t, whole, row.raw)
		for _, step := range []int{1, 2, 3, 7, 100} {
			c := newMemory([]byte(row.raw), step)
			l <- c
			within(t, c.closed, "the end of the connection")
			if got := answers(t, bufio.NewReader(&c.written)); !slices.Equal(got, want) {
				t.Errorf("%s, in pieces of %d: %q, want %q", row.name, step, got, want)
			}
		}
	}
}

// A request behind a refused one must not be answered: where it begins is unknown. Behind an
// accepted one, only a request that net/http sees too may be answered.
func TestNoRequestIsSmuggledBehindAnother(t *testing.T) {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: b\r\n\r\n"
	ours, _ := start(t, downstream.Config{Handler: http.HandlerFunc(describe), MaxHead: headLimit})
	theirs := reference(t)
	alone := ask(t, theirs, smuggled)
	var calls atomic.Int64
	l := serveMemory(t, downstream.Config{MaxHead: headLimit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/smuggled" {
			calls.Add(1)
		}
		describe(w, r)
	})})
	for _, row := range table {
		if row.want == overHTTP2 {
			continue // the rest of such a connection is net/http's
		}
		t.Run(row.name, func(t *testing.T) {
			got, want := ask(t, ours, row.raw+smuggled), ask(t, theirs, row.raw+smuggled)
			answered := int64(0)
			for i, answer := range got {
				if !accepted(answer) && i < len(got)-1 {
					t.Errorf("%.200q: %d answers follow a refusal: %.500q", row.raw, len(got)-1-i, got)
				}
				if strings.Contains(answer, `path "/smuggled"`) {
					answered++
				}
			}
			calls.Store(0)
			c := newMemory([]byte(row.raw+smuggled), headLimit)
			l <- c
			within(t, c.closed, "the end of the connection")
			if n := calls.Load(); n != answered {
				t.Errorf("%.200q: the handler got the request behind it %d times, and %d answers were sent", row.raw, n, answered)
			}
			if len(got) > 0 && !accepted(got[len(got)-1]) {
				got = got[:len(got)-1] // the refusal
			}
			if row.want == ok && verdict(want) != ok {
				want = append(got[:1:1], alone...) // we know where the request ends
			}
			for i, answer := range got {
				if i >= len(want) || answer != want[i] && row.reason == "" {
					t.Errorf("%.200q: %.200q is not among the answers of net/http: %.500q", row.raw, answer, want)
				}
			}
			if row.reason == "" && row.want == ok && len(got) < len(want) && accepted(want[len(got)]) {
				t.Errorf("%.200q: only %d of %d requests are answered", row.raw, len(got), len(want))
			}
		})
	}
}

// The client has not ended its side: the server must end the connection.
func TestARefusalEndsTheConnection(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(describe), MaxHead: headLimit})
	for _, raw := range []string{
		line("GET /"), line("GET / HTTP/2.0"), with(": a"), with("Expect: x"), sized(headLimit + 1),
		post("Content-Length: 3\r\nTransfer-Encoding: chunked", ""), chunks("x\r\n"), chunks("0\r\nX : a\r\n"),
	} {
		c := dial(t, addr).say(raw + line("GET /smuggled HTTP/1.1"))
		if resp, _ := c.answer("GET"); resp.StatusCode < 400 || !resp.Close {
			t.Errorf("%.200q: %d, closes %v", raw, resp.StatusCode, resp.Close)
		}
		c.ends()
	}
	dial(t, addr).say("INVALID CONNECTION PREFACE\r\n\r\n").ends() // without an answer
}

// The requests of a connection share one http.Request.
func TestARequestHasNothingOfTheOneBeforeIt(t *testing.T) {
	elsewhere := &url.URL{Path: "/elsewhere"}
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		_, _ = fmt.Fprintf(w, "%s %v %v %q %q", r.URL, r.Form, r.PostForm, r.Pattern, r.PathValue("a"))
		r.SetPathValue("a", "b")
		r.Pattern, r.URL, r.Method, r.Host = "/{a}", elsewhere, "PUT", "b"
		r.Header, r.Trailer = http.Header{"X": {"y"}}, http.Header{"X": {"y"}}
	})})
	c := dial(t, addr)
	for i := range 3 {
		form := fmt.Sprintf("i=%d", i)
		c.say(fmt.Sprintf("POST /%d?q=%d HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", i, i, len(form), form))
		want := fmt.Sprintf(`/%d?q=%d map[i:[%d] q:[%d]] map[i:[%d]] "" ""`, i, i, i, i, i)
		if _, got := c.answer("POST"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if elsewhere.Path != "/elsewhere" {
		t.Errorf("the handler's own URL has become %s", elsewhere)
	}
}
