//go:build unix

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

const (
	relayFiles = 1024
	crowd      = 2000
)

// crowdOf are the connections of many clients.
type crowdOf struct {
	conns []net.Conn
	// once: each connection is closed with its answer.
	once bool
}

// connect opens n connections.
func connect(t *testing.T, addr string, n int) *crowdOf {
	t.Helper()
	c := &crowdOf{}
	t.Cleanup(c.leave)
	for range n {
		conn, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * patience))
		c.conns = append(c.conns, conn)
	}
	return c
}

// ask sends a request on each connection, as a proxy on this host does for many clients.
func (c *crowdOf) ask(service, path string) {
	for _, conn := range c.conns {
		port := conn.LocalAddr().(*net.TCPAddr).Port
		// An error shows as a missing answer.
		_, _ = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"+serviceHeader+": "+service+fmt.Sprintf("\r\nX-Forwarded-For: 198.18.%d.%d\r\n\r\n", port>>8, port&0xff))
	}
}

// gather opens n connections, each with a request: one without a request may lose its
// place to a newer one.
func gather(t *testing.T, addr string, n int, service, path string) *crowdOf {
	t.Helper()
	c := &crowdOf{}
	for range n {
		one := connect(t, addr, 1)
		one.ask(service, path)
		c.conns = append(c.conns, one.conns...)
	}
	return c
}

// answers counts the answers by status and code, "none" where there is none.
func (c *crowdOf) answers() map[string]int {
	var mu sync.Mutex
	var group sync.WaitGroup
	counts := map[string]int{}
	for _, conn := range c.conns {
		group.Go(func() {
			got := "none"
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				body, _ := io.ReadAll(resp.Body)
				got = strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", answer{body: string(body)}.failure().Code))
			}
			if c.once {
				_ = conn.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			counts[got]++
		})
	}
	group.Wait()
	return counts
}

func (c *crowdOf) leave() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// evicted is how many workers a relay sends nothing for some time, by reason.
func (f *fleet) evicted(t *testing.T, r *relay) map[string]float64 {
	evictions := map[string]float64{}
	for _, reason := range []string{"consecutive_failures", "error_rate", "latency", "half_open"} {
		if n := f.metric(t, r, fmt.Sprintf("ringway_selection_evictions_total{reason=%q}", reason)); n != 0 {
			evictions[reason] = n
		}
	}
	return evictions
}

func TestClientsCannotUseUpTheDescriptorsOfARelay(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 3, Secure: true, RelayFiles: relayFiles,
		RelayArgs: []string{"--request-timeout", "2m"},
		Services:  func(int) []string { return []string{"rpc;protocol=h2c"} }})
	r := f.relays[0]
	f.serves(t, r, "rpc")
	clients := gather(t, r.Ingress, crowd, "rpc", "/hold?key=crowd")
	limit := f.metric(t, r, "ringway_relay_client_connections_limit")
	if want := float64(relayFiles-128) / 2; limit != want {
		t.Fatalf("%v connections of clients may be open, want %v", limit, want)
	}
	procs.Await(t, "as many clients as there may be, all with a request under way", func() bool {
		return f.metric(t, r, "ringway_relay_client_connections") == limit && f.metric(t, r, `ringway_relay_accept_pauses_total{reason="connections"}`) > 0
	})

	// What does not belong to clients works, over connections of its own.
	f.client = newClient(t)
	if got, status := f.ready(r.Admin); status != 200 {
		t.Errorf("/readyz: %d %v", status, got)
	}
	s := f.Security
	if err := s.Certificate(claims{Role: "relay", Node: r.ID}, "ca", "renewed"); err != nil {
		t.Fatal(err)
	}
	renewed := s.Serial(t, "renewed")
	for _, ext := range []string{".key", ".crt"} {
		if err := os.Rename(s.Path("renewed"+ext), s.Path(r.ID+ext)); err != nil {
			t.Fatal(err)
		}
	}
	procs.Await(t, "the renewed certificate", func() bool { return f.shown(t, r.Peer, "h2") == renewed })
	f.startWorker("w4", "rpc;protocol=h2c")
	procs.Await(t, "a worker that joins", func() bool { return f.sees("w4", true) })

	f.release(t, "crowd")
	if got := clients.answers(); got["200"] != crowd {
		t.Errorf("answers: %v, want %d times 200", got, crowd)
	}
	if n := f.evicted(t, r); len(n) != 0 {
		t.Errorf("evictions of workers: %v", n)
	}
	if n := f.metric(t, r, `ringway_relay_accept_pauses_total{reason="files"}`); n != 0 {
		t.Errorf("the relay was out of descriptors %v times", n)
	}
}

