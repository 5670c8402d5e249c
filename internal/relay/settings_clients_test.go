package relay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/internal/proxy/http2"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

func TestConnectionsOfClientsAreBoundedByTheSettings(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	usual := f.relay(func(*Settings) {})
	// Each has one limit: a request that this machine carries slowly exceeds no other one.
	impatient := f.relay(func(s *Settings) { s.Clients.HeadTimeout = 200 * time.Millisecond })
	restless := f.relay(func(s *Settings) { s.Clients.IdleTimeout = 300 * time.Millisecond })
	narrow := f.relay(func(s *Settings) { s.Clients.MaxHead = 4 << 10 })
	f.echo("w1")
	for _, r := range f.relays {
		r.settled(t, "echo", 1)
	}
	const request = "GET / HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\n"
	open := func(r *runningRelay, first string) (net.Conn, *bufio.Reader) {
		t.Helper()
		c, err := net.Dial("tcp", r.IngressAddr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, first); err != nil {
			t.Fatal(err)
		}
		return c, bufio.NewReader(c)
	}
	ended := func(c net.Conn, in *bufio.Reader, within time.Duration) bool {
		_ = c.SetReadDeadline(time.Now().Add(within))
		_, err := in.ReadByte()
		var late net.Error
		return !errors.As(err, &late) || !late.Timeout()
	}
	for name, c := range map[string]struct {
		strict  *runningRelay
		first   string
		answers bool
	}{
		"--client-head-timeout": {impatient, request, false},
		"--client-idle-timeout": {restless, request + "\r\n", true},
	} {
		for _, r := range []*runningRelay{c.strict, usual} {
			conn, in := open(r, c.first)
			if c.answers {
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != 200 {
					t.Fatal(resp, err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			}
			within := time.Second
			if r == c.strict {
				within = patience
			}
			if got := ended(conn, in, within); got != (r == c.strict) {
				t.Errorf("%s at %s: ended %t", name, r.id, got)
			}
		}
	}
	for r, want := range map[*runningRelay]int{narrow: http.StatusRequestHeaderFieldsTooLarge, usual: 200} {
		resp, _ := r.call(t, "GET", "/", nil, wire.ServiceHeader+": echo", "X-Long: "+strings.Repeat("v", 5<<10))
		if resp.StatusCode != want {
			t.Errorf("--max-request-head at %s: %s", r.id, resp.Status)
		}
	}
}

// The first relay has limited its clients. Between relays a head has fields more, and counts otherwise.
func TestTheLimitsOfClientsDoNotHoldBetweenRelays(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	gate := f.relay(func(s *Settings) { s.Role, s.Clients.MaxHead = identity.RoleGate, 4<<10 })
	f.relay(func(s *Settings) { s.Clients.MaxHead, s.Clients.MaxStreams = 4<<10, 1 })
	const together = 20
	var arrived atomic.Int64
	all := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/together" {
			return
		}
		if arrived.Add(1) == together {
			close(all)
		}
		select {
		case <-all:
		case <-r.Context().Done(): // they do not come together
		}
	}))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend))
	for _, r := range f.relays {
		r.settled(t, "echo", 1)
	}
	gate.await(t, "its way to the relay", func() bool { d := gate.forwarding(t); return d.Forwarding != nil && len(d.Forwarding.Primaries) == 1 })
	head := []string{wire.ServiceHeader + ": echo"}
	for i := range 60 {
		head = append(head, fmt.Sprintf("X-%02d: %s", i, strings.Repeat("v", 55)))
	}
	if resp, body := gate.call(t, "GET", "/", nil, head...); resp.StatusCode != 200 {
		t.Errorf("a head just within the limit: %s %s", resp.Status, body)
	}
	var asking sync.WaitGroup
	for range together {
		asking.Go(func() {
			if resp, body := gate.call(t, "GET", "/together", nil, wire.ServiceHeader+": echo"); resp.StatusCode != 200 {
				t.Errorf("one of %d requests at once: %s %s", together, resp.Status, body)
			}
		})
	}
	asking.Wait()
}

func TestStreamsOfAConnectionAreBoundedByTheSettings(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Clients.MaxStreams = 2 })
	release := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend))
	r.settled(t, "echo", 1)
	conn := streams(t, r, "")
	var requests sync.WaitGroup
	ask := func(service string) int {
		s := conn.NewStream()
		defer s.Close()
		if err := s.Open(get(service), true, false); err != nil {
			t.Error(err)
			return 0
		}
		head, err := s.Answer()
		if err != nil {
			t.Error(err)
			return 0
		}
		return head.Status
	}
	if status := ask("absent"); status != http.StatusNotFound { // the settings of the relay come before its answer
		t.Error(status)
	}
	if _, limit := conn.Load(); limit != 2 {
		t.Errorf("%d streams are allowed", limit)
	}
	for range 4 {
		requests.Go(func() {
			if status := ask("echo"); status != 200 {
				t.Error(status)
			}
		})
	}
	r.await(t, "two requests", func() bool { return r.InFlight() == 2 })
	close(release)
	requests.Wait()
}

