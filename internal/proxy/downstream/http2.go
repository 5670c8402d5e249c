package downstream

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/proxy/http2"
)

// heldAnswer is how much of an answer is held back until the handler flushes or returns, so
// that a short one gets a length, and its end needs no frame of its own.
const heldAnswer = 4 << 10

// heldBuffers are for what is held back. A request that waits for its answer has none.
var heldBuffers = sync.Pool{New: func() any { b := make([]byte, 0, heldAnswer); return &b }}

func (x *exchange) dropHeld() {
	if x.heldPool != nil {
		heldBuffers.Put(x.heldPool)
		x.held, x.heldPool = nil, nil
	}
}

// selectsHTTP2 reports whether a client has selected HTTP/2 in the handshake.
func selectsHTTP2(state *tls.ConnectionState) bool {
	return state != nil && state.NegotiatedProtocol == "h2"
}

// serveHTTP2 serves a connection of HTTP/2 of which c.in[c.from:c.to] was read.
func (c *conn) serveHTTP2(from phase) {
	cfg := &c.server.cfg
	c.h2 = http2.NewServer(c.nc, http2.Config{
		MaxHead: cfg.MaxHead, MaxStreams: cfg.MaxStreams, Serve: c.serveStream, Malformed: cfg.Malformed,
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
	if limit := c.server.cfg.IdleTimeout; limit > 0 && c.h2.Idle(elapsed) > limit {
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
	x.secret, x.answerSecret = x.secret[:0], x.answerSecret[:0]
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
			x.secret = append(x.secret, name)
		}
		if before, ok := x.header[name]; ok && name == "Cookie" { // RFC 9113 §8.2.3
			before[0] += "; " + f.Value
			continue
		}
		x.addField(name, f.Value)
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

func (x *exchange) Header() http.Header { return x.answer }

// NeverIndexed reports whether a field of the request, or of its trailers, must not be indexed
// where it is sent on.
func (x *exchange) NeverIndexed(name string) bool { return slices.Contains(x.secret, name) }

// NeverIndex makes a field of Header one that is not indexed, in the head or in the trailers.
func (x *exchange) NeverIndex(name string) { x.answerSecret = append(x.answerSecret, name) }

// PassField adds a field that package http2 has received to the head of the final answer, in
// front of those of Header. A handler that passes an answer on needs no map of its fields. If
// PassField returns false, the field must be added to Header: it has other values there, or is
// not one that is passed.
func (x *exchange) PassField(f http2.Field) bool {
	if x.status != 0 || f.Name == "trailer" {
		return false
	}
	if len(x.answer) > 0 {
		if _, set := x.answer[http2.CanonicalName(f.Name)]; set {
			return false
		}
	}
	switch f.Name {
	case "content-length":
		n, ok := http1.ParseLength(f.Value)
		if !ok || x.declared != "" {
			return false
		}
		x.length, x.declared = n, f.Value
		return true
	case "date":
		x.dated = true
	}
	x.passed = append(x.passed, f)
	return true
}

// AddTrailer adds a field that package http2 has received to the trailers of the answer.
func (x *exchange) AddTrailer(f http2.Field) { x.trailers = append(x.trailers, f) }

// WriteHeader begins the answer, or sends an informational one.
func (x *exchange) WriteHeader(status int) {
	if x.status != 0 {
		return
	}
	if status == http.StatusSwitchingProtocols || status < 100 || status > 999 {
		panic("downstream: an answer with status " + strconv.Itoa(status)) // HTTP/2 has no 101
	}
	if x.list(status); status < 200 {
		_ = x.s.Send(x.fields, false) // the next write returns this error
		return
	}
	x.status = status
	x.body.noContinue()
	x.empty = x.req.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
	if x.declared == "" {
		if x.length = contentLength(x.answer); x.length >= 0 {
			x.declared = x.answer["Content-Length"][0]
		}
	}
	if x.length >= 0 && status != http.StatusNoContent {
		x.fields = append(x.fields, http2.Field{Name: "content-length", Value: x.declared})
	}
	if _, ok := x.answer["Date"]; !ok && !x.dated {
		x.fields = append(x.fields, http2.Field{Name: "date", Value: date()})
	}
	if http1.AnyHasToken(x.answer["Connection"], "close") {
		x.c.h2.Shutdown()
	}
}

// list makes the fields of an answer from what was passed and its header.
func (x *exchange) list(status int) {
	x.fields = append(append(x.fields[:0], http2.Field{Name: ":status", Value: statusDigits(status)}), x.passed...)
	for name, values := range x.answer {
		switch name {
		case "Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Content-Length":
			continue
		}
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			x.fields = x.appendFields(x.fields, name, values)
		}
	}
}

// appendFields adds the fields with this name, without those that are not valid.
func (x *exchange) appendFields(fields []http2.Field, name string, values []string) []http2.Field {
	if !http1.ValidToken(name) {
		return fields
	}
	secret := slices.Contains(x.answerSecret, name)
	name = http2.LowerName(name)
	for _, v := range values {
		if http1.ValidValue(v) {
			fields = append(fields, http2.Field{Name: name, Value: v, Sensitive: secret})
		}
	}
	return fields
}

// digits has the digits of 100 to 999.
var digits = func() string {
	var b strings.Builder
	for status := 100; status <= 999; status++ {
		b.WriteString(strconv.Itoa(status))
	}
	return b.String()
}()

func statusDigits(status int) string { return digits[3*(status-100):][:3] }

// sendHead sends the head of the answer.
func (x *exchange) sendHead(end bool) error {
	x.sent = true
	return x.s.Send(x.fields, end)
}

// send sends what is held back, and then p.
func (x *exchange) send(p []byte, end bool) error {
	if !x.sent {
		if err := x.sendHead(false); err != nil {
			return err
		}
	}
	if len(x.held) > 0 {
		_, err := x.s.Write(x.held, end && len(p) == 0)
		x.dropHeld()
		if err != nil || len(p) == 0 {
			return err
		}
	}
	if len(p) == 0 && !end {
		return nil
	}
	_, err := x.s.Write(p, end)
	return err
}

// Write sends a piece of the body, at the latest with the next Flush.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case x.empty && x.req.Method == http.MethodHead:
		return len(p), nil
	case x.empty:
		return 0, http.ErrBodyNotAllowed
	case x.length >= 0 && x.written+int64(len(p)) > x.length:
		return 0, http.ErrContentLength
	}
	x.written += int64(len(p))
	if len(x.held)+len(p) <= heldAnswer {
		if x.heldPool == nil {
			x.heldPool = heldBuffers.Get().(*[]byte)
			x.held = *x.heldPool
		}
		x.held = append(x.held, p...)
		return len(p), nil
	}
	if err := x.send(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// FlushError sends what is held back.
func (x *exchange) FlushError() error {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.send(nil, false)
}

// Flush sends what is held back.
func (x *exchange) Flush() { _ = x.FlushError() }

// Brief allows to leave out the body of a short answer if the client has no window for it and
// several such answers wait already. A client that is refused could otherwise hold as many streams
// as it is refused.
func (x *exchange) Brief() { x.brief = true }

// maxBriefs is how many brief answers of a connection wait for a window.
const maxBriefs = 8

// shorten leaves out the body of a brief answer that must not wait for a window.
func (x *exchange) shorten() {
	if !x.brief || x.sent || len(x.held) == 0 || x.s.Window() >= len(x.held) {
		return
	}
	if x.waits = x.c.briefs.Add(1) <= maxBriefs; x.waits {
		return
	}
	x.c.briefs.Add(-1)
	x.dropHeld()
	x.written, x.length = 0, -1
	x.fields = slices.DeleteFunc(x.fields, func(f http2.Field) bool { return f.Name == "content-length" })
}

// finish ends the answer after the handler.
func (x *exchange) finish() {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	x.shorten()
	if x.length >= 0 && !x.empty && x.written != x.length {
		x.s.Reset(http2.InternalError) // the client must see that the answer is not whole
		return
	}
	for name, values := range x.answer {
		if trailer, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			x.trailers = x.appendFields(x.trailers, trailer, values)
		}
	}
	if !x.sent && len(x.trailers) == 0 && x.length < 0 && !x.empty {
		x.fields = append(x.fields, http2.Field{Name: "content-length", Value: strconv.FormatInt(x.written, 10)})
	}
	// An error of these means that the stream has ended, and the answer with it.
	switch {
	case len(x.trailers) > 0:
		_ = x.send(nil, false)
		_ = x.s.Send(x.trailers, true)
	case !x.sent && x.written == 0:
		_ = x.sendHead(true)
	default:
		_ = x.send(nil, true)
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

// streamBody is the body of a request over HTTP/2.
type streamBody struct {
	x *exchange

	mu       sync.Mutex // held while reading
	closed   bool       // the handler has returned
	ended    bool       // read to its end
	waiting  sync.Mutex // guards expected
	expected bool       // the client waits for 100 Continue
}

func (b *streamBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, errBodyClosed
	}
	b.sendContinue()
	n, err := b.x.s.Read(p)
	b.noteEnd(err)
	return n, err
}

// ReadLate is Read into the buffer that take returns when bytes are there.
func (b *streamBody) ReadLate(take func() []byte, _ func()) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errBodyClosed
	}
	b.sendContinue()
	p, err := b.x.s.ReadLate(take)
	b.noteEnd(err)
	return p, err
}

