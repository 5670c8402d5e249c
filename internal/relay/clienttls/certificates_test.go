package clienttls_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay/clienttls"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
)

// rig is Certificates with what they report.
type rig struct {
	*clienttls.Certificates
	t        *testing.T
	dir      string
	registry *prometheus.Registry
	log      logtest.Log
	inMemory bool
	site     int // of the next handshakes
}

// onSite is a configuration with one site.
func onSite(site clienttls.Site) clienttls.Config {
	return clienttls.Config{Sites: []clienttls.Site{site}}
}

func newRig(t *testing.T, cfg clienttls.Config) *rig {
	t.Helper()
	r := &rig{t: t, registry: prometheus.NewRegistry()}
	cfg.Logger, cfg.Registerer = slog.New(slog.NewTextHandler(&r.log, nil)), r.registry
	var err error
	if r.Certificates, err = clienttls.New(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) counted(metric, labels string) float64 {
	return logtest.Series(r.t, r.registry, metric)[labels]
}

// pair returns both ends of a connection: over loopback, or in memory for a test with a clock of
// its own, where a handshake that fails could block.
func (r *rig) pair() (below, above net.Conn) {
	r.t.Helper()
	if r.inMemory {
		return net.Pipe()
	}
	return procs.Connected(r.t)
}

// connect makes one handshake and returns both ends.
func (r *rig) connect(config *tls.Config) (client *tls.Conn, clientErr error, server *tls.Conn, serverErr error) {
	r.t.Helper()
	below, above := r.pair()
	done := make(chan struct{})
	go func() {
		defer close(done)
		server, serverErr = r.Handshake(above, r.site)
		if serverErr != nil {
			_ = above.Close()
			return
		}
		_, _ = server.Write([]byte{'!'}) // in TLS 1.3 the client's handshake succeeds first
	}()
	client = tls.Client(below, config)
	if clientErr = client.Handshake(); clientErr == nil {
		_, clientErr = io.ReadFull(client, make([]byte, 1))
	}
	if clientErr != nil {
		_ = below.Close()
	}
	<-done
	r.t.Cleanup(func() {
		_ = below.Close()
		if server != nil {
			_ = server.NetConn().Close()
		}
	})
	return client, clientErr, server, serverErr
}

// served returns the serial number of the certificate that the server shows for a name.
func (r *rig) served(name string) string {
	r.t.Helper()
	client, err, _, _ := r.connect(&tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return client.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// onDisk returns the serial number of a certificate file.
func onDisk(t *testing.T, cert, key string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf.SerialNumber.String()
}

func TestTheNameInTheHandshakeChoosesTheCertificateAndTheFirstIsTheDefault(t *testing.T) {
	ca, dir := clienttlstest.New(t), t.TempDir()
	var pairs []clienttls.Pair
	serials := map[string]string{}
	for _, name := range []string{"first.test", "shop.test", "*.wild.test"} {
		cert, key := ca.Files(filepath.Join(dir, strings.TrimPrefix(name, "*")), clienttlstest.Certificate{DNS: []string{name}})
		pairs = append(pairs, clienttls.Pair{Certificate: cert, Key: key})
		serials[name] = onDisk(t, cert, key)
	}
	r := newRig(t, onSite(clienttls.Site{Pairs: pairs}))
	for asked, want := range map[string]string{
		"first.test": "first.test", "shop.test": "shop.test", "SHOP.test": "shop.test", "a.wild.test": "*.wild.test",
		"a.b.wild.test": "first.test", "unknown.test": "first.test", "": "first.test",
	} {
		if got := r.served(asked); got != serials[want] {
			t.Errorf("%q is served another certificate than that of %s", asked, want)
		}
	}
	if got := r.counted("ringway_relay_ingress_handshakes_total", "TLS 1.3"); got != 7 {
		t.Errorf("%v handshakes were counted", got)
	}
}

func TestOldVersionsOfTLSAreRefused(t *testing.T) {
	ca := clienttlstest.New(t)
	cert, key := ca.Files(filepath.Join(t.TempDir(), "a"), clienttlstest.Certificate{DNS: []string{"a.test"}})
	r := newRig(t, onSite(clienttls.Site{Pairs: []clienttls.Pair{{Certificate: cert, Key: key}}}))
	for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		_, err, _, serverErr := r.connect(&tls.Config{RootCAs: ca.Pool(), ServerName: "a.test", MinVersion: version, MaxVersion: version})
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if !want && clienttls.Reason(serverErr) != "handshake" {
			t.Errorf("%s: the reason is %s (%v)", tls.VersionName(version), clienttls.Reason(serverErr), serverErr)
		}
	}
}

func TestARenewedPairIsUsedAndABadOneChangesNothing(t *testing.T) {
	ca, dir := clienttlstest.New(t), t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	names := map[string]clienttlstest.Certificate{a: {DNS: []string{"a.test"}}, b: {DNS: []string{"b.test"}}}
	var pairs []clienttls.Pair
	for _, prefix := range []string{a, b} {
		cert, key := ca.Files(prefix, names[prefix])
		pairs = append(pairs, clienttls.Pair{Certificate: cert, Key: key})
	}
	r := newRig(t, onSite(clienttls.Site{Pairs: pairs}))
	reloads := func(result string) float64 {
		return r.counted("ringway_relay_ingress_certificate_reloads_total", result)
	}
	before := r.served("a.test")
	otherKey, _ := os.ReadFile(b + ".key")
	for _, c := range []struct {
		what  string
		spoil func()
	}{
		{"the key of another", func() { clienttlstest.Replace(t, a+".key", otherKey) }},
		{"no certificate", func() { clienttlstest.Replace(t, a+".crt", []byte("nothing")) }},
		{"an expired one", func() { ca.Files(a, clienttlstest.Certificate{DNS: []string{"a.test"}, For: -time.Minute}) }},
		{"none for servers", func() { ca.Files(a, clienttlstest.Certificate{DNS: []string{"a.test"}, Uses: clientsOnly}) }},
		{"none with a name", func() { ca.Files(a, clienttlstest.Certificate{Common: "a.test"}) }},
		{"a key open for others", func() { ca.Files(a, names[a]); _ = os.Chmod(a+".key", 0o666) }},
		{"a missing file", func() { _ = os.Remove(a + ".crt") }},
	} {
		failed := reloads("failed")
		c.spoil()
		for range 3 {
			if err := r.Reload(); err == nil {
				t.Errorf("%s: no error", c.what)
			}
		}
		if got := reloads("failed"); got != failed+1 {
			t.Errorf("%s: counted %v times", c.what, got-failed)
		}
		if r.served("a.test") != before {
			t.Errorf("%s is used", c.what)
		}
	}
	if leaf, problem := r.First(); leaf.SerialNumber.String() != before || problem == nil {
		t.Errorf("in use is %v, the problem is %v", leaf.DNSNames, problem)
	}
	if n := r.counted("ringway_relay_ingress_certificates_refused", ""); n != 1 {
		t.Errorf("%v files are refused, want 1", n)
	}
	if n := r.log.Lines("not replaced"); n != 7 {
		t.Errorf("%d lines, want one for each broken state:\n%s", n, &r.log)
	}
	cert, key := ca.Files(b, names[b])
	if err := r.Reload(); err == nil || r.served("b.test") != onDisk(t, cert, key) {
		t.Errorf("the broken pair stops the renewal of the other (%v)", err)
	}
	cert, key = ca.Files(a, names[a])
	if err := r.Reload(); err != nil || r.served("a.test") != onDisk(t, cert, key) {
		t.Errorf("the repaired pair is not used (%v)", err)
	}
	if _, problem := r.First(); problem != nil || r.counted("ringway_relay_ingress_certificates_refused", "") != 0 {
		t.Errorf("repaired, and still %v", problem)
	}
	if got := reloads("replaced"); got != 2 {
		t.Errorf("%v replacements were counted", got)
	}
}

var clientsOnly, serversOnly = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}

func TestFilesThatCannotBeUsedAreRefusedAtTheStart(t *testing.T) {
	ca, dir := clienttlstest.New(t), t.TempDir()
	cert, key := ca.Files(filepath.Join(dir, "a"), clienttlstest.Certificate{DNS: []string{"a.test"}})
	_, other := ca.Files(filepath.Join(dir, "b"), clienttlstest.Certificate{DNS: []string{"b.test"}})
	leaf := filepath.Join(dir, "leaf.pem")
	content, _ := os.ReadFile(cert)
	clienttlstest.Replace(t, leaf, content)
	for want, site := range map[string]clienttls.Site{
		"needs a certificate":     {},
		"cannot be used together": {Pairs: []clienttls.Pair{{cert, other}}},
		"no such file":            {Pairs: []clienttls.Pair{{cert, filepath.Join(dir, "absent")}}},
		"no authority in it":      {Pairs: []clienttls.Pair{{cert, key}}, ClientCA: leaf},
	} {
		cfg := clienttls.Config{
			Sites:  []clienttls.Site{{Pairs: []clienttls.Pair{{cert, key}}}, site},
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		}
		if _, err := clienttls.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestTheFilesAreReadAgainByThemselvesAndAnEndIsAnnouncedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, dir := clienttlstest.New(t), t.TempDir()
		prefix := filepath.Join(dir, "a")
		cert, key := ca.Files(prefix, clienttlstest.Certificate{DNS: []string{"a.test"}, For: time.Hour})
		r := newRig(t, onSite(clienttls.Site{Pairs: []clienttls.Pair{{Certificate: cert, Key: key}}}))
		r.inMemory = true
		ctx := t.Context()
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		t.Cleanup(func() {
			synctest.Wait()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		for range 2 {
			time.Sleep(25 * time.Minute)
			synctest.Wait()
		}
		if n := r.log.Lines("expires soon"); n != 1 {
			t.Errorf("%d warnings\n%s", n, &r.log)
		}
		ca.Files(prefix, clienttlstest.Certificate{DNS: []string{"a.test"}, For: 9 * time.Hour})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := r.served("a.test"); got != onDisk(t, cert, key) {
			t.Error("the renewed certificate is not used")
		}
		end := r.counted("ringway_relay_ingress_certificate_expiry_timestamp_seconds", "leaf")
		if left := time.Until(time.Unix(int64(end), 0)); left < 8*time.Hour || left > 9*time.Hour {
			t.Errorf("by the metric it ends in %v", left)
		}
	})
}
