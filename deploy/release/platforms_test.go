package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A compiler for another system needs minutes of CPU time, most of it for packages that are
// not ours. The types are those of the compiler and are checked in seconds, because the bodies
// of functions of other modules are left out.
func TestEveryPackageAndTestCompilesOnDarwin(t *testing.T) {
	root := filepath.Join("..", "..")
	checked := map[string]int{}
	for _, arch := range []string{"amd64", "arm64"} {
		checked["."] += checkTypes(t, typeConfig{dir: root, arch: arch, packages: []string{"./...", "./sims/..."}})
	}
	// The other modules are outside the workspace. No file of theirs is for one processor.
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		dir := filepath.Dir(path)
		if module, _ := filepath.Rel(root, dir); filepath.Base(path) == "go.mod" && module != "." && module != "sims" {
			checked[module] = checkTypes(t, typeConfig{dir: dir, arch: "arm64", packages: []string{"./..."}, workspace: "off"})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked["."] < 200 || checked[filepath.Join("adapters", "xds")] < 4 || len(checked) < 4 {
		t.Errorf("packages and tests by module: %v", checked)
	}
}

type typeConfig struct {
	dir, arch string
	packages  []string
	workspace string // GOWORK; empty is the go.work of this repository
}

// checkTypes checks the types of the packages and their tests, and returns their number.
func checkTypes(t *testing.T, cfg typeConfig) (checked int) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-test", "-json=ImportPath,Dir,Module,GoFiles,ImportMap"}, cfg.packages...)...)
	list.Dir, list.Stderr = cfg.dir, os.Stderr
	list.Env = append(os.Environ(), "GOOS=darwin", "GOARCH="+cfg.arch, "CGO_ENABLED=0", "GOWORK="+cfg.workspace)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	files := token.NewFileSet()
	packages := map[string]*types.Package{"unsafe": types.Unsafe}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; { // each package comes after those that it imports
		var p struct {
			ImportPath, Dir string
			Module          *struct{ Main bool }
			GoFiles         []string
			ImportMap       map[string]string
		}
		if err := decoder.Decode(&p); err == io.EOF {
			return checked
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // the main function that go test writes
			continue
		}
		own := p.Module != nil && p.Module.Main
		var syntax []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			syntax = append(syntax, file)
		}
		config := types.Config{
			Importer: checkedImports{packages, p.ImportMap}, IgnoreFuncBodies: !own, Sizes: types.SizesFor("gc", cfg.arch),
			Error: func(err error) {
				if own {
					t.Errorf("darwin/%s: %v", cfg.arch, err)
				}
			},
		}
		path, _, _ := strings.Cut(p.ImportPath, " ") // "a [b.test]" is a, compiled for the tests of b
		packages[p.ImportPath], _ = config.Check(path, files, syntax, nil)
		if own {
			checked++
		}
	}
}

// checkedImports imports packages whose types are checked, by the paths of go list.
type checkedImports struct {
	packages map[string]*types.Package
	means    map[string]string // import path to path of go list, where they differ
}

// Import implements types.Importer.
func (c checkedImports) Import(path string) (*types.Package, error) {
	if to, found := c.means[path]; found {
		path = to
	}
	if p := c.packages[path]; p != nil {
		return p, nil
	}
	return nil, errors.New("go list has no " + path)
}
