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
