package upstream

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
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
	f.head.fill(header, head, &f.x)
	for i := range f.head.fields {
		if s := &f.head.fields[i]; http1.EqualFold(head[s.Name:s.NameEnd], "upgrade") {
			header["Upgrade"] = []string{string(head[s.Value:s.ValueEnd])}
		}
	}
	header["Connection"] = []string{"Upgrade"}
	f.x.addResponse(header)
	f.from += f.head.size

	client, buffered, err := http.NewResponseController(f.w).Hijack()
	if err != nil {
		clear(header)
		return f.fail(StageClient, errNoHijack)
	}
	defer client.Close()
	f.committed = true
	f.res.Upgraded = true
	// A tunnel has no deadline and outlives that of the request: only its two ends, the
	// progress timeout, Sessions and Drain end it.
	f.p.detach(f.c, client)
	if err := f.c.SetDeadline(time.Time{}); err != nil {
		return f.fail(StageBody, err)
	}
	_ = client.SetDeadline(time.Time{})
	if err := switchClient(client, header, buffered.Writer, f.in[f.from:f.to]); err != nil {
		return f.fail(StageClient, err)
	}
	f.res.BytesOut = int64(f.to - f.from)
	var toClient *frames
	if strings.EqualFold(f.upgrade, "websocket") {
		toClient = newFrames(f.in[f.from:f.to])
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	if len(early) > 0 {
		if _, err := f.c.Write(early); err != nil {
			return f.fail(StageBody, err)
		}
	}
	in, out := f.tunnel(client, f.c.Conn, toClient)
	f.res.BytesIn, f.res.BytesOut = int64(len(early))+in, f.res.BytesOut+out
	f.res.Silent = f.p.silentOf(&f.progress)
	return nil
}

// switchClient tells the client that the tunnel is open, and sends the first bytes from the
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
func (p *Pool) detach(c *conn, client net.Conn) {
	p.mu.Lock()
	c.ctx = context.Background()
	c.progress.tunnel = client
	p.mu.Unlock()
}

// tunnel copies both ways until both have ended, and returns the number of bytes from the
// client and to the client. The end of one direction is passed on; an error ends both. toClient follows the
// frames to the client, so that the client gets a close frame when Sessions ends the
// tunnel.
func (f *flight) tunnel(client, endpoint net.Conn, toClient *frames) (in, out int64) {
	g := &f.progress
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		in, err = g.pass(endpoint, client, &g.sending, nil)
		endDirection(endpoint, client, err)
	}()
	out, err := g.pass(client, endpoint, &g.writing, toClient)
	if !f.p.stopped(g) || !toClient.sendClose(client) {
		endDirection(client, endpoint, err)
	}
	<-done
	return in, out
}

// pass copies one direction to its end. writing is set while dst accepts no more bytes.
// follow, if not nil, follows the frames.
func (g *progress) pass(dst, src net.Conn, writing *atomic.Bool, follow *frames) (passed int64, _ error) {
	bp := sendBuffers.Get().(*[]byte)
	defer sendBuffers.Put(bp)
	for {
		n, err := src.Read(*bp)
		if n > 0 {
			g.moved.Store(true)
			writing.Store(true)
			m, werr := dst.Write((*bp)[:n])
			writing.Store(false)
			g.moved.Store(true)
			passed += int64(m)
			if follow != nil {
				follow.pass((*bp)[:n])
			}
			if werr != nil {
				return passed, werr
			}
		}
		if err == io.EOF {
			return passed, nil
		}
		if err != nil {
			return passed, err
		}
	}
}

func endDirection(dst, src net.Conn, err error) {
	half, ok := dst.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return
	}
	_ = dst.Close()
	_ = src.Close()
}
