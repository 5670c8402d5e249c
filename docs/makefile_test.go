package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testsByName = regexp.MustCompile(`go test .*-run '?([A-Za-z|]+)'? (.*)`)
	testNames   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// go test succeeds when no test matches, so a renamed test would fall out of CI unnoticed.
func TestEveryPatternOfTheMakefileMatchesATest(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	lines := testsByName.FindAllStringSubmatch(string(makefile), -1)
	if len(lines) < 5 {
		t.Fatalf("found %d commands with -run", len(lines))
	}
	for _, line := range lines {
		var names []string
		for _, dir := range strings.Fields(line[2]) {
			files, err := filepath.Glob(filepath.Join(repository, dir, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				source, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range testNames.FindAllStringSubmatch(string(source), -1) {
					names = append(names, name[1])
				}
			}
		}
		for _, pattern := range strings.Split(line[1], "|") {
			if !strings.Contains(strings.Join(names, " "), pattern) {
				t.Errorf("%s: no test of %s has %s in its name", line[0], line[2], pattern)
			}
		}
	}
}
