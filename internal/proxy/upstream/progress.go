package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/proxy/http2"
)

// Silent is the side that moved no byte for Options.Progress.
type Silent uint8

// SilentNone is for an exchange that was not ended for silence. With SilentBoth each side
// may have waited for the other: an idle tunnel, or a stream in both directions.
const (
	SilentNone Silent = iota
	SilentClient
	SilentEndpoint
	SilentBoth
)

// Sides lists the names of the sides, for metrics.
func Sides() []string { return []string{"client", "endpoint", "both"} }

// String returns one of Sides, empty for SilentNone.
func (s Silent) String() string {
	switch {
	case s == SilentNone:
		return ""
	case int(s) <= len(Sides()):
		return Sides()[s-1]
	}
	return fmt.Sprintf("silent(%d)", s)
}

// BehindRelay returns the limit for the listeners that relays send to. It is longer than
// that of the relay that accepted the request, so that this first relay ends the request.
func BehindRelay(limit time.Duration) time.Duration { return limit + limit/4 }

var errSilent = [...]error{
	SilentClient:   errors.New("the client neither read nor sent anything for the progress timeout"),
	SilentEndpoint: errors.New("the endpoint began its answer and then sent nothing for the progress timeout"),
	SilentBoth:     errors.New("neither the client nor the endpoint sent anything for the progress timeout"),
}

// progress is the state of one exchange that the watch of a pool reads. The exchange only
// stores flags, which costs neither a clock read nor a timer. Nginx has the same semantics
// (send_timeout): a write makes progress when the kernel accepts more. For a slow reader
// that is when a part of the socket's buffer is free again.
type progress struct {
	limit time.Duration // 0 means no limit
	w     http.ResponseWriter

	onBody func(waits bool) // of Options

	moved      atomic.Bool // since the last check of the watch
	writing    atomic.Bool // to the client
	sending    atomic.Bool // to the endpoint, through a tunnel or of an open body
	reading    atomic.Bool // the client's body
	inline     atomic.Bool // the exchange itself reads the body
	bodyNeeded atomic.Bool // the endpoint needs that body to answer
	bodyOpen   atomic.Bool // the endpoint may answer before the end of that body, which has not come
	answering  atomic.Bool // the head has arrived
	abandoned  atomic.Bool // the endpoint is known to be dead
	leaving    atomic.Bool // the tunnel ends after the current frame of a WebSocket
	inFrame    atomic.Bool // the endpoint has sent a part of such a frame

	head atomic.Uint32 // of the answer over HTTP/1.1: headFree, headDue or headLate
	asks bool          // the exchange checks its connection itself; see flight.ask

	waited time.Duration // for a connection of HTTP/1.1

	began  time.Time    // bodyAt counts from here; zero if there is no body
	bodyAt atomic.Int64 // when the client's body last moved

	// Guarded by Pool.mu.
	slot    int
	quiet   time.Duration
	silent  Silent
	c       *conn                   // HTTP/1.1 to the endpoint
	stream  *http2.Stream           // HTTP/2 to the endpoint
	endWait context.CancelCauseFunc // of the wait for a stream
	ctx     context.Context         // of the request on stream
	x       *Options                // has the deadline of the head; nil over HTTP/2 when that has arrived
	tunnel  net.Conn                // to the client
	of      Tunnel                  // describes the tunnel
	// stopping means that Sessions or EndTunnel ends the exchange, a tunnel by endBy.
	stopping bool
	endBy    time.Time
}

// The states of a head over HTTP/1.1. Only the exchange begins and ends the wait, only the
// watch ends it late.
const (
	headFree = iota // no deadline holds
	headDue         // the deadline of the exchange holds
	headLate        // it has passed, and the watch has ended reads and writes
)

// begin resets the state of the previous exchange.
func (g *progress) begin(w http.ResponseWriter, x *Options) {
	g.w, g.limit, g.x, g.onBody = w, x.Progress, x, x.OnBody
	g.head.Store(headFree)
	for _, flag := range []*atomic.Bool{&g.writing, &g.sending, &g.reading, &g.inline, &g.bodyNeeded, &g.bodyOpen, &g.answering, &g.abandoned, &g.leaving, &g.inFrame} {
		flag.Store(false)
	}
	g.began, g.waited = time.Time{}, 0
	g.quiet, g.silent, g.c, g.tunnel = 0, SilentNone, nil, nil
	g.stopping = false
}

