package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/url"
	"testing"
	"time"
)

func claimsOf(role Role, node string) Claims {
	return Claims{Role: role, Cluster: "prod", Environment: "eu", Datacenter: "fra", Node: node}
}

func newAuthority(t testing.TB) *Authority {
	t.Helper()
	a, err := NewAuthority(AuthorityConfig{Name: "test", Validity: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func sourceOf(t testing.TB, a *Authority, c Claims) *Source {
	t.Helper()
	s, err := a.Source(c, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stranger is a process that shows a certificate and checks nothing itself, so
// that what the other end makes of it can be seen alone. Without a certificate
// it shows none.
func stranger(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, Certificates: certificates}
}

// forge signs any template at all, valid for an hour unless the change sets
// otherwise.
func (a *Authority) forge(t testing.TB, c Claims, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	now := time.Now()
	template := &x509.Certificate{
		URIs: c.uris(), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	cert, key, err := a.sign(Ed25519, template)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func uris(t testing.TB, texts ...string) []*url.URL {
	t.Helper()
	var us []*url.URL
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		us = append(us, u)
	}
	return us
}

// meeting is what each end saw of one connection over loopback.
type meeting struct {
	client, server error // of the handshakes
	clientRead     error // of the client's first read
	addr           string
	clientPeer     tls.ConnectionState
	serverPeer     tls.ConnectionState
	clientLocal    string
}

// meet connects once over TCP on loopback. The server sends one byte when its
// handshake succeeded.
func meet(t testing.TB, client, server *tls.Config) meeting {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var m meeting
	m.addr = l.Addr().String()
	clientDone, serverDone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(serverDone)
		raw, err := l.Accept()
		if err != nil {
			m.server = err
			return
		}
		// Closing immediately would reset the connection and could overtake the alert.
		defer func() { <-clientDone; raw.Close() }()
		conn := tls.Server(raw, server)
		if m.server = conn.HandshakeContext(ctx); m.server == nil {
			m.serverPeer = conn.ConnectionState()
			_, m.server = conn.Write([]byte{'!'})
		}
	}()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", m.addr)
	if err != nil {
		t.Fatal(err)
	}
	m.clientLocal = raw.LocalAddr().String()
	conn := tls.Client(raw, client)
	if m.client = conn.HandshakeContext(ctx); m.client == nil {
		m.clientPeer = conn.ConnectionState()
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, m.clientRead = io.ReadFull(conn, make([]byte, 1))
	}
	// Unblocks a server that still waits for our half of the handshake.
	_ = raw.(*net.TCPConn).CloseWrite()
	close(clientDone)
	<-serverDone
	_ = raw.Close()
	return m
}

func (m meeting) succeeded() bool { return m.client == nil && m.server == nil && m.clientRead == nil }

// weakKeys are of types that a certificate can have and a member cannot.
func weakKeys(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsa2048, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]crypto.Signer{"ECDSA P-384": p384, "RSA": rsa2048}
}
