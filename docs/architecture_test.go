package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	architecture = "docs/architecture.md"
	modulePath   = "github.com/ringway/ringway/"
)

var (
	floor      = regexp.MustCompile(`^### (.+)$`)
	room       = regexp.MustCompile("^- \\[`([a-z0-9/]+)`\\]\\(\\.\\./([^)]+)/[^)/]+\\.go\\): .+\\.$")
	linkOrCode = regexp.MustCompile("(?:\\[([^\\]]+\\.go))?\\]\\(\\.\\./([^)#]+)\\)|`([^`]+)`")
	goName     = regexp.MustCompile(`^([A-Za-z0-9]+\.)?[A-Za-z0-9]+$`)
)

// rooms are the packages that the page lists, each with the number of its floor: the page
// begins with the lowest.
func rooms(source string) (floors map[string]int, twice []string) {
	floors = map[string]int{}
	n := 0
	for line := range strings.Lines(source) {
		line = strings.TrimSuffix(line, "\n")
		if floor.MatchString(line) {
			n++
		}
		if m := room.FindStringSubmatch(line); m != nil && m[1] == m[2] {
			if _, ok := floors[m[1]]; ok {
				twice = append(twice, m[1])
			}
			floors[m[1]] = n
		}
	}
	return floors, twice
}

// packages are the directories with Go code other than tests, and which packages of this
// repository that code imports. Of sims, and of other modules, only the root counts.
// Examples are shown on other pages.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(repository, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == repository {
			return err
		}
		name, err := filepath.Rel(repository, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		dir := path.Dir(name)
		if d.IsDir() {
			if name == "docs/examples" || d.Name() == "testdata" || d.Name()[0] == '.' || dir == "sims" || dir != "." && inTree(dir+"/go.mod") {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		imports := found[dir]
		for _, i := range parsed.Imports {
			full, _ := strconv.Unquote(i.Path.Value)
			if of, ok := strings.CutPrefix(full, modulePath); ok {
				imports = append(imports, of)
			}
		}
		found[dir] = imports
		return nil
	})
	if err != nil || len(found) < 40 {
		t.Fatalf("%d packages: %v", len(found), err)
	}
	return found
}

func architecturePage(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(repository, architecture))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

func TestTheArchitecturePageListsEveryPackageOnce(t *testing.T) {
	listed, twice := rooms(architecturePage(t))
	existing := packages(t)
	for dir := range existing {
		if _, ok := listed[dir]; !ok {
			t.Errorf("%s has no %s: add to its floor \"- [`%s`](../%s/doc.go): what the package does, in one sentence.\"", architecture, dir, dir, dir)
		}
	}
	for dir := range listed {
		if _, ok := existing[dir]; !ok {
			t.Errorf("%s lists %s, which is no package: remove its sentence", architecture, dir)
		}
	}
	for _, dir := range twice {
		t.Errorf("%s lists %s twice: keep one sentence", architecture, dir)
	}
}

func TestPackagesImportOnlyTheirFloorAndLowerOnes(t *testing.T) {
	listed, _ := rooms(architecturePage(t))
	for dir, imports := range packages(t) {
		own, listedToo := listed[dir]
		for _, of := range imports {
			if other, ok := listed[of]; ok && listedToo && other > own {
				t.Errorf("%s imports %s of a higher floor: drop the import, or move one of their sentences in %s", dir, of, architecture)
			}
		}
	}
}

// private are folders whose packages only their own process and its command may import, and
// internal/api, which only packages that write or read answers of the admin API may. Each is a
// prefix of an import path.
var private = map[string][]string{
	"internal/api":     {"internal/relay", "internal/worker", "internal/process", "internal/statuspage", "internal/command", "internal/demo"},
	"internal/relay/":  {"internal/relay", "internal/command", "internal/e2e"},
	"internal/worker/": {"internal/worker", "internal/command", "internal/e2e"},
}

