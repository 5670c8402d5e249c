package downstream

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/proxy/http2"
)

var (
	errTaken    = errors.New("downstream: the connection was taken over")
	errBodyLeft = errors.New("downstream: the connection cannot be taken over before the body of its request was read")
)

// hijack gives the connection to the handler, with what was read of it.
func (c *conn) hijack() (net.Conn, *bufio.ReadWriter, error) {
	if c.hijacked {
		return nil, nil, errTaken
	}
	if !c.body.over() {
		return nil, nil, errBodyLeft
	}
	c.ahead.stop(c)
	if c.phase.Swap(phaseClosing) == phaseClosing {
		return nil, nil, net.ErrClosed
	}
	c.hijacked = true
	c.server.remove(c)
	if c.deadlined.Load() {
		_ = c.nc.SetDeadline(time.Time{})
	}
	left := bytes.Clone(c.in[c.from:c.to])
	c.dropBuffer()
	c.res.abandon()
	reader := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(left), c.nc), max(len(left), 16))
	_, _ = reader.Peek(len(left))
	c.server.cfg.ConnState(c.nc, http.StateHijacked)
	return c.nc, bufio.NewReadWriter(reader, bufio.NewWriterSize(c.nc, 1<<10)), nil
}

// tunnel is the stream of an extended CONNECT (RFC 8441) as the connection that a handler
// takes over. It ends with the handler.
type tunnel struct {
	*http2.Tunnel
	x *exchange
}

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
	x.read.Stop() // from now on the deadlines of the tunnel count
	x.write.Stop()
	x.tunnel = &tunnel{http2.NewTunnel(x.s), x}
	return x.tunnel, bufio.NewReadWriter(bufio.NewReaderSize(x.tunnel, 16), bufio.NewWriterSize(x.tunnel, 16)), nil
}

// Switched notifies the client that the tunnel is open. header has the fields of HTTP/1.1 for 101.
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

// webSocketKey returns a key for the request of HTTP/1.1 into which an extended CONNECT is
// turned (RFC 6455 §4.1).
func webSocketKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:])
}
