package identity

import (
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// BenchmarkHandshake measures what resumed sessions would save: see decision 23. Both
// ends are one process, so the time is that of both. The first byte of the acceptor is
// counted, too, because the ticket comes with it.
func BenchmarkHandshake(b *testing.B) {
	held := map[string]*tls.SessionState{} // one handshake at a time
	for name, resume := range map[string]func(client, server *tls.Config){
		"full": nil,
		// As crypto/tls does it: the ticket is the session, certificate included.
		"resumed by ticket": func(_, _ *tls.Config) {},
		// The acceptor holds the sessions, and a ticket names one.
		"resumed by name": func(_, server *tls.Config) {
			server.WrapSession = func(_ tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
				name := "session " + strconv.Itoa(1e6+len(held))
				held[name] = s
				return []byte(name), nil
			}
			server.UnwrapSession = func(name []byte, _ tls.ConnectionState) (*tls.SessionState, error) {
				return held[string(name)], nil
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			a := newAuthority(b)
			near, far := sourceOf(b, a, claimsOf(RoleRelay, "near")), sourceOf(b, a, claimsOf(RoleRelay, "far"))
			server, client := near.ServerConfig(near.Policy(DataPlane)), far.ClientConfig(far.Policy(DataPlane), Expected{})
			if resume != nil {
				server.GetConfigForClient = nil
				server.SessionTicketsDisabled, client.SessionTicketsDisabled = false, false
				client.ClientSessionCache, client.ServerName = tls.NewLRUClientSessionCache(1), "near"
				resume(client, server)
				shakeHands(b, client, server)
			}
			bytes := 0
			for b.Loop() {
				n, resumed := shakeHands(b, client, server)
				if resumed != (resume != nil) {
					b.Fatalf("resumed: %v", resumed)
				}
				bytes += n
			}
			b.ReportMetric(float64(bytes)/float64(b.N), "bytes/op")
		})
	}
}

// shakeHands returns how many bytes both ends have sent.
func shakeHands(b *testing.B, client, server *tls.Config) (sent int, resumed bool) {
	dialled, accepted := procs.Connected(b)
	defer dialled.Close()
	defer accepted.Close()
	down, up := &counted{Conn: accepted}, &counted{Conn: dialled}
	done := make(chan error, 1)
	go func() {
		_, err := tls.Server(down, server).Write([]byte{'!'}) // behind the handshake
		done <- err
	}()
	conn := tls.Client(up, client)
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return down.n + up.n, conn.ConnectionState().DidResume
}

type counted struct {
	net.Conn
	n int
}

func (c *counted) Write(b []byte) (int, error) {
	c.n += len(b)
	return c.Conn.Write(b)
}
