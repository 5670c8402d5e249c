package ingress_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/wire"
)

// marks finds the marks of clients and of their requests: k3. is of client 3, s3-14. of its
// request 14.
var marks = regexp.MustCompile(`k\d+\.|s\d+-\d+\.`)

// strange returns a mark in a text that is not of this request.
func strange(text []byte, client, request int) string {
	own, mine := fmt.Sprintf("k%d.", client), fmt.Sprintf("s%d-%d.", client, request)
	for _, m := range marks.FindAll(text, -1) {
		if string(m) != own && string(m) != mine {
			return string(m)
		}
	}
	return ""
}

// mixedEndpoint checks that a request has only its own marks, and answers with them. It breaks
// off some requests and counts them in broken, so that another endpoint gets them.
func mixedEndpoint(t *testing.T, broken *atomic.Int64) upstream.Config {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var client, n int
		if _, err := fmt.Sscanf(r.URL.Path, "/s%d-%d.", &client, &n); err != nil {
			t.Errorf("the path %q: %v", r.URL.Path, err)
			return
		}
		switch {
		case broken != nil && n%7 == 1:
			broken.Add(1)
			panic(http.ErrAbortHandler)
		case n%7 == 3: // the answer begins before the end of the body
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("X-Early", fmt.Sprintf("s%d-%d.", client, n))
			w.Header().Set("Set-Cookie", r.Header.Get("Cookie"))
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
		}
		request, err := httputil.DumpRequest(r, true)
		if err != nil {
			t.Error(err)
			return
		}
		if m := strange(request, client, n); m != "" || r.Header.Get("Authorization") != fmt.Sprintf("Bearer k%d.", client) {
			t.Errorf("%q in request %d of client %d:\n%s", m, n, client, request)
		}
		w.Header().Set("Set-Cookie", r.Header.Get("Cookie"))
		w.Header()["x-lower-case"] = []string{r.URL.Path, r.Header.Get("Authorization")}
		w.Header().Set("Trailer", "X-Checksum")
		_, _ = w.Write(request)
		w.Header().Set("X-Checksum", r.URL.Path)
	}))
	t.Cleanup(server.Close)
	return upstream.Config{Address: server.Listener.Addr().String()}
}

// mixedRequest is request n of a client. Some heads are large, and some requests have a body.
func mixedRequest(ctx context.Context, url string, client, n int) *http.Request {
	own, mine := fmt.Sprintf("k%d.", client), fmt.Sprintf("s%d-%d.", client, n)
	method, body := http.MethodGet, io.Reader(nil)
	if n%7 == 3 || n%7 == 4 {
		method, body = http.MethodPost, strings.NewReader(strings.Repeat(mine+own, 50<<(n%5)))
		if n%2 == 0 {
			body = io.MultiReader(body) // without a length
		}
	}
	r, _ := http.NewRequestWithContext(ctx, method, url+"/"+mine+"?q="+own+mine, body)
	r.Header.Set(wire.ServiceHeader, "echo")
	r.Header.Set("Authorization", "Bearer "+own)
	r.Header.Set("Cookie", "c="+own)
	if n%3 > 0 { // otherwise only the line differs from the request before
		r.Header.Set(wire.RequestIDHeader, "id-"+mine)
		r.Header.Set(wire.CallerHeader, own)
	}
	if n%11 == 5 {
		r.Header.Set("X-Large", strings.Repeat(own+mine, 600))
	}
	return r
}

