//go:build linux

package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/internal/procs"
)

const (
	// hogConns and hogStreams are the requests of a client that never ends any of them.
	hogConns, hogStreams = 12, 1000
	// maxHogged is the resident memory of a relay that has such a client, in bytes.
	maxHogged = 150 << 20
	// leastServed is the share of the requests of other clients that are answered meanwhile.
	leastServed = 0.99
)

// caller is where a client connects from: an address of this host, and what a load balancer reports
// about it, if there is one.
type caller struct{ host, reported string }

func (c caller) dial(to string) (net.Conn, error) {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.host)}}).Dial("tcp", to)
	if err == nil && c.reported != "" {
		_, err = fmt.Fprintf(conn, "PROXY TCP4 %s 198.51.100.1 40000 80\r\n", c.reported)
	}
	return conn, err
}

func (c caller) client(t *testing.T) *http.Client {
	transport := &http.Transport{DialContext: func(_ context.Context, _, to string) (net.Conn, error) { return c.dial(to) }}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: procs.Patience}
}

// hog opens a connection with as many requests as it may have, which all send one byte of their body
// and then nothing. It returns what ends it.
func (f *fleet) hog(by caller, r *relay) (end func(), err error) {
	conn, err := by.dial(r.Ingress)
	if err != nil {
		return nil, err
	}
	fr := http2.NewFramer(conn, conn)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	drained := make(chan struct{})
	go func() { // otherwise the relay would wait until its answers are read
		defer close(drained)
		_, _ = io.Copy(io.Discard, conn)
	}()
	end = func() { _ = conn.Close(); <-drained }
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) // answers cannot be sent either
	for stream := uint32(1); stream < 2*hogStreams; stream += 2 {
		block.Reset()
		for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "x"}, {":path", "/absorb"}, {"ringway-service", echo}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
			return end, err
		}
		if err := fr.WriteData(stream, false, []byte{'x'}); err != nil {
			return end, err
		}
	}
	return end, nil
}

