package router

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/wire"
)

// RoundTrip sends a request to an endpoint of the service that is the host of the URL, and
// returns the response. A failed attempt is repeated at another endpoint as the policy of the
// service and the method allow. Strategies by key take the key of [WithKey], else the header
// Ringway-Key. The error is an [*Error] if the router ended the request. A response of 101 has an
// io.ReadWriteCloser as its body.
func (r *Router) RoundTrip(req *http.Request) (*http.Response, error) {
	service, err := serviceOf(req)
	if err == nil && r.cfg.PickOnly {
		err = errPickOnly
	}
	if err == nil {
		err = r.awaitOffer(req.Context(), service)
	}
	if err != nil {
		closeBody(req)
		return nil, err
	}
	ctx, cancel := context.WithCancel(req.Context())
	a := &answer{request: req, local: ingress.Local{Service: service}, cancel: cancel, begun: make(chan struct{}), header: http.Header{}}
	a.body.r, a.body.w = io.Pipe()
	// A program that has not read the body may still wait for the end of its context.
	a.unwatch = context.AfterFunc(ctx, func() { _ = a.body.w.CloseWithError(context.Cause(ctx)) })
	in := inbound(req, ingress.WithLocal(ctx, &a.local))
	if in.Body != http.NoBody {
		a.sent = newRequestBody(in.Body)
		in.Body = a.sent
	}
	go a.run(r.attempts, in)
	<-a.begun
	if a.err != nil {
		return nil, a.err
	}
	return a.response, nil
}

var errPickOnly = errors.New("router: the configuration has PickOnly, so the router carries no requests: use Pick, or leave PickOnly unset")

// serviceOf returns the service that a request names.
func serviceOf(req *http.Request) (string, error) {
	if req.URL == nil {
		return "", errors.New("router: the request has no URL")
	}
	if req.URL.Scheme != "http" {
		return "", fmt.Errorf("router: the scheme of %q is not http: the router itself decides on TLS", req.URL.Redacted())
	}
	service := req.URL.Host
	if err := affinity.ValidateService(service); err != nil {
		return "", fmt.Errorf("router: the host of %q must be the name of a service: %w", req.URL.Redacted(), err)
	}
	return service, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // RoundTrip must close it, also if it fails
	}
}

// WithKey sets the key of requests with this context: with a strategy by key, all requests to a
// service with one key go to one worker. Pick takes the key itself.
func WithKey(ctx context.Context, key string) context.Context { return wire.WithKey(ctx, key) }

// inbound returns the request as a server would have received it.
func inbound(req *http.Request, ctx context.Context) *http.Request {
	in := req.WithContext(ctx)
	in.RequestURI, in.ProtoMajor, in.ProtoMinor, in.Proto = "", 1, 1, "HTTP/1.1"
	if in.Method == "" {
		in.Method = http.MethodGet
	}
	if in.Host == "" {
		in.Host = in.URL.Host
	}
	in.Header = canonical(in.Header)
	if key := wire.KeyOf(ctx); key != "" {
		in.Header = maps.Clone(in.Header) // it is the program's
		in.Header[wire.KeyHeader] = []string{key}
	}
	switch {
	case in.Body == nil || in.Body == http.NoBody:
		in.Body, in.ContentLength = http.NoBody, 0
	case in.ContentLength == 0:
		in.ContentLength = -1 // net/http's clients mean an unknown length
	}
	return in
}

// canonical returns a header with the names in the form that a server gives them.
func canonical(header http.Header) http.Header {
	if header == nil {
		return http.Header{}
	}
	all, copied := header, false
	for name, values := range header {
		form := http.CanonicalHeaderKey(name)
		if form == name {
			continue
		}
		if !copied { // the header is that of the program
			all, copied = maps.Clone(header), true
		}
		delete(all, name)
		all[form] = append(slices.Clip(all[form]), values...)
	}
	return all
}

// answer is the http.ResponseWriter of one request, and makes the response of it.
type answer struct {
	request *http.Request
	local   ingress.Local
	cancel  context.CancelFunc
	unwatch func() bool  // of the context
	sent    *requestBody // nil without a body

	begun    chan struct{} // closed when response or err is set
	response *http.Response
	err      error

	// Used by the goroutine of the handler.
	header http.Header
	began  bool
	none   bool // the response has no body
	body   struct {
		r *io.PipeReader
		w *io.PipeWriter
	}
}

