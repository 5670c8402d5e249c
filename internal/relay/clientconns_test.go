package relay

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
)

// A client that begins handshakes, heads and bodies and ends none must leave connections to others.
func TestAClientThatEndsNothingLeavesConnectionsToOthers(t *testing.T) {
	t.Parallel()
	const limit, tried = 60, 50
	proxied := func(addr string) string { return fmt.Sprintf("PROXY TCP4 %s 192.0.2.1 12345 80\r\n", addr) }
	for name, c := range map[string]struct {
		secured bool
		begins  string
	}{
		"handshakes": {true, "\x16\x03\x01\x02\x00\x01"},
		"heads":      {false, "GET / HTTP/1.1\r\nHost: a\r\nRingway-Se"},
		"bodies":     {false, "POST /held HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\nContent-Length: 5\r\n\r\nab"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ca := newFleet(t), clienttlstest.New(t)
			with := withTLS(t, ca)
			r := f.relay(func(s *Settings) {
				with(s)
				s.ProxyProtocolFrom.Set("127.0.0.0/8")
				s.Requests.MaxClientConnections, s.Clients.HeadTimeout = limit, time.Hour
			})
			mirror(t, f)
			r.settled(t, "echo", 1)
			at := 0
			if c.secured {
				at = 1
			}
			refused := 0
			for range tried {
				conn := connect(t, r.IngressAddrs()[at], proxied("203.0.113.66")+c.begins)
				_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				if _, err := conn.Read(make([]byte, 1)); err != nil && !os.IsTimeout(err) {
					refused++
				}
			}
			r.await(t, "the refusals in the metrics", func() bool {
				return r.metric(t, `ringway_relay_ingress_refused_total{reason="client_share"}`) != "0"
			})
			r.await(t, "at most half of the connections to be those of one client", func() bool { return r.clients.count() <= limit/2 })
			t.Logf("%d of %d connections of one client were refused", refused, tried)
			client := headed(t, r.IngressAddrs()[1], proxied("203.0.113.1"), &tls.Config{RootCAs: ca.Pool()}, false)
			if resp, _, err := ask(t, client, "https://a.test/", nil); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("another client: %v %v", resp, err)
			}
		})
	}
}
