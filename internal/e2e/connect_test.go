//go:build unix

package e2e

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"github.com/ringway/ringway/internal/proxy/http2"
)

// webSocketPassesOverHTTP2 is webSocketPasses for a client that opens its WebSocket with an
// extended CONNECT (RFC 8441).
func (f *fleet) webSocketPassesOverHTTP2(r *relay, service string) func(*testing.T) {
	return func(t *testing.T) {
		nc, err := net.Dial("tcp", r.Ingress)
		if err != nil {
			t.Fatal(err)
		}
		c := connecting{http2.NewClient(nc, http2.Config{MaxHead: 64 << 10}), make(chan *tunnel, 1)}
		ran := make(chan struct{})
		go func() { defer close(ran); _ = c.conn.Run() }()
		t.Cleanup(func() { _ = c.conn.Close(); <-ran })
		f.webSocketEchoes(func(ctx context.Context) (*websocket.Conn, *http.Response, error) {
			return websocket.Dial(ctx, "ws://"+r.Ingress+"/websocket", &websocket.DialOptions{
				HTTPClient: &http.Client{Transport: c}, HTTPHeader: http.Header{serviceHeader: {service}},
			})
		})(t)
		// The end of the WebSocket is the end of its stream, and of no more.
		s := (<-c.tunnels).s
		s.Interrupt(nil)
		if rest, err := io.ReadAll(s); err != nil || len(rest) > 0 {
			t.Errorf("after the close of the WebSocket: %q, %v", rest, err)
		}
		s.Close()
		if err := c.conn.Err(); err != nil {
			t.Errorf("the connection has ended: %v", err)
		}
	}
}

// connecting makes an extended CONNECT of the request for an upgrade, and the answer to an
// upgrade of what comes back.
type connecting struct {
	conn    *http2.Conn
	tunnels chan *tunnel // that were opened
}

func (c connecting) RoundTrip(r *http.Request) (*http.Response, error) {
	fields := []http2.Field{{Name: ":method", Value: "CONNECT"}, {Name: ":protocol", Value: "websocket"}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: r.URL.Host}, {Name: ":path", Value: r.URL.RequestURI()}}
	for name, values := range r.Header {
		switch name {
		case "Connection", "Upgrade", "Sec-Websocket-Key":
			continue
		}
		for _, v := range values {
			fields = append(fields, http2.Field{Name: http2.LowerName(name), Value: v})
		}
	}
	s := c.conn.NewStream()
	if err := s.Open(fields, false, false); err != nil {
		return nil, err
	}
	head, err := s.Answer()
	if err != nil {
		return nil, err
	}
	if head.Status != http.StatusOK {
		return nil, fmt.Errorf("status %d", head.Status)
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Accept": {base64.StdEncoding.EncodeToString(sum[:])}}
	for _, f := range head.Fields {
		header.Add(http2.CanonicalName(f.Name), f.Value)
	}
	t := &tunnel{s}
	c.tunnels <- t
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: header, Body: t}, nil
}

// tunnel is the stream of a WebSocket.
type tunnel struct{ s *http2.Stream }

func (t *tunnel) Read(p []byte) (int, error)  { return t.s.Read(p) }
func (t *tunnel) Write(p []byte) (int, error) { return t.s.Write(p, false) }

// Close ends what this side sends, and its reads: another goroutine may be in one.
func (t *tunnel) Close() error {
	_, err := t.s.Write(nil, true)
	t.s.Interrupt(errors.New("the tunnel is closed"))
	return err
}
