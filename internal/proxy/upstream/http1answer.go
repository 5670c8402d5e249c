package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/wire"
)

// finalHead reads up to the final response head and leaves its bytes at f.from. Any number of
// informational answers may come before it (RFC 9110 §15.2). A 101 is final: what follows it is no
// HTTP.
func (f *flight) finalHead() *Fault {
	if f.unsolicited != nil {
		return nil
	}
	for {
		n, err := f.readHead()
		if err != nil {
			return err
		}
		if f.head.status >= 200 || f.head.status == http.StatusSwitchingProtocols {
			return nil
		}
		if err := f.informational(n); err != nil {
			return err
		}
	}
}

// informational consumes a 1xx response of n bytes, and passes it to the client unless it is 100
// Continue. The server of the client sends its own 100 when the body is read, and a client of
// HTTP/1.0 does not know informational answers (RFC 9110 §15.2).
func (f *flight) informational(n int) *Fault {
	f.framed = f.framed || f.head.framed
	if f.informed += n; f.informed > maxInformation {
		return f.fail(StageHead, errTooMuch1xx)
	}
	if f.head.status != http.StatusContinue && f.r.ProtoAtLeast(1, 1) {
		h := f.w.Header()
		passed := make(http.Header, len(f.head.fields))
		f.head.fill(passed, f.in[f.from:f.from+n], f.x)
		for name, v := range passed {
			if framingField(name) {
				delete(passed, name)
				continue
			}
			if _, ok := h[name]; ok {
				delete(passed, name) // the handler has set this field
				continue
			}
			h[name] = v
		}
		f.progress.writing.Store(true) // the client may accept nothing
		f.w.WriteHeader(f.head.status)
		f.progress.wrote()
		// WriteHeader has sent the header map. Without the removal these fields would be in the
		// final head as well.
		for name := range passed {
			delete(h, name)
		}
	}
	f.from += n
	return nil
}

// readHead reads and parses one head of n bytes and leaves it at f.from. The search continues in
// the line where it stopped, so a head that arrives in many small pieces is not searched from its
// beginning each time. An endpoint that never ends its head is stopped at the limit, before the
// buffer grows further.
func (f *flight) readHead() (n int, _ *Fault) {
	limit := f.p.cfg.MaxResponseHeaderBytes
	for next := 0; ; {
		n, after, err := http1.HeadEnd(f.in[f.from:f.to], next)
		if err == nil && (n > limit || n == 0 && f.to-f.from > limit) {
			err = http1.ErrHeadTooLarge
		}
		if err == nil && n > 0 {
			if err = f.head.parse(f.in[f.from : f.from+n]); err == nil {
				return n, nil
			}
		}
		if err != nil {
			return 0, f.fail(StageHead, err)
		}
		next = after
		if err := f.fillIn(); err != nil {
			return 0, f.fail(StageHead, err)
		}
	}
}

// fillIn reads more from the endpoint. While it waits, it holds no buffer if it can: a
// relay has thousands of requests that wait for an endpoint.
func (f *flight) fillIn() error {
	if f.from == f.to {
		f.from, f.to = 0, 0
		if f.c.bare() {
			f.dropBuffer()
			return f.filled(f.c.socket.Read(f.take, f.drop))
		}
		if !f.committed {
			// TLS needs a place for what it reads: a byte of the connection, until a head begins.
			f.dropBuffer()
			n, err := f.c.Read(f.c.one[:])
			if n > 0 {
				f.takeBuffer()
				f.in[0] = f.c.one[0]
			}
			return f.filled(n, err)
		}
	}
	f.takeBuffer()
	if f.to == len(f.in) {
		if f.from > 0 {
			f.to = copy(f.in, f.in[f.from:f.to])
			f.from = 0
		} else {
			f.in = append(f.in, make([]byte, len(f.in))...) // bounded by the limits on heads and trailers
		}
	}
	return f.filled(f.c.Read(f.in[f.to:]))
}

