package tcp_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/wire"
)

// resets reports whether a connection to the address is reset. The reset may come while the
// client still connects.
func resets(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = io.ReadAll(conn)
	}
	return errors.Is(err, syscall.ECONNRESET)
}

// load sets settings by flags. Those that change has set are set again.
func load(t *testing.T, s *relay.Settings, args ...string) {
	t.Helper()
	set := settings.New("relay", "RINGWAY")
	one := relay.DefaultSettings()
	one.Declare(set)
	flags := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	set.BindFlags(flags)
	if err := flags.Parse(append([]string{"--cluster", "test", "--environment", "ci", "--id", "x"}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := set.Load(settings.Sources{}); err != nil {
		t.Fatal(err)
	}
	s.MaxInFlightPerClient = one.MaxInFlightPerClient
}

func TestAClientThatDoesNotReadHoldsLittleAndIsEnded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, true)
	f.relay("r1", func(s *relay.Settings) { s.ProgressTimeout = 500 * time.Millisecond })
	var writing, most atomic.Int64 // sessions to which the service writes, and the bytes of the largest
	f.worker("w1", serveTCP(t, func(conn *net.TCPConn) {
		writing.Add(1)
		defer writing.Add(-1)
		chunk := make([]byte, 64<<10)
		for sent := int64(0); ; {
			n, err := conn.Write(chunk)
			sent += int64(n)
			for had := most.Load(); sent > had && !most.CompareAndSwap(had, sent); had = most.Load() {
			}
			if err != nil {
				return
			}
		}
	}), "")
	f.await("r1")
	idle := func() float64 {
		return f.metric("r1", `ringway_relay_tcp_sessions_ended_total{end="idle",service="db"}`)
	}
	before := idle()
	conn := dial(t, f.addr("r1"))
	_ = conn.SetReadBuffer(16 << 10)
	procs.Await(t, "the client that does not read is ended", func() bool { return idle() > before })
	procs.Await(t, "the service writes no more", func() bool { return writing.Load() == 0 })
	if n := most.Load(); n > 64<<20 {
		t.Errorf("%d bytes are on the way to a client that reads none", n)
	}
}

func TestAFailedConnectIsTriedAtAnotherEndpoint(t *testing.T) {
	t.Parallel()
	f := newFleet(t, true)
	f.relay("r1", func(s *relay.Settings) { s.Selection.SlowStart = 0 })
	f.worker("w1", serveTCP(t, echo), "")
	closed := serveTCP(t, echo)
	f.worker("w2", closed, "")
	_ = f.session("r1").Close()
	peers := func() int {
		resp, err := http.Get("http://" + f.Relay("r1").AdminAddr() + "/api/v1/services/db")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var service api.Service
		if err := json.NewDecoder(resp.Body).Decode(&service); err != nil {
			t.Fatal(err)
		}
		return len(service.Peers)
	}
	procs.Await(t, "both workers", func() bool { return peers() == 2 })
	// A session that broke at the worker that dies would count as its failure: then it gets no
	// other, and its own check ends its offer.
	procs.Await(t, "no session is open", func() bool { return f.metric("r1", `ringway_relay_tcp_sessions{service="db"}`) == 0 })
	closed.die()
	session := func() {
		conn := dial(t, f.addr("r1"))
		if err := echoes(conn, "hello"); err != nil {
			t.Fatalf("a session failed with one of two workers: %v", err)
		}
		_ = conn.Close()
	}
	retried := func() float64 { return f.metric("r1", `ringway_relay_retries_total{reason="dial",service="db"}`) }
	procs.Await(t, "a session is tried again", func() bool { session(); return retried() > 0 })
	procs.Await(t, "the worker that is gone gets no sessions", func() bool { session(); return peers() == 1 })
}

