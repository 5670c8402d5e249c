package docs_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

const (
	operations = "docs/operations/"
	startHere  = operations + "start-here.md"
)

// installed is what a host has that has the package: its programs, its units, and the paths that
// the files of the package name.
type installed struct {
	tools    *tools
	paths    []string // below /etc/ringway and /var/lib/ringway
	units    []string
	settings map[string]bool
}

var hostPath = regexp.MustCompile(`/(?:etc|var/lib)/ringway(?:/[a-z.-]+)?`)

func realInstalled(t *testing.T) *installed {
	t.Helper()
	host := &installed{tools: realTools(t), settings: map[string]bool{}}
	for _, pattern := range []string{"deploy/packages/*", "deploy/systemd/*"} {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			host.paths = append(host.paths, hostPath.FindAllString(string(source), -1)...)
			if name := filepath.Base(file); strings.HasPrefix(name, "ringway-") {
				host.units = append(host.units, name, strings.TrimSuffix(name, ".service"))
			}
		}
	}
	for _, root := range host.tools.roots {
		run, _, err := root().Find([]string{"run"})
		if err != nil {
			t.Fatal(err)
		}
		run.Flags().VisitAll(func(f *pflag.Flag) { host.settings[f.Name] = true })
	}
	return host
}

var shortName = regexp.MustCompile(`^(?:relay|worker) [a-z]`)

// wrong are the commands of a runbook that would fail on such a host. That each verb and flag
// exists is tested for all pages: TestEveryCommandExists.
func (h *installed) wrong(p *page) (problems []string) {
	lines := slices.Clone(p.spans)
	for _, f := range p.fences {
		if slices.Contains(shellLanguages, f.language) {
			for i, line := range f.lines {
				lines = append(lines, text{f.line + i, line})
			}
		}
	}
	for _, line := range lines {
		tell := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: %s", p.path, line.line, line.text, fmt.Sprintf(format, args...)))
		}
		for _, path := range hostPath.FindAllString(line.text, -1) {
			if !slices.Contains(h.paths, path) {
				tell("the package has no %s", path)
			}
		}
		for _, words := range split(line.text) {
			if shortName.MatchString(strings.Join(words, " ")) {
				tell("the package installs ringway-%s", words[0])
			}
			own := slices.IndexFunc(words, func(word string) bool { return word == "ringway-relay" || word == "ringway-worker" })
			switch words[0] {
			case "systemctl", "journalctl":
				for _, word := range words {
					if strings.HasPrefix(word, "ringway") && !slices.Contains(h.units, word) {
						tell("the package has no unit %s", word)
					}
				}
				continue
			}
			if own < 0 || own+2 >= len(words) || words[own+1] != "config" {
				continue
			}
			if words[own+2] == "validate" && !slices.ContainsFunc(words[:own], func(word string) bool { return strings.HasPrefix(word, "EnvironmentFile=") }) {
				tell("without the file of the unit's environment it does not see the settings")
			}
			if words[own+2] == "show" {
				if !slices.Contains(words, "--running") {
					tell("the settings are in the environment of the unit: add --running")
				}
				for _, word := range words[own+3:] {
					if !strings.HasPrefix(word, "-") && !h.settings[word] {
						tell("there is no setting %s", word)
					}
				}
			}
		}
	}
	return problems
}

func TestRunbooksUseWhatThePackageInstalls(t *testing.T) {
	host, commands := realInstalled(t), 0
	for name, p := range pages(t) {
		if !strings.HasPrefix(name, operations) {
			continue
		}
		for _, f := range p.fences {
			if slices.Contains(shellLanguages, f.language) {
				commands += len(f.lines)
			}
		}
		for _, problem := range host.wrong(p) {
			t.Error(problem)
		}
	}
	if commands < 45 {
		t.Errorf("only %d commands of runbooks were looked at", commands)
	}
}

func TestCommandsThatFailOnAnInstalledPackageAreFound(t *testing.T) {
	host := realInstalled(t)
	for source, want := range map[string]string{
		"`ringway-relay config show id --running`":                                                        "",
		"`ringway-relay tls info /etc/ringway/relay.crt`":                                                 "",
		"`systemctl status ringway-worker`, `journalctl -u ringway-relay`":                                "",
		"```sh\nsystemd-run -p EnvironmentFile=/etc/ringway/relay.env ringway-relay config validate\n```": "",
		"`relay check`": "the package installs ringway-relay",
		"```sh\nringway-relay check\nworker drain\n```": "docs/x.md:3: worker drain: the package installs ringway-worker",
		"`ringway-relay config show --origin`":          "add --running",
		"`ringway-relay config show colour --running`":  "there is no setting colour",
		"`ringway-relay config validate`":               "does not see the settings",
		"`ringway-relay tls info /etc/ringway/tls.crt`": "the package has no /etc/ringway/tls.crt",
		"`systemctl restart ringway-gate`":              "no unit ringway-gate",
	} {
		got := strings.Join(host.wrong(parse("docs/x.md", source)), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", source, got, want)
		}
	}
	if err := host.tools.judge(strings.Fields("systemd-run -p A=b ringway-relay confog validate"), true); err == nil {
		t.Error("a wrong verb behind systemd-run is not found")
	}
}