// run lets the handler answer.
func (a *answer) run(handler http.Handler, in *http.Request) {
	defer a.cancel()
	defer a.unwatch()
	defer a.sent.Close()
	defer func() {
		aborted := recover()
		if aborted != nil && aborted != http.ErrAbortHandler {
			panic(aborted)
		}
		a.end(aborted != nil)
	}()
	handler.ServeHTTP(a, in)
}

// end ends the response.
func (a *answer) end(aborted bool) {
	switch {
	case a.local.Refused != "":
		a.fail(refusal(&a.local))
	case aborted && !a.began:
		a.fail(cmp.Or(context.Cause(a.request.Context()), errAborted))
	case aborted:
		_ = a.body.w.CloseWithError(cmp.Or(context.Cause(a.request.Context()), io.ErrUnexpectedEOF))
	default:
		a.WriteHeader(http.StatusOK) // as a server does if the handler has not
		_ = a.body.w.Close()
	}
}

var errAborted = errors.New("router: the request ended without a response")

func (a *answer) fail(err error) {
	a.began, a.err = true, err
	close(a.begun)
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader begins the response.
func (a *answer) WriteHeader(status int) {
	if a.began {
		return
	}
	if status < http.StatusOK {
		if trace := httptrace.ContextClientTrace(a.request.Context()); trace != nil && trace.Got1xxResponse != nil {
			_ = trace.Got1xxResponse(status, textproto.MIMEHeader(maps.Clone(a.header))) // an error ends nothing but the interim response
		}
		return
	}
	a.begin(status, a.header, &responseBody{a.body.r, a})
}

// begin makes the response.
func (a *answer) begin(status int, header http.Header, body io.ReadCloser) {
	a.began = true
	resp := &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: maps.Clone(header), Body: body, ContentLength: -1, Request: a.request,
	}
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
		a.none, resp.Body = true, http.NoBody
	}
	if status == http.StatusSwitchingProtocols {
		resp.ContentLength = 0 // Response.Write, as called by httputil.ReverseProxy, adds Connection: close to an unknown one
	}
	a.response = resp
	close(a.begun)
}

// addTrailers passes on the trailers, which the handler has put into the header since the
// response began. The reader of the body calls it at the end: until then the program may read
// the names of the trailers.
func (a *answer) addTrailers() {
	for name, values := range a.header {
		if name, trails := strings.CutPrefix(name, http.TrailerPrefix); trails {
			if a.response.Trailer == nil {
				a.response.Trailer = http.Header{}
			}
			a.response.Trailer[name] = values
		}
	}
}

// Write hands a piece of the body to the reader of the response.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.none {
		return len(b), nil
	}
	return a.body.w.Write(b)
}

// Flush implements http.Flusher: nothing is held back.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// EnableFullDuplex implements http.ResponseController: the body of the request can always be
// read.
func (a *answer) EnableFullDuplex() error { return nil }

// SetWriteDeadline ends a Write that waits for a reader, if the time has passed. Later times have
// no effect: the handler watches the progress itself.
func (a *answer) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) <= 0 {
		_ = a.body.w.CloseWithError(os.ErrDeadlineExceeded)
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

// Hijack returns the handler's end of a tunnel.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	here, there := net.Pipe()
	t := &tunnel{Conn: here, there: there, answer: a}
	return t, bufio.NewReadWriter(bufio.NewReader(t), bufio.NewWriter(t)), nil
}

// tunnel is the handler's end of a tunnel to the program.
type tunnel struct {
	net.Conn
	there  net.Conn
	answer *answer
}

// Switched begins the response with status 101; see upstream.
func (t *tunnel) Switched(header http.Header) error {
	t.answer.begin(http.StatusSwitchingProtocols, header, t.there)
	return nil
}

// responseBody has the trailers when it has been read, and ends the request when the program
// closes it.
type responseBody struct {
	*io.PipeReader
	answer *answer
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.PipeReader.Read(p)
	if err == io.EOF {
		b.answer.addTrailers()
	}
	return n, err
}

func (b *responseBody) Close() error {
	b.answer.cancel()
	return b.PipeReader.Close()
}

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
