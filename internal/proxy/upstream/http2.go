package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/wire"
)

const (
	// pingAfter and pingTimeout detect a connection whose other side is gone without closing
	// it: a request on it fails over after at most 10 s. Shorter times would cut off a peer
	// that only lacks processor time.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
)

// h2Conns keeps the HTTP/2 connections to one endpoint and carries requests
// over their streams.
type h2Conns struct {
	p         *Pool
	transport *http.Transport // opens connections, does not pool them

	mu      sync.Mutex // taken before Pool.mu
	conns   []*http.ClientConn
	opening *h2Opening // nil if none is being opened
}

// h2Opening is a connection that is being opened for all waiting requests: a burst needs
// one connection and not a hundred, and a failed dial would fail in the same way for each
// request.
type h2Opening struct {
	done        chan struct{} // closed when cc or err is set
	cc          *http.ClientConn
	err         *Error
	limit       time.Time // of the dial
	cancel      context.CancelCauseFunc
	waiting     int  // guarded by h2Conns.mu
	errReturned bool // a request has received err; guarded by h2Conns.mu
}

func newH2Conns(p *Pool) *h2Conns {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &h2Conns{p: p, transport: &http.Transport{
		Protocols:              &protocols,
		DisableCompression:     true, // bodies pass as they are
		MaxResponseHeaderBytes: int64(p.cfg.MaxResponseHeaderBytes),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return p.dial(ctx)
		},
	}}
}

// reserve returns a connection. A stream is reserved on it unless all connections are
// full.
func (c *h2Conns) reserve(ctx context.Context, deadline time.Time) (_ *http.ClientConn, reused bool, _ error) {
	for {
		if cc := c.reserveOpen(); cc != nil {
			return cc, true, nil
		}
		cc, o, began := c.join(c.p.cfg.MaxConns)
		if cc != nil {
			return cc, true, nil // RoundTrip waits for a stream
		}
		if err := c.await(ctx, deadline, o); err != nil {
			return nil, false, err
		}
		if began {
			_ = o.cc.Reserve() // if the connection is already lost, RoundTrip returns the error
			return o.cc, false, nil
		}
	}
}

// join returns the connection with the fewest requests if enough are open. Otherwise it
// returns the opening to wait for, and begins one if there is none.
func (c *h2Conns) join(enough int) (_ *http.ClientConn, _ *h2Opening, began bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opening == nil {
		if cc := c.leastLoaded(enough); cc != nil {
			return cc, nil, false
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		c.opening = &h2Opening{done: make(chan struct{}), cancel: cancel}
		c.p.mu.Lock()
		c.p.dialling++
		c.p.mu.Unlock()
		began = true
		go c.open(ctx, c.opening)
	}
	c.opening.waiting++
	return nil, c.opening, began
}

// await returns when the connection is open, or with an *Error. The last waiter that gives
// up cancels the opening.
func (c *h2Conns) await(ctx context.Context, deadline time.Time, o *h2Opening) error {
	e := &Error{Stage: StageDial, Address: c.p.cfg.Address, late: hasPassed(deadline)}
	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-o.done:
		switch {
		case e.late: // whatever the result: the endpoint had no time
		case o.err == nil:
			return nil
		default:
			c.mu.Lock()
			first := !o.errReturned
			o.errReturned = true
			c.mu.Unlock()
			return o.err.ofWait(deadline, o.limit, first)
		}
	case <-ctx.Done():
	case <-late:
	}
	c.mu.Lock()
	if o.waiting--; o.waiting == 0 {
		o.cancel(ErrClosed)
		if c.opening == o {
			c.opening = nil
		}
	}
	c.mu.Unlock()
	var client bool
	if e.Err, client = cause(ctx, context.DeadlineExceeded); client {
		e.Stage = StageClient
	}
	return e
}

// reserveOpen reserves a stream on an open connection that has one free.
func (c *h2Conns) reserveOpen() *http.ClientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cc := range c.conns {
		if cc.Reserve() == nil {
			return cc
		}
	}
	return nil
}

