package upstream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"

	"github.com/ringway/ringway/internal/wire"
)

// dropReserved is what an ingress drops at the least.
func dropReserved(name string) bool { return strings.HasPrefix(name, wire.ReservedPrefix) }

// FuzzHTTP2Request holds what a service gets over HTTP/2 against what net/http read
// over HTTP/1.1: the same request, or none.
func FuzzHTTP2Request(f *testing.F) {
	service, pool, _ := startH2(f)
	f.Fuzz(func(t *testing.T, input []byte, http2Client bool) {
		in, want, body := readTwice(input)
		if in == nil {
			return
		}
		if http2Client {
			in.Proto, in.ProtoMajor, in.ProtoMinor = "HTTP/2.0", 2, 0
			in.TransferEncoding = nil
		}
		service.mu.Lock()
		service.answer, service.got = h2Answer{heads: []string{":status 204"}}, h2Request{}
		service.mu.Unlock()
		_, err := pool.Carry(httptest.NewRecorder(), in, &Options{
			ForwardedFor: "192.0.2.1", Header: []wire.Field{{Name: "X-Forwarded-Proto", Value: "http"}}, Drop: dropReserved,
		})
		service.mu.Lock()
		got := service.got
		service.mu.Unlock()
		if got.garbled {
			t.Fatalf("the service cannot read what is sent for\n%q", input)
		}
		if err != nil {
			if !err.Client() {
				t.Fatalf("the endpoint is blamed: %v, for\n%q", err, input)
			}
			return
		}
		uri := notInURI.ReplaceAllStringFunc(wantedTarget(want), url.QueryEscape)
		if want.Host == "" {
			want.Host = pool.Address() // as net/http's own client does
		}
		if p := got.pseudo; p[":method"] != want.Method || p[":path"] != uri || p[":authority"] != want.Host || p[":scheme"] != "http" || len(p) != 4 {
			t.Fatalf("sent %q for %s %q of %q", p, want.Method, uri, want.Host)
		}
		if uri[0] != '/' && (uri != "*" || want.Method != http.MethodOptions) {
			t.Fatalf("sent the target %q for %s", uri, want.Method)
		}
		if !bytes.Equal(got.body, body) {
			t.Fatalf("sent the body %q, want %q", got.body, body)
		}
		if l, declared := got.header["Content-Length"]; declared && (len(l) != 1 || l[0] != strconv.Itoa(len(body))) {
			t.Fatalf("sent the lengths %q, for %d bytes", l, len(body))
		}
		got.header.Del("Content-Length")
		got.header.Del("Trailer") // only announces
		if asks := hasBody(in) && expectsContinue(in); asks != (got.header.Get("Expect") == "100-continue") {
			t.Fatalf("sent Expect %q for %q, %d bytes", got.header["Expect"], want.Header["Expect"], len(body))
		}
		got.header.Del("Expect")
		header := wantedHeader(want, "")
		for _, h := range []http.Header{got.header, header} { // one field each, RFC 9113 §8.2.3
			crumbs := strings.FieldsFunc(strings.Join(h["Cookie"], ";"), func(r rune) bool { return r == ';' || r == ' ' })
			if h["Cookie"] = crumbs; len(crumbs) == 0 {
				delete(h, "Cookie")
			}
		}
		if !reflect.DeepEqual(got.header, header) {
			t.Fatalf("sent %q, want %q", got.header, header)
		}
		for name, values := range got.trailer {
			if dropReserved(name) || !trailerField(name) || !reflect.DeepEqual(values, want.Trailer[name]) {
				t.Fatalf("sent the trailer %s %q, of %q", name, values, want.Trailer)
			}
		}
	})
}

var notInURI = regexp.MustCompile(`[^!$-;=?-\[\]_a-z~]`)

// readTwice reads a request as net/http's server does, to carry it and to compare with.
// It is nil when net/http refuses it, or its body.
func readTwice(input []byte) (in, want *http.Request, body []byte) {
	read := func() *http.Request {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(input)))
		if err != nil || r.Method == http.MethodConnect || !httpguts.ValidHostHeader(r.Host) {
			return nil
		}
		for name, values := range r.Header {
			for _, v := range values {
				if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(v) {
					return nil
				}
			}
		}
		return r
	}
	if want = read(); want == nil {
		return nil, nil, nil
	}
	body, err := io.ReadAll(want.Body)
	if err != nil {
		return nil, nil, nil
	}
	return read(), want, body
}

