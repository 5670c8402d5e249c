package relay

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/settings"
)

// chosenBy is what the relay is configured with: "service=strategy" and "strategy",
// sorted.
func chosenBy(t *testing.T, s Settings) []string {
	t.Helper()
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for service, spec := range cfg.Strategies.ByService {
		out = append(out, strings.TrimPrefix(service+"="+spec.String(), "="))
	}
	slices.Sort(out)
	return out
}

func TestStrategiesAreSetForOneServiceOrForAll(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   []string
	}{
		{nil, nil},
		{[]string{"stable"}, []string{"stable"}},
		{[]string{"billing=stable", "random", "echo=slots;vnodes=16;samples=3"}, []string{"billing=stable", "echo=slots;vnodes=16;samples=3", "random"}},
		{[]string{"billing=stable,random"}, []string{"billing=stable", "random"}},
		{[]string{"billing=p2c", "slots;vnodes=8"}, []string{"billing=p2c", "slots"}},
		// A comma separates values, and the nodes of one value.
		{[]string{"ordered;preferred=w2,w1"}, []string{"ordered;preferred=w2,w1"}},
		{[]string{"echo=manual;preferred=w2,w1,w3,random"}, []string{"echo=manual;preferred=w2,w1,w3", "random"}},
		{[]string{"echo=closest;preferred=w2,w1;expiry=1m,billing=stable"}, []string{"billing=stable", "echo=closest;preferred=w2,w1;expiry=1m0s"}},
		{[]string{" echo = stable "}, []string{"echo=stable"}},
	} {
		var args []string
		for _, v := range c.values {
			args = append(args, "--selection", v)
		}
		s, err := load(t, args...)
		if err != nil {
			t.Errorf("%q: %v", c.values, err)
			continue
		}
		if got := chosenBy(t, s); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.values, got, c.want)
		}
	}
}

func TestStrategiesAreSetByEnvironmentAndFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(file, []byte("selection:\n  - echo=ordered;preferred=w2,w1\n  - stable\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		environ, args []string
		want          []string
	}{
		"environment": {environ: []string{"RINGWAY_SELECTION=echo=manual;preferred=w2,w1, stable"}, want: []string{"echo=manual;preferred=w2,w1", "stable"}},
		"file":        {args: []string{"--config", file}, want: []string{"echo=ordered;preferred=w2,w1", "stable"}},
		"both":        {environ: []string{"RINGWAY_SELECTION=random"}, args: []string{"--config", file}, want: []string{"random"}},
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
		if got := chosenBy(t, s); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestEverythingWrongWithStrategiesIsReportedInOneError(t *testing.T) {
	_, err := load(t, "--selection", "nearest", "--selection", "echo=manual", "--selection", "billing=closest;expiry=0s;timeout=-1s",
		"--selection", "slots;vnodes=65;colour=red", "--selection", "stable", "--selection", "random", "--selection", "a=stable", "--selection", "a=random",
		"--selection", "no service=stable", "--selection", "b=", "--max-attempts", "9")
	var problems settings.Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	want := []string{
		`--max-attempts "9"`,
		`--selection "nearest" (flag --selection): invalid strategy: "nearest" (must be one of: p2c, stable, stable-sha256, manual, ordered, random, closest, farthest, slots)`,
		`--selection "echo=manual" (flag --selection): strategy is not configured: strategy manual requires at least one node in preferred`,
		`--selection "billing=closest;expiry=0s;timeout=-1s" (flag --selection): parameter expiry of strategy closest must be at least 1s, not 0s`,
		`--selection "billing=closest;expiry=0s;timeout=-1s" (flag --selection): parameter timeout of strategy closest must be greater than 0, not -1s`,
		`--selection "slots;vnodes=65;colour=red" (flag --selection): parameter vnodes of strategy slots must be in 1..64, not 65`,
		`--selection "slots;vnodes=65;colour=red" (flag --selection): strategy slots takes no parameter "colour" (must be one of: vnodes, samples, maxscan, jitter, fresh)`,
		`--selection "random" (flag --selection): a second strategy for all services; allowed: one`,
		`--selection "a=random" (flag --selection): a second strategy for a; allowed: one for each service`,
		`--selection "no service=stable" (flag --selection): not the name of a service before the '='; allowed: SERVICE=STRATEGY`,
		`--selection "b=" (flag --selection): no strategy; allowed: p2c, stable`,
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
