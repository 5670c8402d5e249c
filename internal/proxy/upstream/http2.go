package upstream

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/proxy/http2"
)

// h2Stream is one exchange over HTTP/2. It is pooled. Its fields belong to the goroutine that uses
// the exchange. sendBody reads some of them on its own goroutine, so they stay as they are until sent
// is closed. The watch uses only progress.
type h2Stream struct {
	c      *h2Conns
	w      http.ResponseWriter
	r      *http.Request
	x      *Options
	s      *http2.Stream
	fields []http2.Field // of the request
	small  []byte        // the body, if it is read before the head is sent
	one    [1]byte       // for the read that finds its end
	body   *clientBody   // nil if there is none, or it is sent immediately
	sent   chan struct{} // closed at the end of the goroutine that sends the body
	asked  chan struct{} // closed when the body is asked for; nil if it is sent unasked, and afterwards
	res    Result
	ended  bool   // Read has returned io.EOF
	fault  *Fault // that Read has returned

	progress progress

	key       string // of the WebSocket that the request opens; empty if it opens none
	opened    bool   // a byte of the request may have reached the endpoint
	consumed  bool   // a part of the client's body was read
	committed bool
}

var h2Streams = sync.Pool{New: func() any { return new(h2Stream) }}

func (s *h2Stream) free() {
	clear(s.fields)
	s.fields = s.fields[:0]
	if s.small = s.small[:0]; cap(s.small) > inlineBody { // of another client's request next
		s.small = nil
	}
	s.c, s.w, s.r, s.x, s.s, s.body, s.sent, s.fault = nil, nil, nil, nil, nil, nil, nil, nil
	s.progress.w, s.progress.onBody, s.progress.tunnel = nil, nil, nil
	s.key = ""
	s.opened, s.consumed, s.committed, s.ended = false, false, false, false
	h2Streams.Put(s)
}

// leave ends the use of the exchange.
func (s *h2Stream) leave() {
	if s.s != nil {
		s.c.p.detachStream(s)
	}
	s.c.p.leave(&s.progress)
	s.free()
}

// begin sends a request as one stream: it makes the header list, reserves a stream, sends, and
// waits for the answer. What is wrong with the request is found before a stream is reserved, so that
// such a request neither waits nor takes a stream from another.
func (c *h2Conns) begin(w http.ResponseWriter, r *http.Request, x *Options) (begun Answer, _ Result, _ *Fault) {
	s := h2Streams.Get().(*h2Stream)
	s.c, s.w, s.r, s.x, s.res = c, w, r, x, Result{Load: -1}
	s.progress.begin(w, x)
	if !c.p.enter(&s.progress) {
		s.free()
		return nil, Result{Load: -1}, &Fault{Stage: StageDial, Address: c.p.cfg.Address, Err: ErrClosed}
	}
	defer func() {
		if begun == nil {
			s.leave()
		}
	}()
	if RequiresUpgrade(r) {
		if err := s.takeKey(); err != nil {
			return nil, s.res, s.fail(StageClient, err)
		}
	}
	if err := s.head(); err != nil {
		return nil, s.res, s.fail(StageClient, err)
	}
	stream, reused, err := c.reserve(s)
	if err != nil {
		return nil, s.res, err
	}
	s.s, s.res.Reused = stream, reused
	c.p.attach(s)
	// The settings have arrived, because reserve waits for them. Without the permission in them no
	// extended CONNECT may be sent (RFC 8441 §3).
	if s.key != "" && !stream.TakesConnect() {
		return nil, s.res, s.fail(StageClient, ErrNoWebSockets)
	}
	answered, err := s.run()
	if answered {
		return s, s.res, nil
	}
	res, err := s.finish(err)
	return nil, res, err
}

// attach lets the watch end the exchange from now on. An exchange on a stream has no timer of its
// own: the watch finds the end of its context, or a late head, within watchPeriod and interrupts
// the stream.
func (p *Pool) attach(s *h2Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.res.Reused {
		p.reused++
	}
	g := &s.progress
	if hasBody(s.r) {
		g.watchBody()
	}
	g.stream, g.ctx = s.s, s.r.Context()
	p.arm()
}

