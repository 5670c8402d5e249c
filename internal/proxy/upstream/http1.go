package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/proxy/socket"
	"github.com/ringway/ringway/internal/wire"
)

const (
	// readBuffer holds a head and a body of 16 KiB, so that one read is enough.
	readBuffer = 32 << 10
	// inlineBody is the largest request body that is read before the head is written and
	// then sent with it in one write, without a goroutine.
	inlineBody = 16 << 10
	// keptBuffer is the largest write buffer that is returned to the pool. A buffer grows with the
	// head and the small body that are written from it, and a few large ones must not stay in
	// memory.
	keptBuffer = 64 << 10
	// maxInformation bounds the bytes of all informational answers to one request, so that an
	// endpoint cannot keep this process busy until the deadline. It is enough for one every ten
	// seconds for a day.
	maxInformation = 256 << 10
	// sendGrace is the time for the last write of the sender after the response has ended. The
	// sender has read the whole body by then, so a write that ends in this time saves the
	// connection for the next request.
	sendGrace = 100 * time.Millisecond
)

// flight is the state of one HTTP/1.1 exchange. It is pooled, so idle connections hold none. An
// exchange that waits for its answer has returned the buffers. Except progress, which the watch of
// the pool reads, the fields belong to the goroutine that uses the exchange. A sender has its own
// goroutine and uses none of them.
type flight struct {
	p  *Pool
	w  http.ResponseWriter
	r  *http.Request
	x  *Options
	c  *conn
	in []byte // in[from:to] is unread; nil while the exchange waits for bytes, except for those of a body over TLS

	pooled   *[]byte
	take     func() []byte // takeBuffer and dropBuffer, bound once
	drop     func()
	from, to int
	out      []byte // the request until it was sent
	outPool  *[]byte
	head     responseHead
	body     http1.Body
	rest     []byte // of in: what Next of the body has given and Read has not; see Answer
	ended    bool   // Read has returned io.EOF
	fault    *Fault // that Read has returned
	trailers []wire.Field
	upgrade  string
	sender   *sender
	res      Result
	progress progress

	// A Fault reports these three: a byte of the request was written to the endpoint, the head of
	// the answer was passed to the client, a byte of the body was read from the client.
	sent, committed, consumed bool
	heard                     bool // at least one byte came back
	informed                  int  // bytes of informational answers
	framed                    bool // one of these declared a body, which none can have
	// unsolicited sends the body if the endpoint answered without asking for it.
	unsolicited *sender
}

var flights = sync.Pool{New: func() any {
	f := new(flight)
	f.take, f.drop = func() []byte { f.takeBuffer(); return f.in }, func() { f.dropBuffer(); f.dropOut() }
	f.body.Trailer = f.trailerField // bound once, to avoid an allocation per request
	return f
}}

func (f *flight) free() {
	f.p, f.w, f.r, f.x, f.c, f.sender, f.unsolicited, f.rest, f.fault = nil, nil, nil, nil, nil, nil, nil, nil, nil
	f.progress.w, f.progress.x, f.progress.onBody, f.progress.tunnel = nil, nil, nil, nil
	f.upgrade = ""
	clear(f.trailers)
	f.trailers = f.trailers[:0]
	f.dropBuffer()
	f.dropOut()
	flights.Put(f)
}

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func (f *flight) takeOut() {
	if f.outPool == nil {
		f.outPool = writeBuffers.Get().(*[]byte)
	}
	f.out = (*f.outPool)[:0]
}

func (f *flight) dropOut() {
	if f.outPool != nil && cap(f.out) <= keptBuffer {
		*f.outPool = f.out[:0]
		writeBuffers.Put(f.outPool)
	}
	f.out, f.outPool = nil, nil
}

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}

func (f *flight) takeBuffer() {
	if f.in == nil {
		f.pooled = readBuffers.Get().(*[]byte)
		f.in = *f.pooled
	}
}

func (f *flight) dropBuffer() {
	if f.in == nil {
		return
	}
	if len(f.in) == readBuffer {
		*f.pooled = f.in
		readBuffers.Put(f.pooled)
	}
	f.in, f.pooled = nil, nil
}

// newFlight returns a flight that counts among the requests of the pool until leave, or nil if the
// pool is closed.
func (p *Pool) newFlight(w http.ResponseWriter, r *http.Request, x *Options) *flight {
	f := flights.Get().(*flight)
	f.p, f.w, f.r, f.x = p, w, r, x
	f.progress.begin(w, x)
	f.progress.asks = !hasBody(r)
	if !p.enter(&f.progress) {
		f.free()
		return nil
	}
	f.reset()
	return f
}

// leave ends the use of the exchange.
func (f *flight) leave() {
	f.p.leave(&f.progress)
	f.free()
}

