package downstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/proxy/http2"
	"github.com/ringway/ringway/internal/proxy/socket"
)

const (
	// readBuffer holds the head of most requests, and a small body.
	readBuffer = 4 << 10
	// keptBuffer is the largest buffer that is returned to the pool.
	keptBuffer = 64 << 10
	// maxEmptyLines bounds the empty lines in front of a request. Some clients send one behind
	// a body.
	maxEmptyLines = 4
	// lingerTime is how long a client may take to read the last answer of a connection from
	// which not everything was read. If the connection were closed immediately, the client would
	// get a reset.
	lingerTime = 500 * time.Millisecond
	// lingerBytes bounds what is read meanwhile.
	lingerBytes = 1 << 20
)

// preface is the head with which a client begins HTTP/2 in clear text (RFC 9113 §3.4).
var preface = []byte("PRI * HTTP/2.0\r\n\r\n")

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}

// conn is one connection of a client. Its goroutine owns all fields but the atomic ones.
type conn struct {
	server *Server
	nc     net.Conn
	below  net.Conn     // the same without TLS; closed by others, because it sends no alert, which a client could delay
	tcp    *net.TCPConn // nil with TLS
	tls    *tls.ConnectionState
	remote string
	socket socket.Socket
	values context.Context // of Config.ConnContext, nil without
	place  int             // in Server.conns; the lock of the server guards it
	until  atomic.Int64    // when it begins to end, after Server.epoch; 0: never. See Config.Until

	// For the watch.
	phase  atomic.Int32
	since  atomic.Int64 // when the phase began, after Server.epoch
	serial atomic.Int64 // of the request in flight
	seen   int64        // the serial at the last check; only the watch uses it
	whole  atomic.Bool  // the request in flight was read to its end

	// The bytes that were read and belong to no answered request: in[from:to]. An idle
	// connection over TCP holds no buffer.
	in       []byte
	pooled   *[]byte
	from, to int
	take     func() []byte // takeBuffer and dropBuffer, bound once
	drop     func()

	*roundTrip // nil while the connection waits for a request
	ahead      readAhead
	deadlined  atomic.Bool // the handler has set a deadline, perhaps by another goroutine
	hijacked   bool
	first      bool // no request was read yet
	resting    bool // waits for a request in a goroutine that has served none

	current   *requestContext // of the request in flight, for the watch; currentMu guards it
	currentMu sync.Mutex

	h2        *http2.Conn  // set before phaseHTTP2
	streamsMu sync.Mutex   // guards streams, and orders the calls of Config.ConnState
	streams   int          // requests in flight over HTTP/2
	briefs    atomic.Int32 // brief answers over HTTP/2 that wait for a window
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, nc: nc, first: true}
	c.below = socket.Below(nc)
	c.socket.Init(c.below)
	c.take, c.drop = func() []byte { c.takeBuffer(); return c.in }, c.dropBuffer
	c.setRemote()
	return c
}

func (c *conn) setRemote() {
	if addr := c.nc.RemoteAddr(); addr != nil {
		c.remote = addr.String()
	}
}

// roundTrip is one request over HTTP/1.1 and its answer. It is pooled, so that a connection
// that waits for a request holds none.
type roundTrip struct {
	requestState
	body requestBody
	res  response
}

var roundTrips = sync.Pool{New: func() any {
	t := new(roundTrip)
	t.init()
	t.res.header = make(http.Header, fieldsOfMap)
	t.body.framing.Trailer = t.body.trailerField
	t.body.takeBounded = func() []byte { return t.body.bounded(t.body.take()) }
	return t
}}

// begin prepares for a request of which the first bytes have arrived.
func (c *conn) begin() {
	c.roundTrip = roundTrips.Get().(*roundTrip)
	c.body.c, c.res.c = c, c
	c.context.values = c.values
	c.setCurrent(c.context)
}

// end returns what served a request, when nothing of it is used any more.
func (c *conn) end() {
	c.setCurrent(nil) // first: the context may serve for a request of another connection
	c.finished()
	c.res.reset()
	t := c.roundTrip
	c.roundTrip = nil
	t.body.c, t.res.c = nil, nil
	roundTrips.Put(t)
}

func (c *conn) setCurrent(ctx *requestContext) {
	c.currentMu.Lock()
	defer c.currentMu.Unlock()
	c.current = ctx
}

// cancelRequest ends the context of the request in flight.
func (c *conn) cancelRequest() {
	c.currentMu.Lock()
	defer c.currentMu.Unlock()
	if c.current != nil {
		c.current.cancel()
	}
}

func (c *conn) takeBuffer() {
	if c.in == nil {
		c.pooled = readBuffers.Get().(*[]byte)
		c.in = *c.pooled
	}
}

func (c *conn) dropBuffer() {
	if c.in == nil {
		return
	}
	if len(c.in) <= keptBuffer {
		*c.pooled = c.in
		readBuffers.Put(c.pooled)
	}
	c.in, c.pooled, c.from, c.to = nil, nil, 0, 0
}

