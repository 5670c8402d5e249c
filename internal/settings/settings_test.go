package settings_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/settings"
)

type level string

type route struct {
	Host       string `yaml:"host"`
	PathPrefix string `yaml:"path_prefix"`
	Service    string `yaml:"service"`
}

// config has one field of every kind.
type config struct {
	Cluster string
	Peers   int
	Share   float64
	Secure  bool
	Wait    time.Duration
	Level   level
	Join    []string
	Addr    string
	Key     string
	Routes  []route
}

func defaults() *config {
	return &config{Peers: 3, Share: 0.2, Wait: 30 * time.Second, Level: "info", Join: []string{"seed"}, Addr: ":7400"}
}

func declare(cfg *config) *settings.Set {
	s := settings.New("relay", "RINGWAY")
	settings.String(s, &cfg.Cluster, settings.Spec{Name: "cluster", Group: "Membership", Usage: "cluster to join", Required: true},
		settings.Matching(regexp.MustCompile(`[a-z0-9-]+`), "a-z, 0-9 and -"))
	settings.Int(s, &cfg.Peers, settings.Spec{Name: "min-peers-per-worker", Group: "Affinity", Usage: "relays per worker"}, settings.AtLeast(3))
	settings.Float(s, &cfg.Share, settings.Spec{Name: "retry-share", Usage: "retries per request"}, settings.Between(0.0, 1.0))
	settings.Bool(s, &cfg.Secure, settings.Spec{Name: "insecure", Usage: "allow clear text"})
	settings.Duration(s, &cfg.Wait, settings.Spec{Name: "drain-delay", Usage: "time to drain"}, settings.Above(time.Duration(0)))
	settings.Enum(s, &cfg.Level, settings.Spec{Name: "log-level", Usage: "least level | logged"}, "debug", "info", "warn")
	settings.Strings(s, &cfg.Join, settings.Spec{Name: "join", Group: "Membership", Usage: "seeds"},
		settings.Matching(regexp.MustCompile(`[^ ]+`), "host or host:port"))
	settings.Address(s, &cfg.Addr, settings.Spec{Name: "gossip-addr", Group: "Membership", Usage: "gossip listener"})
	settings.String(s, &cfg.Key, settings.Spec{Name: "gossip-key", Group: "Membership", Usage: "gossip key", Secret: true},
		settings.Matching(regexp.MustCompile(`.{8,}`), "8 characters or more"))
	settings.Section(s, &cfg.Routes, settings.Spec{Name: "routes", Group: "Ingress", Usage: "route table"}, func(routes []route) error {
		var errs []error
		for i, r := range routes {
			if r.Service == "" {
				errs = append(errs, fmt.Errorf("route %d has no service", i+1))
			}
		}
		return errors.Join(errs...)
	})
	return s
}

// load loads a fresh configuration from the three sources; a file of "" is none.
func load(t *testing.T, args, environ []string, file string) (*config, *settings.Set, error) {
	t.Helper()
	cfg := defaults()
	s := declare(cfg)
	fs := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	s.BindFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	from := settings.Sources{Environ: environ}
	if file != "" {
		from.File = "relay.yaml"
		from.ReadFile = func(string) ([]byte, error) { return []byte(file), nil }
	}
	return cfg, s, s.Load(from)
}

