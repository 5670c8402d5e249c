package docgen

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// PublicPackages are the directories of the packages that other modules may import.
var PublicPackages = []string{
	"advertise", "affinity", "membership", "membership/discovery", "membership/identity",
	"ring", "ringwaytest", "selection", "selection/client", "selection/router",
	"adapters/grpc", "adapters/xds", // modules of their own
}

// API lists what the public packages of the repository export, one line for each constant,
// variable, function, type, field and method, sorted. A line changes if code that uses it may
// not compile any more: names of parameters and values of constants are not in it, and an
// interface is one line. Of a type that is an alias, the list has what it stands for.
func API(repository string) ([]byte, error) {
	var lines []string
	for _, dir := range PublicPackages {
		of, err := exported(repository, dir)
		if err != nil {
			return nil, err
		}
		for _, line := range of {
			lines = append(lines, "pkg "+dir+", "+line+"\n")
		}
	}
	slices.Sort(lines)
	return []byte(strings.Join(lines, "")), nil
}

// exported lists one package.
func exported(repository, dir string) (lines []string, err error) {
	entries, err := os.ReadDir(filepath.Join(repository, filepath.FromSlash(dir)))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, filepath.FromSlash(dir), e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				lines = append(lines, function(d)...)
			case *ast.GenDecl:
				lines = append(lines, declaration(repository, file, d)...)
			}
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s exports nothing: remove it from the public packages", dir)
	}
	return lines, nil
}

func function(d *ast.FuncDecl) []string {
	if !d.Name.IsExported() {
		return nil
	}
	if d.Recv == nil {
		return []string{"func " + d.Name.Name + signature(d.Type)}
	}
	receiver := text(d.Recv.List[0].Type)
	if name := strings.TrimPrefix(receiver, "*"); !ast.IsExported(name) {
		return nil
	}
	return []string{"method (" + receiver + ") " + d.Name.Name + signature(d.Type)}
}

// declaration lists constants, variables, or types with their fields.
func declaration(repository string, file *ast.File, d *ast.GenDecl) (lines []string) {
	kind := ""
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.ValueSpec:
			if s.Type != nil {
				kind = " " + text(s.Type)
			} else if len(s.Values) > 0 {
				kind = ""
			} // else the type of the constant before
			for _, name := range s.Names {
				if name.IsExported() {
					lines = append(lines, d.Tok.String()+" "+name.Name+kind)
				}
			}
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				lines = append(lines, typeLines(repository, file, s)...)
			}
		}
	}
	return lines
}

func typeLines(repository string, file *ast.File, s *ast.TypeSpec) []string {
	name := "type " + s.Name.Name
	if s.TypeParams != nil {
		name += "[" + parameters(s.TypeParams) + "]"
	}
	if s.Assign.IsValid() {
		return append(aliased(repository, file, s), name+" = "+text(s.Type))
	}
	fields, isStruct := s.Type.(*ast.StructType)
	if !isStruct {
		return []string{name + " " + text(s.Type)}
	}
	return structLines(name, fields)
}

func structLines(name string, s *ast.StructType) []string {
	lines := []string{name + " struct"}
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 {
			lines = append(lines, name+" struct, embedded "+text(f.Type))
		}
		for _, n := range f.Names {
			if n.IsExported() {
				lines = append(lines, name+" struct, "+n.Name+" "+text(f.Type))
			}
		}
	}
	return lines
}

