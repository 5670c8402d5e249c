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
)

const (
	// pingAfter and pingTimeout find a connection whose other side is gone
	// without a word: a request on it fails over after ten seconds at the latest. Shorter
	// times would cut off a peer that is merely starved.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
)

// h2Conns keeps the HTTP/2 connections to one endpoint and carries requests
// over their streams.
type h2Conns struct {
	p         *Pool
	transport *http.Transport // opens connections; pools none
	dialling  sync.Mutex      // one dial at a time: a burst needs one connection, not a hundred

	mu    sync.Mutex
	conns []*http.ClientConn
}

// deadlineKey carries the request's deadline to the dial.
type deadlineKey struct{}

func newH2Conns(p *Pool) *h2Conns {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &h2Conns{p: p, transport: &http.Transport{
		Protocols:              &protocols,
		DisableCompression:     true, // bodies pass as they are
		MaxResponseHeaderBytes: int64(p.cfg.MaxResponseHeaderBytes),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			deadline, _ := ctx.Value(deadlineKey{}).(time.Time)
			return p.dial(ctx, deadline)
		},
	}}
}

// reserve returns a connection, with a stream reserved on it unless all are
// full.
func (c *h2Conns) reserve(ctx context.Context, deadline time.Time) (_ *http.ClientConn, reused bool, _ error) {
	if cc := c.reserveOpen(); cc != nil {
		return cc, true, nil
	}
	c.dialling.Lock()
	defer c.dialling.Unlock()
	if cc := c.reserveOpen(); cc != nil { // opened while we waited
		return cc, true, nil
	}
	if cc := c.leastLoaded(); cc != nil {
		return cc, true, nil // waits there for a stream
	}
	cc, err := c.open(ctx, deadline)
	if err != nil {
		return nil, false, err
	}
	_ = cc.Reserve() // when it is lost already, RoundTrip says so
	return cc, false, nil
}

// reserveOpen reserves a stream on an open connection, if one has room.
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

// leastLoaded returns the connection with the fewest requests when there are
// already as many connections as allowed, else nil.
func (c *h2Conns) leastLoaded() *http.ClientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetEnded()
	if len(c.conns) < c.p.cfg.MaxConns {
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

// forgetEnded drops the connections that take no more requests. The lock is
// held.
func (c *h2Conns) forgetEnded() {
	c.conns = slices.DeleteFunc(c.conns, func(cc *http.ClientConn) bool { return cc.Err() != nil })
}

func (c *h2Conns) open(ctx context.Context, deadline time.Time) (*http.ClientConn, error) {
	cc, err := c.transport.NewClientConn(context.WithValue(ctx, deadlineKey{}, deadline), "http", c.p.cfg.Address)
	if err != nil {
		var e *Error // the dial's
		if errors.As(err, &e) {
			return nil, e
		}
		return nil, &Error{Stage: StageDial, Address: c.p.cfg.Address, Err: err}
	}
	c.mu.Lock()
	c.conns = append(c.conns, cc)
	c.mu.Unlock()
	return cc, nil
}

func (c *h2Conns) warm(ctx context.Context) error {
	if !c.p.enter() {
		return &Error{Stage: StageDial, Address: c.p.cfg.Address, Err: ErrClosed}
	}
	defer c.p.leave()
	c.dialling.Lock()
	defer c.dialling.Unlock()
	if open, _ := c.count(); open > 0 {
		return nil
	}
	_, err := c.open(ctx, time.Time{})
	return err
}

// count drops the connections that have ended and counts the rest.
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
	if !c.p.enter() {
		return Result{Load: -1}, &Error{Stage: StageDial, Address: c.p.cfg.Address, Err: ErrClosed}
	}
	defer c.p.leave()
	s := h2Stream{c: c, w: w, r: r, x: x, res: Result{Load: -1}}
	upgrade := upgradeOf(r) != ""
	ctx := r.Context()
	if hasBody(r) && !upgrade {
		s.body = newClientBody(w, r)
		if r.ProtoMajor == 1 {
			apart, cancel := s.body.apart(ctx)
			defer cancel()
			ctx = apart
		}
	}
	if !x.Deadline.IsZero() {
		// Not context.WithDeadline: the deadline is over with the head, the
		// context with the last byte.
		limited, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		s.deadline = time.AfterFunc(time.Until(x.Deadline), func() { cancel(context.DeadlineExceeded) })
		defer s.deadline.Stop()
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
	// deadline cancels the stream unless its head arrives first; nil for none.
	deadline *time.Timer

	wroteHead atomic.Bool
	waiting   sync.Mutex // informational against RoundTrip's return
	returned  bool
	committed bool
}

func (s *h2Stream) run(cc *http.ClientConn, out *http.Request) *Error {
	// Nothing may read the client's body once we have returned.
	if s.body != nil {
		defer s.body.stop()
	}
	// Ends the stream, and with it its goroutines, whatever happens.
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders:   func() { s.wroteHead.Store(true) },
		Got1xxResponse: s.informational,
	})
	resp, err := cc.RoundTrip(out.WithContext(ctx))
	s.waiting.Lock()
	s.returned = true
	s.waiting.Unlock()
	if err != nil {
		stage := StageHead
		if !s.wroteHead.Load() {
			stage = StageSend
		}
		e := s.fail(stage, err)
		s.closeUnread()
		return e
	}
	defer resp.Body.Close()
	if s.deadline != nil {
		s.deadline.Stop()
	}
	return s.respond(resp)
}