// problems returns the lines below the heading of a load error.
func problems(t *testing.T, err error) []string {
	t.Helper()
	var ps settings.Problems
	if !errors.As(err, &ps) {
		t.Fatalf("want Problems, got %T: %v", err, err)
	}
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return lines
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	for _, kind := range []struct{ name, flag, env, file, initial string }{
		{"cluster", "from-flag", "from-env", "from-file", ""},
		{"min-peers-per-worker", "6", "5", "4", "3"},
		{"retry-share", "0.5", "0.4", "0.3", "0.2"},
		{"insecure", "true", "false", "true", "false"},
		{"drain-delay", "3s", "2s", "1s", "30s"},
		{"log-level", "warn", "debug", "warn", "info"},
		{"join", "a,b", "c,d", "e,f", "seed"},
		{"gossip-addr", "a:1", "b:2", "c:3", ":7400"},
		{"gossip-key", "from-flag", "from-environment", "from-file", ""},
	} {
		t.Run(kind.name, func(t *testing.T) {
			flag := []string{"--" + kind.name + "=" + kind.flag}
			environ := []string{"RINGWAY_" + strings.ToUpper(strings.ReplaceAll(kind.name, "-", "_")) + "=" + kind.env}
			file := kind.name + ": " + kind.file + "\n"
			empty := "insecure:\n"
			if kind.name != "cluster" { // required
				file, empty = "cluster: a\n"+file, "cluster: a\n"
			}
			for _, step := range []struct {
				args, environ []string
				file, want    string
				source        settings.Source
			}{
				{flag, environ, file, kind.flag, settings.Flag},
				{nil, environ, file, kind.env, settings.Environment},
				{nil, nil, file, kind.file, settings.File},
				{nil, nil, empty, kind.initial, settings.Default},
			} {
				cfg, s, err := load(t, step.args, step.environ, step.file)
				if kind.name == "gossip-key" && step.source == settings.Flag {
					if err == nil {
						t.Error("a secret is taken from the command line")
					}
					continue
				}
				if kind.name == "cluster" && step.source == settings.Default {
					if err == nil {
						t.Error("a required setting has a default")
					}
					continue
				}
				if err != nil {
					t.Fatalf("%v: %v", step.source, err)
				}
				if got := text(cfg, kind.name); got != step.want {
					t.Errorf("%v: got %q, want %q", step.source, got, step.want)
				}
				if origin, ok := s.Origin(kind.name); !ok || origin.Source != step.source {
					t.Errorf("origin is %v, want %v", origin, step.source)
				}
			}
		})
	}
}

// text returns the named field in the form in which a configuration has it.
func text(cfg *config, name string) string {
	return map[string]string{
		"cluster":              cfg.Cluster,
		"min-peers-per-worker": strconv.Itoa(cfg.Peers),
		"retry-share":          fmt.Sprint(cfg.Share),
		"insecure":             strconv.FormatBool(cfg.Secure),
		"drain-delay":          cfg.Wait.String(),
		"log-level":            string(cfg.Level),
		"join":                 strings.Join(cfg.Join, ","),
		"gossip-addr":          cfg.Addr,
		"gossip-key":           cfg.Key,
	}[name]
}

