package membership

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

func TestAPingIsAnsweredByWhoIsThereOnly(t *testing.T) {
	r1 := start(t, func(c *Config) { c.ID = "r1" })
	w1 := start(t, func(c *Config) { c.ID, c.Role, c.Seeds = "w1", identity.RoleWorker, []string{r1.Addr()} })
	r1.await(t, "both", sees("r1", "w1"))
	if _, err := r1.Ping(t.Context(), "w9"); err == nil || !strings.Contains(err.Error(), "no such member") {
		t.Errorf("a member that there is not: %v", err)
	}
	for deadline := time.Now().Add(patience); ; { // on a busy machine three packets can be late
		trip, err := r1.Ping(t.Context(), "w1")
		if err == nil {
			if trip < 0 || trip > time.Second {
				t.Errorf("a round trip of %v", trip)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r1.Ping(cancelled, "w1"); err == nil {
		t.Error("a ping without time was sent")
	}
	// A member that asks before the crash is known must learn of it.
	if err := w1.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r1.Ping(t.Context(), "w1"); err == nil {
		t.Error("a member that is gone answers")
	}
	if err := r1.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r1.Ping(t.Context(), "r1"); err == nil {
		t.Error("a node that is closed pings")
	}
}

func TestKeyFingerprintsAreAskedOfTheNamedMembersOnly(t *testing.T) {
	r1 := start(t, func(c *Config) { c.ID, c.Keyring = "r1", keyring(t, 1) })
	start(t, func(c *Config) { c.ID, c.Seeds, c.Keyring = "r2", []string{r1.Addr()}, keyring(t, 1) })
	r1.await(t, "both", sees("r1", "r2"))
	got, err := r1.KeyFingerprints(t.Context(), []string{"r2", "r9"})
	if err != nil || len(got) != 1 || got[0].Member != "r2" || got[0].Error != "" || got[0].Fingerprints[0] != prints(1)[0] {
		t.Errorf("%+v %v", got, err)
	}
	without := start(t, func(c *Config) { c.ID = "r3" })
	if _, err := without.KeyFingerprints(t.Context(), nil); err != ErrNoKeyring {
		t.Errorf("%v", err)
	}
}
