package upstream

import (
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/ringway/ringway/internal/proxy/http1"
)

// A send buffer holds one chunk: room for its size line, the data, its line end. So a chunk is
// built around the data where they were read, and leaves in one write. The size line of sendData
// bytes has four hexadecimal digits and a line end.
const (
	sendData   = 32 << 10
	chunkFront = 10
)

var sendBuffers = sync.Pool{New: func() any {
	b := make([]byte, chunkFront+sendData+2)
	return &b
}}

// lateBuffer is the place for a send buffer, which it holds only while there are bytes: thousands of
// clients may keep requests open and send nothing. take and drop are bound once.
type lateBuffer struct {
	pooled *[]byte // nil: none is held
	take   func() []byte
	drop   func()
}

var lateBuffers = sync.Pool{New: func() any {
	b := &lateBuffer{}
	b.take = func() []byte {
		if b.pooled == nil {
			b.pooled = sendBuffers.Get().(*[]byte)
		}
		return (*b.pooled)[chunkFront : chunkFront+sendData]
	}
	b.drop = func() {
		if b.pooled != nil {
			sendBuffers.Put(b.pooled)
			b.pooled = nil
		}
	}
	return b
}}

func (b *lateBuffer) free() {
	b.drop()
	lateBuffers.Put(b)
}

// lateReader is a body that asks for a buffer when bytes may have arrived, as those of package
// downstream do. If there are none, drop gets the buffer back. What was read is in the buffer.
type lateReader interface {
	ReadLate(take func() []byte, drop func()) ([]byte, error)
}

// ReadLate reads from a body into a buffer that it takes when bytes may have arrived, if the body knows
// that, and otherwise now.
func ReadLate(body io.Reader, take func() []byte, drop func()) ([]byte, error) {
	if late, ok := body.(lateReader); ok {
		return late.ReadLate(take, drop)
	}
	p := take()
	n, err := body.Read(p)
	return p[:n], err
}

// sender writes a request body to the endpoint on its own goroutine, so that the response
// can be read meanwhile. It alone writes to the connection after the head, and the exchange alone
// reads from it. The exchange uses the fields again when done is closed.
type sender struct {
	body    *clientBody
	c       *conn
	r       *http.Request // has the trailers after the end of the body, also those that were not announced
	x       *Options      // decides which trailers are dropped
	chunked bool
	done    chan struct{}
	sent    bool // the whole body was sent; valid after done
}

// start starts the goroutine; the caller must wait for done.
func (s *sender) start() {
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		if s.run() == nil {
			s.sent = true
		} else if s.body.failed.Load() {
			// The endpoint waits for the rest of the body, which never comes. The close ends the
			// read of the exchange.
			_ = s.c.Conn.Close()
		}
	}()
}

func (s *sender) run() error {
	in := lateBuffers.Get().(*lateBuffer)
	defer in.free()
	for {
		p, err := s.body.next(in)
		if len(p) > 0 {
			if werr := s.write(*in.pooled, len(p)); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			in.take()
			return s.end(*in.pooled)
		}
		if err != nil {
			return err
		}
		in.drop()
	}
}

func (s *sender) write(buf []byte, n int) error {
	from, to := chunkFront, chunkFront+n
	if s.chunked {
		var front [chunkFront]byte
		line := append(strconv.AppendInt(front[:0], int64(n), 16), '\r', '\n')
		from -= len(line)
		copy(buf[from:], line)
		to += copy(buf[to:], "\r\n")
	}
	return s.body.progress.send(func() error { _, err := s.c.Write(buf[from:to]); return err })
}

// end writes the last chunk and the trailers (RFC 9112 §7.1). A body of declared length ends with
// its last byte.
func (s *sender) end(buf []byte) error {
	if !s.chunked {
		return nil
	}
	b := headWriter{buf: append(buf[:0], "0\r\n"...)}
	for name, values := range s.r.Trailer {
		if !s.x.sendsTrailer(name) {
			continue
		}
		for _, v := range values {
			if http1.ValidValue(v) {
				b.field(name, v)
			}
		}
	}
	_, err := s.c.Write(append(b.buf, "\r\n"...))
	return err
}
