package clienttls_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/relay/clienttls"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
)

// guarded is a rig that requires client certificates of an authority.
func guarded(t *testing.T) (*rig, *clienttlstest.Authority, *tls.Config) {
	t.Helper()
	ca, clients, dir := clienttlstest.New(t), clienttlstest.New(t), t.TempDir()
	cert, key := ca.Files(filepath.Join(dir, "a"), clienttlstest.Certificate{DNS: []string{"a.test"}})
	r := newRig(t, onSite(clienttls.Site{
		Pairs: []clienttls.Pair{{Certificate: cert, Key: key}}, ClientCA: clients.WriteTo(filepath.Join(dir, "clients.crt")),
	}))
	r.dir = dir
	return r, clients, &tls.Config{RootCAs: ca.Pool(), ServerName: "a.test"}
}

func TestOnlyAClientWithAValidAndNamedCertificateIsAdmitted(t *testing.T) {
	r, clients, trust := guarded(t)
	type certificate = clienttlstest.Certificate
	for name, c := range map[string]struct {
		certificate []tls.Certificate
		caller      string
		reason      string
	}{
		"a URI":                   {[]tls.Certificate{clients.Pair(certificate{URI: "spiffe://shop.test/cart", DNS: []string{"cart.test"}, Common: "cart"})}, "spiffe://shop.test/cart", ""},
		"a DNS name":              {[]tls.Certificate{clients.Pair(certificate{DNS: []string{"cart.test", "more.test"}, Common: "cart"})}, "cart.test", ""},
		"a common name":           {[]tls.Certificate{clients.Pair(certificate{Common: "the cart"})}, "the cart", ""},
		"a member of a fleet":     {[]tls.Certificate{clients.Pair(certificate{URIs: []string{"ringway://role/client", "ringway://cluster/shop", "spiffe://shop.test/cart", "ringway://node/cart-7"}})}, "ringway://node/cart-7", ""},
		"a role and a SPIFFE ID":  {[]tls.Certificate{clients.Pair(certificate{URIs: []string{"ringway://role/client", "https://shop.test/cart", "spiffe://shop.test/cart"}})}, "spiffe://shop.test/cart", ""},
		"another URI":             {[]tls.Certificate{clients.Pair(certificate{URIs: []string{"ringway://role/client", "https://shop.test/cart"}, DNS: []string{"cart.test"}})}, "https://shop.test/cart", ""},
		"a role and a name":       {[]tls.Certificate{clients.Pair(certificate{URIs: []string{"ringway://role/client"}, DNS: []string{"cart.test"}})}, "cart.test", ""},
		"a role and nothing else": {[]tls.Certificate{clients.Pair(certificate{URIs: []string{"ringway://role/client"}})}, "", "unnamed"},
		"the longest name":        {[]tls.Certificate{clients.Pair(certificate{URI: "spiffe://a/" + strings.Repeat("x", 245)})}, "spiffe://a/" + strings.Repeat("x", 245), ""},
		"a name too long":         {[]tls.Certificate{clients.Pair(certificate{URI: "spiffe://a/" + strings.Repeat("x", 246)})}, "", "unnamed"},
		"no name":                 {[]tls.Certificate{clients.Pair(certificate{})}, "", "unnamed"},
		"a name with a break":     {[]tls.Certificate{clients.Pair(certificate{Common: "a\r\nX-Admin: yes"})}, "", "unnamed"},
		"a name in Unicode":       {[]tls.Certificate{clients.Pair(certificate{Common: "caf\u00e9"})}, "", "unnamed"},
		"none":                    {nil, "", "no_certificate"},
		"another authority":       {[]tls.Certificate{clienttlstest.New(t).Pair(certificate{Common: "cart"})}, "", "unknown_authority"},
		"an expired one":          {[]tls.Certificate{clients.Pair(certificate{Common: "cart", For: -time.Minute})}, "", "expired"},
		"one for servers":         {[]tls.Certificate{clients.Pair(certificate{Common: "cart", Uses: serversOnly})}, "", "certificate"},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			config := trust.Clone()
			config.MinVersion, config.MaxVersion = version, version
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if c.certificate == nil {
					return &tls.Certificate{}, nil
				}
				return &c.certificate[0], nil // whether or not the server accepts its authority
			}
			_, err, server, serverErr := r.connect(config)
			if c.reason != "" {
				if err == nil || serverErr == nil || clienttls.Reason(serverErr) != c.reason {
					t.Errorf("%s, %s: client %v, server %v", name, tls.VersionName(version), err, serverErr)
				}
				continue
			}
			if err != nil || serverErr != nil {
				t.Errorf("%s, %s: %v, %v", name, tls.VersionName(version), err, serverErr)
				continue
			}
			state := server.ConnectionState()
			if got := clienttls.Caller(&state); got != c.caller {
				t.Errorf("%s, %s: the caller is %q", name, tls.VersionName(version), got)
			}
		}
	}
}

