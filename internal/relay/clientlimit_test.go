package relay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/wire"
)

// kept is a connection of a client that is used again.
type kept struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
}

func keep(t *testing.T, r *runningRelay) *kept {
	t.Helper()
	conn := connect(t, r.IngressAddr(), "")
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	return &kept{t, conn, bufio.NewReader(conn)}
}

func (k *kept) ask(path string) {
	_, _ = io.WriteString(k, "GET "+path+" HTTP/1.1\r\nHost: a\r\n"+wire.ServiceHeader+": echo\r\n\r\n") // the answer reports a failure
}

// answer reads one, empty when the connection has ended instead.
func (k *kept) answer() string {
	k.t.Helper()
	resp, err := http.ReadResponse(k.answers, nil)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

func (r *runningRelay) metric(t *testing.T, series string) string {
	t.Helper()
	_, text := r.api(t, "/metrics", nil)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return "no such series"
}

// awaitIdleClients returns when all connections of clients wait for a request: a client
// has its answer a moment before the server knows that.
func (r *runningRelay) awaitIdleClients(t *testing.T) {
	t.Helper()
	r.await(t, "all connections wait for a request", func() bool {
		r.clients.mu.Lock()
		defer r.clients.mu.Unlock()
		for c := range r.clients.open {
			if c.since.Load() == busy {
				return false
			}
		}
		return true
	})
}

// gated answers immediately, and below /held when it is released.
func gated(t *testing.T, f *fleet, r *runningRelay) (entered, release chan struct{}) {
	entered, release = make(chan struct{}, 8), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/held" {
			entered <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend))
	r.settled(t, "echo", 1)
	return entered, release
}

func TestANewConnectionGetsThePlaceOfTheOneThatWaitsLongestForARequest(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Requests.MaxClientConnections = 3 })
	gated(t, f, r)
	var old []*kept
	for range 3 {
		k := keep(t, r)
		old = append(old, k)
		if k.ask("/"); k.answer() != "200 done" {
			t.Fatal("no answer below the limit")
		}
		r.awaitIdleClients(t)
	}
	if old[0].ask("/"); old[0].answer() != "200 done" { // now the second waits longest
		t.Fatal("no second answer")
	}
	r.awaitIdleClients(t)
	fresh := keep(t, r)
	if fresh.ask("/"); fresh.answer() != "200 done" {
		t.Error("a new connection is not served")
	}
	if got := old[1].answer(); got != "" {
		t.Errorf("the one that waited longest got %q, want its end", got)
	}
	for i, k := range []*kept{old[0], old[2], fresh} {
		if k.ask("/"); k.answer() != "200 done" {
			t.Errorf("connection %d is not answered any more", i)
		}
	}
	for series, want := range map[string]string{
		`ringway_relay_connections_dropped_total{listener="ingress",reason="replaced"}`: "1",
		"ringway_relay_client_connections":                                              "3",
		"ringway_relay_client_connections_limit":                                        "3",
	} {
		if got := r.metric(t, series); got != want {
			t.Errorf("%s is %s, want %s", series, got, want)
		}
	}
}

func TestConnectionsWithRequestsUnderWayAreNeverClosedForNewOnes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Requests.MaxClientConnections = 2 })
	entered, release := gated(t, f, r)
	busy := keep(t, r)
	busy.ask("/held")
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	streamed := make(chan string, 1)
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.IngressAddr()+"/held", nil)
		req.Header.Set(wire.ServiceHeader, "echo")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			streamed <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		streamed <- fmt.Sprint(resp.StatusCode)
	}()
	<-entered
	<-entered
	late := keep(t, r)
	late.ask("/")
	r.await(t, "a pause", func() bool { return r.metric(t, `ringway_relay_accept_pauses_total{reason="connections"}`) == "1" })
	time.Sleep(2 * requestTime) // long enough for either of the two to be taken for idle
	if got := r.metric(t, "ringway_relay_client_connections"); got != "2" {
		t.Errorf("%s connections, want 2", got)
	}
	close(release)
	if got := busy.answer(); got != "200 done" {
		t.Errorf("over HTTP/1.1: %q", got)
	}
	if got := <-streamed; got != "200" {
		t.Errorf("over HTTP/2: %q", got)
	}
	if got := late.answer(); got != "200 done" { // it got the place of the first that was idle for long enough
		t.Errorf("the one that waited: %q", got)
	}
}

