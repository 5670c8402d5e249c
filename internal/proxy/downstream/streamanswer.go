package downstream

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/proxy/http2"
)

func (x *exchange) Header() http.Header { return x.answer }

// NeverIndexed reports whether a field of the request, or of its trailers, must not be indexed
// where it is sent on.
func (x *exchange) NeverIndexed(name string) bool {
	return x.allSecret || slices.Contains(x.secret, name)
}

// maxSecret bounds how many names are compared for each field that is sent on. With more, no field
// is indexed.
const maxSecret = 16

func (x *exchange) keepSecret(name string) {
	switch {
	case x.allSecret || slices.Contains(x.secret, name):
	case len(x.secret) == maxSecret:
		x.allSecret = true
	default:
		x.secret = append(x.secret, name)
	}
}

// NeverIndex makes a field of Header one that is not indexed, in the head or in the trailers.
func (x *exchange) NeverIndex(name string) { x.answerSecret = append(x.answerSecret, name) }

// PassField adds a field that package http2 has received to the head of the final answer, in
// front of those of Header. A handler that passes an answer on needs no map of its fields. If
// PassField returns false, the field must be added to Header: it has other values there, or is
// not one that is passed.
func (x *exchange) PassField(f http2.Field) bool {
	if x.status != 0 || f.Name == "trailer" {
		return false
	}
	if len(x.answer) > 0 {
		if _, set := x.answer[http2.CanonicalName(f.Name)]; set {
			return false
		}
	}
	switch f.Name {
	case "content-length":
		n, ok := http1.ParseLength(f.Value)
		if !ok || x.declared != "" {
			return false
		}
		x.length, x.declared = n, f.Value
		return true
	case "date":
		x.dated = true
	}
	x.passed = append(x.passed, f)
	return true
}

// AddTrailer adds a field that package http2 has received to the trailers of the answer.
func (x *exchange) AddTrailer(f http2.Field) { x.trailers = append(x.trailers, f) }

// WriteHeader begins the answer, or sends an informational one.
func (x *exchange) WriteHeader(status int) {
	if x.status != 0 {
		return
	}
	if status == http.StatusSwitchingProtocols || status < 100 || status > 999 {
		panic("downstream: an answer with status " + strconv.Itoa(status)) // HTTP/2 has no 101
	}
	if x.list(status); status < 200 {
		_ = x.s.Send(x.fields, false) // the next write returns this error
		return
	}
	x.status = status
	x.body.noContinue()
	x.empty = x.req.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
	if x.declared == "" {
		if x.length = contentLength(x.answer); x.length >= 0 {
			x.declared = x.answer["Content-Length"][0]
		}
	}
	if x.length >= 0 && status != http.StatusNoContent {
		x.fields = append(x.fields, http2.Field{Name: "content-length", Value: x.declared})
	}
	if _, ok := x.answer["Date"]; !ok && !x.dated {
		x.fields = append(x.fields, http2.Field{Name: "date", Value: date()})
	}
	if http1.AnyHasToken(x.answer["Connection"], "close") {
		x.c.h2.Shutdown()
	}
}

// list makes the fields of an answer from what was passed and its header.
func (x *exchange) list(status int) {
	x.fields = append(append(x.fields[:0], http2.Field{Name: ":status", Value: statusDigits(status)}), x.passed...)
	for name, values := range x.answer {
		switch name {
		case "Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Content-Length":
			continue
		}
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			x.fields = x.appendFields(x.fields, name, values)
		}
	}
}

// appendFields adds the fields with this name, without those that are not valid.
func (x *exchange) appendFields(fields []http2.Field, name string, values []string) []http2.Field {
	if !http1.ValidToken(name) {
		return fields
	}
	secret := slices.Contains(x.answerSecret, name)
	name = http2.LowerName(name)
	for _, v := range values {
		if http1.ValidValue(v) {
			fields = append(fields, http2.Field{Name: name, Value: v, Sensitive: secret})
		}
	}
	return fields
}

