package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testsByName = regexp.MustCompile(`(?m)^\s*(?:cd (\S+) && )?.*go test .*-run '?([A-Za-z|]+)'? (.*)`)
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
		for _, dir := range strings.Fields(line[3]) {
			files, err := filepath.Glob(filepath.Join(repository, line[1], dir, "*_test.go"))
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
		for _, pattern := range strings.Split(line[2], "|") {
			if !strings.Contains(strings.Join(names, " "), pattern) {
				t.Errorf("%s: no test of %s has %s in its name", line[0], line[3], pattern)
			}
		}
	}
}

// These are the two commands for a machine on which nothing of Ringway has run.
func TestTheReadmeBeginsWithTheDemoAndTheTests(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```sh\n")
	block, _, _ := strings.Cut(rest, "```")
	var commands []string
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, "#")
		commands = append(commands, strings.TrimSpace(command))
	}
	if got := strings.Join(commands, "; "); got != "make demo; make test" {
		t.Errorf("the first commands of the README are %q, want make demo and make test", got)
	}
	for _, target := range []string{"demo", "test"} {
		if !regexp.MustCompile(`(?m)^` + target + `:`).Match(makefile) {
			t.Errorf("the Makefile has no target %s", target)
		}
	}
}

// .ci/run tests these packages under the race detector and, by the variable changed, without it,
// and others only once. A package that is in neither list would lose these tests.
func TestWhatTheRaceDetectorChangesIsAlsoRunWithoutIt(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var without []string
	for _, m := range regexp.MustCompile(`(?m)^(?:unraced|changed) := (.+)$`).FindAllStringSubmatch(string(makefile), -1) {
		without = append(without, strings.ReplaceAll(m[1], "$$", "$"))
	}
	if len(without) != 2 {
		t.Fatalf("the Makefile has %d of the variables unraced and changed", len(without))
	}
	isRunWithout := regexp.MustCompile(strings.Join(without, "|"))
	changes := regexp.MustCompile(`(?m)^//go:build .*!race\b|\bclusterscript\.Raced\b|"github.com/ringway/ringway/internal/proxy/socket"`)
	found := map[string]bool{}
	err = filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); entry.IsDir() && err == nil && path != repository && entry.Name() != "sims" {
			return filepath.SkipDir // another module
		}
		if filepath.Ext(path) != ".go" || path == filepath.Join(repository, "docs", "makefile_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if changes.Match(source) {
			dir, _ := filepath.Rel(repository, filepath.Dir(path))
			found["github.com/ringway/ringway/"+filepath.ToSlash(dir)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range found {
		if !isRunWithout.MatchString(name) {
			t.Errorf("the race detector changes what %s tests, and .ci/run does not test it without: add it to changed in the Makefile", name)
		}
	}
	if len(found) < 15 {
		t.Errorf("found only %d packages: %v", len(found), found)
	}
}

// make test-adapters runs these by their name, because all others run under the race detector.
func TestTestsThatTheRaceDetectorExcludesAreRunWithoutIt(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, "adapters", "*", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(source), "//go:build !race\n") {
			continue
		}
		for _, name := range testNames.FindAllStringSubmatch(string(source), -1) {
			if found++; !strings.Contains(name[1], "Allocates") || filepath.Base(filepath.Dir(file)) != "grpc" {
				t.Errorf("%s: make test-adapters does not run %s without the race detector", file, name[1])
			}
		}
	}
	if found == 0 {
		t.Error("no such test was found")
	}
}
