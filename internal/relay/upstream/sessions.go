package upstream

import (
	"errors"
	"net"
	"sync"
	"time"
)

// ErrStopped is the cause of the error of an exchange that Sessions has ended, because
// this process stops.
var ErrStopped = errors.New("this relay stops")

// closeGrace is how long a tunnel that is ended may take to end.
const closeGrace = time.Second

// Sessions are what outlives requests: tunnels, and answers that have begun. It knows
// those of all pools that it was given to, so that a process that stops can end them
// one after the other. Exchanges pay nothing for it: pools know them already. The zero
// value is ready. All methods may be called from any goroutine.
type Sessions struct {
	mu    sync.Mutex // never held while a pool's is taken
	pools map[*Pool]struct{}
}

func (s *Sessions) join(p *Pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pools == nil {
		s.pools = map[*Pool]struct{}{}
	}
	s.pools[p] = struct{}{}
}

func (s *Sessions) leave(p *Pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pools, p)
}

func (s *Sessions) all() []*Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Pool, 0, len(s.pools))
	for p := range s.pools {
		out = append(out, p)
	}
	return out
}

// Len counts the sessions, without those that were told to end.
func (s *Sessions) Len() (n int) {
	for _, p := range s.all() {
		p.mu.Lock()
		for _, g := range p.watched {
			if g.session() && !g.stopping {
				n++
			}
		}
		p.mu.Unlock()
	}
	return n
}

// End ends up to n sessions and returns how many. The client of a WebSocket gets a
// close frame with the status 1001, going away, unless the endpoint is in the middle of
// a frame; of others the connection is closed, or the stream reset.
func (s *Sessions) End(n int) (ended int) {
	for _, p := range s.all() {
		ended += p.stop(n-ended, (*progress).session)
	}
	return ended
}

// EndRequests ends the exchanges whose answer has not begun, with ErrStopped.
func (s *Sessions) EndRequests() {
	for _, p := range s.all() {
		p.stop(1<<30, func(g *progress) bool { return !g.session() })
	}
}

// session reports whether the exchange outlives a request. Pool.mu is held.
func (g *progress) session() bool { return g.tunnel != nil || g.answering.Load() }

// stop ends up to most of the exchanges that are meant.
func (p *Pool) stop(most int, meant func(*progress) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.watched {
		if n >= most {
			break
		}
		if g.stopping || !meant(g) {
			continue
		}
		g.stopping, g.endBy = true, time.Now().Add(closeGrace)
		g.look(0)
		n++
	}
	if n > 0 {
		p.arm()
	}
	return n
}

// stopped reports whether Sessions has ended the exchange.
func (p *Pool) stopped(g *progress) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return g.stopping
}

// endStopped is what the watch does, again and again, to an exchange that Sessions
// ends. Of a tunnel only reads from the endpoint end at once: what they have brought is
// written first, and a close frame behind it.
func (g *progress) endStopped() {
	if g.tunnel == nil {
		g.cut(ErrStopped)
		return
	}
	if g.c != nil {
		g.c.cancelled = true
		_ = g.c.SetWriteDeadline(g.endBy)
		_ = g.c.SetReadDeadline(past)
	}
	_ = g.tunnel.SetDeadline(g.endBy)
}

// goingAway is a close frame of a server with the status 1001 (RFC 6455 7.4.1).
var goingAway = []byte{0x88, 2, 0x03, 0xe9}

// bidFarewell ends the direction to the client of a tunnel that Sessions ends. It
// reports false where the client can only be cut off. One that got the close frame may
// answer it until the tunnel's time is over.
func (f *frames) bidFarewell(client net.Conn) bool {
	if f == nil || !f.between() {
		return false
	}
	if _, err := client.Write(goingAway); err != nil {
		return false
	}
	half, ok := client.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

// frames follows one direction of a WebSocket, to know where a frame ends (RFC 6455
// 5.2). It keeps nothing of what passes but the head of a frame.
type frames struct {
	head   [14]byte
	n      int    // how much of the head there is
	left   uint64 // how much of the payload there is to come
	closed bool   // a close frame has passed
}

// newFrames begins behind what was sent already.
func newFrames(sent []byte) *frames {
	f := &frames{}
	f.pass(sent)
	return f
}

// between reports whether another frame may follow.
func (f *frames) between() bool { return f.n == 0 && f.left == 0 && !f.closed }

// pass takes the next bytes.
func (f *frames) pass(b []byte) {
	for len(b) > 0 {
		if f.left > 0 {
			k := min(f.left, uint64(len(b)))
			f.left -= k
			b = b[k:]
			continue
		}
		f.head[f.n] = b[0]
		f.n++
		b = b[1:]
		if size, left := f.sizes(); f.n == size {
			f.n, f.left = 0, left
			f.closed = f.closed || f.head[0]&0x0f == 8
		}
	}
}

// sizes are those of the frame's head and payload; the latter counts once the head is
// whole.
func (f *frames) sizes() (head int, payload uint64) {
	if f.n < 2 {
		return 2, 0
	}
	head = 2
	lengthBytes := 0
	switch payload = uint64(f.head[1] & 0x7f); payload {
	case 126:
		lengthBytes = 2
	case 127:
		lengthBytes = 8
	}
	if lengthBytes > 0 {
		payload = 0
		for _, b := range f.head[2 : 2+lengthBytes] {
			payload = payload<<8 | uint64(b)
		}
	}
	head += lengthBytes
	if f.head[1]&0x80 != 0 { // masked, which a server must not do
		head += 4
	}
	return head, payload
}
