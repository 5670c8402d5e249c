package relay

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/sharedkey"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// fingerprint is the shared key as the relay shows it to operators.
func (r *runningRelay) fingerprint(t *testing.T) string {
	t.Helper()
	var status struct {
		Fingerprint string `json:"fingerprint"`
		Source      string `json:"source"`
	}
	r.api(t, "/api/v1/shared-key", &status)
	if status.Source == "" {
		return ""
	}
	return status.Fingerprint
}

// agree waits until all relays show one and the same key.
func agree(t *testing.T, relays ...*runningRelay) string {
	t.Helper()
	var key string
	relays[0].await(t, "one shared key on all relays", func() bool {
		key = relays[0].fingerprint(t)
		for _, r := range relays {
			if r.fingerprint(t) != key {
				return false
			}
		}
		return key != ""
	})
	return key
}

// secured gives every relay a certificate, or a gossip key, or nothing.
func secured(t *testing.T, how string) func(*membership.Config) {
	t.Helper()
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	key, err := membership.ParseKey(membership.GenerateKey())
	if err != nil {
		t.Fatal(err)
	}
	return func(c *membership.Config) {
		switch how {
		case "certificates":
			c.Identity, err = authority.Source(identity.Claims{Role: c.Role, Cluster: c.Cluster, Environment: c.Environment, Node: c.ID}, time.Hour)
		case "a gossip key":
			c.Keyring, err = membership.NewKeyring(key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// source returns the certificate of another member of the fleet.
func (f *fleet) source(role identity.Role, id string) *identity.Source {
	c := membership.Config{Cluster: "test", Environment: "ci", Role: role, ID: id}
	f.secure(&c)
	return c.Identity
}

func TestRelaysAgreeOnOneKeyAndAJoinerTakesIt(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"certificates", "a gossip key", "nothing, on loopback"} {
		t.Run("with "+how, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.secure = secured(t, how)
			first, second := f.relay(func(*Settings) {}), f.relay(func(*Settings) {})
			key := agree(t, first, second)
			if err := first.stop(); err != nil { // the one that made it
				t.Fatal(err)
			}
			f.relays = f.relays[1:]
			third := f.relay(func(s *Settings) { s.ID = "r3" })
			if got := agree(t, second, third); got != key {
				t.Errorf("the key changed from %s to %s with a restart", key, got)
			}
		})
	}
}

func TestAKeyGivenByTheOperatorIsUsed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	given := strings.Repeat("0123456789abcdef", 4)
	first := f.relay(func(s *Settings) { s.SharedKey = given })
	second := f.relay(func(s *Settings) { s.SharedKey = given })
	agree(t, first, second)
	_, text := first.api(t, "/api/v1/shared-key", nil)
	if !strings.Contains(text, `"source": "value"`) || strings.Contains(text, given) {
		t.Errorf("%s", text)
	}
}

func TestARelayThatHasNotJoinedHasNoKeyAndReportsIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Join = []string{refusing(t)} })
	r.await(t, "the reason", func() bool {
		_, text := r.api(t, "/api/v1/shared-key", nil)
		return strings.Contains(text, "waiting to join the cluster")
	})
}

func TestThePeerListenerAdmitsRelaysOnly(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.secure = secured(t, "certificates")
	r := f.relay(func(*Settings) {})
	agree(t, r)
	ask := func(role identity.Role) (int, error) {
		asker := f.source(role, "asker")
		config := asker.ClientConfig(asker.Policy(identity.Hello), identity.Expected{}, "http/1.1")
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		resp, err := client.Get("https://" + r.PeerAddr() + sharedkey.Path)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	for _, role := range []identity.Role{identity.RoleRelay, identity.RoleGate} {
		if status, err := ask(role); status != 200 || err != nil {
			t.Errorf("a %s got %d, %v", role, status, err)
		}
	}
	for _, role := range []identity.Role{identity.RoleWorker, identity.RoleClient, identity.RoleObserver} {
		if status, err := ask(role); err == nil {
			t.Errorf("a %s got %d", role, status)
		}
	}
	// The client's handshake is over before the relay has judged it: the answer reports the result.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	if resp, err := client.Get("https://" + r.PeerAddr() + sharedkey.Path); err == nil {
		_ = resp.Body.Close()
		t.Errorf("without a certificate: %d", resp.StatusCode)
	}
}

func TestARelayWithSessionCookiesIsReadyOnceItHasTheSharedKey(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cookies := func(s *Settings) { s.SessionCookies.Set("echo=sid") }
	f.relay(cookies)
	refusal := "Session key not resolved yet"
	waits := func(change func(*Settings)) bool {
		s := DefaultSettings()
		s.Cluster, s.Environment, s.ID = "test", "ci", "alone"
		s.GossipAddr, s.IngressAddrs, s.PeerAddr, s.AdminAddr = anyPort, []string{anyPort}, anyPort, anyPort
		change(&s)
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(cfg) // does not run, so it asks for no key
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		return strings.Contains(fmt.Sprint(r.Reasons()), refusal)
	}
	for name, c := range map[string]struct {
		change func(*Settings)
		want   bool
	}{
		"cookies":           {cookies, true},
		"none":              {func(*Settings) {}, false}, // nor because workers may advertise some: a record takes no relay out of rotation
		"only none":         {func(s *Settings) { s.SessionCookies.Set("echo=") }, false},
		"cookies at a gate": {func(s *Settings) { cookies(s); s.Role = identity.RoleGate }, false},
		"a key given":       {func(s *Settings) { cookies(s); s.SharedKey = strings.Repeat("0123456789abcdef", 4) }, false},
	} {
		if got := waits(c.change); got != c.want {
			t.Errorf("%s: waits for the key %v, want %v", name, got, c.want)
		}
	}
	f.relays[0].await(t, "the key, and readiness", func() bool { return len(f.relays[0].Reasons()) == 0 })
}

// Five relays with an agreed key: four serve the service, with ranges that would not hold
// all workers without the cookie, and the fifth forwards to any of them.
func TestASessionCookieOfOneRelayHoldsAtEveryOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for range 5 {
		f.relay(func(s *Settings) {
			s.SessionCookies.Set("echo=sid")
			s.SkipRelays.Set("echo=r5")
			s.Plans.Minimums.PeersPerWorker, s.Plans.Minimums.PeersPerRelay = 3, 1
		})
	}
	const workers = 8
	for i := range workers {
		f.echo(fmt.Sprintf("w%d", i+1))
	}
	for _, r := range f.relays {
		r.settled(t, "echo", workers)
		r.await(t, "all workers, or the relays that serve", func() bool {
			s, _ := r.Routes.Service("echo")
			return len(s.Route().Range) == workers || len(s.Route().Forward) == 4
		})
	}
	agree(t, f.relays...)
	visit := func(r *runningRelay, sid string) (worker, set string) {
		t.Helper()
		resp, _ := r.call(t, "GET", "/", nil, wire.ServiceHeader+": echo", "Cookie: sid="+sid)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", r.id, resp.Status)
		}
		for _, c := range resp.Cookies() {
			if c.Name == "sid" {
				set = c.Value
			}
		}
		return resp.Header.Get("Worker"), set
	}
	for _, first := range f.relays {
		home, sid := visit(first, "")
		if sid == "" {
			t.Fatalf("%s sets no cookie", first.id)
		}
		for i := range 15 {
			if worker, set := visit(f.relays[i%5], sid); worker != home || set != "" {
				t.Fatalf("the session of %s goes from %s to %s through %s, a new cookie %q", first.id, home, worker, f.relays[i%5].id, set)
			}
		}
	}
}
