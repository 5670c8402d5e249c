package wirefixture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// failures are what check reports.
type failures []string

func (*failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// greeting is a format with one field, which a later release follows with others.
func greeting(text string) Format {
	return Format{
		Name:   "greeting",
		Encode: func() ([]byte, error) { return []byte{1, text[0]}, nil },
		Decode: func(raw []byte) (any, error) {
			if len(raw) < 2 || raw[0] != 1 {
				return nil, errors.New("not a greeting")
			}
			return map[string]string{"text": string(raw[1:2])}, nil
		},
		Later:   map[string]func([]byte) []byte{"a field": func(raw []byte) []byte { return append(raw, 7) }},
		Refused: map[string]func([]byte) []byte{"another format": func(raw []byte) []byte { raw[0] = 2; return raw }},
	}
}

func TestTheFixturesOfAReleaseAreWrittenOnceAndFailOnEveryChange(t *testing.T) {
	dir := t.TempDir()
	run := func(write string, f Format) string {
		var found failures
		check(&found, set{dir, write}, []Format{f})
		return strings.Join(found, "\n")
	}
	blind, strict, open, renamed := greeting("a"), greeting("a"), greeting("a"), greeting("a")
	blind.Decode = func([]byte) (any, error) { return map[string]string{"text": "b"}, nil }
	strict.Later["a field"] = func(raw []byte) []byte { return raw[:1] }
	open.Refused["another format"] = func(raw []byte) []byte { return raw }
	renamed.Name = "salute"
	more := greeting("a")
	more.Decode = func([]byte) (any, error) { return map[string]any{"text": "a", "later": 0}, nil }
	more.Refused = nil
	for _, step := range []struct {
		write  string
		format Format
		want   string
	}{
		{"", greeting("a"), "no fixtures in"},
		{"next", greeting("a"), "is no release"},
		{"0.1.0", greeting("a"), ""},
		{"", greeting("a"), ""},
		{"0.1.0", greeting("b"), "not replaced"},
		{"", greeting("b"), "this build writes"},
		{"", blind, "another value"},
		{"", strict, "not read any more"},
		{"", open, "is accepted"},
		{"", renamed, "no test reads it"},
		{"", more, ""}, // a new field without a value
		{"0.2.0", greeting("b"), ""},
		{"", greeting("b"), ""}, // reads both, and writes the newest
		{"", greeting("a"), "0.2.0 greeting: this build writes"},
	} {
		if got := run(step.write, step.format); (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("%+v: %q", step, got)
		}
	}
}

// changedSince lists the fixtures of a released version that differ from those of its tag.
func changedSince(root, tag string) (string, error) {
	git := exec.Command("git", "diff", "--name-only", tag, "--", ":(glob)**/testdata/wire/"+strings.TrimPrefix(tag, "v")+".json")
	git.Dir = root
	out, err := git.CombinedOutput()
	return string(out), err
}

func TestTheFixturesAreThoseOfTheTagsOfTheirReleases(t *testing.T) {
	root := filepath.Join("..", "..")
	list := exec.Command("git", "tag", "--list", "v[0-9]*.[0-9]*.[0-9]*", "--merged", "HEAD")
	list.Dir = root
	tags, err := list.Output()
	if err != nil || len(tags) == 0 {
		t.Logf("no tag of a release is here (%v): nothing to compare with", err)
	}
	for tag := range strings.FieldsSeq(string(tags)) {
		if changed, err := changedSince(root, tag); err != nil || changed != "" {
			t.Errorf("the fixtures of %s differ from those of its tag: restore them with `git checkout %s -- FILE`: %s%v", tag, tag, changed, err)
		}
	}
}

func TestAChangedFixtureOfATagIsFound(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Logf("git is not installed: %v", err)
		return
	}
	root := t.TempDir()
	file := filepath.Join(root, "p", "testdata", "wire", "0.1.0.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{}")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@example.test", "commit", "-q", "-m", "release"}, {"tag", "v0.1.0"}} {
		git := exec.Command("git", args...)
		git.Dir = root
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	if changed, err := changedSince(root, "v0.1.0"); err != nil || changed != "" {
		t.Errorf("unchanged: %q, %v", changed, err)
	}
	write(`{"a":1}`)
	if changed, err := changedSince(root, "v0.1.0"); err != nil || !strings.Contains(changed, "0.1.0.json") {
		t.Errorf("changed: %q, %v", changed, err)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "fixtures")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	var found failures
	check(&found, set{dir, "0.1.0"}, []Format{greeting("a")}) // a release writes its fixtures
	check(&found, set{dir, ""}, []Format{greeting("b")})      // a later build writes something else
	fmt.Println(strings.Contains(found[0], "this build writes"))
	// Output: true
}