// TestAClientThatEndsNoRequestTakesNoMoreThanItsShare has one client fill 12 connections with 1,000
// requests each, whose bodies never end.
func TestAClientThatEndsNoRequestTakesNoMoreThanItsShare(t *testing.T) {
	for _, c := range []struct {
		name        string
		args        []string
		hog, others caller
	}{
		{"an address", nil, caller{host: "127.0.3.66"}, caller{host: "127.0.3.1"}},
		{"an address behind a load balancer", []string{"--proxy-protocol-from", "127.0.0.0/8"}, caller{"127.0.0.1", "203.0.113.66"}, caller{"127.0.0.1", "203.0.113.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := startFleet(t, fleetConfig{Relays: 1, Workers: 2, RelayArgs: c.args})
			r := f.Relays[0]
			others := c.others.client(t)
			before := memory(t, r.PID(), "VmRSS:")
			for range hogConns {
				end, err := f.hog(c.hog, r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(end)
			}
			served, asked, failed := 0, 0, map[string]int{}
			for begun := time.Now(); time.Since(begun) < 5*time.Second; asked++ {
				status, body := send(others, call{method: http.MethodPost, addr: r.Ingress, path: "/", header: map[string]string{serviceHeader: echo}})
				if status == http.StatusOK {
					served++
				} else {
					failed[fmt.Sprintf("%d %.100s", status, body)]++
				}
			}
			peak := memory(t, r.PID(), "VmHWM:")
			refused := f.metrics(r.Admin, "ringway_relay_rejections_total", func(s string) bool { return strings.Contains(s, "client_limit") })
			t.Logf("%d of %d requests of others were answered; the relay has %d MiB at its peak, %d MiB before; %v requests were refused for their client", served, asked, peak>>20, before>>20, refused)
			if float64(served) < leastServed*float64(asked) {
				t.Errorf("%d of %d requests of others were answered: %v", served, asked, failed)
			}
			if peak > maxHogged {
				t.Errorf("the relay has %d MiB, at most %d MiB are allowed", peak>>20, maxHogged>>20)
			}
			if err := f.Ended(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestARelayNearItsMemoryLimitRefusesRequestsAndLives has no bound for each client: what is left is the
// memory limit, here of the runtime alone.
func TestARelayNearItsMemoryLimitRefusesRequestsAndLives(t *testing.T) {
	const limit, most = 64 << 20, 150 << 20 // the kernel would end a process at a limit of its own
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 2, RelayArgs: []string{"--max-in-flight-per-client", "0"}, RelayEnv: []string{fmt.Sprintf("GOMEMLIMIT=%d", limit)}})
	r := f.Relays[0]
	strained := func(s string) bool { return strings.Contains(s, "memory") }
	var ends []func()
	for n := range hogConns {
		end, err := f.hog(caller{host: fmt.Sprintf("127.0.3.%d", n+2)}, r)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, sync.OnceFunc(end))
		t.Cleanup(ends[n])
	}
	procs.Await(t, "requests are refused for memory", func() bool {
		return f.metrics(r.Admin, "ringway_relay_overload_refusals_total", strained) > 0
	})
	if status, body := send(caller{host: "127.0.3.1"}.client(t), call{method: http.MethodPost, addr: r.Ingress, path: "/", header: map[string]string{serviceHeader: echo}}); status != http.StatusOK && (status != http.StatusServiceUnavailable || !strings.Contains(body, "relay_exhausted")) {
		t.Errorf("another client: %d %s", status, body)
	}
	peak, refused := memory(t, r.PID(), "VmHWM:"), f.metrics(r.Admin, "ringway_relay_overload_refusals_total", strained)
	t.Logf("the relay has %d MiB at its peak with a limit of %d MiB; %v requests were refused for memory", peak>>20, limit>>20, refused)
	if peak > most {
		t.Errorf("the relay has %d MiB, at most %d MiB are allowed", peak>>20, most>>20)
	}
	for _, end := range ends {
		end()
	}
	procs.Await(t, "the relay serves again", func() bool { return f.served(2) == nil })
	if err := f.Ended(); err != nil {
		t.Error(err)
	}
}

// TestAClientReachesOneServiceByHTTPAndNamesNoOtherClient sends what proxies in front of a service
// understand in other ways: two services, another scheme, TRACE, and fields that name a client.
func TestAClientReachesOneServiceByHTTPAndNamesNoOtherClient(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1})
	for _, c := range []struct {
		head   string
		status int
	}{
		{"GET /told HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\nRingway-Service: other\r\n", http.StatusBadRequest},
		{"GET ftp://a/told HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\n", http.StatusBadRequest},
		{"TRACE /told HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\n", http.StatusMethodNotAllowed},
		{"GET /told HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\nTrue-Client-IP: 203.0.113.9\r\nCF-Connecting-IP: 203.0.113.9\r\nX-Real-IP: 203.0.113.9\r\nForwarded: for=203.0.113.9\r\nX-Forwarded-For: 203.0.113.9\r\n", http.StatusOK},
	} {
		conn, err := net.Dial("tcp", f.Relays[0].Ingress)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(procs.Patience))
		_, _ = io.WriteString(conn, c.head+"Connection: close\r\n\r\n")
		answer, err := io.ReadAll(conn)
		_ = conn.Close()
		if err != nil || !strings.HasPrefix(string(answer), fmt.Sprintf("HTTP/1.1 %d ", c.status)) || strings.Contains(string(answer), "203.0.113.9") {
			t.Errorf("%q: %q, %v, want %d and no address that the client made up", c.head, answer, err, c.status)
		}
		if told := strings.Contains(string(answer), "X-Forwarded-For: 127.0.0.1"); told != (c.status == http.StatusOK) {
			t.Errorf("%q: %q: whether it reached the service is wrong", c.head, answer)
		}
	}
}
