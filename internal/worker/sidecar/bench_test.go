package sidecar

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

// quick is a service that answers every request on a keep-alive connection with
// 128 bytes, without allocating.
func quick(tb testing.TB) advertise.Service {
	tb.Helper()
	ln := procs.Listen(tb)
	answer := append([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 128\r\n\r\n"), make([]byte, 128)...)
	procs.Accept(tb, ln, func(conn net.Conn) {
		for r := bufio.NewReader(conn); ; {
			for blank := false; !blank; {
				line, err := r.ReadSlice('\n')
				if err != nil {
					return
				}
				blank = len(line) == 2
			}
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	})
	return advertise.Service{Name: "echo", Address: ln.Addr().String()}
}

// discard is a client that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func get() *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.Body = http.NoBody
	return r
}

// carry is what a relay does with a request, without its own ingress.
func carry(b *testing.B, pool *upstream.Pool, x upstream.Options) {
	b.Helper()
	r, w := get(), discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		if res, err := pool.Carry(w, r, &x); err != nil || res.Status != 200 {
			b.Fatal(res, err)
		}
	}
	b.StopTimer()
	if err := pool.Drain(context.Background()); err != nil {
		b.Error(err)
	}
}

// BenchmarkDirect is a request from a relay to a service, in clear text.
func BenchmarkDirect(b *testing.B) {
	pool, err := upstream.NewPool(upstream.Config{Address: quick(b).Address})
	if err != nil {
		b.Fatal(err)
	}
	carry(b, pool, upstream.Options{})
}

// BenchmarkSidecar is the same through a sidecar: what it has more is the price,
// with the encryption at both ends, of two more passes through the kernel.
func BenchmarkSidecar(b *testing.B) {
	for protocol, alpn := range map[advertise.Protocol]string{advertise.HTTP1: "http/1.1", advertise.H2C: "h2"} {
		b.Run(alpn, func(b *testing.B) {
			s := start(b, nil, quick(b))
			relay := source(b, s.authority, claims(identity.RoleRelay, "r1"))
			pool, err := upstream.NewPool(upstream.Config{Address: s.Addr().String(), Protocol: protocol, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				d := tls.Dialer{Config: relay.ClientConfig(relay.Policy(identity.DataPlane), identity.Expected{Node: "w1"}, alpn)}
				return d.DialContext(ctx, network, address)
			}})
			if err != nil {
				b.Fatal(err)
			}
			carry(b, pool, upstream.Options{Sidecar: true, Header: []wire.Field{{Name: wire.ServiceHeader, Value: "echo"}}})
		})
	}
}

// BenchmarkHandler is the sidecar's own part, without net/http's server and TLS.
func BenchmarkHandler(b *testing.B) {
	s := start(b, nil, quick(b))
	r, w := get(), discard{http.Header{}}
	r.Header.Set(wire.ServiceHeader, "echo")
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		s.serve(w, r)
	}
}
