package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

func TestWebSocketsPass(t *testing.T) {
	addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat"}})
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		for {
			kind, data, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, append([]byte("echo "), data...)); err != nil {
				return
			}
		}
	})
	heads := make(chan int, 1)
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), func(*http.Request) upstream.Options {
		// Long over when the last message comes: a tunnel has no deadline.
		return upstream.Options{Deadline: time.Now().Add(time.Second), OnHead: func(r upstream.Result) bool {
			heads <- r.Status
			return true
		}}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, in.url+"/ws", &websocket.DialOptions{Subprotocols: []string{"chat"}})
	if err != nil {
		t.Fatal(err)
	}
	if status := within(t, heads, "head"); status != 101 {
		t.Errorf("the handler was told of status %d", status)
	}
	if resp.Header.Get("Sec-Websocket-Protocol") != "chat" {
		t.Errorf("header %v", resp.Header)
	}
	for _, m := range []string{"a", "b", string(make([]byte, 20000))} {
		if err := c.Write(ctx, websocket.MessageText, []byte(m)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(ctx); err != nil || string(got) != "echo "+m {
			t.Fatalf("%q %v", got, err)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, "bye"); err != nil {
		t.Errorf("close: %v", err)
	}
	out := within(t, in.outcomes, "outcome")
	if out.err != nil || !out.res.Upgraded || out.res.Status != 101 {
		t.Errorf("%+v %v", out.res, out.err)
	}
	if out.res.BytesIn <= 20002 || out.res.BytesOut <= out.res.BytesIn-3*4 { // each frame of the client has a mask of 4 bytes, each answer 5 bytes more
		t.Errorf("%d bytes from the client and %d to the client are counted", out.res.BytesIn, out.res.BytesOut)
	}
	if s := in.pool.Stats(); s.Open != 0 {
		t.Errorf("the tunnel's connection came back: %+v", s)
	}
}

func TestAnUpgradeThatTheHandlerTurnsAwayReachesNoClient(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if r, _ := c.request(); r != nil {
			c.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), func(*http.Request) upstream.Options {
		return upstream.Options{OnHead: func(upstream.Result) bool { return false }}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, in.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "raw")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	out := within(t, in.outcomes, "outcome")
	if resp.StatusCode == http.StatusSwitchingProtocols || out.err != nil || !out.res.Dropped || out.res.Upgraded {
		t.Errorf("client got %d; %+v %v", resp.StatusCode, out.res, out.err)
	}
}

func TestTunnelsForwardHalfClose(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if r, _ := c.request(); r == nil {
			return
		}
		c.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nhello ")
		all, _ := io.ReadAll(c.br) // ends although we may still speak
		c.say("you said " + string(all))
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	nc := procs.Dial(t, in.addr)
	_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\nearly ")
	br := bufio.NewReader(nc)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "raw" {
		t.Fatalf("%v %v", resp, err)
	}
	_, _ = io.WriteString(nc, "late")
	_ = nc.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(br); err != nil || string(got) != "hello you said early late" {
		t.Errorf("%q %v", got, err)
	}
}

func TestRefusedUpgradeIsAnOrdinaryAnswer(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for r, _ := c.request(); r != nil; r, _ = c.request() {
			c.say("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno")
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	req, _ := http.NewRequest("GET", in.url, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "raw")
	resp, err := in.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 426 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if s := in.pool.Stats(); s.Idle != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestDrainEndsTunnels(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if r, _ := c.request(); r != nil {
			c.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
			c.untilClosed()
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	nc := procs.Dial(t, in.addr)
	_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
	br := bufio.NewReader(nc)
	if _, err := http.ReadResponse(br, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := in.pool.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	within(t, in.outcomes, "the tunnel's end")
}
