package tcp_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
)

const proxyV1 = "PROXY TCP4 198.51.100.7 192.0.2.1 12345 5432\r\n"

// proxyV2 is proxyV1 as version 2, with a client over IPv6.
var proxyV2 = "\r\n\r\n\x00\r\nQUIT\n\x21\x21\x00\x24" +
	string(netip.MustParseAddr("2001:db8::7").AsSlice()) + string(netip.MustParseAddr("2001:db8::1").AsSlice()) + "\x30\x39\x15\x38"

// clientIn reads a header of version 2 and returns its source.
func clientIn(conn io.Reader) (client netip.AddrPort, err error) {
	head := make([]byte, 16)
	if _, err = io.ReadFull(conn, head); err != nil {
		return client, err
	}
	addrs := make([]byte, binary.BigEndian.Uint16(head[14:]))
	if _, err = io.ReadFull(conn, addrs); err != nil {
		return client, err
	}
	n := 4
	if head[13] == 0x21 {
		n = 16
	}
	ip, _ := netip.AddrFromSlice(addrs[:n])
	return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(addrs[2*n:])), nil
}

// expecting is a service of the PROXY protocol. It answers with the client, and then with all
// that it reads.
func expecting(conn *net.TCPConn) {
	if client, err := clientIn(conn); err == nil {
		_, _ = io.WriteString(conn, client.String()+"\n")
		_, _ = io.Copy(conn, conn)
	}
}

// named opens a session, sends the text and returns what comes back up to the end of the
// line, and the connection.
func (f *tcpFleet) named(addr, text string) (line string, conn net.Conn) {
	f.t.Helper()
	conn = f.connect(addr, func(conn net.Conn) (err error) {
		_, _ = io.WriteString(conn, text)
		var got []byte
		for b := make([]byte, 1); err == nil && !bytes.HasSuffix(got, []byte("\n")); got = append(got, b...) {
			_, err = io.ReadFull(conn, b)
		}
		line = string(got[:len(got)-1])
		return err
	})
	return line, conn
}

func TestTheClientOfASessionIsTheOneThatATrustedLoadBalancerReports(t *testing.T) {
	t.Parallel()
	for _, insecure := range []bool{true, false} {
		t.Run(map[bool]string{true: "clear text", false: "mutual TLS"}[insecure], func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, insecure)
			dir := t.TempDir()
			behind := func(change func(*relay.Settings)) func(*relay.Settings) {
				return func(s *relay.Settings) {
					s.ProxyProtocolFrom.Set("127.0.0.0/8")
					if change != nil {
						change(s)
					}
					s.RequestLog = filepath.Join(dir, string(s.Role)+".log")
				}
			}
			f.relay("r1", behind(nil))
			f.relay("g1", behind(gate)) // its connections to r1 need no header
			f.worker("w1", serveTCP(t, expecting), ";proxy-protocol=v2")
			sent := map[string]string{} // the clients by the number of bytes that they send
			for _, id := range []string{"r1", "g1"} {
				for i, c := range []struct{ header, client string }{{proxyV1, "198.51.100.7"}, {proxyV2, "2001:db8::7"}} {
					got, conn := f.named(f.addr(id), c.header)
					if want := net.JoinHostPort(c.client, "12345"); got != want {
						t.Errorf("over %s the service learns of the client %q, want %q", id, got, want)
					}
					payload := proxyV1 + strings.Repeat("x", len(sent)) // a second header is of the session
					if err := echoes(conn, payload); err != nil {
						t.Errorf("header %d over %s: %v", i, id, err)
					}
					_ = conn.Close()
					sent[fmt.Sprint(len(payload))] = c.client
				}
				hello := clientHello(t, "db.example.com")
				got, conn := f.named(f.passthrough(id), proxyV1+hello)
				if got != "198.51.100.7:12345" {
					t.Errorf("through TLS over %s the service learns of the client %q", id, got)
				}
				back := make([]byte, len(hello))
				if _, err := io.ReadFull(conn, back); err != nil || string(back) != hello {
					t.Errorf("over %s the ClientHello does not stay whole: %v", id, err)
				}
			}
			procs.Await(t, "the sessions are recorded with their clients", func() bool {
				found, _ := records(t, filepath.Join(dir, "relay.log"))
				atGate, _ := records(t, filepath.Join(dir, "gate.log"))
				n := 0
				for size, client := range sent {
					if one, ok := found[size]; ok && one.Client == client {
						n++
					}
					if one, ok := atGate[size]; ok && one.Client == client {
						n++
					}
				}
				return n == len(sent)+2 // those over the gate are recorded twice
			})
		})
	}
}

// clientHello returns the first record of a TLS client.
func clientHello(t *testing.T, name string) string {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = tls.Client(client, &tls.Config{ServerName: name}).Handshake()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(server, rest); err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
	<-ended
	return string(head) + string(rest)
}

// A client may send what it likes: the service trusts only the header of the relay.
func TestAHeaderFromElsewhereNamesNoClientOfASession(t *testing.T) {
	t.Parallel()
	f := newFleet(t, true)
	f.relay("r1", func(s *relay.Settings) { s.ProxyProtocolFrom.Set("10.0.0.0/8") })
	f.worker("w1", serveTCP(t, expecting), ";proxy-protocol=v2")
	for _, header := range []string{proxyV1, proxyV2} {
		got, conn := f.named(f.addr("r1"), header)
		if got != conn.LocalAddr().String() {
			t.Errorf("the service learns of the client %q, want %q", got, conn.LocalAddr())
		}
		back := make([]byte, len(header))
		if _, err := io.ReadFull(conn, back); err != nil || string(back) != header {
			t.Errorf("the header is no part of the session: %q, %v", back, err)
		}
		const counted = `ringway_relay_tcp_refused_total{reason="malformed_client_hello"}`
		before := f.metric("r1", counted)
		conn2 := dial(t, f.passthrough("r1"))
		_, _ = io.WriteString(conn2, header+clientHello(t, "db.example.com"))
		_, _ = io.Copy(io.Discard, conn2)
		procs.Await(t, "it is refused at the address of TLS", func() bool { return f.metric("r1", counted) == before+1 })
	}
}

func TestASessionWithoutTheHeaderThatItNeedsIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	f := newFleet(t, true)
	f.relay("r1", func(s *relay.Settings) {
		s.ProxyProtocolFrom.Set("127.0.0.0/8")
		s.Clients.HeadTimeout = time.Second
	})
	f.worker("w1", serveTCP(t, expecting), ";proxy-protocol=v2")
	f.named(f.addr("r1"), proxyV1) // it is ready
	for name, c := range map[string]struct{ sent, reason string }{
		"none":      {"SELECT 1;SELECT 1;", "proxy_missing"},
		"malformed": {"PROXY TCP4 here there 1 2\r\n", "proxy_malformed"},
		"slow":      {proxyV1[:20], "proxy_missing"},
		"silent":    {"", "proxy_missing"},
	} {
		for _, addr := range []string{f.addr("r1"), f.passthrough("r1")} {
			counted := `ringway_relay_tcp_refused_total{reason="` + c.reason + `"}`
			before := f.metric("r1", counted)
			conn := dial(t, addr)
			_, _ = io.WriteString(conn, c.sent)
			if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: %v", name, err)
			}
			procs.Await(t, name+" is counted", func() bool { return f.metric("r1", counted) == before+1 })
		}
	}
}
