package loadgen

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/ringway/ringway/internal/proxy/http2"
)

// HTTP2Upgrades opens WebSockets as streams of one connection of HTTP/2 (RFC 8441), for clients
// of WebSockets that know HTTP/1.1 only: it makes an extended CONNECT of their request for an
// upgrade, and the answer to an upgrade of what comes back.
type HTTP2Upgrades struct {
	Conn *http2.Conn
	// Opened is called with each stream; nil for none.
	Opened func(*http2.Stream)

	ended chan struct{}
}

// DialHTTP2Upgrades connects to a relay. Close ends the connection.
func DialHTTP2Upgrades(addr string) (*HTTP2Upgrades, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	u := &HTTP2Upgrades{Conn: http2.NewClient(nc, http2.Config{MaxHead: 64 << 10}), ended: make(chan struct{})}
	go func() { defer close(u.ended); _ = u.Conn.Run() }()
	return u, nil
}

// Close ends the connection and returns when its goroutines have ended.
func (u *HTTP2Upgrades) Close() error {
	err := u.Conn.Close()
	<-u.ended
	return err
}

// RoundTrip implements http.RoundTripper.
func (u *HTTP2Upgrades) RoundTrip(r *http.Request) (*http.Response, error) {
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
	s := u.Conn.NewStream()
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
	if u.Opened != nil {
		u.Opened(s)
	}
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: header, Body: upgraded{s}}, nil
}

// upgraded is the stream of a WebSocket.
type upgraded struct{ s *http2.Stream }

func (u upgraded) Read(p []byte) (int, error)  { return u.s.Read(p) }
func (u upgraded) Write(p []byte) (int, error) { return u.s.Write(p, false) }

// Close ends what this side sends, and its reads: another goroutine may be in one.
func (u upgraded) Close() error {
	_, err := u.s.Write(nil, true)
	u.s.Interrupt(errors.New("the tunnel is closed"))
	return err
}