// leastLoaded returns the connection with the fewest requests if enough are open, else nil.
// The lock is held.
func (c *h2Conns) leastLoaded(enough int) *http.ClientConn {
	c.forgetEnded()
	if len(c.conns) < enough {
		return nil
	}
	least := c.conns[0]
	for _, cc := range c.conns[1:] {
		if cc.InFlight() < least.InFlight() {
			least = cc
		}
	}
	return least
}

// forgetEnded removes the connections that accept no more requests. The lock is held.
func (c *h2Conns) forgetEnded() {
	c.conns = slices.DeleteFunc(c.conns, func(cc *http.ClientConn) bool { return cc.Err() != nil })
}

// open opens one connection for all waiting requests. Drain waits for its goroutine.
func (c *h2Conns) open(ctx context.Context, o *h2Opening) {
	o.limit = time.Now().Add(c.p.cfg.DialTimeout)
	cc, err := c.transport.NewClientConn(ctx, "http", c.p.cfg.Address)
	if err != nil && !errors.As(err, &o.err) { // an error of the transport; those of the dial are an *Error already
		o.err = &Error{Stage: StageDial, Address: c.p.cfg.Address, Err: err}
	}
	o.cc = cc
	if o.err != nil {
		c.p.mu.Lock()
		c.p.markRepeated(o.err, o.limit)
		c.p.mu.Unlock()
	}
	c.mu.Lock()
	if err == nil {
		c.conns = append(c.conns, cc)
	}
	if c.opening == o {
		c.opening = nil
	}
	c.mu.Unlock()
	o.cancel(nil)
	close(o.done)
	c.p.mu.Lock()
	c.p.dialling--
	last := c.p.isOver()
	c.p.mu.Unlock()
	if last {
		c.p.finish()
	}
}

func (c *h2Conns) warm(ctx context.Context) error {
	if !c.p.enter(nil) {
		return &Error{Stage: StageDial, Address: c.p.cfg.Address, Err: ErrClosed}
	}
	defer c.p.leave(nil)
	if open, _ := c.count(); open > 0 {
		return nil
	}
	cc, o, _ := c.join(1)
	if cc != nil { // it was opened meanwhile
		return nil
	}
	return c.await(ctx, time.Time{}, o)
}

// count removes the connections that have ended and counts the others.
func (c *h2Conns) count() (open, idle int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetEnded()
	for _, cc := range c.conns {
		if cc.InFlight() == 0 {
			idle++
		}
	}
	return len(c.conns), idle
}

// close closes every connection with the streams on it.
func (c *h2Conns) close() {
	c.mu.Lock()
	conns := c.conns
	c.conns = nil
	c.mu.Unlock()
	for _, cc := range conns {
		_ = cc.Close()
	}
}

func (c *h2Conns) carry(w http.ResponseWriter, r *http.Request, x Exchange) (Result, error) {
	s := h2Stream{c: c, w: w, r: r, x: x, res: Result{Load: -1}}
	s.progress.begin(w, x.Progress)
	if !c.p.enter(&s.progress) {
		return s.res, &Error{Stage: StageDial, Address: c.p.cfg.Address, Err: ErrClosed}
	}
	defer c.p.leave(&s.progress)
	upgrade := upgradeOf(r) != ""
	ctx := r.Context()
	if hasBody(r) && !upgrade {
		s.body = newClientBody(w, r, &s.progress)
		if r.ProtoMajor == 1 {
			apart, cancel := s.body.apart(ctx)
			defer cancel()
			ctx = apart
		}
	}
	if !x.Deadline.IsZero() {
		// Not context.WithDeadline: the deadline ends with the head, the context with the last
		// byte.
		limited, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer s.startDeadline(func() { cancel(context.DeadlineExceeded) })()
		ctx = limited
	}
	s.ctx = ctx
	if upgrade {
		return s.res, s.fail(StageClient, errUpgradeH2)
	}
	out, err := s.request()
	if err != nil {
		return s.res, s.fail(StageClient, err)
	}
	cc, reused, err := c.reserve(ctx, x.Deadline)
	if err != nil {
		s.closeUnread() // for the handler's own answer
		return s.res, err
	}
	s.res.Reused = reused
	if reused {
		c.p.mu.Lock()
		c.p.reused++
		c.p.mu.Unlock()
	}
	if err := s.run(cc, out); err != nil {
		return s.res, err
	}
	return s.res, nil
}

