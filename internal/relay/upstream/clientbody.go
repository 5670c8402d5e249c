package upstream

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// lingerTime bounds how long the rest of a body that nobody wants may take; it is
// what net/http grants a client to read its answer.
const lingerTime = 500 * time.Millisecond

// clientBody is the client's request body while another goroutine sends it.
// It can be stopped, so that nothing reads from the client after Carry has
// returned.
type clientBody struct {
	body   io.ReadCloser
	w      http.ResponseWriter
	length int64 // noLength when unknown
	// progress hears of what comes. Nil only in tests.
	progress *progress

	// trailer has, once the body has ended, what is sent of those that arrived;
	// without one of its own a body does not look after them.
	trailer, arrived http.Header

	consumed atomic.Bool // something was read
	ended    atomic.Bool // it was read to its end; set before the reader hears of it
	failed   atomic.Bool // the client broke off
	cut      atomic.Bool // a read under way is being interrupted, by us and not by the client

	stopping sync.Mutex // held while stopping, before mu

	mu      sync.Mutex // held while reading
	read    int64
	stopped bool
	err     error // why failed
}

// needsSending reports whether r has a body at all.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

func newClientBody(w http.ResponseWriter, r *http.Request, g *progress) *clientBody {
	b := &clientBody{body: r.Body, w: w, length: r.ContentLength, progress: g}
	g.watchBody()
	// A stream both ways over HTTP/2 may stay open without a word while the
	// endpoint makes up its answer.
	g.owed.Store(r.ContentLength >= 0 || r.ProtoMajor == 1)
	if r.ProtoMajor == 1 {
		// Without it net/http reads the body away before it writes a head.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	return b
}

// announced prepares for the trailers of a request over HTTP/2: those that were
// announced, without what is dropped. net/http adds others when they arrive.
func (b *clientBody) announced(t http.Header, x *Exchange) {
	for name := range t {
		if x.sendsTrailer(name) {
			if b.trailer == nil {
				b.trailer, b.arrived = http.Header{}, t
			}
			b.trailer[name] = nil
		}
	}
}

func (b *clientBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return 0, errBodyStopped
	}
	if b.ended.Load() {
		return 0, io.EOF
	}
	if b.progress != nil {
		b.progress.reading.Store(true)
		defer b.progress.reading.Store(false)
	}
	n, err := b.body.Read(p)
	if n > 0 {
		if b.progress != nil {
			b.progress.read()
		}
		b.consumed.Store(true)
		b.read += int64(n)
	}
	if b.length >= 0 {
		switch {
		case b.read > b.length:
			n, err = 0, errTooLong // sent, the rest would be the next request
		case b.read == b.length && (err == nil || err == io.EOF):
			b.end()
			return n, io.EOF
		case err == io.EOF:
			err = errUnfinished
		}
	}
	if err == io.EOF {
		b.end()
	} else if err != nil {
		if b.cut.Load() {
			return n, errBodyStopped
		}
		b.err = err
		b.failed.Store(true)
	}
	return n, err
}

// end notes that the body was read to its end. The lock is held.
func (b *clientBody) end() {
	for name := range b.trailer {
		b.trailer[name] = b.arrived[name]
	}
	b.ended.Store(true)
}

// Close is called by the HTTP/2 transport when it is done with the body.
func (b *clientBody) Close() error {
	b.stop()
	return nil
}

// stop interrupts a read under way and refuses later ones. The client's
// connection is of no use afterwards unless the body had ended, which is why
// the response then says "Connection: close". The transport may call it as well,
// on a goroutine of its own: once one call has returned none touches the client
// any more, who may be gone by then.
func (b *clientBody) stop() {
	b.stopping.Lock()
	defer b.stopping.Unlock()
	if b.ended.Load() || b.stopped { // which is written only below
		return
	}
	if !b.mu.TryLock() {
		b.cut.Store(true)
		client := http.NewResponseController(b.w)
		if client.SetReadDeadline(past) != nil {
			_ = b.body.Close()
		}
		b.mu.Lock()
		// The server reads a short rest away before it closes the connection. If
		// it could not, the client would get a reset in place of its answer.
		_ = client.SetReadDeadline(time.Now().Add(lingerTime))
	}
	b.stopped = true
	b.mu.Unlock()
}

// apart is ctx, the context of an HTTP/1 request, until stop interrupts a read.
// net/http watches a connection whose request has been read to its end, and takes
// our interruption for the client's leaving, if the last byte comes just then. It
// cannot see the client leave after that, so nothing is missed.
func (b *clientBody) apart(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() {
		if !b.cut.Load() {
			cancel(context.Cause(ctx))
		}
	})
	return own, func() {
		detach()
		cancel(nil)
	}
}

// failure is the client's error, nil when it did not fail by itself.
func (b *clientBody) failure() error {
	if b == nil || !b.failed.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
