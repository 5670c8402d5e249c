package relay

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/sharedkey"
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
			c.Identity, err = authority.Source(identity.Claims{Role: identity.Role(c.Role), Cluster: c.Cluster, Environment: c.Environment, Node: c.ID}, time.Hour)
		case "a gossip key":
			c.Keyring, err = membership.NewKeyring(key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRelaysAgreeOnOneKeyAndANewcomerTakesIt(t *testing.T) {
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

func TestARelayThatHasNotJoinedHasNoKeyAndSaysSo(t *testing.T) {
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
		c := membership.Config{Cluster: "test", Environment: "ci", ID: "asker", Role: membership.Role(role)}
		f.secure(&c)
		config := c.Identity.ClientConfig(c.Identity.Policy(identity.Hello), identity.Expected{}, "http/1.1")
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
	for _, role := range []identity.Role{identity.RoleWorker, identity.RoleClient} {
		if status, err := ask(role); err == nil {
			t.Errorf("a %s got %d", role, status)
		}
	}
	// The client's handshake is over before the relay has judged it: the answer tells.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	if resp, err := client.Get("https://" + r.PeerAddr() + sharedkey.Path); err == nil {
		_ = resp.Body.Close()
		t.Errorf("without a certificate: %d", resp.StatusCode)
	}
}
