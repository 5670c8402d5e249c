package upstream

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// interruptible is a client whose body never comes: a read ends when the deadline
// is set, which the test holds up.
type interruptible struct {
	http.ResponseWriter
	reading, setting, proceed, over chan struct{}
	mu                              sync.Mutex
	deadlines                       int
}

func (c *interruptible) Read([]byte) (int, error) {
	close(c.reading)
	<-c.over
	return 0, io.ErrUnexpectedEOF
}

func (c *interruptible) Close() error { return nil }

func (c *interruptible) SetReadDeadline(time.Time) error {
	c.mu.Lock()
	c.deadlines++
	first := c.deadlines == 1
	c.mu.Unlock()
	if first {
		close(c.setting)
		<-c.proceed
		close(c.over)
	}
	return nil
}

func TestABodyIsStoppedOnceAndTheClientIsNotTouchedAfterwards(t *testing.T) {
	c := &interruptible{reading: make(chan struct{}), setting: make(chan struct{}), proceed: make(chan struct{}), over: make(chan struct{})}
	b := &clientBody{body: c, w: c, length: noLength}
	var all sync.WaitGroup
	all.Go(func() { _, _ = b.Read(make([]byte, 1)) })
	<-c.reading
	all.Go(b.stop)
	<-c.setting
	late := make(chan struct{})
	all.Go(func() {
		close(late)
		b.stop()
	})
	<-late
	close(c.proceed)
	all.Wait()
	b.stop()
	if c.deadlines != 2 { // one to interrupt, one for the rest of the body
		t.Errorf("the client's connection was touched %d times", c.deadlines)
	}
	if err := b.failure(); err != nil {
		t.Errorf("the client is blamed for the interruption: %v", err)
	}
	if _, err := b.Read(make([]byte, 1)); err != errBodyStopped {
		t.Errorf("a read after the end: %v", err)
	}
}

// pieces is a body that comes in pieces of at most size bytes.
type pieces struct {
	io.Reader
	size int
	read int // calls
}

func (p *pieces) Read(b []byte) (int, error) {
	p.read++
	return p.Reader.Read(b[:min(len(b), p.size)])
}

func (p *pieces) Close() error { return nil }

// sendBody returns the bytes sent of a request over HTTP/1.1, with its body stopped at the
// given write; 0 never.
func sendBody(t *testing.T, in *http.Request, source *pieces, stopAt int) (message []byte, b *clientBody, err error) {
	t.Helper()
	x := &Options{Drop: dropReserved}
	message, err = requestHead(nil, in, x, "", in.ContentLength, nil)
	if err != nil {
		t.Fatal(err)
	}
	b = &clientBody{body: in.Body, length: in.ContentLength}
	out := &stopping{message: message, at: stopAt, stop: func() {
		b.stop()
		source.read = 0
	}}
	s := &sender{body: b, r: in, x: x, chunked: in.ContentLength < 0, c: &conn{Conn: sink{out}}}
	err = s.run()
	return out.message, b, err
}

// stopping keeps the bytes written to it and stops the body at one of the writes.
type stopping struct {
	message []byte
	at      int
	stop    func()
}

func (s *stopping) Write(b []byte) (int, error) {
	s.message = append(s.message, b...)
	if s.at--; s.at == 0 {
		s.stop()
	}
	return len(b), nil
}

// FuzzClientBody compares the bytes sent of a client's body with those that net/http reads of
// it: the same body and trailers, or a message that is not whole, for bodies that come
// in pieces, break off, are longer than declared, or are stopped. A declared length
// below 0 means that the body is chunked.
func FuzzClientBody(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte, declared int64, size, stopAt uint8) {
		if declared == 0 {
			return // no body
		}
		source := &pieces{Reader: bytes.NewReader(body), size: int(size) + 1}
		read := func(r io.Reader) *http.Request {
			if declared > 0 {
				return &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/"}, Host: "a", Body: io.NopCloser(r), ContentLength: declared}
			}
			head := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: A, Ringway-Caller\r\n\r\n"
			in, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(head), r)))
			if err != nil {
				t.Fatal(err)
			}
			return in
		}
		want := read(bytes.NewReader(body))
		wantBody, wantErr := io.ReadAll(want.Body)
		in := read(source)
		if declared > 0 {
			in.Body = source
			if int64(len(body)) < declared {
				wantErr = errUnfinished
			}
			wantBody = wantBody[:min(int64(len(body)), declared)]
		}

		message, b, err := sendBody(t, in, source, int(stopAt))
		rest := bufio.NewReader(bytes.NewReader(message))
		out, headErr := http.ReadRequest(rest)
		if headErr != nil {
			t.Fatalf("net/http refuses the head: %v\n%q", headErr, message)
		}
		got, bodyErr := io.ReadAll(out.Body)
		left, _ := io.ReadAll(rest)
		if !bytes.HasPrefix(wantBody, got) || len(left) > 0 && bodyErr == nil {
			t.Fatalf("sent %q and %q behind it, of %q", got, left, wantBody)
		}
		if err != nil {
			switch {
			case bodyErr == nil:
				t.Fatalf("the body failed with %v, and the message is whole: %q", err, message)
			case b.ended.Load():
				t.Fatalf("ended, and failed with %v", err)
			case err == errBodyStopped:
				if source.read > 0 || b.failure() != nil || stopAt == 0 {
					t.Fatalf("stopped, then read %d times; the client is blamed with %v", source.read, b.failure())
				}
			case err == errTooLong && int64(len(body)) > declared:
			case wantErr == nil || b.failure() == nil:
				t.Fatalf("failed with %v (the client: %v), where net/http reads %q, %v", err, b.failure(), wantBody, wantErr)
			}
			return
		}
		if wantErr != nil || bodyErr != nil || !b.ended.Load() || b.failure() != nil || len(got) != len(wantBody) {
			t.Fatalf("sent %q (%v), want %q (%v)", got, bodyErr, wantBody, wantErr)
		}
		for _, trailer := range []http.Header{want.Trailer, out.Trailer} {
			for name, values := range trailer {
				sent := out.Trailer[name]
				if drop := dropReserved(name) || !trailerField(name); drop && sent != nil || !drop && len(values) > 0 && !slices.Equal(sent, want.Trailer[name]) {
					t.Fatalf("sent the trailers %q, of %q", out.Trailer, want.Trailer)
				}
			}
		}
	})
}
