package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/proxy/socket"
	"github.com/ringway/ringway/internal/wire"
)

// switchProtocols answers an upgrade with the endpoint's 101 and connects the two
// connections until both directions have ended.
func (f *flight) switchProtocols() *Error {
	if f.upgrade == "" {
		return f.fail(StageHead, errNotUpgrade)
	}
	if f.x.OnHead != nil && !f.x.OnHead(f.res) {
		f.res.Dropped = true
		return nil
	}
	head := f.in[f.from : f.from+f.head.size]
	header := f.w.Header()
	f.head.fill(header, head, f.x)
	for i := range f.head.fields {
		if s := &f.head.fields[i]; http1.EqualFold(head[s.Name:s.NameEnd], "upgrade") {
			header["Upgrade"] = []string{string(head[s.Value:s.ValueEnd])}
		}
	}
	header["Connection"] = []string{"Upgrade"}
	f.x.addResponse(header)
	f.from += f.head.size
	return f.openTunnel(header)
}

// openTunnel answers with the header, takes over the connection of the client and copies
// both ways until both directions have ended. What is left in f.in are the first bytes to
// the client.
func (f *flight) openTunnel(header http.Header) (failed *Error) {
	client, buffered, err := http.NewResponseController(f.w).Hijack()
	if err != nil {
		clear(header)
		return f.fail(StageClient, errNoHijack)
	}
	defer func() {
		if failed != nil && f.upgrade == wire.UpgradeTCP {
			socket.Reset(client)
			socket.Reset(f.c.Conn)
		}
		_ = client.Close() // it may be closed already
	}()
	f.committed = true
	f.res.Upgraded = true
	// A tunnel has no deadline and outlives that of the request: only its two ends, the
	// progress timeout, Sessions and Drain end it.
	webSocket := strings.EqualFold(f.upgrade, "websocket")
	f.p.detach(f.c, client, Tunnel{Session: f.x.Session, Opened: time.Now(), WebSocket: webSocket})
	if err := f.c.SetDeadline(time.Time{}); err != nil {
		return f.fail(StageBody, err)
	}
	_ = client.SetDeadline(time.Time{})
	if err := switchClient(client, header, buffered.Writer, f.in[f.from:f.to]); err != nil {
		return f.fail(StageClient, err)
	}
	f.res.BytesOut = int64(f.to - f.from)
	var follow *frames
	if webSocket {
		follow = newFrames(f.in[f.from:f.to])
		f.progress.inFrame.Store(follow.within())
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	if len(early) > 0 {
		if _, err := f.c.Write(early); err != nil {
			return f.fail(StageBody, err)
		}
		f.x.Moved.add(toEndpoint, len(early))
	}
	f.x.Moved.add(toClient, f.to-f.from)
	in, out := f.tunnel(client, f.c.Conn, follow)
	f.res.BytesIn, f.res.BytesOut = int64(len(early))+in, f.res.BytesOut+out
	f.res.Silent = f.p.silentOf(&f.progress)
	return nil
}

// switchClient informs the client that the tunnel is open, and sends the first bytes from the
// endpoint. A stream of HTTP/2 has its own answer for that.
func switchClient(client net.Conn, header http.Header, w *bufio.Writer, early []byte) error {
	if stream, ok := client.(interface{ Switched(http.Header) error }); ok {
		if err := stream.Switched(header); err != nil {
			return err
		}
	} else {
		_, _ = w.WriteString("HTTP/1.1 " + strconv.Itoa(http.StatusSwitchingProtocols) + " Switching Protocols\r\n")
		_ = header.Write(w) // w keeps the error
		_, _ = w.WriteString("\r\n")
	}
	_, _ = w.Write(early)
	return w.Flush()
}

// detach removes the request's context from a connection that became a tunnel.
func (p *Pool) detach(c *conn, client net.Conn, of Tunnel) {
	p.mu.Lock()
	c.ctx = context.Background()
	c.progress.tunnel, c.progress.of = client, of
	p.mu.Unlock()
}

// tunnel copies both ways until both have ended, and returns the number of bytes from the
// client and to the client. The end of one direction is passed on; an error ends both.
// follow follows the frames to the client, so that the client gets a close frame when
// Sessions ends the tunnel.
func (f *flight) tunnel(client, endpoint net.Conn, follow *frames) (in, out int64) {
	g := &f.progress
	up := direction{dst: endpoint, src: client, side: toEndpoint, writing: &g.sending}
	down := direction{dst: client, src: endpoint, side: toClient, writing: &g.writing, frames: follow}
	var ended tunnelEnd
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.end(&up, f.pass(&up), &ended)
	}()
	err := f.pass(&down)
	for follow.within() && errors.Is(err, os.ErrDeadlineExceeded) && f.p.awaitFrame(g) {
		err = f.pass(&down) // the frame began when the tunnel was being ended
	}
	if !f.p.stopped(g) || !follow.sendClose(client) {
		f.end(&down, err, &ended)
	}
	<-done
	f.res.Stopped = f.p.stopped(g)
	f.res.Broke = f.broke(&ended)
	return up.passed, down.passed
}

