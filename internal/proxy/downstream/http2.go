package downstream

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/proxy/http2"
)

// selectsHTTP2 reports whether a client has selected HTTP/2 in the handshake.
func selectsHTTP2(state *tls.ConnectionState) bool {
	return state != nil && state.NegotiatedProtocol == "h2"
}

// serveHTTP2 serves a connection of HTTP/2 of which c.in[c.from:c.to] was read.
func (c *conn) serveHTTP2(from phase) {
	cfg := &c.server.cfg
	c.h2 = http2.NewServer(c.nc, http2.Config{
		MaxHead: cfg.MaxHead, MaxStreams: cfg.MaxStreams, Shared: cfg.Shared(c.nc), Serve: c.serveStream, Malformed: cfg.Malformed,
		Progress:    2 * cfg.SendTimeout, // the limit of the handler comes first, which counts the reason
		HeadTimeout: cfg.HeadTimeout,
	}, c.in[c.from:c.to])
	c.dropBuffer()
	if !c.enter(from, phaseHTTP2) {
		_ = c.h2.Close()
	}
	cfg.ConnState(c.nc, http.StateIdle)
	err := c.h2.Run()
	switch http2.WhyEnded(err) {
	case http2.WhyMalformed:
		cfg.Malformed()
	case http2.WhyAbusive:
		cfg.Abusive()
	case http2.WhyStuck:
		cfg.Incomplete()
	case http2.WhyStalled:
		cfg.Stalled()
	}
	if !errors.Is(err, http2.ErrClosed) && err != io.EOF {
		cfg.Logger.Debug("an HTTP/2 connection has ended", "client", c.remote, "err", err)
	}
}

// checkHTTP2 lets a connection of HTTP/2 notice that its client has stalled or is idle. The
// watch calls it.
func (c *conn) checkHTTP2(now int64) {
	const period = 10 * watchTick
	elapsed := time.Duration(now - c.seen)
	if elapsed < period {
		return
	}
	c.seen = now
	elapsed = min(elapsed, 2*period) // a process that was paused blames no client for it
	c.h2.Check(elapsed)
	if limit := c.server.cfg.IdleTimeout; limit > 0 && c.h2.Idle(elapsed) > limit || c.over(now) {
		c.h2.Shutdown()
	}
}

// streamed records that a request has begun or ended.
func (c *conn) streamed(change int) {
	c.streamsMu.Lock()
	defer c.streamsMu.Unlock()
	c.streams += change
	switch {
	case c.streams == 0:
		c.server.cfg.ConnState(c.nc, http.StateIdle)
	case c.streams == 1 && change > 0:
		c.server.cfg.ConnState(c.nc, http.StateActive)
	}
}

// serveStream answers one request over HTTP/2.
func (c *conn) serveStream(s *http2.Stream) {
	c.streamed(1)
	x := exchanges.Get().(*exchange)
	x.begin(c, s)
	if x.parse() {
		x.handle()
	}
	x.end()
	exchanges.Put(x)
	s.Linger(lingerTime)
	s.Close()
	c.streamed(-1)
}

// exchange is one request over HTTP/2 and the http.ResponseWriter of its answer, with Flush,
// Hijack for tunnels, and the deadlines of http.ResponseController. It is pooled. One
// goroutine writes at a time, and one may read the body meanwhile.
type exchange struct {
	requestState
	c    *conn
	s    *http2.Stream
	body streamBody

	// The names of fields that no side may index (RFC 7541 §7.1.3): those of the request and its
	// trailers that came so, and those of answer that are sent so.
	secret, answerSecret []string
	allSecret            bool // there are more than maxSecret

	cookies []string // the values of the request

	answer   http.Header
	passed   []http2.Field // those of PassField
	trailers []http2.Field // of the answer
	fields   []http2.Field // of the head of the answer, as they are sent
	status   int           // 0 before WriteHeader
	length   int64         // declared, -1 if not
	declared string        // length, if PassField has it
	dated    bool          // one of passed is the date
	written  int64         // of the body
	held     []byte        // of the body, not sent yet; nil if there is none
	heldPool *[]byte
	sent     bool    // the head was sent
	empty    bool    // the answer has no body
	brief    bool    // the body may be left out
	waits    bool    // counted among the brief answers that wait for a window
	tunnel   *tunnel // of an extended CONNECT
	gone     func()  // ends the context, bound once

	read, write http2.Deadline
}

var exchanges = sync.Pool{New: func() any {
	x := &exchange{answer: make(http.Header, fieldsOfMap)}
	x.init()
	x.body.x = x
	x.gone = func() { x.context.cancel() }
	x.read.Expire = func() { x.s.InterruptRead(os.ErrDeadlineExceeded) }
	x.read.Renew = func() { x.s.InterruptRead(nil) }
	x.write.Expire = func() { x.s.Reset(http2.InternalError) }
	return x
}}

func (x *exchange) begin(c *conn, s *http2.Stream) {
	x.c, x.s = c, s
	x.context.values = c.values
	x.length = -1
	x.body.closed, x.body.expected, x.body.ended = false, false, false
	s.OnEnd(x.gone)
}

