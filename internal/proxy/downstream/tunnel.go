package downstream

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/proxy/http2"
)

// tunnel is the stream of an extended CONNECT (RFC 8441) as the connection that a handler
// takes over. It ends with the handler.
type tunnel struct{ x *exchange }

var errNoTunnel = errors.New("downstream: a stream of HTTP/2 can only be taken over for an extended CONNECT")

// Hijack gives the stream of an extended CONNECT to the handler, as a connection to which
// the handler writes no head: Switched answers the client.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case x.s.Request().Protocol == "":
		return nil, nil, errNoTunnel
	case x.status != 0 || x.tunnel != nil:
		return nil, nil, errTaken
	}
	x.tunnel = &tunnel{x}
	return x.tunnel, bufio.NewReadWriter(bufio.NewReaderSize(x.tunnel, 16), bufio.NewWriterSize(x.tunnel, 16)), nil
}

// Switched tells the client that the tunnel is open. header has what HTTP/1.1 says with 101.
func (t *tunnel) Switched(header http.Header) error {
	x := t.x
	header = maps.Clone(header) // it may be x.answer
	clear(x.answer)
	maps.Copy(x.answer, header)
	delete(x.answer, "Sec-Websocket-Accept") // for the key that this side has made
	x.list(http.StatusOK)
	x.status = http.StatusOK
	return x.sendHead(false)
}

func (t *tunnel) Read(p []byte) (int, error) { return t.x.s.Read(p) }

func (t *tunnel) Write(p []byte) (int, error) { return t.x.s.Write(p, false) }

// CloseWrite ends the direction to the client.
func (t *tunnel) CloseWrite() error {
	_, err := t.x.s.Write(nil, true)
	return err
}

// Close ends both directions.
func (t *tunnel) Close() error {
	t.x.s.Reset(http2.Cancel)
	return nil
}

func (t *tunnel) LocalAddr() net.Addr  { return t.x.c.nc.LocalAddr() }
func (t *tunnel) RemoteAddr() net.Addr { return t.x.c.nc.RemoteAddr() }

func (t *tunnel) SetDeadline(d time.Time) error {
	_ = t.x.SetReadDeadline(d) // neither fails
	return t.x.SetWriteDeadline(d)
}

func (t *tunnel) SetReadDeadline(d time.Time) error { return t.x.SetReadDeadline(d) }

func (t *tunnel) SetWriteDeadline(d time.Time) error { return t.x.SetWriteDeadline(d) }

// webSocketKey returns a key for the request of HTTP/1.1 into which an extended CONNECT is
// turned (RFC 6455 §4.1).
func webSocketKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:])
}
