package router

import (
	"io"
	"os"
	"sync"
)

// requestBody is the body of a request, whose Read can be interrupted even if that of the
// program's body cannot: Close of many bodies, such as that of httputil.ReverseProxy, does not
// end a Read. So a goroutine reads. It ends with the request, or when a Read that was interrupted
// returns. The methods of nil do nothing.
type requestBody struct {
	body        io.ReadCloser
	starts      sync.Once
	ends        sync.Once
	want        chan struct{}
	read        chan piece
	interrupted chan struct{}

	rest piece // what the last read has left
}

// piece is the result of a Read.
type piece struct {
	bytes []byte
	err   error
}

func newRequestBody(body io.ReadCloser) *requestBody {
	return &requestBody{body: body, want: make(chan struct{}), read: make(chan piece), interrupted: make(chan struct{})}
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.starts.Do(func() { go b.pump() })
	if len(b.rest.bytes) == 0 && b.rest.err == nil {
		select {
		case b.want <- struct{}{}:
		case <-b.interrupted:
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case b.rest = <-b.read:
		case <-b.interrupted:
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(p, b.rest.bytes)
	if b.rest.bytes = b.rest.bytes[n:]; len(b.rest.bytes) > 0 {
		return n, nil
	}
	return n, b.rest.err
}

// pump reads a piece at a time, when one is wanted.
func (b *requestBody) pump() {
	buffer := make([]byte, 16<<10)
	for {
		select {
		case <-b.want:
		case <-b.interrupted:
			return
		}
		n, err := b.body.Read(buffer)
		select {
		case b.read <- piece{buffer[:n], err}:
		case <-b.interrupted:
			return
		}
	}
}

// interrupt ends the current and all later reads.
func (b *requestBody) interrupt() {
	if b != nil {
		b.ends.Do(func() { close(b.interrupted) })
	}
}

// Close implements io.Closer.
func (b *requestBody) Close() error {
	if b == nil {
		return nil
	}
	b.interrupt()
	return b.body.Close()
}
