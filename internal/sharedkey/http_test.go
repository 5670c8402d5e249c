package sharedkey

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// serve makes a keeper with a key, behind a listener on loopback.
func serve(t *testing.T, change func(*Config)) (*Keeper, membership.Member) {
	t.Helper()
	cfg := valid()
	cfg.ID, cfg.Epoch, cfg.Value = "relay-1", 1, material(1)
	change(&cfg)
	k, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(k.Handler())
	t.Cleanup(server.Close)
	return k, member(server.Listener.Addr())
}

func member(addr net.Addr) membership.Member {
	return membership.Member{ID: "relay-1", Epoch: 1, Role: identity.RoleRelay, ForwardAddr: addr.String()}
}

// fetchFrom asks once with a new keeper's client.
func fetchFrom(t *testing.T, m membership.Member, change func(*Config)) (Answer, error) {
	t.Helper()
	cfg := valid()
	change(&cfg)
	k, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := k.askOne(t.Context(), m)
	return r.answer, r.err
}

func sealing(c *Config) { c.Seal, c.Insecure = seals(material(50)), false }

// seals are gossip keys that do not change.
func seals(keys ...[]byte) func() []Secret {
	secrets := make([]Secret, len(keys))
	for i, key := range keys {
		secrets[i] = key
	}
	return func() []Secret { return secrets }
}

func TestARotationOfTheGossipKeyStopsNoAnswer(t *testing.T) {
	before, after := material(50), material(51)
	nonce := make([]byte, nonceBytes)
	body, err := seal(Secret(after), "l", nonce, []byte("answer")) // the other side uses the new key already
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := unsealAny(seals(before, after)(), "l", nonce, body); err != nil || string(plain) != "answer" {
		t.Errorf("%q, %v", plain, err)
	}
	if _, err := unsealAny(seals(before)(), "l", nonce, body); err == nil {
		t.Error("opened without the key")
	}
}
func inClear(*Config) {}

func TestARelayGetsTheKeyOverHTTP(t *testing.T) { // NG-7, NG-8
	for name, mode := range map[string]func(*Config){"clear": inClear, "sealed": sealing} {
		t.Run(name, func(t *testing.T) {
			holder, m := serve(t, mode)
			got, err := fetchFrom(t, m, mode)
			if want, _ := holder.Key(); err != nil || !got.Key.Equal(want) {
				t.Fatalf("%v, %v", got, err)
			}
			_, empty := serve(t, func(c *Config) { mode(c); c.Value = nil })
			if _, err := fetchFrom(t, empty, mode); !errors.Is(err, ErrNoKey) {
				t.Fatalf("from a relay without a key: %v", err)
			}
		})
	}
}