// noteEnd takes the trailers behind the last read.
func (b *streamBody) noteEnd(err error) {
	if err == io.EOF && !b.ended {
		b.ended = true
		b.trailers()
	}
}

// Buffered returns how many bytes Read returns without waiting, and whether the end of the
// body is behind them.
func (b *streamBody) Buffered() (n int, end bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, false
	}
	return b.x.s.Buffered()
}

// sendContinue sends 100 Continue if the client waits for it.
func (b *streamBody) sendContinue() {
	b.waiting.Lock()
	defer b.waiting.Unlock()
	if b.expected {
		b.expected = false
		_ = b.x.s.Send([]http2.Field{{Name: ":status", Value: "100"}}, false) // the next read returns this error
	}
}

// noContinue records that 100 Continue is not needed any more.
func (b *streamBody) noContinue() {
	b.waiting.Lock()
	defer b.waiting.Unlock()
	b.expected = false
}

// trailers gives the trailers to the request, as over HTTP/1.1. Unlike net/http it also gives
// those that were not announced: an announcement is optional (RFC 9110 §6.6.2).
func (b *streamBody) trailers() {
	r := b.x.req
	for _, f := range b.x.s.Trailers() {
		if r.Trailer == nil {
			r.Trailer = make(http.Header)
		}
		name := http2.CanonicalName(f.Name)
		r.Trailer[name] = append(r.Trailer[name], f.Value)
		if f.Sensitive {
			b.x.secret = append(b.x.secret, name)
		}
	}
}

// Close ends the reads.
func (b *streamBody) Close() error {
	b.x.s.InterruptRead(errBodyClosed)
	return nil
}

// close ends the reads when the handler has returned.
func (b *streamBody) close() {
	b.x.s.InterruptRead(errBodyClosed)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}
