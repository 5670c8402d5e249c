//go:build unix

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
)

// httpsFleet is a fleet whose ingresses also have an address with TLS.
type httpsFleet struct {
	*fleet
	ca    *clienttlstest.Authority
	addrs map[string]string // of TLS, by relay
	dir   string            // has shop.crt, shop.key, api.crt and api.key
}

// startHTTPS starts relays of which one serves the service echo, and one worker. The
// arguments are added to those of every relay.
func startHTTPS(t *testing.T, relays int, args ...string) *httpsFleet {
	t.Helper()
	f := &httpsFleet{ca: clienttlstest.New(t), addrs: map[string]string{}, dir: t.TempDir()}
	for n := range relays {
		f.addrs[fmt.Sprintf("r%d", n+1)] = freeAddr(t)
	}
	pairs := servedBy("r1", relays, echo)
	for _, name := range []string{"shop", "api"} {
		cert, key := f.ca.Files(filepath.Join(f.dir, name), clienttlstest.Certificate{DNS: []string{name + ".test"}})
		pairs = append(pairs, "--ingress-tls-cert", cert, "--ingress-tls-key", key)
	}
	f.fleet = startFleet(t, fleetConfig{
		Relays: relays, Workers: 1, Secure: true, Services: func(int) []string { return []string{echo} },
		RelayArgs: slices.Concat(pairs, args),
		ArgsOf:    func(id string) []string { return []string{"--ingress-addr", "tls://" + f.addrs[id]} },
	})
	f.roles(t, echo, 1)
	return f
}

// browser returns a client of a relay's address, which sends head before anything else.
func (f *httpsFleet) browser(t *testing.T, addr string, http2 bool, head string, certificates ...tls.Certificate) *client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	protocols.SetUnencryptedHTTP2(http2)
	return clientOf(t, &http.Transport{
		Protocols: protocols, TLSClientConfig: &tls.Config{RootCAs: f.ca.Pool(), Certificates: certificates},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err == nil && head != "" {
				_, err = io.WriteString(conn, head)
			}
			return conn, err
		},
	})
}

// ask sends a request with these fields as they are and returns the protocol and the answer.
func (c *client) ask(url string, fields http.Header) (proto string, a answer) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", answer{err: err}
	}
	for name, values := range fields {
		req.Header[name] = values
	}
	req.Header.Set(serviceHeader, echo)
	resp, err := c.http.Do(req)
	if err != nil {
		return "", answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.Proto, answer{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
}

var protocols = map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true}

func TestClientsUseHTTPSThroughOneRelayAndThroughTwo(t *testing.T) {
	t.Parallel()
	f := startHTTPS(t, 2)
	for id, addr := range f.addrs {
		for proto, http2 := range protocols {
			for _, name := range []string{"shop", "api"} {
				c := f.browser(t, addr, http2, "")
				for range 3 {
					got, a := c.ask("https://"+name+".test/fields", nil)
					if a.status != 200 || got != proto || !strings.Contains(a.body, "X-Forwarded-Proto: https\r\n") || !strings.Contains(a.body, "X-Forwarded-Host: "+name+".test\r\n") {
						t.Fatalf("%s, %s, %s: %s %v", id, proto, name, got, a)
					}
				}
			}
			// A name that no certificate is for gets the first.
			conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: "other.test", InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			if names := conn.ConnectionState().PeerCertificates[0].DNSNames; !slices.Equal(names, []string{"shop.test"}) {
				t.Errorf("another name is served the certificate of %v", names)
			}
			_ = conn.Close()
		}
		if a := f.client.send(request{addr: f.relay(id).Ingress, path: "/fields", service: echo}); a.status != 200 || !strings.Contains(a.body, "X-Forwarded-Proto: http\r\n") {
			t.Errorf("%s in clear text: %v", id, a)
		}
	}
}

