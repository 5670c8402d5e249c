package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

// sessionBackend has tunnels that echo, a stream that does not end, and requests that
// are not answered.
func sessionBackend(t *testing.T) *httptest.Server {
	done := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/tunnel":
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
			_, _ = io.Copy(conn, buffered)
			return
		case "/stream":
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-done:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(backend.Close)
	t.Cleanup(func() { close(done) })
	return backend
}

// tunnel is the client's end of one.
type tunnel struct {
	net.Conn
	in *bufio.Reader
}

func openTunnel(t *testing.T, r *runningRelay) *tunnel {
	t.Helper()
	conn := connect(t, r.IngressAddr(), "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n"+wire.ServiceHeader+": echo\r\n\r\n")
	_ = conn.SetDeadline(time.Now().Add(patience))
	tun := &tunnel{conn, bufio.NewReader(conn)}
	if resp, err := http.ReadResponse(tun.in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	return tun
}

func (tun *tunnel) echoes(text string) bool {
	if _, err := io.WriteString(tun, text+"\n"); err != nil {
		return false
	}
	line, err := tun.in.ReadString('\n')
	return err == nil && line == text+"\n"
}

func TestTunnelsAndStreamsOutliveTheDrainOfRequestsAndEndOneAfterTheOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const requests, sessions = 300 * time.Millisecond, 5300 * time.Millisecond
	r := f.relay(func(s *Settings) { s.DrainTimeout, s.SessionDrainTimeout = requests, sessions })
	f.worker("w1", service("echo", sessionBackend(t)))
	r.settled(t, "echo", 1)
	var tunnels []*tunnel
	for range 4 {
		tunnels = append(tunnels, openTunnel(t, r))
	}
	stream := connect(t, r.IngressAddr(), "GET /stream HTTP/1.1\r\nHost: a\r\n"+wire.ServiceHeader+": echo\r\n\r\n")
	streamed, err := http.ReadResponse(bufio.NewReader(stream), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = streamed.Body.Close() }()
	unanswered := make(chan string, 1)
	go func() {
		conn := connect(t, r.IngressAddr(), "POST /request HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"+wire.ServiceHeader+": echo\r\n\r\n")
		line, _ := bufio.NewReader(conn).ReadString('\n')
		unanswered <- line
	}()
	r.await(t, "6 requests", func() bool { return r.InFlight() == 6 })

	stopped := make(chan error, 1)
	began := time.Now()
	// due is how many of the five sessions may have ended at a time: one more each second. A slow
	// machine ends them late, never early.
	due := func(at time.Time) int { return int(5 * float64(at.Sub(began)-requests) / float64(sessions-requests)) }
	go func() { stopped <- r.stop() }()
	r.await(t, "the end of the drain of requests", func() bool { return strings.Contains(r.log.String(), "draining sessions") })
	if line := <-unanswered; !strings.Contains(line, "504") {
		t.Errorf("the request that had no answer got %q", line)
	}
	gone := 0
	for _, tun := range tunnels {
		if !tun.echoes("still here") {
			gone++
		}
	}
	if n := due(time.Now()); gone > n {
		t.Errorf("%d tunnels have ended with the requests, %d were due", gone, n)
	}
	ends := make(chan time.Time, 5)
	for _, tun := range tunnels {
		go func() {
			_, _ = tun.in.ReadByte()
			ends <- time.Now()
		}()
	}
	go func() {
		if _, err := io.ReadAll(streamed.Body); err == nil {
			t.Error("the stream ends as if it were whole")
		}
		ends <- time.Now()
	}()
	var all []time.Time
	for range 5 {
		all = append(all, <-ends)
	}
	slices.SortFunc(all, time.Time.Compare)
	for i, at := range all {
		if n := due(at); n < i+1 {
			t.Errorf("%d sessions have ended when %d were due", i+1, n)
		}
	}
	if spread := all[4].Sub(all[0]); spread < 400*time.Millisecond { // 4 s but for a slow machine
		t.Errorf("the sessions ended within %v", spread)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if strings.Contains(r.log.String(), "requests were still in flight") {
		t.Error("the log says that requests were cut")
	}
	if n := logtest.Series(t, r.cfg.Registry, "ringway_relay_sessions_ended_total")[""]; n != 5 {
		t.Errorf("%v sessions are counted", n)
	}
}

// A call whose messages follow each other without a pause is as likely cut off within a write
// as between two.
func TestCallsOfAStoppingRelayAreUnavailableAndOtherStreamsAreCut(t *testing.T) {
	t.Parallel()
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/unanswered" {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		for {
			if _, err := io.WriteString(w, "a message"); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			if r.URL.Path == "/one" {
				<-r.Context().Done()
			}
		}
	}))
	backend.Config.Protocols = new(http.Protocols)
	backend.Config.Protocols.SetUnencryptedHTTP2(true)
	backend.Start()
	t.Cleanup(backend.Close)
	offer := service("echo", backend)
	offer.Protocol = advertise.H2C
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.DrainTimeout = 10 * time.Millisecond; s.SessionDrainTimeout = s.DrainTimeout })
	gate := f.relay(func(s *Settings) { s.Role = identity.RoleGate })
	f.worker("w1", offer)
	r.settled(t, "echo", 1)
	gate.settled(t, "echo", 1)
	gate.await(t, "its way to the relay", func() bool { d := gate.forwarding(t); return d.Forwarding != nil && len(d.Forwarding.Primaries) == 1 })
	transport := &http.Transport{Protocols: backend.Config.Protocols}
	t.Cleanup(transport.CloseIdleConnections)
	var clients sync.WaitGroup
	for _, first := range []*runningRelay{r, gate} {
		for kind, ends := range map[string]map[string]string{
			"application/grpc": {"/one": "200 and messages, then 14", "/many": "200 and messages, then 14", "/unanswered": "200, then 14"},
			"text/plain":       {"/one": "200 and messages, then an error", "/unanswered": "504"},
		} {
			for path, want := range ends {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+first.IngressAddr()+path, strings.NewReader("x"))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set(wire.ServiceHeader, "echo")
				req.Header.Set("Content-Type", kind)
				begun := make(chan struct{})
				clients.Go(func() {
					resp, err := transport.RoundTrip(req)
					close(begun)
					if err != nil {
						t.Errorf("%s %s of a client of %s: %v", kind, path, first.id, err)
						return
					}
					defer func() { _ = resp.Body.Close() }()
					got := fmt.Sprint(resp.StatusCode)
					n, err := io.Copy(io.Discard, resp.Body)
					if n > 0 && resp.StatusCode == http.StatusOK {
						got += " and messages"
					}
					if status := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status"); status != "" {
						got += ", then " + status
					}
					if err != nil {
						got += ", then an error"
					}
					if got != want {
						t.Errorf("%s %s of a client of %s: %s, want %s", kind, path, first.id, got, want)
					}
				})
				if path != "/unanswered" {
					<-begun
				}
			}
		}
	}
	r.await(t, "all requests", func() bool { return r.InFlight() == 10 })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	clients.Wait()
}