// streams is a connection of HTTP/2 that begins with header.
func streams(t *testing.T, r *runningRelay, header string) *http2.Conn {
	t.Helper()
	conn := http2.NewClient(connect(t, r.IngressAddr(), header), http2.Config{MaxHead: 64 << 10})
	var running sync.WaitGroup
	running.Go(func() { _ = conn.Run() })
	t.Cleanup(func() {
		_ = conn.Close()
		running.Wait()
	})
	return conn
}

// get returns the header list of a request to a service.
func get(service string) []http2.Field {
	return []http2.Field{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: "/"}, {Name: "ringway-service", Value: service}}
}

func TestTheClientsOfAProxyShareAConnectionAndThoseOfALoadBalancerDoNot(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	proxied := f.relay(func(s *Settings) { s.TrustedProxies.Set("127.0.0.0/8") })
	balanced := f.relay(func(s *Settings) { s.ProxyProtocolFrom.Set("127.0.0.0/8") })
	direct := f.relay(func(*Settings) {})
	release := make(chan struct{})
	stuck := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 2<<20) // until the windows have grown
		select {
		case <-r.Context().Done(): // which a body that was not read delays
		case <-release:
		}
	}))
	stuck.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetReadBuffer(16 << 10) // so that the system takes little that the service does not read
		return ctx
	}
	stuck.Start()
	t.Cleanup(stuck.Close)
	t.Cleanup(func() {
		close(release)
		stuck.CloseClientConnections() // with what was sent of an upload, which so small a buffer takes seconds to read
	})
	reading := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(reading.Close)
	f.worker("w1", service("stuck", stuck), service("reading", reading))
	for _, c := range []struct {
		r      *runningRelay
		header string
		shared bool
	}{
		{proxied, "", true}, {balanced, v1Header, false}, {balanced, "PROXY TCP4 127.0.0.7 127.0.0.1 12345 80\r\n", false},
		{balanced, "PROXY UNKNOWN\r\n", false}, {direct, "", false},
	} {
		c.r.settled(t, "stuck", 1)
		c.r.settled(t, "reading", 1)
		upload := func(conn *http2.Conn, service string, size int) error {
			s := conn.NewStream()
			defer s.Close()
			if err := s.Open(get(service), false, false); err != nil {
				return err
			}
			defer time.AfterFunc(patience, func() { _ = conn.Close() }).Stop()
			if _, err := s.Write(make([]byte, size), true); err != nil {
				return err
			}
			_, err := s.Answer()
			return err
		}
		if c.shared {
			conn := streams(t, c.r, c.header)
			var held sync.WaitGroup
			for range 2 {
				held.Go(func() { _ = upload(conn, "stuck", 16<<20) })
			}
			if err := upload(conn, "reading", 32<<20); err != nil {
				t.Errorf("beside two uploads that are not read: %v", err)
			}
			_ = conn.Close()
			held.Wait()
		}
		if err := floodOfCancellations(t, c.r, c.header); (err == nil) != c.shared {
			t.Errorf("shared %t, after 1500 requests that were cancelled: %v", c.shared, err)
		}
	}
}

// floodOfCancellations returns why a connection has ended on which 1500 requests were cancelled, or nil when it
// lives. Its client goes on where requests are refused, while the handlers of too many have not returned.
func floodOfCancellations(t *testing.T, r *runningRelay, header string) error {
	t.Helper()
	conn := connect(t, r.IngressAddr(), header+xhttp2.ClientPreface)
	_ = conn.SetDeadline(time.Now().Add(patience))
	framer := xhttp2.NewFramer(conn, conn)
	written := make(chan struct{})
	go func() { // fails when the connection has ended
		defer close(written)
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		_ = framer.WriteSettings()
		for i := range uint32(1500) {
			block.Reset()
			for _, field := range get("stuck") {
				_ = encoder.WriteField(hpack.HeaderField{Name: field.Name, Value: field.Value})
			}
			_ = framer.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
			_ = framer.WriteRSTStream(2*i+1, xhttp2.ErrCodeCancel)
		}
		_ = framer.WritePing(false, [8]byte{1})
	}()
	defer func() { <-written }()
	defer conn.Close()
	for {
		switch frame, err := framer.ReadFrame(); frame := frame.(type) {
		case nil:
			return err
		case *xhttp2.PingFrame:
			if frame.IsAck() { // all frames before it were handled
				return nil
			}
		}
	}
}

func TestClientsReachOnlyTheServicesOfTheIngress(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	only := f.relay(func(s *Settings) { s.Requests.OnlyServices = []string{"other"} })
	every := f.relay(func(*Settings) {})
	f.echo("w1")
	for _, r := range f.relays {
		r.settled(t, "echo", 1)
	}
	if resp, body := only.call(t, "GET", "/", nil, wire.ServiceHeader+": echo"); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "unknown_service") {
		t.Errorf("%s %s", resp.Status, body)
	}
	if resp, _ := every.call(t, "GET", "/", nil, wire.ServiceHeader+": echo"); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
}