func TestACertificateIsRenewedUnderLoadWithoutAFailedRequest(t *testing.T) {
	t.Parallel()
	f := startHTTPS(t, 1)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var load sync.WaitGroup
	var asked, failed atomic.Int64
	for n := range 4 {
		load.Go(func() {
			for c := f.browser(t, f.addrs["r1"], n%2 == 0, ""); ctx.Err() == nil; asked.Add(1) {
				if _, a := c.ask("https://shop.test/", nil); a.status != 200 {
					t.Errorf("%v", a)
					failed.Add(1)
					return
				}
				if asked.Load()%4 == 0 {
					c.http.CloseIdleConnections()
				}
			}
		})
	}
	served := func() string {
		conn, err := tls.Dial("tcp", f.addrs["r1"], &tls.Config{RootCAs: f.ca.Pool(), ServerName: "shop.test"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	r := f.relay("r1")
	for n := range 3 {
		before := asked.Load()
		procs.Await(t, "load", func() bool { return asked.Load() > before+20 || failed.Load() > 0 })
		old := served()
		f.ca.Files(filepath.Join(f.dir, "shop"), clienttlstest.Certificate{DNS: []string{"shop.test"}})
		if n > 0 { // the first time the relay reads the files by itself
			r.Signal(t, syscall.SIGHUP)
		}
		procs.Await(t, "the renewed certificate", func() bool { return served() != old })
	}
	old := served()
	clienttlstest.Replace(t, filepath.Join(f.dir, "shop.crt"), []byte("nothing"))
	r.Signal(t, syscall.SIGHUP)
	procs.Await(t, "the failure in the metrics", func() bool {
		return f.metric(t, r, `ringway_relay_ingress_certificate_reloads_total{result="failed"}`) >= 1
	})
	if served() != old {
		t.Error("the old certificate is not in use")
	}
	stop()
	load.Wait()
	if n := f.metric(t, r, `ringway_relay_ingress_certificate_reloads_total{result="replaced"}`); n != 3 {
		t.Errorf("%v renewals were counted", n)
	}
}

// identityFields are what a client could claim, in every spelling.
func identityFields() http.Header {
	forged := http.Header{}
	for _, name := range []string{
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Client-Cert", "X-Forwarded",
		"Forwarded", "X-Real-Ip", "Ringway-Caller", "Ringway-Hop", "Ringway-Expose", "Ringway-Load", "Ringway-Failed",
	} {
		for _, spelled := range []string{name, strings.ToUpper(name), strings.ToLower(name), strings.ReplaceAll(name, "-", "_"), strings.Replace(name, "-", "_", 1)} {
			forged[spelled] = []string{"203.0.113.66"}
		}
	}
	return forged
}

func TestAClientCannotPretendToBeAnother(t *testing.T) {
	t.Parallel()
	f := startHTTPS(t, 2)
	for id, addr := range f.addrs {
		for proto, http2 := range protocols {
			for url, to := range map[string]string{"https://shop.test/fields": addr, "http://shop.test/fields": f.relay(id).Ingress} {
				forged := identityFields()
				if http2 { // which has only small letters, and net/http refuses two spellings of one name
					forged = http.Header{}
					for name := range identityFields() {
						forged[strings.ToLower(name)] = []string{"203.0.113.66"}
					}
				}
				got, a := f.browser(t, to, http2, "").ask(url, forged)
				if a.status != 200 || got != proto || strings.Contains(a.body, "203.0.113.66") || strings.Contains(a.body, "Ringway-Caller") {
					t.Errorf("%s, %s, %s: %s %v", id, proto, url, got, a)
				}
				for _, want := range []string{"X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Host: shop.test\r\n", "X-Forwarded-Proto: " + url[:strings.Index(url, ":")] + "\r\n"} {
					if !strings.Contains(a.body, want) {
						t.Errorf("%s, %s, %s: no %q in\n%s", id, proto, url, want, a.body)
					}
				}
			}
		}
	}
}

func TestOnlyClientsWithACertificateOfTheAuthorityAreServedAndNamed(t *testing.T) {
	t.Parallel()
	clients := clienttlstest.New(t)
	f := startHTTPS(t, 2, "--ingress-client-ca", clients.WriteTo(filepath.Join(t.TempDir(), "clients.crt")))
	refused := func(reason string) (n float64) {
		for _, r := range f.relays {
			n += f.metric(t, r, `ringway_relay_ingress_refused_total{reason="`+reason+`"}`)
		}
		return n
	}
	good := clients.Pair(clienttlstest.Certificate{URI: "spiffe://shop.test/cart", DNS: []string{"cart.test"}})
	for id, addr := range f.addrs {
		for proto, http2 := range protocols {
			forged := http.Header{"Ringway-Caller": {"admin"}, "ringway_caller": {"admin"}}
			if got, a := f.browser(t, addr, http2, "", good).ask("https://shop.test/fields", forged); a.status != 200 || got != proto ||
				strings.Count(a.body, "Ringway-Caller: spiffe://shop.test/cart\r\n") != 1 || strings.Contains(a.body, "admin") {
				t.Errorf("%s, %s: %s %v", id, proto, got, a)
			}
			for reason, certificates := range map[string][]tls.Certificate{
				"no_certificate":    nil,
				"expired":           {clients.Pair(clienttlstest.Certificate{Common: "cart", For: -1})},
				"unknown_authority": {clienttlstest.New(t).Pair(clienttlstest.Certificate{Common: "cart"})},
			} {
				before := refused(reason)
				// The client sends its certificate also if the relay does not list its authority.
				c := f.browser(t, addr, http2, "")
				c.http.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					if len(certificates) == 0 {
						return &tls.Certificate{}, nil
					}
					return &certificates[0], nil
				}
				if _, a := c.ask("https://shop.test/", nil); a.err == nil {
					t.Errorf("%s, %s, %s: %v", id, proto, reason, a)
				}
				procs.Await(t, "the refusal in the metrics", func() bool { return refused(reason) > before })
			}
		}
	}
}

func TestALoadBalancerReportsTheClientInThePROXYProtocol(t *testing.T) {
	t.Parallel()
	const header, ours = "PROXY TCP4 198.51.100.7 192.0.2.1 12345 443\r\n", "127.0.0.1"
	trusting := startHTTPS(t, 2, "--proxy-protocol-from", "127.0.0.0/8")
	for id, addr := range trusting.addrs {
		for proto, http2 := range protocols {
			for url, to := range map[string]string{"https://shop.test/fields": addr, "http://shop.test/fields": trusting.relay(id).Ingress} {
				for head, client := range map[string]string{header: "198.51.100.7", "PROXY UNKNOWN\r\n": ours} {
					if got, a := trusting.browser(t, to, http2, head).ask(url, http.Header{"X-Forwarded-For": {"203.0.113.66"}}); a.status != 200 || got != proto || !strings.Contains(a.body, "X-Forwarded-For: "+client+"\r\n") {
						t.Errorf("%s, %s, %s after %q: %s %v", id, proto, url, head, got, a)
					}
				}
				for _, head := range []string{"", header + header, "PROXY TCP4 somewhere\r\n"} {
					if _, a := trusting.browser(t, to, http2, head).ask(url, nil); a.status == 200 {
						t.Errorf("%s, %s, %s after %q: %v", id, proto, url, head, a)
					}
				}
			}
		}
	}
}

// passedSocket is a listening socket as a service manager holds it.
func passedSocket(t *testing.T) (addr string, socket *net.TCPListener) {
	t.Helper()
	l := procs.Listen(t)
	return l.Addr().String(), l.(*net.TCPListener)
}

func TestARelayServesTheSocketsThatItIsPassedAndItsSuccessorToo(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1, Services: func(int) []string { return []string{echo, "raw;protocol=tcp"} }})
	f.awaitRange(t, 1)
	ca := clienttlstest.New(t)
	cert, key := ca.Files(filepath.Join(f.dir, "shop"), clienttlstest.Certificate{DNS: []string{"shop.test"}})
	clear, clearSocket := passedSocket(t)
	secured, securedSocket := passedSocket(t)
	sessions, sessionsSocket := passedSocket(t)
	admin, gossip, peer := freeAddr(t), freeAddr(t), freeAddr(t)
	cfg := processConfig{Name: "passed", Binary: "relay", SocketNames: "ingress:web.socket:tcp", Args: slices.Concat([]string{
		"run", "--cluster", cluster, "--environment", environment, "--id", "r2", "--gossip-addr", gossip, "--peer-addr", peer, "--admin-addr", admin,
		"--ingress-addr", "127.0.0.1:1", // the only address that is left for the only socket that is left
		"--ingress-addr", "tls://" + secured, "--ingress-tls-cert", cert, "--ingress-tls-key", key,
		"--tcp-ingress", sessions + "=raw",
	}, f.Join())}
	for _, socket := range []*net.TCPListener{clearSocket, securedSocket, sessionsSocket} {
		file, err := socket.File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		cfg.Sockets = append(cfg.Sockets, file)
	}
	browser := (&httpsFleet{ca: ca}).browser(t, secured, false, "")
	browser.http.Transport.(*http.Transport).DisableKeepAlives = true
	ask := func() (answer, answer) {
		_, overTLS := browser.ask("https://shop.test/", nil)
		return f.client.send(request{addr: clear, path: "/", service: echo}), overTLS
	}
	for range 2 {
		var early sync.WaitGroup
		var first answer
		early.Go(func() { // waits in the kernel until the relay is ready
			first = f.client.send(request{addr: clear, path: "/", service: echo})
		})
		p := start(t, cfg)
		procs.Await(t, "the relay is ready", func() bool { _, status := f.ready(admin); return status == 200 })
		early.Wait()
		if a, b := ask(); first.status != 200 || a.status != 200 || b.status != 200 {
			t.Errorf("%v\n%v\n%v", first, a, b)
		}
		procs.Await(t, "a session with the service", func() bool {
			conn, err := net.Dial("tcp", sessions)
			if err != nil {
				return false
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			text, _ := io.ReadAll(conn)
			return strings.HasPrefix(string(text), "HTTP/1.1 200")
		})
		p.Signal(t, syscall.SIGTERM)
		if code := p.Exit(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		conn, err := net.Dial("tcp", clear)
		if err != nil {
			t.Fatalf("between two relays: %v", err)
		}
		_ = conn.Close()
	}
	cfg.SocketNames = "web.socket:web.socket:tcp"
	cfg.Dir = binaries
	if r := procs.Run(cfg); r.Code == 0 || !strings.Contains(r.Stderr, "fits no --ingress-addr") {
		t.Errorf("a socket that fits no address: %v", r)
	}
}

func TestAHalfHeaderHoldsNoPlaceForLong(t *testing.T) {
	t.Parallel()
	f := startHTTPS(t, 1, "--proxy-protocol-from", "127.0.0.0/8", "--client-head-timeout", "500ms")
	r := f.relay("r1")
	for _, addr := range []string{f.addrs["r1"], r.Ingress} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "PROXY TCP4 198.51")
		if _, err := bufio.NewReader(conn).ReadByte(); err == nil || errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("%s: %v", addr, err)
		}
		_ = conn.Close()
	}
	procs.Await(t, "both in the metrics", func() bool { return f.metric(t, r, `ringway_relay_ingress_refused_total{reason="timeout"}`) == 2 })
}
