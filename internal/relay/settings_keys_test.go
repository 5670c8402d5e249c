package relay

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/settings"
)

func TestKeySourcesAreSetByFlagEnvironmentAndFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(file, []byte("key-source:\n  - billing=header:x-user;caller\n  - cookie:sid\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		environ, args  []string
		billing, other string
	}{
		"nothing":     {billing: "header:Ringway-Key", other: "header:Ringway-Key"},
		"flag":        {args: []string{"--key-source", "billing=query:user"}, billing: "query:user", other: "header:Ringway-Key"},
		"flags":       {args: []string{"--key-source", " billing = caller ", "--key-source", "cookie:sid;header:ringway-key"}, billing: "caller", other: "cookie:sid;header:Ringway-Key"},
		"environment": {environ: []string{"RINGWAY_KEY_SOURCE=billing=cookie:sid;caller, caller"}, billing: "cookie:sid;caller", other: "caller"},
		"file":        {args: []string{"--config", file}, billing: "header:X-User;caller", other: "cookie:sid"},
	} {
		s := DefaultSettings()
		set := settings.New("relay", "RINGWAY")
		s.Declare(set)
		flags := pflag.NewFlagSet("relay", pflag.ContinueOnError)
		set.BindFlags(flags)
		if err := flags.Parse(append([]string{"--cluster", "test", "--environment", "ci", "--id", "r1"}, c.args...)); err != nil {
			t.Fatal(err)
		}
		if err := set.Load(settings.Sources{Environ: c.environ}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		if got, other := cfg.Requests.Keys.Of("billing").String(), cfg.Requests.Keys.Of("other").String(); got != c.billing || other != c.other {
			t.Errorf("%s: billing has %q, others %q; want %q and %q", name, got, other, c.billing, c.other)
		}
	}
}

func TestEverythingWrongWithKeySourcesIsReportedInOneError(t *testing.T) {
	_, err := load(t, "--key-source", "path:/a", "--key-source", "no service=caller", "--key-source", "a=header:", "--key-source", "a=caller", "--key-source", "a=query:b",
		"--key-source", "caller", "--key-source", "cookie:sid", "--key-source", "b=header:Ringway-Caller", "--max-attempts", "9")
	var problems settings.Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	want := []string{
		`--max-attempts "9"`,
		`--key-source "path:/a" (flag --key-source): no source of keys; allowed: header:NAME, cookie:NAME, query:NAME, caller`,
		`--key-source "no service=caller" (flag --key-source): not the name of a service before the '='; allowed: SERVICE=SOURCE`,
		`--key-source "a=header:" (flag --key-source): "" is no name of a header`,
		`--key-source "a=query:b" (flag --key-source): a second source for a; allowed: one value`,
		`--key-source "cookie:sid" (flag --key-source): a second source for all services; allowed: one value`,
		`--key-source "b=header:Ringway-Caller" (flag --key-source): Ringway-Caller is the relays' own header`,
	}
	for _, line := range want {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("missing: %s", line)
		}
	}
	if len(problems) != len(want) {
		t.Errorf("%d problems, want %d:\n%v", len(problems), len(want), err)
	}
}
