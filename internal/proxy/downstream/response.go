package downstream

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
)

const (
	// lengthUnknown is how much of an answer without a length is held back, so that a short
	// one gets a length instead of chunks.
	lengthUnknown = 2 << 10
	// gathered is the size up to which bytes are copied behind those that wait, so that one
	// write sends them all. Larger ones are sent from where they are, in the same write.
	gathered = 8 << 10
	// keptFields is the largest room for copied fields that stays with the pooled answer.
	keptFields = 4 << 10
	// flushAt is how many bytes wait at most.
	flushAt = 16 << 10
)

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// framing is how the end of an answer is marked.
type framing uint8

const (
	undecided framing = iota // the length is not known yet
	noBody
	declared // by Content-Length
	chunked
	toClose
)

// response is the http.ResponseWriter of a connection, with Flush, Hijack, the deadlines
// and full duplex of http.ResponseController. One goroutine writes at a time.
type response struct {
	c      *conn
	header http.Header

	mu      sync.Mutex // held while a head is written; guards begun
	begun   bool       // the head of the final answer is in out or was sent
	status  int        // 0 before WriteHeader
	framing framing
	length  int64  // declared
	copied  []byte // the fields of CopyField, as they are sent
	sized   bool   // CopyField has set length
	dated   bool   // one of copied is Date
	written int64  // of the body
	duplex  bool
	close   bool // the connection ends with this answer
	pooled  *[]byte
	out     []byte // waits to be sent
	held    []byte // of a body without a length
	err     error  // of a write
	vectors net.Buffers
	vector  [3][]byte
	size    [20]byte
}

func (w *response) reset() {
	w.dropBuffers()
	clear(w.header)
	w.begun, w.status, w.framing, w.length, w.written = false, 0, undecided, 0, 0
	w.duplex, w.close, w.err = false, false, nil
	w.sized, w.dated = false, false
	if w.copied = w.copied[:0]; cap(w.copied) > keptFields {
		w.copied = nil
	}
}

func (w *response) dropBuffers() {
	if w.pooled != nil && cap(w.out) <= keptBuffer {
		*w.pooled = w.out[:0]
		writeBuffers.Put(w.pooled)
	}
	w.pooled, w.out, w.held = nil, nil, nil
}

// abandon drops what waits to be sent.
func (w *response) abandon() {
	w.dropBuffers()
	w.err = http.ErrHijacked
}

func (w *response) takeBuffer() {
	if w.pooled == nil {
		w.pooled = writeBuffers.Get().(*[]byte)
		w.out = *w.pooled
	}
}

func (w *response) Header() http.Header { return w.header }

// CopyField adds a field to the head of the final answer, in front of those of Header, by its
// canonical name and as it is spelled: some clients compare names with their case. A handler that
// passes an answer on needs no strings of its fields. If CopyField returns false, the field must be
// added to Header: it concerns the connection, has other values there, or is not valid.
func (w *response) CopyField(name, spelled, value []byte) bool {
	if _, set := w.header[string(name)]; set || w.status != 0 || !http1.ValidToken(name) || !http1.ValidValue(value) {
		return false
	}
	switch string(name) {
	case "Connection", "Transfer-Encoding", "Trailer":
		return false
	case "Content-Length":
		n, ok := http1.ParseLength(value)
		if !ok || w.sized {
			return false
		}
		w.length, w.sized = n, true
		return true
	case "Date":
		w.dated = true
	}
	w.copied = append(w.copied, spelled...)
	w.copied = append(w.copied, ": "...)
	w.copied = append(w.copied, value...)
	w.copied = append(w.copied, "\r\n"...)
	return true
}

// SpelledField returns the canonical name of a field of the request as the client has written it.
func (w *response) SpelledField(name string) string {
	for _, f := range w.c.spelled {
		if f.name == name {
			return f.spelled
		}
	}
	return name
}

// WriteHeader begins the answer, or sends an informational one.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || w.err != nil {
		return
	}
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		w.inform(status)
		return
	}
	w.status = status
	if !w.duplex {
		w.readRest()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
	w.decide()
	w.takeBuffer()
	w.statusLine(status)
	w.out = append(w.out, w.copied...)
	for name, values := range w.header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection":
			continue
		}
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			w.fields(name, values)
		}
	}
	if _, ok := w.header["Date"]; !ok && !w.dated {
		w.out = append(w.out, "Date: "...)
		w.out = append(w.out, date()...)
		w.out = append(w.out, "\r\n"...)
	}
	w.connection()
	w.endHead()
}

// inform sends an informational answer.
func (w *response) inform(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if status == http.StatusContinue {
		w.c.body.expected = false
	}
	w.takeBuffer()
	w.statusLine(status)
	for name, values := range w.header {
		w.fields(name, values)
	}
	w.out = append(w.out, "\r\n"...)
	_ = w.flush(nil) // the next write returns this error
}

// continueTime bounds how long a client may take to accept 100 Continue: the body waits for it, and
// the end of the request waits for the body.
const continueTime = 5 * time.Second