// The directions of a tunnel.
const (
	toEndpoint = iota
	toClient
)

// direction is one direction of a tunnel.
type direction struct {
	dst, src net.Conn
	side     int
	writing  *atomic.Bool // set while dst accepts no more bytes
	frames   *frames      // follows the frames, if not nil
	passed   int64
	refused  bool // the error is that of dst
}

// pass copies one direction to its end. It returns nil after the end of what src sends.
func (f *flight) pass(d *direction) error {
	g := &f.progress
	in := newTunnelReader(d.src)
	defer in.drop()
	for {
		b, err := in.next()
		leaving := d.frames != nil && g.leaving.Load()
		if leaving {
			b = b[:d.frames.whole(b)]
		}
		if len(b) > 0 {
			g.moved.Store(true)
			d.writing.Store(true)
			n, werr := d.dst.Write(b)
			d.writing.Store(false)
			g.moved.Store(true)
			d.passed += int64(n)
			f.x.Moved.add(d.side, n)
			if d.frames != nil {
				if !leaving {
					d.frames.pass(b)
				}
				g.inFrame.Store(d.frames.within())
			}
			if werr != nil {
				d.refused = true
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err == nil && leaving && !d.frames.within() {
			err = os.ErrDeadlineExceeded // as if no more had come
		}
		if err != nil {
			return err
		}
	}
}

// tunnelReader reads one side of a tunnel. It holds no buffer while it waits for bytes of
// a socket, because a relay has thousands of tunnels that wait.
type tunnelReader struct {
	conn     net.Conn
	socket   socket.Socket
	bare     bool // no TLS: the bytes of the socket are those of the connection
	buf      *[]byte
	take     func() []byte
	dropBuff func()
}

func newTunnelReader(conn net.Conn) *tunnelReader {
	in := &tunnelReader{conn: conn}
	below := conn
	for {
		if _, ok := below.(*net.TCPConn); ok {
			in.bare = true
			in.socket.Init(below)
			in.take, in.dropBuff = in.buffer, in.drop
			return in
		}
		around, ok := below.(interface{ NetConn() net.Conn })
		if _, secured := below.(*tls.Conn); secured || !ok {
			return in
		}
		below = around.NetConn()
	}
}

func (in *tunnelReader) buffer() []byte {
	if in.buf == nil {
		in.buf = sendBuffers.Get().(*[]byte)
	}
	return *in.buf
}

func (in *tunnelReader) drop() {
	if in.buf != nil {
		sendBuffers.Put(in.buf)
		in.buf = nil
	}
}

// next returns the next bytes, which are valid until the next call.
func (in *tunnelReader) next() ([]byte, error) {
	if in.bare && in.socket.Usable() {
		n, err := in.socket.Read(in.take, in.dropBuff)
		if n == 0 {
			return nil, err
		}
		return (*in.buf)[:n], err
	}
	n, err := in.conn.Read(in.buffer())
	return (*in.buf)[:n], err
}

// end passes on how a direction has ended.
func (f *flight) end(d *direction, err error, ended *tunnelEnd) {
	half, ok := d.dst.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return
	}
	ended.note(d, err)
	if f.upgrade == wire.UpgradeTCP {
		// A session that breaks must not look like one whose sender has finished.
		socket.Reset(d.dst)
		socket.Reset(d.src)
		return
	}
	_ = d.dst.Close()
	_ = d.src.Close()
}