// end forgets the request, so that the exchange can serve another one.
func (x *exchange) end() {
	x.read.Stop()
	x.write.Stop()
	if x.tunnel != nil {
		x.tunnel.End()
	}
	x.body.close()
	x.s.OnEnd(nil) // first: the context may serve for another request
	x.finished()
	clear(x.answer)
	for _, list := range []*[]http2.Field{&x.passed, &x.trailers, &x.fields} {
		clear(*list)
		*list = (*list)[:0]
	}
	x.secret, x.answerSecret, x.allSecret = x.secret[:0], x.answerSecret[:0], false
	clear(x.cookies)
	x.cookies = x.cookies[:0]
	x.dropHeld()
	if x.waits {
		x.c.briefs.Add(-1)
	}
	x.c, x.s, x.tunnel = nil, nil, nil
	x.status, x.written, x.sent, x.empty, x.brief, x.waits, x.declared, x.dated = 0, 0, false, false, false, false, "", false
}

// parse reads the head into x.req. It returns false if the request was refused.
func (x *exchange) parse() bool {
	head := x.s.Request()
	r := x.renew()
	if x.s.TooLarge {
		x.refuse(&fault{http.StatusRequestHeaderFieldsTooLarge, http1.ErrHeadTooLarge})
		return false
	}
	r.Proto, r.ProtoMajor = "HTTP/2.0", 2
	r.Method, r.Host, r.RequestURI = head.Method, head.Authority, head.Path
	r.RemoteAddr, r.TLS = x.c.remote, x.c.tls
	for i := range head.Fields {
		f := &head.Fields[i]
		name := http2.CanonicalName(f.Name)
		if f.Sensitive {
			x.keepSecret(name)
		}
		if name == "Cookie" {
			x.cookies = append(x.cookies, f.Value)
			continue
		}
		x.addField(name, f.Value)
	}
	if len(x.cookies) > 0 { // together, because a reference of a byte may stand for each
		x.addField("Cookie", strings.Join(x.cookies, "; ")) // RFC 9113 §8.2.3
	}
	delete(x.header, "Host") // equal to the authority
	r.Header = x.header
	if !http1.ValidHost(r.Host) {
		x.refuse(badRequest(errHost))
		return false
	}
	if f := x.target(head); f != nil {
		x.refuse(f)
		return false
	}
	if r.Method != http.MethodConnect {
		x.body.expected = http1.AnyHasToken(x.header["Expect"], "100-continue")
	}
	r.Body, r.ContentLength = http.NoBody, 0
	// After an extended CONNECT come the bytes of the tunnel, and no body.
	if n, end := x.s.Buffered(); head.Protocol == "" && (!end || n > 0 || len(x.s.Trailers()) > 0) {
		r.Body, r.ContentLength = &x.body, head.Length
	} else {
		delete(x.header, "Expect") // no 100 Continue to send
	}
	if f := x.announceTrailers(); f != nil {
		x.refuse(f)
		return false
	}
	return true
}

// target sets the URL of the request.
func (x *exchange) target(head *http2.Head) *fault {
	r := x.req
	switch {
	case head.Protocol != "":
		if !strings.EqualFold(head.Protocol, "websocket") {
			return &fault{http.StatusNotImplemented, errTunnel}
		}
		// The service gets the request as one of HTTP/1.1 (RFC 8441 §5).
		r.Method = http.MethodGet
		x.addField("Upgrade", "websocket")
		x.addField("Connection", "Upgrade")
		x.header["Sec-Websocket-Key"] = []string{webSocketKey()}
	case r.Method == http.MethodConnect:
		r.URL, r.RequestURI = &url.URL{Host: head.Authority}, head.Authority
		return nil
	}
	if x.plainTarget(head.Path) {
		return nil
	}
	var err error
	if r.URL, err = url.ParseRequestURI(head.Path); err != nil {
		return badRequest(errTarget)
	}
	return nil
}

// errTunnel is the fault of an extended CONNECT for another protocol than WebSocket.
const errTunnel = http1.Malformed("CONNECT for another protocol than websocket")

// refuse answers a request that does not reach the handler.
func (x *exchange) refuse(f *fault) {
	x.c.server.cfg.Malformed()
	x.c.server.cfg.Logger.Debug("malformed request", "client", x.c.remote, "err", f.err)
	x.answer["Content-Type"] = []string{"application/json"}
	x.WriteHeader(f.status)
	_, _ = x.Write(f.body())
	x.Brief()
	x.finish()
}

// handle calls the handler and ends its answer.
func (x *exchange) handle() {
	ok := false
	defer func() {
		if ok {
			return
		}
		x.s.Reset(http2.InternalError)
		x.c.logPanic(recover())
	}()
	x.c.server.cfg.Handler.ServeHTTP(x, x.req)
	ok = true
	if x.tunnel == nil {
		x.finish()
	}
}

// Cancel resets the stream with CANCEL, for a handler that passes on that an answer was
// cancelled. The handler must then panic with http.ErrAbortHandler.
func (x *exchange) Cancel() { x.s.Reset(http2.Cancel) }

// EnableFullDuplex is what HTTP/2 always is.
func (x *exchange) EnableFullDuplex() error { return nil }

// SetReadDeadline bounds reads of the request's body.
func (x *exchange) SetReadDeadline(t time.Time) error {
	x.read.Set(t)
	return nil
}

// SetWriteDeadline bounds writes of the answer. When it has passed, the stream is reset.
func (x *exchange) SetWriteDeadline(t time.Time) error {
	x.write.Set(t)
	return nil
}