// beginHTTP1 takes a connection, runs one attempt on it, and takes another connection if the
// endpoint had closed the kept one, which it may do at any time (RFC 9112 §9.5). If that was found
// before anything was sent, every request goes on. If the request was sent and no byte came back,
// the endpoint may have acted on it: only a repeatable request is sent again, and only once, over a
// new connection.
func (p *Pool) beginHTTP1(w http.ResponseWriter, r *http.Request, x *Options) (begun Answer, _ Result, _ *Fault) {
	f := p.newFlight(w, r, x)
	if f == nil {
		return nil, Result{Load: -1}, &Fault{Stage: StageDial, Address: p.cfg.Address, Err: ErrClosed}
	}
	defer func() {
		if begun == nil {
			f.leave()
		}
	}()
	f.upgrade = upgradeOf(r)
	// Nothing of a TCP session is read from its client before the 101, so it can be repeated.
	again := wire.Idempotent(r.Method) && !hasBody(r) && (f.upgrade == "" || f.upgrade == wire.UpgradeTCP) && !x.Once
	ctx := r.Context()

	for fresh := false; ; f.reset() {
		c, reused, err := p.connect(ctx, &f.progress, x.Deadline, fresh)
		f.res.Waited = f.progress.waited
		if err != nil {
			return nil, f.res, err
		}
		f.c, f.res.Reused = c, reused
		switch answered, err := f.attempt(); {
		case answered:
			return f, f.res, nil
		case err == nil: // it was refused
			return nil, f.res, nil
		case err == errGone: // each time there is one idle connection less
		case err.stale && again:
			// The other idle connections are likely closed as well, so open a new one.
			again, fresh = false, true
		default:
			return nil, f.res, err
		}
	}
}

func (f *flight) reset() {
	f.from, f.to = 0, 0
	f.sender = nil
	f.trailers = f.trailers[:0]
	f.res = Result{Load: -1}
	f.unsolicited = nil
	f.progress.head.Store(headFree)
	f.sent, f.committed, f.consumed, f.heard = false, false, false, false
	f.informed, f.framed, f.ended = 0, false, false
}

// attempt sends the request on f.c, and reports whether an answer has begun. Otherwise the
// connection was released.
func (f *flight) attempt() (begun bool, _ *Fault) {
	reusable, err := false, f.send()
	if err == errGone {
		f.p.stale(f.c) // because of bytes, perhaps
		f.p.forget(f.c)
		return false, err
	}
	if err == nil {
		err = f.finalHead()
	}
	if err == nil {
		// The deadline is for the head only. Without this the watch would end a stream of events in the
		// middle.
		f.p.headArrived(&f.progress)
		f.p.answers.Add(1)
		if begun, reusable, err = f.respond(); begun {
			return true, nil
		}
	}
	f.release(reusable, err)
	return false, err
}

// release ends the use of the connection. The sender ends before, because nothing may read the
// client's body after the exchange.
func (f *flight) release(reusable bool, err *Fault) {
	if f.c.long && err == nil { // nothing came while it rested
		f.p.care.clean.Add(1)
	}
	if err != nil && !f.committed {
		f.closeUnread() // for the handler's own answer
	}
	if f.sender != nil {
		reusable = f.join() && reusable
	}
	if reusable {
		f.settle()
	}
	f.dropBuffer() // many may wait for the lock of the pool
	f.dropOut()
	f.p.release(f.c, reusable)
}

// send writes the request: the head and a small body in one write, a large body through a
// sender. A small body is read before anything is written: a client that breaks off while it sends
// its body then costs the endpoint nothing.
func (f *flight) send() *Fault {
	r := f.r
	length := int64(0)
	if hasBody(r) {
		length = r.ContentLength
		f.p.mu.Lock()
		f.progress.watchBody()
		f.p.mu.Unlock()
	}
	var err error
	f.takeOut()
	spell, _ := f.w.(fieldSpeller)
	if f.out, err = requestHead(f.out, r, f.x, f.upgrade, length, spell); err != nil {
		return f.fail(StageClient, err)
	}
	expect := length != 0 && expectsContinue(r)
	inline := length > 0 && length <= inlineBody && !expect
	if inline {
		n := len(f.out)
		f.out = slices.Grow(f.out, int(length))[:n+int(length)]
		f.consumed = true
		if err := f.progress.readInline(f.r.Body, f.out[n:], f.p); err != nil {
			return f.fail(StageClient, err)
		}
	}
	// Not earlier: while the client sends a small body, there is no head to wait for, and the
	// progress timeout bounds the exchange.
	if !f.x.Deadline.IsZero() {
		f.progress.head.Store(headDue)
	}
	// takeIdle leaves the check of such a connection to ask, which looks, writes and waits in one
	// operation.
	if length == 0 && f.res.Reused && f.c.bare() {
		return f.ask()
	}
	n, err := f.c.write(f.out)
	f.sent = n > 0
	if err != nil && !(inline && n > 0) {
		return f.fail(StageSend, err)
	}
	f.dropOut()
	// An early answer may have interrupted a write that failed halfway. The read that
	// follows gets that answer.
	if length == 0 || inline {
		return nil
	}
	f.sender = &sender{
		body: newClientBody(f.w, r, &f.progress), c: f.c,
		r: r, x: f.x, chunked: length < 0,
	}
	if expect {
		return f.awaitContinue()
	}
	f.sender.start()
	return nil
}

