package upstream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/proxy/http1gen"
	"github.com/ringway/ringway/internal/wire"
)

// readAll runs the framing over input that arrives in pieces of step bytes.
func readAll(d *http1.Body, input []byte, step int) (body []byte, rest int, err error) {
	from, to := 0, 0
	for {
		data, used, err := d.Next(input[from:to])
		from += used
		switch err {
		case nil:
			body = append(body, data...)
		case http1.ErrNeedMore:
			if to == len(input) {
				if d.Kind() == http1.ToClose {
					return body, 0, nil
				}
				return body, 0, io.ErrUnexpectedEOF
			}
			to = min(to+step, len(input))
		case io.EOF:
			return body, len(input) - from, nil
		default:
			return body, 0, err
		}
	}
}

// FuzzResponse holds the parser against net/http: what net/http refuses is
// refused, and an accepted head means the same to both.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n005 \r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive, X-A\r\nX-A: b\r\n\r\nhello",
		"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\nA:\t b c \t\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: gzip\r\nContent-Length: x\r\nA: b\r\n\r\n",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, input []byte, head bool) {
		method := "GET"
		if head {
			method = "HEAD"
		}
		if _, _, difference := compareAnswer(input, method, 7); difference != "" {
			t.Fatalf("%q: %s", input, difference)
		}
	})
}

// compareAnswer reads an answer to method, whose body arrives in pieces of step bytes, and
// compares what it means with what net/http finds. It returns whether the answer is accepted,
// and if only net/http accepts it why.
func compareAnswer(input []byte, method string, step int) (accepted bool, refusal, difference string) {
	theirs, theirBody, theirRest, theirErr := theirAnswer(input, method)
	refused := func(err error) (bool, string, string) {
		if theirErr == nil {
			refusal = err.Error()
		}
		return false, refusal, ""
	}
	n, _, err := http1.HeadEnd(input, 0)
	if n == 0 && err == nil {
		err = io.ErrUnexpectedEOF // waits for more
	}
	if err != nil {
		return refused(err)
	}
	var h responseHead
	if err := h.parse(input[:n]); err != nil {
		return refused(err)
	}
	if h.framed { // net/http reads these fields, which mean nothing here
		unframed := append([]byte(nil), input[:bytes.IndexByte(input, '\n')+1]...)
		for _, f := range h.fields {
			if name := input[f.Name:f.NameEnd]; !http1.EqualFold(name, "content-length") && !http1.EqualFold(name, "transfer-encoding") {
				unframed = fmt.Appendf(unframed, "%s: %s\r\n", name, input[f.Value:f.ValueEnd])
			}
		}
		return compareAnswer(append(append(unframed, "\r\n"...), input[n:]...), method, step)
	}
	if theirs == nil {
		return true, "", fmt.Sprintf("accepted a head that net/http refuses: %v", theirErr)
	}
	if theirs.StatusCode != h.status {
		return true, "", fmt.Sprintf("status %d, net/http %d", h.status, theirs.StatusCode)
	}
	if difference := compareFields(&h, input[:n], theirs); difference != "" {
		return true, "", difference
	}
	d := http1.Body{MaxTrailer: 64 << 10}
	trailers := make(http.Header)
	h.begin(&d, method)
	body, rest, err := readAll(&d, input[n:], step)
	d.Trailer = func(name, value []byte) { trailers.Add(string(name), string(value)) }
	h.begin(&d, method)
	again, restAgain, errAgain := readAll(&d, input[n:], 1<<20)
	switch {
	case !bytes.Equal(body, again) || rest != restAgain || (err == nil) != (errAgain == nil):
		return true, "", fmt.Sprintf("the pieces matter: %q, %d, %v, at once %q, %d, %v", body, rest, err, again, restAgain, errAgain)
	case err != nil:
		return refused(err)
	case http1gen.RefusedBlank(input, theirErr):
		return true, "", ""
	case theirErr != nil:
		return true, "", fmt.Sprintf("accepted a body that net/http refuses: %v", theirErr)
	case !bytes.Equal(body, theirBody):
		return true, "", fmt.Sprintf("body %q, net/http %q", body, theirBody)
	case rest != theirRest:
		return true, "", fmt.Sprintf("%d bytes are left, net/http leaves %d", rest, theirRest)
	}
	for name, values := range theirs.Trailer {
		if len(values) == 0 {
			delete(theirs.Trailer, name) // it was only announced
		}
	}
	if len(trailers)+len(theirs.Trailer) > 0 && !reflect.DeepEqual(trailers, theirs.Trailer) {
		return true, "", fmt.Sprintf("trailers %q, net/http %q", trailers, theirs.Trailer)
	}
	return true, "", ""
}