func TestAReloadMovesTheBoundOnConnectionsOfClients(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Requests.MaxClientConnections = 1 })
	entered, release := gated(t, f, r)
	defer close(release)
	keep(t, r).ask("/held")
	<-entered
	late := keep(t, r)
	late.ask("/")
	r.await(t, "a pause", func() bool { return r.metric(t, `ringway_relay_accept_pauses_total{reason="connections"}`) == "1" })
	more := *r.tuned.Load()
	more.MaxClientConnections = 2
	r.tune(more)
	if got := late.answer(); got != "200 done" {
		t.Errorf("with one place more: %q", got)
	}
}

func TestHalfOfTheDescriptorsThatTheReserveLeavesAreForClients(t *testing.T) {
	for files, want := range map[int]int{1 << 20: 524224, 1024: 448, 256: 64, 64: 16, 2: 1} {
		if got := clientConnections(files); got != want {
			t.Errorf("of %d files %d are for clients, want %d", files, got, want)
		}
	}
	if got := clientConnections(0); got < 1<<30 {
		t.Errorf("without a limit there may be %d", got)
	}
}

// noFiles is a socket without descriptors for those who connect.
type noFiles struct {
	net.Listener
	left int
}

func (l *noFiles) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return nil, net.ErrClosed
}

func TestAcceptingWithoutDescriptorsIsCountedAndDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		l := newClients(newConnMetrics(registry), registry, func(netip.Addr) bool { return true }).listener(&noFiles{left: 10}, false)
		began := time.Now()
		if err := downstream.New(downstream.Config{Logger: slog.New(slog.DiscardHandler)}).Serve(l); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if took := time.Since(began); took < 3*time.Second { // 5 ms, doubled to a second at most
			t.Errorf("ten attempts took %v", took)
		}
		if n := logtest.Series(t, registry, "ringway_relay_accept_pauses_total")["files"]; n != 10 {
			t.Errorf("counted %v", n)
		}
	})
}

func (l *noFiles) Close() error   { return nil }
func (l *noFiles) Addr() net.Addr { return &net.TCPAddr{} }

// from is a connection from an address that ends in memory.
type from struct {
	net.Conn
	addr netip.AddrPort
}

func (c from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.addr) }

// queue is a listener with connections.
type queue chan net.Conn

func (q queue) Accept() (net.Conn, error) { return <-q, nil }
func (q queue) Close() error              { return nil }
func (q queue) Addr() net.Addr            { return nil }

func TestOneClientHasHalfOfTheConnectionsAtMostAndItsOldOnesGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100
		registry := prometheus.NewRegistry()
		all := newClients(newConnMetrics(registry), registry, func(addr netip.Addr) bool { return addr.IsLoopback() })
		all.bound(limit)
		q := make(queue, 2)
		l := all.listener(q, false)
		// open returns a connection from an address, nil if it was refused: then the next one is accepted.
		open := func(addr string) *clientConn {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
			sentinel, other := net.Pipe()
			t.Cleanup(func() { _ = sentinel.Close(); _ = other.Close() })
			q <- from{near, netip.AddrPortFrom(netip.MustParseAddr(addr), 1)}
			q <- from{sentinel, netip.MustParseAddrPort("127.0.0.1:1")}
			got, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c := got.(*clientConn)
			if c.Conn.(from).Conn == sentinel {
				_ = c.Close()
				return nil
			}
			last, _ := l.Accept()
			_ = last.Close()
			return c
		}
		hold := func(addr string) (held []*clientConn) {
			for range limit {
				c := open(addr)
				if c == nil {
					return held
				}
				all.record(c, http.StateActive)
				held = append(held, c)
			}
			return held
		}
		first := hold("192.0.2.1")
		if len(first) != limit/2 {
			t.Errorf("a client has %d of %d connections", len(first), limit)
		}
		if n := len(hold("2001:db8::1")) + len(hold("2001:db8::2")); n != limit/4 {
			t.Errorf("the next one, with two addresses of a network, has %d", n)
		}
		if n := len(hold("192.0.2.2")); n < leastConns/2 || len(all.open) >= limit {
			t.Errorf("a third has %d, %d of all are open", n, len(all.open))
		}
		all.record(first[3], http.StateIdle)
		time.Sleep(requestTime)
		fresh := open("192.0.2.1")
		if fresh == nil || !first[3].gone.Load() || first[0].gone.Load() {
			t.Error("a new connection of the first client does not take the place of its own that waits")
		}
		for _, c := range append(first, fresh) {
			_ = c.Close()
		}
		if _, known := all.of[netip.MustParseAddr("192.0.2.1")]; known {
			t.Error("a client without connections is remembered")
		}
		if n := logtest.Series(t, registry, "ringway_relay_connections_dropped_total")["ingress,client_share"]; n == 0 {
			t.Error("nothing is counted")
		}
	})
}
