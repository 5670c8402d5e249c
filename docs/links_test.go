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
)

// deadLinks are the links of p that lead nowhere: to no file, or to no heading of one.
// exists answers for paths of the repository, anchors for those of a page.
func deadLinks(p *page, exists func(string) bool, anchors func(string) ([]string, bool)) (problems []string) {
	for _, link := range p.links {
		if strings.Contains(link.text, "://") || strings.HasPrefix(link.text, "mailto:") {
			continue
		}
		file, fragment, _ := strings.Cut(link.text, "#")
		target := p.path
		if file != "" {
			target = path.Join(path.Dir(p.path), file)
		}
		if strings.HasPrefix(target, "..") || path.IsAbs(file) || !exists(target) {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: there is no %s", p.path, link.line, link.text, target))
			continue
		}
		if known, ok := anchors(target); fragment != "" && ok && !slices.Contains(known, fragment) {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: %s has no heading of that name", p.path, link.line, link.text, target))
		}
	}
	return problems
}

func inTree(name string) bool {
	_, err := os.Stat(filepath.Join(repository, filepath.FromSlash(name)))
	return err == nil
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	all := pages(t)
	anchors := func(name string) ([]string, bool) {
		p, ok := all[name]
		if !ok {
			return nil, false
		}
		return p.titles, true
	}
	links := 0
	for _, p := range all {
		links += len(p.links)
		for _, problem := range deadLinks(p, inTree, anchors) {
			t.Error(problem)
		}
	}
	if links < 200 {
		t.Errorf("only %d links were looked at", links)
	}
}

// A reader who looks for a page does not click more often.
func TestEveryPageIsReachedFromTheIndexInTwoClicks(t *testing.T) {
	all := pages(t)
	clicks := map[string]int{"docs/README.md": 0}
	for click := 1; click <= 2; click++ {
		for name, before := range maps.Clone(clicks) {
			if before != click-1 {
				continue
			}
			var next []string
			if all[name] == nil { // of a folder GitHub shows a list of its files
				for other := range all {
					if path.Dir(other) == name {
						next = append(next, other)
					}
				}
			} else {
				for _, link := range all[name].links {
					if file, _, _ := strings.Cut(link.text, "#"); file != "" && !strings.Contains(file, "://") {
						next = append(next, path.Join(path.Dir(name), file))
					}
				}
			}
			for _, to := range next {
				if _, known := clicks[to]; !known {
					clicks[to] = click
				}
			}
		}
	}
	for name := range all {
		if _, ok := clicks[name]; !ok {
			t.Errorf("from docs/README.md %s is more than two clicks away", name)
		}
	}
}

func TestDeadLinksAreFound(t *testing.T) {
	exists := func(name string) bool { return name == "docs/a.md" || name == "docs/b.md" || name == "docs" }
	anchors := func(name string) ([]string, bool) { return []string{"known", "twice", "twice-1"}, name != "docs" }
	for source, want := range map[string]string{
		"[a](b.md)":                    "",
		"[a](b.md#known)":              "",
		"[a](#twice-1)":                "",
		"[a](../docs)":                 "",
		"[a](https://example.com/x)":   "",
		"`[a](nowhere.md)`":            "",
		"```\n[a](nowhere.md)\n```":    "",
		"[a](nowhere.md)":              "docs/a.md:1: nowhere.md: there is no docs/nowhere.md",
		"\n\nx [a](b.md), [c](c.md) y": "docs/a.md:3: c.md: there is no docs/c.md",
		"[a](b.md#unknown)":            "docs/a.md:1: b.md#unknown: docs/b.md has no heading of that name",
		"[a](#unknown)":                "docs/a.md:1: #unknown: docs/a.md has no heading of that name",
		"[a](../../secret.md)":         "docs/a.md:1: ../../secret.md: there is no ../secret.md",
		`<img src="gone.png" alt="">`:  "docs/a.md:1: gone.png: there is no docs/gone.png",
		"![a](gone.png \"title\")":     "docs/a.md:1: gone.png: there is no docs/gone.png",
	} {
		if got := strings.Join(deadLinks(parse("docs/a.md", source), exists, anchors), "; "); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
}

var (
	testName = regexp.MustCompile(`^Test[A-Z]\w*$`)
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
)

// A page that names a test promises that the test tries the statements of the page.
func TestEveryTestThatAPageNamesExists(t *testing.T) {
	tests := map[string]bool{}
	err := filepath.WalkDir(repository, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := os.ReadFile(name)
		for _, f := range testFunc.FindAllSubmatch(source, -1) {
			tests[string(f[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, p := range pages(t) {
		for _, span := range p.spans {
			if !testName.MatchString(span.text) {
				continue
			}
			if named++; !tests[span.text] {
				t.Errorf("%s:%d: there is no test %s", p.path, span.line, span.text)
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d names of tests were looked at", named)
	}
}

// What broke once cannot return without a test that fails.
func TestEveryRowOfWhatBrokeNamesATest(t *testing.T) {
	const name = "docs/what-broke.md"
	source, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	held := map[int]bool{}
	for _, span := range parse(name, string(source)).spans {
		held[span.line] = held[span.line] || testName.MatchString(span.text)
	}
	rows := 0
	for i, line := range strings.Split(string(source), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| what broke |") {
			continue
		}
		if rows++; !held[i+1] {
			t.Errorf("%s:%d: no test is named", name, i+1)
		}
	}
	if rows < 15 {
		t.Errorf("only %d rows were looked at", rows)
	}
}
