package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
	"github.com/ringway/ringway/internal/wire"
)

// withTLS gives a relay the address tls:// next to one in clear text, and a pair for a.test.
func withTLS(t *testing.T, ca *clienttlstest.Authority) func(*Settings) {
	t.Helper()
	cert, key := ca.Files(filepath.Join(t.TempDir(), "a"), clienttlstest.Certificate{DNS: []string{"a.test"}})
	return func(s *Settings) {
		s.IngressAddrs = []string{anyPort, tlsScheme + anyPort}
		s.IngressTLSCerts, s.IngressTLSKeys = []string{cert}, []string{key}
	}
}

// mirror offers a service that answers with the fields of its requests.
func mirror(t *testing.T, f *fleet) {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.Header.Write(w)
	}))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend))
}

// overTLS is a client of an address, by HTTP/1.1 or HTTP/2.
func overTLS(t *testing.T, addr string, http2 bool, config *tls.Config) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &http.Transport{Protocols: protocols, TLSClientConfig: config, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func ask(t *testing.T, client *http.Client, url string, header http.Header) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header.Clone()
	}
	req.Header.Set(wire.ServiceHeader, "echo")
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

func TestClientsAreServedByTLSAndInClearTextAtTheSameTime(t *testing.T) {
	t.Parallel()
	f, ca := newFleet(t), clienttlstest.New(t)
	r := f.relay(withTLS(t, ca))
	mirror(t, f)
	r.settled(t, "echo", 1)
	addrs := r.IngressAddrs()
	for _, http2 := range []bool{false, true} {
		client := overTLS(t, addrs[1], http2, &tls.Config{RootCAs: ca.Pool()})
		for range 2 {
			resp, body, err := ask(t, client, "https://a.test/", nil)
			if err != nil || resp.StatusCode != 200 || (resp.ProtoMajor == 2) != http2 || !strings.Contains(body, "X-Forwarded-Proto: https\r\n") {
				t.Fatalf("HTTP/2 %t: %v %v\n%s", http2, resp, err, body)
			}
		}
	}
	if _, body := r.call(t, "GET", "/", nil, wire.ServiceHeader+": echo"); !strings.Contains(body, "X-Forwarded-Proto: http\r\n") {
		t.Errorf("in clear text: %s", body)
	}
	if resp, err := http.Get("http://" + addrs[1] + "/"); err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("clear text at the address of TLS: %v %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	r.await(t, "the refusal in the metrics", func() bool {
		return r.metric(t, `ringway_relay_ingress_refused_total{reason="clear_text"}`) == "1"
	})
	if got := r.metric(t, `ringway_relay_connections_total{listener="ingress"}`); got != "4" {
		t.Errorf("%s connections at the ingress were counted", got)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			t.Errorf("%s still listens", addr)
		}
	}
}

// begun opens connections that do not finish their handshake.
func begun(t *testing.T, addr string) (slow []net.Conn) {
	t.Helper()
	for i := range 20 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if i%2 == 0 {
			_, _ = conn.Write([]byte{22, 3, 1, 2, 0, 1}) // the begin of a handshake
		}
		slow = append(slow, conn)
	}
	return slow
}

func TestAClientThatDoesNotFinishItsHandshakeDelaysNoOtherAndIsEnded(t *testing.T) {
	t.Parallel()
	f, ca := newFleet(t), clienttlstest.New(t)
	with := withTLS(t, ca)
	patient := f.relay(func(s *Settings) {
		with(s)
		s.Clients.HeadTimeout = time.Hour
	})
	strict := f.relay(func(s *Settings) {
		with(s)
		s.Clients.HeadTimeout = 300 * time.Millisecond
	})
	mirror(t, f)
	patient.settled(t, "echo", 1)
	strict.settled(t, "echo", 1)
	addr := patient.IngressAddrs()[1]
	begun(t, addr)
	if resp, _, err := ask(t, overTLS(t, addr, false, &tls.Config{RootCAs: ca.Pool()}), "https://a.test/", nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("another client: %v %v", resp, err)
	}
	for _, conn := range begun(t, strict.IngressAddrs()[1]) {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Fatalf("a slow client: %v", err)
		}
	}
	strict.await(t, "the slow clients in the metrics", func() bool {
		return strict.metric(t, `ringway_relay_ingress_refused_total{reason="timeout"}`) == "20"
	})
}

