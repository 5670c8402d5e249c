package process

import (
	"net/http"
	"time"
)

const (
	// writeTimeout limits how long a caller of the admin API may take for an answer that is small,
	// such as that of a probe, which needs no token.
	writeTimeout = time.Minute
	// ReaderPause limits how long a reader of a stream may pause: the time to read what a pager
	// shows. A reader that does not come back blocks one of few places until then.
	ReaderPause = 5 * time.Minute
	// pieceSize lets an answer of any size pass a slow link, and is large enough that the
	// deadlines cost nothing.
	pieceSize = 64 << 10
)

// Stream writes an answer without an end, or of any size. Each piece of it has a deadline, and
// none while nothing is written: over HTTP/2 the end of a deadline resets a silent stream, too.
// Close it when the handler returns.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

// NewStream lifts the time limit of the server. limit is that of 64 KiB.
func NewStream(w http.ResponseWriter, limit time.Duration) *Stream {
	s := &Stream{w, http.NewResponseController(w), limit}
	s.until(time.Time{})
	return s
}

// until sets the deadline. Without one, which not every writer has, a write ends with the connection.
func (s *Stream) until(t time.Time) { _ = s.control.SetWriteDeadline(t) }

// Header returns the fields of the head.
func (s *Stream) Header() http.Header { return s.w.Header() }

// WriteHeader sends the head.
func (s *Stream) WriteHeader(status int) { s.w.WriteHeader(status) }

// Write implements io.Writer.
func (s *Stream) Write(b []byte) (written int, err error) {
	for len(b) > 0 && err == nil {
		var n int
		s.until(time.Now().Add(s.limit))
		n, err = s.w.Write(b[:min(len(b), pieceSize)])
		written, b = written+n, b[n:]
	}
	return written, err
}

// Flush sends what was written.
func (s *Stream) Flush() error {
	s.until(time.Now().Add(s.limit))
	if err := s.control.Flush(); err != nil {
		return err
	}
	s.until(time.Time{})
	return nil
}

// Close limits what the server sends at the end. The time limit of the server then holds for the
// next request of the connection.
func (s *Stream) Close() { s.until(time.Now().Add(s.limit)) }