// h2Stream is one exchange over HTTP/2.
type h2Stream struct {
	c    *h2Conns
	ctx  context.Context
	w    http.ResponseWriter
	r    *http.Request
	x    Exchange
	body *clientBody
	res  Result

	progress progress

	wroteHead atomic.Bool
	waiting   sync.Mutex // makes informational and the deadline exclude the return of RoundTrip
	returned  bool
	informed  int // number of informational answers so far
	committed bool
}

func (s *h2Stream) run(cc *http.ClientConn, out *http.Request) *Error {
	// Nothing may read the client's body after run has returned.
	if s.body != nil {
		defer s.body.stop()
	}
	// In all cases ends the stream and its goroutines.
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	s.c.p.mu.Lock()
	s.progress.cancel = cancel
	s.c.p.mu.Unlock()
	trace := &httptrace.ClientTrace{Got1xxResponse: s.informational}
	// WroteHeaderField and not WroteHeaders: RoundTrip may return between the write and the
	// later callback, and a written request counts as sent.
	trace.WroteHeaderField = func(string, []string) {
		s.wroteHead.Store(true)
		trace.WroteHeaderField = nil // the first call is enough
	}
	resp, err := cc.RoundTrip(out.WithContext(httptrace.WithClientTrace(ctx, trace)))
	s.waiting.Lock()
	s.returned = true
	s.waiting.Unlock()
	if err == nil {
		defer resp.Body.Close()
		err = checkAnswer(resp)
	}
	if err != nil {
		stage := StageHead
		switch {
		case headTooLarge(err):
			stage = StageClient
		case !s.wroteHead.Load():
			stage = StageSend
		}
		e := s.fail(stage, err)
		// A request that was just cancelled may still be written.
		e.sent = e.sent || ctx.Err() != nil && !unprocessed(err)
		s.closeUnread()
		return e
	}
	s.c.p.answers.Add(1)
	return s.respond(resp)
}

// startDeadline calls expired unless the head arrives in time, and moves the deadline
// while the client's body moves. The returned function ends the deadline.
func (s *h2Stream) startDeadline(expired func()) (stop func()) {
	s.waiting.Lock()
	defer s.waiting.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(s.x.Deadline), func() {
		s.waiting.Lock()
		defer s.waiting.Unlock()
		if s.returned {
			return
		}
		if left := time.Until(s.x.afterBody(s.progress.bodyMoved())); left > 0 {
			timer.Reset(left)
			return
		}
		expired()
	})
	return func() {
		s.waiting.Lock()
		defer s.waiting.Unlock()
		s.returned = true
		timer.Stop()
	}
}

// checkAnswer refuses answers that net/http accepts over HTTP/2 but on which its server
// would panic, or which it would pass on as the framing of an HTTP/1.1 message.
func checkAnswer(resp *http.Response) error {
	if resp.StatusCode < 200 || resp.StatusCode > 999 {
		return errStatus
	}
	switch lengths := resp.Header["Content-Length"]; {
	case len(lengths) > 1:
		return http1.ErrLengths
	case len(lengths) == 1 && resp.ContentLength < 0:
		return http1.ErrLength
	}
	return nil
}

