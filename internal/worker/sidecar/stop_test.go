package sidecar

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

func TestAStopFinishesWhatIsInFlightAndTakesNothingNew(t *testing.T) {
	a, arrived, release, _ := holding(t, "a")
	s := start(t, nil, a)
	held := background(s.relay(t), s.request(t, "POST", "a", strings.NewReader("x"), "X-Do: hold"))
	within(t, arrived, "the request")
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	procs.Await(t, "no relay can connect any more", func() bool {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-ended:
		t.Fatalf("stopped with a request in flight: %v", err)
	default:
	}
	close(release)
	if got := within(t, held, "its answer"); got.status != 200 || got.body != "a" {
		t.Errorf("%+v", got)
	}
	if err := within(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	if err := s.SetServices(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("SetServices after the end: %v", err)
	}
}

func TestAStopEndsWithinItsBoundAlsoIfConnectionsHang(t *testing.T) {
	for name, c := range map[string]struct {
		do, got, failed, log string
		sessions             float64 // that are counted as ended
	}{
		"request":         {do: "hold", got: "HTTP/1.1 502 Bad Gateway", failed: wire.FailedSent, log: "requests had no answer"},
		"half a request":  {do: "hold\r\nContent-Length: 5", got: "HTTP/1.1 502 Bad Gateway", failed: wire.FailedUnsent, log: "requests had no answer"},
		"answer":          {do: "stream", got: "HTTP/1.1 200 OK", log: "draining sessions", sessions: 1},
		"tunnel":          {do: "tunnel\r\nConnection: Upgrade\r\nUpgrade: raw", got: "HTTP/1.1 101 Switching Protocols", log: "draining sessions", sessions: 1},
		"tunnel and gone": {do: "tunnel\r\nConnection: Upgrade\r\nUpgrade: raw", got: "HTTP/1.1 101 Switching Protocols", log: "draining sessions", sessions: 1},
	} {
		arrived := make(chan struct{}, 1)
		s := start(t, func(c *Config) { c.DrainTimeout = 10 * time.Millisecond }, serve(t, "a", "", func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-Do") {
			case "tunnel":
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
				arrived <- struct{}{}
				_, _ = io.Copy(io.Discard, conn)
				return
			case "stream":
				_, _ = io.WriteString(w, "begun")
				_ = http.NewResponseController(w).Flush()
			}
			arrived <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}))
		config := tlsAs(source(t, s.authority, claims(identity.RoleRelay, "r1")), "http/1.1")
		conn, err := tls.Dial("tcp", s.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nRingway-Service: a\r\nX-Do: "+c.do+"\r\n\r\n")
		in := bufio.NewReader(conn)
		if c.sessions > 0 {
			line, err := in.ReadString('\n') // the answer has begun
			if in = bufio.NewReader(io.MultiReader(strings.NewReader(line), in)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if c.failed == wire.FailedUnsent {
			procs.Await(t, "the sidecar reads the "+name, func() bool {
				n, _ := metricOf(t, s.registry, "ringway_sidecar_in_flight", "a")
				return n == 1
			})
		} else {
			within(t, arrived, "the "+name)
		}
		if strings.HasSuffix(name, "gone") {
			s.set(t)
		}
		if err := s.stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := io.ReadAll(in)
		if os.IsTimeout(err) { // how else it breaks off is the system's
			t.Errorf("%s: it goes on", name)
		}
		if !strings.HasPrefix(string(got), c.got) || c.failed != "" && !strings.Contains(string(got), "\r\n"+wire.FailedHeader+": "+c.failed+"\r\n") {
			t.Errorf("%s: a relay got %q", name, got)
		}
		if s.log.Lines(c.log) != 1 {
			t.Errorf("%s: the log does not say that something was ended:\n%s", name, s.log)
		}
		if n, _ := metricOf(t, s.registry, "ringway_sidecar_sessions_ended_total"); n != c.sessions {
			t.Errorf("%s: %v sessions are counted", name, n)
		}
	}
}

// echoing is a service of WebSockets, which also has requests that it never answers.
func echoing(t testing.TB) (offer advertise.Service, arrived chan struct{}) {
	arrived = make(chan struct{}, 1)
	return serve(t, "echo", "", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			arrived <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body) // net/http watches the connection only then
			<-r.Context().Done()
			return
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.CloseNow() }()
		for {
			kind, text, err := c.Read(context.Background())
			if err != nil {
				return // closed
			}
			_ = c.Write(context.Background(), kind, text)
		}
	}), arrived
}

// webSocket is the relay's end of one.
type webSocket struct {
	*websocket.Conn
	echoes chan string
}