// filled records that n bytes were read.
func (f *flight) filled(n int, err error) error {
	f.to += n
	if n > 0 {
		f.heard = true
		f.progress.moved.Store(true)
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// respond writes the head of the response to the client. That of a tunnel waits for Deliver. The
// failure that a sidecar reports becomes a Fault, and an answer that OnHead refuses is dropped: the
// client gets nothing of either, so that the handler can try another endpoint. Reusable reports
// whether the connection is clean then. From the head on the exchange is committed, and an error can
// only break the answer off.
func (f *flight) respond() (begun, reusable bool, _ *Fault) {
	h := &f.head
	f.res.Status, f.res.Load, f.res.Failed = h.status, h.load, h.failed
	f.res.Shed = shed(h.status, h.load, h.retryAfter)
	if h.failed != "" {
		f.res.Again = h.again(f.in[f.from : f.from+h.size])
	}
	if h.status == http.StatusSwitchingProtocols {
		begun, err := f.switchProtocols()
		return begun, false, err
	}
	f.body.MaxTrailer = f.p.cfg.MaxResponseHeaderBytes
	h.begin(&f.body, f.r.Method)
	if f.x.Sidecar && h.failed != "" {
		e := f.fail(StageService, errBroken).fromSidecar(h.failed)
		f.from += h.size
		return false, f.discard() && f.clean(), e
	}
	if f.x.OnHead != nil && !f.x.OnHead(f.res) {
		f.res.Dropped = true
		f.from += h.size
		return false, f.discard() && f.clean(), nil
	}

	head := f.in[f.from : f.from+h.size]
	f.from += h.size
	// What is passed to the client from here on cannot be taken back.
	withheld := f.x.SetCookie != "" && sharable(h.caching(head))
	copies := h.pass(f.w, head, f.x)
	header := f.w.Header()
	if h.status == http.StatusNoContent {
		delete(header, "Content-Length") // RFC 9110 §8.6
	}
	f.x.addResponse(header, withheld)
	if _, required := header["Upgrade"]; required {
		header["Connection"] = append(header["Connection"], "Upgrade")
	}
	if _, ok := header["Content-Type"]; !ok && !copies {
		header["Content-Type"] = nil // otherwise net/http guesses a type
	}
	f.closeUnread()
	f.committed = true
	f.progress.answering.Store(true)
	f.w.WriteHeader(h.status)
	return true, false, nil
}

// Deliver implements Answer.
func (f *flight) Deliver() (Result, *Fault) {
	defer f.leave()
	if f.res.Status == http.StatusSwitchingProtocols {
		return f.finish(f.openTunnel(f.w.Header()))
	}
	return f.finish(f.copyBody())
}

// Read implements Answer.
func (f *flight) Read(p []byte) (n int, _ error) {
	f.progress.wrote()
	defer f.progress.writing.Store(true)
	for {
		if len(f.rest) > 0 {
			m := copy(p[n:], f.rest)
			f.rest = f.rest[m:]
			n += m
			f.res.BytesOut += int64(m)
		}
		if len(f.rest) > 0 {
			return n, nil
		}
		data, used, err := f.body.Next(f.in[f.from:f.to])
		f.from += used
		f.rest = data
		if err == http1.ErrNeedMore {
			if n > 0 || len(p) == 0 {
				return n, nil
			}
			var ended bool
			if ended, f.fault = f.awaitMore(); ended {
				err = io.EOF
			}
		} else if err != nil && err != io.EOF {
			f.fault = f.fail(StageBody, err)
		}
		switch {
		case f.fault != nil:
			return n, f.fault
		case err == io.EOF:
			if len(f.trailers) > 0 {
				f.writeTrailers(false)
			}
			f.ended = true
			return n, io.EOF
		}
	}
}

// End implements Answer.
func (f *flight) End() (Result, *Fault) {
	defer f.leave()
	if !f.ended && f.fault == nil && (f.r.Context().Err() != nil || !f.discard()) {
		f.fault = f.fail(StageClient, context.Canceled)
	}
	return f.finish(f.fault)
}

// finish ends an exchange whose answer had begun.
func (f *flight) finish(err *Fault) (Result, *Fault) {
	f.release(err == nil && f.res.Status != http.StatusSwitchingProtocols && f.clean(), err)
	return f.res, err
}

// closeUnread makes the server close the client's connection after the response if the
// request body has not been read completely. Otherwise the rest of the body could be read
// as a new request.
func (f *flight) closeUnread() {
	if f.r.ProtoMajor == 1 && (f.unsolicited != nil || f.sender != nil && !f.sender.body.ended.Load()) {
		header := f.w.Header()
		header["Connection"] = append(header["Connection"], "close") // behind Upgrade, if it is there
	}
}

// clean reports whether the connection may carry another request: the body ended correctly
// and no byte follows. Each condition is for a case in which the next answer on the connection
// could be that to another request: the endpoint wants to close it (RFC 9112 §9.6), the end of the
// connection is the end of the body, bytes are left, the endpoint may still wait for a body that
// was not sent, or a message that has no body declares one.
func (f *flight) clean() bool {
	// RFC 9110 §8.6: a 204 has no length. An endpoint that declares one may send a body.
	forbidden := f.head.status == http.StatusNoContent && f.head.declaresBody()
	if f.from < f.to {
		f.p.unasked()
	}
	return !f.head.close && f.body.Kind() != http1.ToClose && f.from == f.to && f.sent && f.unsolicited == nil && !forbidden && !f.framed
}

// copyBody passes the body on as it arrives. It flushes only before it must wait for more,
// so that bytes that arrive together are sent together. writing is set around each call that may
// wait for the client, so that the watch knows which side is silent.
func (f *flight) copyBody() *Fault {
	unflushed := true
	for {
		data, used, err := f.body.Next(f.in[f.from:f.to])
		f.from += used
		switch err {
		case nil:
			f.progress.writing.Store(true)
			n, werr := f.w.Write(data)
			f.progress.wrote()
			f.res.BytesOut += int64(n)
			if werr != nil {
				return f.fail(StageClient, werr)
			}
			unflushed = true
		case http1.ErrNeedMore:
			if unflushed {
				f.progress.writing.Store(true)
				ferr := http.NewResponseController(f.w).Flush()
				f.progress.wrote()
				if ferr != nil && !errors.Is(ferr, http.ErrNotSupported) {
					return f.fail(StageClient, ferr)
				}
				unflushed = false
			}
			if ended, err := f.awaitMore(); ended || err != nil {
				return err
			}
		case io.EOF:
			if len(f.trailers) > 0 {
				f.writeTrailers(unflushed)
			}
			return nil
		default:
			return f.fail(StageBody, err)
		}
	}
}

// awaitMore reads more of the body from the endpoint, or reports that it has ended.
func (f *flight) awaitMore() (ended bool, _ *Fault) {
	if f.unsolicited != nil && f.sender == nil {
		// The endpoint may need the body before it continues. The client may send the body
		// now that it has the head, or go away, which is detected only by a read of its
		// body.
		f.sender = f.unsolicited
		f.sender.start()
	}
	switch err := f.fillIn(); {
	case err == nil:
		return false, nil
	// Without a length the end of the connection is the end of the body (RFC 9112
	// §6.3). In any other body it is an answer that is cut off.
	case err == io.EOF && f.body.Kind() == http1.ToClose:
		return true, nil
	default:
		return false, f.fail(StageBody, err)
	}
}

// trailerField keeps a trailer of the answer until the body has ended. The same fields are left out
// as in a head, and those that count only in a head.
func (f *flight) trailerField(name, value []byte) {
	key := http.CanonicalHeaderKey(string(name))
	if !trailerField(key) || !keepsResponse(f.x, key) {
		return
	}
	f.trailers = append(f.trailers, wire.Field{Name: key, Value: string(value)})
}

func (f *flight) writeTrailers(unflushed bool) {
	if unflushed { // otherwise net/http declares a length and drops the trailers
		f.progress.writing.Store(true)
		_ = http.NewResponseController(f.w).Flush()
		f.progress.wrote()
	}
	h := f.w.Header()
	for _, t := range f.trailers {
		h.Add(http.TrailerPrefix+t.Name, t.Value)
	}
}

// discard consumes the rest of the body, as far as it has arrived, and reports whether that is all
// of it. It does not wait for more, because the next attempt of the handler would wait as well.
func (f *flight) discard() bool {
	for {
		_, used, err := f.body.Next(f.in[f.from:f.to])
		f.from += used
		if err != nil {
			return err == io.EOF
		}
	}
}
