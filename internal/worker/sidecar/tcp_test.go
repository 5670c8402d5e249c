package sidecar

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

// tcpService offers a service that answers the bytes of each connection with themselves
// when it has read them all.
func tcpService(t *testing.T, name string) advertise.Service {
	t.Helper()
	ln := procs.Listen(t)
	procs.Accept(t, ln, func(conn net.Conn) {
		all, _ := io.ReadAll(conn)
		_, _ = conn.Write(all)
	})
	return advertise.Service{Name: name, Address: ln.Addr().String(), Protocol: advertise.TCP}
}

// open asks for a session as the relay r1 does.
func open(t *testing.T, s *running, service string) (*tls.Conn, *http.Response, *bufio.Reader) {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Addr().String(), tlsAs(source(t, s.authority, claims(identity.RoleRelay, "r1")), "http/1.1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n", wire.UpgradeTCP, wire.ServiceHeader, service)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, resp, in
}

func TestASessionIsOpenedOnlyToAServiceThatIsOfferedAsTCP(t *testing.T) {
	reached := make(chan struct{}, 10)
	web := serve(t, "web", advertise.HTTP1, func(http.ResponseWriter, *http.Request) { reached <- struct{}{} })
	s := start(t, nil, web, tcpService(t, "db"))
	conn, resp, in := open(t, s, "db")
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get(wire.LoadHeader) != "0" {
		t.Fatalf("%v", resp)
	}
	_, _ = io.WriteString(conn, "all")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(in); err != nil || string(got) != "all" {
		t.Errorf("%q, %v", got, err)
	}
	for service, want := range map[string]int{"web": http.StatusBadRequest, "other": http.StatusNotFound} {
		if _, resp, _ := open(t, s, service); resp.StatusCode != want {
			t.Errorf("a session with %s: %v", service, resp)
		}
	}
	if resp, _ := answer(t, s.relay(t), s.request(t, "GET", "db", nil)); resp.StatusCode != http.StatusBadRequest || resp.Header.Get(wire.FailedHeader) != "" {
		t.Errorf("a request of HTTP to a TCP service: %v", resp)
	}
	if len(reached) > 0 {
		t.Error("a session reached a service of HTTP")
	}
}

func TestARelayLearnsThatNothingWasSentToATCPServiceThatIsGone(t *testing.T) {
	gone := tcpService(t, "db")
	gone.Address = procs.Refusing(t)
	s := start(t, nil, gone)
	if _, resp, _ := open(t, s, "db"); resp.StatusCode != http.StatusBadGateway || resp.Header.Get(wire.FailedHeader) != wire.FailedUnsent {
		t.Errorf("%v", resp)
	}
}

func TestSessionsAboveTheSlotsAreRefused(t *testing.T) {
	db := tcpService(t, "db")
	db.Slots = 1
	s := start(t, nil, db)
	first, _, in := open(t, s, "db")
	if _, resp, _ := open(t, s, "db"); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get(wire.FailedHeader) != wire.FailedFull {
		t.Errorf("%v", resp)
	}
	_ = first.CloseWrite()
	_, _ = io.ReadAll(in)
	procs.Await(t, "the slot is free", func() bool { return s.inFlight() == 0 })
	if _, resp, _ := open(t, s, "db"); resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("%v", resp)
	}
}
