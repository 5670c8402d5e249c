package upstream

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// lingerTime bounds the time for the unread rest of a request body. It equals the time
// that the server grants a client to read its last answer.
const lingerTime = 500 * time.Millisecond

// clientBody is the client's request body while another goroutine sends it. Stop ends its
// reads, so that nothing reads from the client after the exchange.
type clientBody struct {
	body   io.ReadCloser
	w      http.ResponseWriter
	length int64 // noLength if unknown
	trails bool  // trailers may follow the last byte of length
	// progress is notified of each read. Nil only in tests.
	progress *progress

	consumed atomic.Bool // at least one byte was read
	ended    atomic.Bool // the body was read to its end; set before the reader gets io.EOF
	failed   atomic.Bool // the client stopped sending
	cut      atomic.Bool // this process, and not the client, is interrupting a read

	stopping sync.Mutex // held by stop, before mu

	mu      sync.Mutex // held while reading
	read    int64
	stopped bool
	err     error // the reason of failed
}

// hasBody reports whether r has a body.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// newClientBody returns the body of r, after g.watchBody.
func newClientBody(w http.ResponseWriter, r *http.Request, g *progress) *clientBody {
	b := &clientBody{body: r.Body, w: w, length: r.ContentLength, progress: g}
	// A stream in both directions over HTTP/2 may stay open without a byte until the
	// endpoint answers.
	needed := r.ContentLength >= 0 || r.ProtoMajor == 1
	g.bodyNeeded.Store(needed)
	g.bodyOpen.Store(!needed)
	if r.ProtoMajor == 1 {
		// Otherwise the server reads a short rest of the body before it writes a head.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	return b
}

func (b *clientBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.begin(); err != nil {
		return 0, err
	}
	return b.took(b.body.Read(p))
}

// next reads into the buffer, and returns what is in it until it is dropped.
func (b *clientBody) next(in *lateBuffer) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.begin(); err != nil {
		return nil, err
	}
	p, err := ReadLate(b.body, in.take, in.drop)
	n, err := b.took(len(p), err)
	return p[:n], err
}

// begin returns why nothing may be read. The lock is held. It reports the read to the watch: until
// took the exchange waits for the client.
func (b *clientBody) begin() error {
	switch {
	case b.stopped:
		return errBodyStopped
	case b.ended.Load():
		return io.EOF
	}
	if b.progress != nil {
		b.progress.awaits(true)
	}
	return nil
}

// took records a read of n bytes after begin, and returns what the reader gets. The lock is held.
func (b *clientBody) took(n int, err error) (int, error) {
	if b.progress != nil {
		defer b.progress.awaits(false)
	}
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
			n, err = 0, errTooLong // the bytes beyond length would be taken for the next request
		case b.read == b.length && err == nil && !b.trails:
			err = io.EOF
		case b.read == b.length: // a read behind it brings the trailers
		case err == io.EOF:
			err = errUnfinished
		}
	}
	if b.progress != nil && b.progress.bodyOpen.Load() && (err != nil || b.endArrived()) {
		b.progress.bodyOpen.Store(false)
	}
	if err == io.EOF {
		if n == 0 && b.progress != nil {
			b.progress.read() // the end may come long after the last byte
		}
		b.ended.Store(true)
	} else if err != nil {
		if b.cut.Load() {
			return n, errBodyStopped
		}
		b.err = err
		b.failed.Store(true)
	}
	return n, err
}

// endArrived reports whether the client has sent the end of its body, which may be unread.
func (b *clientBody) endArrived() bool {
	body, knows := b.body.(buffering)
	if !knows {
		return false
	}
	_, end := body.Buffered()
	return end
}

// refuse records that the client has sent what cannot be passed on.
func (b *clientBody) refuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	b.failed.Store(true)
}

// stop interrupts a running read and refuses later ones. Unless the body had ended, the
// client's connection cannot be used afterwards, so the response has "Connection: close".
// After it has returned, nothing uses the client any more, because the handler may have
// returned. Reads hold mu, so TryLock shows whether one is running. Only then the connection of the
// client gets a deadline in the past. cut is set before, so that the reader does not take this for
// a failure of the client. A body without such deadlines is closed instead.
func (b *clientBody) stop() {
	b.stopping.Lock()
	defer b.stopping.Unlock()
	if b.ended.Load() || b.stopped { // stopped is written only below
		return
	}
	if !b.mu.TryLock() {
		b.cut.Store(true)
		client := http.NewResponseController(b.w)
		if client.SetReadDeadline(expiredDeadline) != nil {
			_ = b.body.Close()
		}
		b.mu.Lock()
		// The server reads a short rest of the body before it closes the connection. Without
		// that the client would get a reset instead of its answer.
		_ = client.SetReadDeadline(time.Now().Add(lingerTime))
	}
	b.stopped = true
	b.mu.Unlock()
}

// failure returns the client's error, nil if the client did not fail. failed is read first: a
// reader that waits for the client holds the lock as long as it waits.
func (b *clientBody) failure() error {
	if b == nil || !b.failed.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