// theirAnswer is what net/http finds: the head, nil if that is refused, the body, and how many
// bytes are left.
func theirAnswer(input []byte, method string) (resp *http.Response, body []byte, rest int, err error) {
	left := bytes.NewReader(input)
	in := bufio.NewReader(left)
	if resp, err = http.ReadResponse(in, &http.Request{Method: method}); err != nil {
		return nil, nil, 0, err
	}
	body, err = io.ReadAll(resp.Body)
	return resp, body, in.Buffered() + left.Len(), err
}

func compareFields(h *responseHead, buf []byte, theirs *http.Response) (difference string) {
	ours := make(http.Header)
	for i := range h.fields {
		h.fields[i].HopByHop = false // net/http keeps them
	}
	h.fill(ours, buf, &Options{PassRoute: true})
	c := copying{header: make(http.Header), copied: make(http.Header)}
	h.pass(c, bytes.Clone(buf), &Options{PassRoute: true})
	for name, values := range c.header {
		c.copied[name] = append(c.copied[name], values...)
	}
	if !reflect.DeepEqual(c.copied, ours) {
		return fmt.Sprintf("fields %q are passed as %q", ours, c.copied)
	}
	their := maps.Clone(theirs.Header)
	for _, hdr := range []http.Header{ours, their} {
		for _, name := range []string{"Transfer-Encoding", "Trailer", "Content-Length", "Connection", wire.LoadHeader, wire.FailedHeader, "Pragma", "Cache-Control"} {
			hdr.Del(name)
		}
	}
	if len(ours)+len(their) > 0 && !reflect.DeepEqual(ours, their) {
		return fmt.Sprintf("fields %q, net/http %q", ours, their)
	}
	return ""
}

// copying is a client's side that copies fields.
type copying struct {
	http.ResponseWriter
	header, copied http.Header
}

func (c copying) Header() http.Header { return c.header }

func (c copying) CopyField(name, _, value []byte) bool {
	if string(name) == "Connection" {
		return false
	}
	c.copied[string(name)] = append(c.copied[string(name)], string(value))
	return true
}

