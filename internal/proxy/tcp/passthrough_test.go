package tcp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// selfSigned is a certificate for names, and the pool that trusts it.
func selfSigned(t *testing.T, names ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLSPassesThroughToTheServiceThatTheServerNameNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false)
	f.relay("r1", nil)
	f.relay("g1", gate)
	cert, trusted := selfSigned(t, "db.example.com")
	f.worker("w1", serveTCP(t, func(conn *net.TCPConn) {
		secured := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert}})
		_, _ = io.WriteString(secured, "h") // await reads a byte
		all, err := io.ReadAll(secured)
		if err == nil {
			_, _ = secured.Write(all)
			_ = secured.Close()
		}
	}), "")
	for _, id := range []string{"r1", "g1"} {
		// The worker may be known later than the relay is ready.
		var conn *tls.Conn
		var err error
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			if conn, err = tls.Dial("tcp", f.passthrough(id), &tls.Config{ServerName: "db.example.com", RootCAs: trusted}); err == nil || time.Now().After(end) {
				break
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, "over "+id)
		_ = conn.CloseWrite()
		if got, err := io.ReadAll(conn); err != nil || string(got) != "hover "+id {
			t.Errorf("%q, %v", got, err)
		}
		_ = conn.Close()

		for name, config := range map[string]*tls.Config{
			"an unknown service": {ServerName: "other.example.com"}, "no server name": {InsecureSkipVerify: true}, "another domain": {ServerName: "db.example.org"},
		} {
			if _, err := tls.Dial("tcp", f.passthrough(id), config); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
				t.Errorf("%s over %s: %v, want the alert unrecognized_name", name, id, err)
			}
		}
		conn2 := dial(t, f.passthrough(id))
		_, _ = io.WriteString(conn2, "GET / HTTP/1.1\r\nHost: db.example.com\r\n\r\n")
		if got, _ := io.ReadAll(conn2); len(got) != 7 || got[0] != 21 || got[6] != 112 {
			t.Errorf("HTTP over %s is answered with %q", id, got)
		}
		for _, reason := range []string{"unknown_service", "no_server_name", "bad_request", "malformed_client_hello"} {
			if n := f.metric(id, `ringway_relay_tcp_refused_total{reason="`+reason+`"}`); n < 1 {
				t.Errorf("%s: %v are counted as %s", id, n, reason)
			}
		}
	}
}