// errGone is for a kept connection that had ended, or had unread bytes, before anything was
// sent.
var errGone = new(Fault)

// ask checks the connection, sends a request without a body, and reads the first bytes of the
// answer. The check comes immediately before the write, so that the time in which the endpoint can
// close an idle connection unnoticed is as short as possible.
func (f *flight) ask() *Fault {
	length := len(f.out)
	sent, n, err := f.c.socket.Ask(f.out, f.take, f.drop)
	f.sent = sent > 0
	switch {
	case err == socket.ErrNotQuiet:
		return errGone
	case sent < length && err == nil: // the socket is full
		if _, err := f.c.write(f.out[sent:]); err != nil {
			return f.fail(StageSend, err)
		}
		f.sent = true
		return nil
	case sent < length:
		return f.fail(StageSend, err)
	}
	if err := f.filled(n, err); err != nil {
		return f.fail(StageHead, err)
	}
	return nil
}

// awaitContinue waits ExpectContinueTimeout for the endpoint to ask for the body or to
// answer without it. If there is no answer, it starts the sender. RFC 9110 §10.1.1 allows a client
// to send the body without a 100, and a server that ignores Expect sends none. Another informational
// answer, such as 103, is no answer to that.
func (f *flight) awaitContinue() *Fault {
	until := time.Now().Add(f.p.cfg.ExpectContinueTimeout)
	for {
		if err := f.awaitBytes(until); err != nil {
			return err
		}
		if f.from == f.to {
			f.sender.start()
			return nil
		}
		n, err := f.readHead()
		if err != nil {
			return err
		}
		if f.head.status >= 200 || f.head.status == http.StatusSwitchingProtocols {
			// The endpoint may want the body later, or not at all. copyBody sends it if the answer
			// does not end without it.
			f.unsolicited, f.sender = f.sender, nil // finalHead continues from here
			return nil
		}
		asked := f.head.status == http.StatusContinue
		if err := f.informational(n); err != nil {
			return err
		}
		if asked {
			f.sender.start()
			return nil
		}
	}
}

// awaitBytes waits for bytes of the endpoint. It returns nil without any when the time is over.
func (f *flight) awaitBytes(until time.Time) *Fault {
	_ = f.c.SetReadDeadline(until)
	for f.from == f.to {
		if err := f.fillIn(); err != nil {
			// The watch ends an exchange by the same deadline of the socket. If the request was
			// cancelled or its head is late, the body must not be sent.
			if errors.Is(err, os.ErrDeadlineExceeded) && f.r.Context().Err() == nil && f.progress.head.Load() != headLate {
				break // send the body before the endpoint asks for it
			}
			return f.fail(StageHead, err)
		}
	}
	_ = f.c.SetReadDeadline(time.Time{}) // the watch repeats its own
	return nil
}

// join ends the sender and reports whether it had sent the whole body. If the answer has ended
// before the body, as that to an upload that is too large, the close ends the sender's write and
// stop ends its read of the client. The connection is lost, because the endpoint would take the
// next request for the rest of the body.
func (f *flight) join() bool {
	s := f.sender
	f.consumed = f.consumed || s.body.consumed.Load()
	if s.done == nil { // never started
		return false
	}
	if s.body.ended.Load() {
		select {
		case <-s.done:
			return s.sent
		case <-time.After(sendGrace):
		}
	}
	_ = f.c.Conn.Close()
	s.body.stop()
	<-s.done
	return false
}

// fail builds the error of the exchange from err.
func (f *flight) fail(stage Stage, err error) *Fault {
	if m, ok := err.(http1.Malformed); ok {
		err = fmt.Errorf("malformed response: %w", m)
	}
	e := &Fault{Stage: stage, Address: f.p.cfg.Address, sent: f.sent, committed: f.committed, bodyConsumed: f.consumed}
	if f.sender != nil && f.sender.done != nil { // it may read until join
		e.bodyConsumed = true
	}
	var body *clientBody
	if f.sender != nil {
		body = f.sender.body
	}
	if f.p.explains(e, err, exchange{f.r.Context(), &f.progress, body, &f.res}) {
		return e
	}
	if e.Err == io.EOF {
		e.Err = errEarlyEOF
	}
	// The endpoint may have closed the kept connection before the request reached it (RFC 9112
	// §9.5). After the first byte of an answer it has seen the request, and a deadline that passes
	// shows an endpoint that is slow and not one that has closed.
	if f.res.Reused && !f.heard && (stage == StageSend || stage == StageHead) && !errors.Is(e.Err, context.DeadlineExceeded) {
		e.stale = true
		e.Err = fmt.Errorf("%w: %w", errStale, err)
	}
	return e
}