// enter changes the phase. It returns false if the watch or Shutdown has ended the
// connection.
func (c *conn) enter(from, to phase) bool {
	c.since.Store(c.server.clock.Load())
	return c.phase.CompareAndSwap(from, to)
}

// serve answers requests until the connection ends, or until it has waited long for the next one.
func (c *conn) serve() {
	defer func() {
		if c.resting && c.phase.CompareAndSwap(phaseIdle, phaseResting) {
			go c.serve()
			return
		}
		c.ahead.stop(c)
		c.cancelRequest()
		c.dropBuffer()
		if c.roundTrip != nil {
			c.res.dropBuffers()
		}
		c.server.remove(c)
		if !c.hijacked {
			_ = c.nc.Close()
			c.server.cfg.ConnState(c.nc, http.StateClosed)
		}
	}()
	if !c.resting && !c.prepare() {
		return
	}
	if selectsHTTP2(c.tls) {
		c.serveHTTP2(phaseNew)
		return
	}
	for {
		n, wrong := c.readHead()
		if wrong == nil && n > 0 {
			wrong = c.parse(n)
		}
		if wrong != nil {
			c.refuse(wrong)
			return
		}
		if n == 0 || !c.answer() {
			return
		}
	}
}

// prepare runs the prologue and the TLS handshake. It returns false if one of them failed.
// The watch ends those that are late.
func (c *conn) prepare() bool {
	cfg := &c.server.cfg
	if cfg.Prologue != nil {
		nc, err := cfg.Prologue(c.nc)
		if err != nil {
			cfg.Logger.Debug("a connection ended before its first request", "client", c.remote, "err", err)
			lingerRefused(c.nc)
			return false
		}
		c.nc = nc
		c.setRemote()
	}
	secured, ok := c.nc.(*tls.Conn)
	if !ok {
		c.tcp, _ = c.below.(*net.TCPConn)
	} else {
		if err := secured.Handshake(); err != nil {
			cfg.Logger.Debug("no TLS handshake", "client", c.remote, "err", err)
			return false
		}
		state := secured.ConnectionState()
		if p := state.NegotiatedProtocol; p != "" && p != "h2" && p != "http/1.1" { // a listener may admit others for it than for requests
			cfg.Logger.Debug("a connection is for another protocol", "client", c.remote, "protocol", p)
			return false
		}
		c.tls = &state
	}
	if cfg.Until != nil {
		if at := cfg.Until(c.nc); !at.IsZero() {
			c.until.Store(max(1, int64(time.Since(c.server.epoch)+time.Until(at))))
		}
	}
	if cfg.ConnContext != nil {
		c.values = cfg.ConnContext(c.nc)
	}
	return true
}

// lingerRefused lets a client read why its connection ends, such as an alert of TLS. Closed
// with unread bytes, the connection would be reset.
func lingerRefused(nc net.Conn) {
	half, ok := nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, nc, readBuffer)
}

// readHead waits for the next request and returns the length of its head at c.in[c.from],
// 0 if the connection has ended.
func (c *conn) readHead() (int, *fault) {
	from := phaseIdle
	switch {
	case c.first:
		from = phaseNew
	case c.resting:
		from = phaseResting
	}
	empty := 0
	for { // a connection on which only empty lines arrive is idle
		if c.from == c.to && !c.await() {
			return 0, nil
		}
		if empty += c.skipEmptyLines(maxEmptyLines - empty); c.from < c.to {
			break
		}
	}
	// Bytes may have arrived when the watch has just ended the wait.
	if !c.enter(from, phaseHead) && (!c.waitEnded() || !c.enter(from, phaseHead)) {
		return 0, nil
	}
	c.resting = false
	c.server.cfg.ConnState(c.nc, http.StateActive)
	c.begin()
	for next := 0; ; {
		if n := c.skipEmptyLines(maxEmptyLines - empty); n > 0 { // its two bytes came one after the other
			empty, next = empty+n, 0
		}
		n, after, err := http1.HeadEnd(c.in[c.from:c.to], next)
		switch limit := c.server.cfg.MaxHead; {
		case c.first && empty == 0 && bytes.Equal(c.in[c.from:min(c.to, c.from+len(preface))], preface) && c.tls == nil:
			c.end()
			c.serveHTTP2(phaseHead)
			return 0, nil
		case c.first && empty == 0 && c.tls == nil && (n > 0 || err != nil) && damagedPreface(c.in[c.from:c.to]):
			return 0, &fault{err: errPreface}
		case err != nil:
			return 0, badRequest(err)
		case n > limit, n == 0 && c.to-c.from > limit:
			return 0, &fault{status: http.StatusRequestHeaderFieldsTooLarge, err: http1.ErrHeadTooLarge}
		case n > 0:
			c.first = false
			return n, nil
		}
		next = after
		if err := c.fill(); err != nil {
			c.server.cfg.Incomplete()
			return 0, nil
		}
	}
}