func TestPackagesInsideAProcessAndTheAnswersOfTheAdminAPIAreImportedByTheirUsersOnly(t *testing.T) {
	for dir, imports := range packages(t) {
		for _, of := range imports {
			for folder, users := range private {
				if strings.HasPrefix(of, folder) && !slices.ContainsFunc(users, func(user string) bool { return dir == user || strings.HasPrefix(dir, user+"/") }) {
					t.Errorf("%s imports %s: what others use does not belong into %s", dir, of, folder)
				}
			}
		}
	}
}

// declared are the functions, methods (T.m) and types of a Go file.
func declared(file string) (names []string, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, filepath.FromSlash(file)), nil, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				receiver := d.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				if generic, ok := receiver.(*ast.IndexExpr); ok {
					receiver = generic.X
				}
				if of, ok := receiver.(*ast.Ident); ok {
					name = of.Name + "." + name
				}
			}
			names = append(names, name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names, nil
}

// unknownCode are the files, packages and functions that a page names as code and that do
// not exist. A function belongs to the Go file of the last link before it.
func unknownCode(source string) (problems []string, functions int) {
	file, names := "", []string(nil)
	line := 0
	for words := range strings.Lines(source) {
		line++
		for _, m := range linkOrCode.FindAllStringSubmatch(words, -1) {
			text, link, code := m[1], m[2], m[3]
			var err error
			switch isPath := strings.Contains(code, "/") || path.Ext(code) == ".go"; {
			case link != "" && !inTree(link):
				err = fmt.Errorf("there is no %s", link)
			case !strings.HasSuffix("/"+link, "/"+text) && text != "":
				err = fmt.Errorf("the link of %s leads to %s", text, link)
			case path.Ext(link) == ".go":
				file = link
				names, err = declared(link)
			case isPath && !inTree(code):
				err = fmt.Errorf("there is no %s", code)
			case goName.MatchString(code) && !isPath && !inTree(code):
				functions++
				if !slices.Contains(names, code) {
					err = fmt.Errorf("%q does not declare %s: link the file that does, before the name", file, code)
				}
			}
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s:%d: %v", architecture, line, err))
			}
		}
	}
	return problems, functions
}

func TestEveryFileAndFunctionOfTheArchitecturePageExists(t *testing.T) {
	problems, functions := unknownCode(architecturePage(t))
	for _, problem := range problems {
		t.Error(problem)
	}
	if functions < 40 {
		t.Errorf("only %d functions were checked", functions)
	}
}

func TestUnknownCodeIsFound(t *testing.T) {
	const ring = "[a](../ring/rendezvous.go) "
	for source, want := range map[string]string{
		ring + "`Rendezvous`, `ring`, `--join A`":  "",
		"`ring/rendezvous.go`, `internal/peering`": "",
		"[a](../ring/gone.go)":                     "there is no ring/gone.go",
		"[order.go](../ring/rendezvous.go)":        "the link of order.go leads to ring/rendezvous.go",
		"[ring/order.go](../ring/order.go)":        "",
		"`internal/gone`":                          "there is no internal/gone",
		"\n" + ring + "`Gone.Name`":                `"ring/rendezvous.go" does not declare Gone.Name: link the file that does, before the name`,
		"`Rendezvous`, before " + ring:             `"" does not declare Rendezvous: link the file that does, before the name`,
	} {
		problems, _ := unknownCode(source)
		if got := strings.Join(problems, "; "); got != want && !strings.HasSuffix(got, ": "+want) {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
}

func TestRoomsAreFound(t *testing.T) {
	const a, b = "- [`ring/a`](../ring/a/doc.go): does.\n", "- [`b`](../b/main.go): does too.\n"
	floors, twice := rooms("### Ground\n" + a + "### First\n" + b + a + "- [`c`](../d/doc.go): of another directory.\n- [`e`](../e/doc.go): no full stop\n")
	if len(floors) != 2 || floors["b"] != 2 || !slices.Equal(twice, []string{"ring/a"}) {
		t.Errorf("floors %v, twice %v", floors, twice)
	}
}