// detachStream ends the stream. The watch does not use it any more. Streams are pooled: if the
// watch still knew this one, it could interrupt the exchange that gets it next.
func (p *Pool) detachStream(s *h2Stream) {
	p.mu.Lock()
	s.progress.stream, s.progress.ctx, s.progress.x = nil, nil, nil
	p.mu.Unlock()
	s.s.Close()
}

// streamAnswered ends the deadline of the head over HTTP/2.
func (p *Pool) streamAnswered(s *h2Stream) {
	s.progress.moved.Store(true) // the head is a sign of life, before its first flush
	p.mu.Lock()
	s.progress.x = nil
	p.mu.Unlock()
	s.s.Interrupt(nil) // the deadline may have passed meanwhile; the watch repeats what else it has ended
}

// run sends the request, reads heads until the final one, and passes that on. The body may
// still be sent afterwards: an endpoint may answer before it has read the whole request.
func (s *h2Stream) run() (begun bool, _ *Fault) {
	if err := s.send(); err != nil {
		s.closeUnread()
		return false, err
	}
	var head *http2.Head
	for head == nil || head.Status < 200 {
		var err error
		if head, err = s.s.Answer(); err != nil {
			e := s.fail(StageHead, err)
			s.closeUnread()
			return false, e
		}
		if head.Status < 200 {
			s.informational(head)
		}
	}
	s.c.p.streamAnswered(s)
	s.c.p.answers.Add(1)
	return s.respond(head)
}

// send sends the head, and a body that is small and there. A goroutine sends any other, and one that
// waits for the window of the endpoint. The head has END_STREAM only if nothing follows it: no body, no
// trailers, and no tunnel, which sends on the stream of an extended CONNECT.
func (s *h2Stream) send() *Fault {
	r := s.r
	length := int64(0)
	if hasBody(r) {
		if length = s.inline(); length < 0 {
			s.body = newClientBody(s.w, r, &s.progress)
			_, s.body.trails = r.Body.(buffering) // over HTTP/1.1 only a body without a length has trailers
		} else if err := s.readSmall(int(length)); err != nil {
			return s.fail(StageClient, err)
		}
	}
	trailers := hasBody(r) && len(r.Trailer) > 0 // without a body there is nothing that they could follow
	whole := s.body == nil && length == 0 && !trailers && s.key == ""
	err := s.s.Open(s.fields, whole, r.Method == http.MethodHead)
	switch {
	case errors.Is(err, http2.ErrHeadTooLarge):
		return s.fail(StageClient, err)
	case err != nil:
		return s.fail(StageSend, err)
	}
	s.opened = true
	switch {
	case whole, s.key != "":
	case s.body != nil:
		s.sent = make(chan struct{})
		if expectsContinue(r) {
			s.asked = make(chan struct{})
		}
		go s.sendBody(s.asked)
	case s.s.Window() < len(s.small): // the endpoint may answer before it takes the body
		s.body = new(clientBody)
		s.body.ended.Store(true)
		s.sent = make(chan struct{})
		go func() {
			defer close(s.sent)
			s.sendLast(s.small)
		}()
	default:
		// The endpoint may have answered before it has read everything: Answer knows more than
		// another error here.
		if err := s.sendEnd(s.small); errors.Is(err, http2.ErrHeadTooLarge) {
			return s.fail(StageClient, err)
		}
	}
	return nil
}

// inline returns the length of a body that is sent with the head, -1 if another goroutine
// must send it: the body is long, or has not arrived yet and the endpoint may answer first.
func (s *h2Stream) inline() int64 {
	if body, ok := s.r.Body.(buffering); ok {
		if n, end := body.Buffered(); end && n <= inlineBody {
			return int64(n)
		}
		return -1
	}
	// A body over HTTP/1.1 does not show how much of it has arrived, so a short one is awaited.
	if n := s.r.ContentLength; n > 0 && n <= inlineBody && !expectsContinue(s.r) {
		return n
	}
	return -1
}

// readSmall reads the body of n bytes to its end.
func (s *h2Stream) readSmall(n int) error {
	s.small = slices.Grow(s.small[:0], n)[:n]
	s.consumed = true
	if err := s.progress.readInline(s.r.Body, s.small, s.c.p); err != nil {
		return err
	}
	// A body over HTTP/2 may have trailers that were not announced. They are known when a read has
	// returned io.EOF.
	if _, there := s.r.Body.(buffering); there || len(s.r.Trailer) > 0 {
		if _, err := s.r.Body.Read(s.one[:]); err != io.EOF { // it brings the trailers
			return errTooLong
		}
	}
	return nil
}

