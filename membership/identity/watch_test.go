package identity

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/procs"
)

// echoing accepts on loopback and sends back what comes, until the test ends.
func echoing(t *testing.T, wrap func(net.Listener) net.Listener, config *tls.Config) (addr string) {
	t.Helper()
	raw := procs.Listen(t)
	procs.Accept(t, wrap(raw), func(conn net.Conn) {
		secured := tls.Server(conn, config)
		defer secured.Close()
		_, _ = io.Copy(secured, secured)
	})
	return raw.Addr().String()
}

func dialled(t *testing.T, addr string, secure func(net.Conn) *tls.Conn) *tls.Conn {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn := secure(raw)
	t.Cleanup(func() { conn.Close() })
	if !open(conn) {
		t.Fatal("no connection")
	}
	return conn
}

// open reports whether the connection still echoes data.
func open(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err := conn.Write([]byte{'?'})
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	return err == nil
}

func TestAnOpenConnectionIsClosedOnceTheCertificateOfTheOtherEndNoLongerCounts(t *testing.T) {
	for name, end := range map[Reason]func(t *testing.T, f Files, now *time.Time, older, newer *Authority){
		reasonDenied: func(t *testing.T, f Files, _ *time.Time, _, _ *Authority) { deny(t, f, "node a") },
		reasonUnknownAuthority: func(t *testing.T, f Files, _ *time.Time, _, newer *Authority) {
			if err := os.WriteFile(f.Authorities, newer.CertificatePEM(), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		reasonExpired: func(_ *testing.T, _ Files, now *time.Time, _, _ *Authority) { *now = now.Add(90 * time.Minute) },
	} {
		t.Run(string(name), func(t *testing.T) {
			older, newer := newAuthority(t), newAuthority(t)
			f := filesIn(t.TempDir())
			f.Denied = f.Key + ".denied"
			cert, key, err := newer.Issue(claimsOf(RoleRelay, "self"), 3*time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			write(t, f, PEM{Certificate: cert, Key: key, Authorities: append(older.CertificatePEM(), newer.CertificatePEM()...)})
			now := time.Now()
			self, err := NewSource(f, SourceConfig{Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			member := func(a *Authority, node string, validity time.Duration) *Source {
				cert, key, err := a.Issue(claimsOf(RoleRelay, node), validity)
				if err != nil {
					t.Fatal(err)
				}
				s, err := NewStaticSource(PEM{Certificate: cert, Key: key, Authorities: append(older.CertificatePEM(), newer.CertificatePEM()...)}, SourceConfig{})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			ours := echoing(t, self.Listener, self.ServerConfig(self.Policy(DataPlane)))
			connect := func(other *Source) (inbound, outbound *tls.Conn) {
				theirs := echoing(t, func(l net.Listener) net.Listener { return l }, other.ServerConfig(other.Policy(DataPlane)))
				return dialled(t, ours, func(c net.Conn) *tls.Conn {
						return tls.Client(c, other.ClientConfig(other.Policy(DataPlane), Expected{}))
					}),
					dialled(t, theirs, func(c net.Conn) *tls.Conn {
						return self.Client(c, self.ClientConfig(self.Policy(DataPlane), Expected{}))
					})
			}
			goneIn, goneOut := connect(member(older, "a", time.Hour))
			keptIn, keptOut := connect(member(newer, "b", 2*time.Hour))
			self.judgeOpen()
			if !open(goneIn) || !open(goneOut) {
				t.Fatal("closed without a reason")
			}
			end(t, f, &now, older, newer)
			if _, err := self.Reload(); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time there is nothing left to close
				self.judgeOpen()
			}
			if open(goneIn) || open(goneOut) {
				t.Error("still open")
			}
			if !open(keptIn) || !open(keptOut) {
				t.Error("the other member's connection was closed, too")
			}
			for _, d := range []direction{inbound, outbound} {
				if n := testutil.ToFloat64(self.metrics.closed.WithLabelValues(string(d), string(name))); n != 1 {
					t.Errorf("%s counted %v times", d, n)
				}
			}
		})
	}
}

func TestWhatIsClosedIsWatchedNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		self, other := sourceOf(t, a, claimsOf(RoleRelay, "self")), sourceOf(t, a, claimsOf(RoleRelay, "a"))
		watching := func() int {
			self.connections.mu.Lock()
			defer self.connections.mu.Unlock()
			return len(self.connections.open)
		}
		server := self.ServerConfig(self.Policy(DataPlane))
		handshake := func(client *tls.Config) (near, far *tls.Conn, err error) {
			left, right := net.Pipe()
			near, far = tls.Server(self.Watch(left), server), tls.Client(right, client)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = far.Handshake()
				_, _ = far.Read(make([]byte, 1))
			}()
			t.Cleanup(func() { right.Close(); <-done })
			return near, far, near.Handshake()
		}
		good := other.ClientConfig(other.Policy(DataPlane), Expected{})
		near, _, err := handshake(good)
		if err != nil || watching() != 1 {
			t.Fatalf("watching %d, %v", watching(), err)
		}
		_ = near.Close()
		if watching() != 0 {
			t.Error("a closed connection is watched")
		}
		refused, _, err := handshake(stranger())
		if err == nil || watching() != 0 {
			t.Errorf("watching %d without a certificate, %v", watching(), err)
		}
		_ = refused.Close()

		// One that is closed in its handshake is not watched either.
		left, _ := net.Pipe()
		w := self.Watch(left).(*watched)
		_ = w.Close()
		w.show(nil, inbound)
		if watching() != 0 {
			t.Error("watched after its end")
		}
	})
}

func TestRunClosesAConnectionWithinSecondsOfTheEndOfACertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		self, err := NewStaticSource(issued(t, a, claimsOf(RoleWorker, "w")), SourceConfig{})
		if err != nil {
			t.Fatal(err)
		}
		other, err := a.Source(claimsOf(RoleRelay, "r"), 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- self.Run(ctx) }()
		left, right := net.Pipe()
		near, far := tls.Server(self.Watch(left), self.ServerConfig(self.Policy(DataPlane))), tls.Client(right, other.ClientConfig(other.Policy(DataPlane), Expected{}))
		go func() { _ = near.Handshake() }()
		if err := far.Handshake(); err != nil {
			t.Fatal(err)
		}
		_, err = far.Read(make([]byte, 1)) // until the connection is closed
		if late := time.Since(other.Info().NotAfter); err == nil || late < 0 || late > 10*time.Second {
			t.Errorf("closed %s after the end: %v", late, err)
		}
		far.Close()
		cancel()
		<-done
	})
}