// rowsOf are the rows of all tables of a page, by their first cell.
func rowsOf(t *testing.T, name string) map[string]string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(source)) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| ") && len(cells) > 1 {
			rows[strings.TrimPrefix(cells[0], "| ")] = line
		}
	}
	return rows
}

// What an operator sees first, and the page that has to be found.
var symptoms = map[string]string{
	"503 `no_endpoint`":                                   "no-endpoint.md",
	"503 `not_ready`":                                     "relay-not-ready.md",
	"503 `overloaded`":                                    "overloaded.md",
	"503 `relay_exhausted`":                               "memory-strained.md",
	"502 `upstream_failed`":                               "errors.md",
	"504 `timeout`":                                       "timeouts.md",
	"no connection, or it is refused":                     "no-relay-up.md",
	"`cannot join the cluster yet`":                       "alone.md",
	"`lost contact with a large part of the cluster`":     "view-degraded.md",
	"`certificates not replaced`":                         "certificates.md",
	"`member refused`, `connection refused: only`":        "refusals.md",
	"a member is missing, or comes and goes":              "member-down.md",
	"`endpoint left out`, `refused services of a worker`": "endpoints-left-out.md",
}

func TestEachSymptomLeadsToItsRunbook(t *testing.T) {
	rows := rowsOf(t, startHere)
	for symptom, want := range symptoms {
		if !strings.Contains(rows[symptom], "("+want+")") {
			t.Errorf("the row of %q does not lead to %s: %q", symptom, want, rows[symptom])
		}
	}
}

func TestEveryErrorCodeAndEveryAlertIsReachedFromStartHere(t *testing.T) {
	all, rows := pages(t), rowsOf(t, startHere)
	for code, status := range relayCodes(t) {
		row := rows[fmt.Sprintf("%d `%s`", status, code)]
		if !strings.Contains(row, ".md") {
			t.Errorf("start-here.md has no row for %d `%s` with a link", status, code)
		}
	}
	// The index of all alerts does not count: it has no symptoms.
	reached := map[string]bool{startHere: true}
	for range 2 {
		for name := range maps.Clone(reached) {
			for _, link := range all[name].links {
				file, _, _ := strings.Cut(link.text, "#")
				if to := path.Join(path.Dir(name), file); strings.HasPrefix(to, operations) && path.Base(to) != "README.md" && all[to] != nil {
					reached[to] = true
				}
			}
		}
	}
	source, err := os.ReadFile(filepath.Join(repository, "deploy", "prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(source, &file); err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			alerts++
			_, name, _ := strings.Cut(rule.Annotations["runbook_url"], "/docs/operations/")
			if name, _, _ = strings.Cut(name, "#"); !reached[operations+name] {
				t.Errorf("start-here.md does not lead to %s, the page of %s", name, rule.Alert)
			}
		}
	}
	for name := range all {
		if strings.HasPrefix(name, operations) && path.Base(name) != "README.md" && !reached[name] {
			t.Errorf("start-here.md does not lead to %s", name)
		}
	}
	if alerts < 40 {
		t.Errorf("only %d alerts were read", alerts)
	}
}

// A reworded message would leave its row without a meaning.
func TestEveryLineOfTheLogInStartHereIsInTheSource(t *testing.T) {
	all := pages(t)[startHere]
	source, err := os.ReadFile(filepath.Join(repository, startHere))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(source), "\n")
	from := slices.Index(lines, "## The log")
	to := slices.Index(lines, "## The fleet")
	var messages []string
	for _, span := range all.spans {
		if span.line > from && span.line < to && strings.HasPrefix(lines[span.line-1], "| `") {
			messages = append(messages, span.text)
		}
	}
	missing := map[string]bool{}
	for _, m := range messages {
		missing[`"`+m] = true
	}
	err = filepath.WalkDir(repository, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for m := range missing {
			if strings.Contains(string(text), m) {
				delete(missing, m)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(messages) < 12 || len(missing) > 0 {
		t.Errorf("of %d messages the source lacks %v", len(messages), missing)
	}
}
