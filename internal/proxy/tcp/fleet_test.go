package tcp_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership/identity"
)

// patience bounds every wait of these tests. They wait for states, so it is
// reached only when something is broken.
const patience = 30 * time.Second

// service is a TCP service. It keeps the connections that it has accepted.
type service struct {
	net.Listener
	mu    sync.Mutex
	conns []*net.TCPConn
	done  sync.WaitGroup
}

// serveTCP serves connections until the end of the test.
func serveTCP(t *testing.T, serve func(*net.TCPConn)) *service {
	t.Helper()
	ln := procs.Listen(t)
	s := &service{Listener: ln}
	s.done.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn.(*net.TCPConn))
			s.mu.Unlock()
			s.done.Go(func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(s.die)
	return s
}

// die ends the service and its connections.
func (s *service) die() {
	_ = s.Close()
	s.mu.Lock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}

// echoAfter sends a greeting, reads all, and answers with what it has read.
func echoAfter(conn *net.TCPConn) {
	_, _ = io.WriteString(conn, "hello ")
	all, err := io.ReadAll(conn)
	if err == nil {
		_, _ = conn.Write(all)
	}
}

// echo answers each piece with the same.
func echo(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }

// tcpFleet is a fleet whose members take TCP sessions for the service "db".
type tcpFleet struct {
	*fleet.Fleet
	t *testing.T
}

func newFleet(t *testing.T, insecure bool) *tcpFleet {
	t.Helper()
	f := &tcpFleet{fleet.New(fleet.Config{Cluster: "test", Environment: "ci", Insecure: insecure}), t}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *tcpFleet) relay(id string, change func(*relay.Settings)) {
	f.t.Helper()
	if err := f.StartRelay(id, func(s *relay.Settings) {
		s.TCP.Ingress.Set("0=db")
		s.TCP.Passthrough.Set("0")
		s.Requests.Domain = "example.com"
		if change != nil {
			change(s)
		}
	}); err != nil {
		f.t.Fatal(err)
	}
}

func gate(s *relay.Settings) { s.Role = identity.RoleGate }

func (f *tcpFleet) worker(id string, s net.Listener, options string) {
	f.t.Helper()
	if err := f.StartWorker(fleet.WorkerConfig{ID: id, Change: func(to *worker.Settings) {
		to.Services = []string{"db=" + s.Addr().String() + ";protocol=tcp" + options}
	}}); err != nil {
		f.t.Fatal(err)
	}
}

// addr returns the address of a relay for sessions with db.
func (f *tcpFleet) addr(id string) string { return f.Relay(id).TCPAddrs()[0] }

// passthrough returns the address of a relay for TLS that passes through.
func (f *tcpFleet) passthrough(id string) string { return f.Relay(id).TCPAddrs()[1] }

// metric returns the value of a series of a relay, 0 if there is none.
func (f *tcpFleet) metric(id, series string) float64 {
	f.t.Helper()
	resp, err := http.Get("http://" + f.Relay(id).AdminAddr() + "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				f.t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	conn := procs.Dial(t, addr)
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// echoes reports whether the service behind the connection answers.
func echoes(conn net.Conn, text string) error {
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("got %q, want %q", got, text)
	}
	return nil
}

// connect opens sessions until one is ready, because the relay may not be, or not have found the
// worker.
func (f *tcpFleet) connect(addr string, ready func(net.Conn) error) net.Conn {
	f.t.Helper()
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if last = err; err != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		if last = ready(conn); last == nil {
			f.t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		_ = conn.Close()
	}
	f.t.Fatalf("no session at %s: %v", addr, last)
	return nil
}

// session opens a session that echoes.
func (f *tcpFleet) session(id string) *net.TCPConn {
	f.t.Helper()
	return f.connect(f.addr(id), func(conn net.Conn) error { return echoes(conn, "ready?") }).(*net.TCPConn)
}

// await waits until the relay carries sessions.
func (f *tcpFleet) await(id string) {
	f.t.Helper()
	_ = f.connect(f.addr(id), func(conn net.Conn) error {
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}).Close()
}

func TestBytesPassUnchangedAndTheEndOfOneDirectionIsPassedOn(t *testing.T) {
	t.Parallel()
	for _, insecure := range []bool{true, false} {
		t.Run(map[bool]string{true: "clear text", false: "mutual TLS"}[insecure], func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, insecure)
			f.relay("r1", nil)
			f.relay("g1", gate)
			f.worker("w1", serveTCP(t, echoAfter), "")
			sent := make([]byte, 3<<20)
			_, _ = rand.Read(sent)
			for _, id := range []string{"r1", "g1"} {
				f.await(id)
				conn := dial(t, f.addr(id))
				hello := make([]byte, 6)
				if _, err := io.ReadFull(conn, hello); err != nil || string(hello) != "hello " {
					t.Fatalf("over %s the service says %q, %v", id, hello, err)
				}
				if _, err := conn.Write(sent); err != nil {
					t.Fatal(err)
				}
				if err := conn.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("over %s: %d bytes of %d, %v", id, len(got), len(sent), err)
				}
			}
		})
	}
}

