package sharedkey

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// cluster is a Members that the test sets.
type cluster struct {
	publish.Value[membership.Snapshot]
}

func (c *cluster) Snapshot() *membership.Snapshot { return c.Load() }

// valid is a configuration that New takes, of a relay that gets no answer.
func valid() Config {
	cfg := DefaultConfig()
	cfg.ID, cfg.Epoch, cfg.Role = "relay-2", 2, identity.RoleRelay
	cfg.Members, cfg.Insecure = &cluster{}, true
	return cfg
}

func TestNewRefusesWhatItCannotUse(t *testing.T) { // NG-9: 0 and junk never become a default
	for want, change := range map[string]func(*Config){
		"Attempts is 0: use 1 to 100000":                    func(c *Config) { c.Attempts = 0 },
		"Attempts is -3":                                    func(c *Config) { c.Attempts = -3 },
		"Attempts is 100001":                                func(c *Config) { c.Attempts = 100_001 },
		"Interval is 0s: use 1ms to 1m0s":                   func(c *Config) { c.Interval = 0 },
		"Interval is 2m0s":                                  func(c *Config) { c.Interval, c.LookInterval = 2*time.Minute, time.Hour },
		"Interval is -1s":                                   func(c *Config) { c.Interval = -time.Second },
		"Timeout is 0s: use 1ms to 1m0s":                    func(c *Config) { c.Timeout = 0 },
		"LookInterval is 100ms: use 500ms to 1h0m0s":        func(c *Config) { c.LookInterval = 100 * time.Millisecond },
		"LookInterval is 0s":                                func(c *Config) { c.LookInterval = 0 },
		"Retire is -1ns: use 0s to 8760h0m0s":               func(c *Config) { c.Retire = -1 },
		"Members is nil: pass the membership node":          func(c *Config) { c.Members = nil },
		"ID has 0 bytes: use the node's id":                 func(c *Config) { c.ID = "" },
		"ID has 300 bytes":                                  func(c *Config) { c.ID = strings.Repeat("x", 300) },
		"Epoch is 0: use the node's boot time":              func(c *Config) { c.Epoch = 0 },
		`Role is "worker": only relay and gate`:             func(c *Config) { c.Role = identity.RoleWorker },
		`Role is ""`:                                        func(c *Config) { c.Role = "" },
		"Seal has 16 bytes: a gossip key has 32":            func(c *Config) { c.Seal = seals(make([]byte, 16)) },
		"would travel in clear text: give certificates":     func(c *Config) { c.Insecure = false },
		"Client is missing: with Authorize":                 func(c *Config) { c.Authorize = func(*http.Request) error { return nil } },
		"configured key is bad: 4 bytes from hex digits":    func(c *Config) { c.Value = Secret("abcdef12") },
		"configured key is bad: all 32 bytes are the same":  func(c *Config) { c.Value = make([]byte, 32) },
		"configured key is bad: 33 hex digits, an odd numb": func(c *Config) { c.Value = Secret(strings.Repeat("a", 33)) },
	} {
		t.Run(want, func(t *testing.T) {
			cfg := valid()
			change(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("error %v", err)
			}
		})
	}
}

func TestAllWrongFieldsAreReportedInOneError(t *testing.T) {
	_, err := New(Config{})
	for _, field := range []string{"Attempts", "Epoch", "ID", "Interval", "LookInterval", "Members", "Role", "Timeout", "Insecure"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in: %v", field, err)
		}
	}
}

func TestEveryProtectionIsEnoughByItself(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"certificates": func(c *Config) {
			c.Authorize = func(*http.Request) error { return nil }
			c.Client = func(membership.Member) *http.Client { return http.DefaultClient }
		},
		"gossip key": func(c *Config) { c.Seal = seals(material(1)) },
		"insecure":   func(c *Config) { c.Insecure = true },
	} {
		cfg := valid()
		cfg.Insecure = false
		change(&cfg)
		if _, err := New(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoLoggerAndNoRegistererAreFine(t *testing.T) {
	cfg := valid()
	cfg.Logger, cfg.Registerer, cfg.Joined = nil, nil, nil
	if _, err := New(cfg); err != nil {
		t.Fatal(err)
	}
}

func TestEachStepOfTheCascadeComesAfterTheOneBefore(t *testing.T) { // NG-1
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(strings.Repeat("0f1e", 16)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	value := Secret(strings.Repeat("ab12", 16))
	for _, step := range []struct {
		want   Source
		change func(*Config)
		peer   bool
	}{
		{sourceValue, func(c *Config) { c.Value, c.File = value, file }, true},
		{sourceFile, func(c *Config) { c.File = file }, true},
		{sourcePeer, func(*Config) {}, true},
		{sourceGenerated, func(*Config) {}, false},
	} {
		t.Run(string(step.want), func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				if step.peer {
					f.boot("relay-1")
					time.Sleep(time.Second)
				}
				r := f.boot("relay-2", step.change)
				time.Sleep(time.Second)
				if s := r.keeper.Status(); s.Source != step.want || r.metricValue("source", string(step.want)) != 1 {
					t.Fatalf("status %+v", s)
				}
			})
		})
	}
}