// FuzzHTTP2Answer holds what a client of net/http reads from the relay against what a
// hostile service sent over HTTP/2: the same answer, or the relay's own.
func FuzzHTTP2Answer(f *testing.F) {
	service, pool, host := startH2(f)
	type outcome struct {
		err   *Fault
		panic any
	}
	outcomes := make(chan outcome, 1)
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o outcome
		defer func() {
			if o.panic = recover(); o.panic != nil {
				o.err = nil
			}
			outcomes <- o
			if o.panic != nil || o.err != nil && o.err.Committed() {
				panic(http.ErrAbortHandler)
			}
		}()
		if _, o.err = pool.Carry(w, r, &Options{}); o.err != nil && !o.err.Committed() {
			w.Header().Set("X-Refused", "1")
			w.WriteHeader(http.StatusBadGateway)
		}
	})}
	ln, err := host.Listen("10.0.0.1:81")
	if err != nil {
		f.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = front.Serve(ln) })
	f.Cleanup(func() {
		_ = front.Close()
		served.Wait()
	})
	f.Fuzz(func(t *testing.T, heads string, body []byte, trailers string, head bool, reset uint8) {
		answer := h2Answer{heads: strings.Split(heads, "\n\n"), body: body[:min(len(body), 8<<10)], trailers: trailers, reset: http2.ErrCode(reset)}
		service.mu.Lock()
		service.answer = answer
		service.mu.Unlock()
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		c, err := host.Dial(t.Context(), "10.0.0.1:81")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "%s / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", method)
		said, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		o := <-outcomes
		if o.panic != nil {
			t.Fatalf("the relay panics: %v", o.panic)
		}
		in := bufio.NewReader(bytes.NewReader(said))
		var got *http.Response
		for n := 0; ; n++ {
			if got, err = http.ReadResponse(in, &http.Request{Method: method}); err != nil {
				if o.err != nil && o.err.Committed() {
					return // broken off before anything was written
				}
				t.Fatalf("net/http refuses what the client gets: %v\n%q", err, said)
			}
			nothingReserved(t, got.Header)
			if got.StatusCode >= 200 {
				break
			}
			if got.StatusCode == http.StatusSwitchingProtocols || n >= len(said) {
				t.Fatalf("informational answer %d is %d", n, got.StatusCode)
			}
		}
		if got.Header.Get("X-Refused") != "" && o.err != nil {
			return
		}
		gotBody, err := io.ReadAll(got.Body)
		if o.err != nil {
			if o.err.Client() {
				t.Fatalf("the client is blamed: %v\n%q", o.err, said)
			}
			if err == nil && !got.Close && got.ContentLength < 0 {
				t.Fatalf("a broken answer ends like a whole one: %v\n%q", o.err, said)
			}
			return
		}
		if left, _ := io.ReadAll(in); err != nil || len(left) > 0 {
			t.Fatalf("the body ends with %v, and %q follows\n%q", err, left, said)
		}
		compareH2Answer(t, answer, got, gotBody)
	})
}

func nothingReserved(t *testing.T, h http.Header) {
	t.Helper()
	for name := range h {
		if dropReserved(name) {
			t.Fatalf("the client gets %s", name)
		}
	}
}

// compareH2Answer compares what the service sent with what the client got: the slow way.
func compareH2Answer(t *testing.T, a h2Answer, got *http.Response, body []byte) {
	t.Helper()
	status, want := "", http.Header{}
	for _, f := range fieldsOf(finalHead(a.heads)) {
		if f.Name == ":status" {
			status = f.Value
		} else {
			want.Add(f.Name, textproto.TrimString(f.Value)) // as net/http's server does
		}
	}
	if code, err := strconv.Atoi(status); err != nil || got.StatusCode != code {
		t.Fatalf("status %q for %q", got.Status, status)
	}
	for _, h := range []http.Header{want, got.Header} {
		for name := range h {
			s := h2Stream{r: &http.Request{}, x: new(Options)}
			if !s.keeps(name) || name == "Trailer" || name == "Content-Length" {
				delete(h, name)
			}
		}
	}
	if _, ok := want["Date"]; !ok {
		got.Header.Del("Date") // net/http's
	}
	if !reflect.DeepEqual(got.Header, want) {
		t.Fatalf("header %q, want %q", got.Header, want)
	}
	if got.Request.Method == http.MethodHead || got.StatusCode == http.StatusNoContent || got.StatusCode == http.StatusNotModified {
		return
	}
	if !bytes.Equal(body, a.body) {
		t.Fatalf("body %q, want %q", body, a.body)
	}
	nothingReserved(t, got.Trailer)
	said := http.Header{}
	for _, f := range fieldsOf(a.trailers) {
		said.Add(f.Name, textproto.TrimString(f.Value))
	}
	for name, values := range got.Trailer {
		if !trailerField(name) || len(values) > 0 && !reflect.DeepEqual(values, said[name]) {
			t.Fatalf("trailer %s %q, want %q", name, values, said[name])
		}
	}
}

// finalHead is the first head that is not informational.
func finalHead(heads []string) string {
	for _, head := range heads {
		for _, f := range fieldsOf(head) {
			if code, err := strconv.Atoi(f.Value); f.Name == ":status" && err == nil && code >= 200 {
				return head
			}
		}
	}
	return ""
}
