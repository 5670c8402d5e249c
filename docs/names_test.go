package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/command/relaycmd"
	"github.com/ringway/ringway/internal/command/workercmd"
)

// names are what pages may mention of flags and metrics.
type names struct {
	flags   map[string]bool
	metrics map[string]bool
}

// foreignFlags are flags of other programs that pages mention: of the simulations, of
// go test, of containers and of sha256sum.
var foreignFlags = []string{"ignore-missing", "set", "service-times", "arrivals", "cpu-per-request", "use", "quick", "plots", "update", "check", "profile"}

var (
	mentionedFlag   = regexp.MustCompile(`(?:^|[\s(,/|])--([a-z][a-z0-9-]*)`)
	mentionedMetric = regexp.MustCompile(`\bringway_(?:[a-z][a-z0-9_]*)?(?:\*|…|\{)?`)
	histogramPart   = regexp.MustCompile(`_(bucket|sum|count)$`)
)

func realNames(t *testing.T) names {
	t.Helper()
	n := names{flags: map[string]bool{}, metrics: map[string]bool{}}
	for root := range slices.Values([]string{"relay", "worker"}) {
		top := relaycmd.Command()
		if root == "worker" {
			top = workercmd.Command()
		}
		for c := range command.Tree(top) {
			add := func(f *pflag.Flag) { n.flags[f.Name] = true }
			c.Flags().VisitAll(add)
			c.InheritedFlags().VisitAll(add)
			c.PersistentFlags().VisitAll(add)
		}
	}
	n.flags["help"] = true
	for _, name := range foreignFlags {
		if n.flags[name] {
			t.Errorf("--%s is a flag of ours: take it out of foreignFlags", name)
		}
		n.flags[name] = true
	}
	for path, pattern := range map[string]string{
		"docs/reference/metrics.md": "(?m)^\\| `([a-z0-9_]+)`",    // which is fresh, by a test of its own
		"adapters/xds/metrics.go":   `"(ringway_xds_[a-z0-9_]+)"`, // of another module
	} {
		text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(path)))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Fatalf("%s has no metric", path)
		}
		for _, m := range found {
			n.metrics[m[1]] = true
		}
	}
	if len(n.flags) < 50 || len(n.metrics) < 50 {
		t.Fatalf("%d flags, %d metrics", len(n.flags), len(n.metrics))
	}
	return n
}

// unknown are the flags and metrics that p mentions as code and that do not exist.
func (n names) unknown(p *page) (problems []string) {
	flags := func(where text) {
		for _, m := range mentionedFlag.FindAllStringSubmatch(where.text, -1) {
			if !n.flags[m[1]] {
				problems = append(problems, fmt.Sprintf("%s:%d: there is no flag --%s", p.path, where.line, m[1]))
			}
		}
	}
	metrics := func(where text) {
		for _, name := range mentionedMetric.FindAllString(where.text, -1) {
			if strings.HasSuffix(name, "*") || strings.HasSuffix(name, "…") || strings.HasSuffix(name, "_") {
				continue // all with that beginning
			}
			name = strings.TrimSuffix(name, "{")
			if !n.metrics[name] && !n.metrics[histogramPart.ReplaceAllString(name, "")] {
				problems = append(problems, fmt.Sprintf("%s:%d: there is no metric %s", p.path, where.line, name))
			}
		}
	}
	for _, span := range p.spans {
		flags(span)
		metrics(span)
	}
	for _, f := range p.fences {
		for i, line := range f.lines {
			metrics(text{f.line + i, line})
		}
	}
	return problems
}

// history describes the past, when other names were there.
var history = []string{"CHANGELOG.md"}

func TestEveryFlagAndMetricExists(t *testing.T) {
	n := realNames(t)
	for name, p := range pages(t) {
		if slices.Contains(history, name) {
			continue
		}
		for _, problem := range n.unknown(p) {
			t.Error(problem)
		}
	}
}

func TestUnknownNamesAreFound(t *testing.T) {
	n := names{flags: map[string]bool{"join": true}, metrics: map[string]bool{"ringway_x_total": true, "ringway_x_seconds": true}}
	for source, want := range map[string]string{
		"`--join`, `--join 10.0.0.1:7400`, `ringway_x_total{a=\"b\"}`": "",
		"`ringway_x_seconds_bucket`, `ringway_x_…`, `ringway_`":        "",
		"--gone without code, a-b--c":                                  "",
		"`--gone`":                                                     "x.md:1: there is no flag --gone",
		"`relay --join A --gone=1`":                                    "x.md:1: there is no flag --gone",
		"`sum(ringway_y_total)`":                                       "x.md:1: there is no metric ringway_y_total",
		"```promql\nrate(ringway_y_total[5m])\n```":                    "x.md:2: there is no metric ringway_y_total",
	} {
		if got := strings.Join(n.unknown(parse("x.md", source)), "; "); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
}
