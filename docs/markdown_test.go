package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// repository is where the root is, from this directory.
const repository = ".."

// page is one Markdown file, taken apart.
type page struct {
	path   string // in the repository, with slashes
	fences []fence
	spans  []text   // inline code
	links  []text   // targets of links and pictures
	titles []string // anchors of its headings
}

// text is something on a line.
type text struct {
	line int // from 1
	text string
}

// fence is a block between ``` lines.
type fence struct {
	line     int    // of its first line of text
	language string // "" where none is named
	lines    []string
}

var (
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	linkOf    = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	tagTarget = regexp.MustCompile(`(?:src|srcset|href)="([^"]+)"`)
	tagAnchor = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	heading   = regexp.MustCompile(`^#{1,6} +(.+?) *#*$`)
)

// parse takes text apart as GitHub does, as far as these tests need it.
func parse(path, source string) *page {
	p := &page{path: path}
	seen := map[string]int{}
	var open *fence
	var mark string
	for i, line := range strings.Split(source, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		if open != nil {
			if strings.HasPrefix(trimmed, mark) && strings.Trim(trimmed, "`~ ") == "" {
				p.fences = append(p.fences, *open)
				open = nil
				continue
			}
			open.lines = append(open.lines, line)
			continue
		}
		if strings.HasPrefix(trimmed, "```") {
			mark = trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
			open = &fence{line: i + 2, language: strings.TrimSpace(trimmed[len(mark):])}
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			slug := anchor(m[1])
			if n := seen[slug]; n > 0 {
				p.titles = append(p.titles, slug+"-"+strconv.Itoa(n))
			} else {
				p.titles = append(p.titles, slug)
			}
			seen[slug]++
		}
		for _, m := range tagAnchor.FindAllStringSubmatch(line, -1) {
			p.titles = append(p.titles, m[1])
		}
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			p.spans = append(p.spans, text{i + 1, strings.ReplaceAll(m[1], `\|`, "|")})
		}
		plain := codeSpan.ReplaceAllString(line, "`")
		for _, form := range []*regexp.Regexp{linkOf, tagTarget} {
			for _, m := range form.FindAllStringSubmatch(plain, -1) {
				p.links = append(p.links, text{i + 1, m[1]})
			}
		}
	}
	if open != nil {
		p.fences = append(p.fences, *open)
	}
	return p
}

// anchor is what GitHub makes of a heading.
func anchor(title string) string {
	title = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(title, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(strings.ReplaceAll(title, "`", "")) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

// pages are all Markdown files of the repository, by path.
func pages(t *testing.T) map[string]*page {
	t.Helper()
	found := map[string]*page{}
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != repository && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(repository, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		found[name] = parse(name, string(source))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 50 {
		t.Fatalf("only %d pages found: is %s the root?", len(found), repository)
	}
	return found
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	for title, want := range map[string]string{
		"A relay of your own":             "a-relay-of-your-own",
		"Degraded: who is cut off, or I?": "degraded-who-is-cut-off-or-i",
		"`relay run`, and TLS 1.3":        "relay-run-and-tls-13",
		"See [the plan](x.md) first":      "see-the-plan-first",
	} {
		if got := anchor(title); got != want {
			t.Errorf("%q: %q, want %q", title, got, want)
		}
	}
}
