package command_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/command/relaycmd"
	"github.com/ringway/ringway/internal/command/workercmd"
)

// binaries are the command lines of both binaries, made anew by each call.
var binaries = map[string]func() *cobra.Command{"relay": relaycmd.Command, "worker": workercmd.Command}

// printed runs a command and returns what it writes to standard output.
func printed(t *testing.T, root *cobra.Command, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String()
}

func TestTheHelpOfAFirstFleetHasAtMostFifteenLinesAndHelpAllHasEverySetting(t *testing.T) {
	row := regexp.MustCompile(`^ +(?:-\w, )?--([a-z-]+)`)
	names := func(text string) (names []string) {
		for line := range strings.Lines(text) {
			if match := row.FindStringSubmatch(line); match != nil {
				names = append(names, match[1])
			}
		}
		return names
	}
	for name, root := range binaries {
		var settings []string
		for line := range strings.Lines(printed(t, root(), "config", "init", "--all")) {
			if key, _, found := strings.Cut(strings.TrimPrefix(line, "#"), ":"); found && !strings.Contains(key, " ") && key != "routes" && key != "blocks" && key != "rate-limits" {
				settings = append(settings, key)
			}
		}
		for _, verb := range [][]string{{}, {"run"}} {
			_, short, found := strings.Cut(printed(t, root(), append(verb, "--help")...), "Settings of a first fleet (--help-all lists all ")
			if !found {
				t.Fatalf("%s %v has no settings", name, verb)
			}
			shown := names(short)
			if len(shown) == 0 || len(shown) > 15 || !slices.Contains(shown, "join") {
				t.Errorf("%s %v --help shows %d settings: %v", name, verb, len(shown), shown)
			}
			for line := range strings.Lines(short) {
				if line = strings.TrimSpace(line); utf8.RuneCountInString(line)+len("      ") > 100 {
					t.Errorf("%s: longer than a line of 100 columns: %s", name, line)
				}
			}
			if n := strings.Count(strings.TrimSpace(short), "\n"); n != len(shown) {
				t.Errorf("%s: %d settings are on %d lines", name, len(shown), n)
			}
			all := names(printed(t, root(), append(verb, "--help-all")...))
			for _, setting := range slices.Concat(settings, shown) {
				if !slices.Contains(all, setting) {
					t.Errorf("%s %v --help-all does not show --%s", name, verb, setting)
				}
			}
			if len(settings) < 40 || len(all) < len(settings) {
				t.Errorf("%s: %d settings, --help-all shows %d", name, len(settings), len(all))
			}
		}
	}
}

func TestANewConfigurationFileIsValidAndEachOfItsDefaultsIs(t *testing.T) {
	for name, root := range binaries {
		for _, args := range [][]string{nil, {"--all"}} {
			file := filepath.Join(t.TempDir(), name+".yaml")
			text := printed(t, root(), append([]string{"config", "init"}, args...)...)
			if first, _, _ := strings.Cut(text, "\n"); !regexp.MustCompile(`^# yaml-language-server: \$schema=https://\S+/docs/reference/` + name + `\.schema\.json$`).MatchString(first) {
				t.Errorf("%s: the first line is %q", name, first)
			}
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "# ") && len(args) > 0 && len(line) > 101 && strings.Count(line, " ") > 1 && !strings.HasPrefix(line, "# yaml") {
					t.Errorf("%s: a long line: %s", name, line)
				}
			}
			defaults := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(text, "$1")
			if strings.Count(defaults, "\n#") >= strings.Count(text, "\n#") {
				t.Errorf("%s: no default is shown", name)
			}
			for _, content := range []string{text, defaults} {
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				if out := printed(t, root(), "config", "validate", file); !strings.Contains(out, "the settings are valid") {
					t.Errorf("%s %v: %s", name, args, out)
				}
			}
		}
	}
}

func TestConfigInitOverwritesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.yaml")
	printed(t, relaycmd.Command(), "config", "init", "--out", file)
	before, err := os.ReadFile(file)
	if err != nil || len(before) == 0 {
		t.Fatalf("%d bytes, %v", len(before), err)
	}
	err = quietly(t, relaycmd.Command(), []string{"config", "init", "--all", "--out", file})
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "nothing is overwritten") {
		t.Errorf("the error is %v", err)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed: %v", err)
	}
}

func TestAFlagOfConfigInitIsInTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.yaml")
	args := []string{"config", "init", "--out", file, "--cluster", "shop", "--join=10.0.0.1:7400,10.0.0.2:7400", "--expose-route-headers", "--zone-slack=1.5", "--environment", "true", "--drain-timeout=60s"}
	printed(t, relaycmd.Command(), args...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cluster: shop", "join: ['10.0.0.1:7400', '10.0.0.2:7400']", "expose-route-headers: true", "zone-slack: 1.5", `environment: "true"`, "drain-timeout: 1m", "#insecure: false"} {
		want = "\n" + want + "\n"
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	shown := printed(t, relaycmd.Command(), "config", "show", "--config", file, "--origin")
	if got := regexp.MustCompile(`(?m)^cluster +shop +.*relay\.yaml:\d+$`).FindString(shown); got == "" {
		t.Error(shown)
	}
	if out := printed(t, workercmd.Command(), "config", "init", "--service", "a=127.0.0.1:1"); !strings.Contains(out, "\nservice: ['a=127.0.0.1:1']\n") || strings.Contains(out, "hello=127") {
		t.Error(out)
	}
	offers := filepath.Join(t.TempDir(), "offers.yaml")
	if err := os.WriteFile(offers, []byte("services: [{name: a, address: 127.0.0.1:1}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := printed(t, workercmd.Command(), "config", "init", "--services-file", offers); !strings.Contains(out, "\n#service:") || strings.Contains(out, "\nservice:") {
		t.Error(out)
	}
	for flag, want := range map[string]string{
		"--cluster=Bad Name!": `--cluster "Bad Name!"`, "--zone-slack=[": "not a number", "--config=" + file: "--config",
		"--shared-key=" + strings.Repeat("ab", 32): "a secret on the command line", "--session-drain-timeout=1s": "at least --drain-timeout, 30s",
	} {
		if err := quietly(t, relaycmd.Command(), []string{"config", "init", flag}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

func TestACommandThatUsesNoSettingRefusesItsFlag(t *testing.T) {
	for name, root := range binaries {
		for _, verb := range [][]string{{"config", "schema"}, {"config", "show", "--running"}} {
			if err := quietly(t, root(), append(verb, "--cluster=shop")); err == nil || !strings.Contains(err.Error(), "--cluster") {
				t.Errorf("%s %v: %v", name, verb, err)
			}
		}
		if out := printed(t, root(), "config", "schema", "--help"); strings.Contains(out, "is a flag here") {
			t.Errorf("%s", out)
		}
		if out := printed(t, root(), "config", "init", "--help"); !strings.Contains(out, "is a flag here") {
			t.Errorf("%s", out)
		}
	}
}

func TestAReleaseNamesTheSchemaOfItsTag(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3": "/ringway/v1.2.3/docs", "devel": "/ringway/main/docs", "v1.2.3-0.20260102030405-abcdef": "/ringway/main/docs"} {
		if got := command.SchemaURL(version, "relay"); !strings.Contains(got, want) {
			t.Errorf("%s: %s", version, got)
		}
	}
}
