package http2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/internal/procs"
)

// peer is the other side of a connection, which a test speaks frame by frame. It runs in a
// bubble of synctest: settle waits until the connection has answered everything.
type peer struct {
	t       *testing.T
	nc      net.Conn
	c       *Conn
	block   bytes.Buffer
	encoder *hpack.Encoder
	gate    chan struct{} // each frame is read after a receive, if it is set
	release chan struct{} // for handlers that wait

	mu     sync.Mutex
	frames []answered
	ended  bool
	result error // of Run
}

// answered is one frame that the peer has received.
type answered struct {
	frame
	payload []byte
}

func (a answered) code() Code {
	switch {
	case a.kind == frameReset:
		return Code(binary.BigEndian.Uint32(a.payload))
	case a.kind == frameGoAway:
		return Code(binary.BigEndian.Uint32(a.payload[4:]))
	}
	return ^Code(0)
}

func (a answered) value() int { return int(binary.BigEndian.Uint32(a.payload)) }

var small = Config{MaxHead: 16 << 10, MaxStreams: 100}

// bubble runs a test with a peer of a connection that client or server returns.
func bubble(t *testing.T, open func(*peer, net.Conn) *Conn, reads bool, f func(*peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		p := &peer{t: t, nc: theirs, release: make(chan struct{})}
		p.c = open(p, ours)
		p.encoder = hpack.NewEncoder(&p.block)
		var running sync.WaitGroup
		running.Go(func() {
			err := p.c.Run()
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ended, p.result = true, err
		})
		if reads {
			running.Go(p.read)
		}
		if p.c.client {
			p.say(appendSettings(nil))
		} else {
			p.say(appendSettings([]byte(Preface)))
		}
		defer func() {
			_ = p.c.Close()
			_ = p.nc.Close()
			running.Wait()
		}()
		f(p)
	})
}

// handler is a Config.Serve that knows the peer.
type handler func(*peer, *Stream)

func (h handler) server(cfg Config) func(*peer, net.Conn) *Conn {
	return func(p *peer, nc net.Conn) *Conn {
		cfg.Serve = func(s *Stream) { defer s.Close(); h(p, s) }
		return NewServer(nc, cfg, nil)
	}
}

// withServer tests a server.
func withServer(t *testing.T, h handler, f func(*peer)) {
	t.Helper()
	bubble(t, h.server(small), true, f)
}

func clientOf(cfg Config) func(*peer, net.Conn) *Conn {
	return func(_ *peer, nc net.Conn) *Conn { return NewClient(nc, cfg) }
}

// withClient tests a client.
func withClient(t *testing.T, f func(*peer)) {
	t.Helper()
	bubble(t, clientOf(small), true, f)
}

func (p *peer) read() {
	if p.c.client {
		_, _ = io.ReadFull(p.nc, make([]byte, len(Preface)))
	}
	head := make([]byte, frameHead)
	for {
		if p.gate != nil {
			<-p.gate
		}
		if _, err := io.ReadFull(p.nc, head); err != nil {
			return
		}
		a := answered{frame: parseFrame(head)}
		a.payload = make([]byte, a.length)
		if _, err := io.ReadFull(p.nc, a.payload); err != nil {
			return
		}
		p.mu.Lock()
		p.frames = append(p.frames, a)
		p.mu.Unlock()
	}
}

// say sends bytes. What the connection does not read any more is lost.
func (p *peer) say(b []byte) { _, _ = p.nc.Write(b) }

// frame sends one frame.
func (p *peer) frame(kind frameType, flags uint8, stream uint32, payload []byte) {
	p.say(append(frame{len(payload), kind, flags, stream}.append(nil), payload...))
}

// headers sends a header list in one frame.
func (p *peer) headers(stream uint32, flags uint8, fields ...Field) {
	p.block.Reset()
	for _, f := range fields {
		_ = p.encoder.WriteField(f)
	}
	p.frame(frameHeaders, flags|flagEndHeaders, stream, p.block.Bytes())
}

