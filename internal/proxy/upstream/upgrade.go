package upstream

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
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
	"github.com/ringway/ringway/internal/proxy/http2"
	"github.com/ringway/ringway/internal/proxy/socket"
	"github.com/ringway/ringway/internal/wire"
)

// switchProtocols makes the answer to an upgrade of the endpoint's 101. The fields of the
// connection are written again, because those of the endpoint concern its own connection. Upgrade is
// passed on, as it names the protocol that the endpoint has chosen (RFC 9110 §7.8).
func (f *flight) switchProtocols() (begun bool, _ *Fault) {
	if f.upgrade == "" {
		return false, f.fail(StageHead, errNotUpgrade)
	}
	if f.x.OnHead != nil && !f.x.OnHead(f.res) {
		f.res.Dropped = true
		return false, nil
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
	f.x.addResponse(header, false)
	f.from += f.head.size
	return true, nil
}

// openTunnel makes a tunnel of the exchange. What is left in f.in are the first bytes to the
// client.
func (f *flight) openTunnel(header http.Header) *Fault {
	t := tunnel{p: f.p, w: f.w, x: f.x, c: f.c, g: &f.progress, res: &f.res, upgrade: f.upgrade, early: f.in[f.from:f.to], committed: &f.committed, fail: f.fail}
	return t.open(header)
}

// takeKey reads the key of the WebSocket that a request opens over HTTP/2 (RFC 6455 §4.2.1). The
// endpoint gets no key, so it cannot refuse a bad one.
func (s *h2Stream) takeKey() error {
	keys := s.r.Header[keyName]
	switch {
	case ForTCP(s.r):
		return errUpgradeH2
	case s.r.Method != http.MethodGet || hasBody(s.r) || len(keys) != 1:
		return errWebSocket
	}
	if b, err := base64.StdEncoding.DecodeString(keys[0]); err != nil || len(b) != 16 {
		return errWebSocket
	}
	s.key = keys[0]
	return nil
}

const keyName = "Sec-Websocket-Key"

// acceptOf returns Sec-WebSocket-Accept for a key (RFC 6455 §4.2.2). The text is the one that the
// RFC gives, and the hash protects nothing here: it shows that the answer is for this key.
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// switchProtocols makes the answer to the request for a WebSocket as over HTTP/1.1.
func (s *h2Stream) switchProtocols(head *http2.Head) (begun bool) {
	s.res.Status = http.StatusSwitchingProtocols
	if s.x.OnHead != nil && !s.x.OnHead(s.res) {
		s.res.Dropped = true
		return false
	}
	header := s.w.Header()
	s.fill(header, head)
	delete(header, "Content-Length")
	header["Upgrade"], header["Connection"] = []string{"websocket"}, []string{"Upgrade"}
	header["Sec-Websocket-Accept"] = []string{acceptOf(s.key)}
	s.x.addResponse(header, false)
	return true
}

// openTunnel makes a tunnel of the exchange.
func (s *h2Stream) openTunnel(header http.Header) *Fault {
	stream := http2.NewTunnel(s.s)
	defer stream.End()
	c := s.c.p.engageStream(s, stream)
	defer s.c.p.release(c, false)
	t := tunnel{p: s.c.p, w: s.w, x: s.x, c: c, g: &s.progress, res: &s.res, upgrade: "websocket", committed: &s.committed, fail: s.fail}
	return t.open(header)
}

// engageStream lets the watch end the tunnel as one over HTTP/1.1, and no longer the exchange.
func (p *Pool) engageStream(s *h2Stream, stream net.Conn) *conn {
	c := &conn{Conn: stream}
	p.mu.Lock()
	s.progress.stream, s.progress.ctx = nil, nil
	p.engage(c, s.r.Context(), &s.progress)
	p.mu.Unlock()
	s.s.Interrupt(nil) // the watch repeats what it has ended
	return c
}

// tunnel is an exchange whose client and endpoint have switched protocols.
type tunnel struct {
	p         *Pool
	w         http.ResponseWriter
	x         *Options
	c         *conn
	g         *progress
	res       *Result
	upgrade   string
	early     []byte // the first bytes to the client
	committed *bool
	fail      func(Stage, error) *Fault // of the exchange
}

// open answers with the header, takes over the connection of the client and copies both ways
// until both directions have ended.
func (t *tunnel) open(header http.Header) (failed *Fault) {
	client, buffered, err := http.NewResponseController(t.w).Hijack()
	if err != nil {
		clear(header)
		return t.fail(StageClient, errNoHijack)
	}
	defer func() {
		if failed != nil && t.upgrade == wire.UpgradeTCP {
			socket.Reset(client)
			socket.Reset(t.c.Conn)
		}
		_ = client.Close() // it may be closed already
	}()
	*t.committed = true
	t.res.Upgraded = true
	// A tunnel has no deadline and outlives that of the request: only its two ends, the
	// progress timeout, Sessions and Drain end it.
	webSocket := strings.EqualFold(t.upgrade, "websocket")
	t.p.detach(t.c, client, Tunnel{Session: t.x.Session, Opened: time.Now(), WebSocket: webSocket})
	if err := t.c.SetDeadline(time.Time{}); err != nil {
		return t.fail(StageBody, err)
	}
	_ = client.SetDeadline(time.Time{})
	if err := switchClient(client, header, buffered.Writer, t.early); err != nil {
		return t.fail(StageClient, err)
	}
	t.res.BytesOut = int64(len(t.early))
	var follow *frames
	if webSocket {
		follow = newFrames(t.early)
		t.g.inFrame.Store(follow.within())
	}
	// A client may send the first bytes of the new protocol right behind its request. The server
	// has read them already.
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	if len(early) > 0 {
		if _, err := t.c.Write(early); err != nil {
			return t.fail(StageBody, err)
		}
		t.x.Moved.add(toEndpoint, len(early))
	}
	t.x.Moved.add(toClient, len(t.early))
	in, out := t.pass(client, t.c.Conn, follow)
	t.res.BytesIn, t.res.BytesOut = int64(len(early))+in, t.res.BytesOut+out
	t.res.Silent = t.p.silentOf(t.g)
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

// pass copies both ways until both have ended, and returns the number of bytes from the
// client and to the client. The end of one direction is passed on; an error ends both.
// follow follows the frames to the client, so that the client gets a close frame when
// Sessions ends the tunnel. Each direction has one goroutine; the handler's own copies to the
// client. If Sessions ends a WebSocket, the read from the endpoint ends first, so that this
// direction can still write the rest of a frame and the close frame.
func (t *tunnel) pass(client, endpoint net.Conn, follow *frames) (in, out int64) {
	g := t.g
	up := direction{dst: endpoint, src: client, side: toEndpoint, writing: &g.sending}
	down := direction{dst: client, src: endpoint, side: toClient, writing: &g.writing, frames: follow}
	var ended tunnelEnd
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.end(&up, t.copy(&up), &ended)
	}()
	err := t.copy(&down)
	for follow.within() && errors.Is(err, os.ErrDeadlineExceeded) && t.p.awaitFrame(g) {
		err = t.copy(&down) // the frame began when the tunnel was being ended
	}
	if !t.p.stopped(g) || !follow.sendClose(client) {
		t.end(&down, err, &ended)
	}
	<-done
	t.res.Stopped = t.p.stopped(g)
	t.res.Broke = t.broke(&ended)
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

// copy copies one direction to its end. It returns nil after the end of what src sends. When
// Sessions ends a tunnel with frames, it passes only whole frames from then on: a close frame
// within another frame would be a part of that.
func (t *tunnel) copy(d *direction) error {
	g := t.g
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
			t.x.Moved.add(d.side, n)
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
		// Over TLS the bytes of the socket are not those of the tunnel, so a read waits with a
		// buffer.
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

// end passes on how a direction has ended. An orderly end closes one direction only, because
// protocols may send on after the other side has finished. Where that is not possible, and after an
// error, both connections are closed, which also ends the other direction.
func (t *tunnel) end(d *direction, err error, ended *tunnelEnd) {
	half, ok := d.dst.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return
	}
	ended.record(d, err)
	if t.upgrade == wire.UpgradeTCP {
		// A session that breaks must not look like one whose sender has finished.
		socket.Reset(d.dst)
		socket.Reset(d.src)
		return
	}
	_ = d.dst.Close()
	_ = d.src.Close()
}
