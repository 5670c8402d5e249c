//go:build unix

package databases

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership/identity"
)

// members is a relay "r1", a gate "g1" in front of it, and the workers of the service "db".
type members struct {
	*fleet.Fleet
	t *testing.T
}

func start(t *testing.T) *members {
	t.Helper()
	m := &members{fleet.New(fleet.Config{Cluster: "databases", Environment: "test"}), t}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, id := range []string{"r1", "g1"} {
		if err := m.StartRelay(id, func(s *relay.Settings) {
			s.TCP.Ingress.Set("0=db")
			s.TCP.Passthrough.Set("0")
			s.Requests.Domain = "example.com"
			if id == "g1" {
				s.Role = identity.RoleGate
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// worker starts a worker in front of the server at an address.
func (m *members) worker(id, addr string) {
	m.t.Helper()
	if err := m.StartWorker(fleet.WorkerConfig{ID: id, Change: func(s *worker.Settings) {
		s.Services = []string{"db=" + addr + ";protocol=tcp;check=tcp"}
	}}); err != nil {
		m.t.Fatal(err)
	}
}

// addr returns the address of a relay for sessions with db.
func (m *members) addr(id string) string { return m.Relay(id).TCPAddrs()[0] }

// sessions are clients with the worker of each.
type sessions map[client]string

// each opens sessions over the relay and the gate until each of the servers, by their
// ports with the names of their workers, has some over both.
func (m *members) each(servers map[string]string, connect func(addr string) (client, error)) sessions {
	m.t.Helper()
	all := sessions{}
	for _, id := range []string{"r1", "g1"} {
		found := map[string]int{}
		procs.Await(m.t, "sessions over "+id+" with all servers", func() bool {
			c, err := connect(m.addr(id))
			if err != nil {
				return false
			}
			port, err := c.server()
			worker := servers[port]
			if err != nil || worker == "" {
				m.t.Fatalf("a session over %s with %q: %v", id, port, err)
			}
			all[c] = worker
			found[worker]++
			return len(found) == len(servers)
		})
	}
	return all
}

// work lets all sessions work. Only those of the dead worker may fail, and must.
func (s sessions) work(t *testing.T, when, dead string) {
	t.Helper()
	for c, worker := range s {
		switch err := c.work(); {
		case worker == dead && err == nil:
			t.Errorf("%s: a session with the dead %s works", when, worker)
		case worker == dead:
			delete(s, c)
		case err != nil:
			t.Errorf("%s: a session with %s is lost: %v", when, worker, err)
			delete(s, c)
		}
	}
}

// comeAndGo lets a worker die, one drain and one join.
func (m *members) comeAndGo(all sessions, another string, connect func(addr string) (client, error)) {
	t := m.t
	all.work(t, "at first", "")
	if err := m.Kill("w1"); err != nil {
		t.Fatal(err)
	}
	all.work(t, "after w1 died", "w1")
	if err := m.Drain("w2"); err != nil {
		t.Fatal(err)
	}
	m.worker("w3", another)
	_, port, _ := net.SplitHostPort(another)
	for c, worker := range m.each(map[string]string{port: "w3"}, func(addr string) (client, error) {
		for { // until the relays know both
			c, err := connect(addr)
			if err != nil {
				return nil, err
			}
			if now, err := c.server(); err == nil && now == port {
				return c, nil
			}
			all.work(t, "while w2 drains", "")
		}
	}) {
		all[c] = worker
	}
	all.work(t, "while w2 is drained", "")
	if len(all) < 4 {
		t.Errorf("%d sessions are left", len(all))
	}
}

func TestSessionsOfRedisEndOnlyWithTheirWorker(t *testing.T) {
	needed(t)
	m := start(t)
	servers := map[string]string{}
	for _, id := range []string{"w1", "w2"} {
		addr := startRedis(t)
		servers[portOf(t, addr)] = id
		m.worker(id, addr)
	}
	n := 0
	connect := func(addr string) (client, error) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		n++
		r := newRedis(t, conn, fmt.Sprintf("key%d", n))
		if _, err := r.do("PING"); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return r, nil
	}
	m.comeAndGo(m.each(servers, connect), startRedis(t), connect)
}

func TestSessionsOfPostgreSQLEndOnlyWithTheirWorker(t *testing.T) {
	needed(t)
	m := start(t)
	c := newCluster(t)
	servers := map[string]string{}
	another := ""
	for i, id := range []string{"w1", "w2", "w3"} {
		addr := c.start(fmt.Sprint(3 - i)) // the copies are made before the original runs
		if id == "w3" {
			another = addr
			continue
		}
		servers[portOf(t, addr)] = id
		m.worker(id, addr)
	}
	connect := func(addr string) (client, error) { return newPostgres(t, addr) }
	m.comeAndGo(m.each(servers, connect), another, connect)
}

func TestTLSOfRedisPassesThrough(t *testing.T) {
	needed(t)
	m := start(t)
	cert, key, trusted := certificate(t, "db.example.com")
	secured := procs.FreeAddr(t)
	startRedis(t, "--tls-port", portOf(t, secured), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
	awaitServer(t, secured)
	m.worker("w1", secured)
	for _, id := range []string{"r1", "g1"} {
		var conn net.Conn
		procs.Await(t, "TLS with Redis over "+id, func() (done bool) {
			tlsConn, err := tls.Dial("tcp", m.Relay(id).TCPAddrs()[1], &tls.Config{ServerName: "db.example.com", RootCAs: trusted})
			if err == nil {
				conn = tlsConn
			}
			return err == nil
		})
		r := newRedis(t, conn, "key-"+id)
		for range 3 {
			if err := r.work(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// certificate returns the files of a certificate for a name, and the pool that trusts it.
func certificate(t *testing.T, name string) (certFile, keyFile string, trusted *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	certFile, keyFile, trusted = filepath.Join(dir, "cert"), filepath.Join(dir, "key"), x509.NewCertPool()
	trusted.AppendCertsFromPEM(certPEM)
	for file, content := range map[string][]byte{certFile: certPEM, keyFile: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, trusted
}
