//go:build linux

package hostile

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// TestSilentConnectionsBlockNoMember has strangers, who hold nothing, keep 1,000
// silent connections open at each port that speaks mutual TLS.
func TestSilentConnectionsBlockNoMember(t *testing.T) {
	t.Parallel()
	const silent, handshakes = 1000, 40
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1})
	for _, port := range []struct{ name, addr, holder, protocol string }{
		{"the gossip port of a relay", f.Relays[0].Gossip, "w1", "probe/1"},
		{"the gossip port of a worker", f.Workers[0].Gossip, "r1", "probe/1"},
		{"the peer port of a relay", f.Relays[0].Peer, "r2", "h2"},
		{"the sidecar of a worker", f.Workers[0].Sidecar, "r1", "http/1.1"},
	} {
		t.Run(port.name, func(t *testing.T) {
			stop := staySilent(t, port.addr, silent)
			defer stop()
			var admitted atomic.Int64
			var group sync.WaitGroup
			place := make(chan struct{}, 8)
			for range handshakes {
				group.Go(func() {
					place <- struct{}{}
					defer func() { <-place }()
					if err := f.handshake(port.addr, port.holder, port.protocol); err == nil {
						admitted.Add(1)
					}
				})
			}
			group.Wait()
			f.serves(5)
			if n := admitted.Load(); n != handshakes {
				t.Errorf("%d of %d handshakes of members succeeded", n, handshakes)
			}
		})
	}
}

// staySilent keeps n connections open that never send anything, and opens each again
// when it is closed. It returns when all have been opened once.
func staySilent(t *testing.T, addr string, n int) (stop func()) {
	t.Helper()
	const again = 500 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var opened atomic.Int64
	for i := range n {
		running.Go(func() {
			// Strangers are elsewhere, on four hosts.
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 66, byte(1+i%4))}}
			for first := true; ctx.Err() == nil; first = false {
				conn, err := dialer.DialContext(ctx, "tcp", addr)
				if first {
					opened.Add(1)
				}
				if err == nil {
					release := context.AfterFunc(ctx, func() { _ = conn.Close() })
					_, _ = conn.Read(make([]byte, 1)) // until the other end has enough of it
					release()
					_ = conn.Close()
				}
				select {
				case <-ctx.Done():
				case <-time.After(again):
				}
			}
		})
	}
	procs.Await(t, "all silent connections are open", func() bool { return opened.Load() == int64(n) })
	return func() { cancel(); running.Wait() }
}

// TestSlowReadersHoldAServiceNoLongerThanTheProgressTimeout has more clients than the
// service may have requests in flight, and none of them reads its answer.
func TestSlowReadersHoldAServiceNoLongerThanTheProgressTimeout(t *testing.T) {
	t.Parallel()
	const inFlight = 60
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1, RelayArgs: []string{"--max-in-flight", fmt.Sprint(inFlight), "--progress-timeout", "2s"}})
	r := f.Relays[0]
	reader := func() {
		conn, err := narrow.Dial("tcp", r.Ingress)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET /endless HTTP/1.1\r\nHost: x\r\n%s: %s\r\n\r\n", serviceHeader, echo); err != nil {
			t.Fatal(err)
		}
	}
	procs.Await(t, "the service is full", func() bool {
		for range inFlight {
			reader()
		}
		status, body := f.ask(r, echo, http.MethodPost, "/")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "overloaded")
	})
	procs.AwaitFor(t, 20*time.Second, "the service answers again", func() bool {
		status, _ := f.ask(r, echo, http.MethodPost, "/")
		return status == http.StatusOK
	})
	f.serves(20)
}