func TestARequestWithoutAnAnswerAtTheEndOfItsDrainIsLogged(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.DrainTimeout = 100 * time.Millisecond }) // there are no sessions to wait for
	f.worker("w1", service("echo", sessionBackend(t)))
	r.settled(t, "echo", 1)
	conn := connect(t, r.IngressAddr(), "POST /request HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"+wire.ServiceHeader+": echo\r\n\r\n")
	r.await(t, "the request", func() bool { return r.InFlight() == 1 })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(string(body), "this relay stops") {
		t.Errorf("%s %s %v", resp.Status, body, err)
	}
}

func TestAStopThatWaitsForSessionsEndsWithTheLastOfThem(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.DrainTimeout, s.SessionDrainTimeout = 10*time.Millisecond, 10*time.Minute })
	f.worker("w1", service("echo", sessionBackend(t)))
	r.settled(t, "echo", 1)
	tun := openTunnel(t, r)
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	r.await(t, "the end of the drain of requests", func() bool { return strings.Contains(r.log.String(), "draining sessions") })
	_ = tun.Close()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it waits for sessions that there are not any more")
	}
}

func TestSessionsHaveAtLeastTheTimeOfRequests(t *testing.T) {
	for _, c := range []struct{ requests, sessions, want time.Duration }{
		{30 * time.Second, 0, process.DefaultSessionDrain}, {10 * time.Minute, 0, 10 * time.Minute},
		{30 * time.Second, time.Minute, time.Minute}, {time.Minute, time.Minute, time.Minute}, {time.Minute, time.Second, 0},
	} {
		s, err := load(t, "--drain-timeout", fmt.Sprint(c.requests), "--session-drain-timeout", fmt.Sprint(c.sessions))
		if c.want == 0 {
			if err == nil || !strings.Contains(err.Error(), "--session-drain-timeout") || !strings.Contains(err.Error(), "at least --drain-timeout, 1m0s") {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if limit := s.requests().SessionDrainTimeout; err != nil || limit != c.want {
			t.Errorf("%+v: %v, %v", c, limit, err)
		}
	}
}