func TestTwoRelaysShareAKeyOverHTTPAndOneIsReadyOnlyThen(t *testing.T) { // NG-12, NG-14
	start := func(id string, epoch uint64, members *cluster) (*Keeper, membership.Member, *httptest.Server) {
		cfg := valid()
		cfg.ID, cfg.Epoch, cfg.Members, cfg.Interval = id, epoch, members, 20*time.Millisecond
		cfg.Attempts = 100_000 // on a busy machine neither gives up and makes its own key
		sealing(&cfg)
		k, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(k.Handler()) // bound before Run
		return k, membership.Member{ID: id, Epoch: epoch, Role: identity.RoleRelay, ForwardAddr: server.Listener.Addr().String()}, server
	}
	members := &cluster{}
	a, memberA, serverA := start("relay-1", 1, members)
	defer serverA.Close()
	b, memberB, serverB := start("relay-2", 2, members)
	defer serverB.Close()
	members.Store(membership.NewSnapshot(1, "relay-1", []membership.Member{memberA, memberB}))
	if a.Ready() == nil || b.Ready() == nil {
		t.Fatal("ready without a key")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, k := range []*Keeper{a, b} {
		go func() { done <- k.Run(ctx) }()
	}
	keyA, keyB := <-a.Watch(ctx), <-b.Watch(ctx)
	if !keyA.Equal(*keyB) || a.Ready() != nil || b.Ready() != nil || !b.Verify([]byte("m"), a.Sign([]byte("m"))) {
		t.Fatalf("keys %v and %v", keyA, keyB)
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// get sends a request by hand.
func get(t *testing.T, method string, m membership.Member, header http.Header) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+m.ForwardAddr+Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

func TestTheHandlerAnswersInJSONAndIsNotCached(t *testing.T) { // NG-8
	k, m := serve(t, inClear)
	_, empty := serve(t, func(c *Config) { c.Value = nil })
	_, sealedOnly := serve(t, sealing)
	secret := hex.EncodeToString(material(1))
	for name, c := range map[string]struct {
		method string
		to     membership.Member
		header http.Header
		status int
		body   string
	}{
		"key":         {"GET", m, nil, 200, `"material":"` + secret + `"`},
		"none":        {"GET", empty, nil, 404, `"error":"no key yet"`},
		"no nonce":    {"GET", sealedOnly, nil, 403, `"error":"answers are sealed here: send Ringway-Nonce with 32 bytes in hex"`},
		"short nonce": {"GET", sealedOnly, http.Header{nonceHeader: {"abcd"}}, 403, `"error"`},
		"post":        {"POST", m, nil, 405, `"error":"only GET is allowed"`},
	} {
		t.Run(name, func(t *testing.T) {
			status, body, header := get(t, c.method, c.to, c.header)
			if status != c.status || !strings.Contains(body, c.body) || !json.Valid([]byte(body)) {
				t.Fatalf("%d %s", status, body)
			}
			if header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" {
				t.Fatalf("header %v", header)
			}
			if status != 200 && strings.Contains(body, secret[:8]) {
				t.Fatal("the key is in a refusal")
			}
		})
	}
	if key, _ := k.Key(); key.Fingerprint() == secret[:8] {
		t.Fatal("the fingerprint is the key")
	}
}

func TestASealedAnswerShowsNothingAndOpensForItsAskerOnly(t *testing.T) { // trap e
	_, m := serve(t, sealing)
	nonce := bytes.Repeat([]byte{7}, nonceBytes)
	_, body, _ := get(t, "GET", m, http.Header{nonceHeader: {hex.EncodeToString(nonce)}})
	if strings.Contains(body, hex.EncodeToString(material(1)[:4])) || strings.Contains(body, "material") {
		t.Fatalf("the answer is readable: %s", body)
	}
	_, second, _ := get(t, "GET", m, http.Header{nonceHeader: {hex.EncodeToString(nonce)}})
	if second == body {
		t.Fatal("two answers are sealed alike")
	}
	if _, err := unseal(material(50), "", nonce, []byte(body)); err != nil {
		t.Fatal(err)
	}
	other := bytes.Repeat([]byte{8}, nonceBytes)
	for name, open := range map[string]func() ([]byte, error){
		"another nonce":      func() ([]byte, error) { return unseal(material(50), "", other, []byte(body)) },
		"another gossip key": func() ([]byte, error) { return unseal(material(51), "", nonce, []byte(body)) },
		"another cluster":    func() ([]byte, error) { return unseal(material(50), "x", nonce, []byte(body)) },
	} {
		if _, err := open(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAReplayedAnswerIsRefused(t *testing.T) {
	_, m := serve(t, sealing)
	_, recorded, _ := get(t, "GET", m, http.Header{nonceHeader: {strings.Repeat("ab", nonceBytes)}})
	replay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, recorded) }))
	defer replay.Close()
	if _, err := fetchFrom(t, member(replay.Listener.Addr()), sealing); !errors.Is(err, ErrMalformed) {
		t.Fatalf("error %v", err)
	}
}

func TestRelaysThatProtectTheKeyDifferentlyDoNotShareIt(t *testing.T) {
	_, sealed := serve(t, sealing)
	if _, err := fetchFrom(t, sealed, inClear); !errors.Is(err, ErrRefused) {
		t.Errorf("clear from sealed: %v", err)
	}
	_, open := serve(t, inClear)
	if _, err := fetchFrom(t, open, sealing); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "gossip key") {
		t.Errorf("sealed from clear: %v", err)
	}
	_, named := serve(t, func(c *Config) { c.Label = "shop/prod" })
	if _, err := fetchFrom(t, named, func(c *Config) { c.Label = "shop/staging" }); !errors.Is(err, ErrForeign) {
		t.Errorf("another label: %v", err)
	}
	if _, err := fetchFrom(t, named, func(c *Config) { c.Label = "shop/prod" }); err != nil {
		t.Errorf("the same label: %v", err)
	}
}

func TestTheResponseOfAnotherServerIsNotAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		want   error
	}{
		"404 of another server": {http.NotFound, ErrMalformed},
		"500":                   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", 500) }, ErrMalformed},
		"a redirect":            {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, ErrMalformed},
		"403 without a reason":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, ErrRefused},
		"an endless answer": {func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				_, _ = w.Write(bytes.Repeat([]byte{' '}, 1024))
			}
		}, ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.handle)
			defer server.Close()
			if _, err := fetchFrom(t, member(server.Listener.Addr()), inClear); !errors.Is(err, c.want) {
				t.Fatalf("error %v", err)
			}
		})
	}
}