func TestAHandshakeThatWaitsGivesItsPlaceToANewConnection(t *testing.T) {
	t.Parallel()
	f, ca := newFleet(t), clienttlstest.New(t)
	with := withTLS(t, ca)
	r := f.relay(func(s *Settings) {
		with(s)
		s.Requests.MaxClientConnections, s.Clients.HeadTimeout = 2, time.Hour
	})
	mirror(t, f)
	r.settled(t, "echo", 1)
	addr := r.IngressAddrs()[1]
	for range 2 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	r.await(t, "both at the ingress", func() bool { return r.metric(t, "ringway_relay_client_connections") == "2" })
	if resp, _, err := ask(t, overTLS(t, addr, false, &tls.Config{RootCAs: ca.Pool()}), "https://a.test/", nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("a client beyond the limit: %v %v", resp, err)
	}
}

func TestAPairIsReplacedUnderLoadWithoutAFailedRequest(t *testing.T) {
	t.Parallel()
	f, ca := newFleet(t), clienttlstest.New(t)
	with := withTLS(t, ca)
	var prefix string
	r := f.relay(func(s *Settings) {
		with(s)
		prefix = strings.TrimSuffix(s.IngressTLSCerts[0], ".crt")
	})
	mirror(t, f)
	r.settled(t, "echo", 1)
	addr := r.IngressAddrs()[1]
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var asked atomic.Int64
	for n := range 2 { // little load: tests of overload may run at the same time
		client := overTLS(t, addr, n%2 == 0, &tls.Config{RootCAs: ca.Pool()})
		load.Go(func() {
			for ctx.Err() == nil {
				if resp, _, err := ask(t, client, "https://a.test/", nil); err != nil || resp.StatusCode != 200 {
					t.Errorf("%v %v", resp, err)
					return
				}
				if asked.Add(1)%8 < 4 {
					client.CloseIdleConnections() // the next request needs a handshake
				}
			}
		})
	}
	for n := range 3 {
		before := asked.Load()
		r.await(t, "requests", func() bool { return asked.Load() > before+10 || t.Failed() })
		cert, key := ca.Files(prefix, clienttlstest.Certificate{DNS: []string{"a.test"}})
		r.Reload() // as SIGHUP does
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool(), ServerName: "a.test"})
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber; got.Cmp(pair.Leaf.SerialNumber) != 0 {
			t.Errorf("renewal %d is not served", n)
		}
		_ = conn.Close()
	}
	stop()
	load.Wait()
	if f := r.facts().Ingress; f == nil || time.Until(f.NotAfter) > time.Hour || f.Problem != "" {
		t.Errorf("for other relays: %+v", f)
	}
	clienttlstest.Replace(t, prefix+".crt", []byte("nothing"))
	r.Reload()
	if f := r.facts().Ingress; f.Problem == "" {
		t.Errorf("for other relays, of a broken file: %+v", f)
	}
	if got := r.metric(t, `ringway_relay_ingress_certificate_reloads_total{result="replaced"}`); got != "3" {
		t.Errorf("%s renewals were counted", got)
	}
}

func TestTheNameInAClientCertificateIsTheCaller(t *testing.T) {
	t.Parallel()
	f, ca, clients := newFleet(t), clienttlstest.New(t), clienttlstest.New(t)
	with := withTLS(t, ca)
	file := clients.WriteTo(filepath.Join(t.TempDir(), "clients.crt"))
	r := f.relay(func(s *Settings) {
		with(s)
		s.IngressClientCA = file
	})
	gate := f.relay(func(s *Settings) {
		with(s)
		s.IngressClientCA, s.Role = file, "gate"
	})
	mirror(t, f)
	for _, one := range f.relays {
		one.settled(t, "echo", 1)
	}
	pair := clients.Pair(clienttlstest.Certificate{URI: "spiffe://shop.test/cart"})
	forged := http.Header{}
	for _, name := range []string{"Ringway-Caller", "ringway_caller", "Ringway_Caller", "RINGWAY-CALLER"} {
		forged[name] = []string{"admin"}
	}
	for _, one := range []*runningRelay{r, gate} {
		one.await(t, "a way to the worker", func() bool {
			resp, _ := one.call(t, "GET", "/", nil, wire.ServiceHeader+": echo")
			return resp.StatusCode == 200
		})
		for _, http2 := range []bool{false, true} {
			name := fmt.Sprintf("%s, HTTP/2 %t", one.id, http2)
			client := overTLS(t, one.IngressAddrs()[1], http2, &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}})
			_, body, err := ask(t, client, "https://a.test/", forged)
			if err != nil || strings.Count(body, "Ringway-Caller: spiffe://shop.test/cart\r\n") != 1 || strings.Contains(strings.ToLower(body), "admin") {
				t.Errorf("%s: %v\n%s", name, err, body)
			}
			if _, _, err := ask(t, overTLS(t, one.IngressAddrs()[1], http2, &tls.Config{RootCAs: ca.Pool()}), "https://a.test/", nil); err == nil {
				t.Errorf("%s: a client without a certificate is answered", name)
			}
			// In clear text there is no certificate, and so no caller for the service.
			if _, body := one.call(t, "GET", "/", nil, wire.ServiceHeader+": echo", wire.CallerHeader+": admin"); strings.Contains(body, "Caller") {
				t.Errorf("%s, in clear text: %s", name, body)
			}
		}
		one.await(t, "the refusals in the metrics", func() bool {
			return one.metric(t, `ringway_relay_ingress_refused_total{reason="no_certificate"}`) == "2"
		})
	}
}

