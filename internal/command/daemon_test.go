package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
)

// greeter is a daemon that prints a greeting and ends.
type greeter struct {
	name string
	out  io.Writer
}

func (g greeter) Run(context.Context) error {
	_, err := fmt.Fprintln(g.out, "hello,", g.name)
	return err
}

func daemonFor(out io.Writer) *command.Daemon {
	cfg := struct {
		Name  string
		Times int
	}{Times: 1}
	set := settings.New("greeter", "GREETER")
	settings.String(set, &cfg.Name, settings.Spec{Name: "name", Usage: "name to greet", Required: true})
	settings.Int(set, &cfg.Times, settings.Spec{Name: "times", Usage: "how often"}, settings.AtLeast(1))
	return &command.Daemon{
		Name: "greeter", Short: "greets", Settings: set,
		Log:    func() (string, string) { return "error", "json" },
		Banner: func() []slog.Attr { return nil },
		Start: func(*slog.Logger, *prometheus.Registry) (command.Runner, error) {
			return greeter{cfg.Name, out}, nil
		},
	}
}

// A daemon is its settings and what to start with them.
func Example() {
	root := daemonFor(os.Stdout).Command()
	root.SetArgs([]string{"run", "--name", "world"})
	root.SetErr(io.Discard)
	if err := root.Execute(); err != nil {
		fmt.Println(err)
	}
	root = daemonFor(os.Stdout).Command()
	root.SetArgs([]string{"config", "validate", "--times=0"})
	fmt.Println(root.Execute())
	// Output:
	// hello, world
	// 2 settings are invalid:
	//   --name: required; give --name, GREETER_NAME or the file key "name"
	//   --times "0" (flag --times): not allowed; allowed: a whole number, 1 or more
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := daemonFor(&out).Command()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestRunIsTheDefaultVerb(t *testing.T) {
	out, err := run(t, "--name=x")
	if err != nil || out != "hello, x\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestInvalidSettingsAreReportedTogetherAndNothingStarts(t *testing.T) {
	out, err := run(t, "run", "--times=none")
	var problems settings.Problems
	if !errors.As(err, &problems) || len(problems) != 2 || out != "" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestAnUnknownFlagPointsToTheHelp(t *testing.T) {
	_, err := run(t, "--nmae=x")
	if err == nil || !strings.Contains(err.Error(), "--nmae") || !strings.Contains(err.Error(), "greeter --help") {
		t.Errorf("%v", err)
	}
}

func TestConfigShowNamesTheSourceOfAValue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "greeter.yaml")
	if err := os.WriteFile(file, []byte("times: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "config", "show", "--origin", "--name=x", "--config="+file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`(?m)^name +x +flag --name$`, `(?m)^times +3 +file ` + file + `:1$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
}

func TestVersionNamesTheProgram(t *testing.T) {
	out, err := run(t, "version")
	if err != nil || !strings.HasPrefix(out, "greeter ") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestTheLogLevelIsThatOfTheSettingsAndFollowsAReload(t *testing.T) {
	cfg := struct{ Level string }{Level: "info"}
	set := settings.New("greeter", "GREETER")
	settings.Enum(set, &cfg.Level, settings.Spec{Name: "log-level"}, process.LogLevels()...)
	var enabled []bool
	d := &command.Daemon{
		Name: "greeter", Settings: set,
		Log:    func() (string, string) { return cfg.Level, "json" },
		Banner: func() []slog.Attr { return nil },
	}
	d.Start = func(logger *slog.Logger, _ *prometheus.Registry) (command.Runner, error) {
		look := func() { enabled = append(enabled, logger.Enabled(t.Context(), slog.LevelWarn)) }
		look()
		running := d.Running()
		t.Setenv("GREETER_LOG_LEVEL", "warn")
		if _, err := running.Read(); err != nil {
			return nil, err
		}
		look() // not yet
		running.Accept()
		look()
		return greeter{"", io.Discard}, nil
	}
	t.Setenv("GREETER_LOG_LEVEL", "error")
	root := d.Command()
	root.SetArgs(nil)
	root.SetErr(io.Discard)
	if err := root.Execute(); err != nil || !slices.Equal(enabled, []bool{false, false, true}) {
		t.Errorf("%v, %v", enabled, err)
	}
}

func TestAMistypedVerbOrFlagIsAnsweredWithTheRightOne(t *testing.T) {
	for args, want := range map[string]string{
		"versoin":                "did you mean version?",
		"--tiems=3":              "did you mean --times?",
		"run times=3":            "did you mean --times?",
		"run tiems":              "did you mean --times?",
		"version --times=3":      "--times: this command does not know it: it is a setting of greeter run",
		"version --outptu=json":  "did you mean --output?",
		"config validate --naem": "did you mean --name?",
		"quite-something-else":   `unknown command "quite-something-else" for "greeter"`,
	} {
		if _, err := run(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--help") {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
