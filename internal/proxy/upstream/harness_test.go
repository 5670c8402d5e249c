package upstream_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// dropRingway is what an ingress drops at the least.
func dropRingway(name string) bool { return strings.HasPrefix(name, "Ringway-") }

// outcome is what one Carry returned.
type outcome struct {
	res upstream.Result
	err *upstream.Fault
}

// ingress is a net/http server whose handler is nothing but Carry.
type ingress struct {
	url      string
	addr     string
	pool     *upstream.Pool
	outcomes chan outcome
	client   *http.Client
}

// startIngress serves HTTP/1.1 and clear-text HTTP/2 in front of pool, which
// is drained at the end of the test.
func startIngress(t testing.TB, pool *upstream.Pool, exchange func(*http.Request) upstream.Options) *ingress {
	t.Helper()
	ln := procs.Listen(t)
	in := &ingress{
		url: "http://" + ln.Addr().String(), addr: ln.Addr().String(),
		pool: pool, outcomes: make(chan outcome, 64),
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var x upstream.Options
		if exchange != nil {
			x = exchange(r)
		}
		res, e := pool.Carry(w, r, &x)
		select {
		case in.outcomes <- outcome{res, e}:
		default:
		}
		switch {
		case e == nil:
			if res.Dropped {
				http.Error(w, "dropped", http.StatusServiceUnavailable)
			}
		case e.Committed():
			panic(http.ErrAbortHandler)
		default:
			http.Error(w, e.Error(), http.StatusBadGateway)
		}
	})}
	var served sync.WaitGroup
	served.Go(func() { _ = srv.Serve(ln) })
	tr := &http.Transport{DisableCompression: true}
	in.client = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = srv.Close()
		served.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := pool.Drain(ctx); err != nil {
			t.Errorf("requests are still in flight at the end: %+v", pool.Stats())
		}
	})
	return in
}

func (in *ingress) get(t testing.TB, path string) (*http.Response, string) {
	t.Helper()
	resp, err := in.client.Get(in.url + path)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("GET %s: body: %v", path, err)
	}
	return resp, string(body)
}

func newPool(t testing.TB, cfg upstream.Config) *upstream.Pool {
	t.Helper()
	p, err := upstream.NewPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rawEndpoint accepts connections and gives each to serve; all are closed at
// the end of the test.
func rawEndpoint(t testing.TB, serve func(n int, c *rawConn)) string {
	t.Helper()
	ln := procs.Listen(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for n := 0; ; n++ {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, nc)
			mu.Unlock()
			wg.Go(func() {
				defer nc.Close()
				serve(n, &rawConn{Conn: nc, br: bufio.NewReader(nc)})
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

type rawConn struct {
	net.Conn
	br *bufio.Reader
}

// dialRaw connects to an ingress.
func dialRaw(t testing.TB, addr string) *rawConn {
	t.Helper()
	nc := procs.Dial(t, addr)
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	return &rawConn{Conn: nc, br: bufio.NewReader(nc)}
}

// request reads one request with its body; nil when the connection ended.
func (c *rawConn) request() (*http.Request, string) {
	r, err := http.ReadRequest(c.br)
	if err != nil {
		return nil, ""
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, ""
	}
	return r, string(body)
}

func (c *rawConn) say(s string) { _, _ = io.WriteString(c.Conn, s) }

// untilClosed waits until the other side closes.
func (c *rawConn) untilClosed() { _, _ = io.Copy(io.Discard, c.br) }

// httpEndpoint is a net/http server as the endpoint.
func httpEndpoint(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: h, Protocols: &protocols}
	return procs.Serve(t, srv)
}

// serveInMemory serves in the bubble of a test until its end, and returns what connects to the server.
func serveInMemory(t *testing.T, server interface {
	Serve(net.Listener) error
	Close() error
}) (dial func() net.Conn) {
	far, served := make(accepting, 10), make(chan error, 1)
	go func() { served <- server.Serve(far) }()
	t.Cleanup(func() {
		close(far)
		_ = server.Close()
		<-served
		time.Sleep(time.Second) // its handlers end
	})
	return func() net.Conn {
		near, end := net.Pipe()
		far <- end
		return near
	}
}

// within fails the test when ch gives nothing: the bound only ends a hang.
func within[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}