// request makes the upstream request. The header map is a new one, its value
// lists are the client's.
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
		if hopRequest(name) || x.dropped(name) || connection != nil && anyHasToken(connection, name) {
			continue
		}
		out.Header[name] = values
	}
	if anyHasToken(r.Header["Te"], "trailers") {
		out.Header["Te"] = []string{"trailers"}
	}
	if x.ForwardedFor != "" && !x.dropped("X-Forwarded-For") {
		list := append(append([]string(nil), out.Header["X-Forwarded-For"]...), x.ForwardedFor)
		out.Header["X-Forwarded-For"] = []string{strings.Join(list, ", ")}
	}
	for _, f := range x.Header {
		if !validToken(f.Name) || !all(&isValue, f.Value) {
			return nil, errBadField
		}
		out.Header[f.Name] = []string{f.Value}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // or the transport names itself
	}
	if s.body != nil {
		out.Body, out.ContentLength, out.Trailer = s.body, r.ContentLength, r.Trailer
	}
	return out, nil
}

func (s *h2Stream) keeps(name string, connection []string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Transfer-Encoding", "Upgrade":
		return false
	}
	return s.x.keepsResponse(name) && (connection == nil || !anyHasToken(connection, name))
}

// informational is called on the connection's goroutine while RoundTrip waits.
func (s *h2Stream) informational(code int, header textproto.MIMEHeader) error {
	s.waiting.Lock()
	defer s.waiting.Unlock()
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
	if v := resp.Header[loadField]; len(v) == 1 {
		s.res.Load = parseLoad(v[0])
	}
	s.res.Shed = shed(s.res.Status, s.res.Load, len(resp.Header["Retry-After"]) > 0)
	if failed := resp.Header.Get(FailedHeader); s.x.Sidecar && failed != "" {
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
	s.x.addResponse(h)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil
	}
	s.closeUnread()
	s.committed = true
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

// copyBody flushes the head and whatever arrives, for the other side may be
// waiting for it; only a body of known length needs no flush at its end.
func (s *h2Stream) copyBody(resp *http.Response) *Error {
	if resp.Body == http.NoBody || s.r.Method == http.MethodHead {
		return nil
	}
	flush := http.NewResponseController(s.w)
	known := resp.ContentLength >= 0
	if !known {
		_ = flush.Flush()
	}
	bp := sendBuffers.Get().(*[]byte)
	defer sendBuffers.Put(bp)
	for {
		n, err := resp.Body.Read(*bp)
		if n > 0 {
			m, werr := s.w.Write((*bp)[:n])
			s.res.BytesOut += int64(m)
			if werr != nil {
				return s.fail(StageClient, werr)
			}
			if !known || s.res.BytesOut < resp.ContentLength {
				if ferr := flush.Flush(); ferr != nil && !errors.Is(ferr, http.ErrNotSupported) {
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
	if e.Err == io.EOF {
		e.Err = errEarlyEOF
	}
	e.stale = s.res.Reused && !s.committed && unprocessed(err)
	return e
}

// unprocessed reports whether the endpoint has said, or the transport knows,
// that the request was not acted on (RFC 9113 §8.7).
func unprocessed(err error) bool {
	var se http2.StreamError
	if errors.As(err, &se) {
		return se.Code == http2.ErrCodeRefusedStream
	}
	// The transport keeps these two to itself.
	text := err.Error()
	return strings.Contains(text, "client conn not usable") ||
		strings.Contains(text, "graceful shutdown GOAWAY")
}