// TestAPageInABrowserDoesNotReachTheAdminAPI has a page of another site that made its
// name mean the address of this host, and requests that something else passed on.
func TestAPageInABrowserDoesNotReachTheAdminAPI(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1})
	for _, admin := range []string{f.Relays[0].Admin, f.Workers[0].Admin} {
		_, port, _ := net.SplitHostPort(admin)
		for _, host := range []string{admin, "localhost:" + port, "LOCALHOST"} {
			if status, body := send(f.client, call{method: http.MethodGet, addr: admin, path: "/api/v1/members", header: map[string]string{"Host": host}}); status != http.StatusOK {
				t.Errorf("Host %s: %d %s", host, status, body)
			}
		}
		for _, header := range []map[string]string{
			{"Host": "evil.example"}, {"Host": "evil.example:" + port}, {"Host": "127.0.0.1.evil.example"}, {"Host": "localhost.evil.example"},
			{"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-Proto": "https"}, {"Forwarded": "for=192.0.2.1"}, {"Via": "1.1 proxy"}, {"Ringway-Hop": "r2"}, {serviceHeader: echo}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
		} {
			for _, asked := range []call{{method: http.MethodGet, path: "/api/v1/members"}, {method: http.MethodGet, path: "/metrics"}, {method: http.MethodPost, path: "/api/v1/drain"}, {method: http.MethodPost, path: "/api/v1/reload"}} {
				asked.addr, asked.header = admin, header
				if status, body := send(f.client, asked); status < 400 || status >= 500 || status == http.StatusNotFound {
					t.Errorf("%s %s with %v: %d %.40q", asked.method, asked.path, header, status, body)
				}
			}
		}
	}
	if err := f.allThere(); err != nil {
		t.Error(err)
	}
	f.serves(10)
}

// callerHeader names who sends a request, for circuits.
const callerHeader = "Ringway-Caller"

// circuits open after a few failures and stay open for the rest of the test.
func circuits(more ...string) []string {
	return append([]string{"--circuit", "on", "--circuit-min-requests", "5", "--circuit-period", "60s"}, more...)
}

// callAs sends requests in the name of a caller and returns their statuses.
func (f *fleet) callAs(client *http.Client, caller, path string, n int) (statuses []int) {
	for range n {
		status, _ := send(client, call{method: http.MethodGet, addr: f.Relays[0].Ingress, path: path, header: map[string]string{serviceHeader: echo, callerHeader: caller}})
		statuses = append(statuses, status)
	}
	return statuses
}

// TestAStrangerOpensNoCircuitOfACaller has a client send failing requests in the name of
// another.
func TestAStrangerOpensNoCircuitOfACaller(t *testing.T) {
	t.Parallel()
	const failing, asked = 30, 10
	const stranger, front = "127.0.77.1", "127.0.8.1" // the victim is on neither
	t.Run("where no front is trusted", func(t *testing.T) {
		t.Parallel()
		f := startFleet(t, fleetConfig{Relays: 1, Workers: 1, RelayArgs: circuits()})
		f.callAs(clientFrom(t, stranger), "victim", "/fail", failing)
		if got := f.callAs(f.client, "victim", "/", asked); slices.ContainsFunc(got, func(status int) bool { return status != http.StatusOK }) {
			t.Errorf("the victim was answered %v", got)
		}
	})
	t.Run("next to a trusted front", func(t *testing.T) {
		t.Parallel()
		f := startFleet(t, fleetConfig{Relays: 1, Workers: 1, RelayArgs: circuits("--trusted-proxy", front+"/32")})
		trusted := clientFrom(t, front)
		f.callAs(clientFrom(t, stranger), "victim", "/fail", failing)
		if got := f.callAs(trusted, "victim", "/", asked); slices.ContainsFunc(got, func(status int) bool { return status != http.StatusOK }) {
			t.Errorf("the victim was answered %v", got)
		}
		// The front's word counts: a circuit that it names opens.
		f.callAs(trusted, "loud", "/fail", failing)
		if got := f.callAs(trusted, "loud", "/", asked); !slices.Contains(got, http.StatusServiceUnavailable) {
			t.Errorf("the caller that the front named was answered %v", got)
		}
	})
}
