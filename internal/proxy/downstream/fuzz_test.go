package downstream_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/http1gen"
)

// memory is a connection in memory: its client has sent the input, which arrives in pieces
// of step bytes, and has ended its side.
type memory struct {
	input   []byte
	step    int
	written bytes.Buffer // complete when closed
	once    sync.Once
	closed  chan struct{}
}

func newMemory(input []byte, step int) *memory {
	return &memory{input: input, step: step, closed: make(chan struct{})}
}

func (m *memory) Read(p []byte) (int, error) {
	if len(m.input) == 0 {
		return 0, io.EOF
	}
	n := copy(p, m.input[:min(m.step, len(m.input))])
	m.input = m.input[n:]
	return n, nil
}

func (m *memory) Write(p []byte) (int, error) { return m.written.Write(p) }

func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

func (m *memory) LocalAddr() net.Addr              { return nil }
func (m *memory) RemoteAddr() net.Addr             { return nil }
func (m *memory) SetDeadline(time.Time) error      { return nil }
func (m *memory) SetReadDeadline(time.Time) error  { return nil }
func (m *memory) SetWriteDeadline(time.Time) error { return nil }

// serveMemory serves the connections that are sent to the listener, until the test ends.
func serveMemory(t testing.TB, cfg downstream.Config) pipes {
	l := make(pipes)
	_, s := serveOn(t, cfg, l)
	t.Cleanup(func() {
		_ = s.Shutdown(context.Background()) // each test waits for its connections
		close(l)
	})
	return l
}

// comparison is a handler that compares the request that it is given, and what would be
// the next one, with net/http's reading of the same bytes.
type comparison struct {
	input      []byte
	theirs     *bufio.Reader // net/http takes trailers that fit its buffer
	accepted   bool          // with its body
	refusal    string        // of the body
	difference string
}

func newComparison() *comparison {
	return &comparison{theirs: bufio.NewReaderSize(nil, 128<<10)}
}

// run serves one connection that sends input in pieces of step bytes.
func (x *comparison) run(l pipes, input []byte, step int) (c *memory) {
	x.input, x.accepted, x.refusal, x.difference = input, false, "", ""
	c = newMemory(input, step)
	l <- c
	<-c.closed
	return c
}

func (x *comparison) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	nc, rest, failed := http.NewResponseController(w).Hijack()
	if failed != nil {
		panic(failed)
	}
	defer nc.Close() // notifies the test that everything below is done
	if err != nil {
		x.refusal = strings.TrimPrefix(err.Error(), "malformed request: ")
		return
	}
	x.accepted = true
	next, _ := io.ReadAll(rest) // memory has no errors
	x.difference = x.compare(r, body, next)
}

// leadingLines are the empty lines that net/http does not skip.
var leadingLines = regexp.MustCompile("^(\r\n){1,4}")

// netHTTP reads the input with net/http, with the checks that its server makes and that
// http.ReadRequest does not.
func (x *comparison) netHTTP() (r *http.Request, body, next []byte, err error) {
	x.theirs.Reset(bytes.NewReader(leadingLines.ReplaceAll(x.input, nil)))
	if r, err = http.ReadRequest(x.theirs); err != nil {
		return nil, nil, nil, err
	}
	if r.ProtoMajor == 1 && r.ProtoMinor > 1 { // served as 1.1
		r.Proto, r.ProtoMinor = "HTTP/1.1", 1
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return nil, nil, nil, fmt.Errorf("bad name %q", name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return nil, nil, nil, fmt.Errorf("bad value %q", v)
			}
		}
	}
	if expect := r.Header.Get("Expect"); expect != "" && !bytes.Contains(bytes.ToLower([]byte(expect)), []byte("100-continue")) {
		return nil, nil, nil, fmt.Errorf("unknown expectation %q", expect)
	}
	if body, err = io.ReadAll(r.Body); err != nil {
		return nil, nil, nil, err
	}
	next, err = io.ReadAll(x.theirs)
	return r, body, next, err
}

// compare returns how what we have read differs from what net/http reads, "" if not at all.
func (x *comparison) compare(r *http.Request, body, next []byte) string {
	want, wantBody, wantNext, err := x.netHTTP()
	if http1gen.RefusedBlank(x.input, err) {
		return ""
	}
	if err != nil {
		return fmt.Sprintf("net/http refuses it: %v", err)
	}
	if _, added := r.Header["Cache-Control"]; !added && r.Header.Get("Pragma") == "no-cache" {
		delete(want.Header, "Cache-Control") // net/http adds it
	}
	for _, c := range []struct {
		what      string
		same      bool
		got, want any
	}{
		{"method", r.Method == want.Method, r.Method, want.Method},
		{"target", r.RequestURI == want.RequestURI, r.RequestURI, want.RequestURI},
		{"URL", *r.URL == *want.URL || reflect.DeepEqual(r.URL, want.URL), r.URL, want.URL},
		{"version", r.Proto == want.Proto && r.ProtoMajor == want.ProtoMajor && r.ProtoMinor == want.ProtoMinor, r.Proto, want.Proto},
		{"host", r.Host == want.Host, r.Host, want.Host},
		{"close", r.Close == want.Close, r.Close, want.Close},
		{"length", r.ContentLength == want.ContentLength, r.ContentLength, want.ContentLength},
		{"coding", slices.Equal(r.TransferEncoding, want.TransferEncoding), r.TransferEncoding, want.TransferEncoding},
		{"header", maps.EqualFunc(r.Header, want.Header, slices.Equal[[]string]), r.Header, want.Header},
		{"trailers", maps.EqualFunc(r.Trailer, want.Trailer, slices.Equal[[]string]), r.Trailer, want.Trailer},
		{"body", bytes.Equal(body, wantBody), body, wantBody},
		{"next request", bytes.Equal(next, wantNext), next, wantNext},
	} {
		if !c.same {
			return fmt.Sprintf("%s %q, net/http %q", c.what, c.got, c.want)
		}
	}
	return ""
}

// FuzzRequest holds the reading of requests against net/http's: the same, or refused.
func FuzzRequest(f *testing.F) {
	for i, row := range table {
		f.Add([]byte(row.raw), i%20)
	}
	x := newComparison()
	l := serveMemory(f, downstream.Config{Handler: x, MaxHead: 64 << 10})
	f.Fuzz(func(t *testing.T, input []byte, step int) {
		if bytes.HasPrefix(input, []byte(preface)) {
			return // such a connection is net/http's
		}
		x.run(l, input, min(max(step, 1), 1<<16))
		if x.difference != "" {
			t.Fatal(x.difference)
		}
	})
}