func TestReplacedAuthoritiesHoldForTheNextConnectionAlsoOfAClientThatCouldResume(t *testing.T) {
	r, old, trust := guarded(t)
	trust.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	pair := old.Pair(clienttlstest.Certificate{Common: "cart"})
	trust.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	if _, err, _, _ := r.connect(trust); err != nil {
		t.Fatal(err)
	}
	clienttlstest.New(t).WriteTo(filepath.Join(r.dir, "clients.crt"))
	if err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := r.connect(trust); err == nil || clienttls.Reason(err) != "unknown_authority" {
		t.Errorf("a certificate of the old authority: %v", err)
	}
}

func TestEachSiteHasCertificatesAuthoritiesAndSessionsOfItsOwn(t *testing.T) {
	ca, clients, dir := clienttlstest.New(t), clienttlstest.New(t), t.TempDir()
	cert, key := ca.Files(filepath.Join(dir, "a"), clienttlstest.Certificate{DNS: []string{"a.test"}})
	other, otherKey := ca.Files(filepath.Join(dir, "b"), clienttlstest.Certificate{DNS: []string{"a.test"}, For: time.Minute})
	shared := []clienttls.Pair{{Certificate: cert, Key: key}}
	authorities := clients.WriteTo(filepath.Join(dir, "clients.crt"))
	const public, guarded, partners = 0, 1, 2
	r := newRig(t, clienttls.Config{Sites: []clienttls.Site{
		public:   {Pairs: shared},
		guarded:  {Pairs: shared, ClientCA: authorities},
		partners: {Pairs: []clienttls.Pair{{Certificate: other, Key: otherKey}}, ClientCA: clienttlstest.New(t).WriteTo(filepath.Join(dir, "partners.crt"))},
	}})
	trust := &tls.Config{RootCAs: ca.Pool(), ServerName: "a.test", ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	at := func(site int) (caller string, reason string) {
		r.site = site
		_, err, server, serverErr := r.connect(trust)
		if err != nil {
			return "", clienttls.Reason(serverErr)
		}
		state := server.ConnectionState()
		return clienttls.Caller(&state), ""
	}
	for range 2 { // the client keeps a session of the public site
		if caller, reason := at(public); caller != "" || reason != "" {
			t.Errorf("at the public site: the caller %q, refused by %q", caller, reason)
		}
		if _, reason := at(guarded); reason != "no_certificate" {
			t.Errorf("without a certificate: refused by %q", reason)
		}
	}
	trust = trust.Clone()
	pair := clients.Pair(clienttlstest.Certificate{Common: "cart"})
	trust.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	for site, want := range map[int][2]string{public: {}, guarded: {"cart", ""}, partners: {"", "unknown_authority"}} {
		if caller, reason := at(site); caller != want[0] || reason != want[1] {
			t.Errorf("site %d: the caller %q, refused by %q", site, caller, reason)
		}
	}
	end := r.counted("ringway_relay_ingress_certificate_expiry_timestamp_seconds", "leaf")
	if leaf, _ := r.First(); time.Until(leaf.NotAfter) > time.Minute || int64(end) != leaf.NotAfter.Unix() {
		t.Errorf("the certificate of one site ends in a minute, and the first end is %v, in the metric %v", leaf.NotAfter, end)
	}
	clienttlstest.Replace(t, filepath.Join(dir, "partners.crt"), []byte("nothing"))
	cert, key = ca.Files(filepath.Join(dir, "a"), clienttlstest.Certificate{DNS: []string{"a.test"}})
	if err := r.Reload(); err == nil || !strings.Contains(err.Error(), "partners.crt") {
		t.Errorf("authorities that cannot be used: %v", err)
	}
	r.site = public
	if r.served("a.test") != onDisk(t, cert, key) {
		t.Error("the broken authorities of one site stop the renewal of another")
	}
	if got := r.counted("ringway_relay_ingress_certificate_reloads_total", "replaced"); got != 1 {
		t.Errorf("a pair that two sites show was replaced %v times", got)
	}
}

func TestAConnectionEndsWithTheCertificateOfItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, clients, trust := guarded(t)
		r.inMemory = true
		pair := clients.Pair(clienttlstest.Certificate{Common: "cart", For: 10 * time.Minute})
		trust.Certificates = []tls.Certificate{pair}
		client, err, server, _ := r.connect(trust)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := server.Read(make([]byte, 1))
			ended <- err
		}()
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ended too early: %v", err)
		default:
		}
		time.Sleep(time.Minute)
		if err := <-ended; err == nil {
			t.Error("no error")
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the client: %v", err)
		}
		if n := r.counted("ringway_relay_ingress_connections_expired_total", ""); n != 1 {
			t.Errorf("counted %v times", n)
		}
	})
}

