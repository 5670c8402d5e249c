package relay

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/http2"
	"github.com/ringway/ringway/internal/wire"
)

func TestConnectionsOfClientsAreBoundedByTheSettings(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	usual := f.relay(func(*Settings) {})
	strict := f.relay(func(s *Settings) {
		s.Clients.HeadTimeout, s.Clients.IdleTimeout, s.Clients.MaxHead = 200*time.Millisecond, 300*time.Millisecond, 4<<10
	})
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
		first   string
		answers bool
	}{
		"--client-head-timeout": {request, false},
		"--client-idle-timeout": {request + "\r\n", true},
	} {
		for _, r := range []*runningRelay{strict, usual} {
			conn, in := open(r, c.first)
			if c.answers {
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != 200 {
					t.Fatal(resp, err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			}
			within := time.Second
			if r == strict {
				within = patience
			}
			if got := ended(conn, in, within); got != (r == strict) {
				t.Errorf("%s at %s: ended %t", name, r.id, got)
			}
		}
	}
	for r, want := range map[*runningRelay]int{strict: http.StatusRequestHeaderFieldsTooLarge, usual: 200} {
		resp, _ := r.call(t, "GET", "/", nil, wire.ServiceHeader+": echo", "X-Long: "+strings.Repeat("v", 5<<10))
		if resp.StatusCode != want {
			t.Errorf("--max-request-head at %s: %s", r.id, resp.Status)
		}
	}
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
	nc, err := net.Dial("tcp", r.IngressAddr())
	if err != nil {
		t.Fatal(err)
	}
	conn := http2.NewClient(nc, http2.Config{MaxHead: 64 << 10})
	var running, requests sync.WaitGroup
	running.Go(func() { _ = conn.Run() })
	ask := func(service string) int {
		s := conn.NewStream()
		defer s.Close()
		fields := []http2.Field{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: "/"}, {Name: "ringway-service", Value: service}}
		if err := s.Open(fields, true, false); err != nil {
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
	_ = conn.Close()
	running.Wait()
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