// A head is copied from buffers that serve other clients afterwards, and some strings serve
// for several requests. Requests of many clients at the same time, over both versions of HTTP,
// with retries, a log and a tap, keep their secrets apart.
func TestNoByteOfARequestOrAnswerReachesAnother(t *testing.T) {
	const clients, requests = 12, 40
	var broken, tapped, logged atomic.Int64
	x := recording(t, func(c *ingress.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		c.Record.Path = requestlog.PathFull
		c.MaxInFlight = 1000
		c.ExposeRouteHeaders = true
	}, mixedEndpoint(t, &broken), mixedEndpoint(t, nil))
	stop := make(chan struct{})
	var tap sync.WaitGroup
	tap.Go(func() {
		for {
			select {
			case line := <-x.taps[0].Lines():
				tapped.Add(checkLine(t, line))
			case <-stop:
				return
			}
		}
	})
	shared := &http.Transport{Protocols: new(http.Protocols)} // streams of one connection
	shared.Protocols.SetUnencryptedHTTP2(true)
	defer shared.CloseIdleConnections()
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			transport := shared
			if client%4 > 0 {
				transport = &http.Transport{}
				defer transport.CloseIdleConnections()
			}
			if client%4 == 1 { // a connection for each request
				transport.DisableKeepAlives = true
			}
			for n := range requests {
				askMixed(t, transport, mixedRequest(t.Context(), "http://"+x.addr, client, n), client, n)
			}
		})
	}
	running.Go(func() { pipeline(t, x.addr, clients, requests) })
	running.Wait()
	close(stop)
	tap.Wait()
	if err := x.log.Close(); err != nil {
		t.Error(err)
	}
	lines, err := os.ReadFile(x.file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		logged.Add(checkLine(t, line))
	}
	if n := logged.Load(); n != (clients+1)*requests || tapped.Load() == 0 || broken.Load() == 0 {
		t.Errorf("%d lines in the log for %d requests, %d in the tap, %d retries", n, (clients+1)*requests, tapped.Load(), broken.Load())
	}
}

// askMixed sends a request and checks every byte of its answer.
func askMixed(t *testing.T, transport http.RoundTripper, r *http.Request, client, n int) {
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Errorf("request %d of client %d: %v", n, client, err)
		return
	}
	defer resp.Body.Close()
	answer, err := httputil.DumpResponse(resp, true)
	if err != nil && n%7 != 3 { // its body may be cut off
		t.Errorf("request %d of client %d: %v", n, client, err)
	}
	for name, values := range resp.Trailer {
		answer = fmt.Appendf(answer, "%s: %s\n", name, values)
	}
	if m := strange(answer, client, n); m != "" || resp.StatusCode != http.StatusOK || resp.Header.Get("Set-Cookie") != fmt.Sprintf("c=k%d.", client) {
		t.Errorf("%q in the answer to request %d of client %d:\n%s", m, n, client, answer)
	}
}

// pipeline sends requests without waiting for their answers, which have the requests' order.
func pipeline(t *testing.T, addr string, client, requests int) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	var sent bytes.Buffer
	for n := range requests {
		fmt.Fprintf(&sent, "GET /s%d-%d. HTTP/1.1\r\nHost: x\r\n%s: echo\r\nAuthorization: Bearer k%[1]d.\r\nCookie: c=k%[1]d.\r\n\r\n", client, n, wire.ServiceHeader)
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { _, _ = nc.Write(sent.Bytes()) })
	answers := following{bufio.NewReader(nc)}
	for n := range requests {
		askMixed(t, answers, nil, client, n)
	}
}

// following reads the next answer of a connection.
type following struct{ *bufio.Reader }

func (f following) RoundTrip(*http.Request) (*http.Response, error) {
	return http.ReadResponse(f.Reader, nil)
}

// checkLine returns 1 for a line of the log, whose marks must all be of one request.
func checkLine(t *testing.T, line []byte) int64 {
	var client, n int
	at := bytes.Index(line, []byte("/s"))
	if at < 0 {
		t.Errorf("no path in %s", line)
		return 1
	}
	if _, err := fmt.Sscanf(string(line[at:]), "/s%d-%d.", &client, &n); err != nil {
		t.Errorf("%v in %s", err, line)
	}
	if m := strange(line, client, n); m != "" {
		t.Errorf("%q in the line of request %d of client %d: %s", m, n, client, line)
	}
	return 1
}
