package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFaultsAreThoseThatAPersonWouldMake(t *testing.T) {
	for body, want := range map[string][]string{
		"if a < b { c() }": {
			"`a < b` becomes `a <= b`", "`a < b` negated", "`a < b` never holds", "`c()` deleted",
		},
		"if a == b {}":                     {"`a == b` becomes `a != b`", "`a == b` never holds"},
		"x = !a && b":                      {"`!a && b` becomes `!a || b`", "`!a && b` becomes `!a`", "`!a && b` becomes `b`", "`!a` becomes `a`", "`x = !a && b` deleted"},
		"x := f()":                         nil,
		"x += 1":                           {"`x += 1` deleted"},
		"x++":                              {"`x++` deleted"},
		"return x - 1":                     {"`x - 1` becomes `x + 1`"},
		"for i := 0; i > n; i++ {}":        {"`i > n` becomes `i >= n`"},
		"for i := 0; ; i++ { c() }":        {"`c()` deleted"},
		`c.cfg.Logger.Info("x", "n", a+b)`: nil,
		`logger.Warn("x", "n", a+b)`:       nil,
		`http.Error(w, x, 500)`:            {"`http.Error(w, x, 500)` deleted"},
		"mu.Lock(); defer mu.Unlock()":     nil,
		`panic("x")`:                       nil,
		"defer c(a * b)":                   {"`a * b` becomes `a / b`"},
	} {
		found, err := faultsOf("p/f.go", "package p\n\nfunc f() {\n\t"+body+"\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range found {
			if f.line != 4 {
				t.Errorf("%s: line %d", f.name, f.line)
			}
			names = append(names, strings.TrimPrefix(f.name, "p/f.go f: "))
		}
		slices.Sort(names)
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("%s:\n%q, want\n%q", body, names, want)
		}
	}
}

// TestEachResultIsRecognised tries all faults of a package, whose tests hold one of its functions only.
func TestEachResultIsRecognised(t *testing.T) {
	repository := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"p/p.go": `package p

func Held(a, b int) bool { return a < b }

func Loose(a, b int) bool { return a < b }

func Unrun(a, b int) bool { return a < b }

func Hangs(n int) {
	for n > 0 {
		n = n - 1
	}
}

func Strings(a string) string { return a + "." }

func Repeated(a, b int) bool {
again:
	for {
		if a == 0 {
			break again
		}
		return a < b
	}
	return false
}
`,
		"p/p_test.go": `package p

import "testing"

func Test(t *testing.T) {
	if !Held(1, 2) || Held(1, 1) || !Loose(1, 2) || Strings("a") != "a." || !Repeated(1, 2) || Repeated(1, 1) || Repeated(0, 1) {
		t.Fail()
	}
	Hangs(1)
}
`,
	} {
		name = filepath.Join(repository, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	faults, err := faultsIn(repository, "p")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{repository: repository, scratch: t.TempDir(), directory: "p"}
	if err := b.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.limits[0] = 2 * time.Second // only a fault that hangs takes as long
	want := map[string]result{
		"Held: `a < b` becomes `a <= b`":           caught,
		"Loose: `a < b` becomes `a <= b`":          survived,
		"Unrun: `a < b` becomes `a <= b`":          unrun,
		"Hangs: `n > 0` becomes `n >= 0`":          survived,
		"Hangs: `n - 1` becomes `n + 1`":           hung,
		"Hangs: `n = n - 1` deleted":               hung,
		"Strings: `a + \".\"` becomes `a - \".\"`": uncompiled,
		"Repeated: `a < b` becomes `a <= b`":       caught,
		"Repeated: `a == 0` becomes `a != 0`":      caught,
		"Repeated: `a == 0` never holds":           caught,
	}
	if len(faults) != len(want) {
		t.Errorf("%d faults, want %d", len(faults), len(want))
	}
	for _, together := range []bool{false, true} {
		if together {
			if err := b.plant(t.Context(), faults); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range faults {
			name := strings.TrimPrefix(f.name, "p/p.go ")
			if r, err := b.try(t.Context(), f); err != nil || r != want[name] {
				t.Errorf("%s, with others %v: %v, want %v: %v", name, together, r, want[name], err)
			}
		}
	}
	// No test runs one, and three are in a function with a label.
	if n := len(b.planted.numbers); n != len(want)-4 || b.planted.skipped != noTest+"|"+noTest {
		t.Errorf("%d faults are planted together, without the tests %q", n, b.planted.skipped)
	}
	if source, err := os.ReadFile(filepath.Join(repository, "p", "p.go")); err != nil || strings.Contains(string(source), "<=") {
		t.Errorf("the checkout has changed: %v", err)
	}
}

// A reason for a fault that can no longer be planted describes code that is gone.
func TestEachSurvivorWithAReasonCanStillBePlanted(t *testing.T) {
	reasons, err := parseSurvivors(survivorsFile)
	if err != nil {
		t.Fatal(err)
	}
	possible := map[string]bool{}
	for _, directory := range decide {
		faults, err := faultsIn(filepath.Join("..", ".."), directory)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			possible[f.name] = true
		}
	}
	for name := range reasons {
		if !possible[name] {
			t.Errorf("survivors.txt: there is no such fault: %s", name)
		}
	}
}

func TestASurvivorNeedsAReason(t *testing.T) {
	for text, want := range map[string]string{
		"# c\na: `x` deleted\n\twhy\n\nb\n\twhy\n": "",
		"a\n":             "a has no reason",
		"a\nb\n\twhy\n":   "survivors.txt:2",
		"\twhy\n":         "survivors.txt:1",
		"a\n\twhy\n\twhy": "survivors.txt:3",
		"a\n\t\n":         "survivors.txt:2",
	} {
		_, err := parseSurvivors(text)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
