package process_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/membership/identity"
)

const (
	token = "0123456789abcdefghij-token"
	other = "0123456789abcdefghij-other"
)

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, text)
	return file
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func guard(t *testing.T, cfg process.AccessConfig) http.Handler {
	t.Helper()
	a, err := process.NewAccess(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a.Guard(api())
}

// api is the common API and one path that changes something.
func api() http.Handler {
	mux := process.NewMux(config())
	mux.HandleFunc("POST /api/v1/drain", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	return mux
}

func ask(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:7430"
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestATokenOpensEverythingAndNothingElseDoes(t *testing.T) {
	file, reg := tokenFile(t, "# of the fleet\n"+token+"\n\n"+other+"\n"), prometheus.NewRegistry()
	h := guard(t, process.AccessConfig{TokenFile: file, Registerer: reg})
	basic := func(password string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.SetBasicAuth("anybody", password)
		return "Authorization: " + r.Header.Get("Authorization")
	}
	for _, c := range []struct {
		name, method, path, header string
		want                       int
	}{
		{"a probe", "GET", "/healthz", "", 200},
		{"a probe of readiness", "GET", "/readyz", "", 200},
		{"a change dressed as a probe", "POST", "/healthz", "", 401},
		{"nothing", "GET", "/api/v1/members", "", 401},
		{"nothing, for metrics", "GET", "/metrics", "", 401},
		{"nothing, for a page that there is not", "GET", "/nowhere", "", 401},
		{"nothing, past a probe", "GET", "/healthz/../metrics", "", 401},
		{"the token", "GET", "/api/v1/members", "Authorization: Bearer " + token, 200},
		{"the other token", "GET", "/api/v1/members", "Authorization: bearer " + other, 200},
		{"the token of a browser", "GET", "/metrics", basic(token), 200},
		{"the token, for a change", "POST", "/api/v1/drain", "Authorization: Bearer " + token, 200},
		{"a wrong one", "GET", "/api/v1/members", "Authorization: Bearer " + token + "x", 401},
		{"a part of it", "GET", "/api/v1/members", "Authorization: Bearer " + token[:10], 401},
		{"an empty one", "GET", "/api/v1/members", "Authorization: Bearer ", 401},
		{"the comment", "GET", "/api/v1/members", "Authorization: Bearer # of the fleet", 401},
		{"a wrong one of a browser", "GET", "/metrics", basic("guess"), 401},
		{"another scheme", "GET", "/metrics", "Authorization: Digest " + token, 401},
	} {
		headers := []string{"X: y"}
		if c.header != "" {
			headers = append(headers, c.header)
		}
		w := ask(h, c.method, c.path, headers...)
		if w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.want)
		}
		if w.Code == 401 && (!strings.Contains(w.Body.String(), "admin-token-file") || len(w.Header()["Www-Authenticate"]) != 2) {
			t.Errorf("%s: it does not say what to do: %v %s", c.name, w.Header(), w.Body)
		}
	}
	if n := logtest.Series(t, reg, "ringway_admin_refused_total")["wrong_token"]; n != 4 {
		t.Errorf("%v wrong tokens counted", n)
	}
	if n := logtest.Series(t, reg, "ringway_admin_refused_total")["no_token"]; n != 7 {
		t.Errorf("%v missing tokens counted", n)
	}
	marked := guard(t, process.AccessConfig{TokenFile: tokenFile(t, "\ufeff"+token+"\r\n"), Registerer: prometheus.NewRegistry()})
	if w := ask(marked, "GET", "/metrics", "Authorization: Bearer "+token); w.Code != 200 {
		t.Errorf("a token after a byte-order mark: %d", w.Code)
	}
}

func TestTokensChangeWithoutARestart(t *testing.T) {
	file := tokenFile(t, token)
	h := guard(t, process.AccessConfig{TokenFile: file})
	opens := func(token string) bool {
		return ask(h, "GET", "/api/v1/members", "Authorization: Bearer "+token).Code == 200
	}
	write(t, file, other)
	if opens(token) || !opens(other) {
		t.Error("the old token opens, or the new one does not")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if !opens(other) || opens(token) || opens("") {
		t.Error("without a file the last tokens count")
	}
}

func TestATokenFileThatProtectsNothingIsRefused(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	for name, c := range map[string]struct{ file, want string }{
		"missing":     {filepath.Join(t.TempDir(), "none"), "head -c 32 /dev/urandom"},
		"empty":       {tokenFile(t, "\n# nothing\n"), "no token in it"},
		"short":       {tokenFile(t, "secret\n"), "can be guessed"},
		"a wrong one": {tokenFile(t, long), "is it the right file"},
	} {
		if _, err := process.NewAccess(process.AccessConfig{TokenFile: c.file}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--admin-token-file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	open := tokenFile(t, token)
	if err := os.Chmod(open, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := process.NewAccess(process.AccessConfig{TokenFile: open}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that all users may write: %v", err)
	}
	if _, err := process.NewAccess(process.AccessConfig{TLS: true}); err == nil || !strings.Contains(err.Error(), "--tls-cert") {
		t.Errorf("TLS without a certificate: %v", err)
	}
}

func TestATokenFileIsJudgedLikeTheKeyOfACertificate(t *testing.T) {
	for mode, want := range map[os.FileMode]struct {
		starts bool
		said   string // in the log
	}{
		0o600: {true, ""}, 0o400: {true, ""},
		0o644: {false, ""}, 0o604: {false, ""}, 0o640: {true, "can be read by others (mode 0640)"}, 0o440: {true, "can be read by others (mode 0440)"},
		0o620: {false, ""}, 0o602: {false, ""},
	} {
		file, log := tokenFile(t, token), &strings.Builder{}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		_, err := process.NewAccess(process.AccessConfig{TokenFile: file, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if (err == nil) != want.starts || want.said == "" && log.String() != "" || !strings.Contains(log.String(), want.said) {
			t.Errorf("mode %04o: %v, and the log says %q, want %q", mode, err, log, want.said)
		}
		if strings.Contains(log.String(), token) {
			t.Error("the token is in the log")
		}
	}
}

func TestAPageOfAnotherSiteChangesNothing(t *testing.T) {
	h := guard(t, process.AccessConfig{})
	for _, c := range []struct {
		method, header string
		want           int
	}{
		{"POST", "Sec-Fetch-Site: cross-site", 403}, {"POST", "Origin: https://evil.example", 403},
		{"POST", "Sec-Fetch-Site: same-origin", 200}, {"POST", "X: y", 200},
	} {
		if w := ask(h, c.method, "/api/v1/drain", c.header); w.Code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.header, w.Code, c.want)
		}
	}
	if w := ask(h, "GET", "/api/v1/drain"); w.Code != 405 {
		t.Errorf("a GET that changes something: %d", w.Code)
	}
}

// A request without an effect can still be a stream, of which there are few.
func TestAPageOfAnotherSiteReadsNothingButOpensAPage(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := guard(t, process.AccessConfig{Registerer: reg})
	const link, document = "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"
	for _, c := range []struct {
		headers []string
		want    int
	}{
		{[]string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"}, 403},
		{[]string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"}, 403},
		{[]string{"Sec-Fetch-Site: cross-site"}, 403},
		{[]string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"}, 403}, // another port of this host
		{[]string{"Sec-Fetch-Site: cross-site", link, "Sec-Fetch-Dest: iframe"}, 403},
		{[]string{"Sec-Fetch-Site: cross-site", link, document, "Sec-Purpose: prefetch"}, 403},
		{[]string{"Sec-Fetch-Site: cross-site", link, document}, 200},
		{[]string{"Sec-Fetch-Site: same-site", link, document}, 200},
		{[]string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"}, 200},
		{[]string{"Sec-Fetch-Site: none", link, document}, 200},
		{nil, 200},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			w := ask(h, method, "/api/v1/members", c.headers...)
			if w.Code != c.want {
				t.Errorf("%s with %q: %d, want %d", method, c.headers, w.Code, c.want)
			}
			if w.Code == 403 {
				checkRefusal(t, w, "cross_origin", "command line")
			}
		}
	}
	if n := logtest.Series(t, reg, "ringway_admin_refused_total")["cross_origin"]; n != 12 {
		t.Errorf("%v are counted", n)
	}
	if w := ask(h, "POST", "/api/v1/drain", "Sec-Fetch-Site: cross-site", link, document); w.Code != 403 {
		t.Errorf("a form of another site: %d", w.Code)
	}
}

// A page of evil.example whose name is made to mean 127.0.0.1 is of the same origin as
// the API for a browser. Only the Host header shows it.
func TestWithoutATokenOnlyTheNamesOfTheProcessAreAnswered(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := guard(t, process.AccessConfig{Hosts: []string{"Relay-1.shop.internal", "2001:db8::1"}, Registerer: reg})
	for host, want := range map[string]int{
		"127.0.0.1:7430": 200, "127.0.0.1": 200, "[::1]:7430": 200, "[::1]": 200, "10.0.0.1:80": 200,
		"localhost": 200, "LocalHost:7430": 200, "relay-1.shop.internal": 200, "RELAY-1.shop.internal:7430": 200,
		"evil.example": 421, "evil.example:7430": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:7430": 421,
		"127.0.0.1@evil.example": 421, "shop.internal": 421, "2130706433": 421, "0x7f000001": 421, "127.1": 421, "": 421, ":7430": 421, "[]:7430": 421,
	} {
		for method, path := range map[string]string{"GET": "/api/v1/members", "POST": "/api/v1/drain"} {
			w := ask(h, method, path, "Host: "+host, "Origin: http://"+host)
			if w.Code != want {
				t.Errorf("%s %s of %q: %d %s, want %d", method, path, host, w.Code, w.Body, want)
			}
			if w.Code == 421 {
				checkRefusal(t, w, "foreign_host", "--admin-host")
			}
		}
		if w := ask(h, "GET", "/readyz", "Host: "+host); w.Code != 200 {
			t.Errorf("a probe that asks for %q: %d", host, w.Code)
		}
	}
	if n := logtest.Series(t, reg, "ringway_admin_refused_total")["foreign_host"]; n != 24 {
		t.Errorf("%v foreign hosts counted", n)
	}
	withToken := guard(t, process.AccessConfig{TokenFile: tokenFile(t, token)})
	if w := ask(withToken, "GET", "/metrics", "Host: relay-7", "Authorization: Bearer "+token); w.Code != 200 {
		t.Errorf("another name, with the token: %d %s", w.Code, w.Body)
	}
}

func TestWhatWasForwardedIsNotBelievedForItsAddress(t *testing.T) {
	forwarded := []string{
		"X-Forwarded-For: 203.0.113.9", "X-Forwarded-Host: shop.example", "X-Forwarded-Proto: https", "x-forwarded-anything: 1",
		"Forwarded: for=203.0.113.9", "Via: 1.1 proxy", "Ringway-Hop: r2", "Ringway-Service: admin", "ringway-anything: 1", "Via: ",
	}
	reg := prometheus.NewRegistry()
	open, closed := guard(t, process.AccessConfig{Registerer: reg}), guard(t, process.AccessConfig{TokenFile: tokenFile(t, token)})
	for _, header := range forwarded {
		for method, path := range map[string]string{"GET": "/api/v1/members", "POST": "/api/v1/drain"} {
			w := ask(open, method, path, header)
			if w.Code != 403 {
				t.Errorf("%s %s with %s: %d", method, path, header, w.Code)
				continue
			}
			checkRefusal(t, w, "forwarded", "--admin-token-file")
			if w := ask(closed, method, path, header, "Authorization: Bearer "+token); w.Code != 200 {
				t.Errorf("%s %s with %s and the token: %d %s", method, path, header, w.Code, w.Body)
			}
		}
	}
	if n := logtest.Series(t, reg, "ringway_admin_refused_total")["forwarded"]; int(n) != 2*len(forwarded) {
		t.Errorf("%v counted", n)
	}
}

// checkRefusal wants a code for programs and a remedy for people.
func checkRefusal(t *testing.T, w *httptest.ResponseRecorder, code, remedy string) {
	t.Helper()
	var answer struct{ Code, Error string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Code != code || !strings.Contains(answer.Error, remedy) {
		t.Errorf("%d %s, %v: want the code %s and the remedy %s", w.Code, w.Body, err, code, remedy)
	}
}

func TestProfilesAreThereOnlyWhenAskedFor(t *testing.T) {
	mux := process.NewMux(config())
	if w := ask(mux, "GET", "/debug/pprof/"); w.Code != 404 {
		t.Errorf("%d", w.Code)
	}
	process.HandlePprof(mux)
	if w := ask(mux, "GET", "/debug/pprof/goroutine?debug=1"); w.Code != 200 || !strings.Contains(w.Body.String(), "goroutine profile") {
		t.Errorf("%d", w.Code)
	}
}

// The arguments of a process may be secrets by mistake.
func TestAProfileShowsNoArguments(t *testing.T) {
	mux := process.NewMux(config())
	process.HandlePprof(mux)
	if got := ask(mux, "GET", "/debug/pprof/cmdline").Body.String(); got != os.Args[0] {
		t.Errorf("%q, want the name of the program alone", got)
	}
}

// caller begins a handshake from an address, and never goes on.
type caller struct {
	net.Conn
	from  net.Addr
	hello *bytes.Reader
}

func (c caller) Read(b []byte) (int, error)  { return c.hello.Read(b) }
func (c caller) Write(b []byte) (int, error) { return len(b), nil }
func (c caller) RemoteAddr() net.Addr        { return c.from }
func (c caller) Close() error                { return nil }

// clientHello is the first record of a client.
func clientHello(t *testing.T) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	go func() { _ = tls.Client(far, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	record := make([]byte, 5)
	if _, err := io.ReadFull(near, record); err != nil {
		t.Fatal(err)
	}
	record = append(record, make([]byte, binary.BigEndian.Uint16(record[3:]))...)
	if _, err := io.ReadFull(near, record[5:]); err != nil {
		t.Fatal(err)
	}
	return record
}

func TestTheHandshakesOfOneAddressHaveAPaceAndThoseOfAnotherGoOn(t *testing.T) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	own, err := authority.Source(identity.Claims{Role: identity.RoleRelay, Node: "r1", Cluster: "shop", Environment: "prod"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	access, err := process.NewAccess(process.AccessConfig{TLS: true, Identity: own, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	server, hello := new(http.Server), clientHello(t)
	access.Secure(server)
	var refused atomic.Int64
	synctest.Test(t, func(t *testing.T) { // all of them begin at the same moment, however busy the machine is
		begin := func(host string) error {
			from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(host), 1))
			return tls.Server(caller{from: from, hello: bytes.NewReader(hello)}, server.TLSConfig).HandshakeContext(t.Context())
		}
		var calling sync.WaitGroup
		for range 500 * runtime.GOMAXPROCS(0) {
			calling.Go(func() {
				if errors.Is(begin("192.0.2.1"), handshake.ErrPace) {
					refused.Add(1)
				}
			})
		}
		calling.Wait()
		if err := begin("192.0.2.2"); errors.Is(err, handshake.ErrPace) {
			t.Errorf("another address: %v", err)
		}
	})
	if refused.Load() == 0 {
		t.Error("no handshake was refused")
	}
	want := fmt.Sprintf("ringway_admin_refused_total{reason=\"too_fast_from_source\"} %d\n", refused.Load())
	if got := ask(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), "GET", "/metrics").Body.String(); !strings.Contains(got, want) {
		t.Errorf("lacks %q in:\n%s", want, got)
	}
}

func TestOverTLSOperatorsAndTheProcessItselfAreLetIn(t *testing.T) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := identity.NewAuthority(identity.AuthorityConfig{Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	claims := func(role identity.Role, node, cluster string) identity.Claims {
		return identity.Claims{Role: role, Node: node, Cluster: cluster, Environment: "prod"}
	}
	source := func(a *identity.Authority, c identity.Claims) *identity.Source {
		s, err := a.Source(c, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	own := source(authority, claims(identity.RoleRelay, "r1", "shop"))
	for _, withToken := range []bool{false, true} {
		cfg := process.AccessConfig{TLS: true, Identity: own, Operators: []string{"operator", "eve"}}
		if withToken {
			cfg.TokenFile = tokenFile(t, token)
		}
		access, err := process.NewAccess(cfg)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(access.Guard(api()))
		access.Secure(server.Config)
		server.TLS = server.Config.TLSConfig
		server.StartTLS()
		t.Cleanup(server.Close)

		call := func(s *identity.Source, path, token string) int {
			config := &tls.Config{InsecureSkipVerify: true}
			if s != nil {
				config = s.ClientConfig(s.Policy(identity.Hello), identity.Expected{Node: "r1"}, "http/1.1")
			}
			req, _ := http.NewRequest("GET", server.URL+path, nil)
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}).Do(req)
			if err != nil {
				return 0
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		refused := map[bool]int{false: 403, true: 401}[withToken]
		for _, c := range []struct {
			name  string
			who   *identity.Source
			path  string
			token string
			want  int
		}{
			{"a probe without anything", nil, "/healthz", "", 200},
			{"no certificate", nil, "/metrics", "", refused},
			{"no certificate, a token", nil, "/metrics", token, map[bool]int{false: 403, true: 200}[withToken]},
			{"the operator", source(authority, claims(identity.RoleClient, "operator", "shop")), "/metrics", "", 200},
			{"the other operator", source(authority, claims(identity.RoleClient, "eve", "shop")), "/metrics", "", 200},
			{"the process itself", own, "/metrics", "", 200},
			{"another client", source(authority, claims(identity.RoleClient, "shop-7", "shop")), "/metrics", "", 403},
			{"another client with the token", source(authority, claims(identity.RoleClient, "shop-7", "shop")), "/metrics", token, map[bool]int{false: 403, true: 200}[withToken]},
			{"a worker of that name", source(authority, claims(identity.RoleWorker, "operator", "shop")), "/metrics", "", 403},
			{"another relay", source(authority, claims(identity.RoleRelay, "r2", "shop")), "/metrics", "", 403},
			{"the operator of another cluster", source(authority, claims(identity.RoleClient, "operator", "bank")), "/metrics", "", 403},
			{"an operator of another authority", source(stranger, claims(identity.RoleClient, "operator", "shop")), "/metrics", "", 0},
		} {
			if got := call(c.who, c.path, c.token); got != c.want {
				t.Errorf("token %v: %s: %d, want %d", withToken, c.name, got, c.want)
			}
		}
	}
}