// aliased lists the fields and methods of a type of an internal package that an exported alias
// makes public.
func aliased(repository string, file *ast.File, s *ast.TypeSpec) (lines []string) {
	of, isSelector := s.Type.(*ast.SelectorExpr)
	if !isSelector {
		return nil
	}
	for _, i := range file.Imports {
		_, dir, ours := strings.Cut(strings.Trim(i.Path.Value, `"`), "ringway/ringway/")
		if !ours || path.Base(dir) != text(of.X) || slices.Contains(PublicPackages, dir) {
			continue
		}
		all, err := exported(repository, dir)
		if err != nil {
			return nil
		}
		for _, line := range all {
			method := strings.TrimPrefix(strings.TrimPrefix(line, "method ("), "*")
			if strings.HasPrefix(line, "type "+of.Sel.Name+" ") || strings.HasPrefix(line, "method (") && strings.HasPrefix(method, of.Sel.Name+")") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

func signature(t *ast.FuncType) string {
	return strings.TrimPrefix(text(t), "func")
}

func parameters(list *ast.FieldList) string {
	var out []string
	for _, f := range list.List {
		for _, n := range f.Names {
			out = append(out, n.Name+" "+text(f.Type))
		}
	}
	return strings.Join(out, ", ")
}

// text returns a type without the names of parameters.
func text(e ast.Expr) string {
	ast.Inspect(e, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncType); ok {
			withoutNames(f.Params)
			withoutNames(f.Results)
		}
		return true
	})
	return types.ExprString(e)
}

func withoutNames(list *ast.FieldList) {
	if list == nil {
		return
	}
	var unnamed []*ast.Field
	for _, f := range list.List {
		for range max(1, len(f.Names)) {
			unnamed = append(unnamed, &ast.Field{Type: f.Type})
		}
	}
	list.List = unnamed
}

// APINames counts the names of a list that have to be documented and learned: all but fields.
func APINames(list []byte) (n int) {
	for line := range bytes.Lines(list) {
		if _, field, _ := bytes.Cut(line, []byte(" struct, ")); field == nil {
			n++
		}
	}
	return n
}

// apiDir has the list of each release, and next.txt for this commit.
const apiDir = "docs/reference/api"

// Unannounced returns the lines of the last release that are not in the list of this commit and
// that the part of the changelog after that release does not name as `package.Name` or
// `package.Type.Name`. The release is empty if there is none.
func Unannounced(repository string) (release string, missing []string, err error) {
	files, err := filepath.Glob(filepath.Join(repository, filepath.FromSlash(apiDir), "[0-9]*.txt"))
	if err != nil || len(files) == 0 {
		return "", nil, err
	}
	slices.SortFunc(files, func(a, b string) int { return compareVersions(filepath.Base(a), filepath.Base(b)) })
	last := files[len(files)-1]
	release = strings.TrimSuffix(filepath.Base(last), ".txt")
	before, err := os.ReadFile(last)
	if err != nil {
		return release, nil, err
	}
	now, err := API(repository)
	if err != nil {
		return release, nil, err
	}
	changelog, err := os.ReadFile(filepath.Join(repository, "CHANGELOG.md"))
	if err != nil {
		return release, nil, err
	}
	since, _, found := strings.Cut(string(changelog), "\n## ["+release+"]")
	if !found {
		return release, nil, fmt.Errorf("CHANGELOG.md has no section of %s, and %s has its API", release, last)
	}
	return release, removed(before, now, since), nil
}

// removed returns the lines that are only in before and whose names announced does not have.
func removed(before, now []byte, announced string) (missing []string) {
	kept := map[string]bool{}
	for line := range bytes.Lines(now) {
		kept[string(line)] = true
	}
	s := bufio.NewScanner(bytes.NewReader(before))
	for s.Scan() {
		if line := s.Text(); !kept[line+"\n"] && !strings.Contains(announced, "`"+nameOf(line)+"`") {
			missing = append(missing, line)
		}
	}
	return missing
}

// nameOf returns the name of a line as the changelog writes it, such as advertise.Record.Encode.
func nameOf(line string) string {
	dir, rest, _ := strings.Cut(strings.TrimPrefix(line, "pkg "), ", ")
	kind, rest, _ := strings.Cut(rest, " ")
	name := path.Base(dir) + "."
	end := func(s string) string { return s[:cmp.Or(strings.IndexAny(s+" ", " (["), len(s))] }
	if kind == "method" {
		receiver, after, _ := strings.Cut(strings.TrimPrefix(rest, "("), ") ")
		name += end(strings.TrimPrefix(receiver, "*")) + "."
		rest = after
	}
	name += end(rest)
	if _, field, ok := strings.Cut(rest, " struct, "); ok {
		name += "." + end(strings.TrimPrefix(field, "embedded "))
	}
	return name
}

func compareVersions(a, b string) int {
	var left, right [3]int
	_, _ = fmt.Sscanf(a, "%d.%d.%d", &left[0], &left[1], &left[2]) // other names sort first
	_, _ = fmt.Sscanf(b, "%d.%d.%d", &right[0], &right[1], &right[2])
	return slices.Compare(left[:], right[:])
}