// watchBody starts to record when the client's body moves. The watch reads that, so Pool.mu
// is held.
func (g *progress) watchBody() {
	g.began = time.Now()
	g.bodyAt.Store(0)
}

// awaits records that the exchange begins or ends to wait for the client's body.
func (g *progress) awaits(body bool) {
	g.reading.Store(body)
	if g.onBody != nil {
		g.onBody(body)
	}
}

// read records that a part of the client's body has arrived.
func (g *progress) read() {
	g.moved.Store(true)
	g.bodyAt.Store(int64(time.Since(g.began)))
}

// bodyMoved returns when the client's body last moved, zero if there is none.
func (g *progress) bodyMoved() time.Time {
	if g.began.IsZero() {
		return time.Time{}
	}
	return g.began.Add(time.Duration(g.bodyAt.Load()))
}

// wrote records that a write to the client is complete.
func (g *progress) wrote() {
	g.writing.Store(false)
	g.moved.Store(true)
}

// waitsFor returns the side whose turn it is. SilentNone means that the endpoint has not begun to
// answer; the exchange's deadline bounds that. A write that waits comes first: its direction moves
// only when that side takes bytes. If the endpoint needs the whole body, only the client can go on.
// If a stream is open in both directions, either side may wait for the other by design.
func (g *progress) waitsFor() Silent {
	switch {
	case g.writing.Load():
		return SilentClient
	case g.sending.Load():
		return SilentEndpoint
	case g.tunnel != nil:
		return SilentBoth
	case g.awaitsBody():
		return SilentClient
	case g.reading.Load() && (g.answering.Load() || g.x != nil):
		return SilentBoth
	case g.answering.Load():
		return SilentEndpoint
	}
	return SilentNone
}

// send runs write, which sends a part of the client's body. While that waits, an endpoint that may answer
// before the end of the body is the side that has to move.
func (g *progress) send(write func() error) error {
	if g == nil || !g.bodyOpen.Load() {
		return write()
	}
	g.sending.Store(true)
	defer func() {
		g.sending.Store(false)
		g.moved.Store(true)
	}()
	return write()
}

// headIsLate reports whether the time for the head has passed. The exchange has a deadline, and
// its head has not arrived.
func (g *progress) headIsLate() bool {
	if g.bodyOpen.Load() && g.x.AfterBody > 0 {
		return hasPassed(g.x.Latest)
	}
	return hasPassed(g.x.afterBody(g.bodyMoved()))
}

// awaitsBody reports whether the exchange waits for a body from the client without which
// the endpoint cannot answer.
func (g *progress) awaitsBody() bool { return g.reading.Load() && g.bodyNeeded.Load() }

// check ends the exchange if nothing has moved for too long. It repeats this until the
// exchange has ended, because the exchange may just be setting its own deadlines. Pool.mu
// is held, so the exchange cannot return to its handler meanwhile. An exchange that is stopped or
// abandoned ends whatever has moved. Then come the end of the request and the deadline of the head,
// and last the silence, which is counted in rounds of the watch, so that the exchange reads no
// clock. The silence also counts for an exchange that is over and waits for its client: only the end of
// that wait lets it return. The side is recorded once: what this end causes on the other side must not
// change who is blamed. After a pause of this process no head is late.
func (g *progress) check(elapsed time.Duration, paused bool) {
	if g.stopping {
		g.endStopped()
		return
	}
	over := g.abandoned.Load() && !g.answering.Load() && g.tunnel == nil
	switch {
	case over:
		g.cutEndpoint(ErrAbandoned)
	case g.stream != nil:
		over = g.endStream(paused)
	case g.c != nil:
		over = g.endLate(paused)
	}
	if over && !g.inline.Load() && !g.writing.Load() {
		return
	}
	if g.limit <= 0 {
		return
	}
	if g.silent == SilentNone {
		side := g.waitsFor()
		if g.moved.Load() || side == SilentNone {
			g.moved.Store(false)
			g.quiet = 0
			return
		}
		if g.quiet += elapsed; g.quiet < g.limit {
			return
		}
		if g.tunnel == nil && !g.answering.Load() && side != SilentClient && g.x != nil {
			if !hasPassed(g.x.afterBody(g.bodyMoved())) {
				return // an open stream without an answer has at least the time of a request
			}
			if side == SilentEndpoint { // it reads nothing, and has not begun to answer
				g.endHead()
				return
			}
		}
		g.silent = side
	}
	g.cut(errSilent[g.silent])
}