// webSockets opens some, and sends each to ended when it has ended.
func (r *running) webSockets(t testing.TB, n int) (open map[*webSocket]bool, ended chan *webSocket) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	open, ended = map[*webSocket]bool{}, make(chan *webSocket, n)
	var reading sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		reading.Wait()
	})
	client := r.relay(t)
	for range n {
		c, _, err := websocket.Dial(ctx, "wss://"+r.Addr().String(), &websocket.DialOptions{HTTPClient: client, HTTPHeader: http.Header{wire.ServiceHeader: {"echo"}}})
		if err != nil {
			t.Fatal(err)
		}
		one := &webSocket{c, make(chan string, 1)}
		open[one] = true
		reading.Go(func() {
			for {
				_, text, err := c.Read(ctx)
				if err == nil {
					one.echoes <- string(text)
					continue
				}
				if websocket.CloseStatus(err) != websocket.StatusGoingAway && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
					t.Errorf("a WebSocket ended with %v", err)
				}
				ended <- one
				return
			}
		})
	}
	return open, ended
}

func TestWebSocketsOutliveTheDrainOfRequestsAndEndOneAfterTheOther(t *testing.T) {
	const all = 16
	echo, arrived := echoing(t)
	// Each has two seconds more than the one before it.
	s := start(t, func(c *Config) {
		c.DrainTimeout, c.SessionDrainTimeout = 100*time.Millisecond, 100*time.Millisecond+all*2*time.Second
	}, echo)
	open, ended := s.webSockets(t, all)
	held := background(s.relay(t), s.request(t, "POST", "echo", strings.NewReader("x")))
	within(t, arrived, "the request")
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	if got := within(t, held, "the end of the request"); got.status != http.StatusBadGateway || !strings.Contains(got.body, "this member stops") {
		t.Errorf("the request that had no answer: %+v", got)
	}
	delete(open, within(t, ended, "the end of the first"))
	echoed := 0
	for c := range open {
		_ = c.Write(t.Context(), websocket.MessageText, []byte("still here"))
		select {
		case <-c.echoes:
			echoed++
		case <-ended: // on a machine that takes its time, its turn has come
		}
	}
	if echoed < all/2 {
		t.Errorf("%d of %d are left after the first has ended", echoed, all)
	}
	for c := range open {
		_ = c.CloseNow()
	}
	if err := within(t, stopped, "the end, which need not wait for sessions that have closed"); err != nil {
		t.Error(err)
	}
}

func TestWebSocketsEndWithinTheirTime(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Second} {
		echo, _ := echoing(t)
		s := start(t, func(c *Config) { c.DrainTimeout, c.SessionDrainTimeout = 10*time.Millisecond, timeout }, echo)
		_, ended := s.webSockets(t, 3)
		began := time.Now()
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		for range 3 {
			within(t, ended, "the end of a WebSocket")
		}
		if after := time.Since(began); after < timeout {
			t.Errorf("with %v all have ended after %v", timeout, after)
		}
		if n, _ := metricOf(t, s.registry, "ringway_sidecar_sessions_ended_total"); n != 3 {
			t.Errorf("%v sessions are counted", n)
		}
	}
}

func TestAnswersThatHaveBegunOutliveTheDrainOfRequestsOverHTTP2(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		s := start(t, func(c *Config) { c.DrainTimeout, c.SessionDrainTimeout = 10*time.Millisecond, time.Second }, serve(t, "a", protocol, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Do") == "stream" {
				_, _ = io.WriteString(w, "begun")
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}))
		client := s.relay(t, "h2")
		held := background(client, s.request(t, "GET", "a", nil))
		resp, err := client.Do(s.request(t, "GET", "a", nil, "X-Do: stream"))
		if err != nil {
			t.Fatal(err)
		}
		procs.Await(t, "the request", func() bool {
			n, _ := metricOf(t, s.registry, "ringway_sidecar_in_flight", "a")
			return n == 2
		})
		began := time.Now()
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if after := time.Since(began); after < time.Second {
			t.Errorf("%s: the stream ended after %v", protocol, after)
		}
		if body, err := io.ReadAll(resp.Body); err == nil || string(body) != "begun" {
			t.Errorf("%s: the stream ends with %q, %v", protocol, body, err)
		}
		_ = resp.Body.Close()
		if got := within(t, held, "the request"); got.status != http.StatusBadGateway || !strings.Contains(got.body, "this member stops") {
			t.Errorf("%s: the request got %+v", protocol, got)
		}
		if n, _ := metricOf(t, s.registry, "ringway_sidecar_sessions_ended_total"); n != 1 {
			t.Errorf("%s: %v sessions are counted", protocol, n)
		}
	}
}

func TestCloseEndsRunImmediately(t *testing.T) {
	a, arrived, release, _ := holding(t, "a")
	defer close(release)
	s := start(t, nil, a)
	held := background(s.relay(t), s.request(t, "POST", "a", strings.NewReader("x"), "X-Do: hold"))
	within(t, arrived, "the request")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := within(t, held, "the end of the request"); got.err == nil {
		t.Errorf("%+v", got)
	}
	if err := s.stop(); err != nil { // it has DrainTimeout left
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("again: %v", err)
	}
}