func TestEveryFailedHandshakeHasAReason(t *testing.T) {
	ca := clienttlstest.New(t)
	cert, key := ca.Files(filepath.Join(t.TempDir(), "a"), clienttlstest.Certificate{DNS: []string{"a.test"}})
	r := newRig(t, onSite(clienttls.Site{Pairs: []clienttls.Pair{{Certificate: cert, Key: key}}}))
	for name, c := range map[string]struct {
		does   func(client, server net.Conn)
		reason string
	}{
		"nothing but the end":  {func(client, _ net.Conn) { _ = client.Close() }, "closed"},
		"half a record":        {func(client, _ net.Conn) { _, _ = client.Write([]byte{22, 3, 1, 0}); _ = client.Close() }, "closed"},
		"closed by the server": {func(_, server net.Conn) { _ = server.Close() }, "timeout"},
		"clear text": {func(client, _ net.Conn) {
			_, _ = client.Write([]byte("GET / HTTP/1.1\r\n"))
			_, _ = io.Copy(io.Discard, client)
		}, "clear_text"},
		"bytes of nothing": {func(client, _ net.Conn) {
			_, _ = client.Write([]byte("\x00\x01\x02\x03\x04\x05\x06"))
			_, _ = io.Copy(io.Discard, client)
		}, "handshake"},
		"another certificate wanted": {func(client, _ net.Conn) {
			_ = tls.Client(client, &tls.Config{ServerName: "b.test", RootCAs: ca.Pool()}).Handshake()
			_, _ = io.Copy(io.Discard, client)
		}, "handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := r.pair()
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.does(client, server)
			}()
			_, err := r.Handshake(server, 0)
			_ = server.Close()
			<-done
			_ = client.Close()
			if err == nil || clienttls.Reason(err) != c.reason {
				t.Errorf("%v: the reason is %v", err, clienttls.Reason(err))
			}
		})
	}
}

// A client may be admitted just before that changes, and register just after all were judged.
func TestAClientThatIsRefusedDuringItsHandshakeIsNotServed(t *testing.T) {
	ca, clients, dir := clienttlstest.New(t), clienttlstest.New(t), t.TempDir()
	cert, key := ca.Files(filepath.Join(dir, "a"), clienttlstest.Certificate{DNS: []string{"a.test"}})
	cfg := onSite(clienttls.Site{Pairs: []clienttls.Pair{{Certificate: cert, Key: key}}, ClientCA: clients.WriteTo(filepath.Join(dir, "clients.crt"))})
	changed, judged := make(chan struct{}), make(chan struct{})
	var asked, refused atomic.Int64
	cfg.AdmitChanged = func() <-chan struct{} {
		if refused.Load() == 0 {
			return changed
		}
		close(judged) // Run has seen the change, and judges next
		return nil
	}
	cfg.Admit = func([]*x509.Certificate) error {
		if asked.Add(1) == 1 { // after this answer the deny list changes
			refused.Store(1)
			close(changed)
			<-judged
			return nil
		}
		return errors.New("denied")
	}
	r := newRig(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	defer running.Wait()
	defer stop()
	pair := clients.Pair(clienttlstest.Certificate{Common: "cart"})
	client, _, server, _ := r.connect(&tls.Config{RootCAs: ca.Pool(), ServerName: "a.test", Certificates: []tls.Certificate{pair}})
	if server == nil {
		return // refused at the end of its handshake
	}
	_ = client.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it keeps its connection: %v", err)
	}
}
