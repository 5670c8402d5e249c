package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// never are words of rule 3 of CONTRIBUTING's language that have no other sense in a comment.
var never = regexp.MustCompile(`\b([Nn]obody|[Ss]omebody|[Ee]verybody|[Ww]hoever|for ever|[Aa] while|[Aa]t once|looks? at|so many|tells|says)\b`)

// unnamed is a comment that defers to another name without a word for what it is.
var unnamed = regexp.MustCompile(`^//\s+\w+ (is|are) (that|those) of\b`)

// A name that a comment declares may be such a word.
var declares = regexp.MustCompile(`^// (says) `)

func TestCommentsUseWordsThatTheFieldUses(t *testing.T) {
	root, read := filepath.Join("..", "..", ".."), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, set := strings.TrimPrefix(path, root+string(filepath.Separator)), token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, parser.ParseComments)
		if err != nil {
			return nil // the material of a test
		}
		for _, group := range parsed.Comments {
			for _, c := range group.List {
				read++
				if sentence := unnamed.FindString(c.Text); sentence != "" {
					t.Errorf("%s: %q: name what it is", set.Position(c.Pos()), sentence)
				}
				if word := never.FindString(c.Text); word != "" && !declares.MatchString(c.Text) && file != filepath.Join("internal", "docgen", "house", "language_test.go") {
					t.Errorf("%s: %q: see the rules of CONTRIBUTING.md for the language", set.Position(c.Pos()), word)
				}
			}
		}
		return nil
	})
	if err != nil || read < 1000 {
		t.Fatalf("%d comments read: %v", read, err)
	}
}
