package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// fault is one change of a file.
type fault struct {
	file       string // in the repository, with slashes
	line       int
	start, end int    // the bytes that with replaces
	with       string // "" deletes
	name       string // the same while the function has these words, wherever it stands
	body       span   // of its function, without the braces
	labelled   bool   // the body has a label, so that a function cannot have it twice
}

// span is a part of a file, in bytes.
type span struct{ start, end int }

// swapped has for each operator the one that a person would write in its place.
var swapped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.AND_NOT: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
}

// finder collects the faults of one file.
type finder struct {
	file     string
	source   string
	set      *token.FileSet
	function string
	found    []fault
}

// faultsOf returns the faults that can be planted in a file.
func faultsOf(file, source string) ([]fault, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{file: file, source: source, set: set}
	for _, decl := range parsed.Decls {
		if function, ok := decl.(*ast.FuncDecl); ok && function.Body != nil {
			f.function = function.Name.Name
			first := len(f.found)
			ast.Inspect(function.Body, f.visit)
			body, labelled := span{f.offset(function.Body.Lbrace) + 1, f.offset(function.Body.Rbrace)}, false
			ast.Inspect(function.Body, func(n ast.Node) bool {
				_, label := n.(*ast.LabeledStmt)
				labelled = labelled || label
				return true
			})
			for i := first; i < len(f.found); i++ {
				f.found[i].body, f.found[i].labelled = body, labelled
			}
		}
	}
	return f.found, nil
}

// visit adds the faults of one node, and reports whether its children can have some.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if other, ok := swapped[n.Op]; ok {
			f.add(n, f.text(n.X)+" "+other.String()+" "+f.text(n.Y), "")
		}
		if n.Op == token.LAND || n.Op == token.LOR {
			f.add(n, f.text(n.X), "")
			f.add(n, f.text(n.Y), "")
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.add(n, f.text(n.X), "")
		}
	case *ast.IfStmt:
		f.add(n.Cond, "false && ("+f.text(n.Cond)+")", "never holds")
		if compared, ok := n.Cond.(*ast.BinaryExpr); !ok || compared.Op != token.EQL && compared.Op != token.NEQ {
			f.add(n.Cond, "!("+f.text(n.Cond)+")", "negated")
		}
	case *ast.ForStmt: // without its post statement a loop does not end, which every test notices
		if n.Cond != nil {
			ast.Inspect(n.Cond, f.visit)
		}
		ast.Inspect(n.Body, f.visit)
		return false
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			f.add(n, "", "deleted")
		}
	case *ast.IncDecStmt:
		f.add(n, "", "deleted")
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok {
			if isArid(call) {
				return false
			}
			f.add(n, "", "deleted")
		}
	case *ast.DeferStmt: // what is late or missing at an end is found by goleak, or by nothing
		if isArid(n.Call) {
			return false
		}
	}
	return true
}

// isArid reports that no test should hold a call: one that writes a line of the log, or one of a
// lock. A panic is there for what cannot happen.
func isArid(call *ast.CallExpr) bool {
	switch called := call.Fun.(type) {
	case *ast.SelectorExpr:
		switch called.Sel.Name {
		case "Lock", "Unlock", "RLock", "RUnlock":
			return true
		case "Debug", "Info", "Warn", "Error":
			return isLogger(called.X)
		}
	case *ast.Ident:
		return called.Name == "panic"
	}
	return false
}

// isLogger reports whether an expression is a logger, by its name.
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.EqualFold(x.Name, "logger")
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "logger")
	}
	return false
}

// add has with replace a node. change describes how, where the replacement itself does not.
func (f *finder) add(n ast.Node, with, change string) {
	start := f.set.Position(n.Pos())
	if change == "" {
		change = "becomes `" + oneLine(with) + "`"
	}
	f.found = append(f.found, fault{
		file: f.file, line: start.Line, start: start.Offset, end: f.set.Position(n.End()).Offset, with: with,
		name: fmt.Sprintf("%s %s: `%s` %s", f.file, f.function, oneLine(f.text(n)), change),
	})
}

func (f *finder) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return f.source[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset]
}

// oneLine shortens code for a list.
func oneLine(code string) string {
	const most = 90
	code = strings.Join(strings.Fields(code), " ")
	if runes := []rune(code); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return code
}
