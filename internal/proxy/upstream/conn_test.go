package upstream

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"testing"
)

// BenchmarkLook measures what a request pays for the look at the idle connection that
// it is about to use: a system call, and over TLS a read that does not reach the
// socket as well.
func BenchmarkLook(b *testing.B) {
	for _, name := range []string{"plain", "TLS"} {
		b.Run(name, func(b *testing.B) {
			server := httptest.NewUnstartedServer(nil)
			dial := func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }
			if name == "TLS" {
				server.StartTLS()
				dial = func(addr string) (net.Conn, error) {
					return tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
				}
			} else {
				server.Start()
			}
			defer server.Close()
			nc, err := dial(server.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			// An answer, so that no session ticket is on the way any more.
			if _, err := io.WriteString(nc, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				b.Fatal(err)
			}
			if _, err := nc.Read(make([]byte, 4096)); err != nil {
				b.Fatal(err)
			}
			c := newConn(nc)
			defer c.Close()
			c.used = true
			b.ReportAllocs()
			for b.Loop() {
				if c.stale() {
					b.Fatal("the connection is over")
				}
			}
		})
	}
}
