package upstream_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/e2e/unasked"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

const foreign = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign"

// poison answers a request with something that is followed by an answer that belongs
// to no request, and notifies when both are in flight.
func poison(c io.Writer, r *http.Request, out chan<- struct{}) {
	head, rest := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", foreign
	switch r.URL.Path {
	case "/head":
		head = "HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n"
	case "/204":
		head = "HTTP/1.1 204 No Content\r\n\r\n"
	case "/304":
		head = "HTTP/1.1 304 Not Modified\r\nContent-Length: 45\r\n\r\n"
	case "/chunked":
		head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
	}
	_, _ = io.WriteString(c, head)
	_, _ = io.WriteString(c, rest)
	out <- struct{}{}
}

// An endpoint that sends more than it was asked for must not answer the next client
// with it.
func TestNoClientGetsTheAnswerToAnother(t *testing.T) {
	out := make(chan struct{}, 1)
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for {
			r, _ := c.request()
			if r == nil {
				return
			}
			if r.URL.Path == "/own" {
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown")
				continue
			}
			poison(c, r, out)
		}
	})
	pool := newPool(t, upstream.Config{Address: addr})
	in := startIngress(t, pool, nil)
	const rounds = 200
	for path, method := range map[string]string{"/head": "HEAD", "/204": "GET", "/304": "GET", "/second": "GET", "/chunked": "GET"} {
		for range rounds {
			req, err := http.NewRequestWithContext(t.Context(), method, in.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := in.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			within(t, out, "what follows the answer")
			if _, body := in.get(t, "/own"); body != "own" {
				t.Fatalf("after %s %s the next client got %q", method, path, body)
			}
		}
	}
}

// TLS may hold bytes that the socket does not show any more.
func TestWhatTLSHasReadAheadIsSeen(t *testing.T) {
	out := make(chan struct{}, 1)
	certified := httptest.NewTLSServer(nil)
	cert := certified.TLS.Certificates[0]
	certified.Close()
	addr := rawEndpoint(t, func(_ int, raw *rawConn) {
		// All records of an answer in one segment.
		batch := &batched{Conn: raw.Conn}
		secure := tls.Server(batch, &tls.Config{Certificates: []tls.Certificate{cert}})
		if secure.Handshake() != nil {
			return
		}
		c := &rawConn{Conn: secure, br: bufio.NewReader(secure)}
		for {
			r, _ := c.request()
			if r == nil {
				return
			}
			if r.URL.Path == "/own" {
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown")
				continue
			}
			batch.hold = true
			poison(secure, r, out)
			batch.flush()
		}
	})
	secured := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	pool := newPool(t, upstream.Config{Address: addr, Dial: secured.DialContext})
	in := startIngress(t, pool, nil)
	for range 50 {
		in.get(t, "/second")
		within(t, out, "what follows the answer")
		if _, body := in.get(t, "/own"); body != "own" {
			t.Fatalf("the next client got %q", body)
		}
	}
	// A pool that has seen nothing of this endpoint.
	pool = newPool(t, upstream.Config{Address: addr, Dial: secured.DialContext})
	in = startIngress(t, pool, nil)
	in.get(t, "/own")
	in.get(t, "/own")
	if got := pool.Stats().Dials; got != 1 {
		t.Errorf("%d connections for answers that nothing follows", got)
	}
}

// RFC 9110 §8.6: a server must not send it.
func TestAConnectionIsNotUsedAgainAfterA204WithALength(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for {
			if r, _ := c.request(); r == nil {
				return
			}
			c.say("HTTP/1.1 204 No Content\r\nContent-Length: 45\r\n\r\n")
		}
	})
	pool := newPool(t, upstream.Config{Address: addr})
	in := startIngress(t, pool, nil)
	for range 3 {
		if resp, body := in.get(t, "/"); resp.StatusCode != http.StatusNoContent || body != "" || strings.Contains(resp.Header.Get("Content-Length"), "4") {
			t.Errorf("%s %v %q", resp.Status, resp.Header, body)
		}
	}
	if s := pool.Stats(); s.Dials != 3 {
		t.Errorf("stats %+v, want a connection for each", s)
	}
}

// batched holds writes back, so that they leave in one piece.
type batched struct {
	net.Conn
	hold bool
	held []byte
}

func (b *batched) Write(p []byte) (int, error) {
	if !b.hold {
		return b.Conn.Write(p)
	}
	b.held = append(b.held, p...)
	return len(p), nil
}

func (b *batched) flush() {
	_, _ = b.Conn.Write(b.held)
	b.hold, b.held = false, nil
}

// What an endpoint sends behind an answer that has no body is the answer to no request, however
// late it comes. Behind a body the first such answer cannot be known, but it is the last one.
func TestWhatComesLateBehindAnAnswerIsNotTheAnswerToAnother(t *testing.T) {
	t.Parallel()
	const rounds = 5 // for each of twelve endpoints of a kind
	for _, kind := range unasked.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			for _, pause := range unasked.Pauses() {
				for _, nagle := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v, Nagle %v", pause, nagle), func(t *testing.T) {
						t.Parallel()
						s := &unasked.Service{Kind: kind, Pause: pause, Nagle: nagle}
						if err := s.Start("127.0.0.1:0"); err != nil {
							t.Fatal(err)
						}
						t.Cleanup(s.Stop)
						in := startIngress(t, newPool(t, upstream.Config{Address: s.Addr()}), nil)
						allowed := 0
						if !kind.Bodyless {
							allowed = 1
						}
						if n := s.Try(unasked.Client{Addr: in.addr}, rounds); n.Foreign > allowed || n.Failed > 0 {
							t.Errorf("%+v, at most %d foreign answers are possible", n, allowed)
						}
					})
				}
			}
		})
	}
}