// damagedPreface reports whether a connection that begins with these bytes, and not with the
// preface, is more likely one of HTTP/2 than of HTTP/1: its method is PRI and
// its version not 1, or it has three words, no field, and no slash, which a version of HTTP and
// most targets contain.
func damagedPreface(in []byte) bool {
	if bytes.HasPrefix(in, preface[:len("PRI * ")]) {
		return !bytes.HasPrefix(in, []byte("PRI * HTTP/1."))
	}
	line, _, whole := bytes.Cut(in, []byte("\r\n\r\n"))
	return whole && bytes.Count(line, []byte(" ")) == 2 && !bytes.ContainsAny(line, "/:\r\n")
}

// skipEmptyLines skips at most limit empty lines and returns how many there were (RFC 9112 §2.2).
func (c *conn) skipEmptyLines(limit int) (n int) {
	for n < limit && c.to-c.from >= 2 && c.in[c.from] == '\r' && c.in[c.from+1] == '\n' {
		c.from += 2
		n++
	}
	return n
}

// await waits for bytes, and holds no buffer meanwhile if it can. It returns false if the
// connection ended.
func (c *conn) await() bool {
	c.from, c.to = 0, 0
	if c.tls == nil && c.socket.Usable() {
		c.dropBuffer()
		n, err := c.socket.Read(c.take, c.drop)
		c.to = n
		if err != nil && c.waitEnded() {
			c.resting = true
		}
		return err == nil
	}
	c.takeBuffer()
	for {
		n, err := c.nc.Read(c.in)
		if n > 0 || err != nil {
			c.to = n
			return n > 0
		}
	}
}

// fill reads more bytes after those that are there. If there are none, it holds no buffer while it
// waits, if it can.
func (c *conn) fill() error {
	if c.from == c.to {
		c.from, c.to = 0, 0
		if c.tls == nil && c.socket.Usable() {
			c.dropBuffer()
			n, err := c.socket.Read(c.take, c.drop)
			c.to = n
			return err
		}
	}
	c.takeBuffer()
	if c.to == len(c.in) {
		if c.from > 0 {
			c.to = copy(c.in, c.in[c.from:c.to])
			c.from = 0
		} else {
			c.in = append(c.in, make([]byte, len(c.in))...) // the limits of heads, chunk lines and trailers bound it
		}
	}
	n, err := c.nc.Read(c.in[c.to:])
	c.to += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// answer runs the handler for the parsed request. It reports whether the connection may
// carry another one.
func (c *conn) answer() (reusable bool) {
	c.serial.Add(1)
	c.whole.Store(c.body.done)
	if c.from == c.to {
		c.dropBuffer() // nothing is left in it, and the answer may take long
	}
	if c.tls != nil {
		c.ahead.allow()
	}
	if !c.enter(phaseHead, phaseServing) {
		return false
	}
	if !c.handle() || c.hijacked {
		return false
	}
	if c.tls != nil {
		c.ahead.stop(c)
	}
	if !c.enter(phaseServing, phaseSending) {
		return false
	}
	reusable = c.res.finish()
	if c.deadlined.Swap(false) {
		reusable = c.nc.SetDeadline(time.Time{}) == nil && reusable
	}
	if !reusable {
		c.linger()
		return false
	}
	c.end()
	if !c.enter(phaseSending, phaseIdle) {
		return false
	}
	c.server.cfg.ConnState(c.nc, http.StateIdle)
	return true
}

// handle calls the handler. It returns false if that panicked: the connection ends without
// the end of the answer.
func (c *conn) handle() (ok bool) {
	defer func() {
		if ok {
			return
		}
		c.cancelRequest()
		if c.res.framing == toClose {
			socket.Reset(c.below) // an orderly end would be the end of the answer
		}
		c.res.abandon()
		c.logPanic(recover())
	}()
	c.server.cfg.Handler.ServeHTTP(&c.res, c.req)
	return true
}

// logPanic reports what a handler panicked with, unless it meant to abort the answer.
func (c *conn) logPanic(p any) {
	if p == nil || p == http.ErrAbortHandler {
		return
	}
	stack := make([]byte, 16<<10)
	c.server.cfg.Logger.Error("the handler of a request panicked: its answer is cut off", "client", c.remote, "panic", p, "stack", string(stack[:runtime.Stack(stack, false)]))
}

// linger ends a connection so that the client can read its last answer although not
// everything that it sent was read.
func (c *conn) linger() {
	if c.body.done && c.from == c.to && c.res.err == nil && c.socket.Look() != socket.Arrived {
		return
	}
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	c.takeBuffer()
	for read := 0; read < lingerBytes; {
		n, err := c.nc.Read(c.in)
		if err != nil {
			return
		}
		read += n
	}
}

// checkClient ends the context of a request whose client has gone away. The watch calls it.
func (c *conn) checkClient() {
	switch c.socket.Look() {
	case socket.Gone:
		c.cancelRequest()
	case socket.Arrived:
		if _, secured := c.nc.(*tls.Conn); secured {
			c.ahead.start(c)
		}
	}
}
