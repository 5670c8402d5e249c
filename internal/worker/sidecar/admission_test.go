package sidecar

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

func TestOnlyRelaysAndObserversOfThisClusterComeIn(t *testing.T) {
	var served atomic.Int64
	s := start(t, nil, serve(t, "echo", advertise.HTTP1, func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	changed := func(change func(*identity.Claims)) identity.Claims {
		c := claims(identity.RoleRelay, "r9")
		change(&c)
		return c
	}
	ours := func(c identity.Claims) *tls.Config { return tlsAs(source(t, s.authority, c), "http/1.1") }
	for _, c := range []struct {
		who    string
		config *tls.Config
		reason identity.Reason
	}{
		{"a worker", ours(claims(identity.RoleWorker, "w2")), "matrix"},
		{"a gate", ours(claims(identity.RoleGate, "g1")), "matrix"},
		{"a client", ours(claims(identity.RoleClient, "c1")), "matrix"},
		{"a relay of another cluster", ours(changed(func(c *identity.Claims) { c.Cluster = "other" })), "cluster"},
		{"a relay of another environment", ours(changed(func(c *identity.Claims) { c.Environment = "prod" })), "environment"},
		{"a relay by another authority", tlsAs(source(t, newAuthority(t), claims(identity.RoleRelay, "r1"))), "unknown_authority"},
		{"a client without a certificate", &tls.Config{InsecureSkipVerify: true}, "no_certificate"},
	} {
		before, _ := metricOf(t, s.registry, "ringway_sidecar_refused_total", string(c.reason))
		// In TLS 1.3 the refused one learns of it at its first read.
		conn, err := tls.Dial("tcp", s.Addr().String(), c.config)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n%s: echo\r\n\r\n", wire.ServiceHeader)
			var n int
			if n, err = conn.Read(make([]byte, 512)); n > 0 {
				t.Errorf("%s got %d bytes of an answer", c.who, n)
			}
			_ = conn.Close()
		}
		if err == nil || os.IsTimeout(err) {
			t.Errorf("%s: %v, want its refusal", c.who, err)
		}
		procs.Await(t, c.who+" is counted as "+string(c.reason), func() bool {
			after, _ := metricOf(t, s.registry, "ringway_sidecar_refused_total", string(c.reason))
			return after == before+1
		})
	}
	if n := s.log.Lines("connection refused"); n != 1 {
		t.Errorf("%d lines for 7 refusals in a row, want 1:\n%s", n, s.log)
	}
	if !strings.Contains(s.log.String(), "w2") || !strings.Contains(s.log.String(), "127.0.0.1:") {
		t.Errorf("the line does not say who was refused:\n%s", s.log)
	}
	if served.Load() != 0 {
		t.Errorf("%d requests of strangers reached the service", served.Load())
	}
	observer := &http.Client{Transport: &http.Transport{TLSClientConfig: ours(claims(identity.RoleObserver, "o1")), DisableKeepAlives: true}}
	if resp, _ := answer(t, observer, s.request(t, "GET", "echo", nil)); resp.StatusCode != 200 || served.Swap(0) != 1 {
		t.Errorf("an observer of ours got %s", resp.Status)
	}
	if resp, _ := answer(t, s.relay(t), s.request(t, "GET", "echo", nil)); resp.StatusCode != 200 || served.Load() != 1 {
		t.Errorf("a relay of ours got %s", resp.Status)
	}
}

func TestWhoDoesNotSpeakTLSIsCountedAndLearnsNothing(t *testing.T) {
	s := start(t, nil)
	conn := procs.Dial(t, s.Addr().String())
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	got, err := io.ReadAll(conn)
	if os.IsTimeout(err) || strings.Contains(string(got), "HTTP") {
		t.Errorf("got %q, %v", got, err)
	}
	procs.Await(t, "the refusal is counted", func() bool {
		n, _ := metricOf(t, s.registry, "ringway_sidecar_refused_total", "handshake")
		return n == 1
	})
}

func TestAHandshakeThatStallsIsEnded(t *testing.T) {
	s := start(t, func(c *Config) { c.HandshakeTimeout = time.Millisecond })
	conn := procs.Dial(t, s.Addr().String())
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("%v, want the connection closed", err)
	}
	procs.Await(t, "the refusal is counted", func() bool {
		n, _ := metricOf(t, s.registry, "ringway_sidecar_refused_total", "timeout")
		return n == 1
	})
}