func TestOneAddressIsPublicAndAnotherWantsClientCertificates(t *testing.T) {
	t.Parallel()
	f, ca, clients := newFleet(t), clienttlstest.New(t), clienttlstest.New(t)
	with := withTLS(t, ca)
	dir := t.TempDir()
	file := clients.WriteTo(filepath.Join(dir, "clients.crt"))
	internal, internalKey := ca.Files(filepath.Join(dir, "internal"), clienttlstest.Certificate{DNS: []string{"internal.test"}})
	const public, guarded = 1, 2 // of the addresses
	settings := func(s *Settings) {
		with(s)
		s.IngressAddrs = append(s.IngressAddrs, tlsScheme+anyPort+";cert="+internal+";key="+internalKey+";client-ca="+file)
	}
	r := f.relay(settings)
	gate := f.relay(func(s *Settings) {
		settings(s)
		// The same in another form: the file is for all but the public address.
		s.IngressAddrs[public] += ";client-ca="
		s.IngressAddrs[guarded] = tlsScheme + anyPort + ";cert=" + internal + ";key=" + internalKey
		s.IngressClientCA, s.Role = file, "gate"
	})
	mirror(t, f)
	for _, one := range f.relays {
		one.settled(t, "echo", 1)
	}
	pair := clients.Pair(clienttlstest.Certificate{URI: "spiffe://shop.test/cart"})
	forged := http.Header{"Ringway-Caller": {"admin"}, "ringway_caller": {"admin"}}
	for _, one := range []*runningRelay{r, gate} {
		one.await(t, "a way to the worker", func() bool {
			resp, _ := one.call(t, "GET", "/", nil, wire.ServiceHeader+": echo")
			return resp.StatusCode == 200
		})
		for _, http2 := range []bool{false, true} {
			name := fmt.Sprintf("%s, HTTP/2 %t", one.id, http2)
			sessions := tls.NewLRUClientSessionCache(8)
			client := func(address int, certificates ...tls.Certificate) *http.Client {
				return overTLS(t, one.IngressAddrs()[address], http2, &tls.Config{RootCAs: ca.Pool(), Certificates: certificates, ClientSessionCache: sessions})
			}
			for _, certificates := range [][]tls.Certificate{nil, {pair}} {
				if resp, body, err := ask(t, client(public, certificates...), "https://a.test/", forged); err != nil || resp.StatusCode != 200 || strings.Contains(body, "Caller") || strings.Contains(body, "admin") {
					t.Errorf("%s, at the public address: %v\n%s", name, err, body)
				}
			}
			if _, body, err := ask(t, client(guarded, pair), "https://internal.test/", forged); err != nil || strings.Count(body, "Ringway-Caller: spiffe://shop.test/cart\r\n") != 1 || strings.Contains(body, "admin") {
				t.Errorf("%s, with a certificate: %v\n%s", name, err, body)
			}
			if _, _, err := ask(t, client(guarded), "https://internal.test/", nil); err == nil {
				t.Errorf("%s: a client without a certificate is answered", name)
			}
			if _, _, err := ask(t, client(guarded, pair), "https://a.test/", nil); err == nil {
				t.Errorf("%s: the public certificate is shown at the other address", name)
			}
		}
	}
	clienttlstest.New(t).WriteTo(file)
	r.Reload() // as SIGHUP does
	if _, _, err := ask(t, overTLS(t, r.IngressAddrs()[guarded], false, &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}}), "https://internal.test/", nil); err == nil {
		t.Error("a client of the old authority is answered")
	}
	if resp, _, err := ask(t, overTLS(t, r.IngressAddrs()[public], false, &tls.Config{RootCAs: ca.Pool()}), "https://a.test/", nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("at the public address: %v %v", resp, err)
	}
	clienttlstest.Replace(t, internal, []byte("nothing"))
	r.Reload()
	if f := r.facts().Ingress; f == nil || !strings.Contains(f.Problem, internal) {
		t.Errorf("for other relays, of a broken file of one address: %+v", f)
	}
}