// request opens a stream.
func (p *peer) request(stream uint32, flags uint8) { p.headers(stream, flags, get("/")...) }

// data sends n bytes of a body in frames that are as large as possible.
func (p *peer) data(stream uint32, n int) {
	for n > 0 {
		piece := min(n, maxFrame)
		p.frame(frameData, 0, stream, make([]byte, piece))
		n -= piece
	}
}

func (p *peer) grant(stream uint32, more int) { p.say(appendWindowUpdate(nil, stream, uint32(more))) }

// settle waits until nothing happens any more, and returns the frames since the last call.
func (p *peer) settle() []answered {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.frames
	p.frames = nil
	return got
}

// bytesOf returns how many bytes of bodies are among frames, for one stream or for all.
func bytesOf(frames []answered, stream uint32) (n int) {
	for _, a := range frames {
		if a.kind == frameData && (stream == 0 || a.stream == stream) {
			n += a.length
		}
	}
	return n
}

// granted returns by how much WINDOW_UPDATE among frames enlarges a window.
func granted(frames []answered, stream uint32) (n int) {
	for _, a := range frames {
		if a.kind == frameWindowUpdate && a.stream == stream {
			n += a.value()
		}
	}
	return n
}

// find returns the first frame of a kind.
func find(frames []answered, kind frameType) (answered, bool) {
	for _, a := range frames {
		if a.kind == kind {
			return a, true
		}
	}
	return answered{}, false
}

// resets expects that a stream was reset with the code and that the connection lives.
func (p *peer) resets(what string, stream uint32, want Code) {
	p.t.Helper()
	frames := p.settle()
	a, ok := find(frames, frameReset)
	if !ok || a.stream != stream || a.code() != want || p.over() {
		p.t.Errorf("%s: stream %d was not reset with %v: %v, the last of %d frames are %v", what, stream, want, p.why(), len(frames), frames[max(0, len(frames)-3):])
	}
}

// ends expects that the connection ends with the code.
func (p *peer) ends(what string, want Code) {
	p.t.Helper()
	frames := p.settle()
	a, ok := answered{}, false
	for _, f := range frames {
		if f.kind == frameGoAway {
			a, ok = f, true
		}
	}
	if !ok || a.code() != want || !p.over() {
		p.t.Errorf("%s: the connection has not ended with %v: %v, the last of %d frames are %v", what, want, p.why(), len(frames), frames[max(0, len(frames)-3):])
	}
}

// over reports whether Run has returned.
func (p *peer) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// why returns the result of Run.
func (p *peer) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result
}

// unread is a handler that waits and has not read the body.
func unread(p *peer, _ *Stream) { <-p.release }

// drains is a handler that reads the body and answers.
func drains(_ *peer, s *Stream) {
	buf := make([]byte, 32<<10)
	for {
		if _, err := s.Read(buf); err == io.EOF {
			break
		} else if err != nil {
			return
		}
	}
	_ = s.Send(ok200, true)
}

// quick is a handler that answers without reading.
func quick(_ *peer, s *Stream) { _ = s.Send(ok200, true) }

var ok200 = []Field{{Name: ":status", Value: "200"}}

func (a answered) String() string {
	return fmt.Sprintf("{type %d flags %x stream %d %d bytes %v}", a.kind, a.flags, a.stream, a.length, a.code())
}

// listening returns the client's end of a connection over TCP that serve answers. The
// server's goes to conns.
func listening(t *testing.T, cfg Config, conns chan<- *Conn, serve func(*Stream)) net.Conn {
	t.Helper()
	nc, in := procs.Connected(t)
	ran := make(chan struct{})
	cfg.Serve = serve
	c := NewServer(in, cfg, nil)
	if conns != nil {
		conns <- c
	}
	go func() {
		defer close(ran)
		_ = c.Run()
	}()
	t.Cleanup(func() {
		_ = nc.Close()
		<-ran
	})
	return nc
}