// FuzzRequestHead compares the bytes sent for a request with those received: net/http,
// which reads both, finds the same request.
func FuzzRequestHead(f *testing.F) {
	for _, s := range []string{
		"GET /a%2fb?q=%20 HTTP/1.1\r\nHost: shop.example:81\r\nConnection: X-A, keep-alive\r\nX-A: 1\r\nTe: trailers, deflate\r\n\r\n",
		"GET x:@evil.test/p HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://b.test/p?q HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://b.test HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://b.test/x%2Fy| HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://b.test?q HTTP/1.1\r\nHost: a\r\n\r\n",
		"OPTIONS http://b.test HTTP/1.1\r\nHost: a\r\n\r\n",
		"OPTIONS http://b.test/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET //b.test/p HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /p#f HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: A, Ringway-Hop\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\nRingway-Hop: x\r\nC: d\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: te, Upgrade\r\nTe: trailers\r\nUpgrade: websocket\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nRingway-Caller: b\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: 192.0.2.8\r\nCookie: a\r\nCookie: b\r\n\r\n",
		"GET / HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		in, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(input)))
		if err != nil || CheckRequest(in) != nil {
			return
		}
		x := Options{
			ForwardedFor: "192.0.2.1", Header: []wire.Field{{Name: "X-Forwarded-Proto", Value: "http"}},
			Drop: func(name string) bool { return strings.HasPrefix(name, "Ringway-") },
		}
		length := int64(0)
		if hasBody(in) {
			length = in.ContentLength
		}
		upgrade := upgradeOf(in)
		message, err := requestHead(nil, in, &x, upgrade, length, nil)
		if err != nil {
			return
		}
		body, err := io.ReadAll(in.Body)
		if err != nil {
			return // it broke off; what was sent of it ends as it did
		}
		message = appendBody(t, message, in, &x, body, length)
		rest := bufio.NewReader(bytes.NewReader(message))
		out, err := http.ReadRequest(rest)
		if err != nil {
			t.Fatalf("net/http refuses what is sent: %v\n%q\nfor\n%q", err, message, input)
		}
		wantURI := wantedTarget(in)
		if out.Method != in.Method || out.RequestURI != wantURI || out.Host != in.Host {
			t.Fatalf("sent %s %q of %q for %s %q of %q", out.Method, out.RequestURI, out.Host, in.Method, wantURI, in.Host)
		}
		if out.RequestURI[0] != '/' && (out.RequestURI != "*" || out.Method != http.MethodOptions) {
			t.Fatalf("sent the target %q for %s", out.RequestURI, out.Method)
		}
		got, err := io.ReadAll(out.Body)
		if left, _ := io.ReadAll(rest); err != nil || !bytes.Equal(got, body) || len(left) > 0 || out.ContentLength != length {
			t.Fatalf("sent the body %q of length %d and %q behind it (%v), for %q of %d", got, out.ContentLength, left, err, body, length)
		}
		for name := range out.Trailer {
			if strings.HasPrefix(name, "Ringway-") {
				t.Fatalf("sent the trailer %s", name)
			}
		}
		want := wantedHeader(in, upgrade)
		if want["Te"] != nil { // RFC 9110 §10.1.4; over HTTP/2 it needs no option
			want["Connection"] = []string{strings.Join(append(want["Connection"], "TE"), ", ")}
		}
		for _, name := range []string{"Content-Length", "Expect"} { // framing, compared above, and fields for the next hop
			out.Header.Del(name)
		}
		if !reflect.DeepEqual(out.Header, want) {
			t.Fatalf("sent %q, want %q", out.Header, want)
		}
	})
}

var absoluteForm = regexp.MustCompile(`^[^:/?#]+://[^/?]*`)

// wantedTarget is the target that a service should see: the slow way.
func wantedTarget(in *http.Request) string {
	target := absoluteForm.ReplaceAllString(in.RequestURI, "")
	switch {
	case target == "" && in.Method == http.MethodOptions:
		return "*"
	case target == "" || target[0] == '?':
		return "/" + target
	}
	return target
}

// appendBody frames a body as a sender does.
func appendBody(t *testing.T, message []byte, in *http.Request, x *Options, body []byte, length int64) []byte {
	t.Helper()
	if length >= 0 {
		return append(message, body...)
	}
	var sent bytes.Buffer
	s := &sender{body: &clientBody{body: io.NopCloser(bytes.NewReader(body)), length: noLength}, r: in, x: x, chunked: true, c: &conn{Conn: sink{&sent}}}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	return append(message, sent.Bytes()...)
}

// sink is a connection that is only written to.
type sink struct{ io.Writer }

func (sink) Read([]byte) (int, error)         { return 0, io.EOF }
func (sink) Close() error                     { return nil }
func (sink) LocalAddr() net.Addr              { return nil }
func (sink) RemoteAddr() net.Addr             { return nil }
func (sink) SetDeadline(time.Time) error      { return nil }
func (sink) SetReadDeadline(time.Time) error  { return nil }
func (sink) SetWriteDeadline(time.Time) error { return nil }

// wantedHeader is what a service should see of a request's fields: the slow way.
func wantedHeader(in *http.Request, upgrade string) http.Header {
	want := in.Header.Clone()
	for _, name := range strings.Split(strings.Join(in.Header["Connection"], ","), ",") {
		want.Del(strings.Trim(name, " \t"))
	}
	client := append(want["X-Forwarded-For"], "192.0.2.1")
	for name := range want {
		if hopRequest(name) || strings.HasPrefix(name, "Ringway-") {
			delete(want, name)
		}
	}
	want["X-Forwarded-For"], want["X-Forwarded-Proto"] = []string{strings.Join(client, ", ")}, []string{"http"}
	if http1.AnyHasToken(in.Header["Te"], "trailers") {
		want["Te"] = []string{"trailers"}
	}
	if upgrade != "" {
		want["Connection"], want["Upgrade"] = []string{"Upgrade"}, []string{upgrade}
	}
	return want
}