// sendBody sends the client's body. It runs on its own goroutine. If asked is not nil, it first
// waits until the endpoint asks for the body, but not long: some endpoints do not ask.
func (s *h2Stream) sendBody(asked <-chan struct{}) {
	defer close(s.sent)
	if asked != nil {
		limit := time.NewTimer(s.c.p.cfg.ExpectContinueTimeout)
		select {
		case <-asked:
		case <-limit.C:
		}
		limit.Stop()
	}
	// Write waits while the window of the endpoint is closed, and meanwhile nothing is read from
	// the client: an endpoint that reads slowly slows the client down.
	in := lateBuffers.Get().(*lateBuffer)
	defer in.free()
	for {
		p, err := s.body.next(in)
		switch {
		case err == io.EOF:
			s.sendLast(p)
			return
		case len(p) > 0:
			if s.progress.send(func() error { _, werr := s.s.Write(p, false); return werr }) != nil {
				return
			}
		}
		in.drop()
		if err != nil {
			if s.body.failed.Load() {
				// The endpoint waits for the rest of the body, which never comes. Not Interrupt,
				// which streamAnswered takes back.
				s.s.Reset(http2.Cancel)
			}
			return
		}
	}
}

// sendLast sends the last part of the body on a goroutine of its own. Answer returns an error of the
// endpoint as well.
func (s *h2Stream) sendLast(p []byte) {
	if err := s.sendEnd(p); errors.Is(err, http2.ErrHeadTooLarge) {
		s.body.refuse(err)
		s.s.Reset(http2.Cancel) // the endpoint waits for the end of the body
	}
}

// sendEnd sends the last part of the body, and the trailers. END_STREAM is in the trailers, if
// there are any, and not in the last part of the body (RFC 9113 §8.1).
func (s *h2Stream) sendEnd(p []byte) error {
	var trailers []http2.Field
	for name, values := range s.r.Trailer {
		if !s.x.sendsTrailer(name) {
			continue
		}
		for _, v := range values {
			if http1.ValidValue(v) {
				trailers = append(trailers, http2.Field{Name: http2.LowerName(name), Value: v, Sensitive: s.neverIndexed(name, v)})
			}
		}
	}
	if len(trailers) == 0 {
		_, err := s.s.Write(p, true)
		return err
	}
	if len(p) > 0 {
		if _, err := s.s.Write(p, false); err != nil {
			return err
		}
	}
	return s.s.Send(trailers, true)
}

// endBody ends the goroutine that sends the body. Nothing may read the client's body
// afterwards.
func (s *h2Stream) endBody() {
	// The goroutine may wait for the window of the endpoint, for bytes of the client, or for a 100.
	// Each of the three calls ends one of these waits.
	s.s.Interrupt(errBodyStopped)
	s.body.stop()
	s.ask()
	<-s.sent
}

// ask lets the body be sent. It may be called several times, by the goroutine of the exchange.
func (s *h2Stream) ask() {
	if s.asked != nil {
		close(s.asked)
		s.asked = nil
	}
}

// fail builds the error of the exchange from err. An endpoint that refuses the stream (RFC 9113 §8.7),
// or leaves it out of its GOAWAY (RFC 9113 §6.8), has not acted on the request: nothing counts as
// sent, whatever the method is.
func (s *h2Stream) fail(stage Stage, err error) *Fault {
	e := &Fault{Stage: stage, Address: s.c.p.cfg.Address, committed: s.committed}
	unprocessed := errors.Is(err, http2.ErrUnprocessed)
	e.sent = s.opened && !unprocessed
	e.bodyConsumed = s.consumed || s.body != nil && s.body.consumed.Load()
	if s.c.p.explains(e, err, exchange{s.r.Context(), &s.progress, s.body, &s.res}) {
		return e
	}
	if e.Err == io.ErrUnexpectedEOF {
		e.Err = errEarlyEOF
	}
	code := http2.CodeOf(err)
	e.cancelled = code == http2.Cancel
	if unprocessed && !s.committed {
		e.unprocessed = true
		e.stale = code == http2.NoError
		e.shed = code == http2.RefusedStream || code == http2.EnhanceYourCalm
	}
	return e
}