// Connections that send nothing cost nothing to open. They must not block relays.
func TestSilentConnectionsBlockNoRelay(t *testing.T) {
	s := start(t, nil)
	for range 300 {
		procs.Dial(t, s.Addr().String())
	}
	config := tlsAs(source(t, s.authority, claims(identity.RoleRelay, "r1")), "http/1.1")
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		refused := 0
		for range 40 {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
			conn, err := tls.DialWithDialer(dialer, "tcp", s.Addr().String(), config)
			if err != nil {
				refused++
				continue
			}
			defer conn.Close()
		}
		if refused > 0 {
			t.Errorf("%d of 40 handshakes from %s were refused", refused, from)
		}
	}
	if n, _ := metricOf(t, s.registry, "ringway_sidecar_refused_total", "too_many_from_source"); n == 0 {
		t.Error("the connections that gave way are not counted")
	}
}

// Both sides have renewed their certificates, and at the end of the old one a connection is closed
// whatever it carries.
func TestAConnectionEndsInOrderBeforeTheCertificateThatItBeganWith(t *testing.T) {
	t.Parallel()
	const validity = 12 * time.Second // half of it is for a busy machine
	for _, protocol := range []string{"http/1.1", "h2"} {
		for _, short := range []identity.Role{identity.RoleWorker, identity.RoleRelay} {
			t.Run(fmt.Sprintf("%s, that of the %s", protocol, short), func(t *testing.T) {
				t.Parallel()
				authority := newAuthority(t)
				of := func(role identity.Role, node string) (_ *identity.Source, renew func()) {
					dir := t.TempDir()
					files := identity.Files{Certificate: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Authorities: filepath.Join(dir, "ca")}
					issue := func(validity time.Duration) {
						cert, key, err := authority.Issue(claims(role, node), validity)
						if err != nil {
							t.Fatal(err)
						}
						for name, content := range map[string][]byte{files.Certificate: cert, files.Key: key, files.Authorities: authority.CertificatePEM()} {
							if err := os.WriteFile(name, content, 0o600); err != nil {
								t.Fatal(err)
							}
						}
					}
					if issue(time.Hour); role == short {
						issue(validity)
					}
					source, err := identity.NewSource(files, identity.SourceConfig{})
					if err != nil {
						t.Fatal(err)
					}
					return source, func() {
						issue(time.Hour)
						if replaced, err := source.Reload(); !replaced || err != nil {
							t.Fatal(replaced, err)
						}
					}
				}
				worker, renewWorker := of(identity.RoleWorker, "w1")
				relay, renewRelay := of(identity.RoleRelay, "r1")
				s := start(t, func(c *Config) { c.Identity = worker }, serve(t, "echo", "", func(http.ResponseWriter, *http.Request) {}))
				tr := &http.Transport{TLSClientConfig: tlsAs(relay, protocol), Protocols: new(http.Protocols)}
				tr.Protocols.SetHTTP1(protocol != "h2")
				tr.Protocols.SetHTTP2(protocol == "h2")
				t.Cleanup(tr.CloseIdleConnections)
				client, opened := &http.Client{Transport: tr}, 0
				post := func() {
					req := s.request(t, "POST", "echo", strings.NewReader("x"))
					req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
						if !got.Reused {
							opened++
						}
					}}))
					if resp, _ := answer(t, client, req); resp.StatusCode != http.StatusOK {
						t.Fatal(resp.Status)
					}
				}
				end := time.Now().Add(validity)
				post()
				renewWorker()
				renewRelay()
				every := time.NewTicker(20 * time.Millisecond)
				defer every.Stop()
				for opened < 2 && time.Now().Before(end) {
					<-every.C
					post()
				}
				if !time.Now().Before(end) {
					t.Errorf("%d connections before the certificate has ended", opened)
				}
			})
		}
	}
}

func TestARenewedCertificateIsShownAndNoConnectionIsDropped(t *testing.T) {
	authority, dir := newAuthority(t), t.TempDir()
	files := identity.Files{Certificate: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Authorities: filepath.Join(dir, "ca")}
	issue := func() {
		cert, key, err := authority.Issue(claims(identity.RoleWorker, "w1"), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{files.Certificate: cert, files.Key: key, files.Authorities: authority.CertificatePEM()} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	issue()
	worker, err := identity.NewSource(files, identity.SourceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *Config) { c.Identity = worker }, serve(t, "echo", "", func(http.ResponseWriter, *http.Request) {}))
	s.authority = authority

	old, fresh := s.relay(t), s.relay(t)
	before, _ := answer(t, old, s.request(t, "GET", "echo", nil))
	issue()
	if replaced, err := worker.Reload(); !replaced || err != nil {
		t.Fatal(replaced, err)
	}
	kept, _ := answer(t, old, s.request(t, "GET", "echo", nil))
	renewed, _ := answer(t, fresh, s.request(t, "GET", "echo", nil))
	serial := func(r *http.Response) string { return r.TLS.PeerCertificates[0].SerialNumber.String() }
	if serial(kept) != serial(before) {
		t.Error("the connection was dropped for the new certificate")
	}
	if serial(renewed) == serial(before) || renewed.StatusCode != 200 {
		t.Error("a new connection was shown the old certificate")
	}
}
