package downstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
)

var errBodyClosed = errors.New("downstream: the body was read after the handler returned")

// requestBody is the body of a request. One goroutine may read while the handler writes its
// answer.
type requestBody struct {
	c       *conn
	framing http1.Body

	take        func() []byte // of the ReadLate that waits
	takeBounded func() []byte // bound once

	mu       sync.Mutex // held while reading
	data     []byte     // extracted and not read yet; points into c.in
	expected bool       // the client waits for 100 Continue
	done     bool       // read to its end
	closed   bool       // the handler has returned
	err      error
}

func (b *requestBody) reset(maxTrailer int) {
	b.framing.MaxTrailer = maxTrailer
	b.data, b.expected, b.done, b.closed, b.err = nil, false, false, false, nil
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(p) == 0 && !b.closed {
		return 0, b.err
	}
	if err := b.begin(); err != nil {
		return 0, err
	}
	return b.took(b.read(p))
}

// ReadLate reads as Read does, into the buffer that take returns when bytes may have arrived. If there
// are none, drop gets it back: a body that does not move holds no buffer. TLS needs one while it waits.
func (b *requestBody) ReadLate(take func() []byte, drop func()) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.begin(); err != nil {
		return nil, err
	}
	err := b.extract()
	switch {
	case err == errDirect && b.c.tls == nil && b.c.socket.Usable():
		b.take = take
		n, err := b.direct(b.c.socket.Read(b.takeBounded, drop))
		b.take = nil
		if n, err = b.took(n, err); n == 0 {
			return nil, err
		}
		return take()[:n], err // holds them already
	case err == errDirect:
		p := take()
		n, err := b.took(b.direct(b.c.nc.Read(b.bounded(p))))
		return p[:n], err
	case err != nil:
		_, err = b.took(0, err)
		return nil, err
	}
	p := take()
	n, err := b.took(b.copy(p), nil)
	return p[:n], err
}

// begin returns why nothing can be read, and asks a client for the body that waits for that.
func (b *requestBody) begin() error {
	switch {
	case b.closed:
		return errBodyClosed
	case b.err != nil:
		return b.err
	}
	if b.expected {
		b.expected = false
		b.c.res.sendContinue()
	}
	return nil
}

// took records the result of a read.
func (b *requestBody) took(n int, err error) (int, error) {
	if b.err = err; err == nil && len(b.data) == 0 {
		b.lookAhead()
	}
	b.ended()
	return n, err
}

// lookAhead extracts what follows from the bytes that are there. A handler that knows the length
// of a body, or finds its end in the data, does not read on after the last byte, and the watch
// checks the client only when the request was read to its end.
func (b *requestBody) lookAhead() {
	c := b.c
	data, used, err := b.framing.Next(c.in[c.from:c.to])
	c.from += used
	switch err {
	case nil:
		b.data = data
	case http1.ErrNeedMore:
	case io.EOF:
		b.err = io.EOF
	default:
		b.err = malformed(err)
	}
}

// ended records the end of the body for the watch.
func (b *requestBody) ended() {
	if b.err == io.EOF && !b.done {
		b.done = true
		b.c.whole.Store(true)
	}
}

// over ends the body if it was read to its end, or to an error. Otherwise it returns false: a goroutine
// may read it, into a buffer of the connection.
func (b *requestBody) over() bool {
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	b.closed = b.done || b.err != nil
	return b.closed
}

// errDirect means that the next bytes of a body come from the connection without any framing.
var errDirect = errors.New("downstream: to be read from the connection")

// read waits for at least one byte.
func (b *requestBody) read(p []byte) (int, error) {
	switch err := b.extract(); err {
	case nil:
		return b.copy(p), nil
	case errDirect:
		return b.direct(b.c.nc.Read(b.bounded(p)))
	default:
		return 0, err
	}
}

// extract waits until a part of the body is in data, or returns errDirect. While the connection waits
// for a byte of the framing, it holds no buffer if it can.
func (b *requestBody) extract() error {
	c := b.c
	for len(b.data) == 0 {
		if b.framing.Direct() > 0 && c.from == c.to {
			return errDirect
		}
		data, used, err := b.framing.Next(c.in[c.from:c.to])
		c.from += used
		switch err {
		case nil:
			b.data = data
		case http1.ErrNeedMore:
			if err := c.fill(); err != nil {
				return early(err)
			}
		case io.EOF:
			return io.EOF
		default:
			return malformed(err)
		}
	}
	return nil
}

// bounded returns the part of a buffer that the connection may fill with the body.
func (b *requestBody) bounded(p []byte) []byte {
	return p[:min(int64(len(p)), b.framing.Direct())]
}

// direct records n bytes of the body that were read from the connection.
func (b *requestBody) direct(n int, err error) (int, error) {
	if n > 0 {
		b.framing.Skip(int64(n))
		return n, nil
	}
	return 0, early(err)
}

// copy takes from what was extracted.
func (b *requestBody) copy(p []byte) int {
	n := copy(p, b.data)
	b.data = b.data[n:]
	return n
}

func malformed(err error) error { return fmt.Errorf("malformed request: %w", err) }

// early makes the end of a connection within a body an error.
func early(err error) error {
	if err == io.EOF || err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (b *requestBody) Close() error { return nil }

// trailerField adds a trailer to the request, as net/http does.
func (b *requestBody) trailerField(name, value []byte) {
	r := b.c.req
	if r.Trailer == nil {
		r.Trailer = make(http.Header)
	}
	r.Trailer.Add(string(name), string(value))
}

// discardLimit is how much of an unread body is read so that the connection can be kept, as
// in net/http.
const discardLimit = 256 << 10

// discardTime bounds how long that may take. The answer waits for it, and what the request holds.
const discardTime = time.Second

// discard reads a short rest of the body. It reports whether the body ended.
func (b *requestBody) discard() bool {
	if !b.mu.TryLock() {
		return false // a goroutine of the handler still reads, against the rules
	}
	defer b.mu.Unlock()
	if b.done {
		return true
	}
	if b.err != nil || b.expected || b.framing.Kind() == http1.Length && b.framing.Direct() > discardLimit {
		return false
	}
	bp := discardBuffers.Get().(*[]byte)
	defer discardBuffers.Put(bp)
	_ = b.c.nc.SetReadDeadline(time.Now().Add(discardTime))
	defer func() { _ = b.c.nc.SetReadDeadline(time.Time{}) }()
	for read := 0; read < discardLimit; {
		n, err := b.read(*bp)
		if err != nil {
			b.err = err
			b.done = err == io.EOF
			return b.done
		}
		read += n
	}
	return false
}

var discardBuffers = sync.Pool{New: func() any { b := make([]byte, 8<<10); return &b }}
