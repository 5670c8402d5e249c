package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
	"github.com/ringway/ringway/internal/wire"
)

// v2Header is a header of version 2 of the PROXY protocol for 198.51.100.7:12345.
func v2Header() string {
	const signature = "\r\n\r\n\x00\r\nQUIT\n"
	return signature + "\x21\x11" + string(binary.BigEndian.AppendUint16(nil, 12)) + "\xc6\x33\x64\x07\xc0\x00\x02\x01\x30\x39\x00\x50"
}

const v1Header = "PROXY TCP4 198.51.100.7 192.0.2.1 12345 80\r\n"

// headed is a transport whose connections begin with a header.
func headed(t *testing.T, addr, header string, config *tls.Config, http2 bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2 && config != nil)
	protocols.SetUnencryptedHTTP2(http2 && config == nil)
	transport := &http.Transport{Protocols: protocols, TLSClientConfig: config, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			_, err = io.WriteString(conn, header)
		}
		return conn, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func TestTheClientIsTheOneThatATrustedLoadBalancerReports(t *testing.T) {
	t.Parallel()
	f, ca := newFleet(t), clienttlstest.New(t)
	with := withTLS(t, ca)
	r := f.relay(func(s *Settings) {
		with(s)
		s.ProxyProtocolFrom.Set("127.0.0.0/8")
		s.MaxInFlightPerClient = clientShare{n: 50}
	})
	mirror(t, f)
	r.settled(t, "echo", 1)
	for name, c := range map[string]struct{ header, client string }{
		"version 1":            {v1Header, "198.51.100.7"},
		"version 2":            {v2Header(), "198.51.100.7"},
		"version 1, IPv6":      {"PROXY TCP6 2001:db8::7 2001:db8::1 12345 80\r\n", "2001:db8::7"},
		"version 1, UNKNOWN":   {"PROXY UNKNOWN\r\n", "127.0.0.1"},
		"version 2 for itself": {"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", "127.0.0.1"},
	} {
		for i, addr := range r.IngressAddrs() {
			for _, http2 := range []bool{false, true} {
				var config *tls.Config
				url := "http://a.test/"
				if i == 1 {
					config, url = &tls.Config{RootCAs: ca.Pool()}, "https://a.test/"
				}
				client := headed(t, addr, c.header, config, http2)
				forged := http.Header{"X-Forwarded-For": {"203.0.113.1"}, "X_forwarded_for": {"203.0.113.1"}, "Forwarded": {"for=203.0.113.1"}, "X-Real-Ip": {"203.0.113.1"}}
				for range 2 {
					_, body, err := ask(t, client, url, forged)
					if err != nil || !strings.Contains(body, "X-Forwarded-For: "+c.client+"\r\n") || strings.Contains(body, "203.0.113.1") {
						t.Fatalf("%s, %s, HTTP/2 %t: %v\n%s", name, addr, http2, err, body)
					}
				}
			}
		}
	}
}

func TestAConnectionWithoutTheHeaderThatItNeedsIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) {
		s.ProxyProtocolFrom.Set("127.0.0.0/8")
		s.Clients.HeadTimeout = 2 * time.Second
	})
	mirror(t, f)
	r.settled(t, "echo", 1)
	const request = "GET / HTTP/1.1\r\nHost: a\r\n" + wire.ServiceHeader + ": echo\r\n\r\n"
	for name, c := range map[string]struct {
		sent, reason string
		closes       bool // the client, after what it sent
	}{
		"none":           {request, "proxy_missing", false},
		"malformed":      {"PROXY TCP4 here there 1 2\r\n" + request, "proxy_malformed", false},
		"oversized":      {"PROXY UNKNOWN " + strings.Repeat("f", 200) + "\r\n" + request, "proxy_malformed", false},
		"oversized in 2": {v2Header()[:14] + "\xff\xff" + request, "proxy_malformed", false},
		"truncated":      {v1Header[:20], "closed", true},
		"slow":           {v1Header[:20], "timeout", false},
	} {
		counted := func() string { return r.metric(t, `ringway_relay_ingress_refused_total{reason="`+c.reason+`"}`) }
		before := counted()
		conn, err := net.Dial("tcp", r.IngressAddr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, c.sent)
		if c.closes {
			_ = conn.Close()
		} else {
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			if n, err := conn.Read(make([]byte, 1)); n > 0 || os.IsTimeout(err) {
				t.Errorf("%s: %d bytes, %v", name, n, err)
			}
			_ = conn.Close()
		}
		r.await(t, name+" in the metrics", func() bool { return counted() != before })
	}
}

// A header that is not the first of a connection, or not from a load balancer, is a request
// that is malformed, and names no client.
func TestAHeaderThatIsNotExpectedIsMalformed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	trusting := f.relay(func(s *Settings) { s.ProxyProtocolFrom.Set("127.0.0.0/8") })
	other := f.relay(func(s *Settings) { s.ProxyProtocolFrom.Set("10.0.0.0/8", "2001:db8::/32") })
	mirror(t, f)
	for _, r := range f.relays {
		r.settled(t, "echo", 1)
	}
	const request = "GET / HTTP/1.1\r\nHost: a\r\n" + wire.ServiceHeader + ": echo\r\n\r\n"
	for name, c := range map[string]struct {
		r    *runningRelay
		sent string
	}{
		"twice":                        {trusting, v1Header + v1Header + request},
		"in both versions":             {trusting, v1Header + v2Header() + request},
		"from elsewhere":               {other, v1Header + request},
		"from elsewhere in version 2":  {other, v2Header() + request},
		"after a request":              {other, request + v1Header + request},
		"before a request on that":     {trusting, v1Header + request + v1Header + request},
		"from elsewhere before HTTP/2": {other, v1Header + "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
	} {
		malformed := func() string {
			return c.r.metric(t, `ringway_relay_connections_dropped_total{listener="ingress",reason="malformed"}`)
		}
		before := malformed()
		conn, err := net.Dial("tcp", c.r.IngressAddr())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, c.sent)
		in := bufio.NewReader(conn)
		for {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			body, _ := io.ReadAll(resp.Body)
			if strings.Contains(string(body), "198.51.100.7") != (name == "before a request on that") && resp.StatusCode == 200 {
				t.Errorf("%s: %s", name, body)
			}
			if resp.StatusCode == http.StatusBadRequest {
				break
			}
		}
		_ = conn.Close()
		if malformed() == before {
			t.Errorf("%s is not counted", name)
		}
	}
}
