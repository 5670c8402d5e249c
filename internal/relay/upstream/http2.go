package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

const (
	// pingAfter and pingTimeout find a connection whose other side is gone
	// without a word.
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
)

// h2Conns keeps the HTTP/2 connections to one endpoint and carries requests
// over their streams.
type h2Conns struct {
	p         *Pool
	transport *http2.Transport
	authority string
	dialling  sync.Mutex // one dial at a time: a burst needs one connection, not a hundred

	mu    sync.Mutex
	conns []*http2.ClientConn
}

func newH2Conns(p *Pool) *h2Conns {
	return &h2Conns{p: p, authority: p.cfg.Address, transport: &http2.Transport{
		AllowHTTP:          true,
		DisableCompression: true, // bodies pass as they are
		MaxHeaderListSize:  uint32(p.cfg.MaxResponseHeaderBytes),
		ReadIdleTimeout:    pingAfter,
		PingTimeout:        pingTimeout,
	}}
}

// reserve returns a connection with a stream reserved on it.
func (c *h2Conns) reserve(ctx context.Context, deadline time.Time) (_ *http2.ClientConn, reused bool, _ error) {
	if cc := c.reserveOpen(); cc != nil {
		return cc, true, nil
	}
	c.dialling.Lock()
	defer c.dialling.Unlock()
	if cc := c.reserveOpen(); cc != nil { // opened while we waited
		return cc, true, nil
	}
	c.mu.Lock()
	full := len(c.conns) >= c.p.cfg.MaxConns
	var least *http2.ClientConn
	if full {
		least = c.leastLoaded()
	}
	c.mu.Unlock()
	if full {
		return least, true, nil // waits there for a stream
	}
	cc, err := c.open(ctx, deadline)
	if err != nil {
		return nil, false, err
	}
	cc.ReserveNewRequest()
	return cc, false, nil
}

// reserveOpen reserves a stream on an open connection, and forgets the
// connections that have ended.
func (c *h2Conns) reserveOpen() *http2.ClientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.conns[:0]
	var found *http2.ClientConn
	for _, cc := range c.conns {
		if found == nil && cc.ReserveNewRequest() {
			found = cc
		} else if found == nil {
			if s := cc.State(); s.Closed || s.Closing {
				continue
			}
		}
		kept = append(kept, cc)
	}
	clear(c.conns[len(kept):])
	c.conns = kept
	return found
}

func (c *h2Conns) leastLoaded() *http2.ClientConn {
	var least *http2.ClientConn
	fewest := 0
	for _, cc := range c.conns {
		s := cc.State()
		if n := s.StreamsActive + s.StreamsReserved + s.StreamsPending; least == nil || n < fewest {
			least, fewest = cc, n
		}
	}
	return least
}

func (c *h2Conns) open(ctx context.Context, deadline time.Time) (*http2.ClientConn, error) {
	nc, err := c.p.dial(ctx, deadline)
	if err != nil {
		return nil, err
	}
	cc, err := c.transport.NewClientConn(nc)
	if err != nil {
		_ = nc.Close()
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
	kept := c.conns[:0]
	for _, cc := range c.conns {
		s := cc.State()
		if s.Closed || s.Closing {
			continue
		}
		kept = append(kept, cc)
		if s.StreamsActive+s.StreamsReserved+s.StreamsPending == 0 {
			idle++
		}
	}
	clear(c.conns[len(kept):])
	c.conns = kept
	return len(kept), idle
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
	ctx := r.Context()
	if d, ok := ctx.Deadline(); !x.Deadline.IsZero() && (!ok || x.Deadline.Before(d)) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, x.Deadline)
		defer cancel()
	}
	s.ctx = ctx
	cc, reused, err := c.reserve(ctx, x.Deadline)
	if err != nil {
		return s.res, err
	}
	s.res.Reused = reused
	if reused {
		c.p.mu.Lock()
		c.p.reused++
		c.p.mu.Unlock()
	}
	if err := s.run(cc); err != nil {
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

	wroteHead atomic.Bool
	waiting   sync.Mutex // informational against RoundTrip's return
	returned  bool
	committed bool
}

func (s *h2Stream) run(cc *http2.ClientConn) *Error {
	if upgradeOf(s.r) != "" {
		return s.fail(StageClient, errNoHijack)
	}
	out, err := s.request()
	if err != nil {
		return s.fail(StageClient, err)
	}
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
	u.Scheme, u.Host = "http", s.c.authority
	if r.RequestURI == "*" {
		u = url.URL{Scheme: "http", Host: s.c.authority, Opaque: "*"}
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
	if hasBody(r) {
		s.body = newClientBody(s.w, r)
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