func TestASessionThatBreaksIsResetAtBothEnds(t *testing.T) {
	t.Parallel()
	for _, insecure := range []bool{true, false} {
		t.Run(map[bool]string{true: "clear text", false: "mutual TLS"}[insecure], func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, insecure)
			f.relay("r1", nil)
			f.relay("g1", gate)
			ended := make(chan error, 10)
			f.worker("w1", serveTCP(t, func(conn *net.TCPConn) {
				b := make([]byte, 6)
				for {
					n, err := conn.Read(b)
					if err != nil {
						ended <- err
						return
					}
					if string(b[:n]) == "break!" {
						_ = conn.SetLinger(0)
						return
					}
					_, _ = conn.Write(b[:n])
				}
			}), "")
			for _, id := range []string{"r1", "g1"} {
				conn := f.session(id)
				for len(ended) > 0 { // of the attempts before
					<-ended
				}
				_, _ = io.WriteString(conn, "break!")
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("over %s the client of a service that breaks gets %v, want a reset", id, err)
				}
				conn = f.session(id)
				_ = conn.SetLinger(0)
				_ = conn.Close()
				select {
				case err := <-ended:
					if !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("over %s the service of a client that breaks gets %v, want a reset", id, err)
					}
				case <-time.After(patience):
					t.Fatalf("over %s the service never learns that the client is gone", id)
				}
			}
		})
	}
}

func TestTheServiceGetsTheAddressOfTheClientIfItExpectsThePROXYProtocol(t *testing.T) {
	t.Parallel()
	for _, insecure := range []bool{true, false} {
		t.Run(map[bool]string{true: "clear text", false: "mutual TLS"}[insecure], func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, insecure)
			f.relay("r1", nil)
			f.relay("g1", gate)
			f.worker("w1", serveTCP(t, func(conn *net.TCPConn) {
				head := make([]byte, 28)
				if _, err := io.ReadFull(conn, head); err == nil {
					_, _ = conn.Write(head)
				}
			}), ";proxy-protocol=v2")
			for _, id := range []string{"r1", "g1"} {
				f.await(id)
				conn := dial(t, f.addr(id))
				head, err := io.ReadAll(conn)
				if err != nil || len(head) != 28 {
					t.Fatalf("%q, %v", head, err)
				}
				from := netip.AddrPortFrom(netip.AddrFrom4([4]byte(head[16:])), binary.BigEndian.Uint16(head[24:]))
				to := netip.AddrPortFrom(netip.AddrFrom4([4]byte(head[20:])), binary.BigEndian.Uint16(head[26:]))
				if string(head[:12]) != "\r\n\r\n\x00\r\nQUIT\n" || from.String() != conn.LocalAddr().String() || to.String() != conn.RemoteAddr().String() {
					t.Errorf("over %s: from %v to %v", id, from, to)
				}
			}
		})
	}
}

// webWorker starts a worker of the service "web", which takes requests of HTTP.
func (f *tcpFleet) webWorker(id string, s net.Listener) {
	f.t.Helper()
	if err := f.StartWorker(fleet.WorkerConfig{ID: id, Change: func(to *worker.Settings) {
		to.Services = []string{"web=" + s.Addr().String()}
	}}); err != nil {
		f.t.Fatal(err)
	}
}
