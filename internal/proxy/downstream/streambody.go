package downstream

import (
	"io"
	"net/http"
	"sync"

	"github.com/ringway/ringway/internal/proxy/http2"
)

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
			b.x.keepSecret(name)
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
