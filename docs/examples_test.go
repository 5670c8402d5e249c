package docs_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shownProgram marks a block that must be the same as a file.
var shownProgram = regexp.MustCompile("(?ms)^<!-- (docs/examples/[a-z/]+\\.go) -->\n```go\n(.*?)^```$")

func TestThePagesShowTheProgramsThatCompile(t *testing.T) {
	shown := map[string]bool{}
	for name := range pages(t) {
		source, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		if marked := strings.Count(string(source), "<!-- docs/examples/"); marked != len(shownProgram.FindAllString(string(source), -1)) {
			t.Errorf("%s: a block marked with docs/examples is no Go block", name)
		}
		for _, m := range shownProgram.FindAllStringSubmatch(string(source), -1) {
			code, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(m[1])))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			shown[m[1]] = true
			if m[2] != string(code) {
				t.Errorf("%s shows another program than %s: copy the file into the block", name, m[1])
			}
		}
	}
	programs, err := filepath.Glob("examples/*/main.go")
	if err != nil || len(programs) < 4 {
		t.Fatalf("%d programs: %v", len(programs), err)
	}
	for _, program := range programs {
		if file := path.Join("docs", filepath.ToSlash(program)); !shown[file] {
			t.Errorf("no page shows %s", file)
		}
	}
}

// Members of another cluster or environment are refused.
func TestWhatJoinsTheRelayOfTheQuickstartNamesItsFleet(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "how-to", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?:-cluster |-environment |Cluster: "|Environment: ")(\w+)`)
	program := regexp.MustCompile(`go run \./(docs/examples/\w+)`)
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "relay of the [quickstart]") {
			continue
		}
		texts := map[string]string{page: string(text)}
		for _, m := range program.FindAllStringSubmatch(string(text), -1) {
			source, err := os.ReadFile(filepath.Join(repository, m[1], "main.go"))
			if err != nil {
				t.Fatal(err)
			}
			texts[m[1]] = string(source)
		}
		for where, text := range texts {
			for _, m := range named.FindAllStringSubmatch(text, -1) {
				if checked++; m[1] != "local" {
					t.Errorf("%s: %q, and the relay of the quickstart is of local", where, m[0])
				}
			}
		}
	}
	if checked < 6 {
		t.Errorf("%d names were compared", checked)
	}
}
