//go:build unix

package e2e

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/proxy/http2"
)

// webSocketPassesOverHTTP2 is webSocketPasses for a client that opens its WebSocket with an
// extended CONNECT (RFC 8441).
func (f *fleet) webSocketPassesOverHTTP2(r *relay, service string) func(*testing.T) {
	return func(t *testing.T) {
		c, err := loadgen.DialHTTP2Upgrades(r.Ingress)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		streams := make(chan *http2.Stream, 1)
		c.Opened = func(s *http2.Stream) { streams <- s }
		f.webSocketEchoes(func(ctx context.Context) (*websocket.Conn, *http.Response, error) {
			return websocket.Dial(ctx, "ws://"+r.Ingress+"/websocket", &websocket.DialOptions{
				HTTPClient: &http.Client{Transport: c}, HTTPHeader: http.Header{serviceHeader: {service}},
			})
		})(t)
		// The end of the WebSocket is the end of its stream, and of no more.
		s := <-streams
		s.Interrupt(nil)
		if rest, err := io.ReadAll(s); err != nil || len(rest) > 0 {
			t.Errorf("after the close of the WebSocket: %q, %v", rest, err)
		}
		s.Close()
		if err := c.Conn.Err(); err != nil {
			t.Errorf("the connection has ended: %v", err)
		}
	}
}
