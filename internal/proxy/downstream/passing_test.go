package downstream_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/http2"
)

// lateBody is what a handler that passes a body on reads it by.
type lateBody interface {
	ReadLate(take func() []byte, drop func()) ([]byte, error)
}

// readLate reads a body in pieces of at most 16 bytes.
func readLate(body io.ReadCloser) (all []byte, err error) {
	buffer, held := make([]byte, 16), 0
	for err == nil {
		var p []byte
		p, err = body.(lateBody).ReadLate(func() []byte { held++; return buffer }, func() { held-- })
		if len(p) > 0 && held == 0 {
			return nil, errors.New("bytes in a buffer that was given back")
		}
		all, held = append(all, p...), 0
	}
	return all, err
}

// late is a handler that reads so, and answers with what it has got.
func late(w http.ResponseWriter, r *http.Request) {
	all, err := readLate(r.Body)
	_, _ = fmt.Fprintf(w, "%s %v %v", all, err, r.Trailer["X-T"])
}

func TestABodyIsReadIntoABufferThatIsTakenLate(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(late), MaxHead: headLimit})
	memory := serveMemory(t, downstream.Config{Handler: http.HandlerFunc(late), MaxHead: headLimit})
	long := strings.Repeat("0123456789", 20)
	for _, c := range []struct{ name, raw, want string }{
		{"with a length", post("Content-Length: 200", long), long + " EOF []"},
		{"with chunks", chunks("64\r\n" + long[:100] + "\r\n64\r\n" + long[100:] + "\r\n0\r\nX-T: 1\r\n\r\n"), long + " EOF [1]"},
		{"of one byte", post("Content-Length: 1", "x"), "x EOF []"},
		{"that is cut short", post("Content-Length: 201", long), long + " unexpected EOF []"},
		{"whose chunks are cut short", chunks("64\r\n" + long[:50]), long[:50] + " unexpected EOF []"},
		{"with a bad chunk", chunks("3\r\nabc\r\nx\r\n"), "abc malformed request: bad chunk size line []"},
	} {
		for _, step := range []int{1, 7, 1000} {
			conn := newMemory([]byte(c.raw), step)
			memory <- conn
			within(t, conn.closed, "the end of the connection")
			if !strings.HasSuffix(conn.written.String(), "\r\n\r\n"+c.want) {
				t.Errorf("%s, in pieces of %d: %q, want %q", c.name, step, conn.written.String(), c.want)
			}
		}
		client := dial(t, addr)
		head, body, _ := strings.Cut(c.raw, "\r\n\r\n")
		client.say(head + "\r\n\r\n") // so that the connection has the body
		go func() {
			_, _ = io.WriteString(client.Conn, body)
			_ = client.Conn.(interface{ CloseWrite() error }).CloseWrite()
		}()
		if _, got := client.answer("POST"); got != c.want {
			t.Errorf("%s, over TCP: %q, want %q", c.name, got, c.want)
		}
	}
}

// Between two of its chunks the connection waits for TLS, not for the socket below.
func TestABodyOverTLSArrivesPieceByPiece(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	certificate.Close()
	addr, _ := serveOn(t, downstream.Config{Handler: http.HandlerFunc(late)}, tls.NewListener(procs.Listen(t), &tls.Config{Certificates: certificate.TLS.Certificates}))
	nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, nc).say("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
	if line, err := c.ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
		t.Fatalf("%q, %v", line, err)
	}
	_, _ = c.ReadString('\n')
	for _, piece := range []string{"3\r\nabc\r\n", "3\r\ndef\r\n", "0\r\n\r\n"} {
		c.say(piece)
	}
	if _, body := c.answer("POST"); body != "abcdef EOF []" {
		t.Errorf("%q", body)
	}
}

