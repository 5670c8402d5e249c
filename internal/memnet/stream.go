package memnet

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes one direction of a stream buffers before Write blocks.
const window = 64 << 10

// conn is one end of a stream. Its writes go into the other end's in.
type conn struct {
	network       *Network
	local, remote netip.AddrPort
	in, out       *pipe
	once          sync.Once
}

func newConns(n *Network, dialler, acceptor netip.AddrPort) (ours, theirs *conn) {
	a := newPipe(n, dialler.Addr(), acceptor.Addr())
	b := newPipe(n, acceptor.Addr(), dialler.Addr())
	return &conn{network: n, local: dialler, remote: acceptor, in: b, out: a},
		&conn{network: n, local: acceptor, remote: dialler, in: a, out: b}
}

func (c *conn) fail(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.fail("read", err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	return n, c.fail("write", err)
}

// Close lets the other end read the remaining data, then an end.
func (c *conn) Close() error {
	err := c.fail("close", net.ErrClosed)
	c.once.Do(func() {
		err = nil
		c.in.closeReader()
		c.out.closeWriter()
		c.network.mu.Lock()
		defer c.network.mu.Unlock()
		delete(c.network.conns, c)
	})
	return err
}

func (c *conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.writer.setDeadline(t)
	return nil
}

// pipe is one direction of a stream: a bounded queue of pieces, each readable from its
// arrival on while the path is open.
//
// The reader waits on the embedded gate, the writer on a separate one that shares the
// mutex, because their deadlines differ.
type pipe struct {
	network  *Network
	from, to netip.Addr

	gate // the reader's; its mutex guards all of the pipe
	// writer wakes a writer that waits for room.
	writer writerGate

	pieces                     []piece
	size                       int // bytes in pieces
	arrives                    time.Time
	writerClosed, readerClosed bool
}

type piece struct {
	data []byte
	at   time.Time
}

// writerGate is the writer's deadline and condition on the pipe's mutex.
type writerGate struct {
	pipe     *pipe
	cond     sync.Cond
	deadline time.Time
	timer    *time.Timer
}

func (w *writerGate) setDeadline(t time.Time) {
	w.pipe.mu.Lock()
	defer w.pipe.mu.Unlock()
	w.stop()
	w.deadline = t
	if !t.IsZero() {
		if d := time.Until(t); d > 0 {
			w.timer = time.AfterFunc(d, func() {
				w.pipe.mu.Lock()
				defer w.pipe.mu.Unlock()
				w.cond.Broadcast()
			})
		}
	}
	w.cond.Broadcast()
}

func (w *writerGate) stop() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

func (w *writerGate) expired() bool { return !w.deadline.IsZero() && !time.Now().Before(w.deadline) }

func newPipe(n *Network, from, to netip.Addr) *pipe {
	p := &pipe{network: n, from: from, to: to}
	p.gate.init()
	p.writer.pipe, p.writer.cond.L = p, &p.mu
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.readerClosed:
			return 0, net.ErrClosed
		case p.expired():
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case !p.network.open(p.from, p.to):
			p.wait() // stalled; a change of the faults wakes it
		case len(p.pieces) > 0:
			head := &p.pieces[0]
			if time.Now().Before(head.at) {
				p.waitUntil(head.at)
				continue
			}
			n := copy(b, head.data)
			if head.data = head.data[n:]; len(head.data) == 0 {
				p.pieces = p.pieces[1:]
			}
			p.size -= n
			p.writer.cond.Broadcast()
			return n, nil
		case p.writerClosed:
			if time.Now().Before(p.arrives) {
				p.waitUntil(p.arrives)
				continue
			}
			return 0, io.EOF
		default:
			p.wait()
		}
	}
}

func (p *pipe) write(b []byte) (written int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.writerClosed:
			return written, net.ErrClosed
		case p.writer.expired():
			return written, os.ErrDeadlineExceeded
		case p.readerClosed && p.network.open(p.to, p.from):
			return written, os.NewSyscallError("write", syscall.EPIPE)
		case len(b) == 0:
			return written, nil
		}
		room := window - p.size
		if room <= 0 {
			p.writer.cond.Wait()
			continue
		}
		n := min(room, len(b))
		p.sent()
		p.pieces = append(p.pieces, piece{append([]byte(nil), b[:n]...), p.arrives})
		p.size += n
		p.network.counters.streamBytes.Add(uint64(n))
		p.cond.Broadcast()
		written, b = written+n, b[n:]
	}
}

// wake makes both ends check the state of the path again.
func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cond.Broadcast()
	p.writer.cond.Broadcast()
}

// sent computes when the next piece arrives: streams keep their order.
func (p *pipe) sent() {
	if at := time.Now().Add(p.network.travel()); at.After(p.arrives) {
		p.arrives = at
	}
}

func (p *pipe) closeWriter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent()
	p.writerClosed = true
	p.writer.stop()
	p.cond.Broadcast()
	p.writer.cond.Broadcast()
}

func (p *pipe) closeReader() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readerClosed, p.pieces, p.size = true, nil, 0
	p.stop()
	p.cond.Broadcast()
	p.writer.cond.Broadcast()
}

var _ net.Conn = (*conn)(nil)

// gate is a condition variable whose waits can end at a deadline. Waiting on it is durable
// in a synctest bubble. The caller holds mu in every method except wake.
type gate struct {
	mu       sync.Mutex
	cond     sync.Cond
	deadline time.Time
	timer    *time.Timer
}

func (g *gate) init() { g.cond.L = &g.mu }

// setDeadline changes when waits end; zero means never.
func (g *gate) setDeadline(t time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	g.deadline = t
	if !t.IsZero() {
		if d := time.Until(t); d > 0 {
			g.timer = time.AfterFunc(d, g.wake)
		}
	}
	g.cond.Broadcast()
}

func (g *gate) stop() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

func (g *gate) expired() bool { return !g.deadline.IsZero() && !time.Now().Before(g.deadline) }

// waitUntil waits for a wake or a time.
func (g *gate) waitUntil(t time.Time) {
	timer := time.AfterFunc(time.Until(t), g.wake)
	g.cond.Wait()
	timer.Stop()
}

func (g *gate) wait() { g.cond.Wait() }

func (g *gate) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cond.Broadcast()
}