// request builds the upstream request. Its header is a copy: the transport may still read it
// when Carry has returned, and the client's connection uses its lists again.
func (s *h2Stream) request() (*http.Request, error) {
	r, x := s.r, &s.x
	if _, err := target(r); err != nil {
		return nil, err
	}
	u := *r.URL
	u.Scheme, u.Host = "http", s.c.p.cfg.Address
	if r.RequestURI == "*" {
		u = url.URL{Scheme: "http", Host: s.c.p.cfg.Address, Opaque: "*"}
	}
	out := &http.Request{
		Method: r.Method, URL: &u, Host: r.Host,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: make(http.Header, len(r.Header)+len(x.Header)+1),
	}
	connection := r.Header["Connection"]
	for name, values := range r.Header {
		if hopRequest(name) || x.dropped(name) || connection != nil && http1.AnyHasToken(connection, name) {
			continue
		}
		out.Header[name] = slices.Clone(values)
	}
	if http1.AnyHasToken(r.Header["Te"], "trailers") {
		out.Header["Te"] = []string{"trailers"}
	}
	if x.ForwardedFor != "" && !x.dropped("X-Forwarded-For") {
		list := append(append([]string(nil), out.Header["X-Forwarded-For"]...), x.ForwardedFor)
		out.Header["X-Forwarded-For"] = []string{strings.Join(list, ", ")}
	}
	for _, f := range x.Header {
		if !http1.ValidToken(f.Name) || !http1.ValidValue(f.Value) {
			return nil, errBadField
		}
		out.Header[f.Name] = []string{f.Value}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // otherwise the transport sets its own
	}
	if s.body != nil {
		s.body.announced(r.Trailer, x)
		out.Body, out.ContentLength, out.Trailer = s.body, r.ContentLength, s.body.trailer
	}
	return out, nil
}

func (s *h2Stream) keeps(name string, connection []string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Transfer-Encoding", "Upgrade":
		return false
	}
	return s.x.keepsResponse(name) && (connection == nil || !http1.AnyHasToken(connection, name))
}

// informational is called on the connection's goroutine while RoundTrip waits.
func (s *h2Stream) informational(code int, header textproto.MIMEHeader) error {
	s.waiting.Lock()
	defer s.waiting.Unlock()
	if code == http.StatusSwitchingProtocols {
		return errSwitchH2
	}
	if s.informed++; s.informed > max1xx {
		return errTooMany1xx
	}
	if s.returned || code == http.StatusContinue || !s.r.ProtoAtLeast(1, 1) {
		return nil
	}
	h := s.w.Header()
	var added []string
	for name, v := range header {
		if _, ok := h[name]; !ok && s.keeps(name, nil) && !framingField(name) {
			h[name] = v
			added = append(added, name)
		}
	}
	s.w.WriteHeader(code)
	for _, name := range added {
		delete(h, name)
	}
	return nil
}

func (s *h2Stream) respond(resp *http.Response) *Error {
	s.res.Status = resp.StatusCode
	if v := resp.Header[wire.LoadHeader]; len(v) == 1 {
		s.res.Load = parseLoad(v[0])
	}
	s.res.Shed = shed(s.res.Status, s.res.Load, len(resp.Header["Retry-After"]) > 0)
	if failed := resp.Header.Get(wire.FailedHeader); s.x.Sidecar && failed != "" {
		s.closeUnread()
		return s.fail(StageService, errBroken).fromSidecar(failed)
	}
	if s.x.OnHead != nil && !s.x.OnHead(s.res) {
		s.res.Dropped = true
		return nil
	}
	h := s.w.Header()
	connection := resp.Header["Connection"]
	for name, v := range resp.Header {
		if s.keeps(name, connection) {
			h[name] = append(h[name], v...)
		}
	}
	for name := range resp.Trailer {
		if !framingField(name) && s.keeps(name, nil) {
			h["Trailer"] = append(h["Trailer"], name)
		}
	}
	if s.res.Status == http.StatusNoContent {
		delete(h, "Content-Length") // RFC 9110 §8.6
	}
	s.x.addResponse(h)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil
	}
	s.closeUnread()
	s.committed = true
	s.progress.answering.Store(true)
	s.w.WriteHeader(s.res.Status)
	if err := s.copyBody(resp); err != nil {
		return err
	}
	for name, values := range resp.Trailer {
		if framingField(name) || !s.keeps(name, nil) {
			continue
		}
		for _, v := range values {
			h.Add(http.TrailerPrefix+name, v)
		}
	}
	return nil
}

