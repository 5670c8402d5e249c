package paths

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/procs"
)

// opening is a request for a WebSocket, with the key of RFC 6455 §1.3.
const opening = "GET /%s HTTP/1.1\r\nHost: a\r\nRingway-Service: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

func TestAWebSocketReachesAServiceThatAcceptsItOverHTTP2(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		procs.Await(t, "the service to answer", func() bool {
			c := w.dial(t)
			defer c.Close()
			c.say(opening, "refused", "sockets")
			resp, body, _ := c.answer("GET")
			return resp.StatusCode == http.StatusForbidden && body == "no WebSocket over HTTP/2.0\n"
		})

		c := w.dial(t)
		c.say(opening+"early ", "one", "sockets")
		resp, err := http.ReadResponse(c.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"Upgrade": "websocket", "Connection": "Upgrade", "Sec-Websocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "Sec-Websocket-Protocol": "chat", "X-Path": "/one",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s is %q instead of %q", name, got, want)
			}
		}
		procs.Await(t, "the tunnel to be a session", func() bool { return w.inFlight(t, "sockets") > 0 })
		c.say("late")
		_ = c.CloseWrite()
		if got := c.ended(); resp.StatusCode != http.StatusSwitchingProtocols || got != "early late" {
			t.Errorf("over HTTP/1.1: %s, and %q came back", resp.Status, got)
		}
		procs.Await(t, "the tunnel to end", func() bool { return w.inFlight(t, "sockets") == 0 })

		h2, err := loadgen.DialHTTP2Upgrades(w.ingress)
		if err != nil {
			t.Fatal(err)
		}
		defer h2.Close()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.ingress+"/two", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Ringway-Service", "sockets")
		if resp, err = h2.RoundTrip(r); err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get("X-Path") != "/two" || len(resp.Header["Sec-Websocket-Accept"]) != 1 {
			t.Errorf("over HTTP/2: %v", resp.Header)
		}
		both := resp.Body.(io.ReadWriteCloser)
		got := make([]byte, 5)
		if _, err := io.WriteString(both, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(both, got); err != nil || string(got) != "hello" {
			t.Errorf("over HTTP/2: %q, %v", got, err)
		}
		_ = both.Close()
	})
}

func TestAWebSocketToAServiceOverHTTP2ThatAcceptsNoneIsRefusedWithTheRemedy(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		procs.Await(t, "the service over HTTP/2 to answer", func() bool {
			c := w.dial(t)
			defer c.Close()
			c.say("GET / HTTP/1.1\r\nHost: a\r\nRingway-Service: h2c\r\n\r\n")
			_, body, _ := c.answer("GET")
			return body == "over h2c"
		})
		c := w.dial(t)
		c.say(opening, "", "h2c")
		resp, body, err := c.answer("GET")
		if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "SETTINGS_ENABLE_CONNECT_PROTOCOL") || !strings.Contains(body, "protocol=http1") {
			t.Errorf("%v %q, %v", resp.StatusCode, body, err)
		}
	})
}

// The protocol changes behind the request (RFC 9110 §7.8). A service that switches before it has got the
// body, and a client that sends it then, must not share the buffer of one connection.
func TestAnUpgradeWithABodyIsARequestWithABody(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		c := w.dial(t)
		c.say("GET /switch HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nTransfer-Encoding: chunked\r\n\r\n5")
		select {
		case <-w.service.waits:
			t.Error("the service has switched")
		case <-time.After(200 * time.Millisecond): // a switch would have come
		}
		c.say("\r\nhello\r\n0\r\n\r\n")
		if resp, body, err := c.answer("GET"); err != nil || resp.StatusCode != http.StatusOK || body != "hello" {
			t.Errorf("%v %q, %v", resp, body, err)
		}
	})
}