// sendContinue sends 100 Continue, unless the final answer has begun.
func (w *response) sendContinue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.begun {
		_ = w.c.nc.SetWriteDeadline(time.Now().Add(continueTime))
		if _, err := w.c.nc.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err == nil { // else nothing more can be written
			_ = w.c.nc.SetWriteDeadline(time.Time{})
		}
	}
}

// readRest reads a short rest of the request's body, because many clients read no answer
// while they send. If there is more, the connection ends with the answer.
func (w *response) readRest() {
	if !w.c.body.discard() {
		w.close = true
	}
}

// settle decides the framing of an answer whose length is not known when its body must go.
func (w *response) settle() {
	if w.framing != undecided {
		return
	}
	if w.c.req.ProtoMinor == 1 {
		w.framing = chunked
	} else {
		w.framing = toClose
	}
	w.endHead()
	held := w.held
	w.held = nil
	if len(held) > 0 {
		_ = w.send(held)
	}
}

// Write sends a piece of the body, at the latest with the next Flush.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case len(p) == 0:
		return 0, nil
	case w.framing == noBody && w.c.req.Method == http.MethodHead:
		return len(p), nil
	case w.framing == noBody:
		return 0, http.ErrBodyNotAllowed
	case w.framing == declared && w.written+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if w.framing == undecided {
		if len(w.held)+len(p) <= lengthUnknown {
			w.held = append(w.held, p...)
			return len(p), nil
		}
		w.settle()
	}
	if err := w.send(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// send adds a piece of the body to what waits, or sends both.
func (w *response) send(p []byte) error {
	if w.framing == chunked {
		size := strconv.AppendInt(w.size[:0], int64(len(p)), 16)
		w.out = append(append(w.out, size...), "\r\n"...)
	}
	if len(p) > gathered {
		return w.flush(p)
	}
	w.out = append(w.out, p...)
	if w.framing == chunked {
		w.out = append(w.out, "\r\n"...)
	}
	if len(w.out) >= flushAt {
		return w.flush(nil)
	}
	return nil
}

// flush sends what waits and then p, a piece of the body, in one write if the connection
// can do that.
func (w *response) flush(p []byte) error {
	if w.err != nil {
		return w.err
	}
	w.vectors = w.vector[:0]
	if len(w.out) > 0 {
		w.vectors = append(w.vectors, w.out)
	}
	if len(p) > 0 {
		w.vectors = append(w.vectors, p)
		if w.framing == chunked {
			w.vectors = append(w.vectors, lineEnd)
		}
	}
	switch {
	case len(w.vectors) == 0:
	case w.c.tcp != nil && len(w.vectors) == 1 && w.c.socket.Usable():
		_, w.err = w.c.socket.Write(w.vectors[0])
	case w.c.tcp != nil:
		_, w.err = w.vectors.WriteTo(w.c.tcp)
	default:
		for _, v := range w.vectors {
			if _, err := w.c.nc.Write(v); err != nil {
				w.err = err
				break
			}
		}
	}
	clear(w.vector[:])
	w.out = w.out[:0]
	return w.err
}

// FlushError sends what waits.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.err == nil {
		w.settle()
	}
	return w.flush(nil)
}

// Flush sends what waits.
func (w *response) Flush() { _ = w.FlushError() }

// finish ends the answer after the handler. It reports whether the connection may carry
// another request.
func (w *response) finish() bool {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.err != nil {
		return false
	}
	if w.framing == undecided {
		if w.trailers() {
			w.settle()
		} else {
			w.framing, w.length = declared, w.written
			w.endHead()
			w.out = append(w.out, w.held...)
		}
	}
	if w.framing == chunked {
		w.out = append(w.out, "0\r\n"...)
		for name, values := range w.header {
			if trailer, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
				w.fields(trailer, values)
			}
		}
		w.out = append(w.out, "\r\n"...)
	}
	if w.flush(nil) != nil {
		return false
	}
	if w.framing == declared && w.written != w.length {
		return false // the client must see that the answer is not whole
	}
	read := w.c.body.discard()
	w.c.body.mu.Lock()
	w.c.body.closed = true
	w.c.body.mu.Unlock()
	return read && !w.close
}

// trailers reports whether the handler has set any.
func (w *response) trailers() bool {
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// Hijack gives the connection to the handler.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.status != 0 {
		return nil, nil, errors.New("downstream: the answer has begun")
	}
	return w.c.hijack()
}

// EnableFullDuplex lets the answer begin while the body arrives.
func (w *response) EnableFullDuplex() error {
	w.duplex = true
	return nil
}

// SetReadDeadline bounds reads of the request's body.
func (w *response) SetReadDeadline(t time.Time) error {
	w.c.deadlined.Store(true)
	return w.c.nc.SetReadDeadline(t)
}

// SetWriteDeadline bounds writes of the answer.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.c.deadlined.Store(true)
	return w.c.nc.SetWriteDeadline(t)
}
