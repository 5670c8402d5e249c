package upstream

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"time"
)

// ErrStopped is the cause of the error of an exchange that Sessions has ended because this
// process stops.
var ErrStopped = errors.New("this member stops")

// closeGrace is the time for a tunnel to end after Sessions has ended it.
const closeGrace = time.Second

// Sessions lists what outlives requests: tunnels, and answers that have begun. It covers
// all pools that have it in their Config, so that a process that stops can end them one
// after the other. It adds no cost to an exchange, because pools list their exchanges
// anyway. The zero value is ready. All methods may be called from any goroutine.
type Sessions struct {
	mu    sync.Mutex // never held while a pool's lock is taken
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

// Len counts the sessions, without those that are already ending.
func (s *Sessions) Len() int {
	return s.count(func(g *progress) bool { return g.session() && !g.stopping })
}

func (s *Sessions) count(counts func(*progress) bool) (n int) {
	for _, p := range s.all() {
		p.mu.Lock()
		for _, g := range p.watched {
			if counts(g) {
				n++
			}
		}
		p.mu.Unlock()
	}
	return n
}

// End ends up to n sessions and returns how many. The client of a WebSocket gets a close
// frame with the status 1001, going away, after the frame that the endpoint is sending,
// unless the rest of it does not come within a second. For other sessions the connection is closed, or the stream reset.
func (s *Sessions) End(n int) (ended int) {
	for _, p := range s.all() {
		ended += p.stop(n-ended, (*progress).session)
	}
	return ended
}

// EndRequests ends the exchanges whose answer has not begun, with ErrStopped, and
// returns how many.
func (s *Sessions) EndRequests() (ended int) {
	for _, p := range s.all() {
		ended += p.stop(1<<30, func(g *progress) bool { return !g.session() })
	}
	return ended
}

// session reports whether the exchange outlives a request. Pool.mu is held.
func (g *progress) session() bool { return g.tunnel != nil || g.answering.Load() }

// stop ends up to most of the exchanges that meant selects.
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
		p.end(g)
		n++
	}
	return n
}

// end ends an exchange. The lock is held.
func (p *Pool) end(g *progress) {
	g.stopping, g.endBy = true, time.Now().Add(closeGrace)
	g.leaving.Store(true)
	g.check(0, false)
	p.arm()
}

// Session describes the session that an exchange may become, for those who count sessions.
type Session struct {
	// Service and Worker are what the session connects to. Connections to a sidecar carry
	// those of several services.
	Service, Worker string
	// Key means that the request had a key, Cookie that the client has a cookie that names
	// the worker.
	Key, Cookie bool
}

// Tunnel describes an open tunnel.
type Tunnel struct {
	Session
	Opened time.Time
	// WebSocket means that the client can be asked to go by a close frame.
	WebSocket bool
}

// Tunnels lists the open tunnels of a service by their workers, without those that are ending. A
// tunnel outlives the pool of its endpoint: those of closed pools are among them.
func (s *Sessions) Tunnels(service string) map[string][]Tunnel {
	out := map[string][]Tunnel{}
	for _, p := range s.all() {
		p.mu.Lock()
		for _, g := range p.watched {
			if g.tunnel != nil && !g.stopping && g.of.Service == service {
				out[g.of.Worker] = append(out[g.of.Worker], g.of)
			}
		}
		p.mu.Unlock()
	}
	return out
}

// EndTunnel ends a tunnel that Tunnels has listed, as End does. It returns false if the tunnel has
// ended or is ending.
func (s *Sessions) EndTunnel(t Tunnel) bool {
	return slices.ContainsFunc(s.all(), func(p *Pool) bool {
		return p.stop(1, func(g *progress) bool { return g.tunnel != nil && g.of == t }) > 0
	})
}

// stopped reports whether Sessions has ended the exchange.
func (p *Pool) stopped(g *progress) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return g.stopping
}

// awaitFrame lets a tunnel that is ending read the rest of a frame. It returns false if
// there is no time left, or the tunnel is not ending.
func (p *Pool) awaitFrame(g *progress) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return g.stopping && g.c != nil && !hasPassed(g.endBy) && g.c.SetReadDeadline(g.endBy) == nil
}

// endStopped ends an exchange for Sessions; the watch repeats it in every round. Of an answer
// that has begun, and of a tunnel, only the reads from the endpoint end at first, for a
// WebSocket after its current frame: the bytes that were read are written first, and then the
// end that the handler can give the answer, or a close frame. A client that does not read them
// in time is cut off.
func (g *progress) endStopped() {
	if g.tunnel == nil {
		if !g.answering.Load() || hasPassed(g.endBy) {
			g.cutClient()
		}
		g.cutEndpoint(ErrStopped)
		return
	}
	if g.c != nil {
		g.c.cancelled = true
		_ = g.c.SetWriteDeadline(g.endBy)
		read := expiredDeadline
		if g.inFrame.Load() {
			read = g.endBy
		}
		_ = g.c.SetReadDeadline(read)
	}
	_ = g.tunnel.SetDeadline(g.endBy)
}

// goingAway is a server's close frame with the status 1001 (RFC 6455 7.4.1).
var goingAway = []byte{0x88, 2, 0x03, 0xe9}