// digits has the digits of 100 to 999.
var digits = func() string {
	var b strings.Builder
	for status := 100; status <= 999; status++ {
		b.WriteString(strconv.Itoa(status))
	}
	return b.String()
}()

func statusDigits(status int) string { return digits[3*(status-100):][:3] }

// sendHead sends the head of the answer.
func (x *exchange) sendHead(end bool) error {
	x.sent = true
	return x.s.Send(x.fields, end)
}

// send sends what is held back, and then p.
func (x *exchange) send(p []byte, end bool) error {
	if !x.sent {
		if err := x.sendHead(false); err != nil {
			return err
		}
	}
	if len(x.held) > 0 {
		_, err := x.s.Write(x.held, end && len(p) == 0)
		x.dropHeld()
		if err != nil || len(p) == 0 {
			return err
		}
	}
	if len(p) == 0 && !end {
		return nil
	}
	_, err := x.s.Write(p, end)
	return err
}

// Write sends a piece of the body, at the latest with the next Flush.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case x.empty && x.req.Method == http.MethodHead:
		return len(p), nil
	case x.empty:
		return 0, http.ErrBodyNotAllowed
	case x.length >= 0 && x.written+int64(len(p)) > x.length:
		return 0, http.ErrContentLength
	}
	x.written += int64(len(p))
	if len(x.held)+len(p) <= heldAnswer {
		if x.heldPool == nil {
			x.heldPool = heldBuffers.Get().(*[]byte)
			x.held = *x.heldPool
		}
		x.held = append(x.held, p...)
		return len(p), nil
	}
	if err := x.send(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// FlushError sends what is held back.
func (x *exchange) FlushError() error {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.send(nil, false)
}

// Flush sends what is held back.
func (x *exchange) Flush() { _ = x.FlushError() }

// Brief allows to leave out the body of a short answer if the client has no window for it and
// several such answers wait already. A client that is refused could otherwise hold as many streams
// as it is refused.
func (x *exchange) Brief() { x.brief = true }

// maxBriefs is how many brief answers of a connection wait for a window.
const maxBriefs = 8

// shorten leaves out the body of a brief answer that must not wait for a window.
func (x *exchange) shorten() {
	if !x.brief || x.sent || len(x.held) == 0 || x.s.Window() >= len(x.held) {
		return
	}
	if x.waits = x.c.briefs.Add(1) <= maxBriefs; x.waits {
		return
	}
	x.c.briefs.Add(-1)
	x.dropHeld()
	x.written, x.length = 0, -1
	x.fields = slices.DeleteFunc(x.fields, func(f http2.Field) bool { return f.Name == "content-length" })
}

// finish ends the answer after the handler.
func (x *exchange) finish() {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	x.shorten()
	if x.length >= 0 && !x.empty && x.written != x.length {
		x.s.Reset(http2.InternalError) // the client must see that the answer is not whole
		return
	}
	for name, values := range x.answer {
		if trailer, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			x.trailers = x.appendFields(x.trailers, trailer, values)
		}
	}
	if !x.sent && len(x.trailers) == 0 && x.length < 0 && !x.empty {
		x.fields = append(x.fields, http2.Field{Name: "content-length", Value: strconv.FormatInt(x.written, 10)})
	}
	// An error of these means that the stream has ended, and the answer with it.
	switch {
	case len(x.trailers) > 0:
		_ = x.send(nil, false)
		_ = x.s.Send(x.trailers, true)
	case !x.sent && x.written == 0:
		_ = x.sendHead(true)
	default:
		_ = x.send(nil, true)
	}
}

// heldAnswer is how much of an answer is held back until the handler flushes or returns, so
// that a short one gets a length, and its end needs no frame of its own.
const heldAnswer = 4 << 10

// heldBuffers are for what is held back. A request that waits for its answer has none.
var heldBuffers = sync.Pool{New: func() any { b := make([]byte, 0, heldAnswer); return &b }}

func (x *exchange) dropHeld() {
	if x.heldPool != nil {
		heldBuffers.Put(x.heldPool)
		x.held, x.heldPool = nil, nil
	}
}