func TestABodyOverHTTP2IsReadIntoABufferThatIsTakenLate(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(late)})
	c := streamsTo(t, addr)
	for _, expects := range []bool{false, true} {
		fields := request("POST", "/")
		if expects {
			fields = append(fields, http2.Field{Name: "expect", Value: "100-continue"})
		}
		s := c.NewStream()
		if err := s.Open(fields, false, false); err != nil {
			t.Fatal(err)
		}
		if expects {
			if head, err := s.Answer(); err != nil || head.Status != http.StatusContinue {
				t.Fatalf("%+v, %v: want 100", head, err)
			}
		}
		if _, err := s.Write([]byte("body"), false); err != nil {
			t.Fatal(err)
		}
		if err := s.Send([]http2.Field{{Name: "x-t", Value: "1"}}, true); err != nil {
			t.Fatal(err)
		}
		if head, err := s.Answer(); err != nil || head.Status != http.StatusOK {
			t.Errorf("%+v, %v", head, err)
		}
		if body, err := io.ReadAll(readerOf(s.Read)); err != nil || string(body) != "body EOF [1]" {
			t.Errorf("%q, %v", body, err)
		}
		s.Close()
	}
}

func TestABodyCannotBeReadAfterItsHandler(t *testing.T) {
	bodies, idle := make(chan io.ReadCloser, 1), make(chan bool, 8)
	var served atomic.Bool
	addr, _ := start(t, downstream.Config{
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served.Store(true); bodies <- r.Body }),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateIdle && served.Swap(false) {
				idle <- true
			}
		},
	})
	dial(t, addr).say(post("Content-Length: 3", "abc")).answer("POST")
	over1 := <-bodies
	<-idle // the answer may arrive before the request is forgotten
	c := streamsTo(t, addr)
	s := c.NewStream()
	if err := s.Open(request("POST", "/"), false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("abc"), true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Answer(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	<-idle
	for name, body := range map[string]io.ReadCloser{"HTTP/1.1": over1, "HTTP/2": <-bodies} {
		if n, err := body.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		if all, err := readLate(body); len(all) > 0 || err == nil || err == io.EOF {
			t.Errorf("%s: %q, %v", name, all, err)
		}
	}
}

func TestWhatHasArrivedOfABodyOverHTTP2IsKnown(t *testing.T) {
	type buffered interface{ Buffered() (int, bool) }
	bodies := make(chan buffered, 1)
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadFull(r.Body, make([]byte, 1)); err != nil { // all came in one frame
			t.Error(err)
		}
		n, end := r.Body.(buffered).Buffered()
		bodies <- r.Body.(buffered)
		_, _ = fmt.Fprint(w, n, end)
	})})
	c := streamsTo(t, addr)
	s := c.NewStream()
	if err := s.Open(request("POST", "/"), false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("abcd"), true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Answer(); err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(readerOf(s.Read)); err != nil || string(body) != "3 true" {
		t.Errorf("%q, %v", body, err)
	}
	s.Close()
	if n, end := (<-bodies).Buffered(); n != 0 || end {
		t.Errorf("after the handler: %d, %v", n, end)
	}
}

func TestAFieldOfAnAnswerIsCopiedUnlessItConcernsTheConnection(t *testing.T) {
	type copier interface {
		CopyField(name, spelled, value []byte) bool
	}
	for _, c := range []struct {
		name, spelled, value string
		copied               bool
		want                 string // in the head
	}{
		{"X-A", "x-a", "1", true, "\r\nx-a: 1\r\n"},
		{"Set", "set", "1", false, "\r\nSet: 0\r\n"},
		{"X A", "X A", "1", false, ""},
		{"X-A", "X-A", "1\n2", false, ""},
		{"Connection", "Connection", "close", false, ""},
		{"Transfer-Encoding", "Transfer-Encoding", "chunked", false, ""},
		{"Trailer", "Trailer", "X", false, ""},
		{"Content-Length", "content-length", "2", true, "\r\nContent-Length: 2\r\n"},
		{"Content-Length", "content-length", "x", false, "\r\nContent-Length: 2\r\n"},
		{"Date", "date", "now", true, "\r\ndate: now\r\n"},
	} {
		l := serveMemory(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Set"] = []string{"0"}
			if got := w.(copier).CopyField([]byte(c.name), []byte(c.spelled), []byte(c.value)); got != c.copied {
				t.Errorf("%s: %s is copied: %v", c.name, c.value, got)
			}
			_, _ = io.WriteString(w, "ok")
			if w.(copier).CopyField([]byte(c.name), []byte(c.spelled), []byte(c.value)) {
				t.Errorf("%s is copied after the head", c.name)
			}
		})})
		conn := newMemory([]byte(line("GET / HTTP/1.1")), 1000)
		l <- conn
		within(t, conn.closed, "the end of the connection")
		head := conn.written.String()
		if !strings.Contains(head, c.want) || strings.Count(strings.ToLower(head), "\r\ndate: ") != 1 || strings.Count(strings.ToLower(head), "\r\ncontent-length: ") != 1 {
			t.Errorf("%s: %q, want %q", c.name, head, c.want)
		}
	}
}

