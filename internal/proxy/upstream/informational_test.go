package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

func TestExpectedContinueIsTheEndpointsToGive(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for {
			r, err := http.ReadRequest(c.br)
			if err != nil {
				return
			}
			if r.Header.Get("Expect") != "100-continue" {
				t.Errorf("Expect %q", r.Header.Get("Expect"))
			}
			if r.URL.Path == "/no" {
				c.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
				c.untilClosed()
				return
			}
			c.say("HTTP/1.1 100 Continue\r\n\r\n")
			body, _ := io.ReadAll(r.Body)
			c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, ExpectContinueTimeout: time.Minute}), nil)
	in.client.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	for path, want := range map[string]string{"/yes": "hello", "/no": "no"} {
		read := false
		req, _ := http.NewRequest("POST", in.url+path, readerFunc(func(p []byte) (int, error) {
			if read {
				return 0, io.EOF
			}
			read = true
			return copy(p, "hello"), io.EOF
		}))
		req.ContentLength = 5
		req.Header.Set("Expect", "100-continue")
		resp, err := in.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != want {
			t.Errorf("%s: %q", path, body)
		}
		if read != (path == "/yes") {
			t.Errorf("%s: body sent: %v", path, read)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestEndpointThatIgnoresExpectGetsTheBody(t *testing.T) {
	for name, hints := range map[string]string{"silent": "", "with hints": "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"} {
		addr := rawEndpoint(t, func(_ int, c *rawConn) {
			for {
				r, err := http.ReadRequest(c.br)
				if err != nil {
					return
				}
				c.say(hints)
				body, _ := io.ReadAll(r.Body)
				c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			}
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, ExpectContinueTimeout: 10 * time.Millisecond}), nil)
		in.client.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
		req, _ := http.NewRequest("POST", in.url, strings.NewReader("hello"))
		req.Header.Set("Expect", "100-continue")
		resp, err := in.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != "hello" {
			t.Errorf("%s: body %q", name, body)
		}
	}
}

// Nothing of the body was read, so another endpoint can get the request.
func TestAnEndpointThatEndsBeforeItsContinueHasTakenNoBody(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) { _, _ = http.ReadRequest(c.br) })
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, ExpectContinueTimeout: time.Minute}), nil)
	in.client.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	req, _ := http.NewRequest("PUT", in.url, strings.NewReader("hello"))
	req.Header.Set("Expect", "100-continue")
	resp, err := in.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if out := within(t, in.outcomes, "outcome"); out.err == nil || out.err.BodyConsumed() {
		t.Errorf("%+v", out.err)
	}
}

func TestEarlyHintsPass(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for r, _ := c.request(); r != nil; r, _ = c.request() {
			c.say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	var hints []string
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, h.Get("Link")))
			return nil
		},
	})
	req, _ := http.NewRequestWithContext(ctx, "GET", in.url, nil)
	resp, err := in.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if fmt.Sprint(hints) != "[103</a.css>]" || string(body) != "ok" || resp.Header.Get("Link") != "" {
		t.Errorf("hints %v, body %q, header %v", hints, body, resp.Header)
	}
}

// A head without a body ends with its empty line, whatever it declares. An endpoint that declares
// a body there may send one, and then the next answer would not be that of its request.
func TestInformationalAnswersAreBoundedByTheirBytesAndTheirFramingMeansNothing(t *testing.T) {
	const processing, ok = "HTTP/1.1 102 Processing\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for name, c := range map[string]struct {
		first  string
		status string
		conns  int // that two requests need
	}{
		"many":             {strings.Repeat(processing, 1000) + ok, "200", 1},
		"too many bytes":   {strings.Repeat(processing, (256<<10)/len(processing)+1) + ok, "502", 2},
		"a length":         {"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n" + ok, "200", 2},
		"two framings":     {"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + ok, "200", 2},
		"malformed length": {"HTTP/1.1 102 Processing\r\nContent-Length: x\r\nContent-Length: 3\r\n\r\n" + ok, "200", 2},
		"100 with chunks":  {"HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n" + ok, "200", 2},
		"a body":           {"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhello" + ok, "502", 2},
	} {
		var conns atomic.Int32
		addr := rawEndpoint(t, func(_ int, conn *rawConn) {
			conns.Add(1)
			for r, _ := conn.request(); r != nil; r, _ = conn.request() {
				if r.URL.Path == "/first" {
					conn.say(c.first)
				} else {
					conn.say(ok)
				}
			}
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
		client := dialRaw(t, in.addr)
		client.say("POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		status := 0
		for status < 200 {
			resp, err := http.ReadResponse(client.br, nil)
			if err != nil {
				t.Fatal(name, err)
			}
			if status = resp.StatusCode; status < 200 && len(resp.TransferEncoding)+len(resp.Header["Content-Length"]) > 0 {
				t.Errorf("%s: %v %v", name, resp.TransferEncoding, resp.Header)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		resp, body := in.get(t, "/second")
		if got := fmt.Sprint(status); got != c.status || resp.StatusCode != 200 || body != "ok" || int(conns.Load()) != c.conns {
			t.Errorf("%s: %s, then %d %q, over %d connections", name, got, resp.StatusCode, body, conns.Load())
		}
	}
}
