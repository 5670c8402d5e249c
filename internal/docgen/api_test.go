package docgen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const apiRoot = "../.."

// maxAPINames is what one person can learn and keep compatible. Remove a name before raising it.
const maxAPINames = 450

func TestTheAPIIsReviewedAndSmall(t *testing.T) {
	list, err := API(apiRoot)
	if err != nil {
		t.Fatal(err)
	}
	if n := APINames(list); n > maxAPINames {
		t.Errorf("the public packages export %d names, at most %d are allowed: unexport those without a user outside their package", n, maxAPINames)
	} else {
		t.Logf("%d names", n)
	}
}

func TestNoReleasedAPIChangesWithoutANoticeInTheChangelog(t *testing.T) {
	release, missing, err := Unannounced(apiRoot)
	if err != nil {
		t.Fatal(err)
	}
	if release == "" {
		t.Error("no release has a list of its API: copy next.txt to a file with the version as its name")
	}
	for _, line := range missing {
		t.Errorf("of %s, removed or changed: %s\nRestore it, or write a line with `%s` under Unreleased in CHANGELOG.md that says what users do instead", release, line, nameOf(line))
	}
}

func TestARemovedNameIsFoundUnlessTheChangelogHasIt(t *testing.T) {
	repository := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(repository, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range PublicPackages {
		write(dir+"/a.go", "package a\n\n// V is one.\nvar V int\n")
	}
	source := `package a
type hidden int
func (hidden) No() {}
type T[K comparable] struct { A, b int; F func(x int) (y error); hidden }
type I interface { M(a, b int) error; m() }
func (t *T[K]) Do(ctx, other int) (n int, err error) { return }
func Make[K comparable](k K) *T[K] { return nil }
const ( C1 hidden = iota; C2 )
`
	write("ring/b.go", source)
	before, err := API(repository)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"pkg ring, type T[K comparable] struct\n", "pkg ring, type T[K comparable] struct, A int\n", "pkg ring, type T[K comparable] struct, F func(int) error\n",
		"pkg ring, type I interface{M(int, int) error; m()}\n", "pkg ring, method (*T[K]) Do(int, int) (int, error)\n", "pkg ring, const C2 hidden\n", "pkg ring, func Make",
	} {
		if !strings.Contains(string(before), want) {
			t.Errorf("no %q in\n%s", want, before)
		}
	}
	if strings.Contains(string(before), "No()") || strings.Contains(string(before), " b int") {
		t.Errorf("names that are not exported:\n%s", before)
	}
	write("docs/reference/api/0.1.0.txt", string(before))
	write("docs/reference/api/0.0.9.txt", "pkg ring, func Older()\n")
	for _, c := range []struct{ old, new, changelog, want string }{
		{"", "", "", ""},
		{"ctx, other int", "context, another int", "", ""},
		{"A, b int", "A, B int", "", ""}, // an addition
		{"M(a, b int)", "M(a int)", "", "ring.I"},
		{"M(a, b int)", "M(a int)", "- `ring.I` has another method.", ""},
		{"F func(x int)", "F func(x string)", "", "ring.T.F"},
		{"Do(", "Done(", "", "ring.T.Do"},
		{"Do(", "Done(", "- `ring.T.Done` is new.", "ring.T.Do"},
		{"C2", "c2", "- `ring.C2` is gone.", ""},
	} {
		write("ring/b.go", strings.Replace(source, c.old, c.new, 1))
		write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n"+c.changelog+"\n\n## [0.1.0] - 2026-11-23\n\n- `ring.I` is here.\n")
		release, missing, err := Unannounced(repository)
		if err != nil || release != "0.1.0" {
			t.Fatal(release, err)
		}
		got := ""
		for _, line := range missing {
			got += nameOf(line)
		}
		if got != c.want {
			t.Errorf("%q to %q with %q: %q, want %q", c.old, c.new, c.changelog, missing, c.want)
		}
	}
}