func TestAllProblemsAreReportedInOneSortedError(t *testing.T) {
	cfg, _, err := load(t,
		[]string{"--min-peers-per-worker=2", "--gossip-addr=10.0.0.1"},
		[]string{"RINGWAY_LOG_LEVEL=loud", "RINGWAY_GOSSIP_KEY=short"},
		"cluster: Prod!\ndrain-delay: 30\nretry-share: [1]\nmin-peers: 4\njoin:\n- {a: b}\nroutes:\n- host: a\n")
	got := problems(t, err)
	want := []string{
		`--cluster "Prod!" (file relay.yaml:1): not allowed; allowed: a-z, 0-9 and -`,
		`--drain-delay "30" (file relay.yaml:2): the unit is missing; allowed: a duration such as 500ms, 30s or 5m, more than 0s`,
		`--gossip-addr "10.0.0.1" (flag --gossip-addr): the port is missing; allowed: host:port such as 10.0.0.1:7400, [::1]:7400 or :7400`,
		`--gossip-key "(redacted)" (environment RINGWAY_GOSSIP_KEY): not allowed; allowed: 8 characters or more`,
		`--join "" (file relay.yaml:5): line 6: an item of the list must be a single value; allowed: a list of host or host:port`,
		`--log-level "loud" (environment RINGWAY_LOG_LEVEL): not allowed; allowed: debug, info, warn`,
		`file key "min-peers" (file relay.yaml:4): no such setting; did you mean --min-peers-per-worker?`,
		`--min-peers-per-worker "2" (flag --min-peers-per-worker): not allowed; allowed: a whole number, 3 or more`,
		`--retry-share "" (file relay.yaml:3): want a single value, found a list; allowed: a number, 0 to 1`,
		`file key "routes" (file relay.yaml:7): route 1 has no service`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if head, _, _ := strings.Cut(err.Error(), "\n"); head != "10 settings are invalid:" {
		t.Errorf("heading is %q", head)
	}
	if cfg.Peers != 3 || cfg.Cluster != "" {
		t.Errorf("a failed load changed the configuration: %+v", cfg)
	}
}

func TestARequiredSettingMustBeGivenAndNotEmpty(t *testing.T) {
	want := `--cluster: required; give --cluster, RINGWAY_CLUSTER or the file key "cluster"; allowed: a-z, 0-9 and -`
	for name, args := range map[string][]string{"missing": nil, "empty": {"--cluster="}} {
		_, _, err := load(t, args, []string{"RINGWAY_CLUSTER="}, "cluster:\n")
		if got := problems(t, err); len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestAFileThatDoesNotParseNamesTheLine(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"syntax":         {"cluster: a\njoin: [x\nlog-level: info\n", `--config "relay.yaml" (file relay.yaml:`},
		"not a mapping":  {"\n- a\n", `--config "relay.yaml" (file relay.yaml:2): want lines of the form`},
		"two documents":  {"cluster: a\n---\ncluster: b\n", `(file relay.yaml:2): the file holds more than one YAML document`},
		"doubled key":    {"cluster: a\ninsecure: true\ncluster: b\n", `file key "cluster" (file relay.yaml:3): given twice, first in line 1`},
		"unknown key":    {"cluster: a\n\nlog_level: info\n", `file key "log_level" (file relay.yaml:3): no such setting; did you mean --log-level?`},
		"far-off key":    {"cluster: a\nzzzzzzzzzzzzzzz: 1\n", `file key "zzzzzzzzzzzzzzz" (file relay.yaml:2): no such setting`},
		"config in file": {"cluster: a\nconfig: b\n", `file key "config" (file relay.yaml:2): can only be a flag or an environment variable`},
		"odd key":        {"cluster: a\n? [a]\n: b\n", `(file relay.yaml:2): a key must be a name, found a list`},
		"tag":            {"cluster: !!binary aGk=\n", `(file relay.yaml:1): YAML tags are not supported here`},
		"too large":      {"# " + strings.Repeat("x", 1<<20), `the file is larger than 1048576 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := load(t, nil, []string{"RINGWAY_JOIN=x"}, test.file)
			got := strings.Join(problems(t, err), "\n")
			if !strings.Contains(got, test.want) {
				t.Errorf("got:\n%s\nwant a line with:\n%s", got, test.want)
			}
		})
	}
}

func TestSectionsAreDecodedStrictlyWithLines(t *testing.T) {
	cfg, s, err := load(t, nil, nil, "cluster: a\nroutes:\n  - {host: h, path_prefix: /p, service: s}\n  - service: t\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := []route{{"h", "/p", "s"}, {"", "", "t"}}; !slices.Equal(cfg.Routes, want) {
		t.Errorf("got %v, want %v", cfg.Routes, want)
	}
	if origin, _ := s.Origin("routes"); origin.String() != "file relay.yaml:2" {
		t.Errorf("origin is %v", origin)
	}

	_, _, err = load(t, nil, nil, "cluster: a\nroutes:\n  - host: h\n    pathprefix: /p\n  - [1]\n")
	got := problems(t, err)
	if len(got) != 2 ||
		got[0] != `file key "routes" (file relay.yaml:4): no such field: pathprefix; did you mean path_prefix?` ||
		got[1] != `file key "routes" (file relay.yaml:5): want keys with values, found a list` {
		t.Errorf("got %q", got)
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const secret = "0123456789abcdef"
	cfg, s, err := load(t, []string{"--cluster=a"}, []string{"RINGWAY_GOSSIP_KEY=" + secret}, "")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Key != secret {
		t.Errorf("the secret was not read: %q", cfg.Key)
	}
	var reference, help bytes.Buffer
	if err := errors.Join(settings.Reference(&reference, s), s.WriteHelp(&help, 0)); err != nil {
		t.Fatal(err)
	}
	values, err := json.Marshal(s.Values())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"values": string(values), "reference": reference.String(), "help": help.String(), "warnings": strings.Join(s.Warnings(), "\n"),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows the secret:\n%s", name, text)
		}
	}
	if !strings.Contains(string(values), `"value":"(redacted)","origin":"environment RINGWAY_GOSSIP_KEY","secret":true`) {
		t.Errorf("values do not say that the secret is set: %s", values)
	}

	for name, run := range map[string]func() error{
		"broken rule": func() error {
			_, _, err := load(t, []string{"--cluster=a", "--gossip-key=tooshrt"}, nil, "")
			return err
		},
		"broken file": func() error { _, _, err := load(t, nil, nil, "cluster: a\ngossip-key: *tooshrt\n"); return err },
		"failed check": func() error {
			cfg := defaults()
			s := declare(cfg)
			s.Check(func() []settings.Problem {
				return []settings.Problem{{Setting: "gossip-key", Value: cfg.Key, Reason: "in use elsewhere"}}
			})
			return s.Load(settings.Sources{Environ: []string{"RINGWAY_CLUSTER=a", "RINGWAY_GOSSIP_KEY=tooshrt-tooshrt"}})
		},
	} {
		if err := run(); err == nil || strings.Contains(err.Error(), "tooshrt") {
			t.Errorf("%s: the error is missing or shows the secret: %v", name, err)
		}
	}
}

func TestASecretOnTheCommandLineIsRefusedWithTheRemedy(t *testing.T) {
	const secret = "0123456789abcdef"
	_, _, err := load(t, []string{"--cluster=a", "--gossip-key=" + secret}, nil, "")
	for _, want := range []string{"--gossip-key", "visible to every user of this machine", "RINGWAY_GOSSIP_KEY", `the file key "gossip-key"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("the error shows the secret: %v", err)
	}
}

func TestListsAreSplitAtCommasAndRepeated(t *testing.T) {
	for name, test := range map[string]struct {
		args, environ []string
		file          string
		want          []string
	}{
		"repeated flag":  {args: []string{"--join=a", "--join=b,c"}, want: []string{"a", "b", "c"}},
		"environment":    {environ: []string{"RINGWAY_JOIN= 1, 2,"}, want: []string{"1", "2"}},
		"stray commas":   {environ: []string{"RINGWAY_JOIN=,1,,2"}, want: []string{"1", "2"}},
		"blank":          {environ: []string{"RINGWAY_JOIN=  "}, want: []string{}},
		"empty variable": {environ: []string{"RINGWAY_JOIN="}, want: []string{"seed"}},
		"scalar in file": {file: "join: a,b\n", want: []string{"a", "b"}},
		"list in file":   {file: "join: ['a,b', 7]\n", want: []string{"a,b", "7"}},
		"alias in file":  {file: "cluster: &c a\njoin: [*c]\n", want: []string{"a"}},
		"empty in file":  {file: "join: []\n", want: []string{}},
		"null in file":   {file: "join:\n", want: []string{"seed"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _, err := load(t, append(test.args, "--cluster=a"), test.environ, test.file)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(cfg.Join, test.want) {
				t.Errorf("got %q, want %q", cfg.Join, test.want)
			}
		})
	}
}

func TestEveryKindGivesTheReasonOfARefusal(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--min-peers-per-worker=", "not a whole number"},
		{"--min-peers-per-worker=4.0", "not a whole number"},
		{"--min-peers-per-worker=99999999999999999999", "too large"},
		{"--retry-share=NaN", "not a number"},
		{"--retry-share=Inf", "not a number"},
		{"--retry-share=1.1", "allowed: a number, 0 to 1"},
		{"--insecure=maybe", "neither true nor false"},
		{"--drain-delay=5", "the unit is missing"},
		{"--drain-delay=soon", "not a duration"},
		{"--drain-delay=0s", "more than 0s"},
		{"--log-level=", "allowed: debug, info, warn"},
		{"--gossip-addr=::1", "an IPv6 address needs brackets and a port"},
		{"--gossip-addr=[::1]", "the port is missing"},
		{"--gossip-addr=a:65536", "the port is not a number from 0 to 65535"},
		{"--gossip-addr=a:http", "the port is not a number from 0 to 65535"},
		{"--gossip-addr=http://a:1", "not host:port"},
		{"--gossip-addr=a b:1", "the host is neither a name nor an IP address"},
	} {
		_, _, err := load(t, []string{"--cluster=a", test.args}, nil, "")
		if err == nil {
			t.Errorf("%s: accepted", test.args)
		} else if got := problems(t, err); len(got) != 1 || !strings.Contains(got[0], test.want) {
			t.Errorf("%s: got %q, want %q", test.args, got, test.want)
		}
	}
	for _, fine := range []string{"--insecure", "--insecure=ON", "--gossip-addr=", "--gossip-addr=[::1]:0", "--drain-delay=1h", "--retry-share=1"} {
		if _, _, err := load(t, []string{"--cluster=a", fine}, nil, ""); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
}

// A manifest writes [$(POD_IP)]:7400, for hosts with addresses of either family.
func TestTheBracketsOfIPv6MayBeAroundIPv4(t *testing.T) {
	for text, want := range map[string]string{
		"[10.0.0.1]:7400": "10.0.0.1:7400", "10.0.0.1:7400": "10.0.0.1:7400", "[fd00::5]:7400": "[fd00::5]:7400", ":7400": ":7400", "localhost:1": "localhost:1", "": "",
	} {
		if got, err := settings.ParseAddress(text); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestAnUnknownVariableIsAWarningWithASuggestion(t *testing.T) {
	cfg := defaults()
	s := declare(cfg)
	err := s.Load(settings.Sources{Environ: []string{
		"RINGWAY_CLUSTER=a",
		"RINGWAY_LOGLEVEL=debug",       // mistyped
		"RINGWAY_QQQQQQQQQQQ=1",        // like nothing
		"RINGWAY_PORT_7400_TCP_ADDR=x", // set by Kubernetes
		"RINGWAY_ADMIN_SERVICE_HOST=x",
		"OTHER_LOGLEVEL=debug",
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"environment variable RINGWAY_LOGLEVEL is not a setting and is ignored; did you mean RINGWAY_LOG_LEVEL?",
		"environment variable RINGWAY_QQQQQQQQQQQ is not a setting and is ignored",
	}
	if got := s.Warnings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestChecksAcrossSettingsSeeAllValuesAndRepeatNothing(t *testing.T) {
	run := func(environ ...string) error {
		cfg := defaults()
		s := declare(cfg)
		s.Check(func() []settings.Problem {
			if cfg.Peers > len(cfg.Join) {
				return []settings.Problem{{Setting: "min-peers-per-worker", Related: []string{"join"}, Reason: "more than seeds", Allowed: "as many as seeds"}}
			}
			return nil
		})
		return s.Load(settings.Sources{Environ: append(environ, "RINGWAY_CLUSTER=a")})
	}
	want := `--min-peers-per-worker "4" (environment RINGWAY_MIN_PEERS_PER_WORKER): more than seeds; allowed: as many as seeds`
	if got := problems(t, run("RINGWAY_MIN_PEERS_PER_WORKER=4")); len(got) != 1 || got[0] != want {
		t.Errorf("got %q", got)
	}
	if err := run("RINGWAY_JOIN=a,b,c"); err != nil {
		t.Errorf("the check failed on good values: %v", err)
	}
	if got := problems(t, run("RINGWAY_MIN_PEERS_PER_WORKER=x")); len(got) != 1 || !strings.Contains(got[0], "not a whole number") {
		t.Errorf("a setting that is invalid by itself is reported again: %q", got)
	}
}

func TestTheFileIsNamedByFlagOrEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(path, []byte("cluster: from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func() (*config, *settings.Set, error){
		"flag":        func() (*config, *settings.Set, error) { return load(t, []string{"--config", path}, nil, "") },
		"environment": func() (*config, *settings.Set, error) { return load(t, nil, []string{"RINGWAY_CONFIG=" + path}, "") },
	} {
		cfg, _, err := run()
		if err != nil || cfg.Cluster != "from-file" {
			t.Errorf("%s: cluster %q, error %v", name, cfg.Cluster, err)
		}
	}
	_, _, err := load(t, []string{"--cluster=a", "--config", path + ".missing"}, nil, "")
	want := fmt.Sprintf("--config %q (flag --config): cannot be read: no such file or directory; allowed: a readable YAML file", path+".missing")
	if got := problems(t, err); len(got) != 1 || got[0] != want {
		t.Errorf("got %q", got)
	}
}

func TestLoadingAgainStartsFromTheDefaults(t *testing.T) {
	cfg := defaults()
	s := declare(cfg)
	file := "cluster: a\nmin-peers-per-worker: 5\njoin: [x]\nroutes: [{service: s}]\n"
	read := func(string) ([]byte, error) { return []byte(file), nil }
	from := settings.Sources{File: "relay.yaml", ReadFile: read}
	if err := s.Load(from); err != nil {
		t.Fatal(err)
	}
	file = "cluster: a\nmin-peers-per-worker: 1\n"
	if err := s.Load(from); err == nil {
		t.Fatal("an invalid file was accepted")
	}
	if origin, _ := s.Origin("join"); cfg.Peers != 5 || len(cfg.Routes) != 1 || origin.Source != settings.File {
		t.Errorf("a failed reload changed the configuration: %+v, join from %v", cfg, origin)
	}
	file = "cluster: b\n"
	if err := s.Load(from); err != nil {
		t.Fatal(err)
	}
	if cfg.Cluster != "b" || cfg.Peers != 3 || !slices.Equal(cfg.Join, []string{"seed"}) || cfg.Routes != nil {
		t.Errorf("values of the first load survive: %+v", cfg)
	}
}

func TestMistakesInDeclarationsAreReportedByLoad(t *testing.T) {
	var a, b, c string
	s := settings.New("relay", "RINGWAY")
	settings.String(s, &a, settings.Spec{Name: "same"})
	settings.String(s, &b, settings.Spec{Name: "same"})
	settings.String(s, &c, settings.Spec{Name: "Not_Kebab"})
	err := s.Load(settings.Sources{})
	for _, want := range []string{`"same" is declared twice`, `"Not_Kebab": the name must be kebab-case`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestADefaultThatBreaksItsOwnRuleIsReported(t *testing.T) {
	n := 2
	s := settings.New("relay", "RINGWAY")
	settings.Int(s, &n, settings.Spec{Name: "n"}, settings.AtLeast(3))
	if got := problems(t, s.Load(settings.Sources{})); len(got) != 1 || !strings.HasPrefix(got[0], `--n "2" (default): not allowed`) {
		t.Errorf("got %q", got)
	}
}

func TestTheNearestSettingIsSuggested(t *testing.T) {
	s := declare(defaults())
	for mistyped, want := range map[string]string{
		"loglevel":                "log-level",
		"LogLevel":                "log-level",
		"log-lvel":                "log-level",
		"clutser":                 "cluster",
		"min-peers":               "min-peers-per-worker",
		"RINGWAY_GOSSIP_ADDRESS":  "gossip-addr",
		"":                        "",
		"xyzzy":                   "",
		strings.Repeat("x", 1000): "",
	} {
		if got := s.Suggest(mistyped); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", mistyped, got, want)
		}
	}
}

func TestTheReferenceListsEverySettingUnderItsGroup(t *testing.T) {
	var b bytes.Buffer
	if err := settings.Reference(&b, declare(defaults()), settings.New("worker", "RINGWAY")); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"## relay\n\n### Membership\n\n| Flag | Environment | File key | Type | Default | Allowed | Description |\n|---|---|---|---|---|---|---|\n",
		"| `--cluster` | `RINGWAY_CLUSTER` | `cluster` | string | required | a-z, 0-9 and - | cluster to join |\n",
		"| `--join` | `RINGWAY_JOIN` | `join` | strings | `seed` | a list of host or host:port | seeds (repeatable) |\n",
		"| `--log-level` | `RINGWAY_LOG_LEVEL` | `log-level` | string | `info` | debug, info, warn | least level \\| logged |\n",
		"| – | – | `routes` | section | – | – | route table |\n",
		"| `--config` | `RINGWAY_CONFIG` | – | string | – | – | YAML file with settings; its keys are the flag names |\n",
		"\n## worker\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("missing:\n%s\nin:\n%s", line, b.String())
		}
	}
}

func TestHelpGroupsTheFlags(t *testing.T) {
	var b bytes.Buffer
	if err := declare(defaults()).WriteHelp(&b, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Membership:\n", "\nAffinity:\n", "--gossip-addr HOST:PORT", "(default :7400)", "--min-peers-per-worker int   relays per worker (3 or more) (default 3)",
		"cluster to join (required; a-z, 0-9 and -)", "--insecure               allow clear text\n", "\nConfiguration:\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("missing %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "routes") {
		t.Errorf("a section is shown as a flag:\n%s", b.String())
	}
}
