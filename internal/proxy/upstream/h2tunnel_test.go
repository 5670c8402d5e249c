package upstream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/http2"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// frame is one of a WebSocket, with the text hi.
const frame = "\x81\x02hi"

// acceptor is a service over HTTP/2 that accepts WebSockets, sends a frame and then does what serve
// does.
func acceptor(t *testing.T, serve func(*http2.Stream)) string {
	return rawEndpoint(t, func(_ int, c *rawConn) {
		conn := http2.NewServer(c.Conn, http2.Config{MaxHead: 64 << 10, MaxStreams: 10, Serve: func(s *http2.Stream) {
			defer s.Close()
			if r := s.Request(); r.Method != "CONNECT" || r.Protocol != "websocket" || r.Scheme != "http" || r.Path != "/ws?q" || r.Authority != "a" {
				t.Errorf("the service got %+v", r)
			}
			for _, f := range s.Request().Fields {
				if f.Name == "sec-websocket-key" {
					t.Error("the service got a key, which HTTP/2 does not have")
				}
			}
			_ = s.Send([]http2.Field{{Name: ":status", Value: "200"}, {Name: "content-length", Value: "0"}}, false) // a length means nothing here
			_, _ = s.Write([]byte(frame), false)
			serve(s)
		}}, nil)
		_ = conn.Run()
	})
}

// echo sends back what comes.
func echo(s *http2.Stream) {
	_, _ = io.Copy(http2.NewTunnel(s), http2.NewTunnel(s))
	_, _ = s.Write(nil, true)
}

const webSocketRequest = "GET /ws?q HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// openSocket opens a WebSocket at an ingress, and reads the first frame.
func openSocket(t *testing.T, in *ingress) *rawConn {
	t.Helper()
	c := dialRaw(t, in.addr)
	c.say(webSocketRequest)
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || resp.Header.Get("Content-Length") != "" {
		t.Fatalf("%+v, %v", resp, err)
	}
	first := make([]byte, len(frame))
	if _, err := io.ReadFull(c.br, first); err != nil || string(first) != frame {
		t.Fatalf("%q, %v", first, err)
	}
	return c
}

func TestAWebSocketOverHTTP2EndsAsOverHTTP1(t *testing.T) {
	for name, test := range map[string]struct {
		serve    func(*http2.Stream)
		progress time.Duration
		end      func(c *rawConn, p *upstream.Pool, s *upstream.Sessions)
		rest     string
		ended    func(upstream.Result) bool
	}{
		"the client": {end: func(c *rawConn, _ *upstream.Pool, _ *upstream.Sessions) {
			c.say("last")
			_ = c.Conn.(*net.TCPConn).CloseWrite()
		}, rest: "last", ended: func(r upstream.Result) bool {
			return r.Broke == upstream.BrokeNone && r.BytesIn == 4 && r.BytesOut == 8
		}},
		"the service resets": {serve: func(s *http2.Stream) { s.Reset(http2.Cancel) }, ended: func(r upstream.Result) bool { return r.Broke == upstream.BrokeEndpoint }},
		"the drain of sessions": {end: func(c *rawConn, p *upstream.Pool, s *upstream.Sessions) {
			if tunnels := s.Tunnels("chat")[""]; s.Len() != 1 || len(tunnels) != 1 || !tunnels[0].WebSocket {
				t.Errorf("%d sessions, the tunnels %v", s.Len(), tunnels)
			}
			s.End(1)
			var closing [4]byte
			if _, err := io.ReadFull(c.br, closing[:]); err != nil || string(closing[:]) != "\x88\x02\x03\xe9" {
				t.Errorf("the client got %q, %v", closing, err)
			}
			_ = c.Conn.(*net.TCPConn).CloseWrite()
		}, ended: func(r upstream.Result) bool { return r.Stopped && r.Broke == upstream.BrokeNone }},
		"silence": {progress: time.Second, ended: func(r upstream.Result) bool { return r.Silent == upstream.SilentBoth }},
		"the drain of the pool": {end: func(_ *rawConn, p *upstream.Pool, _ *upstream.Sessions) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := p.Drain(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}, ended: func(upstream.Result) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			if test.serve == nil {
				test.serve = echo
			}
			var sessions upstream.Sessions
			pool := newPool(t, upstream.Config{Address: acceptor(t, test.serve), Protocol: advertise.H2C, Sessions: &sessions})
			in := startIngress(t, pool, func(*http.Request) upstream.Options {
				return upstream.Options{Progress: test.progress, Session: upstream.Session{Service: "chat"}}
			})
			c := openSocket(t, in)
			if test.end != nil {
				test.end(c, pool, &sessions)
			}
			if rest, _ := io.ReadAll(c.br); string(rest) != test.rest {
				t.Errorf("the client got %q at the end", rest)
			}
			out := within(t, in.outcomes, "the outcome")
			if out.err != nil || !out.res.Upgraded || out.res.Status != http.StatusSwitchingProtocols || !test.ended(out.res) {
				t.Errorf("%+v, %v", out.res, out.err)
			}
		})
	}
}

// Before the settings of the service it is not known whether it accepts WebSockets.
func TestAWebSocketOverHTTP2WaitsForTheSettingsOfTheServiceNoLongerThanItsDeadline(t *testing.T) {
	settings := make(chan struct{})
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		<-settings
		_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS without one
		c.untilClosed()
	})
	deadlines := make(chan time.Duration, 2)
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: advertise.H2C}), func(*http.Request) upstream.Options {
		return upstream.Options{Deadline: time.Now().Add(<-deadlines)}
	})
	deadlines <- 30 * time.Millisecond
	dialRaw(t, in.addr).say(webSocketRequest)
	if out := within(t, in.outcomes, "the end of the wait"); out.err == nil || !out.err.Timeout() || out.err.Sent() {
		t.Errorf("without settings: %v", out.err)
	}
	deadlines <- 10 * time.Second
	dialRaw(t, in.addr).say(webSocketRequest)
	close(settings)
	if out := within(t, in.outcomes, "the refusal"); !errors.Is(out.err, upstream.ErrNoWebSockets) || !out.err.Client() || out.err.Sent() {
		t.Errorf("with settings that allow none: %v", out.err)
	}
}

func TestAWebSocketOverHTTP2WithoutAKeyReachesNoService(t *testing.T) {
	in := startIngress(t, newPool(t, upstream.Config{Address: acceptor(t, echo), Protocol: advertise.H2C}), nil)
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: c2hvcnQ=\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
	} {
		dialRaw(t, in.addr).say(request)
		if out := within(t, in.outcomes, "the refusal"); out.err == nil || !out.err.Client() || out.err.Sent() {
			t.Errorf("%q: %v", request, out.err)
		}
	}
}