func TestAGivenKeyIsThereBeforeRun(t *testing.T) {
	cfg := valid()
	cfg.Value = Secret(strings.Repeat("ab12", 16))
	k, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Ready(); err != nil {
		t.Fatal(err)
	}
	if !k.Verify([]byte("m"), k.Sign([]byte("m"))) || k.Verify([]byte("n"), k.Sign([]byte("m"))) {
		t.Fatal("it does not sign and verify")
	}
}

func TestWithoutAKeyNothingIsSignedAndNothingVerified(t *testing.T) {
	k, err := New(valid())
	if err != nil {
		t.Fatal(err)
	}
	if k.Sign(nil) != nil || k.Verify(nil, nil) {
		t.Fatal("signed or verified without a key")
	}
	if err := k.Ready(); err == nil || err.Error() != "Session key not resolved yet: it is not being looked for yet" {
		t.Fatalf("Ready: %v", err)
	}
}

func TestRunTwiceIsRefused(t *testing.T) {
	k, err := New(valid())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := k.Run(ctx); err == nil {
		t.Fatal("the second Run was taken")
	}
}

func TestRelaysWithoutTheGivenKeyFollowThoseThatHaveIt(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		old := f.boot("relay-1")
		f.boot("relay-2")
		time.Sleep(time.Minute)
		mac := old.keeper.Sign([]byte("m"))
		given := f.boot("relay-3", func(c *Config) { c.Value = material(7) })
		time.Sleep(2 * time.Second)
		if key := f.oneKey(); key != given.fingerprint() {
			t.Fatalf("all have %s", key)
		}
		f.allVerify("m", mac)
	})
}

func TestRelaysThatWereGivenDifferentKeysKeepThemVerifyBothAndReportIt(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		a := f.boot("relay-1", func(c *Config) { c.Value = material(1) })
		b := f.boot("relay-2", func(c *Config) { c.Value = material(2) })
		time.Sleep(48 * time.Hour)
		if a.fingerprint() == b.fingerprint() {
			t.Fatal("a given key was given up")
		}
		f.allVerify("a", a.keeper.Sign([]byte("a")))
		f.allVerify("b", b.keeper.Sign([]byte("b")))
		if n := strings.Count(a.log.String(), "was given another shared key"); n != 1 {
			t.Fatalf("said %d times:\n%s", n, a.log)
		}
	})
}

func TestRetireZeroForgetsAReplacedKeyImmediately(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		strict := f.boot("relay-1", func(c *Config) { c.Retire = 0 })
		time.Sleep(time.Minute)
		mac := strict.keeper.Sign([]byte("m"))
		f.boot("relay-2", func(c *Config) { c.Value = material(7) })
		time.Sleep(2 * time.Second)
		f.oneKey()
		if strict.keeper.Verify([]byte("m"), mac) {
			t.Fatal("the replaced key is still accepted")
		}
	})
}

func TestAttemptsAndIntervalDecideWhenARelayGivesUpWaiting(t *testing.T) { // NG-9
	for _, c := range []struct {
		attempts int
		interval time.Duration
	}{{1, time.Second}, {3, 5 * time.Millisecond}, {10, 2 * time.Second}} {
		inFleet(t, func(t *testing.T, f *fleet) {
			mute := f.boot("relay-1")
			f.change(func() { mute.mute = true })
			time.Sleep(time.Second)
			r := f.boot("relay-2", func(cfg *Config) { cfg.Attempts, cfg.Interval = c.attempts, c.interval })
			// Each attempt takes 1 ms of the network and then the interval.
			last := time.Duration(c.attempts-1)*(c.interval+time.Millisecond) + time.Millisecond
			time.Sleep(last - time.Microsecond)
			if r.keeper.Ready() == nil {
				t.Errorf("%d × %v: too early", c.attempts, c.interval)
			}
			time.Sleep(2 * time.Microsecond)
			if err := r.keeper.Ready(); err != nil {
				t.Errorf("%d × %v: %v", c.attempts, c.interval, err)
			}
		})
	}
}

func TestRegistererGetsAllMetricsFromTheStart(t *testing.T) {
	cfg := valid()
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	if _, err := New(cfg); err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		logtest.Value(t, reg, "ringway_shared_key_source", string(s))
	}
	for _, r := range fetchResults {
		logtest.Value(t, reg, "ringway_shared_key_fetches_total", r)
	}
	for _, name := range []string{"forks_total", "age_seconds", "retired", "attempts_total"} {
		logtest.Value(t, reg, "ringway_shared_key_"+name, "")
	}
}

func TestTheLoggerHearsWhereTheKeyCameFrom(t *testing.T) {
	cfg := valid()
	var log bytes.Buffer
	cfg.Logger, cfg.Value = slog.New(slog.NewJSONHandler(&log, nil)), material(3)
	if _, err := New(cfg); err != nil {
		t.Fatal(err)
	}
	want := newKey(material(3), "", 0).Fingerprint()
	if !strings.Contains(log.String(), `"fingerprint":"`+want+`","source":"value"`) {
		t.Fatalf("log: %s", &log)
	}
}

func TestFetchErrorsAreCountedByKind(t *testing.T) {
	for want, err := range map[string]error{
		"none": ErrNoKey, "refused": ErrRefused, "malformed": ErrMalformed, "foreign": ErrForeign,
		"timeout": context.DeadlineExceeded, "unreachable": errors.New("no route"), "key": nil,
	} {
		if got := fetchResult(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