// sendClose ends the direction to the client of a tunnel that Sessions ends. It returns
// false if no close frame was possible, so that the connection must be closed. A client
// that got the close frame may answer it until the tunnel's time is over.
func (f *frames) sendClose(client net.Conn) bool {
	if f == nil || !f.between() {
		return false
	}
	if _, err := client.Write(goingAway); err != nil {
		return false
	}
	half, ok := client.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

// frames follows one direction of a WebSocket, to detect where a frame ends (RFC 6455
// 5.2). It keeps only the head of the current frame.
type frames struct {
	head   [14]byte
	n      int    // bytes of the head so far
	left   uint64 // bytes of the payload to come
	closed bool   // a close frame has passed
}

// newFrames starts after the bytes that were already sent.
func newFrames(sent []byte) *frames {
	f := &frames{}
	f.pass(sent)
	return f
}

// within reports whether a frame has begun and not ended.
func (f *frames) within() bool { return f != nil && (f.n > 0 || f.left > 0) }

// between reports whether another frame may follow.
func (f *frames) between() bool { return !f.within() && !f.closed }

// pass processes the next bytes.
func (f *frames) pass(b []byte) {
	for len(b) > 0 {
		b = b[f.part(b):]
	}
}

// whole processes the next bytes up to the last end of a frame, and returns how many these
// are: all, if the current frame does not end there. It works on a copy, at, and sets f at each end
// of a frame: the bytes behind the last end are not sent, so f must not count them.
func (f *frames) whole(b []byte) (n int) {
	at, ended := *f, false
	for i := 0; ; i += at.part(b[i:]) {
		if !at.within() {
			*f, n, ended = at, i, true
		}
		if i == len(b) {
			break
		}
	}
	if !ended {
		*f, n = at, len(b)
	}
	return n
}

// part processes a byte of a head, or what b has of a payload, and returns the number of
// bytes.
func (f *frames) part(b []byte) int {
	if f.left > 0 {
		k := min(f.left, uint64(len(b)))
		f.left -= k
		return int(k)
	}
	f.head[f.n] = b[0]
	f.n++
	if size, left := f.sizes(); f.n == size {
		f.n, f.left = 0, left
		f.closed = f.closed || f.head[0]&0x0f == 8
	}
	return 1
}

// sizes returns the sizes of the frame's head and payload. The payload is valid only when
// the head is complete.
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
	if f.head[1]&0x80 != 0 { // masked, which RFC 6455 forbids a server
		head += 4
	}
	return head, payload
}

const (
	// sessionTick is how often Drain ends the sessions that are due.
	sessionTick = 50 * time.Millisecond
	// sessionGrace is the time for the last sessions to end: WebSocket clients answer a
	// close frame.
	sessionGrace = 2 * time.Second
)

// Drain describes the stop of a process that carries requests. All fields are required.
type Drain struct {
	// Requests is the time for requests in flight, Sessions the time for tunnels and begun
	// answers, both from the beginning of the drain. If Sessions is below Requests, all end
	// with the requests.
	Requests, Sessions time.Duration
	// Shutdown closes the listeners and waits for the requests that the process's servers
	// know. It is called at the beginning, and again at the end for the last answers.
	Shutdown func(ctx context.Context) error
	// InFlight counts the requests and sessions in flight.
	InFlight func() int64
	// Ended gets the number of sessions that were just ended.
	Ended func(sessions int)
	// Logger reports what is left after Requests.
	Logger *slog.Logger
}

// Drain waits for what is in flight and ends what outlives its time. A request without an
// answer gets an error answer. Tunnels and streams end one after the other, spread evenly
// over the rest of Drain.Sessions: if all ended at the same moment, all their clients
// would reconnect elsewhere at the same moment. Drain returns how many requests and
// sessions are left, and the error of Shutdown unless Shutdown ran out of time. An end of
// ctx ends the wait, but no request or session.
func (s *Sessions) Drain(ctx context.Context, d Drain) (left int64, err error) {
	began := time.Now()
	d.Logger.Info("draining requests", "timeout", d.Requests)
	requests, cancel := context.WithTimeout(ctx, d.Requests)
	defer cancel()
	if err = d.Shutdown(requests); requests.Err() != nil {
		err = nil
	}
	if left = s.await(requests, d); left == 0 || ctx.Err() != nil {
		return left, err
	}
	if n := s.EndRequests(); n > 0 {
		d.Logger.Warn("requests had no answer at the end of the drain timeout: they are ended", "requests", n)
	}
	all, whole := s.Len(), d.Sessions-d.Requests
	if all > 0 {
		d.Logger.Info("draining sessions", "sessions", all, "timeout", max(whole, 0))
	}
	end := began.Add(d.Sessions)
	if all == 0 || whole <= 0 {
		end = time.Now()
	}
	tick := time.NewTicker(sessionTick)
	defer tick.Stop()
	for {
		rest := time.Until(end)
		if over := s.Len() - sessionsLeft(all, float64(rest)/float64(max(whole, 1))); over > 0 {
			d.Ended(s.End(over))
		}
		if left = s.left(d); left == 0 || rest < -sessionGrace {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return left, err
		}
	}
	if left == 0 { // the server may still be sending the last answers
		last, cancel := context.WithTimeout(ctx, sessionGrace)
		defer cancel()
		_ = d.Shutdown(last) // the process cuts off what is left
	}
	return left, err
}

// left is what is in flight, with what belongs to a service that is not known any more and is in no
// other count.
func (s *Sessions) left(d Drain) int64 {
	return max(d.InFlight(), int64(s.count(func(*progress) bool { return true })))
}

// await waits for upgraded connections, which Shutdown does not know. It returns how many
// are left when ctx ends.
func (s *Sessions) await(ctx context.Context, d Drain) (left int64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if left = s.left(d); left == 0 {
			return 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return left
		}
	}
}

// sessionsLeft returns how many of all may be open when this share of the time is left. It rounds
// up, so that the last session has its whole time.
func sessionsLeft(all int, share float64) int {
	if share <= 0 {
		return 0
	}
	return int(math.Ceil(float64(all) * min(share, 1)))
}