func TestARelayThatCannotBeReachedIsNoAnswer(t *testing.T) {
	refusing := membership.Member{ID: "relay-1", Epoch: 1, Role: identity.RoleRelay, ForwardAddr: procs.Refusing(t)}
	for name, m := range map[string]membership.Member{"no listener": refusing, "no address": {ID: "relay-1"}, "no address at all": {ForwardAddr: "\x7f"}} {
		if _, err := fetchFrom(t, m, inClear); err == nil || errors.Is(err, ErrNoKey) || fetchResult(err) != "unreachable" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASilentListenerCostsTheTimeoutOnly(t *testing.T) { // NG-7
	ln := procs.Listen(t) // accepts in the kernel, never answers
	_, err := fetchFrom(t, member(ln.Addr()), func(c *Config) { c.Timeout = 50 * time.Millisecond })
	if fetchResult(err) != "timeout" {
		t.Fatalf("error %v", err)
	}
}

func TestTheClientIsAskedForEachMember(t *testing.T) {
	_, m := serve(t, inClear)
	var asked string
	transport := &http.Transport{DisableKeepAlives: true}
	_, err := fetchFrom(t, m, func(c *Config) {
		c.Client = func(m membership.Member) *http.Client {
			asked = m.ID
			return &http.Client{Transport: transport}
		}
	})
	if err != nil || asked != "relay-1" {
		t.Fatalf("asked for %q, %v", asked, err)
	}
}

func TestWithCertificatesOnlyRelaysAndGatesGetTheKey(t *testing.T) { // NG-8, NG-11, traps d and e
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	source := func(role identity.Role, node string) *identity.Source {
		s, err := authority.Source(identity.Claims{Role: role, Cluster: "shop", Environment: "prod", Node: node}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	mine := source(identity.RoleRelay, "relay-1")
	authorize := func(r *http.Request) error {
		claims, err := identity.FromCertificate(r.TLS.PeerCertificates[0])
		if err != nil {
			return err
		}
		if claims.Role != identity.RoleRelay && claims.Role != identity.RoleGate {
			return fmt.Errorf("%s may not have the key", claims.Role)
		}
		return nil
	}
	client := func(s *identity.Source, m membership.Member) *http.Client {
		config := s.ClientConfig(s.Policy(identity.DataPlane), identity.Expected{Node: m.ID, Role: identity.RoleRelay}, "http/1.1")
		return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	}
	certificates := func(s *identity.Source) func(*Config) {
		return func(c *Config) {
			c.Insecure, c.Authorize = false, authorize
			c.Client = func(m membership.Member) *http.Client { return client(s, m) }
		}
	}
	registry := prometheus.NewRegistry()
	cfg := valid()
	cfg.ID, cfg.Value, cfg.Registerer = "relay-1", material(1), registry
	certificates(mine)(&cfg)
	cfg.Seal = seals(material(50)) // certificates come first
	holder, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln := procs.Listen(t)
	server := &http.Server{Handler: holder.Handler(), ErrorLog: log.New(io.Discard, "", 0)} // of the impostor
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(tls.NewListener(ln, mine.ServerConfig(mine.Policy(identity.DataPlane), "http/1.1")))
	}()
	defer func() {
		_ = server.Close()
		<-served
	}()

	for role, want := range map[identity.Role]error{identity.RoleRelay: nil, identity.RoleGate: nil, identity.RoleWorker: ErrRefused} {
		got, err := fetchFrom(t, member(ln.Addr()), certificates(source(role, "asker-1")))
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", role, err, want)
		}
		if key, _ := holder.Key(); want == nil && !got.Key.Equal(key) {
			t.Errorf("%s got %v", role, got)
		}
	}
	if n := logtest.Value(t, registry, "ringway_shared_key_answers_total", answeredRefused); n != 1 {
		t.Errorf("%v refusals counted", n)
	}
	if n := logtest.Value(t, registry, "ringway_shared_key_answers_total", answeredKey); n != 2 {
		t.Errorf("%v keys given", n)
	}
	// Another relay at the address than the one expected is not asked.
	impostor := member(ln.Addr())
	impostor.ID = "relay-9"
	if _, err := fetchFrom(t, impostor, certificates(source(identity.RoleRelay, "asker-1"))); err == nil {
		t.Error("an impostor was believed")
	}
	// The key is sent to no caller in clear text.
	plain := httptest.NewServer(holder.Handler())
	defer plain.Close()
	if status, body, _ := get(t, "GET", member(plain.Listener.Addr()), nil); status != 403 || !strings.Contains(body, "clear text") {
		t.Errorf("in clear text: %d %s", status, body)
	}
}