func TestTwoLengthsOfAnAnswerAreNotCopied(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		copied := func(value string) bool {
			return w.(interface {
				CopyField(name, spelled, value []byte) bool
			}).CopyField([]byte("Content-Length"), []byte("Content-Length"), []byte(value))
		}
		if !copied("2") || copied("3") {
			t.Error("the first one is copied, and no other")
		}
		_, _ = io.WriteString(w, "ok")
	})})
	if resp, body := dial(t, addr).say(get).answer("GET"); resp.ContentLength != 2 || body != "ok" {
		t.Errorf("%d %q", resp.ContentLength, body)
	}
	over2, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		passed := func(name, value string) bool {
			return w.(interface{ PassField(http2.Field) bool }).PassField(http2.Field{Name: name, Value: value})
		}
		w.Header()["Set"] = []string{"0"}
		if passed("content-length", "x") || !passed("content-length", "2") || passed("content-length", "3") {
			t.Error("the first one that is a number is passed, and no other")
		}
		if passed("set", "1") || passed("trailer", "x") || !passed("x-a", "1") || !passed("date", "now") {
			t.Error("what the header has, and the announcement of trailers, are not passed")
		}
		w.Header()["X C"], w.Header()["X-S"] = []string{"c"}, []string{"s"}
		w.(interface{ NeverIndex(string) }).NeverIndex("X-S")
		w.(interface{ AddTrailer(http2.Field) }).AddTrailer(http2.Field{Name: "x-t", Value: "1"})
		w.Header()[http.TrailerPrefix+"X-U"] = []string{"2"}
		_, _ = io.WriteString(w, "ok")
		if passed("x-b", "1") {
			t.Error("a field is passed after the head")
		}
	})})
	head, body, err := exchange(t, streamsTo(t, over2), request("GET", "/"))
	got := map[string]http2.Field{}
	for _, f := range head.Fields {
		if _, twice := got[f.Name]; twice {
			t.Errorf("%s is there twice", f.Name)
		}
		got[f.Name] = f
	}
	for name, value := range map[string]string{"content-length": "2", "set": "0", "x-a": "1", "date": "now", "x-s": "s", "x-t": "1", "x-u": "2"} {
		if f, there := got[name]; !there || f.Value != value || f.Sensitive != (name == "x-s") {
			t.Errorf("%s is %+v, want %s", name, f, value)
		}
		delete(got, name)
	}
	if err != nil || body != "ok" || len(got) > 0 {
		t.Errorf("%q, %v, and more: %v", body, err, got)
	}
}

func TestAFieldIsKnownAsItsClientSpelledIt(t *testing.T) {
	const most = 64
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		spelled := w.(interface{ SpelledField(string) string }).SpelledField
		_, _ = fmt.Fprint(w, spelled("X-A"), spelled("X-B"), spelled("X-C"), spelled(fmt.Sprint("X-N", most-3)), spelled(fmt.Sprint("X-N", most-2)))
	})})
	var fields bytes.Buffer
	fields.WriteString("x-a: 1\r\nX-B: 2\r\nx-C: 3\r\n")
	for i := range most {
		fmt.Fprintf(&fields, "x-n%d: 1\r\n", i)
	}
	c := dial(t, addr)
	for range 2 {
		if _, body := c.say(with(strings.TrimSuffix(fields.String(), "\r\n"))).answer("GET"); body != "x-aX-Bx-Cx-n61X-N62" {
			t.Errorf("%q", body)
		}
	}
	if _, body := c.say(get).answer("GET"); body != "X-AX-BX-CX-N61X-N62" {
		t.Errorf("the next request: %q", body)
	}
}
