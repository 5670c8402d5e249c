package upstream_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
)

// keepAliveEndpoint answers every request head with the same bytes and
// allocates nothing per request.
func keepAliveEndpoint(b *testing.B, size int) string {
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: bench\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n" + strings.Repeat("x", size))
	return rawEndpoint(b, func(_ int, c *rawConn) {
		for {
			for {
				line, err := c.br.ReadSlice('\n')
				if err != nil {
					return
				}
				if len(line) == 2 {
					break
				}
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	})
}

// discardWriter is a ResponseWriter that costs nothing but its header map.
type discardWriter struct{ h http.Header }

func (w *discardWriter) Header() http.Header         { return w.h }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *discardWriter) WriteHeader(int)             {}
func (w *discardWriter) Flush()                      {}

// BenchmarkCarry measures one request over loopback: carry-only with a writer
// that does nothing, so that the allocations are Carry's own; ingress with a
// net/http server and a raw client around it.
func BenchmarkCarry(b *testing.B) {
	for _, size := range []int{128, 16 << 10} {
		b.Run("carry-only/"+strconv.Itoa(size), func(b *testing.B) {
			p := newPool(b, upstream.Config{Address: keepAliveEndpoint(b, size)})
			defer p.Close()
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")))
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			r = r.WithContext(ctx)
			w := &discardWriter{h: make(http.Header)}
			x := upstream.Options{
				Header:       []wire.Field{{Name: "X-Forwarded-Proto", Value: "http"}, {Name: "X-Forwarded-Host", Value: "a"}},
				ForwardedFor: "192.0.2.1", Drop: dropRingway,
			}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				if _, err := p.Carry(w, r, &x); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("ingress/"+strconv.Itoa(size), func(b *testing.B) {
			in := startIngress(b, newPool(b, upstream.Config{Address: keepAliveEndpoint(b, size)}), nil)
			c := procs.Dial(b, in.addr)
			br := bufio.NewReaderSize(c, 32<<10)
			request := []byte("GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
			b.ReportAllocs()
			for b.Loop() {
				_, _ = c.Write(request)
				for {
					line, err := br.ReadSlice('\n')
					if err != nil {
						b.Fatal(err)
					}
					if len(line) == 2 {
						break
					}
				}
				if _, err := io.CopyN(io.Discard, br, int64(size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
