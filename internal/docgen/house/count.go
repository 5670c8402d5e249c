package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

const (
	modulePath   = "github.com/ringway/ringway/"
	architecture = "docs/architecture.md"
	relay        = "internal/relay"
	// longFile is how many lines a file may have before a reader asks whether it has two ideas.
	longFile = 500
)

// house is what was counted.
type house struct {
	rooms map[string]*room // by directory
	up    []string         // imports that lead upwards
	long  []string
	walks []walk
}

// room holds the figures of one package.
type room struct {
	exported              int // constants, variables, functions, types and methods; no fields
	code, comments, tests int // lines that are not empty
	imports               map[string]bool
}

// count reads all packages of a repository.
func count(repository string) (*house, error) {
	page, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(architecture)))
	if err != nil {
		return nil, err
	}
	h := &house{rooms: map[string]*room{}}
	err = filepath.WalkDir(repository, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != repository && (d.Name() == "testdata" || d.Name()[0] == '.'):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(file) != ".go":
			return nil
		}
		name, err := filepath.Rel(repository, file)
		if err != nil {
			return err
		}
		return h.add(file, filepath.ToSlash(name))
	})
	if err != nil {
		return nil, err
	}
	h.climb(floors(string(page)))
	h.walks = walks(string(page))
	slices.Sort(h.long)
	return h, nil
}

// add counts one file.
func (h *house) add(file, name string) error {
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	r := h.rooms[dir]
	if r == nil {
		r = &room{imports: map[string]bool{}}
		h.rooms[dir] = r
	}
	code, comments := lines(source)
	if strings.HasSuffix(name, "_test.go") {
		r.tests += code + comments
		return nil
	}
	r.code += code
	r.comments += comments
	if n := strings.Count(string(source), "\n"); n > longFile {
		h.long = append(h.long, fmt.Sprintf("%s: %d lines", name, n))
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, i := range parsed.Imports {
		full, _ := strconv.Unquote(i.Path.Value)
		if of, ours := strings.CutPrefix(full, modulePath); ours {
			r.imports[of] = true
		}
	}
	if parsed.Name.Name != "main" {
		r.exported += exported(parsed)
	}
	return nil
}

// lines counts the lines with code, and those with nothing but a comment.
func lines(source []byte) (code, comments int) {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	isCode, isComment := map[int]bool{}, map[int]bool{}
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			break
		}
		if kind == token.SEMICOLON && text == "\n" { // the scanner inserts it at the end of a line
			continue
		}
		set := isCode
		if kind == token.COMMENT {
			set = isComment
		}
		first := file.Line(at)
		for i := range strings.Split(text, "\n") {
			set[first+i] = true
		}
	}
	for line := range isComment {
		if !isCode[line] {
			comments++
		}
	}
	return len(isCode), comments
}

// exported counts the names that a file exports.
func exported(file *ast.File) (n int) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
				n++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						n++
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() {
							n++
						}
					}
				}
			}
		}
	}
	return n
}

// receiver returns the name of the type of a method.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

var listed = regexp.MustCompile("^- \\[`([a-z0-9/]+)`\\]")

// floors returns the number of the floor of each package that the page lists. The page begins
// with the lowest floor. The last one, of tests and tools, may import everything.
func floors(page string) map[string]int {
	found, n := map[string]int{}, 0
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "### ") {
			n++
		} else if m := listed.FindStringSubmatch(line); m != nil {
			found[m[1]] = n
		}
	}
	return found
}

// climb finds the imports that lead upwards.
func (h *house) climb(floor map[string]int) {
	inRelay := func(dir string) bool { return dir == relay || strings.HasPrefix(dir, relay+"/") }
	for _, dir := range slices.Sorted(maps.Keys(h.rooms)) {
		own, ok := floor[dir]
		if !ok {
			continue
		}
		for _, of := range slices.Sorted(maps.Keys(h.rooms[dir].imports)) {
			if floor[of] > own || inRelay(of) && !inRelay(dir) && own < floor[relay] {
				h.up = append(h.up, dir+" -> "+of)
			}
		}
	}
}

// write prints a line for each package, then the sums.
func (h *house) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "exported\tcode\tcomments\ttests\tcomments ÷ code\t\tpackage")
	var sum room
	for _, dir := range slices.Sorted(maps.Keys(h.rooms)) {
		r := h.rooms[dir]
		r.print(w, dir)
		sum.exported, sum.code, sum.comments, sum.tests = sum.exported+r.exported, sum.code+r.code, sum.comments+r.comments, sum.tests+r.tests
	}
	sum.print(w, fmt.Sprintf("%d packages", len(h.rooms)))
	if err := w.Flush(); err != nil {
		return err
	}
	writeWalks(out, h.walks)
	_, err := fmt.Fprintf(out, "\nimports upwards: %d\n%s\nfiles over %d lines: %d\n%s", len(h.up), list(h.up), longFile, len(h.long), list(h.long))
	return err
}

func (r *room) print(w io.Writer, name string) {
	fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%.2f\t\t%s\n", r.exported, r.code, r.comments, r.tests, float64(r.comments)/float64(cmp.Or(r.code, 1)), name)
}

func list(items []string) (text string) {
	for _, item := range items {
		text += "  " + item + "\n"
	}
	return text
}