func TestAConnectionOverTLSIsUpgradedToATunnel(t *testing.T) {
	t.Parallel()
	f, ca := newFleet(t), clienttlstest.New(t)
	r := f.relay(withTLS(t, ca))
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	}))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend))
	r.settled(t, "echo", 1)
	conn, err := tls.Dial("tcp", r.IngressAddrs()[1], &tls.Config{RootCAs: ca.Pool(), ServerName: "a.test"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: raw\r\n"+wire.ServiceHeader+": echo\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	_, _ = io.WriteString(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Errorf("%q %v", line, err)
	}
}

// At the end of its certificate it would be closed, whatever it carries.
func TestTheConnectionOfAClientEndsInOrderBeforeItsCertificate(t *testing.T) {
	t.Parallel()
	f, ca, clients := newFleet(t), clienttlstest.New(t), clienttlstest.New(t)
	with, file := withTLS(t, ca), clients.WriteTo(filepath.Join(t.TempDir(), "clients.crt"))
	r := f.relay(func(s *Settings) { with(s); s.IngressClientCA = file })
	mirror(t, f)
	r.settled(t, "echo", 1)
	const validity = 12 * time.Second // half of it is for a busy machine
	end := time.Now().Add(validity)
	client := overTLS(t, r.IngressAddrs()[1], true, &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{clients.Pair(clienttlstest.Certificate{Common: "cart", For: validity})}})
	opened := 0
	traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if !got.Reused {
			opened++
		}
	}})
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for opened < 2 && time.Now().Before(end) {
		req, _ := http.NewRequestWithContext(traced, http.MethodPost, "https://a.test/", strings.NewReader("x"))
		req.Header.Set(wire.ServiceHeader, "echo")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		<-every.C
	}
	if !time.Now().Before(end) {
		t.Errorf("%d connections before the certificate has ended", opened)
	}
}

func TestACircuitIsOpenForTheNameInACertificateAndNotForItsAddress(t *testing.T) {
	t.Parallel()
	f, ca, clients := newFleet(t), clienttlstest.New(t), clienttlstest.New(t)
	with := withTLS(t, ca)
	file := clients.WriteTo(filepath.Join(t.TempDir(), "clients.crt"))
	r := f.relay(func(s *Settings) {
		with(s)
		s.IngressClientCA = file
		s.Circuit.Mode, s.Circuit.Period = circuitOn, time.Hour
	})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend))
	r.settled(t, "echo", 1)
	as := func(uri string) *http.Client {
		return overTLS(t, r.IngressAddrs()[1], true, &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{clients.Pair(clienttlstest.Certificate{URI: uri})}})
	}
	status := func(client *http.Client, path string) int {
		resp, _, err := ask(t, client, "https://a.test"+path, http.Header{wire.CallerHeader: {"other"}})
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	cart := "spiffe://shop.test/" + strings.Repeat("x", 200) // callers that proxies name are cut to less
	broken := as(cart + "/cart")
	r.await(t, "an open circuit", func() bool { return status(broken, "/broken") == http.StatusServiceUnavailable })
	if got := status(as(cart+"/cart"), "/"); got != http.StatusServiceUnavailable {
		t.Errorf("another connection of the caller: %d", got)
	}
	if got := status(as(cart+"/shop"), "/"); got != 200 {
		t.Errorf("another caller of the same address: %d", got)
	}
	if resp, _ := r.call(t, "GET", "/", nil, wire.ServiceHeader+": echo"); resp.StatusCode != 200 {
		t.Errorf("the address in clear text: %d", resp.StatusCode)
	}
}