func TestSessionsCountAsConnectionsAndRequestsOfTheirClient(t *testing.T) {
	t.Parallel()
	f := newFleet(t, true)
	f.relay("r1", func(s *relay.Settings) { s.Requests.MaxClientConnections = 2 })
	f.worker("w1", serveTCP(t, echo), "")
	first, second := f.session("r1"), f.session("r1")
	third := dial(t, f.addr("r1")) // in the kernel
	_, _ = io.WriteString(third, "third")
	procs.Await(t, "the third connection waits", func() bool { return f.metric("r1", `ringway_relay_accept_pauses_total{reason="connections"}`) > 0 })
	for i, conn := range []net.Conn{first, second} {
		if err := echoes(conn, "still here"); err != nil {
			t.Errorf("session %d: %v", i, err)
		}
	}
	_ = first.Close()
	got := make([]byte, 5)
	if _, err := io.ReadFull(third, got); err != nil || string(got) != "third" {
		t.Errorf("the third session: %q, %v", got, err)
	}
}

func TestTheSessionsOfOneClientAreBounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, true)
	f.relay("r1", func(s *relay.Settings) { load(t, s, "--max-in-flight-per-client=1") })
	f.worker("w1", serveTCP(t, echo), "")
	f.session("r1")
	procs.Await(t, "a session above the limit is refused", func() bool {
		return resets(f.addr("r1"))
	})
	if n := f.metric("r1", `ringway_relay_tcp_refused_total{reason="client_limit"}`); n < 1 {
		t.Errorf("%v are counted", n)
	}
}

// The gate has the client and decides on blocks; the relay picks the worker and counts for limits.
func TestBlocksAndLimitsRefuseSessionsAsTheyDoRequests(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false)
	limited := func(s *relay.Settings) {
		s.Requests.RateLimits = []ingress.RateLimit{{Service: "db", Caller: "127.0.0.1", Rate: "1/h", Burst: 2}}
	}
	f.relay("r1", limited)
	f.relay("g1", func(s *relay.Settings) { gate(s); limited(s) })
	f.relay("g2", func(s *relay.Settings) {
		gate(s)
		s.Requests.Blocks = []ingress.Block{{Caller: "127.0.0.1", Service: "db"}}
	})
	f.worker("w1", serveTCP(t, echo), "")
	f.session("r1")
	for id, want := range map[string]wire.Code{"g2": wire.CodeBlocked, "g1": wire.CodeRateLimited, "r1": wire.CodeRateLimited} {
		procs.Await(t, id+" refuses the session as "+string(want), func() bool {
			if conn, err := net.Dial("tcp", f.addr(id)); err == nil { // else the reset came while it connected
				_ = conn.SetDeadline(time.Now().Add(patience))
				_ = echoes(conn, "hello")
				_ = conn.Close()
			}
			return f.metric(id, `ringway_relay_tcp_refused_total{reason="`+string(want)+`"}`) > 0
		})
	}
}

func TestASilentClientOfTLSIsEndedInTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, true)
	f.relay("r1", func(s *relay.Settings) { s.Clients.HeadTimeout = 50 * time.Millisecond })
	f.worker("w1", serveTCP(t, echo), "")
	f.session("r1")
	conn := dial(t, f.passthrough("r1"))
	if got, err := io.ReadAll(conn); err != nil || len(got) != 7 || got[6] != 112 {
		t.Errorf("%q, %v: want an alert", got, err)
	}
	_ = dial(t, f.passthrough("r1")).Close() // a scan of ports
	procs.Await(t, "both are counted", func() bool {
		return f.metric("r1", `ringway_relay_tcp_refused_total{reason="no_client_hello"}`) == 2
	})
}

