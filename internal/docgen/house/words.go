package main

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// generatedPart is what a program writes into a page.
var generatedPart = regexp.MustCompile(`(?s)<!-- begin (\w+) -->.*?<!-- end \w+ -->`)

// handWritten counts the words of the pages in docs, by folder, as wc does: code and tables
// included. Pages and parts of pages that a program writes do not count.
func handWritten(repository string) (map[string]int, error) {
	docs := filepath.Join(repository, "docs")
	words := map[string]int{}
	err := filepath.WalkDir(docs, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".md" {
			return err
		}
		source, err := os.ReadFile(file)
		if err != nil || strings.HasPrefix(string(source), "<!-- Generated ") {
			return err
		}
		name, err := filepath.Rel(docs, filepath.Dir(file))
		words[filepath.ToSlash(name)] += len(strings.Fields(generatedPart.ReplaceAllString(string(source), "")))
		return err
	})
	return words, err
}

// guides is how many words an operator or an author of programs has in front of them: all pages
// except records of decisions, which few read, and the reference, which is looked up.
func guides(words map[string]int) (n int) {
	for folder, of := range words {
		if folder != "decisions" && folder != "reference" {
			n += of
		}
	}
	return n
}

func writeWords(out io.Writer, words map[string]int) {
	fmt.Fprintf(out, "\nwords written by hand in docs: %d, without decisions and reference %d\n", total(words), guides(words))
	for _, folder := range slices.Sorted(maps.Keys(words)) {
		fmt.Fprintf(out, "  %6d %s\n", words[folder], folder)
	}
}

func total(words map[string]int) (n int) {
	for _, of := range words {
		n += of
	}
	return n
}