// copyBody flushes the head and every piece that arrives, because the client may be
// waiting for it. Only a body of known length needs no flush at its end.
func (s *h2Stream) copyBody(resp *http.Response) *Error {
	if resp.Body == http.NoBody || bodyless(s.r.Method, resp.StatusCode) {
		return nil // the transport takes the Content-Length of a 304 for the length of a body
	}
	flush := http.NewResponseController(s.w)
	known := resp.ContentLength >= 0
	if !known {
		s.progress.writing.Store(true)
		_ = flush.Flush()
		s.progress.wrote()
	}
	bp := sendBuffers.Get().(*[]byte)
	defer sendBuffers.Put(bp)
	for {
		n, err := resp.Body.Read(*bp)
		if n > 0 {
			s.progress.moved.Store(true)
			s.progress.writing.Store(true)
			m, werr := s.w.Write((*bp)[:n])
			s.progress.wrote()
			s.res.BytesOut += int64(m)
			if werr != nil {
				return s.fail(StageClient, werr)
			}
			if !known || s.res.BytesOut < resp.ContentLength {
				s.progress.writing.Store(true)
				ferr := flush.Flush()
				s.progress.wrote()
				if ferr != nil && !errors.Is(ferr, http.ErrNotSupported) {
					return s.fail(StageClient, ferr)
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return s.fail(StageBody, err)
		}
	}
}

func (s *h2Stream) closeUnread() {
	if s.r.ProtoMajor == 1 && s.body != nil && !s.body.ended.Load() && !s.committed {
		s.w.Header()["Connection"] = []string{"close"}
	}
}

func (s *h2Stream) fail(stage Stage, err error) *Error {
	e := &Error{Stage: stage, Address: s.c.p.cfg.Address, committed: s.committed}
	e.sent = s.wroteHead.Load() && !unprocessed(err)
	if s.body != nil {
		e.bodyConsumed = s.body.consumed.Load()
	}
	if s.c.p.stopped(&s.progress) {
		e.Err = ErrStopped
		return e
	}
	if s.res.Silent = s.c.p.silentOf(&s.progress); s.res.Silent != SilentNone {
		e.Stage, e.Err = s.res.Silent.stage(), errSilent[s.res.Silent]
		return e
	}
	if s.body != nil {
		if cerr := s.body.failure(); cerr != nil {
			e.Stage, e.Err = StageClient, cerr
			return e
		}
	}
	var client bool
	if e.Err, client = cause(s.ctx, err); client {
		e.Stage = StageClient
		return e
	}
	if s.progress.abandoned.Load() && !s.committed {
		e.Err = ErrAbandoned
		return e
	}
	// The transport may have already interrupted the read of the body.
	if e.Timeout() && (s.progress.awaitsBody() || s.body != nil && s.progress.bodyNeeded.Load() && s.body.cut.Load()) {
		e.Stage, e.Err = StageClient, errBodyLate
		return e
	}
	if e.Err == io.EOF {
		e.Err = errEarlyEOF
	}
	e.stale = s.res.Reused && !s.committed && unprocessed(err)
	return e
}

// headTooLarge reports whether the request's head exceeds the limit that the endpoint
// announces over HTTP/2. The transport does not export the error.
func headTooLarge(err error) bool {
	return strings.Contains(err.Error(), "request header list larger than peer's advertised limit")
}

// unprocessed reports whether the endpoint has reported, or the transport knows, that the
// request was not acted on (RFC 9113 §8.7).
func unprocessed(err error) bool {
	var se http2.StreamError
	if errors.As(err, &se) {
		return se.Code == http2.ErrCodeRefusedStream
	}
	// The transport does not export these two errors.
	text := err.Error()
	return strings.Contains(text, "client conn not usable") ||
		strings.Contains(text, wire.GoAway)
}
