package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

func TestAWebSocketThatIsEndedGetsACloseFrameBetweenTwoFrames(t *testing.T) {
	big := strings.Repeat("x", 70_000) // a frame of each form of length
	closed := make(chan websocket.StatusCode, 1)
	addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		for _, m := range []string{"a", big[:300], big} {
			if err := c.Write(r.Context(), websocket.MessageText, []byte(m)); err != nil {
				t.Error(err)
			}
		}
		_, _, err = c.Read(context.Background())
		closed <- websocket.CloseStatus(err)
	})
	sessions := &upstream.Sessions{}
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, Sessions: sessions}), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, in.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(1 << 20)
	for _, want := range []int{1, 300, len(big)} {
		if _, got, err := c.Read(ctx); err != nil || len(got) != want {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	if n := sessions.Len(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	if n := sessions.End(5); n != 1 || sessions.Len() != 0 {
		t.Errorf("%d ended, %d are left", n, sessions.Len())
	}
	if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the client's end: %v", err)
	}
	if status := within(t, closed, "the client's answer at the service"); status != websocket.StatusGoingAway {
		t.Errorf("the service's end: %v", status)
	}
	if out := within(t, in.outcomes, "outcome"); out.err != nil || !out.res.Upgraded {
		t.Errorf("%+v %v", out.res, out.err)
	}
}

func TestAWebSocketThatIsEndedGetsItsFrameToTheEnd(t *testing.T) {
	const whole = "\x82\x05hello"
	for name, split := range map[string]int{"in the head": 1, "after the head": 2, "in the payload": 4} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			addr := rawEndpoint(t, func(_ int, conn *rawConn) {
				if r, _ := conn.request(); r != nil {
					conn.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + whole[:split])
					<-ended
					conn.say(whole[split:] + whole + whole[:3]) // the last frame does not reach the client
					conn.untilClosed()
				}
			})
			sessions := new(upstream.Sessions)
			pool := newPool(t, upstream.Config{Address: addr, Sessions: sessions})
			in := startIngress(t, pool, nil)
			client := dialRaw(t, in.addr)
			client.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
			if resp, err := http.ReadResponse(client.br, nil); err != nil || resp.StatusCode != 101 {
				t.Fatalf("%v %v", resp, err)
			}
			if _, err := client.br.Peek(split); err != nil {
				t.Fatal(err)
			}
			pool.Close() // as that of a worker that drains; it does not end tunnels
			open := sessions.Tunnels("")[""]
			if len(open) != 1 || !open[0].WebSocket || !sessions.EndTunnel(open[0]) {
				t.Fatalf("%+v", open)
			}
			if len(sessions.Tunnels("")[""]) != 0 || sessions.EndTunnel(open[0]) {
				t.Error("a tunnel is ended twice")
			}
			close(ended)
			const end = "\x88\x02\x03\xe9"
			if got, _ := io.ReadAll(client.br); string(got) != whole+end && string(got) != whole+whole+end {
				t.Errorf("the client got %q", got)
			}
			if out := within(t, in.outcomes, "outcome"); out.err != nil || !out.res.Stopped {
				t.Errorf("%+v %v", out.res, out.err)
			}
		})
	}
}

func TestATunnelThatCannotBeNotifiedIsCutOff(t *testing.T) {
	for name, c := range map[string]struct{ protocol, says string }{
		"in the middle of a frame": {"websocket", "\x82\x05half"},
		"after its close frame":    {"websocket", "\x88\x00"},
		"of another protocol":      {"raw", "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			addr := rawEndpoint(t, func(_ int, conn *rawConn) {
				if r, _ := conn.request(); r != nil {
					conn.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + c.protocol + "\r\n\r\n" + c.says)
					conn.untilClosed()
				}
			})
			sessions := &upstream.Sessions{}
			in := startIngress(t, newPool(t, upstream.Config{Address: addr, Sessions: sessions}), nil)
			client := dialRaw(t, in.addr)
			client.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: " + c.protocol + "\r\n\r\n")
			if resp, err := http.ReadResponse(client.br, nil); err != nil || resp.StatusCode != 101 {
				t.Fatalf("%v %v", resp, err)
			}
			got := make([]byte, len(c.says))
			if _, err := io.ReadFull(client.br, got); err != nil || string(got) != c.says {
				t.Fatalf("%q %v", got, err)
			}
			if n := sessions.End(1); n != 1 {
				t.Errorf("%d ended", n)
			}
			if rest, _ := io.ReadAll(client.br); len(rest) != 0 {
				t.Errorf("the client got %q behind it", rest)
			}
			within(t, in.outcomes, "outcome")
		})
	}
}

func TestAStreamThatIsEndedBreaksOffAndARequestGetsTheReason(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			entered, release := make(chan struct{}, 1), make(chan struct{})
			defer close(release)
			addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/stream" {
					_, _ = io.WriteString(w, "begun")
					_ = http.NewResponseController(w).Flush()
				}
				entered <- struct{}{}
				select {
				case <-release:
				case <-r.Context().Done():
				}
			})
			sessions := &upstream.Sessions{}
			in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol, Sessions: sessions}), nil)

			asked := make(chan struct{})
			go func() {
				defer close(asked)
				if resp, err := in.client.Get(in.url + "/request"); err == nil {
					_ = resp.Body.Close()
				}
			}()
			<-entered
			if n := sessions.Len(); n != 0 || sessions.End(1) != 0 {
				t.Errorf("a request counts as %d sessions", n)
			}
			sessions.EndRequests()
			<-asked
			if e := within(t, in.outcomes, "outcome").err; e == nil || !errors.Is(e, upstream.ErrStopped) || e.Committed() {
				t.Errorf("the request: %+v", e)
			}

			resp, err := in.client.Get(in.url + "/stream")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			body := bufio.NewReader(resp.Body)
			if _, err := body.Peek(5); err != nil {
				t.Fatal(err)
			}
			sessions.EndRequests()
			if n := sessions.Len(); n != 1 {
				t.Errorf("%d sessions, want the stream", n)
			}
			sessions.End(1)
			if _, err := io.ReadAll(body); err == nil {
				t.Error("the stream ends as if it were whole")
			}
			if e := within(t, in.outcomes, "outcome").err; e == nil || !errors.Is(e, upstream.ErrStopped) || !e.Committed() {
				t.Errorf("the stream: %+v", e)
			}
		})
	}
}

func TestSessionsForgetPoolsThatAreClosed(t *testing.T) {
	gone := make(chan struct{})
	addr := rawEndpoint(t, func(_ int, conn *rawConn) {
		if r, _ := conn.request(); r != nil {
			conn.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
			conn.untilClosed()
			close(gone)
		}
	})
	sessions := &upstream.Sessions{}
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, Sessions: sessions}), nil)
	client := dialRaw(t, in.addr)
	client.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
	if resp, err := http.ReadResponse(client.br, nil); err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v %v", resp, err)
	}
	in.pool.Close() // its tunnel goes on, and is known still
	if n := sessions.Len(); n != 1 {
		t.Errorf("%d sessions of a closed pool, want 1", n)
	}
	_ = client.Close()
	<-gone
	within(t, in.outcomes, "outcome")
	if n := sessions.Len(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}
