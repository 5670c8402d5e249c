package router

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/wire"
)

// answer is the http.ResponseWriter of one request. It makes the response of the head, and then the
// program reads the body.
type answer struct {
	request *http.Request
	local   ingress.Local
	ctx     context.Context // of the request, until it has ended
	cancel  context.CancelCauseFunc
	unwatch func() bool  // of ctx
	sent    *requestBody // nil without a body

	header   http.Header // of the head, then the trailers
	response *http.Response
	near     net.Conn // the handler's end of a tunnel

	mu   sync.Mutex // held while the request begins or its body is read; guards the fields below
	open bool       // body has not ended
	body ingress.Answer
	err  error // of later reads
}

// begin carries the request until its response has begun.
func (a *answer) begin(handler *ingress.Handler, in *http.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	// A program that does not read the body may still wait for the end of its context.
	a.unwatch = context.AfterFunc(a.ctx, a.leave)
	a.body, a.open = handler.Begin(a, in, &a.local)
	switch {
	case !a.open:
		a.close()
		ended := a.cause()
		if a.local.Refused == "" {
			return cmp.Or(ended, errAborted)
		}
		err := refusal(&a.local)
		if ended == nil || errors.Is(err, ended) {
			return err
		}
		return errors.Join(err, ended)
	case a.response == nil:
		a.openTunnel()
	default:
		_, _ = a.read(nil) // without a body the request ends here
	}
	return nil
}

// cause returns why the context of the program has ended, nil if it has not. A request may end at the
// deadline of the context before the timer of the context has fired, or a millisecond earlier (the
// unit in which endpoints are told the deadline), so the end of the context is awaited, but not
// for long: after a step of the clock its timer may fire much later.
func (a *answer) cause() error {
	ctx := a.request.Context()
	if at, set := ctx.Deadline(); set && a.local.Refused == wire.CodeTimeout && time.Until(at) < 10*time.Millisecond {
		patience := time.NewTimer(time.Second)
		defer patience.Stop()
		select {
		case <-ctx.Done():
		case <-patience.C:
		}
	}
	return context.Cause(ctx)
}

var errAborted = errors.New("router: the request ended without a response")

// close ends what the request has of the program.
func (a *answer) close() {
	a.unwatch()
	_ = a.sent.Close()
	a.cancel(nil)
}

// end ends the request, once. The lock is held.
func (a *answer) end(err error) {
	if a.open {
		a.open, a.err = false, err
		a.body.End()
		a.close()
	}
}

// leave ends the request when ctx has ended.
func (a *answer) leave() {
	a.sent.interrupt()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(context.Cause(a.ctx))
}

// read reads from the body. The lock is held.
func (a *answer) read(p []byte) (int, error) {
	if !a.open {
		return 0, a.err
	}
	n, err := a.body.Read(p)
	if err != nil {
		if err != io.EOF {
			err = cmp.Or(context.Cause(a.ctx), io.ErrUnexpectedEOF)
		}
		a.end(err)
	}
	return n, err
}

// responseBody is an answer as its program sees it.
type responseBody answer

func (b *responseBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := (*answer)(b).read(p)
	if err == io.EOF {
		(*answer)(b).addTrailers()
	}
	return n, err
}

// Close ends the request, also while another goroutine reads.
func (b *responseBody) Close() error {
	if !b.mu.TryLock() {
		b.cancel(nil) // ends the read
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	(*answer)(b).end(http.ErrBodyReadAfterClose)
	return nil
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader begins the response.
func (a *answer) WriteHeader(status int) {
	if status >= http.StatusOK {
		a.respond(status, (*responseBody)(a))
	} else if trace := httptrace.ContextClientTrace(a.request.Context()); trace != nil && trace.Got1xxResponse != nil {
		_ = trace.Got1xxResponse(status, textproto.MIMEHeader(maps.Clone(a.header))) // an error ends nothing but the interim response
	}
}

// respond makes the response.
func (a *answer) respond(status int, body io.ReadCloser) {
	resp := &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.Header(), Body: body, ContentLength: -1, Request: a.request,
	}
	a.response, a.header = resp, nil
	for _, names := range resp.Header["Trailer"] {
		for name := range strings.SplitSeq(names, ",") {
			if resp.Trailer == nil {
				resp.Trailer = http.Header{}
			}
			resp.Trailer[http.CanonicalHeaderKey(strings.TrimSpace(name))] = nil
		}
	}
	delete(resp.Header, "Trailer")
	maps.DeleteFunc(resp.Header, func(_ string, values []string) bool { return len(values) == 0 }) // the mark that net/http's server must not guess a type
	if length, err := strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64); err == nil && length >= 0 {
		resp.ContentLength = length
	}
	if a.request.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified {
		resp.Body = http.NoBody
	}
	if status == http.StatusSwitchingProtocols {
		resp.ContentLength = 0 // Response.Write, as called by httputil.ReverseProxy, adds Connection: close to an unknown one
	}
}

// addTrailers passes on the trailers. The reader of the body calls it at the end: until then the
// program may read the names of the trailers.
func (a *answer) addTrailers() {
	for name, values := range a.header {
		if name, trails := strings.CutPrefix(name, http.TrailerPrefix); trails {
			if a.response.Trailer == nil {
				a.response.Trailer = http.Header{}
			}
			a.response.Trailer[name] = values
		}
	}
	a.header = nil
}

// Write implements http.ResponseWriter. Nothing is written, because the program reads the body.
func (a *answer) Write([]byte) (int, error) { return 0, http.ErrNotSupported }

// SetWriteDeadline ends a request whose program does not read, if the time has passed. Later times
// have no effect: the handler watches the progress itself.
func (a *answer) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) <= 0 {
		a.cancel(os.ErrDeadlineExceeded)
	}
	return nil
}

// SetReadDeadline ends a read of the body of the request, if the time has passed.
func (a *answer) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) <= 0 {
		a.sent.interrupt()
	}
	return nil
}

// openTunnel makes a response of 101. A goroutine carries the tunnel, which outlives the context of
// its request.
func (a *answer) openTunnel() {
	near, far := net.Pipe()
	a.respond(http.StatusSwitchingProtocols, far)
	a.open, a.near = false, near
	a.unwatch()
	go func() {
		defer a.close()
		a.body.Deliver()
	}()
}

// Hijack returns the handler's end of a tunnel.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	t := tunnel{a.near}
	return t, bufio.NewReadWriter(bufio.NewReader(t), bufio.NewWriter(t)), nil
}

// tunnel is the handler's end of a tunnel to the program.
type tunnel struct{ net.Conn }

// Switched has nothing to do, because the response has begun; see upstream.
func (tunnel) Switched(http.Header) error { return nil }