// endLate ends an exchange over HTTP/1.1 whose head is late. A deadline on the socket would
// need a timer for each request.
func (g *progress) endLate(paused bool) bool {
	switch g.head.Load() { // once: the exchange may end the wait at any time
	case headFree:
		return false
	case headDue:
		if paused || !g.headIsLate() || !g.head.CompareAndSwap(headDue, headLate) {
			return false
		}
	}
	_ = g.c.SetDeadline(expiredDeadline)
	return true
}

// endHead ends the wait for a head as its deadline does.
func (g *progress) endHead() {
	switch {
	case g.stream != nil:
		g.stream.Interrupt(context.DeadlineExceeded)
	case g.c != nil && g.head.CompareAndSwap(headDue, headLate):
		_ = g.c.SetDeadline(expiredDeadline)
	}
}

// headArrived ends the deadline of the head over HTTP/1.1.
func (p *Pool) headArrived(g *progress) {
	if g.head.CompareAndSwap(headDue, headFree) || g.head.Load() == headFree {
		return
	}
	// The watch was faster, but the head is there.
	p.mu.Lock()
	defer p.mu.Unlock()
	g.head.Store(headFree)
	if !g.c.cancelled {
		_ = g.c.SetDeadline(time.Time{}) // a closed connection fails the next read
	}
}

// endStream ends an exchange over HTTP/2 whose request was cancelled, or whose head is late. While the
// exchange reads a small body, its head is not late: nothing was sent yet.
func (g *progress) endStream(paused bool) bool {
	cause := context.Cause(g.ctx)
	if cause == nil && g.x != nil && !paused && !g.inline.Load() && g.headIsLate() {
		cause = context.DeadlineExceeded
	}
	if cause == nil {
		return false
	}
	g.stream.Interrupt(cause)
	return true
}

// readInline reads a whole body into b, on the goroutine of the exchange, after watchBody. The flag
// inline shows the watch that the exchange itself waits for the client, so that it ends the read
// directly. A read by another goroutine is ended by clientBody.stop.
func (g *progress) readInline(body io.Reader, b []byte, p *Pool) error {
	g.bodyNeeded.Store(true)
	g.inline.Store(true)
	g.awaits(true)
	for n := 0; n < len(b); {
		m, err := body.Read(b[n:])
		if n += m; m > 0 {
			g.read()
		}
		if err != nil && n < len(b) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			if p.silentOf(g) != SilentNone { // as after clientBody.stop
				_ = http.NewResponseController(g.w).SetReadDeadline(time.Now().Add(lingerTime))
			}
			return err
		}
	}
	g.awaits(false)
	g.inline.Store(false)
	return nil
}

// cut ends the exchange immediately, whatever it waits for. Pool.mu is held.
func (g *progress) cut(because error) {
	if g.tunnel != nil {
		_ = g.tunnel.SetDeadline(expiredDeadline)
	} else {
		g.cutClient()
	}
	g.cutEndpoint(because)
}

// cutClient ends what an exchange without a tunnel waits for from its client. It sets a deadline
// only for a call that waits now, because the handler may still answer the client with an error.
func (g *progress) cutClient() {
	client := http.NewResponseController(g.w)
	if g.writing.Load() {
		_ = client.SetWriteDeadline(expiredDeadline) // over HTTP/2 this resets the stream
	}
	if g.inline.Load() {
		_ = client.SetReadDeadline(expiredDeadline)
	}
}

// cutEndpoint ends what an exchange waits for from its endpoint.
func (g *progress) cutEndpoint(because error) {
	if g.c != nil {
		g.c.cancelled = true
		_ = g.c.SetDeadline(expiredDeadline)
	}
	if g.stream != nil {
		g.stream.Interrupt(because)
	}
	if g.endWait != nil {
		g.endWait(because)
	}
}

// silentOf returns the side for whose silence the watch has ended the exchange.
func (p *Pool) silentOf(g *progress) Silent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return g.silent
}

// stage returns the stage of the error of an exchange that was ended for silence: only a
// silent endpoint is blamed.
func (s Silent) stage() Stage {
	if s == SilentEndpoint {
		return StageBody
	}
	return StageClient
}
