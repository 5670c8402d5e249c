package upstream

import (
	"io"
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

// Replay is the body of a request that may be sent again after it was read: to a relay or a
// sidecar, which reads the body before it knows that nothing behind it accepts the request, or
// over HTTP/2, where an endpoint may refuse a request while its body is sent. Small bodies are
// kept until that is known. Its zero value is ready.
//
// Only one attempt reads at a time, and none reads after its end. What an attempt
// reads from the body is added to kept. The next attempt reads kept first, and goes on with the
// body where the last one stopped. Once kept would exceed wire.ReplayLimit it is dropped, because
// only the attempt that has read so far can use the rest.
type Replay struct {
	body   io.ReadCloser // nil if there is none
	length int64         // as declared, negative if not declared
	over2  replay2       // the body of the request if it came over HTTP/2

	kept  []byte
	at    int  // how far the attempt has read kept
	begun bool // a read of body has begun
	ended bool // kept is the whole body
	read  bool // body has returned io.EOF, and so its trailers
	lost  bool // too long: only body has the rest
}

// buffering is a body over HTTP/2: it knows how much of it has arrived, and a read that was
// interrupted can be continued.
type buffering interface {
	// Buffered returns how many bytes Read returns without waiting, and whether the end of the
	// body is behind them.
	Buffered() (n int, end bool)
}

// replay2 is a Replay of a body over HTTP/2.
type replay2 struct {
	*Replay
	source buffering
}

func (b *replay2) Buffered() (n int, end bool) {
	if !b.read { // also when kept is the whole body: its trailers may not have arrived
		n, end = b.source.Buffered()
	}
	return len(b.kept) - b.at + n, end || b.read
}

// Begin makes b the body of r, if r has one, unless b is its body already.
func (b *Replay) Begin(r *http.Request) {
	if b.body != nil || !hasBody(r) {
		return
	}
	*b = Replay{body: r.Body, length: r.ContentLength, kept: b.kept[:0]}
	if source, ok := r.Body.(buffering); ok {
		b.over2 = replay2{b, source}
		r.Body = &b.over2
		return
	}
	r.Body = b
}

// End restores the original body of r. The memory serves for the next request.
func (b *Replay) End(r *http.Request) {
	if b.body != nil {
		r.Body = b.body
	}
	*b = Replay{kept: b.kept[:0]}
}

// Begun reports whether b is the body of the request.
func (b *Replay) Begun() bool { return b.body != nil }

// Fits reports whether the declared length is small enough.
func (b *Replay) Fits() bool { return b.length >= 0 && b.length <= wire.ReplayLimit }

// Rewind lets the next attempt read from the beginning, if possible. A body over HTTP/1.1 that
// had not ended cannot be rewound: the attempt may have been interrupted in the middle of a
// read.
func (b *Replay) Rewind(w http.ResponseWriter) bool {
	b.at = 0
	switch {
	case b.lost:
		return false
	case b.ended || !b.begun:
		return true
	case b.over2.source == nil:
		return false
	}
	return http.NewResponseController(w).SetReadDeadline(time.Time{}) == nil // the interruption is over
}

func (b *Replay) Read(p []byte) (int, error) {
	if n, done, err := b.again(p); done {
		return n, err
	}
	n, err := b.body.Read(p)
	b.keep(p[:n], err)
	return n, err
}

// ReadLate is Read into the buffer that take returns; see lateReader.
func (b *Replay) ReadLate(take func() []byte, drop func()) ([]byte, error) {
	if b.at < len(b.kept) || b.ended && b.read {
		p := take()
		n, _, err := b.again(p)
		return p[:n], err
	}
	b.begun = true
	p, err := ReadLate(b.body, take, drop)
	b.keep(p, err)
	return p, err
}

// again reads what was kept. It returns false if body must be read.
func (b *Replay) again(p []byte) (n int, done bool, err error) {
	if b.at < len(b.kept) {
		n = copy(p, b.kept[b.at:])
		b.at += n
		return n, true, nil
	}
	if b.ended && b.read {
		return 0, true, io.EOF
	}
	b.begun = true
	return 0, false, nil
}

// keep records what was read from body.
func (b *Replay) keep(p []byte, err error) {
	b.read = err == io.EOF
	if b.lost {
		return
	}
	if len(b.kept)+len(p) > wire.ReplayLimit {
		b.kept, b.at, b.lost, b.ended = b.kept[:0], 0, true, false
		return
	}
	b.kept = append(b.kept, p...)
	b.at = len(b.kept)
	// A body of declared length ends with its last byte, and io.EOF may come much later or not be
	// read at all.
	b.ended = b.read || err == nil && b.at == int(b.length)
}

func (b *Replay) Close() error { return b.body.Close() }
