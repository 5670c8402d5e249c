package upstream

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// clientBody is the client's request body while another goroutine sends it.
// It can be stopped, so that nothing reads from the client after Carry has
// returned.
type clientBody struct {
	body   io.ReadCloser
	w      http.ResponseWriter
	length int64 // noLength when unknown

	consumed atomic.Bool // something was read
	ended    atomic.Bool // it was read to its end; set before the reader hears of it
	failed   atomic.Bool // the client broke off

	mu      sync.Mutex // held while reading
	read    int64
	stopped bool
	err     error // why failed
}

// needsSending reports whether r has a body at all.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

func newClientBody(w http.ResponseWriter, r *http.Request) *clientBody {
	b := &clientBody{body: r.Body, w: w, length: r.ContentLength}
	if r.ProtoMajor == 1 {
		// Without it net/http reads the body away before it writes a head.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	return b
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
	n, err := b.body.Read(p)
	if n > 0 {
		b.consumed.Store(true)
		b.read += int64(n)
	}
	if b.length >= 0 {
		switch {
		case b.read > b.length:
			err = errTooLong
		case b.read == b.length && (err == nil || err == io.EOF):
			b.ended.Store(true)
			return n, io.EOF
		case err == io.EOF:
			err = errUnfinished
		}
	}
	if err == io.EOF {
		b.ended.Store(true)
	} else if err != nil {
		b.err = err
		b.failed.Store(true)
	}
	return n, err
}

// Close is called by the HTTP/2 transport when it is done with the body.
func (b *clientBody) Close() error {
	b.stop()
	return nil
}

// stop interrupts a read under way and refuses later ones. The client's
// connection is of no use afterwards unless the body had ended, which is why
// the response then says "Connection: close".
func (b *clientBody) stop() {
	if b.ended.Load() {
		return
	}
	if !b.mu.TryLock() {
		if http.NewResponseController(b.w).SetReadDeadline(past) != nil {
			_ = b.body.Close()
		}
		b.mu.Lock()
	}
	b.stopped = true
	b.mu.Unlock()
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