func TestRequestsAndSessionsDoNotMix(t *testing.T) {
	t.Parallel()
	f := newFleet(t, true)
	f.relay("r1", func(s *relay.Settings) { s.TCP.Ingress.Set(append(s.TCP.Ingress.Items(), "0=web", "0=nothing")...) })
	web := serveTCP(t, func(conn *net.TCPConn) {
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil && r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}
	})
	f.worker("w1", serveTCP(t, echo), "")
	f.webWorker("w2", web)
	f.session("r1")
	ask := func(service, more string) string {
		conn := dial(t, f.Relay("r1").IngressAddr())
		_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n%s: %s\r\nConnection: close\r\n%s\r\n", wire.ServiceHeader, service, more)
		all, _ := io.ReadAll(conn)
		return string(all)
	}
	procs.Await(t, "web answers", func() bool { return strings.HasPrefix(ask("web", ""), "HTTP/1.1 200") })
	if got := ask("db", ""); !strings.HasPrefix(got, "HTTP/1.1 400") || !strings.Contains(got, "--tcp-ingress") {
		t.Errorf("a request to a TCP service: %s", got)
	}
	upgrade := "Connection: upgrade\r\nUpgrade: " + wire.UpgradeTCP + "\r\n"
	for _, service := range []string{"db", "web"} {
		if got := ask(service, upgrade); !strings.HasPrefix(got, "HTTP/1.1 400") || !strings.Contains(got, "only relays") {
			t.Errorf("a client of HTTP that asks for a session with %s: %s", service, got)
		}
	}
	for i, reason := range map[int]string{1: "bad_request", 2: "unknown_service"} {
		if !resets(f.Relay("r1").TCPAddrs()[i]) {
			t.Errorf("%s: want a reset", reason)
		}
		if n := f.metric("r1", `ringway_relay_tcp_refused_total{reason="`+reason+`"}`); n != 1 {
			t.Errorf("%v are counted as %s", n, reason)
		}
	}
}

func TestSessionsAreCountedWithTheirBytesAndEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false)
	f.relay("r1", nil)
	f.relay("g1", gate)
	f.worker("w1", serveTCP(t, echo), "")
	conn := f.session("g1")
	for _, id := range []string{"r1", "g1"} { // the gate forwards to the relay
		procs.Await(t, id+" has one session", func() bool { return f.metric(id, `ringway_relay_tcp_sessions{service="db"}`) == 1 })
		for _, direction := range []string{"to_endpoint", "to_client"} {
			// Bytes are counted behind their write.
			procs.Await(t, id+" counts the bytes "+direction+" while the session is open", func() bool {
				return f.metric(id, `ringway_relay_tcp_bytes_total{direction="`+direction+`",service="db"}`) >= 6
			})
		}
	}
	closed := func() float64 {
		return f.metric("r1", `ringway_relay_tcp_sessions_ended_total{end="closed",service="db"}`)
	}
	before := closed()
	_ = conn.CloseWrite()
	if _, err := io.ReadAll(conn); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"r1", "g1"} {
		procs.Await(t, id+" has counted the end", func() bool {
			return f.metric(id, `ringway_relay_tcp_sessions{service="db"}`) == 0 && f.metric(id, `ringway_relay_tcp_session_duration_seconds_count{service="db"}`) >= 1
		})
	}
	procs.Await(t, "r1 has counted how it ended", func() bool { return closed() > before })
	if n := closed(); n != before+1 {
		t.Errorf("%v sessions are counted as closed, %v before", n, before)
	}
}

func TestTheSlotsOfAWorkerBoundItsSessions(t *testing.T) {
	for _, insecure := range []bool{true, false} {
		t.Run(map[bool]string{true: "clear text", false: "mutual TLS"}[insecure], func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, insecure)
			f.relay("r1", nil)
			f.worker("w1", serveTCP(t, echo), ";slots=2")
			first := f.session("r1")
			f.session("r1")
			procs.Await(t, "a third session is refused", func() bool { return resets(f.addr("r1")) })
			if n := f.metric("r1", `ringway_relay_tcp_refused_total{reason="overloaded"}`); n < 1 {
				t.Errorf("%v are counted as overloaded", n)
			}
			_ = first.CloseWrite()
			_, _ = io.ReadAll(first)
			f.session("r1")
		})
	}
}
