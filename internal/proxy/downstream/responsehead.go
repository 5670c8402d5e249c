package downstream

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
)

// decide selects the framing (RFC 9112 §6.3), if the length is known.
func (w *response) decide() {
	r := w.c.req
	if !w.sized {
		w.length = contentLength(w.header)
	}
	switch {
	case w.status < 200 || w.status == http.StatusNoContent || w.status == http.StatusNotModified || r.Method == http.MethodHead:
		w.framing = noBody
	case w.length >= 0:
		w.framing = declared
	}
	// Without keep-alive in its head, the end of an answer of HTTP/1.0 is that of the connection.
	if r.ProtoMinor == 0 && w.framing == undecided {
		w.close = true
	}
	if r.Close || http1.AnyHasToken(w.header["Connection"], "close") || w.c.server.quits.Load() || w.c.over(w.c.server.clock.Load()) {
		w.close = true
	}
}

func (w *response) statusLine(status int) {
	w.out = append(w.out, "HTTP/1.1 "...)
	w.out = strconv.AppendInt(w.out, int64(status), 10)
	w.out = append(w.out, ' ')
	w.out = append(w.out, http.StatusText(status)...)
	w.out = append(w.out, "\r\n"...)
}

// fields adds a field. No value may add a line.
func (w *response) fields(name string, values []string) {
	if !http1.ValidToken(name) {
		return
	}
	for _, v := range values {
		w.out = append(w.out, name...)
		w.out = append(w.out, ": "...)
		if http1.ValidValue(v) {
			w.out = append(w.out, v...)
		} else {
			for i := range len(v) {
				if b := v[i]; http1.ValidValue(v[i : i+1]) {
					w.out = append(w.out, b)
				} else {
					w.out = append(w.out, ' ')
				}
			}
		}
		w.out = append(w.out, "\r\n"...)
	}
}

// connection adds the fields of the answer about the connection.
func (w *response) connection() {
	values := w.header["Connection"]
	w.fields("Connection", values)
	switch {
	case w.close && !http1.AnyHasToken(values, "close"):
		w.out = append(w.out, "Connection: close\r\n"...)
	case !w.close && w.c.req.ProtoMinor == 0 && len(values) == 0 && (w.framing == declared || w.framing == noBody):
		w.out = append(w.out, "Connection: keep-alive\r\n"...)
	}
}

// endHead adds the framing, if it is decided.
func (w *response) endHead() {
	switch w.framing {
	case undecided:
		return
	case noBody:
		if w.status == http.StatusNoContent || w.status < 200 {
			break
		}
		if w.sized {
			w.contentLength()
		} else if length := w.header["Content-Length"]; len(length) == 1 {
			w.fields("Content-Length", length)
		}
	case declared:
		w.contentLength()
	case chunked:
		w.out = append(w.out, "Transfer-Encoding: chunked\r\n"...)
	}
	w.out = append(w.out, "\r\n"...)
}

func (w *response) contentLength() {
	w.out = append(w.out, "Content-Length: "...)
	w.out = strconv.AppendInt(w.out, w.length, 10)
	w.out = append(w.out, "\r\n"...)
}

var lineEnd = []byte("\r\n")

// stamp is the Date field of one second.
type stamp struct {
	second int64
	text   string
}

var lastStamp atomic.Pointer[stamp]

// date returns the value of the Date field, formatted once a second.
func date() string {
	now := time.Now()
	if s := lastStamp.Load(); s != nil && s.second == now.Unix() {
		return s.text
	}
	s := &stamp{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastStamp.Store(s)
	return s.text
}