// It runs alone, before the tests that run in parallel: its clients must come faster than
// they time out.
func TestARelayWithoutDescriptorsBlamesNoWorkerAndRecovers(t *testing.T) {
	const files = 256
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 3, RelayFiles: files,
		RelayArgs: []string{"--max-client-connections", fmt.Sprint(files), "--request-timeout", "2m"},
		Services:  func(int) []string { return []string{"echo"} }})
	r := f.relays[0]
	f.serves(t, r, "echo")
	if !r.Logged("--max-client-connections leaves too few descriptors", "") {
		t.Error("the log does not warn")
	}
	// The connections of the clients take all descriptors before the first request needs
	// one for a connection to a worker.
	begun, lines := time.Now(), strings.Count(r.Output(), "\n")
	clients := connect(t, r.Ingress, files)
	clients.once = true
	procs.Await(t, "that it accepts no more", func() bool { // over a connection that is open already
		return f.metric(t, r, `ringway_relay_accept_pauses_total{reason="files"}`) > 0
	})
	connect(t, r.Peer, 5) // the system accepts these, the relay cannot
	connect(t, r.Gossip, 5)
	procs.Await(t, "the log of the shortage", func() bool { return r.Logged("accept gossip stream", "too many open files") })
	before := f.metric(t, r, `ringway_relay_accept_pauses_total{reason="files"}`)
	procs.Await(t, "that it lasts", func() bool { // a warning for each failed attempt would show
		return f.metric(t, r, `ringway_relay_accept_pauses_total{reason="files"}`) > before && time.Since(begun) > 3*time.Second
	})
	clients.ask("echo", "/hold?key=files")
	procs.Await(t, "that it refuses requests", func() bool {
		return f.metric(t, r, `ringway_relay_rejections_total{code="relay_exhausted",service="echo"}`) > 0
	})
	f.release(t, "files")
	got := clients.answers()
	t.Logf("%v", got)
	if got["503 relay_exhausted"] == 0 || got["200"] == 0 || got["200"]+got["503 relay_exhausted"]+got["none"] != files {
		t.Errorf("answers: %v", got)
	}
	clients.leave()
	procs.Await(t, "the relay again", func() bool { return f.client.get(r.Admin, "/readyz").status == 200 })
	if n, most := strings.Count(r.Output(), "\n")-lines, 5+int(time.Since(begun)/time.Second); n > most {
		t.Errorf("%d lines in %v, at most %d are allowed:\n%s", n, time.Since(begun), most, r.Output())
	}
	if n := f.evicted(t, r); len(n) != 0 {
		t.Errorf("evictions of workers: %v", n)
	}
	if n := f.metric(t, r, `ringway_relay_accept_pauses_total{reason="files"}`); n == 0 || n > 1000 {
		t.Errorf("accepting failed %v times", n)
	}
	for range 30 {
		if a := f.call(r, "echo"); a.status != 200 {
			t.Errorf("%v", a)
		}
	}
}

// serves waits until a relay carries requests to a service.
func (f *fleet) serves(t *testing.T, r *relay, service string) {
	t.Helper()
	procs.Await(t, r.ID+" is ready and serves "+service, func() bool { return f.client.get(r.Admin, "/readyz").status == 200 && f.call(r, service).status == 200 })
}
