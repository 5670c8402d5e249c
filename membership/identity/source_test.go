package identity

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/keyfile"
	"github.com/ringway/ringway/internal/logtest"
)

// issued is one certificate with its key, as files want it.
func issued(t testing.TB, a *Authority, c Claims) PEM {
	t.Helper()
	cert, key, err := a.Issue(c, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return PEM{Certificate: cert, Key: key, Authorities: a.CertificatePEM()}
}

func write(t testing.TB, f Files, p PEM) {
	t.Helper()
	for path, data := range map[string][]byte{f.Certificate: p.Certificate, f.Key: p.Key, f.Authorities: p.Authorities} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if f.Denied != "" {
		deny(t, f, string(p.Denied))
	}
}

func deny(t testing.TB, f Files, list string) {
	t.Helper()
	if err := os.WriteFile(f.Denied, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
}

func filesIn(dir string) Files {
	return Files{Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), Authorities: filepath.Join(dir, "ca.crt")}
}

func sourceFrom(t testing.TB, f Files, p PEM) (*Source, *logtest.Log) {
	t.Helper()
	write(t, f, p)
	logs := &logtest.Log{}
	s, err := NewSource(f, SourceConfig{Logger: slog.New(slog.NewTextHandler(logs, nil)), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return s, logs
}

func mustReload(t *testing.T, s *Source, want bool) {
	t.Helper()
	if replaced, err := s.Reload(); err != nil || replaced != want {
		t.Fatalf("reload: replaced %v, %v; want %v", replaced, err, want)
	}
}

func TestANewCertificateIsUsedWithoutDroppingAConnection(t *testing.T) {
	a := newAuthority(t)
	f := filesIn(t.TempDir())
	c := claimsOf(RoleRelay, "relay-1")
	self, _ := sourceFrom(t, f, issued(t, a, c))
	peer := sourceOf(t, a, claimsOf(RoleRelay, "relay-2"))
	server := self.ServerConfig(self.Policy(DataPlane))
	asClient := self.ClientConfig(self.Policy(DataPlane), Expected{})
	toSelf := peer.ClientConfig(peer.Policy(DataPlane), Expected{Node: "relay-1"})

	// An echo server, and a connection that stays open.
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	})
	defer served.Wait()
	defer l.Close()
	open, err := tls.DialWithDialer(&net.Dialer{Timeout: 20 * time.Second}, "tcp", l.Addr().String(), toSelf)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	echo := func(text string) {
		t.Helper()
		if _, err := open.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(open, got); err != nil || string(got) != text {
			t.Fatalf("echo %q, %v", got, err)
		}
	}
	echo("before")
	old := self.Info().Fingerprint

	write(t, f, issued(t, a, c))
	mustReload(t, self, true)
	mustReload(t, self, false)
	renewed := self.Info().Fingerprint
	if renewed == old {
		t.Fatal("the old certificate is still in use")
	}
	echo("after")
	if got := fingerprint(open.ConnectionState().PeerCertificates[0]); got != old {
		t.Errorf("the open connection changed its certificate to %s", got)
	}
	// The same configurations, made before the change.
	if m := meet(t, toSelf, server); !m.succeeded() || fingerprint(m.clientPeer.PeerCertificates[0]) != renewed {
		t.Errorf("as a server the old certificate is shown: %v", m.client)
	}
	if m := meet(t, asClient, peer.ServerConfig(peer.Policy(DataPlane))); !m.succeeded() || fingerprint(m.serverPeer.PeerCertificates[0]) != renewed {
		t.Errorf("as a client the old certificate is shown: %v", m.server)
	}
	if n := testutil.ToFloat64(self.metrics.reloads.WithLabelValues(resultReplaced)); n != 1 {
		t.Errorf("counted %v", n)
	}
}

func TestAuthoritiesAreReplacedToo(t *testing.T) {
	older, newer := newAuthority(t), newAuthority(t)
	f := filesIn(t.TempDir())
	c := claimsOf(RoleRelay, "relay-1")
	first := issued(t, older, c)
	self, _ := sourceFrom(t, f, first)
	server := self.ServerConfig(self.Policy(DataPlane))
	fromOld, fromNew := stranger(older.forge(t, claimsOf(RoleGate, "gate-1"), nil)), stranger(newer.forge(t, claimsOf(RoleGate, "gate-2"), nil))
	expect := func(step string, old, young bool) {
		t.Helper()
		if m := meet(t, fromOld, server); m.succeeded() != old {
			t.Errorf("%s: a certificate of the older authority: %v", step, m.server)
		}
		if m := meet(t, fromNew, server); m.succeeded() != young {
			t.Errorf("%s: a certificate of the newer authority: %v", step, m.server)
		}
	}
	expect("at first", true, false)
	both := append(append([]byte(nil), older.CertificatePEM()...), newer.CertificatePEM()...)
	first.Authorities = both
	write(t, f, first)
	mustReload(t, self, true)
	expect("with both", true, true)
	second := issued(t, newer, c)
	write(t, f, second)
	mustReload(t, self, true)
	expect("with the newer alone", false, true)
}

// The alerts read this end: an old authority must not fire them once nothing depends on it.
func TestTheEndOfTheAuthorityIsThatOfTheOneThatOurCertificateDependsOn(t *testing.T) {
	older, err := NewAuthority(AuthorityConfig{Name: "older", Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	newer := newAuthority(t)
	f, c, reg := filesIn(t.TempDir()), claimsOf(RoleRelay, "relay-1"), prometheus.NewRegistry()
	both := append(append([]byte(nil), older.CertificatePEM()...), newer.CertificatePEM()...)
	p := issued(t, older, c)
	write(t, f, p)
	s, err := NewSource(f, SourceConfig{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	ends := func(step string, of *Authority) {
		t.Helper()
		if got := logtest.Series(t, reg, "ringway_certificate_expiry_timestamp_seconds")["authority"]; got != float64(of.Certificate().NotAfter.Unix()) {
			t.Errorf("%s: the authority ends at %v, want that of %s", step, got, of.Certificate().Subject.CommonName)
		}
	}
	ends("at first", older)
	p.Authorities = both
	write(t, f, p)
	mustReload(t, s, true)
	ends("with both", older)
	p = issued(t, newer, c)
	p.Authorities = both
	write(t, f, p)
	mustReload(t, s, true)
	ends("with both and a certificate of the newer", newer)
}

func TestAnUnusableCertificateKeepsTheOldOneAndIsLoggedOnce(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	c := claimsOf(RoleRelay, "relay-1")
	stranger := claimsOf(RoleRelay, "relay-2")
	for name, corrupt := range map[string]struct {
		change func(f Files, old, next PEM) error
		want   string
	}{
		"half a pair":             {func(f Files, _, next PEM) error { return os.WriteFile(f.Certificate, next.Certificate, 0o600) }, "half written"},
		"the other half":          {func(f Files, _, next PEM) error { return os.WriteFile(f.Key, next.Key, 0o600) }, "half written"},
		"a certificate cut short": {func(f Files, _, next PEM) error { return os.WriteFile(f.Certificate, next.Certificate[:200], 0o600) }, "cut short"},
		"a key cut short":         {func(f Files, old, _ PEM) error { return os.WriteFile(f.Key, old.Key[:60], 0o600) }, "cut short"},
		"authorities cut short": {func(f Files, old, _ PEM) error {
			return os.WriteFile(f.Authorities, append(old.Authorities, old.Authorities[:99]...), 0o600)
		}, "cut short"},
		"a blank before an authority": {func(f Files, old, _ PEM) error {
			return os.WriteFile(f.Authorities, slices.Concat([]byte(" "), other.CertificatePEM(), old.Authorities), 0o600)
		}, "line 1 has text, a blank or"},
		"an empty file":            {func(f Files, _, _ PEM) error { return os.WriteFile(f.Key, nil, 0o600) }, "no PEM block"},
		"a file gone":              {func(f Files, _, _ PEM) error { return os.Remove(f.Certificate) }, "correct the path"},
		"authorities of another":   {func(f Files, _, _ PEM) error { return os.WriteFile(f.Authorities, other.CertificatePEM(), 0o600) }, "unknown authority"},
		"no authority":             {func(f Files, old, _ PEM) error { return os.WriteFile(f.Authorities, old.Certificate, 0o600) }, "no authority"},
		"the key as a certificate": {func(f Files, old, _ PEM) error { return os.WriteFile(f.Certificate, old.Key, 0o600) }, "PRIVATE KEY"},
		"a key others can write":   {func(f Files, _, next PEM) error { write(t, f, next); return os.Chmod(f.Key, 0o620) }, "chmod 600"},
		"another identity":         {func(f Files, _, _ PEM) error { write(t, f, issued(t, a, stranger)); return nil }, "another identity"},
		"an expired certificate": {func(f Files, old, _ PEM) error {
			past := *a
			past.now = func() time.Time { return time.Now().Add(-3 * time.Hour) }
			write(t, f, issued(t, &past, c))
			return nil
		}, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			f := filesIn(t.TempDir())
			good, next := issued(t, a, c), issued(t, a, c)
			self, logs := sourceFrom(t, f, good)
			old := self.Info().Fingerprint
			if err := corrupt.change(f, good, next); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				replaced, err := self.Reload()
				if replaced || err == nil || !strings.Contains(err.Error(), corrupt.want) {
					t.Fatalf("replaced %v, error %v, want %q in it", replaced, err, corrupt.want)
				}
			}
			if self.Info().Fingerprint != old || self.Problem() == nil {
				t.Error("the old certificate is not in use, or there is no problem")
			}
			if n, lines := testutil.ToFloat64(self.metrics.reloads.WithLabelValues(resultFailed)), logs.Lines("certificates not replaced"); n != 1 || lines != 1 {
				t.Errorf("one broken state was counted %v times and logged %d times", n, lines)
			}
			peer := sourceOf(t, a, claimsOf(RoleRelay, "relay-9"))
			if m := meet(t, peer.ClientConfig(peer.Policy(DataPlane), Expected{Node: "relay-1"}), self.ServerConfig(self.Policy(DataPlane))); !m.succeeded() {
				t.Errorf("the old certificate does not work: %v, %v", m.client, m.server)
			}
			if err := os.Chmod(f.Key, 0o600); err != nil {
				t.Fatal(err)
			}
			write(t, f, issued(t, a, c))
			mustReload(t, self, true)
			if self.Problem() != nil || self.Info().Fingerprint == old {
				t.Error("not healed")
			}
		})
	}
}

func TestANewCertificateMayNameOtherServices(t *testing.T) {
	a := newAuthority(t)
	f := filesIn(t.TempDir())
	c := claimsOf(RoleWorker, "worker-1")
	self, _ := sourceFrom(t, f, issued(t, a, c))
	for _, names := range []string{"billing", "*,api-*", ""} {
		c.Services = names
		write(t, f, issued(t, a, c))
		mustReload(t, self, true)
		if self.Claims() != c {
			t.Errorf("%+v, want %+v", self.Claims(), c)
		}
	}
}

func TestASwappedSymbolicLinkIsFollowed(t *testing.T) {
	// The way Kubernetes mounts a secret: tls.crt → ..data/tls.crt, ..data → a
	// directory with a time in its name, replaced by a rename.
	a := newAuthority(t)
	c := claimsOf(RoleRelay, "relay-1")
	dir := t.TempDir()
	link := func(version string) {
		t.Helper()
		sub := filepath.Join(dir, version)
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filesIn(sub), issued(t, a, c))
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	link("..1")
	self, err := NewSource(filesIn(filepath.Join(dir, "..data")), SourceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	old := self.Info().Fingerprint
	mustReload(t, self, false)
	link("..2")
	mustReload(t, self, true)
	if self.Info().Fingerprint == old {
		t.Error("the old certificate is in use")
	}
}

func TestRunReplacesCertificatesAndWarnsOfTheirEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		f := filesIn(dir)
		c := claimsOf(RoleRelay, "relay-1")
		self, logs := sourceFrom(t, f, issued(t, a, c))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- self.Run(ctx) }()

		time.Sleep(time.Minute)
		old := self.Info().Fingerprint
		write(t, f, issued(t, a, c))
		time.Sleep(6 * time.Second)
		if self.Info().Fingerprint == old {
			t.Error("six seconds later the old certificate is still in use")
		}
		if n := logs.Lines("expires soon"); n != 0 {
			t.Errorf("warned %d times of a fresh certificate", n)
		}
		time.Sleep(50 * time.Minute)
		if n := logs.Lines("expires soon"); n != 1 {
			t.Errorf("with ten minutes left warned %d times", n)
		}
		time.Sleep(time.Hour)
		if n := logs.Lines("expired"); n != 1 {
			t.Errorf("expired and warned %d times", n)
		}
		if self.Info().Validity != Expired || self.Info().RemainingSeconds >= 0 {
			t.Errorf("%+v", self.Info())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestTimeIsTheCallers(t *testing.T) {
	// In a bubble it is the year 2000; over a pipe everything stays inside.
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		s, c := sourceOf(t, a, claimsOf(RoleWorker, "w")), sourceOf(t, a, claimsOf(RoleRelay, "r"))
		handshake := func() (server, client error) {
			left, right := net.Pipe()
			defer left.Close()
			defer right.Close()
			done := make(chan error, 1)
			go func() {
				conn := tls.Server(left, s.ServerConfig(s.Policy(DataPlane)))
				done <- conn.Handshake()
			}()
			conn := tls.Client(right, c.ClientConfig(c.Policy(DataPlane), Expected{Node: "w"}))
			if client = conn.Handshake(); client != nil {
				right.Close()
			}
			return <-done, client
		}
		if server, client := handshake(); server != nil || client != nil {
			t.Fatal(server, client)
		}
		time.Sleep(2 * time.Hour)
		_, client := handshake()
		if r, _ := reasonOf(client); r != reasonExpired {
			t.Errorf("two hours later: %v", client)
		}
	})
}

func TestMistakesAreFoundAtConstruction(t *testing.T) {
	a := newAuthority(t)
	c := claimsOf(RoleRelay, "relay-1")
	good := issued(t, a, c)
	for name, test := range map[string]struct {
		change func(Files) Files
		want   []string
	}{
		"nothing there":    {func(Files) Files { return filesIn(filepath.Join(t.TempDir(), "none")) }, []string{"certificate file:", "key file:", "authorities file:", "tls.crt", "write it, or correct the path"}},
		"no paths":         {func(Files) Files { return Files{} }, []string{"certificate file: no path given", "needed together"}},
		"a directory":      {func(f Files) Files { f.Key = filepath.Dir(f.Key); return f }, []string{"key file:", "is a directory"}},
		"mixed up":         {func(f Files) Files { f.Certificate, f.Key = f.Key, f.Certificate; return f }, []string{"tls.key", "PRIVATE KEY"}},
		"key for all":      {func(f Files) Files { _ = os.Chmod(f.Key, 0o666); return f }, []string{"can be written by others (mode 0666)", "chmod 600"}},
		"several mistakes": {func(f Files) Files { _ = os.WriteFile(f.Key, nil, 0o600); f.Authorities = f.Certificate; return f }, []string{"key: no PEM block", "authorities: no authority"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := filesIn(t.TempDir())
			write(t, f, good)
			_, err := NewSource(test.change(f), SourceConfig{})
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestAKeyThatAGroupCanReadIsWarnedAbout(t *testing.T) {
	a := newAuthority(t)
	f := filesIn(t.TempDir())
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o400: 0, 0o640: 1, 0o440: 1} {
		write(t, f, issued(t, a, claimsOf(RoleRelay, "relay-1")))
		if err := os.Chmod(f.Key, mode); err != nil {
			t.Fatal(err)
		}
		logs := &logtest.Log{}
		if _, err := NewSource(f, SourceConfig{Logger: slog.New(slog.NewTextHandler(logs, nil))}); err != nil {
			t.Fatalf("mode %04o: %v", mode, err)
		}
		if n := logs.Lines("can be read by others"); n != want {
			t.Errorf("mode %04o: warned %d times, want %d", mode, n, want)
		}
		if err := os.Chmod(f.Key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASecretThatEveryUserCanReadIsRefusedExceptWhereAContainerEngineMountsIt(t *testing.T) {
	dir := t.TempDir()
	// As Kubernetes mounts a secret: a link to a file below a link that it replaces at each change.
	volume := filepath.Join(dir, "volume")
	if err := os.MkdirAll(filepath.Join(volume, "..2026_01_02"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"..data": "..2026_01_02", "token": "..data/token"} {
		if err := os.Symlink(to, filepath.Join(volume, link)); err != nil {
			t.Fatal(err)
		}
	}
	plain, linked := filepath.Join(dir, "token"), filepath.Join(dir, "link")
	if err := os.Symlink("token", linked); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{plain, filepath.Join(volume, "token")} {
		if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		path    string
		mode    os.FileMode
		warned  bool
		refused string
	}{
		{plain, 0o644, false, "can be read by every user (mode 0644): chmod 600 " + plain}, {plain, 0o604, false, "every user"}, {linked, 0o644, false, "every user"},
		{plain, 0o440, true, ""}, {plain, 0o400, false, ""},
		{filepath.Join(volume, "token"), 0o644, true, ""}, {filepath.Join(volume, "token"), 0o440, false, ""},
		{filepath.Join(volume, "token"), 0o400, false, ""}, {filepath.Join(volume, "token"), 0o666, false, "written by others"},
	} {
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
		warning, err := keyfile.CheckAccess(c.path)
		if (warning != "") != c.warned || (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s, mode %04o: warning %q, error %v", c.path, c.mode, warning, err)
		}
	}
}

func TestHandshakesAndReloadsDoNotDisturbEachOther(t *testing.T) {
	a := newAuthority(t)
	f := filesIn(t.TempDir())
	c := claimsOf(RoleRelay, "relay-1")
	self, _ := sourceFrom(t, f, issued(t, a, c))
	peer := sourceOf(t, a, claimsOf(RoleRelay, "relay-2"))
	server, client := self.ServerConfig(self.Policy(DataPlane)), peer.ClientConfig(peer.Policy(DataPlane), Expected{Node: "relay-1"})
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for range 10 {
			write(t, f, issued(t, a, c))
			_, _ = self.Reload()
			_ = self.Info()
		}
	})
	for range 20 {
		if m := meet(t, client, server); !m.succeeded() {
			t.Errorf("%v, %v", m.client, m.server)
		}
	}
	reloads.Wait()
}

func TestMetricsAreRegisteredWithBoundedLabels(t *testing.T) {
	a := newAuthority(t)
	reg := prometheus.NewRegistry()
	p := issued(t, a, claimsOf(RoleRelay, "relay-1"))
	s, err := NewStaticSource(p, SourceConfig{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	mustReload(t, s, false)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	if series["ringway_identity_refusals_total"] != 2*len(reasons) || series["ringway_identity_reloads_total"] != 2 ||
		series["ringway_identity_certificate_not_after_timestamp_seconds"] != 1 || series["ringway_identity_files_refused"] != 2 {
		t.Errorf("got %v", series)
	}
}
